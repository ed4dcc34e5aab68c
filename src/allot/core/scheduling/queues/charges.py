"""Charges of pods to their queues: what they request of nodes, and what their claims actually use.

A claim that has its devices is charged for these: a whole device counts as one, a partition as the part of the shared counters
that it draws, a share as the part of the device's capacity that it consumes. One that waits is charged for the least that it could
get: the cheapest of its alternatives, one device for `All`. Only resources that some queue counts are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import msgspec

from allot.core.allocation import AllocationError, Inventory
from allot.core.allocation.accounting import consumed_counters
from allot.core.allocation.devices import DeviceEntry, DeviceID
from allot.core.allocation.inventory import PLANS_MAX
from allot.core.allocation.plan import ClaimPlan, Leaf
from allot.core.model import resource_v1 as api
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.queues.amounts import CPU, MEMORY, ONE
from allot.core.scheduling.queues.limits import GPU

# A resource of a queue that counts the devices of a class, or what they have of a capacity: Volcano's names.
DEVICE_CLASS = "deviceclass/"
_CAPACITY = ".deviceclass/"
_MIG = "/mig-"
# Most devices are taken so, and need no arithmetic.
_WHOLE = Fraction(1)


class GpuNames(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as `gpu`: extended resources by name, device classes by what their names contain."""

    extended: frozenset[str] = frozenset(("nvidia.com/gpu", "amd.com/gpu"))
    class_contains: str = "gpu"


