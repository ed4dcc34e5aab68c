"""Why claims do not fit on a node: computed after the search has failed, so that success costs nothing.

Each request is examined alone first (its obstacle for each device). A request whose own devices would be enough
conflicts with others: they compete for the same devices, or a constraint separates the free ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from allot.core.allocation import capacity as capacities
from allot.core.allocation.constraints import AttributeReader, Values
from allot.core.allocation.counters import PoolCounters, admits
from allot.core.allocation.devices import ClaimID, DeviceEntry
from allot.core.allocation.errors import AllocationError
from allot.core.allocation.inventory import Inventory
from allot.core.allocation.plan import ClaimPlan, Leaf
from allot.core.allocation.pools import OPTIONAL_NODE_OPERATIONS, NodeView, PoolView, device_on_node
from allot.core.allocation.signature import REJECTED, USABLE, Signature
from allot.core.cel.explaining.answer import Explanation
from allot.core.cel.selector import EvaluationError
from allot.core.explain import DeviceReason, Obstacle, RequestReason
from allot.core.model.resource_v1 import DeviceTaint
from allot.core.quantity import Quantity

_VALUES_SHOWN_MAX = 4
_LISTS = "DRAListTypeAttributes"
# For devices whose pool has used more of a counter than there is.
OVERCOMMITTED = "cannot be used while counter set"
FRACTIONS = "DRAFractionalCapacityRange"
# A whole number, in nano units.
_WHOLE = 10**9


def explain(
    inventory: Inventory,
    view: NodeView,
    claims: Sequence[ClaimID],
    plans: Sequence[ClaimPlan],
    counts: Mapping[Leaf, int],
) -> tuple[RequestReason, ...]:
    """A reason for each request that cannot be met; for requests that could each be met alone, why not together."""
    reader = AttributeReader(inventory.features)
    surveys: dict[Signature, Survey] = {}
    reports = []
    for claim, plan in zip(claims, plans, strict=True):
        for request in plan.requests:
            for leaf in request.leaves:
                signature = leaf.signature
                assert signature is not None
                if signature not in surveys:
                    surveys[signature] = Survey(inventory, view, signature)
                reports.append((leaf, plan, _Report(surveys[signature], claim, leaf, counts[leaf])))
    alone = [report for leaf, _, report in reports if len(report.free) < max(counts[leaf], 1)]
    chosen = []
    if alone:
        chosen = [report.reason("") for report in alone]
    else:
        for leaf, plan, report in reports:
            together = _why_not_together(leaf, plan, report, reader) or _competition(report, reports)
            if together:
                chosen.append(report.reason(together))
        if not chosen:
            chosen = [report.reason("not together with the other requests") for _, _, report in reports]
    return tuple(chosen)


class _Report:
    """One leaf and what was found about the devices for it."""

    def __init__(self, survey: Survey, claim: ClaimID, leaf: Leaf, needed: int) -> None:
        self.survey = survey
        self.claim = claim
        self.leaf = leaf
        self.needed = needed
        self.free = survey.free

    def reason(self, together: str) -> RequestReason:
        """The report as data."""
        survey = self.survey
        return RequestReason(
            claim=str(self.claim),
            request=self.leaf.full_name,
            node=survey.view.node.metadata.name,
            device_class=survey.signature.device_class.metadata.name,
            needed=self.needed,
            devices=survey.in_class,
            free=len(survey.free),
            together=together,
            in_the_way=tuple(survey.in_the_way),
        )


class _Rejection(NamedTuple):
    """Why a selector rejects a set of devices that look the same to it."""

    obstacle: Obstacle
    text: str
    expression: str = ""
    actual: str = ""
    needed: str = ""


class Rejections:
    """What the selectors of a signature say about devices: evaluated once for all that look the same to them, across nodes."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._by_digest: dict[Hashable, _Rejection | None] = {}

    def of(self, entry: DeviceEntry) -> _Rejection | None:
        """Why they reject a device; None if they accept it."""
        seen = self._signature.digest(entry)
        if seen is None:
            return self._find(entry)
        try:
            return self._by_digest[seen]
        except KeyError:
            found = self._by_digest[seen] = self._find(entry)
            return found

    def _find(self, entry: DeviceEntry) -> _Rejection | None:
        try:
            rule = self._signature.failing_rule(entry)
        except EvaluationError as error:
            return _Rejection(Obstacle.SELECTOR_ERROR, f"fail a selector with an error: {error}")
        if rule is None:
            return None
        if rule.compiled is None:
            return _Rejection(Obstacle.SELECTOR_ERROR, f"fail a selector that does not compile: {rule.compile_error}")
        why = rule.compiled.explain(entry.view)
        obstacle = Obstacle.SELECTOR if rule.class_name is None else Obstacle.NOT_IN_CLASS
        return _Rejection(obstacle, _group_phrase(why), why.expression, why.actual, why.expected)


