"""Recordings: what was written is read, whatever the moment; a process may be killed, a file be damaged, a disk be full."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.advice.what_if import key_of
from allot.core.model.core_v1 import Node
from allot.core.model.meta import APIStruct
from allot.dashboard import recordings
from allot.dashboard.model import Model
from allot.dashboard.recorder import Recorder
from allot.dashboard.recordings import CannotRecord, Happened, Head, Piece, Writer, open_recording
from allot.dashboard.replaying import Player, recording_followed
from allot.dashboard.views.timeline import Sample
from allot.reading.errors import Unreadable
from allot.reading.listener import Notes
from dashboard import scene
from dashboard.serving import visitor
from dashboard.test_model import objects, rows

START = 1794911400.0
LIMIT = 1 << 24


class Steered:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = START

    def seconds(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def now(self) -> str:
        return scene.NOW

    def now_micro(self) -> str:
        return scene.NOW

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


class Told:
    """A cluster that is recorded. states: rows after each step, by time."""

    def __init__(self, path: Path, known: list[APIStruct], bytes_max: int = LIMIT, title: str = "test") -> None:
        self.clock = Steered()
        self.known = {key_of(each): each for each in known}
        self.model = Model(Snapshot(tuple(known), START))
        self.failed = 0
        self.recorder = Recorder(Writer(path, bytes_max), self.model, self.clock, title, self._fail)
        self.states: list[tuple[float, dict[str, Any]]] = []

    def _fail(self) -> None:
        self.failed += 1

    async def step(self, *changed: tuple[APIStruct | None, APIStruct | None]) -> None:
        self.clock.time += 10.0
        self.model.apply(changed)
        self.model.refresh()
        self.recorder.changed(changed)
        await self.recorder.flush()
        self.states.append((self.clock.time, rows(self.model)))

    async def toggle(self, object_: APIStruct) -> None:
        before = self.known.pop(key_of(object_), None)
        if before is None:
            self.known[key_of(object_)] = object_
        await self.step((before, None if before is not None else object_))


async def recorded(path: Path, *, seed: int = 1, steps: int = 30) -> Told:
    """Objects of all kinds come and go, and some come again."""
    dice, every = random.Random(seed), objects(4)
    told = Told(path, [each for each in every if dice.random() < 0.7])
    for _ in range(steps):
        await told.toggle(dice.choice(every))
    await told.recorder.close()
    return told


@asynccontextmanager
async def playing(path: Path) -> AsyncIterator[Player]:
    async with recording_followed(path, Notes(), Steered()) as player:
        yield player


@pytest.mark.parametrize("seed", range(3))
async def test_every_moment_is_shown_as_it_was(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwards, backwards and criss-cross; between whole pieces and across them."""
    monkeypatch.setattr(recordings, "_CHANGES_BYTES_MIN", 2000)
    path = tmp_path / "recording"
    told = await recorded(path, seed=seed)
    whole = [piece.head.is_whole for piece in pieces_of(path)[0]]
    assert 1 < sum(whole) < len(whole)
    moments = [*told.states, *reversed(told.states), *random.Random(seed).sample(told.states, 12)]
    async with playing(path) as player:
        for at, state in moments:
            # Until the next change all is as it was.
            assert rows((await player.at(at + 4.0)).model) == state, at


