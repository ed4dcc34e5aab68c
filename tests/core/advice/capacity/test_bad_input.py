"""Dumps and manifests that people have edited: something is said about them, or they are refused, but nothing breaks."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from allot.core.advice.planning.copies import NoTemplate
from allot.core.advice.planning.manifest import ManifestError, read_manifest
from allot.core.advice.planning.outcome import outcome_of
from allot.core.advice.snapshot import NotInSnapshots, Snapshot, read_object
from allot.core.advice.tree import claim_tree, device_tree, node_tree, pod_tree
from allot.core.advice.usage.claims import claim_usage
from allot.core.advice.usage.devices import By, device_usage
from allot.core.advice.usage.listing import list_devices, list_pools
from allot.core.advice.usage.nodes import node_usage
from allot.core.advice.usage.partitions import partition_usage
from allot.core.advice.usage.published import published_pools
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError

from .world import Object, board, claim, device_class, gpu, gpus, held, model_is, node, pod, request, slices, template

REFUSED = (DecodeError, ConversionError, NotInSnapshots, ManifestError, NoTemplate)
_ODD: tuple[Any, ...] = (None, "", "x", -1, 0, 10**20, True, [], {}, [None], {"a": 1}, "1Gi", "2026-13-45T99:00:00Z")


def _dump() -> list[Object]:
    devices, counters = board("b0")
    shared = gpu("shared", "S", allowMultipleAllocations=True, capacity={"memory": {"value": "8Gi"}})
    used = held("used", "n1", "gpu-0", pods=("worker",))
    used["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return [
        node("n1"),
        *slices("n1", [*gpus(3), shared, *devices], [counters]),
        device_class(),
        device_class("a", model_is("A")),
        used,
        claim("waits"),
        template("t"),
        pod("worker", cpu="1", claims=("used",), nodeName="n1"),
        pod("waiting", claims=("waits",), templates=("t",)),
    ]


def _manifest() -> list[Object]:
    return [template("m", request(count=2)), pod("more", cpu="1", templates=("m",))]


def _damaged(objects: list[Object], dice: random.Random) -> list[Object]:
    """With a few values replaced or removed, anywhere."""
    damaged = copy.deepcopy(objects)
    for _ in range(dice.randint(1, 4)):
        place: Any = dice.choice(damaged)
        while True:
            key = dice.choice(list(place)) if isinstance(place, dict) else dice.randrange(len(place))
            below = place[key]
            if isinstance(below, dict | list) and below and dice.random() < 0.8:
                place = below
                continue
            if dice.random() < 0.3:
                del place[key]
            else:
                place[key] = dice.choice(_ODD)
            break
    return damaged


def _read(objects: list[Object]) -> Snapshot:
    found = []
    for value in objects:
        try:
            found.append(read_object(value))
        except REFUSED:
            continue
    return Snapshot(tuple(found), 1767229200.0)


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_damaged_dumps_are_counted_and_planned_with_or_refused(first: int) -> None:
    for seed in range(first, first + 20):
        dice = random.Random(seed)
        cluster = _read(_damaged(_dump(), dice))
        world = WhatIfCluster(cluster)
        for by in By:
            report = device_usage(world, by)
            for row in report.rows:
                assert row.total == row.free + row.partly + row.in_use + row.unavailable, f"seed {seed}"
        partition_usage(world), claim_usage(world), node_usage(world), list_devices(world), list(list_pools(world))
        for each in world.all(core_v1.Pod):
            pod_tree(world, each)
        for found in world.all(api.ResourceClaim):
            claim_tree(world, found)
        for pool in published_pools(world):
            for entry in pool.entries:
                device_tree(world, pool, entry)
        node_tree(world, "n1")
        manifest = _manifest() if dice.random() < 0.5 else _damaged(_manifest(), dice)
        try:
            read = read_manifest(manifest, cluster)
            outcome = outcome_of(world, read, 50)
        except REFUSED:
            continue
        assert outcome.scheduled <= outcome.maximum.copies, f"seed {seed}"
