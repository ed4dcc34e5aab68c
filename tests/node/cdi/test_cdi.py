"""CDI: strict files, precedence of folders, conflicts, and what a container gets in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from allot.core.cdi import InvalidSpec, minimum_version, parse_name, parse_spec
from allot.driver import cdi
from allot.node.cdi.edits import merge_devices
from allot.node.cdi.registry import CdiRegistry, Unresolvable


def spec(*names: str, version: str = "0.5.0", kind: str = "vendor.com/gpu", **more: Any) -> dict[str, Any]:
    devices = [{"name": name, "containerEdits": {"env": [f"DEVICE_{name.upper()}=1"]}} for name in names]
    return {"cdiVersion": version, "kind": kind, "devices": devices, **more}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


# --- one file ---


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cdiVersion": "9.9.9"}, "invalid version '9.9.9'"),
        ({"kind": "vendor"}, "invalid kind 'vendor'"),
        ({"kind": "1vendor/gpu"}, "invalid vendor '1vendor'"),
        ({"kind": "vendor/gpu-"}, "invalid class 'gpu-'"),
        ({"devices": []}, "no devices"),
        ({"unknown": 1}, "unknown field `unknown`"),
        ({"devices": [{"name": "a"}]}, "empty device edits"),
        ({"devices": [{"name": "a b", "containerEdits": {"env": ["A=1"]}}]}, "invalid device name 'a b'"),
        ({"devices": [{"name": "a", "containerEdits": {"env": ["A"]}}]}, "invalid environment variable 'A'"),
        ({"devices": [{"name": "a", "containerEdits": {"env": ["A=1"]}}] * 2}, "multiple device 'a'"),
        ({"containerEdits": {"deviceNodes": [{"path": "/dev/x", "type": "z"}]}}, "invalid type 'z'"),
        ({"containerEdits": {"deviceNodes": [{"path": "/dev/x", "permissions": "rr"}]}}, "invalid permissions 'rr'"),
        ({"containerEdits": {"deviceNodes": [{"path": ""}]}}, "empty"),
        ({"containerEdits": {"hooks": [{"hookName": "later", "path": "/x"}]}}, "invalid hook name 'later'"),
        ({"containerEdits": {"mounts": [{"hostPath": "", "containerPath": "/x"}]}}, "empty host path"),
        ({"containerEdits": {"intelRdt": {"closID": "../x"}}}, "closID"),
        ({"containerEdits": {"additionalGids": [-1]}}, "additionalGids"),
        ({"containerEdits": "x"}, "Expected `object`"),
    ],
)
def test_a_spec_that_breaks_a_rule_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSpec, match=text.replace("(", r"\(")):
        parse_spec({**spec("a"), **change})


@pytest.mark.parametrize(
    ("change", "lowest"),
    [
        ({}, "0.3.0"),
        ({"containerEdits": {"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "bind"}]}}, "0.4.0"),
        ({"containerEdits": {"deviceNodes": [{"path": "/a", "hostPath": "/b"}]}}, "0.5.0"),
        ({"devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}]}, "0.5.0"),
        ({"annotations": {"a": "b"}}, "0.6.0"),
        ({"kind": "vendor.com/gpu.mig"}, "0.6.0"),
        ({"containerEdits": {"additionalGids": [5]}}, "0.7.0"),
        ({"containerEdits": {"intelRdt": {"closID": "a"}}}, "0.7.0"),
        ({"containerEdits": {"intelRdt": {"enableMonitoring": True}}}, "1.1.0"),
        ({"containerEdits": {"netDevices": [{"hostInterfaceName": "eth1", "name": "net0"}]}}, "1.1.0"),
    ],
)
def test_a_spec_must_claim_the_version_that_its_content_needs(change: dict[str, Any], lowest: str) -> None:
    value = {**spec("a", version="1.1.0"), **change}
    assert minimum_version(parse_spec(value)) == lowest
    parse_spec({**value, "cdiVersion": lowest})
    if lowest != "0.3.0":
        with pytest.raises(InvalidSpec, match="must be at least"):
            parse_spec({**value, "cdiVersion": "0.3.0"})


@pytest.mark.parametrize("name", ["gpu0", "vendor/gpu0", "vendor/gpu=", "v/g=a b", "/g=a", "v/=a", "v/g=-a"])
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(InvalidSpec):
        parse_name(name)


def test_a_qualified_name_has_three_parts() -> None:
    assert parse_name("vendor.com/gpu=a:b.c-0") == ("vendor.com", "gpu", "a:b.c-0")


# --- how edits add up ---


def test_what_a_spec_says_of_all_devices_comes_once_and_first() -> None:
    both = parse_spec(
        spec("a", "b", containerEdits={"env": ["X=spec"], "hooks": [{"hookName": "prestart", "path": "/h"}]})
    )
    merged = merge_devices([(both, both.devices[0]), (both, both.devices[1])])
    assert merged.environment == {"X": "spec", "DEVICE_A": "1", "DEVICE_B": "1"}
    assert [hook.hook_name for hook in merged.hooks].count("prestart") == 1


def test_later_devices_win_and_mounts_are_made_from_the_top() -> None:
    def device(name: str, number: int) -> dict[str, Any]:
        return {
            "name": name,
            "containerEdits": {
                "env": [f"X={number}"],
                "mounts": [
                    {"hostPath": f"/deep{number}", "containerPath": "/a/b/c"},
                    {"hostPath": f"/h{number}", "containerPath": "/a"},
                ],
                "deviceNodes": [{"path": "/dev/x", "type": "c", "major": number, "minor": 1}],
                "additionalGids": [0, 7, number],
            },
        }

    both = parse_spec({**spec(version="1.1.0"), "devices": [device("a", 1), device("b", 2)]})
    merged = merge_devices([(both, each) for each in both.devices])
    assert merged.environment == {"X": "2"}
    assert [(mount.host_path, mount.container_path) for mount in merged.mounts] == [("/h2", "/a"), ("/deep2", "/a/b/c")]
    assert [node.major for node in merged.device_nodes] == [2]
    assert merged.additional_gids == (7, 1, 2)


# --- folders ---


def test_a_device_in_two_folders_is_that_of_the_later_folder(tmp_path: Path) -> None:
    low, high = tmp_path / "etc", tmp_path / "run"
    write(low / "v.json", {**spec("a"), "containerEdits": {"env": ["FROM=low"]}})
    write(
        high / "v.yaml",
        "cdiVersion: 0.5.0\nkind: vendor.com/gpu\ndevices:\n- name: a\n  containerEdits: {env: [FROM=high]}\n",
    )
    assert CdiRegistry([low, high]).resolve(["vendor.com/gpu=a"]).environment == {"FROM": "high"}


def test_a_device_twice_in_one_folder_is_nobodys_but_others_of_the_files_are_fine(tmp_path: Path) -> None:
    write(tmp_path / "one.json", spec("a", "b"))
    write(tmp_path / "two.json", spec("a", "c"))
    registry = CdiRegistry([tmp_path])
    assert registry.resolve(["vendor.com/gpu=b", "vendor.com/gpu=c"]).environment == {"DEVICE_B": "1", "DEVICE_C": "1"}
    with pytest.raises(Unresolvable, match=r"vendor.com/gpu=a conflicts in .*one.json and .*two.json"):
        registry.resolve(["vendor.com/gpu=a"])


@pytest.mark.parametrize("bad", ["{", "[]", '"x"', '{"cdiVersion": 1}', "\0", '{"a": ' * 2000])
def test_a_bad_file_makes_only_its_own_devices_unknown(tmp_path: Path, bad: str) -> None:
    write(tmp_path / "bad.json", bad)
    write(tmp_path / "good.json", spec("a"))
    registry = CdiRegistry([tmp_path, tmp_path / "absent"])
    assert registry.resolve(["vendor.com/gpu=a"]).environment == {"DEVICE_A": "1"}
    with pytest.raises(
        Unresolvable, match=r"unresolvable CDI devices vendor.com/gpu=z, x \(.*unqualified device 'x'.*bad.json"
    ):
        registry.resolve(["vendor.com/gpu=z", "x"])


def test_files_are_read_again_when_they_change_and_forgotten_when_they_go(tmp_path: Path) -> None:
    registry = CdiRegistry([tmp_path])
    with pytest.raises(Unresolvable):
        registry.resolve(["vendor.com/gpu=a"])
    write(tmp_path / "v.json", spec("a"))
    registry.resolve(["vendor.com/gpu=a"])
    write(tmp_path / "new", spec("a", "b"))
    (tmp_path / "new").replace(tmp_path / "v.json")
    registry.resolve(["vendor.com/gpu=b"])
    assert registry.devices == ("vendor.com/gpu=a", "vendor.com/gpu=b")
    (tmp_path / "v.json").unlink()
    with pytest.raises(Unresolvable):
        registry.resolve(["vendor.com/gpu=a"])


def test_what_a_device_node_does_not_say_is_read_from_the_host(tmp_path: Path) -> None:
    nodes = [{"path": "/dev/null"}, {"path": "/dev/mine", "hostPath": "/dev/zero"}]
    write(tmp_path / "v.json", {**spec("a"), "containerEdits": {"deviceNodes": nodes}})
    merged = CdiRegistry([tmp_path]).resolve(["vendor.com/gpu=a"])
    assert [(node.type, node.major, node.minor) for node in merged.device_nodes] == [("c", 1, 3), ("c", 1, 5)]


@pytest.mark.parametrize(("path", "text"), [("/dev/absent", "No such file"), ("/", "not a device node")])
def test_a_device_node_that_is_not_there_is_told(tmp_path: Path, path: str, text: str) -> None:
    write(tmp_path / "v.json", {**spec("a"), "containerEdits": {"deviceNodes": [{"path": path}]}})
    with pytest.raises(Unresolvable, match=text):
        CdiRegistry([tmp_path]).resolve(["vendor.com/gpu=a"])


def test_what_drivers_of_the_kit_write_is_read_at_the_version_that_they_claim() -> None:
    """The two sides do not know each other, so what one calls legal has to be so for the other."""
    nodes = (cdi.DeviceNode(path="/dev/a", host_path="/dev/b", permissions="rw"),)
    mounts = (cdi.Mount(host_path="/h", container_path="/c", options=("ro",), type="bind"),)
    hooks = (cdi.Hook(hook_name="createRuntime", path="/bin/true", args=("true",)),)
    interfaces = (cdi.NetDevice(host_interface_name="eth1", name="net0"),)
    for edits in (
        cdi.Edits(env={"A": "1"}),
        cdi.Edits(mounts=mounts),
        cdi.Edits(device_nodes=nodes, hooks=hooks),
        cdi.Edits(additional_gids=(5,)),
        cdi.Edits(net_devices=interfaces, intel_rdt=cdi.IntelRdt(clos_id="a", schemata=("L3:0=f",))),
    ):
        for kind in ("gpu.example.com/gpu", "gpu.example.com/gpu.mig"):
            for name in ("gpu-0", "0-claim:1"):
                spec_ = parse_spec(cdi.build_spec(kind, {name: edits}, cdi.Edits(env={"B": "2"})))
                assert spec_.cdi_version == minimum_version(spec_)
                parse_name(spec_.qualified(spec_.devices[0]))
