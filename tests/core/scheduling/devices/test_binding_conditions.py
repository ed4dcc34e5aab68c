"""Devices that have to become ready before their pod may start."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.scheduling.devices.binding_conditions import Binding, binding_state, deadline, has_conditions

from ..device_world import DRIVER, allocation, claim

ALLOCATED = 1767225600.0  # 2026-01-01T00:00:00Z
CONDITIONS: dict[str, Any] = {"bindingConditions": ["A", "B"], "bindingFailureConditions": ["Bad"]}


def status(*, stamped: bool = True, devices: tuple[str, ...] = ("gpu-0",), **conditions: str) -> dict[str, Any]:
    allocated = allocation(*devices, **CONDITIONS) | (
        {"allocationTimestamp": "2026-01-01T00:00:00Z"} if stamped else {}
    )
    reports = [
        {"type": type_, "status": value, "reason": "Cable", "message": 'not "plugged"'}
        for type_, value in conditions.items()
    ]
    reported = [{"driver": DRIVER, "pool": "n1", "device": "gpu-0", "shareID": "any", "conditions": reports}]
    return {"allocation": allocated, "devices": reported if conditions else []}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (status(), Binding.PENDING),
        (status(A="True"), Binding.PENDING),
        (status(A="True", B="False"), Binding.PENDING),
        (status(A="True", B="True"), Binding.READY),
        (status(A="True", B="True", Bad="False"), Binding.READY),
        (status(A="True", B="True", Bad="True"), Binding.FAILED),
        (status(devices=("gpu-0", "gpu-1"), A="True", B="True"), Binding.PENDING),
        (status(devices=("gpu-1",), A="True", B="True", Bad="True"), Binding.PENDING),
        ({"allocation": allocation("gpu-0")}, Binding.READY),
        ({}, Binding.PENDING),
    ],
)
def test_how_a_claim_stands(stored: dict[str, Any], expected: Binding) -> None:
    assert binding_state(claim("c", status=stored), ALLOCATED).binding is expected


def test_a_failure_is_told_in_upstreams_words() -> None:
    state = binding_state(claim("c", status=status(Bad="True")), ALLOCATED)
    assert state.message == 'device binding failed: claim=c, reason=Cable, message="not \\"plugged\\""'


def test_what_is_not_ready_in_time_has_timed_out() -> None:
    waiting = claim("c", status=status(A="True"))
    assert binding_state(waiting, ALLOCATED + 600).binding is Binding.PENDING
    late = binding_state(waiting, ALLOCATED + 600.5)
    assert (late.binding, late.message) == (Binding.TIMED_OUT, "device binding timeout: claim=c")
    assert binding_state(waiting, ALLOCATED + 31, timeout=30).binding is Binding.TIMED_OUT


def test_what_failed_has_failed_also_when_it_is_late() -> None:
    assert binding_state(claim("c", status=status(Bad="True")), ALLOCATED + 9999).binding is Binding.FAILED


def test_without_a_timestamp_there_is_no_end_to_waiting() -> None:
    waiting = claim("c", status=status(stamped=False))
    assert binding_state(waiting, ALLOCATED * 10).binding is Binding.PENDING
    assert deadline(waiting) == float("inf")
    assert deadline(claim("c", status=status())) == ALLOCATED + 600


def test_only_devices_with_conditions_have_to_be_waited_for() -> None:
    assert has_conditions(claim("c", status=status()))
    assert not has_conditions(claim("c", status={"allocation": allocation("gpu-0")}))
    assert not has_conditions(claim("c"))
