"""The checkpoint of devices: files that the kubelet writes are read, and damaged ones refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.core.lifecycle.plugin_devices import Device, Edits, Holding, HostPath, Ledger
from allot.node.deviceplugins.checkpoint import decode, encode
from allot.node.state_file import CheckpointCorrupt

PATH = Path("/root/kubelet_internal_checkpoint")
# As the kubelet 1.37 writes them.
KUBELET = (
    '{"Data":{"PodDeviceEntries":[{"PodUID":"pod1","ContainerName":"con1","ResourceName":"vendor.com/gpu","DeviceIDs":{"-1":["dev1",'
    '"dev\\"2\\n"],"3":["dev3"]},"AllocResp":"CgYKAUESAUI="},{"PodUID":"pod2","ContainerName":"con\\\\1","ResourceName":"vendor.com/gpu",'
    '"DeviceIDs":{"10":["dev1"],"2":["é"]},"AllocResp":""},{"PodUID":"pod3","ContainerName":"c","ResourceName":"vendor.com/gpu",'
    '"DeviceIDs":{},"AllocResp":null}],"RegisteredDevices":{"a.b/c":[],"a.b/d":null,"vendor.com/gpu":["dev1","dev2"]}},'
    '"Checksum":%s}'
)
EMPTY = '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}'
NONE = '{"Data":{"PodDeviceEntries":[],"RegisteredDevices":null},"Checksum":3252601439}'


def test_files_of_the_kubelet_are_read() -> None:
    found = decode(PATH, (KUBELET % 379606937).encode())
    assert found.resources == ("a.b/c", "a.b/d", "vendor.com/gpu")
    holding = found.ledger.of("pod1", "con1")["vendor.com/gpu"]
    assert holding.devices == (
        Device(id='dev"2\n'),
        Device(id="dev1"),
        Device(id="dev3", numa_nodes=(3,)),
    )
    assert holding.edits.environment == {"A": "B"}
    assert found.ledger.of("pod2", "con\\1")["vendor.com/gpu"].ids == ("dev1", "é")
    assert decode(PATH, EMPTY.encode()).ledger.uids() == ()
    assert decode(PATH, NONE.encode()).resources == ()


def test_what_is_written_is_read_again() -> None:
    ledger = Ledger()
    edits = Edits(
        environment={"A": "1"},
        mounts=(HostPath(host_path="/a", container_path="/b", read_only=True),),
        devices=(HostPath(host_path="/dev/a", container_path="/dev/b", permissions="rw"),),
        annotations={"x": "y"},
        cdi_devices=("v/c=d",),
    )
    devices = (Device(id="d0"), Device(id="d1", numa_nodes=(0, 1)))
    ledger.hold("uid", "main", "v.example/gpu", Holding(devices=devices, edits=edits))
    found = decode(PATH, encode(ledger, ["v.example/gpu", "w.example/nic"]))
    assert list(found.ledger) == list(ledger)
    assert found.resources == ("v.example/gpu", "w.example/nic")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (KUBELET % 379606938, "its checksum is 379606938, that of its content 379606937"),
        ("", "truncated"),
        ("{}", "data"),
        ((KUBELET % 379606937).replace("con1", "con2"), "its checksum is"),
        ((KUBELET % 379606937).replace("CgYKAUESAUI=", "!"), "AllocResp of pod pod1"),
    ],
)
def test_a_damaged_file_is_refused(content: str, why: str) -> None:
    with pytest.raises(CheckpointCorrupt, match="(?i)" + why) as caught:
        decode(PATH, content.encode())
    assert "the devices that containers on this node hold are unknown" in str(caught.value)
    assert f"remove {PATH}" in caught.value.hint
