"""What pages are answered: rows, changes, explanations, plans, pictures, objects."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from allot.cli.analyst import Catalogue
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.advice.what_if import WhatIfCluster
from allot.dashboard import analysis
from allot.dashboard.assets import read_assets
from allot.dashboard.door import Door
from allot.dashboard.following import Followed
from allot.dashboard.model import Model
from allot.dashboard.questions import BadQuestion, answer
from allot.dashboard.server import HEARTBEAT_S, Dashboard
from allot.dashboard.sessions import Sessions
from allot.process.clock import SystemClock
from dashboard import scene
from dashboard.serving import Visitor, visitor, visitor_of_dump
from waiting import until

pytestmark = pytest.mark.slow

SCENE: list[dict[str, Any]] = scene.objects()


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Visitor]:
    async with visitor_of_dump(scene.write(tmp_path / "dump.json", SCENE)) as found:
        await found.enter()
        yield found


async def test_a_cluster_is_told_about(inside: Visitor) -> None:
    about = await inside.get("api/about")
    assert about["live"] is False
    assert about["takenAt"] == 1794911400.0
    rows = await inside.get("api/rows/nodes")
    assert len(rows["rows"]) == 8
    assert rows["revision"] == about["revision"]


async def test_questions_about_pods_gangs_claims_and_queues_are_answered(inside: Visitor) -> None:
    """One analyst answers all, and nothing of one question is left for the next."""
    pod = await inside.get("api/ask/explain?kind=pod&ns=team-1&name=big-0")
    assert "8 are needed on one node" in pod["answer"]["cause"]
    assert pod["answer"]["text"].startswith(pod["answer"]["cause"])
    (request,) = pod["answer"]["requests"]
    assert request["published"] > request["devices"] > request["free"]
    assert all(removed["sentence"] for removed in request["removed"])
    commands = [change["command"] for change in pod["answer"]["changes"] if change["verified"]]
    assert any(command.startswith("kubectl -n team-") for command in commands)
    gang = await inside.get("api/ask/explain?kind=gang&ns=team-2&name=ring")
    assert gang["answer"]["cause"].startswith("gang team-2/ring is pending because")
    claim = await inside.get("api/ask/explain?kind=claim&ns=team-1&name=big-0")
    assert claim["answer"]["cause"].startswith("claim team-1/big-0 has no devices yet")
    queues = (await inside.get("api/ask/queues"))["answer"]["queues"]
    training = next(queue for queue in queues if queue["name"] == "training")
    gpu = next(each for each in training["resources"] if each["resource"] == "gpu")
    assert (gpu["deserved"], gpu["allocated"]) == ("2", "6")
    assert (await inside.get("api/ask/explain?kind=queue&name=evaluation"))["answer"]["cause"]
    missing = await inside.get("api/ask/explain?kind=pod&ns=team-1&name=nobody")
    assert missing["error"] == "pod team-1/nobody: not found"
    again = await inside.get("api/ask/explain?kind=pod&ns=team-1&name=big-0&fresh=1")
    assert again["answer"] == pod["answer"]


def test_a_plan_adds_machines_that_are_not_there_yet() -> None:
    what_if = WhatIfCluster(Snapshot(tuple(map(read_object, scene.objects()))))
    arguments = {"class": "gpu.nvidia.com", "count": "8", "add": "2", "like": "machine:h100x8"}
    found = answer(what_if, "plan", arguments, Catalogue())
    assert found["then"]["nodes"] == found["now"]["nodes"] + 2
    # A pod that waits for four has one of them, the copy has the other.
    assert (found["then"]["moved"], found["then"]["scheduled"]) == (1, 1)
    assert any("assumed as their drivers install them: DeviceClasses gpu.nvidia.com" in note for note in found["notes"])
    offered = {each["name"]: each["has"] for each in answer(what_if, "machines", {}, Catalogue())}
    assert offered["p4d.24xlarge"].startswith("8 x NVIDIA A100")
    with pytest.raises(BadQuestion, match="machine nothing: "):
        answer(what_if, "plan", {**arguments, "like": "machine:nothing"}, Catalogue())
    with pytest.raises(BadQuestion, match="machine h100x8: not known here"):
        answer(what_if, "plan", arguments)


async def test_a_plan_says_what_fits_now_and_on_another_cluster(inside: Visitor) -> None:
    path = f"api/ask/plan?class=large.{scene.DRIVER}&count=8"
    now = (await inside.get(path))["answer"]
    assert (now["now"]["scheduled"], now["then"]) == (0, None)
    then = (await inside.get(f"{path}&like=node-1&add=3"))["answer"]
    # Two pods wait for eight each, and have the first two.
    assert (then["now"]["moved"], then["then"]["moved"], then["then"]["scheduled"]) == (0, 2, 1)
    fewer = (await inside.get(f"api/ask/plan?class={scene.DRIVER}&remove={quote('example.com/rack=rack-1')}"))["answer"]
    assert fewer["then"]["nodes"] == 4
    assert fewer["then"]["scheduled"] < fewer["now"]["scheduled"]
    like = (await inside.get("api/ask/plan?pod=team-1/train-1-0"))["answer"]
    assert like["what"] == "pod team-1/train-1-0"
    for wrong, said in (("add=501", "expected a number from 0 to 500"), ("add=1", "like: expected a value"), ("remove=nothing", "nothing"), ("add=x", "'x'")):  # fmt: skip
        assert said in (await inside.get(f"{path}&{wrong}"))["error"]


async def test_capacity_is_counted_by_class_and_model(inside: Visitor) -> None:
    answer = (await inside.get("api/ask/capacity"))["answer"]
    assert {row["name"] for row in answer["class"]["rows"]} == {scene.DRIVER, f"large.{scene.DRIVER}"}
    assert [part["partition"] for part in answer["partitions"]] == ["1g.10gb"]


async def test_devices_are_selected_by_an_expression(inside: Visitor) -> None:
    async def select(expression: str) -> Any:
        return await inside.get(f"api/ask/select?expression={quote(expression)}")

    large = (await select(f"device.attributes['{scene.DRIVER}'].productName == 'H100 80GB'"))["answer"]
    assert len(large["matches"]) == 4 * 8 + 1
    assert f"{scene.DRIVER}/node-2-cut/gpu-8" in large["matches"]
    assert (large["all"], large["failed"]) == (8 * 8 + 1, 0)
    # Partitions say nothing of NUMA nodes.
    numa = (await select(f"device.attributes['{scene.DRIVER}'].numa == 1"))["answer"]
    assert (len(numa["matches"]), numa["failed"]) == (8 * 4, 1)
    assert "numa is not published" in numa["failure"]
    assert "undeclared reference to 'devise'" in (await select("devise.driver == 'a'"))["error"]


async def test_a_picture_joins_pods_claims_devices_and_slices(inside: Visitor) -> None:
    graph = await inside.get("api/graph?kind=Pod&ns=team-1&name=train-1-0")
    boxes = [(box["kind"], box["name"]) for box in graph["boxes"]]
    assert ("Pod", "team-1/train-1-0") in boxes
    edges = {(boxes[a], boxes[b]) for a, b in graph["edges"]}
    device = ("Device", f"{scene.DRIVER}/node-1/gpu-0")
    assert (("Pod", "team-1/train-1-0"), ("ResourceClaim", "team-1/train-1-0")) in edges
    assert (("ResourceClaim", "team-1/train-1-0"), device) in edges
    assert (device, ("ResourceSlice", "node-1")) in edges
    # From the other end it is the same.
    for start in (f"kind=Device&name={scene.DRIVER}/node-1/gpu-0", "kind=ResourceClaim&ns=team-1&name=train-1-0"):
        other = await inside.get(f"api/graph?{start}")
        assert {(box["kind"], box["name"]) for box in other["boxes"]} == set(boxes)
    assert (await inside.get("api/graph?kind=ResourceSlice&name=node-1"))["boxes"]
    assert (await inside.get("api/graph?kind=Node&name=node-1"))["boxes"]
    for wrong, status in (("kind=Pod&ns=a&name=b", 404), ("kind=Secret&name=b", 400)):
        assert (await inside.ask(f"api/graph?{wrong}"))[0] == status


async def test_an_object_is_shown_as_it_was_written_with_its_events(inside: Visitor) -> None:
    found = await inside.get("api/object?kind=Pod&ns=team-1&name=big-0")
    assert "image: train:1" in found["yaml"]
    assert [event["reason"] for event in found["events"]] == ["FailedScheduling", "Said"]
    assert found["tree"]["name"] == "team-1/big-0"
    device = await inside.get(f"api/object?kind=Device&name={scene.DRIVER}/node-1/gpu-0")
    assert device["tree"]["slice"] == "node-1"
    assert (await inside.get("api/object?kind=Node&name=node-1"))["tree"]["children"]
    assert (await inside.ask("api/object?kind=Pod&ns=team-1&name=nobody"))[0] == 404


async def test_names_are_found(inside: Visitor) -> None:
    found = (await inside.get("api/search?q=RING"))["found"]
    assert {each["kind"] for each in found} == {"Gang", "Pod", "ResourceClaim"}
    many = await inside.get("api/search?q=gpu")
    assert len(many["found"]) == 40
    assert many["more"] > 0
    assert (await inside.get("api/search?q=%20"))["found"] == []


async def test_the_time_line_begins_with_what_claims_tell(inside: Visitor) -> None:
    found = await inside.get("api/timeline")
    assert found["past"] == sorted(found["past"])
    last = found["samples"][-1]
    assert last[2] + last[3] >= found["past"][-1][1] > 0
    assert last[5] == 7


@pytest.mark.parametrize("path", ["api/rows/secrets", "api/ask/nothing", "api/stream?tables=nothing", "api/stream?since=x", "api/nothing"])  # fmt: skip
async def test_what_there_is_not_is_said(inside: Visitor, path: str) -> None:
    status, _, body = await inside.ask(path)
    assert status in (400, 404)
    assert body["error"]


def test_the_page_is_small() -> None:
    assets = read_assets()
    assert sum(len(asset.compressed) for path, asset in assets.items() if path != "/") < 120_000
    named = {path.removeprefix("/") for path in assets}
    assert {"app.js", "style.css", "icon.svg", "pages/cluster.js"} <= named
    for path, asset in assets.items():
        assert b"http://" not in asset.data.replace(b"http://www.w3.org/2000/svg", b""), path
        assert b"https://" not in asset.data, path
        assert b"innerHTML" not in asset.data, path


# --- a cluster that changes ---


class Moving(Followed):
    """Changes when a test says so."""

    @property
    def is_live(self) -> bool:
        return True

    def change(self, before: Any, after: Any) -> None:
        old, new = (read_object(each) if each is not None else None for each in (before, after))
        self.model.apply([(old, new)])
        self.analysis.changed([(old, new)])
        self.model.refresh()
        self.told()


@pytest.fixture
async def moving() -> AsyncIterator[tuple[Moving, Visitor]]:
    snapshot = Snapshot(tuple(read_object(value) for value in SCENE), 1794911400.0)
    followed = Moving(Model(snapshot), SystemClock(), "moving", "")
    async with visitor(followed) as found:
        await found.enter()
        yield followed, found
        await followed.analysis.close()


async def test_changes_are_streamed_and_a_broken_stream_goes_on(moving: tuple[Moving, Visitor]) -> None:
    followed, inside = moving
    pod = scene.pod("team-1", "newcomer", claims=())
    start = followed.model.revision
    async with inside.session.get(f"{inside.base}/api/stream?tables=pods,claims&since={start}") as stream:
        first = await _message(stream)
        assert first["tables"] == {}
        followed.change(None, pod)
        second = await _message(stream)
        assert set(second["tables"]) == {"pods"}
        assert set(second["tables"]["pods"]) == {"team-1/newcomer"}
        assert second["now"]["decisive"] == first["now"]["decisive"] + 1
    followed.change(pod, None)
    headers = {"Last-Event-ID": str(second["now"]["revision"])}
    async with inside.session.get(f"{inside.base}/api/stream?tables=pods&since=0", headers=headers) as stream:
        assert (await _message(stream))["tables"] == {"pods": {"team-1/newcomer": None}}
    await until(lambda: followed.model.revision and not inside.followed.stale)


async def test_what_happens_while_changes_are_sent_is_sent_next(moving: tuple[Moving, Visitor]) -> None:
    followed, _ = moving
    pieces = Dashboard(followed, Door(Sessions(SystemClock())))._changes(followed, ["pods"], followed.model.revision)
    assert (await anext(pieces)).startswith(b"retry")
    assert b'"tables":{}' in await anext(pieces)
    # The browser has not taken it yet.
    followed.change(None, scene.pod("team-1", "newcomer", claims=()))
    async with asyncio.timeout(HEARTBEAT_S / 2):
        assert b"team-1/newcomer" in await anext(pieces)
    await pieces.aclose()  # type: ignore[attr-defined]


async def _message(stream: Any) -> Any:
    while True:
        line = (await stream.content.readline()).decode()
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))


async def test_an_answer_is_kept_until_something_changes(moving: tuple[Moving, Visitor]) -> None:
    followed, inside = moving
    path = "api/ask/explain?kind=pod&ns=team-1&name=big-0"
    first = await inside.get(path)
    assert first["fresh"]
    assert (await inside.get(path))["at"] == first["at"]
    gone = next(each for each in SCENE if each["kind"] == "Pod" and each["metadata"]["name"] == "big-0")
    followed.change(gone, None)
    old = await inside.get(path)
    assert not old["fresh"]
    assert old["answer"] == first["answer"]
    assert (await inside.get(f"{path}&fresh=1"))["error"] == "pod team-1/big-0: not found"
    # A node that comes is seen by the analyst that runs already.
    pid = followed.analysis.pid
    for extra in (scene.node(9), scene.slice_("node-9", [scene.device(9, n) for n in range(8)], nodeName="node-9")):
        followed.change(None, extra)
    other = await inside.get("api/ask/explain?kind=pod&ns=team-1&name=big-1")
    assert "would be placed on node node-9" in other["answer"]["cause"]
    assert followed.analysis.pid == pid


async def test_an_analyst_that_dies_is_replaced(moving: tuple[Moving, Visitor]) -> None:
    followed, inside = moving
    assert (await inside.get("api/ask/queues"))["answer"]
    before = followed.analysis.pid
    os.kill(before, signal.SIGSTOP)
    asked = asyncio.ensure_future(inside.get("api/ask/capacity"))
    same = asyncio.ensure_future(inside.get("api/ask/capacity"))
    await until(lambda: len(followed.analysis._asking) == 1)
    os.kill(before, signal.SIGKILL)
    assert (await asked)["error"] == "the analyst ended; ask again to start another one"
    assert (await same)["error"]
    assert (await inside.get("api/ask/capacity?fresh=1"))["answer"]
    assert followed.analysis.pid not in (0, before)


async def test_a_dashboard_ends_when_its_analyst_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was ending by itself. Who still waits for an answer is told that there will be none."""
    monkeypatch.setattr(analysis, "IDLE_S", 0.0)
    snapshot = Snapshot((read_object(scene.node(0)),), 1794911400.0)
    found = Moving(Model(snapshot), SystemClock(), "moving", "").analysis
    await found.ask("capacity", {})
    process = found._process
    assert process is not None
    while found.pid:
        await asyncio.sleep(0)
    await found.close()
    assert process.returncode is not None
    waiting = asyncio.ensure_future(found.ask("queues", {}))
    await asyncio.sleep(0)
    await found.close()
    assert b"another moment is shown now" in (await waiting).data


async def test_an_analyst_that_nobody_needs_ends(
    moving: tuple[Moving, Visitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed, inside = moving
    monkeypatch.setattr(analysis, "IDLE_S", 0.01)
    first = await inside.get("api/ask/queues")
    await until(lambda: followed.analysis.pid == 0)
    # What it has said is still known; what it has not said is asked of another one.
    assert (await inside.get("api/ask/queues"))["at"] == first["at"]
    assert (await inside.get("api/ask/capacity"))["answer"]
