"""What SQLite adds to the contract: files that last, groups of writes, and clear words when the disk does not play along."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from allot.store.port import Compacted, Event, KeyExists, RevisionConflict, StoreUnavailable
from allot.store.sqlite import SqliteStore
from allot.store.timeline import Limits
from waiting import WAIT_S

PODS = "/registry/pods/default/"


def pod(number: int, padding: int = 0) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"n": number, "padding": "x" * padding}}


async def opened(path: Path, limits: Limits | None = None) -> SqliteStore:
    store = SqliteStore(path, limits)
    await store.open()
    return store


def rows(path: Path) -> list[tuple[int, str, bool]]:
    connection = sqlite3.connect(path)
    found = [
        (revision, key, deleted)
        for revision, key, deleted in connection.execute(
            "SELECT revision, key, value IS NULL FROM log ORDER BY revision"
        )
    ]
    connection.close()
    return found


async def changes(store: SqliteStore, after: int, count: int) -> list[tuple[str, str, int]]:
    watch = store.watch("/registry/", after)
    found: list[tuple[str, str, int]] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            item = await anext(aiter(watch))
            if isinstance(item, Event):
                found.append((item.type.value, item.entry.key, item.revision))
    await watch.close()
    return found


async def test_objects_history_and_revisions_are_there_after_a_restart(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    first = await store.create(PODS + "a", pod(1))
    second = await store.update(PODS + "a", pod(2), first.revision)
    third = await store.create(PODS + "b", pod(1))
    fourth = await store.delete(PODS + "b", third.revision)
    await store.close()
    again = await opened(tmp_path / "s.db")
    assert await again.revision() == fourth.revision
    found = await again.get(PODS + "a")
    assert found is not None
    assert (found.object, found.revision) == (second.object, second.revision)
    assert await again.get(PODS + "b") is None
    assert await changes(again, first.revision, 3) == [
        ("MODIFIED", PODS + "a", second.revision),
        ("ADDED", PODS + "b", third.revision),
        ("DELETED", PODS + "b", fourth.revision),
    ]
    page = await again.list("/registry/", revision=third.revision)
    assert [entry.key for entry in page.entries] == [PODS + "a", PODS + "b"]
    assert (await again.create(PODS + "c", pod(1))).revision == fourth.revision + 1
    await again.close()


async def test_a_revision_is_not_given_again_when_its_row_was_pruned(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    created = await store.create(PODS + "a", pod(1))
    deleted = await store.delete(PODS + "a", created.revision)
    await store.compact(deleted.revision)
    await store.close()
    assert rows(tmp_path / "s.db") == []
    again = await opened(tmp_path / "s.db")
    assert await again.revision() == deleted.revision
    with pytest.raises(Compacted):
        await changes(again, created.revision, 1)
    await again.close()


async def test_compaction_removes_only_what_nothing_needs(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    a = await store.create(PODS + "a", pod(1))
    b = await store.create(PODS + "b", pod(1))
    a2 = await store.update(PODS + "a", pod(2), a.revision)
    gone = await store.delete(PODS + "b", b.revision)
    a3 = await store.update(PODS + "a", pod(3), a2.revision)
    await store.compact(a2.revision)
    await store.close()
    assert rows(tmp_path / "s.db") == [
        (b.revision, PODS + "b", False),
        (a2.revision, PODS + "a", False),
        (gone.revision, PODS + "b", True),
        (a3.revision, PODS + "a", False),
    ]
    again = await opened(tmp_path / "s.db")
    assert len(await changes(again, a2.revision, 2)) == 2
    with pytest.raises(Compacted):
        await changes(again, a.revision, 1)
    await again.close()


async def test_history_is_pruned_by_count_and_by_size(tmp_path: Path) -> None:
    for name, limits in {"count": Limits(history_max=20), "size": Limits(history_bytes_max=20_000)}.items():
        path = tmp_path / f"{name}.db"
        store = await opened(path, limits)
        entry = await store.create(PODS + "a", pod(0, 900))
        for number in range(1, 100):
            entry = await store.update(PODS + "a", pod(number, 900), entry.revision)
        with pytest.raises(Compacted):
            await changes(store, entry.revision - 50, 1)
        assert len(await changes(store, entry.revision - 10, 10)) == 10
        await store.close()
        assert 10 < len(rows(path)) < 40
        again = await opened(path, limits)
        assert len(await changes(again, entry.revision - 10, 10)) == 10
        await again.close()


async def test_a_write_is_not_seen_before_it_is_on_disk(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    before = await store.revision()
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(store.create(PODS + "a", pod(1)))
        await asyncio.sleep(0)
        # Handed to the writer thread, whose answer this loop has not taken yet.
        assert await store.get(PODS + "a") is None
        assert await store.revision() == before
    assert writing.result().revision == before + 1
    await store.close()


async def test_a_second_write_of_a_key_waits_for_the_first_and_is_then_decided(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    entry = await store.create(PODS + "a", pod(0))
    results = await asyncio.gather(
        store.update(PODS + "a", pod(1), entry.revision),
        store.update(PODS + "a", pod(2), entry.revision),
        store.create(PODS + "a", pod(3)),
        store.delete(PODS + "a", entry.revision + 1),
        store.create(PODS + "a", pod(4)),
        return_exceptions=True,
    )
    assert [type(result) for result in results[1:3]] == [RevisionConflict, KeyExists]
    assert not isinstance(results[3], BaseException)
    found = await store.get(PODS + "a")
    assert found is not None
    assert found.object["spec"]["n"] == 4
    await store.close()


async def test_many_writers_share_a_group(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    entries = await asyncio.gather(*(store.create(f"{PODS}{number}", pod(number)) for number in range(600)))
    assert [entry.revision for entry in entries] == list(range(2, 602))
    await store.close()
    assert len(rows(tmp_path / "s.db")) == 600


async def test_close_finishes_the_writes_that_wait(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    async with asyncio.TaskGroup() as tasks:
        writing = [tasks.create_task(store.create(f"{PODS}{number}", pod(number))) for number in range(50)]
        await asyncio.sleep(0)
        await store.close()
    assert all(task.result() for task in writing)
    with pytest.raises(StoreUnavailable, match="is not open"):
        await store.create(PODS + "late", pod(1))
    again = await opened(tmp_path / "s.db")
    assert len((await again.list(PODS)).entries) == 50
    await again.close()


async def test_decoded_objects_are_forgotten_and_made_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", decoded_bytes_max=2_000)
    await store.open()
    entries = [await store.create(f"{PODS}{number}", pod(number, 500)) for number in range(10)]
    assert entries[0]._object is None
    assert entries[9]._object is not None
    assert [entry.object["spec"]["n"] for entry in entries] == list(range(10))
    await store.close()


async def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    await store.create(PODS + "a", pod(1))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    await store.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_nobody_waits_for_a_writer_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await opened(tmp_path / "s.db")

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("allot.store.sqlite_file.SqliteFile.append", broken)
    async with asyncio.timeout(WAIT_S):
        results = await asyncio.gather(*(store.create(f"{PODS}{n}", pod(n)) for n in range(5)), return_exceptions=True)
        assert {str(result).partition("; ")[0].rpartition(": ")[2] for result in results} == {"a bug)"}
        with pytest.raises(StoreUnavailable, match="is not open"):
            await store.create(PODS + "a", pod(1))
        await store.close()


# -- what can be wrong with a file ------------------------------------------------------------------------------------


async def test_a_file_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allot.store.sqlite_file.LOCK_TIMEOUT_S", 0.05)
    store = await opened(tmp_path / "s.db")
    with pytest.raises(StoreUnavailable, match=r"s\.db: is in use by another process; stop it"):
        await opened(tmp_path / "s.db")
    await store.create(PODS + "a", pod(1))
    await store.close()
    again = await opened(tmp_path / "s.db")
    await again.close()


async def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        StoreUnavailable, match=r"nowhere/s\.db: cannot be opened for writing: .*check that its directory exists"
    ):
        await opened(tmp_path / "nowhere" / "s.db")


async def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"hello world, this is not a database " * 100)
    with pytest.raises(StoreUnavailable, match=r"s\.db: is damaged: file is not a database; restore it from a copy"):
        await opened(tmp_path / "s.db")
    assert (tmp_path / "s.db").read_bytes().startswith(b"hello")


async def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("CREATE TABLE cats (name TEXT)")
    connection.close()
    with pytest.raises(StoreUnavailable, match="is another program's database"):
        await opened(tmp_path / "s.db")


async def test_a_file_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    await (await opened(tmp_path / "s.db")).close()
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(StoreUnavailable, match="has format 7, this release reads 1"):
        await opened(tmp_path / "s.db")


async def filled(path: Path) -> None:
    store = await opened(path)
    await asyncio.gather(*(store.create(f"{PODS}{number:03}", pod(number, 700)) for number in range(200)))
    await store.close()


# In the header, in the list of tables, in the tree of pages, in rows.
@pytest.mark.parametrize("offset", [30, 4_000, 4_100, 20_000, 100_000])
async def test_damage_in_the_file_is_found(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    damaged = bytearray(path.read_bytes())
    damaged[offset : offset + 40] = bytes(byte ^ 0x15 for byte in damaged[offset : offset + 40])
    path.write_bytes(damaged)
    with pytest.raises(StoreUnavailable, match=r"s\.db: (is damaged|has format)"):
        await opened(path)


async def test_a_flipped_letter_in_an_object_is_found(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"xxxxxxxx", b"xxxxyxxx", 1))
    with pytest.raises(StoreUnavailable, match=r"the checksum of revision .* is wrong"):
        await opened(path)


async def test_a_file_cut_short_is_found(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StoreUnavailable, match="is damaged"):
        await opened(path)


async def crashed(folder: Path) -> Path:
    """The files as a killed process leaves them: what was committed last is only in the write-ahead log, and the marker does
    not know of it yet."""
    store = await opened(folder / "s.db")
    for number in range(12):
        if number == 11:
            marker = (folder / "s.db.revision").read_bytes()
        await store.create(f"{PODS}{number:03}", pod(number, 700))
    (folder / "killed").mkdir()
    for file in folder.glob("s.db*"):
        shutil.copy(file, folder / "killed")
    (folder / "killed" / "s.db.revision").write_bytes(marker)
    await store.close()
    return folder / "killed" / "s.db"


# In the header of the log, in the head of a frame (its salts, its checksum), in a page.
@pytest.mark.parametrize("offset", [3, 20, 32 + 9, 32 + 18, 32 + 24 + 500, 32 + 3 * (24 + 4096) + 1000])
async def test_damage_in_the_write_ahead_log_is_found_and_left_as_it_is(tmp_path: Path, offset: int) -> None:
    path = await crashed(tmp_path)
    log = path.with_name("s.db-wal")
    content = bytearray(log.read_bytes())
    content[offset] ^= 0x10
    log.write_bytes(content)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"s\.db: is damaged: .* write-ahead log is unreadable"):
            await opened(path)
    assert log.read_bytes() == content


async def test_a_write_ahead_log_that_ends_in_the_middle_of_a_commit_is_no_damage(tmp_path: Path) -> None:
    path = await crashed(tmp_path)
    log = path.with_name("s.db-wal")
    os.truncate(log, log.stat().st_size - 1000)
    store = await opened(path)
    assert len((await store.list(PODS)).entries) == 11
    await store.close()


# -- what can be wrong with a disk ------------------------------------------------------------------------------------


async def writes_until_refused(path: Path, free: Any) -> None:
    """Fill the disk; the refused writes leave no trace; after `free()` writing goes on and all that was acknowledged is there."""
    store = await opened(path)
    acknowledged: dict[str, int] = {}
    refusal: StoreUnavailable | None = None
    for group in range(200):
        keys = [f"{PODS}{group:03}-{number}" for number in range(10)]
        results = await asyncio.gather(*(store.create(key, pod(1, 9_000)) for key in keys), return_exceptions=True)
        failures = [result for result in results if isinstance(result, StoreUnavailable)]
        acknowledged |= {
            key: r.revision for key, r in zip(keys, results, strict=True) if not isinstance(r, BaseException)
        }
        if failures:
            refusal = failures[0]
            break
    assert refusal is not None, "the disk never filled up"
    assert str(path) in str(refusal)
    assert "free some space" in str(refusal) or "check the disk" in str(refusal)
    assert {entry.key: entry.revision for entry in (await store.list("/registry/")).entries} == acknowledged
    assert await store.revision() == max(acknowledged.values())
    free()
    late = await store.create(PODS + "late", pod(1))
    assert late.revision > max(acknowledged.values())
    acknowledged[late.key] = late.revision
    await store.close()
    again = await opened(path)
    assert {entry.key: entry.revision for entry in (await again.list("/registry/")).entries} == acknowledged
    assert await again.revision() == late.revision
    await again.close()


async def test_a_limit_on_the_size_of_files_refuses_writes_and_loses_none(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, limit[1]))
    try:
        await writes_until_refused(tmp_path / "s.db", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


async def test_a_full_disk_refuses_writes_and_loses_none(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    if subprocess.run([mount, "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        (disk / "ballast").write_bytes(bytes(3_000_000))
        await writes_until_refused(disk / "s.db", (disk / "ballast").unlink)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.slow
def test_a_folder_that_may_not_be_written_is_told() -> None:
    script = textwrap.dedent("""
        import asyncio, os, sys
        from pathlib import Path
        from allot.store.port import StoreUnavailable
        from allot.store.sqlite import SqliteStore
        if os.geteuid() == 0:
            os.setuid(65534)
        async def main():
            try:
                await SqliteStore(Path(sys.argv[1])).open()
            except StoreUnavailable as error:
                print(error)
        asyncio.run(main())
    """)
    # Not below tmp_path, which other users cannot even enter.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        command = [sys.executable, "-c", script, f"{folder}/s.db"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cannot be opened for writing" in done.stdout
    assert "s.db" in done.stdout
    assert "belongs to this user" in done.stdout


async def test_a_writer_that_is_cancelled_hears_so_when_it_is_clear_what_is_stored(tmp_path: Path) -> None:
    store = await opened(tmp_path / "state.db")
    try:
        created = await store.create(PODS + "a", pod(0))
        writer = asyncio.ensure_future(store.update(PODS + "a", pod(1), created.revision))
        await asyncio.sleep(0)
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        entry = await store.get(PODS + "a")
        assert entry is not None
        assert entry.object["spec"]["n"] == 1
    finally:
        await store.close()
