"""Faults of cards as taints and health: separates application errors from hardware errors.

XID numbers are from NVIDIA's catalogue. Application errors do not concern the card: their taint has no
effect, and the card stays healthy.
"""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.model.resource_v1 import EFFECT_NO_SCHEDULE, EFFECT_NONE, DeviceTaint
from allot.devices.gpu.hardware import Fault, FaultKind, Gpu
from allot.driver.driver import Health

DOMAIN = "gpu.nvidia.com"
# Graphics engine exception, memory page fault, stopped processing, preemptive cleanup, video processor exception,
# context switch timeout: caused by the program.
IGNORED_XIDS = frozenset({13, 31, 43, 45, 68, 109})
XID_ECC = 48
XID_OFF_THE_BUS = 79
_XIDS = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup, due to previous errors",
    XID_ECC: "double bit ECC error",
    63: "row remapping event",
    64: "row remapping failure",
    68: "video processor exception",
    74: "NVLink error",
    XID_OFF_THE_BUS: "GPU has fallen off the bus",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout error",
    119: "GSP RPC timeout",
}


def describe(fault: Fault) -> str:
    """A fault in words."""
    match fault.kind:
        case FaultKind.XID:
            meaning = _XIDS.get(fault.xid)
            return f"XID {fault.xid}: {meaning}" if meaning else f"XID {fault.xid}"
        case FaultKind.LOST:
            return "GPU is lost"
        case FaultKind.UNMONITORED:
            return "events of the GPU cannot be received"


def is_harmless(fault: Fault) -> bool:
    """Whether the card remains usable."""
    return fault.kind is FaultKind.UNMONITORED or (fault.kind is FaultKind.XID and fault.xid in IGNORED_XIDS)


def is_lost(gpu: Gpu) -> bool:
    """Whether the card no longer responds."""
    return any(fault.kind is FaultKind.LOST for fault in gpu.faults)


def taints_of(faults: Iterable[Fault]) -> tuple[DeviceTaint, ...]:
    """The taints of a device, one per kind of fault: for the worst fault, or the first of several."""
    chosen: dict[str, Fault] = {}
    for fault in faults:
        known = chosen.get(fault.kind)
        if known is None or (is_harmless(known) and not is_harmless(fault)):
            chosen[fault.kind] = fault
    return tuple(
        DeviceTaint(
            key=f"{DOMAIN}/{kind}",
            value=str(fault.xid) if fault.kind is FaultKind.XID else "",
            effect=EFFECT_NONE if is_harmless(fault) else EFFECT_NO_SCHEDULE,
        )
        for kind, fault in sorted(chosen.items())
    )


def health_of(faults: Iterable[Fault]) -> tuple[Health, str]:
    """The health of a device with these faults."""
    present = tuple(faults)
    message = "; ".join(describe(fault) for fault in present)
    if any(not is_harmless(fault) for fault in present):
        return Health.UNHEALTHY, message
    if any(fault.kind is FaultKind.UNMONITORED for fault in present):
        return Health.UNKNOWN, message
    return Health.HEALTHY, message
