"""SIGKILL at random moments under concurrent writers: nothing acknowledged is lost, nothing is seen twice."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allot.store.port import Event
from allot.store.sqlite import SqliteStore
from waiting import WAIT_S

# The whole server is killed more often (tests/e2e/test_durability.py).
KILLS = 20
SEED = 20261115
SCRIPT = Path(__file__).with_name("writer_process.py")


class Notes:
    """What the killed processes wrote down, all together."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, tuple[str, int]] = {}
        self.seen: list[tuple[int, str, str, int]] = []
        self.newest = 1

    def read(self, path: Path) -> None:
        """Add the notes of one process; a line that was cut off by the kill counts as not written."""
        for line in path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue
            what, revision_text, *rest = line.split()
            revision = int(revision_text)
            if what == "ready":
                assert revision >= self.newest, f"revision went back from {self.newest} to {revision}"
                self.newest = revision
            elif what == "ack":
                assert revision not in self.acknowledged, f"revision {revision} was given twice"
                self.acknowledged[revision] = (rest[0], int(rest[1]))
                self.newest = max(self.newest, revision)
            else:
                self.seen.append((revision, rest[0], rest[1], int(rest[2])))

    @property
    def seen_up_to(self) -> int:
        return self.seen[-1][0] if self.seen else 1


def run_and_kill(store: Path, notes: Path, after: int, seed: int, writes: int | None, delay_s: float) -> None:
    """writes: let so many be acknowledged before the delay begins; None: do not even wait until the file is open."""
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(store), str(notes), str(after), str(seed)])
    try:
        while writes is not None and not (notes.exists() and _has(notes.read_bytes(), writes)):
            assert process.poll() is None, "the writer ended by itself"
            time.sleep(0.005)
        time.sleep(delay_s)
        assert process.poll() is None, "the writer ended by itself"
    finally:
        process.kill()
        process.wait()


def _has(notes: bytes, writes: int) -> bool:
    return notes.startswith(b"ready") and notes.count(b"ack ") >= writes


async def rest_of_the_events(store: SqliteStore, after: int) -> list[tuple[int, str, str, int]]:
    found: list[tuple[int, str, str, int]] = []
    newest = await store.revision()
    watch = store.watch("/registry/", after)
    async with asyncio.timeout(WAIT_S):
        while (found[-1][0] if found else after) < newest:
            item = await anext(aiter(watch))
            if isinstance(item, Event):
                found.append((item.revision, item.type.value, item.entry.key, item.entry.object["spec"]["n"]))
    await watch.close()
    return found


def replay(seen: list[tuple[int, str, str, int]]) -> dict[str, tuple[int, int]]:
    """The state that the events lead to; each event has to fit the state before."""
    state: dict[str, tuple[int, int]] = {}
    for revision, type_, key, number in seen:
        if type_ == "ADDED":
            assert key not in state and number == 0, (revision, type_, key, number)
            state[key] = (number, revision)
        elif type_ == "MODIFIED":
            assert state[key][0] + 1 == number, (revision, type_, key, number, state[key])
            state[key] = (number, revision)
        else:
            assert state.pop(key)[0] == number, (revision, type_, key, number)
    return state


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    store_path = tmp_path / "store.db"
    notes = Notes()
    awaited = 0
    for kill in range(KILLS):
        path = tmp_path / f"notes-{kill}"
        # One in eight around the time when the file is opened and recovered.
        writes = dice.choice([0, dice.randrange(20), dice.randrange(300, 600)]) if kill % 8 != 7 else None
        delay_s = dice.uniform(0, 0.005) if writes is not None else dice.uniform(0.1, 0.3)
        awaited += writes or 0
        await asyncio.to_thread(run_and_kill, store_path, path, notes.seen_up_to, SEED + kill, writes, delay_s)
        if path.exists():
            notes.read(path)

    store = SqliteStore(store_path)
    await store.open()
    assert await store.revision() >= notes.newest
    seen = notes.seen + await rest_of_the_events(store, notes.seen_up_to)

    # Every event exactly once and in order: revisions without gap, each key's numbers without gap.
    assert [event[0] for event in seen] == list(range(2, len(seen) + 2))
    state = replay(seen)
    by_revision = {revision: (key, number) for revision, _, key, number in seen}
    lost = {revision: ack for revision, ack in notes.acknowledged.items() if by_revision.get(revision) != ack}
    assert not lost
    assert len(notes.acknowledged) >= awaited > 1000

    page = await store.list("/registry/")
    assert {entry.key: (entry.object["spec"]["n"], entry.revision) for entry in page.entries} == state
    await store.close()
