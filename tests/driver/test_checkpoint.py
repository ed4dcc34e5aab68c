"""Records survive, damaged ones are told apart, and a reboot forgets them all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from allot.driver.checkpoint import (
    Checkpoint,
    CheckpointError,
    Phase,
    Record,
    RecordedDevice,
    read_boot_id,
    read_record,
)


def record(uid: str, **fields: object) -> Record:
    device = RecordedDevice(request="gpu", pool="n1", device="gpu-0", share_id="s")
    return Record(uid=uid, namespace="default", name="c", phase=Phase.STARTED, devices=(device,), **fields)  # type: ignore[arg-type]


def opened(path: Path, boot: str = "boot-1") -> Checkpoint:
    checkpoint = Checkpoint(path, boot)
    checkpoint.open()
    return checkpoint


def the_file(path: Path) -> Path:
    (found,) = path.rglob("*.json")
    return found


def test_a_record_is_read_back(tmp_path: Path) -> None:
    written = record("u1", state={"instance": [1, 2]}, spec={"kind": "a/b"})
    opened(tmp_path).put(written)
    assert list(opened(tmp_path)) == [written]


def test_a_removed_record_is_gone(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path)
    checkpoint.put(record("u1"))
    checkpoint.remove("u1")
    checkpoint.remove("u1")
    assert list(opened(tmp_path)) == []


def test_another_boot_forgets_everything_and_tells_what_it_was(tmp_path: Path) -> None:
    opened(tmp_path).put(record("u1"))
    later = Checkpoint(tmp_path, "boot-2")
    assert [each.uid for each in later.open()] == ["u1"]
    assert list(later) == []
    assert list(opened(tmp_path, "boot-1")) == []


def test_damage_of_another_boot_does_not_matter(tmp_path: Path) -> None:
    opened(tmp_path).put(record("u1"))
    the_file(tmp_path).write_bytes(b"")
    assert opened(tmp_path, "boot-2").unreadable == {}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version":"v1","checksum":1,"data":"{}"}'])
def test_a_damaged_file_is_known_by_its_claim(tmp_path: Path, damage: bytes) -> None:
    opened(tmp_path).put(record("u1"))
    the_file(tmp_path).write_bytes(damage)
    checkpoint = opened(tmp_path)
    assert list(checkpoint.unreadable) == ["u1"]
    assert "corrupt" in checkpoint.unreadable["u1"]
    checkpoint.remove("u1")
    assert opened(tmp_path).unreadable == {}


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    opened(tmp_path).put(record("u1"))
    path = the_file(tmp_path)
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(CheckpointError):
            read_record(path)


def test_a_newer_version_is_named(tmp_path: Path) -> None:
    opened(tmp_path).put(record("u1"))
    path = the_file(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "v9"}))
    with pytest.raises(CheckpointError, match="version 'v9', expected 'v1'"):
        read_record(path)


def test_a_uid_that_is_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="claim UID"):
        opened(tmp_path).put(record("../escape"))


def test_another_instances_records_are_seen_after_reading_again(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    one.put(record("u1"))
    assert other.get("u1") is None
    other.reload()
    assert other.get("u1") is not None


def test_a_system_without_boot_ids_has_one_boot(tmp_path: Path) -> None:
    assert read_boot_id(tmp_path / "none") == "unknown-boot"


_WRITER = """
import sys
from pathlib import Path
from allot.driver.checkpoint import Checkpoint, Phase, Record
checkpoint = Checkpoint(Path(sys.argv[1]), "boot-1")
checkpoint.open()
print("ready", flush=True)
number = 0
while True:
    number += 1
    uid = f"u{number % 5}"
    if number % 3:
        checkpoint.put(Record(uid=uid, namespace="d", name="c", phase=Phase.COMPLETED, state="x" * (number % 2000)))
    else:
        checkpoint.remove(uid)
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_damages_nothing(tmp_path: Path) -> None:
    for round_ in range(4):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(0.02 + round_ * 0.003)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
        process.stdout.close()
        assert opened(tmp_path).unreadable == {}
