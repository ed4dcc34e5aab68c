"""Allocation: which devices a pod's claims get on a node, or why they get none.

Start with `allocator.allocate` (the question), `inventory.Inventory` (what is known), `search.Search` (the answer).
Nothing in here decides which node; nothing writes anywhere.
"""

from allot.core.allocation.allocator import Allocated, Unallocatable, allocate, place
from allot.core.allocation.devices import ClaimID, DeviceID
from allot.core.allocation.errors import AllocationError
from allot.core.allocation.features import ALL_FEATURES, Features, UnknownFeature
from allot.core.allocation.inventory import DEFAULT_FEATURES, Inventory, claim_id
from allot.core.allocation.policies import FIRST_FIT, PACK, POLICIES, Policy

__all__ = [
    "ALL_FEATURES",
    "DEFAULT_FEATURES",
    "FIRST_FIT",
    "PACK",
    "POLICIES",
    "Allocated",
    "AllocationError",
    "ClaimID",
    "DeviceID",
    "Features",
    "Inventory",
    "Policy",
    "Unallocatable",
    "UnknownFeature",
    "allocate",
    "claim_id",
    "place",
]