class Survey:
    """What stands between requests of one signature and each device that the node can see.

    rejections: those of the signature, cached across nodes.
    """

    def __init__(
        self, inventory: Inventory, view: NodeView, signature: Signature, rejections: Rejections | None = None
    ) -> None:
        self.inventory = inventory
        self.view = view
        self.signature = signature
        self.in_class = 0
        self.free: list[DeviceEntry] = []
        self.in_the_way: list[DeviceReason] = []
        self._rejections = rejections if rejections is not None else Rejections(signature)
        for pool in view.pools:
            self._look_at(pool)

    def _look_at(self, pool: PoolView) -> None:
        if not pool.complete:
            text = f"are in pool {pool.id}, which is incomplete: its driver has not published all slices"
            self._pool_in_the_way(pool, Obstacle.POOL_INCOMPLETE, text)
            return
        if pool.invalid:
            text = f"are in pool {pool.id}, which is invalid: {pool.invalid}"
            self._pool_in_the_way(pool, Obstacle.POOL_INVALID, text)
            return
        for slice_ in pool.slices:
            verdicts = slice_.judge(self.signature) or [REJECTED] * len(slice_.devices)
            for entry, verdict in zip(slice_.devices, verdicts, strict=True):
                # Usable devices need no check for permanent reasons.
                reason = (None if verdict == USABLE else self._ever(entry)) or self._now(entry, pool)
                if reason is None:
                    self.in_class += 1
                    self.free.append(entry)
                else:
                    self.in_class += reason.obstacle not in (Obstacle.NOT_IN_CLASS, Obstacle.NOT_ON_NODE)
                    self.in_the_way.append(reason)

    def _pool_in_the_way(self, pool: PoolView, obstacle: Obstacle, text: str) -> None:
        for entry in self.inventory.published(pool.id, self.view.node):
            if self._selector(entry) is None:
                self.in_class += 1
                self.in_the_way.append(DeviceReason(device=str(entry.id), obstacle=obstacle, text=text))

    def _ever(self, entry: DeviceEntry) -> DeviceReason | None:
        """What keeps the signature from a device, regardless of its holder."""
        return self._selector(entry) or self._node(entry) or self._capacity_ever(entry) or self._taint(entry)

    def _now(self, entry: DeviceEntry, pool: PoolView) -> DeviceReason | None:
        """What keeps the signature from a device that it could use."""
        return (
            self._node(entry)
            or self._in_use(entry)
            or self._capacity_now(entry)
            or self._counters(entry, pool.counters)
        )

    def _selector(self, entry: DeviceEntry) -> DeviceReason | None:
        if entry.device.binding_conditions and not self.inventory.features.device_binding_and_status:
            text = "have binding conditions, but feature gate DRADeviceBindingConditions is disabled"
            return DeviceReason(device=str(entry.id), obstacle=Obstacle.FEATURE, text=text)
        found = self._rejections.of(entry)
        if found is None:
            return None
        return DeviceReason(
            device=str(entry.id),
            obstacle=found.obstacle,
            text=found.text,
            expression=found.expression,
            actual=found.actual,
            needed=found.needed,
        )

    def _node(self, entry: DeviceEntry) -> DeviceReason | None:
        spec = entry.slice.spec
        if spec.per_device_node_selection and not device_on_node(entry, self.view.node):
            return DeviceReason(
                device=str(entry.id), obstacle=Obstacle.NOT_ON_NODE, text="are not available on this node"
            )
        if spec.skip_node_operations:
            declared = OPTIONAL_NODE_OPERATIONS in self.view.node.status.declared_features
            if not self.inventory.features.optional_node_operations or not declared:
                text = f"need {OPTIONAL_NODE_OPERATIONS}, which this node does not declare"
                return DeviceReason(device=str(entry.id), obstacle=Obstacle.FEATURE, text=text)
        return None

    def _capacity_ever(self, entry: DeviceEntry) -> DeviceReason | None:
        if not self.inventory.features.consumable_capacity:
            return None
        requested = self.signature.requested
        for name in requested:
            if name not in entry.capacity:
                return DeviceReason(
                    device=str(entry.id),
                    obstacle=Obstacle.CAPACITY,
                    text=f"have no capacity {name}",
                    needed=str(requested[name]),
                )
        try:
            taken = self.signature.consumption(entry)
        except capacities.CapacityError as error:
            return DeviceReason(
                device=str(entry.id), obstacle=Obstacle.CAPACITY, text=f"fail a capacity check: {error}"
            )
        if taken is None:
            return self._policy(entry)
        return self._short_of(entry, self.signature.requested, taken, {}, (), fractional=self._fractional)

    @property
    def _fractional(self) -> bool:
        return self.inventory.features.fractional_capacity_range

    def _policy(self, entry: DeviceEntry) -> DeviceReason:
        """An amount that the device's request policy does not allow."""
        found = capacities.not_allowed(self.signature.requested, entry.device.capacity, self._fractional)
        asked = ", ".join(f"{name} {amount}" for name, amount in sorted(self.signature.requested.items()))
        id_ = str(entry.id)
        if found is None:
            # Not requested: the default violates its own policy.
            text = f"do not allow {asked} by their request policy"
            return DeviceReason(device=id_, obstacle=Obstacle.CAPACITY, text=text, needed=asked)
        return DeviceReason(
            device=id_,
            obstacle=Obstacle.CAPACITY,
            text=f"allow {found.name} {found.allowed} per claim, not {found.asked}",
            actual=str(found.nearest),
            needed=str(found.asked),
        )

    def _capacity_now(self, entry: DeviceEntry) -> DeviceReason | None:
        if not self.inventory.features.consumable_capacity or not entry.state.consumed:
            return None
        taken = self.signature.consumption(entry) or {}
        claims = tuple(sorted({str(share.claim) for share in entry.state.shares}))
        return self._short_of(
            entry, self.signature.requested, taken, entry.state.consumed, claims, fractional=self._fractional
        )

    @staticmethod
    def _short_of(
        entry: DeviceEntry,
        requested: Mapping[str, Quantity],
        taken: Mapping[str, Quantity],
        consumed: Mapping[str, int],
        claims: tuple[str, ...],
        *,
        fractional: bool,
    ) -> DeviceReason | None:
        for name, amount in taken.items():
            value = entry.capacity[name].value
            left = value.nano - consumed.get(name, 0)
            if amount.nano > left:
                actual = str(Quantity.from_nano(left, value.format))
                of = f" left of {value}" if consumed else ""
                asked = requested.get(name)
                # The request policy rounds an amount that is none of its values.
                rounded = asked is not None and asked.nano < amount.nano
                why = f" ({asked} is rounded up to it)" if rounded else " (its default)" if asked is None else ""
                if rounded and asked is not None and asked.nano % _WHOLE and not fractional:
                    why = f" ({asked} is rounded up to it without feature gate {FRACTIONS})"
                return DeviceReason(
                    device=str(entry.id),
                    obstacle=Obstacle.CAPACITY,
                    text=f"have {name} {actual}{of}, need {amount}{why if consumed else ''}",
                    actual=actual,
                    needed=str(asked if rounded else amount),
                    claims=claims,
                )
        return None

    def _taint(self, entry: DeviceEntry) -> DeviceReason | None:
        features = self.inventory.features
        if entry.device.consumes_counters and not features.partitionable_devices:
            text = "draw on shared counters, but feature gate DRAPartitionableDevices is disabled"
            return DeviceReason(device=str(entry.id), obstacle=Obstacle.FEATURE, text=text)
        if not features.device_taints:
            return None
        taints = self.signature.taints_in_the_way(entry)
        if not taints:
            return None
        shown = ", ".join(_taint_text(taint) for taint in taints)
        return DeviceReason(
            device=str(entry.id),
            obstacle=Obstacle.TAINT,
            text=f"have taint {shown} that is not tolerated",
            actual=shown,
        )

    def _in_use(self, entry: DeviceEntry) -> DeviceReason | None:
        if self.signature.admin_access or not entry.state.claims:
            return None
        claims = tuple(sorted({str(claim) for claim in entry.state.claims}))
        return DeviceReason(device=str(entry.id), obstacle=Obstacle.IN_USE, text="are in use", claims=claims)

    def _counters(self, entry: DeviceEntry, counters: PoolCounters | None) -> DeviceReason | None:
        if counters is None or not entry.device.consumes_counters or (entry.shareable and entry.state.shares):
            return None
        holders = tuple(
            sorted(
                {
                    str(claim)
                    for other in counters.devices
                    if other.state.allocated and _same_counter_set(entry, other)
                    for claim in (*other.state.claims, *(share.claim for share in other.state.shares))
                }
            )
        )
        if self.inventory.features.compatibility_groups:
            for consumed in entry.device.consumes_counters:
                if not admits(counters.groups(consumed.counter_set), frozenset(consumed.compatibility_groups)):
                    groups = ", ".join(consumed.compatibility_groups)
                    text = (
                        f"are of compatibility group {groups}, which does not go with what is in use of counter set "
                        f"{consumed.counter_set}"
                    )
                    return DeviceReason(
                        device=str(entry.id), obstacle=Obstacle.COMPATIBILITY_GROUP, text=text, claims=holders
                    )
        shortage = counters.shortage(entry)
        if shortage is None:
            return None
        (set_name, counter), needed, available = shortage
        published = counters.sets[set_name].counters[counter].value
        if available < 0:
            return _overcommitted(entry, counters, set_name, counter, published, available)
        actual = str(Quantity.from_nano(available, published.format))
        wanted = str(Quantity.from_nano(needed, published.format))
        return DeviceReason(
            device=str(entry.id),
            obstacle=Obstacle.COUNTER,
            text=f"need {wanted} of counter {set_name}/{counter}, and {actual} of {published} are free",
            actual=actual,
            needed=wanted,
            claims=holders,
        )


