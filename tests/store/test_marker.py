"""The marker's law: whatever becomes of the files, a store has everything that was acknowledged or does not start."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.store.marker import Mark, Marker, MarkerDamaged, marker_path, read_marker
from allot.store.port import Compacted, Event, Fault, StoreUnavailable
from allot.store.sqlite import SqliteStore
from allot.store.sqlite_file import REVISIONS_LEFT_OUT

PODS = "/registry/pods/default/"
WRITES = 12


def pod(number: int) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"n": number, "padding": "x" * 700}}


async def opened(path: Path, **options: Any) -> SqliteStore:
    store = SqliteStore(path, **options)
    await store.open()
    return store


async def fill(store: SqliteStore, name: str, count: int = WRITES) -> int:
    for number in range(count):
        newest = (await store.create(f"{PODS}{name}-{number:03}", pod(number))).revision
    return newest


def copied(path: Path, folder: Path) -> Path:
    """The files of a store as they are at this moment, as if its process had been killed."""
    folder.mkdir()
    for file in path.parent.glob(path.name + "*"):
        shutil.copy(file, folder)
    return folder / path.name


async def killed(folder: Path) -> tuple[Path, int]:
    """A store whose process was killed, and the newest revision that was acknowledged."""
    await (await opened(folder / "s.db")).close()
    store = await opened(folder / "s.db")
    newest = await fill(store, "a")
    path = copied(folder / "s.db", folder / "killed")
    await store.close()
    return path, newest


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


async def fault_of(path: Path) -> Fault | None:
    """Why it does not open; None if it does. What is refused is left as it was."""
    before = contents(path.parent)
    try:
        store = await opened(path)
    except StoreUnavailable as error:
        assert str(path) in str(error)
        assert contents(path.parent) == before
        return error.fault
    await store.close()
    return None


def log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    return asyncio.run(killed(tmp_path_factory.mktemp("crash")))


@pytest.mark.slow
@settings(max_examples=150)
@given(part=st.floats(0, 1))
def test_wherever_the_log_is_cut_all_that_was_acknowledged_is_there_or_the_store_does_not_start(
    crash: tuple[Path, int], part: float
) -> None:
    found, newest = crash
    with tempfile.TemporaryDirectory() as folder:
        path = copied(found, Path(folder) / "cut")
        size = log(path).stat().st_size
        kept = round(size * part)
        log(path).write_bytes(log(path).read_bytes()[:kept])

        async def check() -> None:
            fault = await fault_of(path)
            if kept == size:
                assert fault is None
            if fault is None:
                store = await opened(path)
                assert await store.revision() >= newest
                assert len((await store.list(PODS)).entries) == WRITES
                await store.close()
            else:
                assert fault is (Fault.LOG_CUT if kept else Fault.LOG_MISSING)

        asyncio.run(check())


@pytest.mark.slow
@settings(max_examples=60)
@given(cut=st.integers(0, 2), garbage=st.binary(max_size=1200))
def test_whatever_is_in_the_marker_the_store_is_whole_or_does_not_start(
    crash: tuple[Path, int], cut: int, garbage: bytes
) -> None:
    found, newest = crash
    with tempfile.TemporaryDirectory() as folder:
        path = copied(found, Path(folder) / "damaged")
        content = marker_path(path).read_bytes()
        marker_path(path).write_bytes(content[: cut * 512] + garbage)

        async def check() -> None:
            fault = await fault_of(path)
            assert fault is (None if cut else Fault.MARKER)
            if fault is None:
                store = await opened(path)
                assert await store.revision() == newest
                await store.close()

        asyncio.run(check())


async def test_a_killed_store_opens_with_all_of_it(tmp_path: Path) -> None:
    path, newest = await killed(tmp_path)
    store = await opened(path)
    assert await store.revision() == newest
    await store.close()


async def test_a_commit_that_the_marker_does_not_know_yet_is_no_loss(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    await fill(store, "a")
    marker = marker_path(tmp_path / "s.db").read_bytes()
    newest = await fill(store, "b")
    path = copied(tmp_path / "s.db", tmp_path / "killed")
    marker_path(path).write_bytes(marker)
    await store.close()
    again = await opened(path)
    assert await again.revision() == newest
    await again.close()


def without_log(path: Path) -> None:
    log(path).unlink()


def with_empty_log(path: Path) -> None:
    log(path).write_bytes(b"")


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def removed(path: Path) -> None:
    path.unlink()


def all_removed_but_the_marker(path: Path) -> None:
    path.unlink()
    log(path).unlink()


def without_marker(path: Path) -> None:
    marker_path(path).unlink()


def another_stores_marker(path: Path) -> None:
    Marker(marker_path(path), Mark(store="another", revision=5)).close(cleanly=True)


def without_tables(path: Path) -> None:
    path.unlink()
    log(path).unlink()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (without_log, Fault.LOG_MISSING),
        (with_empty_log, Fault.LOG_MISSING),
        (emptied, Fault.EMPTIED),
        (removed, Fault.EMPTIED),
        (all_removed_but_the_marker, Fault.EMPTIED),
        (without_tables, Fault.EMPTIED),
        (without_marker, Fault.MARKER),
        (another_stores_marker, Fault.FOREIGN),
    ],
)
async def test_each_loss_is_told_apart_and_can_be_accepted(
    tmp_path: Path, damage: Callable[[Path], None], fault: Fault
) -> None:
    path, newest = await killed(tmp_path)
    damage(path)
    assert await fault_of(path) is fault
    assert await fault_of(path) is fault
    store = await opened(path, accept_loss=True)
    assert await store.revision() > newest
    after = await fill(store, "after")
    await store.close()
    again = await opened(path)
    assert await again.revision() == after
    await again.close()


async def test_an_older_copy_is_refused_whether_the_newer_store_was_closed_or_killed(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    await fill(store, "a")
    await store.close()
    older = copied(tmp_path / "s.db", tmp_path / "older")
    store = await opened(tmp_path / "s.db")
    await fill(store, "b")
    for name, path in {"killed": copied(tmp_path / "s.db", tmp_path / "killed"), "closed": tmp_path / "s.db"}.items():
        if name == "closed":
            await store.close()
        log(path).unlink(missing_ok=True)
        shutil.copy(older, path)
        assert await fault_of(path) is Fault.OLDER_COPY


async def test_an_older_copy_with_its_log_is_not_taken_for_a_log_that_was_cut(tmp_path: Path) -> None:
    older, _ = await killed(tmp_path)
    path = copied(older, tmp_path / "went-on")
    store = await opened(path)
    await fill(store, "b")
    newer = copied(path, tmp_path / "newer")
    await store.close()
    shutil.copy(older, newer)
    shutil.copy(log(older), log(newer))
    assert await fault_of(newer) is Fault.OLDER_COPY


async def test_a_copy_of_all_files_is_a_store(tmp_path: Path) -> None:
    path, newest = await killed(tmp_path)
    backup = copied(path, tmp_path / "backup")
    store = await opened(path)
    await fill(store, "lost")
    await store.close()
    restored = await opened(backup)
    assert await restored.revision() == newest
    await restored.close()


async def test_after_an_accepted_loss_clients_list_anew_and_revisions_do_not_go_back(tmp_path: Path) -> None:
    path, newest = await killed(tmp_path)
    log(path).unlink()
    store = await opened(path, accept_loss=True)
    assert await store.revision() > newest + REVISIONS_LEFT_OUT - 1
    with pytest.raises(Compacted):
        await anext(aiter(store.watch("/registry/", newest)))
    page = await store.list("/registry/")
    watch = store.watch("/registry/", page.revision)
    revision = await fill(store, "b", 1)
    event = await anext(aiter(watch))
    assert isinstance(event, Event)
    assert event.revision == revision == page.revision + 1
    await watch.close()
    await store.close()


async def test_a_damaged_log_can_be_accepted_up_to_the_damage(tmp_path: Path) -> None:
    path, newest = await killed(tmp_path)
    content = bytearray(log(path).read_bytes())
    content[len(content) // 2] ^= 1
    log(path).write_bytes(content)
    assert await fault_of(path) is Fault.DAMAGED
    store = await opened(path, accept_loss=True)
    assert 0 < len((await store.list(PODS)).entries) < WRITES
    assert await store.revision() > newest
    await store.close()


async def test_objects_survive_an_accepted_loss_without_their_history(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    entry = await store.create(PODS + "a", pod(0))
    entry = await store.update(PODS + "a", pod(1), entry.revision)
    gone = await store.create(PODS + "b", pod(0))
    await store.delete(PODS + "b", gone.revision)
    await store.close()
    store = await opened(tmp_path / "s.db", accept_loss=True)
    assert [(each.key, each.object["spec"]["n"]) for each in (await store.list(PODS)).entries] == [(PODS + "a", 1)]
    await store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    assert connection.execute("SELECT revision FROM log").fetchall() == [(entry.revision,)]
    connection.close()


async def test_a_store_of_before_there_were_markers_gets_one_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(tmp_path / "s.db")
    newest = await fill(store, "a")
    await store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("DROP TABLE identity")
    connection.close()
    old = (tmp_path / "s.db").read_bytes()
    marker_path(tmp_path / "s.db").unlink()
    store = await opened(tmp_path / "s.db")
    assert await store.revision() == newest
    assert "had no marker yet" in caplog.text
    await fill(store, "b")
    await store.close()
    (tmp_path / "s.db").write_bytes(old)
    assert await fault_of(tmp_path / "s.db") is Fault.OLDER_COPY


async def test_a_start_that_was_cut_off_is_no_loss(tmp_path: Path) -> None:
    Marker(marker_path(tmp_path / "s.db"), Mark(store="new")).abandon()
    (tmp_path / "s.db").touch()
    store = await opened(tmp_path / "s.db")
    newest = await fill(store, "a")
    await store.close()
    mark = read_marker(marker_path(tmp_path / "s.db"))
    assert mark == Mark(store="new", starts=1, revision=newest, closed=True)


def test_a_write_of_the_marker_that_was_cut_off_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "marker"
    marker = Marker(path, Mark(store="s"))
    marker.advance(7)
    marker.advance(8)
    marker.abandon()
    content = path.read_bytes()
    assert read_marker(path) == Mark(store="s", revision=8)
    path.write_bytes(b"\0" * 100 + content[100:])
    assert read_marker(path) == Mark(store="s", revision=7)
    path.write_bytes(b"\0" * 1024)
    with pytest.raises(MarkerDamaged):
        read_marker(path)
