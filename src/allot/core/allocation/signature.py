"""Which devices a request could use at all, judged without regard to what is allocated.

A signature is what two requests must have in common to get the same verdict on every device: class, selectors,
capacity, tolerations. Requests from one template share one signature, and its verdicts are kept per slice until the slice
changes. Selectors are evaluated once per group of devices that agree on the fields that the expressions read.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from allot.core.allocation import capacity as capacities
from allot.core.allocation.attribute_digest import AttributeDigest
from allot.core.allocation.devices import ClaimID, DeviceEntry, DeviceID
from allot.core.allocation.features import Features
from allot.core.cel.selector import (
    CompiledSelector,
    EnvironmentOptions,
    EvaluationError,
    Projection,
    SelectorCompileError,
    compile_selector,
)
from allot.core.model.resource_v1 import DeviceClass, DeviceSelector, DeviceTaint, DeviceToleration
from allot.core.quantity import Quantity
from allot.core.selectors import blocking_taints


class SelectorFailure(NamedTuple):
    """Evaluating the device would end the attempt with an error."""

    message: str
    # Where the fault lies: in the class of this name, or in the claim's request.
    class_name: str | None = None
    # The device for whose capacity the request cannot be computed.
    capacity_of: DeviceID | None = None

    def sentence(self, claim: ClaimID, request: str, *, all_devices: bool) -> str:
        """Upstream's error text."""
        if self.class_name is not None:
            return f"class {self.class_name}: {self.message}"
        if self.capacity_of is not None:
            device = self.capacity_of.device if all_devices else self.capacity_of
            return f"claim {claim}, request {request}: checking capacity for device {device}: {self.message}"
        return f"claim {claim}: {self.message}"


# Verdicts. Only USABLE devices are candidates; BLOCKED ones count for "All" requests, which then fail.
REJECTED = 0
USABLE = 1
BLOCKED = 2
Verdict = int | SelectorFailure

_MISSING_KEY_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) "
    "or guarding the check with has() for optional fields"
)


class Rule(NamedTuple):
    """One selector: where it is defined, and its compiled form or why it has none."""

    class_name: str | None
    number: int
    compiled: CompiledSelector | None
    compile_error: str


class Failure(NamedTuple):
    """A selector that cannot be evaluated. Without a message, it does not even compile."""

    rule: Rule
    message: str

    def failure(self, entry: DeviceEntry) -> SelectorFailure:
        """The failure as reported for one device."""
        rule = self.rule
        if rule.compiled is None:
            return SelectorFailure(f"selector #{rule.number}: CEL compile error: {rule.compile_error}", rule.class_name)
        where = f"selector #{rule.number} on device {entry.id}"
        return SelectorFailure(f"{where}: CEL runtime error: {self.message}", rule.class_name)