def _overcommitted(
    entry: DeviceEntry, counters: PoolCounters, set_name: str, counter: str, published: Quantity, available: int
) -> DeviceReason:
    """More of a counter is in use than its set now has: upstream then allocates no device of the pool that draws on counters."""
    used = Quantity.from_nano(published.nano - available, published.format)
    holders = {
        str(claim)
        for other in counters.devices
        if other.state.allocated and any(each.counter_set == set_name for each in other.device.consumes_counters)
        for claim in (*other.state.claims, *(share.claim for share in other.state.shares))
    }
    return DeviceReason(
        device=str(entry.id),
        obstacle=Obstacle.COUNTER,
        text=f"{OVERCOMMITTED} {set_name} is overcommitted: {used} of {published} {counter} are in use",
        actual=str(Quantity.from_nano(available, published.format)),
        needed="0",
        claims=tuple(sorted(holders)),
    )


def _same_counter_set(one: DeviceEntry, other: DeviceEntry) -> bool:
    return bool(
        {consumed.counter_set for consumed in one.device.consumes_counters}
        & {consumed.counter_set for consumed in other.device.consumes_counters}
    )


def _group_phrase(why: Explanation) -> str:
    """What devices that fail for the same reason have in common; follows their number in the text."""
    sentence = why.sentence()
    if why.alternatives:
        return f"fail every alternative of {why.expression}: {sentence}"
    if why.operator == "has":
        return f"lack {sentence.removesuffix(' is not published')}"
    is_part = f"{why.subject} is "
    if why.operator and why.subject and sentence.startswith(is_part):
        return f"have {why.subject} {sentence.removeprefix(is_part)}".replace(", need at least ", ", need ")
    return f"do not satisfy {why.expression}"


