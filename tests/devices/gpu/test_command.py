"""The driver's command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allot.devices.command import UsageError
from allot.devices.gpu.command import main, make_driver, parse_layout
from allot.devices.gpu.gates import Gates
from allot.devices.gpu.hardware import Fault, FaultKind, HardwareError
from allot.devices.gpu.nvml_hardware import NvmlHardware
from allot.devices.gpu.simulated import SimulatedHardware
from devices.gpu.world import simulated


def test_options_of_every_driver_are_left_for_the_sdk(tmp_path: Path) -> None:
    options = ["--profile", "h100x8", "--node-name", "n1", "--kubelet-root", str(tmp_path), "--port", "0"]
    driver, rest = make_driver([*options, "--feature-gates", "DynamicMIG=true"])
    assert isinstance(driver.hardware, SimulatedHardware)
    assert driver.gates == Gates(dynamic_mig=True)
    assert rest == ["--node-name", "n1", "--kubelet-root", str(tmp_path), "--port", "0"]
    driver.hardware.open()
    assert (tmp_path / "plugins" / "gpu.nvidia.com" / "gpus" / "state.json").exists()


def test_without_a_profile_the_cards_are_real() -> None:
    driver, _ = make_driver([])
    assert isinstance(driver.hardware, NvmlHardware)


def test_device_metadata_is_a_gate() -> None:
    assert make_driver(["--profile", "t4x1", "--feature-gates", "DeviceMetadata=true"])[0].has_device_metadata
    assert not make_driver(["--profile", "t4x1"])[0].has_device_metadata


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--profile", "h100x"], "machine 'h100x': expected a model and a number"),
        (["--feature-gates", "Magic=true"], "feature gate 'Magic': expected one of"),
        (["--mig-layout", "0=1g.10gb"], "--mig-layout: only simulated GPUs (--profile) can be partitioned at start"),
        (
            ["--feature-gates", "PassthroughSupport=true"],
            "feature gate PassthroughSupport: only simulated GPUs (--profile) can be passed through",
        ),
        (["--profile", "h100x2", "--mig-layout", "2=1g.10gb"], "--mig-layout: '2=1g.10gb', expected all=PROFILE,..."),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        make_driver(options)
    assert str(caught.value).startswith(text)
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {text}")


def test_a_layout_is_read() -> None:
    assert parse_layout("all=1g.10gb,1g.10gb;1=", 2) == {0: ("1g.10gb", "1g.10gb"), 1: ()}
    assert parse_layout("", 8) == {}


def test_faults_are_injected_and_cleared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hardware = simulated(tmp_path, "h100x1")
    hardware.open()
    for arguments, code in (
        (["fault", "0", "xid=63", "ecc", "--state-dir", str(tmp_path)], 0),
        (["fault", "0", "fire", "--state-dir", str(tmp_path)], 2),
        (["fault", "7", "ecc", "--state-dir", str(tmp_path)], 1),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == code
    assert "fault 'fire': expected xid=NUMBER (1 to 999), ecc or lost" in capsys.readouterr().err
    again = simulated(tmp_path, "h100x1")
    again.open()
    assert again.gpus()[0].faults == (Fault(kind=FaultKind.XID, xid=63), Fault(kind=FaultKind.XID, xid=48))
    with pytest.raises(SystemExit):
        main(["fault", "0", "clear", "--state-dir", str(tmp_path)])
    assert not (tmp_path / "faults.json").exists()


def test_classes_are_printed_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["classes"])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["kind"], each["metadata"]["name"]) for each in printed] == [
        ("DeviceClass", "gpu.nvidia.com"),
        ("DeviceClass", "mig.nvidia.com"),
        ("DeviceClass", "vfio.gpu.nvidia.com"),
    ]


@pytest.mark.parametrize(
    ("machine", "layout", "text"),
    [
        ("l4x1", {0: ("1g.5gb",)}, "MIG layout of GPU 0: NVIDIA L4 has no MIG"),
        ("h100x1", {0: ("1g.5gb",)}, "MIG layout of GPU 0: profile '1g.5gb', expected 1g.10gb, 1g.10gb+me"),
        ("h100x1", {0: ("4g.40gb", "4g.40gb")}, "MIG layout of GPU 0: no room for 4g.40gb after 4g.40gb"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(
    tmp_path: Path, machine: str, layout: dict[int, tuple[str, ...]], text: str
) -> None:
    with pytest.raises(HardwareError) as caught:
        simulated(tmp_path, machine, layout).open()
    assert str(caught.value).startswith(text)


def test_a_damaged_state_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(HardwareError, match=r"state of simulated GPUs .*state\.json: "):
        simulated(tmp_path, "h100x1").open()
