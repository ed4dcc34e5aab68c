"""Faults of cards as taints and health, and how they are injected."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.devices.gpu.faults import describe, health_of, taints_of
from allot.devices.gpu.hardware import Fault, FaultKind, HardwareError
from allot.devices.gpu.simulated import inject, parse_fault
from allot.driver.driver import Health
from devices.gpu.world import simulated

LOST = Fault(kind=FaultKind.LOST, xid=79)


def xid(number: int) -> Fault:
    return Fault(kind=FaultKind.XID, xid=number)


@pytest.mark.parametrize(
    ("faults", "taints"),
    [
        ((), []),
        ((xid(79),), [("gpu.nvidia.com/xid", "79", "NoSchedule")]),
        ((LOST,), [("gpu.nvidia.com/gpu-lost", "", "NoSchedule")]),
        ((Fault(kind=FaultKind.UNMONITORED),), [("gpu.nvidia.com/unmonitored", "", "None")]),
        *(((xid(number),), [("gpu.nvidia.com/xid", str(number), "None")]) for number in (13, 31, 43, 45, 68, 109)),
        # One taint per key: the first that counts.
        ((xid(13), xid(48), xid(63)), [("gpu.nvidia.com/xid", "48", "NoSchedule")]),
        ((xid(48), LOST), [("gpu.nvidia.com/gpu-lost", "", "NoSchedule"), ("gpu.nvidia.com/xid", "48", "NoSchedule")]),
    ],
)
def test_faults_make_taints(faults: tuple[Fault, ...], taints: list[tuple[str, str, str]]) -> None:
    assert [(taint.key, taint.value, taint.effect) for taint in taints_of(faults)] == taints


@pytest.mark.parametrize(
    ("faults", "health", "message"),
    [
        ((), Health.HEALTHY, ""),
        ((xid(13),), Health.HEALTHY, "XID 13: graphics engine exception"),
        ((xid(48),), Health.UNHEALTHY, "XID 48: double bit ECC error"),
        ((LOST,), Health.UNHEALTHY, "GPU is lost"),
        ((xid(777),), Health.UNHEALTHY, "XID 777"),
        ((Fault(kind=FaultKind.UNMONITORED),), Health.UNKNOWN, "events of the GPU cannot be received"),
        ((xid(31), xid(79)), Health.UNHEALTHY, "XID 31: GPU memory page fault; XID 79: GPU has fallen off the bus"),
    ],
)
def test_faults_make_health(faults: tuple[Fault, ...], health: Health, message: str) -> None:
    assert health_of(faults) == (health, message)
    assert all(describe(fault) for fault in faults)


@pytest.mark.parametrize(("text", "fault"), [("xid=63", xid(63)), ("ecc", xid(48)), ("lost", LOST)])
def test_faults_can_be_named(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize("text", ["", "xid", "xid=", "xid=0", "xid=-1", "xid=1000", "xid=99999999999", "xid=²", "fire"])
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected xid=NUMBER"):
        parse_fault(text)


def test_injected_faults_are_seen_and_cleared(tmp_path: Path) -> None:
    hardware = simulated(tmp_path, "h100x2")
    hardware.open()
    inject(tmp_path, "1", [xid(63)])
    assert hardware.wait_for_change(5.0)
    assert [gpu.faults for gpu in hardware.gpus()] == [(), (xid(63),)]
    inject(tmp_path, hardware.gpus()[0].uuid, [LOST])
    assert hardware.wait_for_change(5.0)
    with pytest.raises(HardwareError, match="GPU is lost"):
        hardware.set_time_slice(hardware.gpus()[0].uuid, 1)
    inject(tmp_path, "gpu-0", [])
    inject(tmp_path, "gpu-1", [])
    assert hardware.wait_for_change(5.0)
    assert [gpu.faults for gpu in hardware.gpus()] == [(), ()]


def test_a_card_that_is_not_there_cannot_be_injured(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="no simulated GPUs in"):
        inject(tmp_path, "0", [LOST])
    simulated(tmp_path, "h100x2").open()
    with pytest.raises(HardwareError, match="GPU '2': expected 0 to 1 or one of GPU-"):
        inject(tmp_path, "2", [LOST])
