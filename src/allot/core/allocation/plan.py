"""Preprocessed claims: what an attempt needs to know about them, computed once per distinct claim spec.

Everything that upstream refuses before it looks at devices is detected here; refusals are kept in place (`error` of the request or
the claim), because an attempt encounters them in order, between other things that can end it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from allot.core.allocation.features import Features
from allot.core.allocation.signature import Signature
from allot.core.model import resource_v1 as api
from allot.core.quantity import Quantity


class Leaf:
    """A request, or one alternative of it, for which devices are chosen."""

    __slots__ = (
        "admin_access",
        "all_devices",
        "constraints",
        "count",
        "derived",
        "device_class",
        "error",
        "full_name",
        "name",
        "parent",
        "request",
        "signature",
    )

    def __init__(self, name: str, parent: str | None, request: api.ExactDeviceRequest | api.DeviceSubRequest) -> None:
        self.name = name
        self.parent = parent
        self.full_name = name if parent is None else f"{parent}/{name}"
        self.request = request
        self.all_devices = request.allocation_mode == api.ALL
        self.count = request.count
        self.derived: Mapping[str, str] = {derived.name: derived.expression for derived in request.derived_attributes}
        # Positions of the claim's constraints that cover this leaf.
        self.constraints: tuple[int, ...] = ()
        self.device_class: api.DeviceClass | None = None
        self.signature: Signature | None = None
        # Why no attempt can get past this leaf: a message that follows "claim <name>".
        self.error: str | None = None
        # May use devices that are in use.
        self.admin_access = isinstance(request, api.ExactDeviceRequest) and bool(request.admin_access)


class RequestPlan:
    """A request with its alternatives; one leaf if it is not a prioritized list."""

    __slots__ = ("error", "leaves", "name", "prioritized")

    def __init__(self, name: str, leaves: tuple[Leaf, ...], prioritized: bool) -> None:
        self.name = name
        self.leaves = leaves
        self.prioritized = prioritized
        self.error: str | None = None


class ConstraintPlan(msgspec.Struct, frozen=True):
    """What covered devices must have in common (match) or not (distinct)."""

    attribute: str
    match: bool


class ClaimPlan:
    """A claim spec, digested. Shared by all claims with an equal spec."""

    __slots__ = ("constraint_error", "constraints", "contradictions", "matched", "plain", "requests", "spec")

    def __init__(self, spec: api.ResourceClaimSpec, requests: tuple[RequestPlan, ...]) -> None:
        self.spec = spec
        self.requests = requests
        self.constraints: tuple[ConstraintPlan, ...] = ()
        self.constraint_error: str | None = None
        # Positions of constraints that two devices cannot both satisfy: match and distinct of one attribute.
        self.contradictions: tuple[tuple[int, int], ...] = ()
        # The common cases, worth a shortcut: exact counts of devices without constraints; and equal requests whose
        # devices must all have the same value of one attribute (this one).
        self.plain = False
        self.matched: str | None = None


SignatureFor = Callable[
    [
        api.DeviceClass,
        tuple[api.DeviceSelector, ...],
        Mapping[str, Quantity],
        tuple[api.DeviceToleration, ...],
        bool,
    ],
    Signature,
]


def plan_claim(
    spec: api.ResourceClaimSpec,
    features: Features,
    classes: Mapping[str, api.DeviceClass],
    signature_for: SignatureFor,
) -> ClaimPlan:
    """Digest a claim spec."""
    plan = ClaimPlan(spec, tuple(_plan_request(r, features, classes, signature_for) for r in spec.devices.requests))
    constraints = []
    for index, constraint in enumerate(spec.devices.constraints):
        if constraint.match_attribute is not None:
            constraints.append(ConstraintPlan(constraint.match_attribute, match=True))
        elif constraint.distinct_attribute is not None:
            constraints.append(ConstraintPlan(constraint.distinct_attribute, match=False))
        else:
            plan.constraint_error = f", constraint #{index}: empty constraint (unsupported constraint type?)"
            break
    plan.constraints = tuple(constraints)
    for request in plan.requests:
        for leaf in request.leaves:
            leaf.constraints = tuple(
                index for index, c in enumerate(spec.devices.constraints[: len(constraints)]) if _covers(c, leaf)
            )
    plan.contradictions = tuple(
        (i, j)
        for i, one in enumerate(constraints)
        for j, other in enumerate(constraints)
        if one.match and not other.match and one.attribute == other.attribute
    )
    simple = plan.constraint_error is None and all(_is_simple(request) for request in plan.requests)
    plan.plain = simple and not plan.constraints
    if simple and len(constraints) == 1 and constraints[0].match:
        leaves = [request.leaves[0] for request in plan.requests]
        equal = bool(leaves) and all(leaf.signature is leaves[0].signature and leaf.constraints for leaf in leaves)
        if equal and not any(leaf.derived for leaf in leaves):
            plan.matched = constraints[0].attribute
    return plan


def _is_simple(request: RequestPlan) -> bool:
    """Whether a request asks just for a number of exclusive devices."""
    leaf = request.leaves[0]
    refused = request.error is not None or leaf.error is not None
    return not (refused or request.prioritized or leaf.all_devices or leaf.admin_access)


def _covers(constraint: api.DeviceConstraint, leaf: Leaf) -> bool:
    names = constraint.requests
    return not names or (leaf.parent or leaf.name) in names or leaf.full_name in names


def _plan_request(
    request: api.DeviceRequest,
    features: Features,
    classes: Mapping[str, api.DeviceClass],
    signature_for: SignatureFor,
) -> RequestPlan:
    prioritized = bool(request.first_available)
    if prioritized:
        leaves = tuple(Leaf(sub.name, request.name, sub) for sub in request.first_available)
    else:
        leaves = (Leaf(request.name, None, request.exactly or api.ExactDeviceRequest()),)
    plan = RequestPlan(request.name, leaves, prioritized)
    if prioritized and not features.prioritized_list:
        plan.error = f", request {request.name}: has subrequests, but the DRAPrioritizedList feature is disabled"
    elif not features.consumable_capacity:
        for leaf in leaves:
            if leaf.request.capacity is not None:
                what = "subrequest" if prioritized else "request"
                plan.error = (
                    f", {what} {leaf.name}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
                )
                break
    if plan.error is None:
        for leaf in leaves:
            _plan_leaf(leaf, features, classes, signature_for)
    return plan


def _plan_leaf(
    leaf: Leaf, features: Features, classes: Mapping[str, api.DeviceClass], signature_for: SignatureFor
) -> None:
    request = leaf.request
    where = f", request {leaf.name}"
    if request.derived_attributes and not features.derived_attributes:
        leaf.error = f"{where}: cannot handle request with derived attributes, the feature is disabled"
        return
    for index, selector in enumerate(request.selectors):
        if selector.cel is None:
            leaf.error = f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)"
            return
    admin_access = request.admin_access if isinstance(request, api.ExactDeviceRequest) else None
    if admin_access is not None and not features.admin_access:
        leaf.error = f"{where}: admin access is requested, but the feature is disabled"
        return
    name = request.device_class_name
    if not name:
        leaf.error = f"{where}: missing device class name (unsupported request type?)"
        return
    leaf.device_class = classes.get(name)
    if leaf.device_class is None:
        leaf.error = f'{where}: could not retrieve device class {name}: deviceclass.resource.k8s.io "{name}" not found'
        return
    if request.allocation_mode not in (api.EXACT_COUNT, api.ALL):
        leaf.error = f"{where}: unsupported count mode {request.allocation_mode}"
        return
    leaf.signature = signature_for(
        leaf.device_class,
        request.selectors,
        request.capacity.requests if request.capacity is not None else {},
        request.tolerations,
        bool(admin_access),
    )
