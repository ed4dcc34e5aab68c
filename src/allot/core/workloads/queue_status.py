"""The status of queues and groups, in the format of their own API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.quantity import Quantity
from allot.core.scheduling.queues.amounts import CPU, ONE, Amounts
from allot.core.scheduling.queues.limits import GPU
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.usage import Usage

# KAI's status names for whole and shared GPUs of any vendor.
_KAI_GPU = "nvidia.com/gpu"
_MILLI = 1000


def kai_queue_status(queue: QueueShares) -> dict[str, Any]:
    """status of a Queue of scheduling.run.ai/v2."""
    shares = queue.shares
    return {
        "childQueues": sorted(child.name for child in queue.children),
        "allocated": _quantities({name: share.allocated for name, share in shares.items()}, _KAI_GPU),
        "allocatedNonPreemptible": _quantities(
            {name: share.allocated_firmly for name, share in shares.items()}, _KAI_GPU
        ),
        "requested": _quantities({name: share.request for name, share in shares.items()}, _KAI_GPU),
    }


def kai_resources_status(usage: Usage) -> dict[str, Any]:
    """status.resourcesStatus of a PodGroup of scheduling.run.ai/v2alpha2."""
    return {
        "allocated": _quantities(usage.allocated, _KAI_GPU),
        "allocatedNonPreemptible": _quantities(usage.firm, _KAI_GPU),
        "requested": _quantities(usage.requested, _KAI_GPU),
    }


def volcano_queue_status(queue: QueueShares, state: str, phases: Mapping[str, int]) -> dict[str, Any]:
    """status of a Queue of scheduling.volcano.sh/v1beta1. phases: how many of its groups are in each."""
    counted = ("Pending", "Running", "Unknown", "Inqueue", "Completed")
    return {
        "state": state or "Open",
        "allocated": _quantities({name: share.allocated for name, share in queue.shares.items()}, GPU),
        **{phase.lower(): phases.get(phase, 0) for phase in counted},
    }


def _quantities(amounts: Amounts, gpu: str) -> dict[str, str]:
    """Zeros are included, so that old values do not stay."""
    found: dict[str, str] = {}
    for resource, amount in sorted(amounts.items()):
        nano = amount // _MILLI if resource == CPU else amount * 10**9 // ONE
        found[gpu if resource == GPU else resource] = str(Quantity.from_nano(max(0, nano)))
    return found
