"""Whether the devices of an allocated claim are ready for their pod (DRADeviceBindingConditions).

A driver that has to attach a device first lists conditions that must become true, and failure conditions.
This module computes the state of a claim at a given time; waiting happens elsewhere.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from allot.core.model.meta import Condition
from allot.core.model.resource_v1 import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim
from allot.core.quoting import quoted

BINDING_TIMEOUT_SECONDS = 600.0


class Binding(StrEnum):
    """The progress of a claim's devices. The values are the labels of kube-scheduler's metrics."""

    READY = "success"
    PENDING = "pending"
    FAILED = "failure"
    TIMED_OUT = "timeout"


class BindingState(msgspec.Struct, frozen=True):
    """The state of a claim, and if it failed, why, in upstream's words."""

    binding: Binding
    message: str = ""


_READY = BindingState(Binding.READY)
_PENDING = BindingState(Binding.PENDING)


def has_conditions(claim: ResourceClaim) -> bool:
    """Whether any device of the allocation has to become ready."""
    allocation = claim.status.allocation
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def binding_state(claim: ResourceClaim, now: float, timeout: float = BINDING_TIMEOUT_SECONDS) -> BindingState:
    """The state of the claim at `now` (seconds since 1970).

    A device without a report from its driver is just not ready, whatever else is reported.
    """
    state = _reported(claim)
    if state.binding is Binding.PENDING and deadline(claim, timeout) < now:
        return BindingState(Binding.TIMED_OUT, f"device binding timeout: claim={claim.metadata.name}")
    return state


def deadline(claim: ResourceClaim, timeout: float = BINDING_TIMEOUT_SECONDS) -> float:
    """When the devices must be ready, in seconds since 1970; never, if the allocation has no timestamp."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None or not has_conditions(claim):
        return float("inf")
    return datetime.fromisoformat(allocation.allocation_timestamp).timestamp() + timeout


def _reported(claim: ResourceClaim) -> BindingState:
    allocation = claim.status.allocation
    if allocation is None:
        return _PENDING
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        status = _status_of(claim, result)
        if status is None:
            return _PENDING
        for type_ in result.binding_failure_conditions:
            failed = _condition(status, type_)
            if failed is not None and failed.status == "True":
                message = quoted(failed.message)
                return BindingState(
                    Binding.FAILED,
                    f"device binding failed: claim={claim.metadata.name}, reason={failed.reason}, message={message}",
                )
        for type_ in result.binding_conditions:
            condition = _condition(status, type_)
            if condition is None or condition.status != "True":
                return _PENDING
    return _READY


def _status_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    """What the driver reported on a device; shares are not distinguished, as upstream."""
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device) == (result.driver, result.pool, result.device):
            return status
    return None


def _condition(status: AllocatedDeviceStatus, type_: str) -> Condition | None:
    return next((condition for condition in status.conditions if condition.type == type_), None)
