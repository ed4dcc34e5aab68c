"""CDI specs are legal, of the lowest version, and their files appear and go at once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from allot.core.cdi import DeviceNode, Hook, IntelRdt, Mount, NetDevice
from allot.driver.cdi import CdiError, Edits, build_spec
from allot.driver.cdi_files import CdiFiles
from allot.driver.files import replace_file

KIND = "k8s.gpu.example.com/claim"
ENV = Edits(env={"GPU": "0"})


@pytest.mark.parametrize(
    ("edits", "version"),
    [
        (ENV, "0.3.0"),
        (Edits(mounts=(Mount(host_path="/a", container_path="/b"),)), "0.3.0"),
        (Edits(mounts=(Mount(host_path="/a", container_path="/b", type="tmpfs"),)), "0.4.0"),
        (Edits(device_nodes=(DeviceNode(path="/dev/a"),)), "0.3.0"),
        (Edits(device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/b"),)), "0.5.0"),
        (Edits(additional_gids=(44,)), "0.7.0"),
        (Edits(intel_rdt=IntelRdt(clos_id="x")), "0.7.0"),
        (Edits(intel_rdt=IntelRdt(enable_monitoring=True)), "1.1.0"),
        (Edits(net_devices=(NetDevice(host_interface_name="eth0", name="eth1"),)), "1.1.0"),
    ],
)
def test_a_spec_claims_the_lowest_version_that_its_content_needs(edits: Edits, version: str) -> None:
    assert build_spec(KIND, {"gpu": edits})["cdiVersion"] == version


def test_a_name_that_begins_with_a_digit_needs_0_5() -> None:
    assert build_spec(KIND, {"0gpu": ENV})["cdiVersion"] == "0.5.0"


def test_a_class_with_a_dot_needs_0_6() -> None:
    assert build_spec("vendor.example.com/my.class", {"gpu": ENV})["cdiVersion"] == "0.6.0"


def test_common_edits_count_for_the_version() -> None:
    assert build_spec(KIND, {"gpu": ENV}, Edits(additional_gids=(44,)))["cdiVersion"] == "0.7.0"


@pytest.mark.parametrize(
    ("kind", "devices", "text"),
    [
        ("gpu", {"a": ENV}, "expected vendor/class"),
        ("0k8s/claim", {"a": ENV}, "vendor '0k8s'"),
        ("k8s/claim-", {"a": ENV}, "class 'claim-'"),
        (KIND, {}, "at least one device"),
        (KIND, {"-a": ENV}, "device '-a'"),
        (KIND, {"a/b": ENV}, "device 'a/b'"),
        (KIND, {"a": Edits()}, "changes nothing"),
        (KIND, {"a": Edits(env={"A=B": "x"})}, "env name 'A=B'"),
        (KIND, {"a": Edits(env={"A": "x\0"})}, "contains a NUL"),
        (KIND, {"a": Edits(device_nodes=(DeviceNode(path="dev/a"),))}, "absolute path"),
        (KIND, {"a": Edits(device_nodes=(DeviceNode(path="/dev/a", type="z"),))}, "type 'z'"),
        (KIND, {"a": Edits(device_nodes=(DeviceNode(path="/dev/a", permissions="rr"),))}, "permissions 'rr'"),
        (KIND, {"a": Edits(hooks=(Hook(hook_name="start", path="/x"),))}, "hook 'start'"),
        (KIND, {"a": Edits(mounts=(Mount(host_path="", container_path="/b"),))}, "expected two paths"),
    ],
)
def test_what_no_runtime_would_take_is_refused_by_name(kind: str, devices: dict[str, Edits], text: str) -> None:
    with pytest.raises(CdiError) as caught:
        build_spec(kind, devices)
    assert text in str(caught.value)


def test_a_spec_has_the_names_of_the_specification() -> None:
    edits = Edits(
        env={"A": "b"},
        device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/b", file_mode=0o660),),
        hooks=(Hook(hook_name="createContainer", path="/bin/true", args=("true",)),),
        intel_rdt=IntelRdt(clos_id="c"),
    )
    assert msgspec.json.decode(msgspec.json.encode(build_spec(KIND, {"gpu": edits})))["devices"] == [
        {
            "name": "gpu",
            "containerEdits": {
                "env": ["A=b"],
                "deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b", "fileMode": 432}],
                "hooks": [{"hookName": "createContainer", "path": "/bin/true", "args": ["true"]}],
                "intelRdt": {"closID": "c"},
            },
        }
    ]


def test_files_of_unknown_claims_are_swept_and_no_others(tmp_path: Path) -> None:
    files = CdiFiles(tmp_path, KIND)
    files.open()
    for uid in ("known", "unknown"):
        files.write_claim(uid, files.spec_of({f"{uid}-gpu": ENV}))
    files.write_common(ENV)
    (tmp_path / "other-claim_1.json").write_text("{}")
    assert files.sweep({"known"}) == ("unknown",)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "k8s.gpu.example.com-claim_common.json",
        "k8s.gpu.example.com-claim_known.json",
        "other-claim_1.json",
    ]


def test_a_spec_file_can_be_read_by_everybody(tmp_path: Path) -> None:
    files = CdiFiles(tmp_path, KIND)
    files.write_claim("uid", files.spec_of({"uid-gpu": ENV}))
    path = files.claim_path("uid")
    assert path.stat().st_mode & 0o777 == 0o644
    assert msgspec.json.decode(path.read_bytes())["kind"] == KIND


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    replace_file(path, b"long content")
    replace_file(path, b"short")
    assert path.read_bytes() == b"short"
    assert list(tmp_path.iterdir()) == [path]