def _taint_text(taint: DeviceTaint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _why_not_together(leaf: Leaf, plan: ClaimPlan, report: _Report, reader: AttributeReader) -> str:
    for same, different in plan.contradictions:
        if same in leaf.constraints and different in leaf.constraints:
            attribute = plan.constraints[same].attribute
            return f"the claim needs the same and different values of {attribute} at once, which contradict each other"
    for index in leaf.constraints:
        constraint = plan.constraints[index]
        values: dict[str, int] = {}
        missing = 0
        for entry in report.free:
            try:
                found = reader.read(entry, constraint.attribute, leaf)
            except AllocationError:
                found = None
            if found is None:
                missing += 1
                continue
            if found.opaque:
                return f"{constraint.attribute} is a list, and lists are compared only with feature gate {_LISTS} on"
            for text in _texts(found):
                values[text] = values.get(text, 0) + 1
        rule = "the same" if constraint.match else "different values of"
        shown = _shown(values)
        if not values:
            return f"none of them has attribute {constraint.attribute}, which must be {'equal' if constraint.match else 'different'}"
        without = f", {missing} have none" if missing else ""
        return f"the claim needs {rule} {constraint.attribute}, they have {shown}{without}"
    return ""


def _texts(values: Values) -> Iterable[str]:
    return sorted(str(value).lower() if kind == "bool" else str(value) for kind, value in values.values)


def _shown(values: Mapping[str, int]) -> str:
    ranked = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{text} ({count} devices)" if count > 1 else text for text, count in ranked[:_VALUES_SHOWN_MAX]]
    more = len(ranked) - _VALUES_SHOWN_MAX
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _competition(report: _Report, reports: Sequence[tuple[Leaf, ClaimPlan, _Report]]) -> str:
    if report.leaf.admin_access:
        return ""
    mine = set(report.free)
    rivals = [
        other for leaf, _, other in reports if not leaf.admin_access and (other is report or mine & set(other.free))
    ]
    if len(rivals) == 1:
        if any(entry.device.consumes_counters for entry in mine):
            return f"their counters do not allow {report.needed} of them at once"
        return ""
    devices = {entry for rival in rivals for entry in rival.free}
    needed = sum(rival.needed for rival in rivals)
    claims = len({rival.claim for rival in rivals})
    whose = f" of {claims} claims" if claims > 1 else ""
    what = "capacity" if any(entry.shareable for entry in devices) else "counters" if needed <= len(devices) else ""
    short = f", whose {what} is not enough for all" if what == "capacity" else ""
    short = ", whose counters are not enough for all" if what == "counters" and _counted(devices) else short
    return f"{len(rivals)} requests{whose} compete for {len(devices)} {_devices(len(devices))} and need {needed}{short}"


def _devices(count: int) -> str:
    return "device" if count == 1 else "devices"


def _counted(devices: Iterable[DeviceEntry]) -> bool:
    return any(entry.device.consumes_counters for entry in devices)
