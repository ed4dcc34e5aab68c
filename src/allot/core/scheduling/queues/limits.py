"""What a queue never admits: more than its limit, or more non-preemptible pods than it deserves. With KAI's messages."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from allot.core.scheduling.queues.amounts import CPU, MEMORY, ONE, Amounts, exceeds
from allot.core.scheduling.queues.model import QueueShares

OVER_LIMIT = "OverLimit"
OVER_QUOTA = "NonPreemptibleOverQuota"
NO_QUEUE = "QueueDoesNotExist"
TOO_EARLY = "PreemptionDelayNotElapsed"
GPU = "gpu"
# For each resource: what it is called, its unit, and how many of ours make one.
_UNITS = {GPU: ("GPUs", "GPUs", 1), CPU: ("CPU cores", "cores", 1000), MEMORY: ("memory", "GB", 10**9)}
_DECIMALS = 3


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job may not start in its queue. reason: machine-readable; queue: at which level; resource: of what; bound, held,
    wanted: how much it may have, has and wants."""

    reason: str
    message: str
    queue: str = ""
    resource: str = ""
    bound: int = 0
    held: int = 0
    wanted: int = 0


def excess(queue: QueueShares, request: Amounts, *, is_preemptible: bool) -> Excess | None:
    """The objection to a request, at the queue itself or above; None if there is none."""
    return over_limit(queue, request) or (None if is_preemptible else over_deserved(queue, request))


def too_early(at_s: float) -> str:
    """Why a job may not preempt yet, whatever its queue is entitled to. at_s: from when on it may, in seconds since 1970."""
    when = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"Workload is within its preemption delay window and may not trigger evictions before {when}"


def over_limit(queue: QueueShares, request: Amounts) -> Excess | None:
    """More than a limit allows."""
    for level in queue.path():
        for resource, share in level.shares.items():
            amount = request.get(resource, 0)
            if amount and exceeds(share.allocated + amount, share.limit):
                name, unit, size = _unit(resource)
                message = (
                    f"{level.title} quota has reached the allowable limit of {name}. "
                    f"Limit is {number(share.limit, size)} {unit}, currently {number(share.allocated, size)} {unit} "
                    f"allocated and workload requested {number(amount, size)} {unit}"
                )
                return Excess(
                    reason=OVER_LIMIT,
                    message=message,
                    queue=level.name,
                    resource=resource,
                    bound=share.limit,
                    held=share.allocated,
                    wanted=amount,
                )
    return None


def over_deserved(queue: QueueShares, request: Amounts) -> Excess | None:
    """More that cannot be preempted than a queue deserves."""
    for level in queue.path():
        for resource, share in level.shares.items():
            amount = request.get(resource, 0)
            if amount and exceeds(share.allocated_firmly + amount, share.deserved):
                _, unit, size = _unit(resource)
                asked = {CPU: "CPU cores", MEMORY: "GB memory"}.get(resource, unit)
                message = (
                    f"Non-preemptible workload is over quota. Workload requested {number(amount, size)} {asked}, "
                    f"but {level.title} quota is {number(share.deserved, size)} {unit}, "
                    f"while {number(share.allocated_firmly, size)} {unit} are already allocated for non-preemptible pods. "
                    "Use a preemptible workload to go over quota."
                )
                return Excess(
                    reason=OVER_QUOTA,
                    message=message,
                    queue=level.name,
                    resource=resource,
                    bound=share.deserved,
                    held=share.allocated_firmly,
                    wanted=amount,
                )
    return None


def _unit(resource: str) -> tuple[str, str, int]:
    return _UNITS.get(resource, (resource, resource, 1))


def unit_of(resource: str) -> tuple[str, int]:
    """The display unit of a resource, and how many of our units make one."""
    _, unit, size = _unit(resource)
    return unit, size


def number(amount: int, size: int = 1) -> str:
    """An amount in display units, to three places: `2`, `0.5`."""
    if amount < 0:
        return "unlimited"
    shown = round(amount * 10**_DECIMALS / (ONE * size))
    whole, rest = divmod(shown, 10**_DECIMALS)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)


def amounts_text(amounts: Amounts) -> str:
    """Amounts for display: `8 GPUs, 1 core`."""
    parts = []
    for resource in sorted(amounts):
        _, unit, size = _unit(resource)
        shown = number(amounts[resource], size)
        if shown == "1" and resource in (GPU, CPU):
            unit = unit.removesuffix("s")
        parts.append(f"{shown} {unit}{' memory' if resource == MEMORY else ''}")
    return ", ".join(parts) or "nothing"
