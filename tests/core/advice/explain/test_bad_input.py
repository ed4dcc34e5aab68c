"""Dumps that people or programs have damaged: whatever is left of them is explained, without an error."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.text import lines
from allot.core.advice.snapshot import Snapshot, read_object
from core.advice.explain.clusters import (
    DRIVER,
    asks,
    claim,
    device_class,
    event,
    explained,
    gpu,
    gpus,
    holding,
    node,
    pool,
    running,
    template,
    templated,
    wanting,
)

ROUNDS = 400
MEMORY = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0'
OBJECTS: list[dict[str, Any]] = [
    node("a"),
    node("b", unschedulable=True, taints=[{"key": "x", "effect": "NoSchedule"}]),
    pool("a", gpus(2)),
    pool("b", gpus(2, "80Gi"), slices=2),
    device_class(),
    claim("held", asks(), status=holding("a", "gpu-0", users=("other",))),
    running("other", "a", "held"),
    template("single", asks()),
    wanting("shared", "held"),
    wanting("missing", "nothing"),
    event("train", "FailedResourceClaimCreation", "no"),
    *templated(
        "train", asks(MEMORY, count=2, constraints=[{"matchAttribute": "gpu.nvidia.com/root"}]), nodeSelector={"z": "1"}
    ),
]
VALUES: tuple[Any, ...] = ("x", "", 0, -1, 1000, None, [], {}, True, "80Gi", "device.x ==", "gpu-0")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in members for place in ((*path, key), *places(part, (*path, key)))]


def damaged(dice: random.Random) -> list[dict[str, Any]]:
    objects = copy.deepcopy(OBJECTS)
    for _ in range(dice.randint(1, 4)):
        object_ = dice.choice(objects)
        candidates = [place for place in places(object_) if place[0] in ("spec", "status", "metadata")]
        candidates = [place for place in candidates if place not in (("metadata",), ("metadata", "name"))]
        if not candidates:
            continue
        place = dice.choice(candidates)
        parent = object_
        for key in place[:-1]:
            parent = parent[key]
        if dice.random() < 0.5:
            del parent[place[-1]]
        else:
            parent[place[-1]] = dice.choice(VALUES)
        if dice.random() < 0.2:
            objects.remove(object_)
    return objects


@pytest.mark.slow
def test_whatever_is_left_of_a_dump_is_explained() -> None:
    explained = 0
    for seed in range(ROUNDS):
        try:
            objects = tuple(read_object(value) for value in damaged(random.Random(seed)))
        except ValueError:
            continue
        explainer = Explainer(Snapshot(objects, 1_800_000_000.0))
        for namespace, name in explainer.pending(None):
            found = explainer.pod(namespace, name)
            beginnings = tuple(f"{namespace}/{name} {words} " for words in ("is pending because", "would be placed on"))
            assert next(lines(found)).startswith(beginnings)
            assert found == explainer.pod(namespace, name), "asking leaves no trace"
            explained += 1
    assert explained > ROUNDS


def test_a_slice_that_has_lost_its_name_is_explained_with() -> None:
    nameless = pool("a", gpus(1))
    del nameless["metadata"]["name"]
    held = claim("held", asks(), status=holding("a", "gpu-0", users=("other",)))
    values = (node("a"), nameless, device_class(), held, running("other", "a", "held"), *templated("train", asks()))
    explainer = Explainer(Snapshot(tuple(map(read_object, values)), None))
    assert next(lines(explainer.pod("default", "train"))).startswith("default/train is pending because ")


@pytest.mark.parametrize("text", ["²", "--5", "9" * 5000, "٣"])
def test_texts_that_look_like_numbers_are_compared_without_an_error(text: str) -> None:
    devices = [gpu(0, attributes={"index": {"int": 1}, "profile": {"string": "²g"}})]
    expressions = (
        f'device.attributes["{DRIVER}"].index == "{text}"',
        f'device.attributes["{DRIVER}"].profile == "{text}"',
    )
    for expression in expressions:
        objects = [node("n"), pool("n", devices), device_class(), claim("c", asks(expression)), wanting("train", "c")]
        assert explained(*objects).cause
