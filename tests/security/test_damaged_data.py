"""Data that was damaged or has nowhere to go: each case has its own message and exit code, and no cluster starts empty in silence.

`allot apiserver` as a process. Small, full and read-only disks are real ones, which only root can mount.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etcd_server import MISSING, EtcdServer, find_etcd
from security.servers import Answer, Server, allot_server
from waiting import wait_for

pytestmark = pytest.mark.slow

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LOG_CUT, LOG_MISSING, EMPTIED, OLDER_COPY, FOREIGN, MARKER, DAMAGED, DISK_FULL, READ_ONLY = range(10, 19)


def write(server: Server, name: str, size: int = 700) -> Answer:
    return server.send("POST", CONFIG_MAPS, {"metadata": {"name": name}, "data": {"text": "x" * size}})


def names(server: Server) -> set[str]:
    items = server.send("GET", CONFIG_MAPS).value["items"]
    return {item["metadata"]["name"] for item in items} - {"kube-root-ca.crt"}


def kill(server: Server) -> None:
    """SIGKILL; the process is waited for by who started it."""
    os.kill(server.pid, signal.SIGKILL)


def began(folder: Path, *written: str, cleanly: bool = False) -> Path:
    """The database of a server that wrote this and was killed, or closed it."""
    with allot_server(folder) as server:
        for name in written:
            assert write(server, name).status == 201
        if not cleanly:
            kill(server)
    return folder / "data" / "state.db"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that wrote a, b and c and was killed, to be copied."""
    return began(tmp_path_factory.mktemp("killed"), "a", "b", "c").parent


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that wrote a and ended, to be copied."""
    return began(tmp_path_factory.mktemp("closed"), "a", cleanly=True).parent


def copied(data: Path, folder: Path) -> Path:
    """The database in a copy, which is the same cluster for a server."""
    shutil.copytree(data, folder / "data", dirs_exist_ok=True)
    return folder / "data" / "state.db"


def start(folder: Path, *arguments: str, command: str = "apiserver") -> subprocess.CompletedProcess[str]:
    """A server that does not start."""
    whole = [sys.executable, "-m", "allot", command, "--port", "0", "--data-dir", str(folder / "data"), *arguments]
    return subprocess.run(whole, capture_output=True, text=True, timeout=60, check=False)


def refused(folder: Path, code: int, *words: str) -> None:
    """It does not start, says why in one line, and leaves everything as it was."""
    before = {path: path.read_bytes() for path in (folder / "data").glob("state.db*")}
    done = start(folder)
    assert done.returncode == code, done.stderr
    first, *rest = done.stderr.splitlines()
    assert first.startswith(f"error: store file {folder}/data/state.db: "), done.stderr
    assert all(line.startswith("hint: ") for line in rest), done.stderr
    for word in words:
        assert word in first
    assert {path: path.read_bytes() for path in (folder / "data").glob("state.db*")} == before


def accepted(folder: Path, expected: set[str]) -> None:
    """With the option it starts with what is there, with higher revisions than ever, and then without the option too."""
    with allot_server(folder, ["--accept-data-loss"]) as server:
        assert names(server) == expected
        assert int(write(server, "after").value["metadata"]["resourceVersion"]) > 1_000_000_000
        answer = server.send("GET", f"{CONFIG_MAPS}?watch=true&resourceVersion=150&timeoutSeconds=1")
        assert b'"code":410' in answer.body
    with allot_server(folder) as server:
        assert names(server) == {*expected, "after"}


def cut_log(database: Path) -> None:
    # One frame, a page and its head: the last commit is not whole any more.
    log = database.with_name("state.db-wal")
    os.truncate(log, log.stat().st_size - 4096 - 24)


def remove_log(database: Path) -> None:
    database.with_name("state.db-wal").unlink()


def empty(database: Path) -> None:
    os.truncate(database, 0)


def remove_database(database: Path) -> None:
    database.unlink()


def remove_marker(database: Path) -> None:
    database.with_name("state.db.revision").unlink()


def scribble_on_marker(database: Path) -> None:
    database.with_name("state.db.revision").write_bytes(b"\0" * 1024)


def flip_a_bit_in_the_log(database: Path) -> None:
    log = database.with_name("state.db-wal")
    content = bytearray(log.read_bytes())
    content[20_000] ^= 4
    log.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (cut_log, LOG_CUT, ("write-ahead log state.db-wal was cut", "had got to revision")),
        (remove_log, LOG_MISSING, ("write-ahead log state.db-wal is missing", "had got to revision")),
        (empty, EMPTIED, ("is empty, but it had got to revision",)),
        (remove_database, EMPTIED, ("is missing, but it had got to revision",)),
        (remove_marker, MARKER, ("its marker state.db.revision is missing",)),
        (scribble_on_marker, MARKER, ("its marker state.db.revision is damaged",)),
    ],
)
def test_what_a_killed_server_has_acknowledged_is_missed_when_it_is_gone(
    tmp_path: Path, killed: Path, damage: Callable[[Path], None], code: int, words: tuple[str, ...]
) -> None:
    database = copied(killed, tmp_path)
    damage(database)
    refused(tmp_path, code, *words, "--accept-data-loss")
    kept = {"a", "b", "c"} if code == MARKER else {"a", "b"} if code == LOG_CUT else set()
    accepted(tmp_path, kept)


@pytest.mark.parametrize("cleanly", [False, True])
def test_an_older_copy_of_the_file_is_refused(tmp_path: Path, closed: Path, cleanly: bool) -> None:
    database = copied(closed, tmp_path)
    shutil.copy(database, tmp_path / "older")
    began(tmp_path, "b", cleanly=cleanly)
    database.with_name("state.db-wal").unlink(missing_ok=True)
    shutil.copy(tmp_path / "older", database)
    refused(tmp_path, OLDER_COPY, "is an older copy", "had got to revision", "--accept-data-loss")
    accepted(tmp_path, {"a"})


def test_another_clusters_file_is_refused(tmp_path: Path, killed: Path, closed: Path) -> None:
    database = copied(closed, tmp_path)
    shutil.copy(killed / "state.db", database)
    refused(tmp_path, FOREIGN, "belongs to another store")


def test_a_damaged_log_and_a_damaged_file_are_refused(tmp_path: Path, killed: Path) -> None:
    database = copied(killed, tmp_path)
    whole = {path: path.read_bytes() for path in database.parent.glob("state.db*")}
    flip_a_bit_in_the_log(database)
    refused(tmp_path, DAMAGED, "is damaged: frame", "restore it from a copy")
    for path, content in whole.items():
        path.write_bytes(content)
    began(tmp_path, cleanly=True)
    database.write_bytes(database.read_bytes().replace(b"xxxxxxxx", b"xxxxyxxx", 1))
    # Rows are read when the file is open already.
    done = start(tmp_path)
    assert done.returncode == DAMAGED, done.stderr
    assert "is damaged: the checksum of revision" in done.stderr


def test_a_copy_of_the_whole_data_directory_is_a_cluster(tmp_path: Path, closed: Path) -> None:
    copied(closed, tmp_path)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    began(tmp_path, "b")
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "copy").rename(tmp_path / "data")
    with allot_server(tmp_path) as server:
        assert names(server) == {"a"}


def test_a_cluster_without_any_of_its_files_starts_empty_and_says_so(tmp_path: Path, killed: Path) -> None:
    database = copied(killed, tmp_path)
    for path in database.parent.glob("state.db*"):
        path.unlink()
    with allot_server(tmp_path) as server:
        assert names(server) == set()
        said = (tmp_path / "server.log").read_text()
    assert "contains the keys of a cluster but no objects; starting empty" in said


def test_up_ends_with_the_same_codes_also_in_the_background(tmp_path: Path, killed: Path) -> None:
    remove_log(copied(killed, tmp_path))
    for arguments in ((), ("--detach",)):
        done = start(tmp_path, "--node", "none", *arguments, command="up")
        assert done.returncode == LOG_MISSING, done.stderr
        assert "state.db-wal is missing" in done.stderr


def test_the_option_is_for_the_data_directory_only(tmp_path: Path) -> None:
    done = start(tmp_path, "--accept-data-loss", "--memory")
    assert done.returncode == 2
    assert "--accept-data-loss" in done.stderr


# -- disks ------------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """The data directory on a disk of 4 MiB with a file to remove."""
    data = folder / "data"
    data.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root to mount a small disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(data)], capture_output=True).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield data
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True)


def fill(data: Path) -> Path:
    """Take all the room that is left."""
    ballast = data / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast


def readiness(server: Server) -> Answer:
    return server.send("GET", "/readyz", who=None)


def wait_until_ready(server: Server) -> None:
    wait_for("a server that is ready", lambda: readiness(server).status == 200)


def test_on_a_full_disk_reads_go_on_writes_are_refused_and_readyz_says_so_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path) as data, allot_server(tmp_path) as server:
        assert write(server, "before").status == 201
        assert readiness(server).status == 200
        ballast = fill(data)
        written = {"before"}
        for number in range(2000):
            answer = write(server, f"c{number}", 20_000)
            if answer.status != 201:
                break
            written.add(f"c{number}")
        assert (answer.status, answer.value["reason"]) == (503, "ServiceUnavailable")
        assert "the disk is full" in answer.message
        assert names(server) == written
        answer = readiness(server)
        assert answer.status == 500
        assert b"[-]store-writable failed: disk full\n" in answer.body
        assert str(tmp_path).encode() not in answer.body
        assert server.send("GET", "/livez", who=None).status == 200
        assert server.send("GET", "/readyz/store-writable").status == 500
        ballast.unlink()
        wait_until_ready(server)
        assert write(server, "after").status == 201
        assert names(server) == {*written, "after"}


def test_a_disk_that_others_filled_is_noticed_without_a_write(tmp_path: Path) -> None:
    with small_disk(tmp_path) as data, allot_server(tmp_path) as server:
        ballast = fill(data)
        assert b"[-]store-writable failed: disk full\n" in readiness(server).body
        ballast.unlink()
        wait_until_ready(server)


@pytest.mark.parametrize("cleanly", [False, True])
def test_a_server_does_not_start_on_a_full_disk_and_loses_nothing_by_it(
    tmp_path: Path, killed: Path, closed: Path, cleanly: bool
) -> None:
    with small_disk(tmp_path) as data:
        copied(closed if cleanly else killed, tmp_path)
        ballast = fill(data)
        refused(tmp_path, DISK_FULL, "the disk is full", "free some space")
        ballast.unlink()
        with allot_server(tmp_path) as server:
            assert names(server) == ({"a"} if cleanly else {"a", "b", "c"})


def test_a_new_cluster_on_a_full_disk_is_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path) as data:
        fill(data)
        for command in ("apiserver", "up"):
            done = start(tmp_path, command=command)
            assert done.returncode == DISK_FULL, done.stderr
            assert "the disk is full" in done.stderr


@pytest.mark.parametrize("command", ["apiserver", "up"])
def test_a_read_only_disk_is_named(tmp_path: Path, killed: Path, command: str) -> None:
    with small_disk(tmp_path) as data:
        copied(killed, tmp_path)
        subprocess.run(["mount", "-o", "remount,ro", str(data)], check=True)
        done = start(tmp_path, command=command)
        assert done.returncode == READ_ONLY, done.stderr
        assert done.stderr.splitlines() == [
            f"error: data directory {data}: the disk is read-only",
            "hint: mount it for writing, or choose another directory with --data-dir",
        ]
        subprocess.run(["mount", "-o", "remount,rw", str(data)], check=True)
        with allot_server(tmp_path) as server:
            assert names(server) == {"a", "b", "c"}


def test_an_etcd_that_is_full_refuses_writes_and_readyz_says_so(tmp_path: Path) -> None:
    if find_etcd() is None:
        pytest.skip(MISSING)
    (tmp_path / "etcd").mkdir()
    etcd = EtcdServer(tmp_path / "etcd", arguments=("--quota-backend-bytes", str(2 * 1024 * 1024)))
    with etcd, allot_server(tmp_path, ["--etcd-servers", etcd.address]) as server:
        for number in range(2000):
            answer = write(server, f"c{number}", 50_000)
            if answer.status != 201:
                break
        assert (answer.status, answer.value["reason"]) == (503, "ServiceUnavailable")
        assert "database space exceeded" in answer.message
        # All that was acknowledged; etcd keeps the write with which its room ended, and refuses it all the same.
        assert {f"c{each}" for each in range(number)} <= names(server)
        assert b"[-]store-writable failed: disk full\n" in readiness(server).body
        assert server.send("GET", "/livez", who=None).status == 200
