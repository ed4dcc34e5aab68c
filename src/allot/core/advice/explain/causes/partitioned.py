"""Idle nodes whose devices are divided otherwise than a request asks: cut into parts, or whole, by a setting that a node's operator follows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from allot.core.advice.explain.causes.placing import SELECTING, Placing
from allot.core.advice.explain.devices import Wanted, device_id
from allot.core.advice.explain.diagnosis import Candidate, Rank, delete_of
from allot.core.advice.explain.remedies.nodes import slices_like
from allot.core.advice.what_if import WhatIfCluster
from allot.core.explain import Obstacle
from allot.core.model import resource_v1 as api
from allot.core.scheduling import NodeInfo

_TYPE = re.compile(r'have (?:\S+/)?type "(?P<actual>[^"]*)", need "(?P<needed>[^"]*)"')
# Labels by which a node's operator divides its devices, without the state that it reports.
_SETTING = re.compile(
    r"mig\.config$|(?:config|partition)[-_]?profile$|partition(?:ing)?(?:[-_](?:mode|config))?$", re.IGNORECASE
)
_PRODUCT = re.compile(r"product|device-?id|model", re.IGNORECASE)


class Partitioned(NamedTuple):
    """A node that would do if its devices were divided otherwise. text: phrased to come first."""

    text: str
    candidates: tuple[Candidate, ...]


def partitioned(placing: Placing, wanted: Wanted) -> Partitioned | None:
    """An idle node with the same hardware as one that has what a request asks for; None if there is none."""
    what_if = placing.what_if
    like = _like(placing, wanted)
    for tally in wanted.found.of(Obstacle.SELECTOR) if like is not None else ():
        value = _TYPE.fullmatch(tally.reason.text)
        for name in tally.nodes if value is not None else ():
            info = what_if.cluster.nodes.get(name)
            there = wanted.found.nodes[name]
            if value is None or info is None or like is None or there.count(Obstacle.SELECTOR) != there.in_class:
                continue
            key = _setting(info, like)
            if not key or _is_used(what_if, name) or not _same_product(what_if, name, like.name):
                continue
            text = (
                f'node {name}, where no device is in use, has {there.in_class} of type "{value["actual"]}" (label {key}='
                f'{info.labels[key]}), and "{value["needed"]}" is asked for'
            )
            driver = device_id(tally.devices[0]).driver
            own = [
                each
                for each in what_if.all(api.ResourceSlice)
                if (each.spec.node_name, each.spec.driver) == (name, driver)
            ]
            new = [
                each
                for each in slices_like(what_if, like, name)
                if each.object is not None and each.object["spec"]["driver"] == driver
            ]
            candidate = Candidate(
                rank=Rank.FIX,
                text=f"label node {name} with {key}={like.labels[key]}, as node {like.name}, so that its devices are divided like those",
                patches=(*(delete_of("ResourceSlice", each.metadata.name) for each in own), *new),
            )
            return Partitioned(text, (candidate,))
    return None


def _like(placing: Placing, wanted: Wanted) -> NodeInfo | None:
    """The node with the most devices that the request's selectors accept, if these would be enough."""
    counts = {name: there.in_class - there.count(*SELECTING) for name, there in wanted.found.nodes.items()}
    best = max(counts, key=lambda name: counts[name], default="")
    return placing.what_if.cluster.nodes.get(best) if counts.get(best, 0) >= max(1, wanted.leaf.count) else None


def _setting(info: NodeInfo, like: NodeInfo) -> str:
    """The label by which two nodes differ in how their devices are divided; empty if there is none."""
    labels: Mapping[str, str] = info.labels
    return next(
        (key for key in labels if _SETTING.search(key) and key in like.labels and labels[key] != like.labels[key]), ""
    )


def _is_used(what_if: WhatIfCluster, node: str) -> bool:
    pools = {
        (each.spec.driver, each.spec.pool.name)
        for each in what_if.all(api.ResourceSlice)
        if each.spec.node_name == node
    }
    return any(
        (result.driver, result.pool) in pools
        for claim in what_if.all(api.ResourceClaim)
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    )


def _same_product(what_if: WhatIfCluster, one: str, other: str) -> bool:
    """Whether devices of two nodes have the same product."""
    return bool(set(_products(what_if, one)) & set(_products(what_if, other)))


def _products(what_if: WhatIfCluster, node: str) -> Iterator[tuple[str, str]]:
    for slice_ in what_if.all(api.ResourceSlice):
        for device in (slice_.spec.devices or ()) if slice_.spec.node_name == node else ():
            for name, value in device.attributes.items():
                if value.string and _PRODUCT.search(name):
                    yield name, value.string
