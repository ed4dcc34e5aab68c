"""The model: a change costs what it touches, and nothing is forgotten."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.advice.what_if import key_of
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.meta import APIStruct
from allot.core.model.resource_v1 import ResourceClaim
from allot.dashboard.model import EVENTS_MAX, Model
from dashboard import scene


def objects(nodes: int = 8) -> list[APIStruct]:
    return [read_object(value) for value in scene.objects(nodes)]


def rows(model: Model) -> dict[str, dict[str, Any]]:
    return {name: msgspec.json.decode(table.all_rows()) for name, table in model.tables.items()}


def cells(model: Model, node: str) -> dict[str, dict[str, Any]]:
    row = rows(model)["nodes"][node]
    return {cell["n"]: cell for pool in row["dev"] for cell in pool["d"]}


@pytest.mark.parametrize("seed", range(12))
def test_rows_after_changes_are_those_of_the_changed_cluster(seed: int) -> None:
    """Whatever comes and goes in whatever order: objects of all kinds, those first that others refer to, or last."""
    dice = random.Random(seed)
    every = objects()
    known = {key_of(each): each for each in every if dice.random() < 0.5}
    model = Model(Snapshot(tuple(known.values())))
    for _ in range(60):
        each = dice.choice(every)
        before = known.get(key_of(each))
        if before is None:
            known[key_of(each)] = each
            model.apply([(None, each)])
        else:
            del known[key_of(each)]
            model.apply([(before, None)])
        if dice.random() < 0.3:
            model.refresh()
    model.refresh()
    other = Model(Snapshot(tuple(known.values())))
    assert rows(model) == rows(other)
    assert (model.counts(), model.sample(0.0)) == (other.counts(), other.sample(0.0))


@pytest.mark.parametrize("seed", range(6))
def test_rows_follow_objects_that_change(seed: int) -> None:
    dice = random.Random(seed)
    known = {key_of(each): each for each in objects()}
    model = Model(Snapshot(tuple(known.values())))
    for _ in range(40):
        key = dice.choice([key for key in known if key[0] in (Pod, Node, ResourceClaim)])
        before = known[key]
        after = changed(before, dice)
        known[key] = after
        model.apply([(before, after)])
        if dice.random() < 0.5:
            model.refresh()
    model.refresh()
    assert rows(model) == rows(Model(Snapshot(tuple(known.values()))))


def changed(object_: APIStruct, dice: random.Random) -> APIStruct:
    replace = msgspec.structs.replace
    if isinstance(object_, Node):
        return replace(object_, spec=replace(object_.spec, unschedulable=not object_.spec.unschedulable))
    if isinstance(object_, Pod):
        phase = dice.choice(["Pending", "Running", "Succeeded"])
        return replace(object_, status=replace(object_.status, phase=phase, conditions=()))
    assert isinstance(object_, ResourceClaim)
    if object_.status.allocation is not None:
        return replace(object_, status=replace(object_.status, allocation=None, reserved_for=(), devices=()))
    return replace(object_, metadata=replace(object_.metadata, deletion_timestamp="2026-11-17T11:00:00Z"))


def test_cells_say_where_a_device_is_and_who_holds_it() -> None:
    found = cells(Model(Snapshot(tuple(objects()))), "node-1")
    assert found["gpu-0"] == {"n": "gpu-0", "s": "u", "u": 0, "p": "pci0000:00", "h": ["team-1/train-1-0"]}
    assert found["gpu-7"] == {"n": "gpu-7", "s": "f", "u": 1, "p": "pci0000:30"}


def test_a_shared_device_says_how_much_of_it_is_taken() -> None:
    cell = cells(Model(Snapshot(tuple(objects()))), "node-1")["gpu-6"]
    assert (cell["s"], cell["f"], cell["h"]) == ("p", 0.25, ["team-1/shared"])


def test_a_gpu_and_its_partitions_are_one_cell() -> None:
    cell = cells(Model(Snapshot(tuple(objects()))), "node-2")["gpu-8"]
    assert (cell["s"], cell["kn"]) == ("p", 7)
    assert cell["k"] == [{"n": "gpu-8-part-0", "p": "1g.10gb", "h": ["team-0/slice"]}]


def test_tainted_sick_and_cordoned_devices_are_told_apart() -> None:
    model = Model(Snapshot(tuple(objects())))
    assert cells(model, "node-0")["gpu-7"]["t"] == ["example.com/xid=79:NoExecute"]
    assert cells(model, "node-0")["gpu-7"]["s"] == "x"
    assert cells(model, "node-4")["gpu-7"]["x"] == "not ready: fell off the bus"
    assert cells(model, "node-1")["gpu-6"]["x"] == "unhealthy: too hot"
    assert rows(model)["nodes"]["node-3"]["closed"] == "cordoned"
    assert {cell["s"] for cell in cells(model, "node-3").values()} == {"u", "x"}


def test_pods_that_look_the_same_have_one_shape() -> None:
    pods = rows(Model(Snapshot(tuple(objects()))))["pods"]
    assert pods["team-1/big-0"]["shape"] == pods["team-1/big-1"]["shape"]
    assert pods["team-1/big-0"]["shape"] != pods["team-2/ring-0"]["shape"]
    assert pods["team-1/big-0"]["msg"].startswith("0/8 nodes are available")
    assert "shape" not in pods["team-1/shared"]


def test_a_gang_says_how_many_it_needs_and_has() -> None:
    gang = rows(Model(Snapshot(tuple(objects()))))["gangs"]["team-2/ring"]
    assert (gang["min"], gang["pods"], gang["placed"], gang["s"]) == (4, 4, 0, "waiting")


def test_a_heartbeat_makes_no_answer_old() -> None:
    known = objects()
    model = Model(Snapshot(tuple(known)))
    node = next(each for each in known if isinstance(each, Node))
    (condition,) = node.status.conditions
    later = msgspec.structs.replace(condition, last_heartbeat_time="2026-11-17T11:00:00Z")
    status = msgspec.structs.replace(node.status, conditions=(later,))
    revision, decisive = model.revision, model.decisive
    model.apply([(node, msgspec.structs.replace(node, status=status))])
    assert not model.refresh()
    assert (model.revision, model.decisive) == (revision, decisive)


def test_events_are_kept_up_to_a_number_the_newest_of_them() -> None:
    about = scene.node(0)
    model = Model(Snapshot((read_object(about),)))
    for number in range(2 * EVENTS_MAX + 1):
        value = scene.event(f"e-{number}", "Said", str(number), about)
        value["lastTimestamp"] = f"2026-11-17T10:{number // 60 % 60:02d}:{number % 60:02d}Z"
        model.apply([(None, read_object(value))])
    model.refresh()
    assert len(model.tables["events"]) == EVENTS_MAX