class Charges:
    """The rules of charging. resources: what the queues count."""

    def __init__(self, inventory: Inventory, gpu_names: GpuNames | None = None) -> None:
        self._inventory = inventory
        self._gpu = gpu_names if gpu_names is not None else GpuNames()
        self._resources: frozenset[str] = frozenset()
        self._of_class: dict[str, tuple[str, ...]] = {}
        self._of_extended: dict[str, tuple[tuple[str, int], ...]] = {}
        self._of_capacities: dict[str, tuple[tuple[str, str], ...]] = {}
        # What equal claims that wait are charged for, with the plan that they have in common.
        self._of_plan: dict[int, tuple[ClaimPlan, dict[str, int]]] = {}

    def devices_changed(self) -> None:
        """What a claim that waits could get at least may be different now."""
        self._of_plan.clear()

    def count(self, resources: Sequence[str]) -> None:
        """From now on these are counted."""
        if self._resources != frozenset(resources):
            self._resources = frozenset(resources)
            self._of_class.clear()
            self._of_extended.clear()
            self._of_capacities.clear()
            self._of_plan.clear()

    # --- pods ---

    def of_requests(self, profile: Profile) -> dict[str, int]:
        """What a pod asks of its node."""
        found: dict[str, int] = {}
        if CPU in self._resources:
            found[CPU] = profile.cpu * ONE
        if MEMORY in self._resources:
            found[MEMORY] = profile.memory * ONE
        for name, amount in profile.scalars.items():
            for resource, weight in self.extended_keys(name):
                found[resource] = found.get(resource, 0) + amount * weight * ONE
        return found

    def extended_keys(self, name: str) -> tuple[tuple[str, int], ...]:
        """Under which resources of queues an extended resource counts, and for how much."""
        known = self._of_extended.get(name)
        if known is None:
            found = [(name, 1)] if name in self._resources else []
            if GPU in self._resources:
                if name in self._gpu.extended:
                    found.append((GPU, 1))
                elif _MIG in name:
                    slices = name.partition(_MIG)[2].partition("g.")[0]
                    found += [(GPU, int(slices))] if slices.isdigit() else []
            known = self._of_extended[name] = tuple(found)
        return known

    # --- claims ---

    def class_keys(self, name: str) -> tuple[str, ...]:
        """Under which resources of queues the devices of a class count."""
        known = self._of_class.get(name)
        if known is None:
            found = [f"{DEVICE_CLASS}{name}"] if f"{DEVICE_CLASS}{name}" in self._resources else []
            if GPU in self._resources and self._gpu.class_contains in name.lower():
                found.append(GPU)
            known = self._of_class[name] = tuple(found)
        return known

    def of_claim(self, spec: api.ResourceClaimSpec, allocation: api.AllocationResult | None) -> dict[str, int]:
        """What a claim takes, or would take at least."""
        if allocation is not None:
            return self._allocated(spec, allocation) if self._is_counted(spec) else {}
        plan = self._inventory.plan(spec)
        known = self._of_plan.get(id(plan))
        if known is None:
            if len(self._of_plan) >= PLANS_MAX:
                self._of_plan.clear()
            known = self._of_plan[id(plan)] = (plan, self._pending(plan) if self._is_counted(spec) else {})
        return known[1]

    def _is_counted(self, spec: api.ResourceClaimSpec) -> bool:
        return any(self.counts(name) for name in _classes(spec))

    def counts(self, class_name: str) -> bool:
        """Whether devices of a class make a difference to any queue."""
        return bool(self.class_keys(class_name) or self.capacity_keys(class_name))

    def capacity_keys(self, class_name: str) -> tuple[tuple[str, str], ...]:
        """Resources of queues that count a capacity of the devices of a class, each with the name of the capacity."""
        known = self._of_capacities.get(class_name)
        if known is None:
            split = ((name, *name.partition(_CAPACITY)) for name in sorted(self._resources))
            known = self._of_capacities[class_name] = tuple(
                (name, dimension) for name, dimension, separator, of in split if separator and of == class_name
            )
        return known

    def _allocated(self, spec: api.ResourceClaimSpec, allocation: api.AllocationResult) -> dict[str, int]:
        classes = dict(_requests(spec))
        found: dict[str, int] = {}
        for result in allocation.devices.results:
            name = classes.get(result.request)
            if name is None or result.admin_access:
                continue
            entries = self._inventory.devices_named(DeviceID(result.driver, result.pool, result.device))
            entry = entries[0] if entries else None
            consumed = {key: amount.nano for key, amount in result.consumed_capacity.items()}
            self._add(found, name, self._portion(entry, consumed) if entry is not None else _WHOLE, consumed, entry)
        return found

    def _pending(self, plan: ClaimPlan) -> dict[str, int]:
        found: dict[str, int] = {}
        for request in plan.requests:
            cheapest = min(
                (self._least(leaf) for leaf in request.leaves), key=lambda parts: sum(parts.values()), default={}
            )
            for resource, amount in cheapest.items():
                found[resource] = found.get(resource, 0) + amount
        return found

    def _least(self, leaf: Leaf) -> dict[str, int]:
        if leaf.admin_access:
            return {}
        name = leaf.request.device_class_name
        wanted = leaf.request.capacity.requests if leaf.request.capacity is not None else {}
        entry = self._any(leaf)
        consumed = {key: amount.nano for key, amount in wanted.items()}
        portion = _WHOLE
        if entry is not None:
            if entry.shareable and not consumed:
                consumed = {key: _default(capacity) for key, capacity in entry.capacity.items()}
            portion = self._portion(entry, consumed if entry.shareable else {})
        found: dict[str, int] = {}
        for _ in range(1 if leaf.all_devices else leaf.count or 1):
            self._add(found, name, portion, consumed, entry)
        return found

    def _any(self, leaf: Leaf) -> DeviceEntry | None:
        """Some device that the request could use: its partition or capacity stands for all."""
        if leaf.signature is None:
            return None
        try:
            return next((entry for entry, _ in self._inventory.judged(leaf.signature)), None)
        except AllocationError:
            return None

    def _add(
        self,
        found: dict[str, int],
        name: str,
        portion: Fraction,
        consumed: Mapping[str, int],
        entry: DeviceEntry | None,
    ) -> None:
        for resource in self.class_keys(name):
            found[resource] = found.get(resource, 0) + (ONE if portion is _WHOLE else int(portion * ONE))
        for resource, dimension in self.capacity_keys(name):
            amount = consumed.get(dimension)
            if amount is None and entry is not None and dimension in entry.capacity:
                amount = entry.capacity[dimension].value.nano
            found[resource] = found.get(resource, 0) + (amount or 0)

    def _portion(self, entry: DeviceEntry, consumed: Mapping[str, int]) -> Fraction:
        """Which part of a device is taken: of its capacity if it is shared, of the shared counters if it is a partition."""
        if entry.shareable and consumed:
            parts = [
                Fraction(amount, entry.capacity[name].value.nano)
                for name, amount in consumed.items()
                if name in entry.capacity and entry.capacity[name].value.nano > 0
            ]
            return max(parts, default=Fraction(1))
        if not entry.device.consumes_counters:
            return _WHOLE
        shared = self._inventory.shared_counters(entry)
        drawn = consumed_counters(entry.device).items()
        return max((Fraction(amount, shared[key]) for key, amount in drawn if shared.get(key)), default=Fraction(1))

    # --- what there is ---

    def of_device(self, entry: DeviceEntry, class_name: str) -> dict[str, int]:
        """What a device adds to the total of a class."""
        found: dict[str, int] = {}
        self._add(
            found,
            class_name,
            _WHOLE if not entry.device.consumes_counters else self._portion(entry, {}),
            {},
            entry,
        )
        return found


def _default(capacity: api.DeviceCapacity) -> int:
    policy = capacity.request_policy
    return policy.default.nano if policy is not None and policy.default is not None else capacity.value.nano


def _classes(spec: api.ResourceClaimSpec) -> Iterator[str]:
    for _, name in _requests(spec):
        yield name


def _requests(spec: api.ResourceClaimSpec) -> Iterator[tuple[str, str]]:
    """The name of each request or alternative as results have it, with its class."""
    for request in spec.devices.requests:
        if request.exactly is not None:
            yield request.name, request.exactly.device_class_name
        for sub in request.first_available:
            yield f"{request.name}/{sub.name}", sub.device_class_name