class Signature:
    """Everything about a request that decides which devices it could use."""

    __slots__ = (
        "_by_digest",
        "_by_key",
        "_consumption",
        "_digest",
        "_features",
        "_projection",
        "admin_access",
        "device_class",
        "number",
        "requested",
        "rules",
        "tolerations",
    )

    def __init__(
        self,
        number: int,
        device_class: DeviceClass,
        selectors: tuple[DeviceSelector, ...],
        requested: Mapping[str, Quantity],
        tolerations: tuple[DeviceToleration, ...],
        admin_access: bool,
        features: Features,
    ) -> None:
        self.number = number
        self.device_class = device_class
        self.requested = requested
        self.tolerations = tolerations
        self.admin_access = admin_access
        self._features = features
        options = EnvironmentOptions(
            list_type_attributes=features.list_type_attributes,
            consumable_capacity=features.consumable_capacity,
            stored=True,
        )
        name = device_class.metadata.name
        self.rules = tuple(
            _compile(name, index, selector, options) for index, selector in enumerate(device_class.spec.selectors)
        ) + tuple(_compile(None, index, selector, options) for index, selector in enumerate(selectors))
        self._projection: Projection | None = None
        compiled = [rule.compiled for rule in self.rules if rule.compiled is not None]
        if compiled:
            self._projection = Projection.union(selector.projection for selector in compiled)
        self._digest = AttributeDigest.of(self._projection) if self._projection is not None else None
        self._by_key: dict[object, int | Failure] = {}
        self._by_digest: dict[Hashable, int | Failure] = {}
        self._consumption: dict[DeviceEntry, capacities.Consumption | None] = {}

    def forget(self, entry: DeviceEntry) -> None:
        """The device is no longer published."""
        self._consumption.pop(entry, None)

    def verdicts(self, entries: Sequence[DeviceEntry], *, are_simple: bool) -> list[Verdict]:
        """The `verdict` on each device of a slice. are_simple: only selectors tell them apart; if these read none of their
        values, one verdict applies to all."""
        if not entries or not are_simple or self.requested:
            return [self.verdict(entry) for entry in entries]
        if not self.rules or (self._digest is not None and self._digest.reads_nothing):
            answer = self._selected(entries[0])
            if isinstance(answer, int):
                return [answer] * len(entries)
        if self._digest is None:
            return [self._selected(entry) for entry in entries]
        # Runs for every device of a cluster, so it must be fast: a slice has one driver, and most answers are known.
        read, known = self._digest.reader(entries[0].id.driver), self._by_digest
        found = [known.get(read(entry)) for entry in entries]
        return [
            finding if isinstance(finding, int) else self._selected(entry)
            for entry, finding in zip(entries, found, strict=True)
        ]

    def verdict(self, entry: DeviceEntry) -> Verdict:
        """Whether requests of this signature could use the device."""
        features = self._features
        device = entry.device
        if device.binding_conditions and not features.device_binding_and_status:
            return REJECTED
        verdict = self._selected(entry)
        if verdict != USABLE:
            return verdict
        if features.consumable_capacity:
            if device.capacity and not self.requested and entry.plain_capacity:
                pass  # all of it, which always fits
            elif device.capacity:
                try:
                    taken = self.consumption(entry)
                except capacities.CapacityError as error:
                    return SelectorFailure(str(error), capacity_of=entry.id)
                if taken is None or not capacities.fits(taken, device.capacity):
                    return REJECTED
            elif self.requested:
                return REJECTED
        if device.consumes_counters and not features.partitionable_devices:
            return BLOCKED
        if entry.slice.spec.skip_node_operations and not features.optional_node_operations:
            return BLOCKED
        if features.device_taints and entry.taints and self.taints_in_the_way(entry):
            return BLOCKED
        return USABLE

    def consumption(self, entry: DeviceEntry) -> capacities.Consumption | None:
        """What a request of this signature takes of the device's capacity; None if it does not fit."""
        found = self._consumption.get(entry, _UNKNOWN)
        if found is _UNKNOWN:
            found = capacities.consumption(
                self.requested, entry.device.capacity, self._features.fractional_capacity_range
            )
            self._consumption[entry] = found
        return found

    def taints_in_the_way(self, entry: DeviceEntry) -> tuple[DeviceTaint, ...]:
        """Taints that keep requests of this signature from the device."""
        return blocking_taints(entry.taints, self.tolerations)

    def digest(self, entry: DeviceEntry) -> Hashable | None:
        """Devices with equal digests are the same to all selectors; None if only a closer look can tell."""
        return self._digest.key(entry) if self._digest is not None else None

    def _selected(self, entry: DeviceEntry) -> Verdict:
        if not self.rules:
            return USABLE
        seen = self.digest(entry)
        finding = self._by_digest.get(seen) if seen is not None else None
        if finding is None:
            finding = self._looked_up(entry)
            if seen is not None:
                self._by_digest[seen] = finding
        return finding if isinstance(finding, int) else finding.failure(entry)

    def _looked_up(self, entry: DeviceEntry) -> int | Failure:
        projection = self._projection
        if projection is None:
            return self._find(entry)
        try:
            key = projection.key(entry.view)
        except EvaluationError:
            return self._find(entry)
        finding = self._by_key.get(key)
        if finding is None:
            finding = self._by_key[key] = self._find(entry)
        return finding

    def _find(self, entry: DeviceEntry) -> int | Failure:
        """The selectors' verdict on the device, and on all that look the same to them."""
        for rule in self.rules:
            if rule.compiled is None:
                return Failure(rule, "")
            try:
                if not rule.compiled.matches(entry.view):
                    return REJECTED
            except EvaluationError as error:
                message = str(error)
                return Failure(rule, message + _MISSING_KEY_HINT if "no such key:" in message else message)
        return USABLE

    def failing_rule(self, entry: DeviceEntry) -> Rule | None:
        """The selector that rejects the device; None if all accept it."""
        return next(
            (rule for rule in self.rules if rule.compiled is None or not rule.compiled.matches(entry.view)), None
        )


_UNKNOWN: capacities.Consumption = {"\0unknown": Quantity.ZERO}


def _compile(class_name: str | None, index: int, selector: DeviceSelector, options: EnvironmentOptions) -> Rule:
    expression = selector.cel.expression if selector.cel is not None else ""
    try:
        return Rule(class_name, index, compile_selector(expression, options), "")
    except SelectorCompileError as error:
        return Rule(class_name, index, None, error.message)
