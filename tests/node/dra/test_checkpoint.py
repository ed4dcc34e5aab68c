"""What the agent must not forget is in the kubelet's files, whole whenever it is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import zlib
from pathlib import Path

import msgspec
import pytest

from allot.core.lifecycle.preparation import ClaimRecord, DriverRecord, PreparedDevice
from allot.node.dra.checkpoint import decode_claims, encode_claims
from allot.node.state_file import CheckpointCorrupt, StateFile, replace_file
from node.dra.node import node

RECORD = ClaimRecord(
    namespace="default",
    name="a",
    uid="uid-a",
    pod_uids=("pod-1", "pod-2"),
    drivers={
        "gpu.example.com": DriverRecord(
            devices=(
                PreparedDevice(pool="node-1", device="gpu-0", request_names=("req",), cdi_ids=("v/c=x",)),
                PreparedDevice(pool="node-1", device="gpu-1", share_id="share"),
            )
        ),
        "nic.example.com": DriverRecord(skipped=("*",)),
    },
)
# As the kubelet writes it.
INNER = (
    '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[{"ClaimUID":"uid-a",'
    '"ClaimName":"a","Namespace":"default","PodUIDs":{"pod-1":{},"pod-2":{}},"DriverState":{"gpu.example.com":{"Devices":'
    '[{"PoolName":"node-1","DeviceName":"gpu-0","ShareID":null,"RequestNames":["req"],"CDIDeviceIDs":["v/c=x"]},'
    '{"PoolName":"node-1","DeviceName":"gpu-1","ShareID":"share","RequestNames":null,"CDIDeviceIDs":null}]},'
    '"nic.example.com":{"Devices":null,"skipNodeOperations":["*"]}}}]}'
)
WHERE = Path("dra_manager_state")


def outer(inner: str, checksum: int | None = None) -> bytes:
    return msgspec.json.encode(
        {"Data": inner, "Checksum": zlib.crc32(inner.encode()) if checksum is None else checksum}
    )


def test_the_file_is_the_kubelets_to_the_letter() -> None:
    assert msgspec.json.decode(encode_claims({RECORD.key: RECORD})) == msgspec.json.decode(outer(INNER))


def test_what_is_written_is_read_again_but_for_what_holds_only_now() -> None:
    now = msgspec.structs.replace(RECORD, is_prepared=True, is_unpreparing=True)
    assert decode_claims(WHERE, encode_claims({now.key: now})) == {RECORD.key: RECORD}
    assert decode_claims(WHERE, encode_claims({})) == {}


def test_an_empty_state_of_the_kubelet_is_read() -> None:
    inner = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":null}'
    assert decode_claims(WHERE, outer(inner)) == {}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "truncated"),
        (b"\xff\x00", "malformed"),
        (b"{}", "missing required field `Data`"),
        (b'{"a":' * 5000, "recursion"),
        (b'{"Data":"","Checksum":99999999999999999999999}', "its checksum is 99999999999999999999999"),
        (outer(INNER)[:-40], ""),
        (outer(INNER, 1), "its checksum is 1, that of its content"),
        (outer(INNER).replace(b"gpu-0", b"gpu-9"), "checksum"),
        (outer("[]"), "Expected `object`"),
        (outer('{"kind":"Other","apiVersion":"v9"}'), "'Other' of 'v9'"),
    ],
)
async def test_a_damaged_file_is_told_with_what_to_do(tmp_path: Path, content: bytes, why: str) -> None:
    async with node(tmp_path) as here:
        path = here.root / "dra_manager_state"
        path.write_bytes(content)
        with pytest.raises(CheckpointCorrupt, match="checkpoint is corrupted") as caught:
            here.preparer()
        assert why in str(caught.value)
        assert str(path) in str(caught.value)
        assert f"drain the node, make sure that its drivers hold no claims, remove {path}" in caught.value.hint
        # It is left as it was, for whoever wants to look at it.
        assert path.read_bytes() == content


async def test_changes_at_the_same_time_share_a_write(tmp_path: Path) -> None:
    count = 0

    def encode() -> bytes:
        nonlocal count
        count += 1
        return str(state).encode()

    state = 0
    file = StateFile(tmp_path / "file", encode)

    async def change() -> None:
        nonlocal state
        state += 1
        mine = state
        await file.write()
        assert int((tmp_path / "file").read_bytes()) >= mine

    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(change())
    assert (int((tmp_path / "file").read_bytes()), count <= 3) == (50, True)


async def test_a_write_that_fails_is_told_to_all_who_wait_and_the_next_may_succeed(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "absent" / "file", lambda: b"x")
    results = await asyncio.gather(file.write(), file.write(), return_exceptions=True)
    assert [type(result) for result in results] == [FileNotFoundError, FileNotFoundError]
    (tmp_path / "absent").mkdir()
    await file.write()


_WRITER = """
import sys
from pathlib import Path
from allot.node.state_file import replace_file
path, number = Path(sys.argv[1]), 0
while True:
    number += 1
    replace_file(path, (b"%d," % number) * 20_000)
"""


@pytest.mark.slow
def test_a_file_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for pause in (0.0, 0.004, 0.013, 0.031):
        path.unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)]) as writer:
            while not path.exists():
                time.sleep(0.001)
            time.sleep(pause)
            writer.kill()
        content = path.read_bytes()
        number = content.partition(b",")[0]
        assert content == (number + b",") * 20_000


def test_what_a_killed_writer_has_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")
    (tmp_path / "file.new").write_bytes(b"hal")
    assert StateFile(path, lambda: b"").read() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
