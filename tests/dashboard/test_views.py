"""What pages show, as JSON: golden files for a cluster with something of everything, and the views that count and remember.

After a change that is meant, ALLOT_GOLDEN=write makes the files anew; look at what they say before they are committed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.advice.waking import EVENTS, wakes
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import ResourceClaim
from allot.core.scheduling.queueing.hints import RULES
from allot.dashboard.model import LOW_S, Model
from allot.dashboard.views import holdings as holdings_module
from allot.dashboard.views.attention import Facts, attention_rows
from allot.dashboard.views.holdings import Holdings, held_changes
from dashboard import scene
from dashboard.test_model import cells, objects, rows

GOLDEN = Path(__file__).with_name("golden")
NOW = 1794911400.0


@pytest.mark.parametrize("table", ["nodes", "pods", "claims", "gangs", "events", "attention"])
def test_rows_are_those_of_the_golden_file(table: str) -> None:
    found = rows(Model(Snapshot(tuple(objects(4)), NOW)))[table]
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    file = GOLDEN / f"{table}.json"
    if os.environ.get("ALLOT_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert json.loads(file.read_text()) == json.loads(text)


def sentences(**facts: Any) -> dict[str, str]:
    return {about: row["text"] for about, row in attention_rows(Facts(**facts)).items()}


def test_a_cluster_in_which_all_is_well_needs_no_words() -> None:
    assert sentences(nodes=4, devices=32, free=8) == {}


def test_each_number_that_is_bad_has_a_sentence() -> None:
    assert sentences(nodes=1, closed={"a": "cordoned"})["nodes"] == "1 of 1 node takes no pods: a (cordoned)."
    many = sentences(nodes=9, closed=dict.fromkeys("abcde", "not ready"))
    assert many["nodes"] == "5 of 9 nodes take no pods: a (not ready), b (not ready), c (not ready) and 2 more."
    assert sentences(devices=2, free=0)["free"] == "No device is free."
    waiting = attention_rows(Facts(waiting=2, longest="a/b", longest_since=scene.CREATED))["waiting"]
    assert waiting["text"] == "2 pods wait, a/b the longest."
    assert (waiting["since"], waiting["to"]) == (scene.CREATED, ["pending", {"pod": "a/b"}])
    idle = sentences(idle=[("a/x", 2, scene.CREATED), ("a/y", 1, None)])
    assert idle["idle"] == "2 claims hold 3 devices that no pod uses: a/x, a/y."


def test_devices_that_pods_hold_and_hardly_use_are_named_after_a_while() -> None:
    model = Model(Snapshot(tuple(objects()), NOW))
    assert "unused" not in rows(model)["attention"]
    model.measure({"team-1/train-1-0": (2.0, 100.0), "team-1/train-1-1": (80.0, 30_000.0)})
    model.refresh()
    claims = rows(model)["claims"]
    assert (claims["team-1/train-1-0"]["use"], claims["team-1/train-1-0"]["low"]) == ([2, 100], NOW)
    assert (claims["team-1/train-1-1"]["use"], "low" in claims["team-1/train-1-1"]) == ([80, 30_000], False)
    assert {name: cell.get("g") for name, cell in cells(model, "node-1").items() if "g" in cell} == {"gpu-0": 2, "gpu-1": 2, "gpu-2": 80, "gpu-3": 80}  # fmt: skip
    assert "unused" not in rows(model)["attention"]
    model.what_if.pass_to(NOW + LOW_S)
    model.measure({"team-1/train-1-0": (1.0, 100.0)})
    model.refresh()
    text = "1 claim holds 2 devices that their pods hardly use: team-1/train-1-0."
    assert rows(model)["attention"]["unused"]["text"] == text
    # It is used again; or nobody measures it any more; or its pod is gone.
    for use in ((60.0, 1.0), None):
        model.measure({"team-1/train-1-0": use})
        model.refresh()
        assert "unused" not in rows(model)["attention"]
    pod = next(each for each in objects() if isinstance(each, Pod) and each.metadata.name == "train-1-1")
    model.apply([(pod, None)])
    model.refresh()
    assert "team-1/train-1-1" not in model.use
    assert not any("g" in cell for cell in cells(model, "node-1").values())


def test_how_often_a_pod_was_tried_is_what_events_say() -> None:
    model = Model(Snapshot(tuple(objects()), NOW))
    assert rows(model)["pods"]["team-1/big-0"]["tries"] == 3
    big = next(each for each in scene.objects() if each["kind"] == "Pod" and each["metadata"]["name"] == "big-0")
    again = read_object({**scene.event("big-0.9", "FailedScheduling", "no", big), "count": 39})
    model.apply([(None, again)])
    model.refresh()
    assert rows(model)["pods"]["team-1/big-0"]["tries"] == 42
    model.apply([(again, None)])
    model.refresh()
    assert rows(model)["pods"]["team-1/big-0"]["tries"] == 3


def test_every_plugin_that_refuses_pods_has_words_for_what_it_waits_for() -> None:
    assert set(EVENTS) == set(RULES)


def test_what_wakes_a_pod_is_what_its_plugins_wait_for() -> None:
    what_if = WhatIfCluster(Snapshot(tuple(objects()), NOW))
    assert "a claim gives devices back" in wakes(what_if, "team-1/big-0")
    assert wakes(what_if, "team-1/train-1-0") == ()
    assert wakes(what_if, "nobody/here") == ()


# --- who held what ---


def claim(name: str, *devices: str, since: str = "2026-11-17T10:00:00Z") -> ResourceClaim:
    on = "node-0" if devices else ""
    found = read_object(scene.claim("a", name, count=1, on=on, devices=devices, since=since))
    assert isinstance(found, ResourceClaim)
    return found


def test_devices_have_the_spans_in_which_claims_held_them() -> None:
    holdings = Holdings()
    holdings.begin([claim("first", "gpu-0")], NOW)
    holdings.change(NOW + 10, held_changes(claim("first", "gpu-0"), claim("first", "gpu-1")))
    holdings.change(NOW + 20, held_changes(None, claim("second", "gpu-0")))
    holdings.change(NOW + 30, held_changes(claim("second", "gpu-0"), None))
    one, other = holdings.rows([f"{scene.DRIVER}/node-0/gpu-{number}" for number in range(2)])
    assert one["spans"] == [(NOW - 1800, NOW + 10, "a/first"), (NOW + 20, NOW + 30, "a/second")]
    assert other["spans"] == [(NOW + 10, None, "a/first")]
    # Nobody looked for a while: what is not held any more has ended, at the latest now.
    holdings.begin([], NOW + 100)
    assert holdings.rows([f"{scene.DRIVER}/node-0/gpu-1"])[0]["spans"] == [(NOW + 10, NOW + 100, "a/first")]


def test_what_ended_first_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings_module, "SPANS_MAX", 3)
    holdings = Holdings()
    for number in range(9):
        holdings.change(number, [("d", f"a/{number}", True)])
        holdings.change(number + 0.5, [("d", f"a/{number}", False)])
    spans = holdings.rows(["d"])[0]["spans"]
    assert 3 <= len(spans) <= 6
    assert spans[-1] == (8, 8.5, "a/8")