async def test_before_the_first_and_after_the_last_moment_are_these_shown(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    told = await recorded(path, steps=4)
    async with playing(path) as player:
        assert rows((await player.at(None)).model) == told.states[-1][1]
        assert rows((await player.at(1e11)).model) == told.states[-1][1]
        span = player.span(0.0)
        assert (span["from"], span["at"], span["before"], span["after"]) == (
            START + 10,
            START + 10,
            START + 10,
            START + 20,
        )
        assert player.span(START + 25)["before"] == START + 20
        assert player.span(None)["to"] == player.span(None)["after"] == START + 40


async def test_devices_over_time_are_those_of_the_whole_recording(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    claim = read_object(scene.claim("a", "c", count=1, on="node-0", devices=("gpu-0",), since="2026-11-17T10:00:00Z"))
    told = Told(path, [each for each in objects(1) if isinstance(each, Node)])
    await told.step((None, claim))
    await told.step((claim, None))
    await told.step((None, claim))
    await told.recorder.close()
    async with playing(path) as player:
        (row,) = (await player.at(START)).holdings.rows([f"{scene.DRIVER}/node-0/gpu-0"])
    # The first piece has the whole cluster, and the claim says since when it has its devices.
    assert row["spans"] == [(1794909600.0, START + 20, "a/c"), (START + 30, None, "a/c")]


# --- files ---


def pieces_of(path: Path) -> tuple[list[Piece], int]:
    """The pieces, and the bytes of a torn one."""
    found = open_recording(path)
    found.close()
    return list(found.pieces), found.torn_bytes


async def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    await recorded(path, steps=2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_what_a_killed_process_left_is_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    told = await recorded(path, steps=6)
    data = path.read_bytes()
    starts = [piece.start for piece in pieces_of(path)[0]]
    for cut in (starts[-1] + 1, starts[-1] + 13, len(data) - 1):
        path.write_bytes(data[:cut])
        pieces, torn = pieces_of(path)
        assert (len(pieces), torn) == (5, cut - starts[-1])
        notes = Notes()
        async with recording_followed(path, notes, Steered()) as player:
            assert rows((await player.at(None)).model) == told.states[-2][1]
        assert "they were being written when the recording ended" in notes.notes[0]
    # Another process goes on behind the last piece that is whole, with the whole cluster.
    again = Told(path, list(told.known.values()))
    again.clock.time += 1000.0
    await again.step()
    await again.recorder.close()
    pieces, torn = pieces_of(path)
    assert torn == 0
    assert [piece.head.is_first for piece in pieces] == [True, False, False, False, False, True]
    async with playing(path) as player:
        assert rows((await player.at(None)).model) == again.states[-1][1]
        assert rows((await player.at(told.states[0][0])).model) == told.states[0][1]


@pytest.mark.parametrize("seed", range(5))
async def test_a_damaged_file_is_an_error_that_says_where(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "recording"
    await recorded(path, steps=5)
    data, dice = bytearray(path.read_bytes()), random.Random(seed)
    pieces, _ = pieces_of(path)
    piece = pieces[dice.randrange(len(pieces))]
    # Anywhere but in the length, which may then seem to be that of a torn piece.
    data[dice.randrange(piece.start + 4, piece.end)] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    with pytest.raises(Unreadable, match=f"damaged: the piece at byte {piece.start} cannot be read") as caught:
        open_recording(path)
    with pytest.raises(CannotRecord, match="nothing is added to it"):
        Writer(path, LIMIT)
    assert path.read_bytes() == data
    if piece is not pieces[0]:
        assert caught.value.hint == f"what is before it is intact: head -c {piece.start} {path} > other"
        path.write_bytes(data[: piece.start])
        assert len(pieces_of(path)[0]) == pieces.index(piece)


@pytest.mark.parametrize(("data", "said"), [(b"", "not a recording"), (b"apiVersion: v1\n", "not a recording"), (b"allot recording 1\n", "the recording is empty"), (b"allot recording 1\n" + b"\xff" * 40, "its length cannot be right")])  # fmt: skip
def test_what_is_no_recording_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "recording"
    path.write_bytes(data)
    with pytest.raises(Unreadable, match=said):
        open_recording(path)
    with pytest.raises(Unreadable, match="no such file"):
        open_recording(tmp_path / "nothing")
    if data.startswith(b"api"):
        with pytest.raises(CannotRecord, match="not a recording; nothing is added to it"):
            Writer(path, LIMIT)
        assert path.read_bytes() == data


async def test_writes_of_several_threads_are_one_after_another(tmp_path: Path) -> None:
    """A task that is cancelled while a thread writes for it is followed by one that writes the rest."""
    path = tmp_path / "recording"
    writer, every = Writer(path, LIMIT), objects(2)
    heads = [Head(at=START + number, sample=Sample(START), is_whole=True) for number in range(12)]
    await asyncio.gather(*(asyncio.to_thread(writer.write, head, Happened(put=every)) for head in heads))
    writer.close()
    pieces, torn = pieces_of(path)
    assert (sorted(piece.head.at for piece in pieces), torn) == ([head.at for head in heads], 0)


async def test_one_process_records_into_a_file(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    writer = Writer(path, LIMIT)
    with pytest.raises(CannotRecord, match="another dashboard records into it"):
        Writer(path, LIMIT)
    writer.close()
    Writer(path, LIMIT).close()


async def test_a_recording_that_is_full_loses_its_oldest_part(tmp_path: Path) -> None:
    path, limit = tmp_path / "recording", 40_000
    told = Told(path, objects(2), limit)
    dice = random.Random(1)
    for number in range(60):
        noise = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=900))
        await told.toggle(read_object(scene.event(f"e-{number}", "Said", noise, scene.node(0))))
        assert path.stat().st_size <= limit
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not told.recorder.problem
    await told.recorder.close()
    assert [each.name for each in tmp_path.iterdir()] == ["recording"]
    async with playing(path) as player:
        first = player.span(None)["from"]
        assert first > START + 100
        kept = [(at, state) for at, state in told.states if at >= first]
        assert len(kept) > 4
        for at, state in kept:
            assert rows((await player.at(at)).model) == state


async def test_a_disk_that_fills_up_while_the_oldest_part_goes_leaves_the_recording_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, limit = tmp_path / "recording", 40_000
    told = Told(path, objects(2), limit)
    write = os.pwrite

    def short(handle: int, data: bytes, offset: int) -> int:
        """As on a disk that is nearly full: the copy takes less than it was given, without an error."""
        is_copy = Path(f"/proc/self/fd/{handle}").readlink().suffix == ".new"
        return write(handle, data[:-10] if is_copy and len(data) > 100 else data, offset)

    monkeypatch.setattr(os, "pwrite", short)
    dice = random.Random(1)
    for number in range(60):
        noise = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=900))
        await told.toggle(read_object(scene.event(f"e-{number}", "Said", noise, scene.node(0))))
    monkeypatch.undo()
    assert "bytes could be written" in told.recorder.problem
    await told.recorder.close()
    assert [each.name for each in tmp_path.iterdir()] == ["recording"]
    pieces, torn = pieces_of(path)
    assert len(pieces) > 10 and torn == 0


async def test_a_limit_that_the_cluster_alone_exceeds_ends_the_recording(tmp_path: Path) -> None:
    told = Told(tmp_path / "recording", objects(4), 2000)
    await told.step()
    assert "the cluster alone takes" in told.recorder.problem
    assert told.failed == 1
    await told.recorder.close()


async def test_a_full_disk_ends_the_recording_and_leaves_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "recording"
    told = Told(path, objects(1))
    await told.step()
    write = os.pwrite

    def full(handle: int, data: bytes, offset: int) -> int:
        write(handle, data[: len(data) // 2], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    await told.toggle(objects(1)[0])
    monkeypatch.undo()
    assert told.recorder.problem == f"the recording has ended: {path}: no space left on device"
    # Nothing more is written, and what there is can be read.
    await told.toggle(objects(1)[0])
    await told.recorder.close()
    pieces, torn = pieces_of(path)
    assert (len(pieces), torn) == (1, 0)


async def test_a_body_that_grows_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "recording"
    await recorded(path, steps=1)
    monkeypatch.setattr(recordings, "_BODY_BYTES_MAX", 1000)
    recording = open_recording(path)
    with pytest.raises(Unreadable, match="the piece at byte 18 cannot be read: it has more than"):
        recording.body(recording.pieces[0])
    recording.close()


def test_heartbeats_are_not_recorded(tmp_path: Path) -> None:
    told = Told(tmp_path / "recording", [])
    node = read_object(scene.node(0))
    assert isinstance(node, Node)
    (condition,) = node.status.conditions
    later = msgspec.structs.replace(condition, last_heartbeat_time="2026-11-17T11:00:00Z")
    status = msgspec.structs.replace(node.status, conditions=(later,))
    told.recorder.changed([(node, msgspec.structs.replace(node, status=status))])
    assert not told.recorder._changed


# --- answers ---


async def test_pages_are_answered_for_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    told = Told(path, objects())
    newcomer = read_object(scene.pod("team-1", "newcomer", said="not yet", claims=()))
    await told.step()
    await told.toggle(newcomer)
    await told.step((newcomer, None))
    await told.recorder.close()
    async with playing(path) as player, visitor(player) as found:
        await found.enter()
        about = await found.get("api/about")
        assert about["live"] is False
        assert (about["span"]["from"], about["span"]["to"]) == (START + 10, START + 30)
        assert about["title"] == "test in recording"
        for at, there in ((10, False), (20, True), (25, True), (30, False), (20, True)):
            pods = (await found.get(f"api/rows/pods?at={START + at}"))["rows"]
            assert ("team-1/newcomer" in pods) == there
            status, _, body = await found.ask(f"api/object?kind=Pod&ns=team-1&name=newcomer&at={START + at}")
            assert status == (200 if there else 404), body
        # An answer is of the moment that was asked for, too.
        first = await found.get(f"api/ask/explain?kind=pod&ns=team-1&name=newcomer&at={START + 20}")
        assert first["answer"]["cause"]
        second = await found.get(f"api/ask/explain?kind=pod&ns=team-1&name=newcomer&at={START + 30}&fresh=1")
        assert second["error"] == "pod team-1/newcomer: not found"
        timeline = await found.get(f"api/timeline?at={START + 10}")
        assert [each[0] for each in timeline["samples"]][-1] == START + 30
        for wrong in ("x", "-1", "1e9", "9" * 13):
            assert (await found.ask(f"api/about?at={wrong}"))[0] == 400
