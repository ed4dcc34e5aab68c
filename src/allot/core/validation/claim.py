"""ResourceClaim and ResourceClaimTemplate: handwritten rules for the spec.

Knows requests, constraints and configuration of a claim, and that a spec is immutable. The status is in
`claim_status`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from allot.core.features import FeatureGates
from allot.core.model.resource_v1 import (
    ADMIN_ACCESS_LABEL,
    ALL,
    CEL_COST_MAX,
    CONFIG_MAX,
    CONSTRAINTS_MAX,
    EXACT_COUNT,
    FIRST_AVAILABLE_MAX,
    REQUESTS_MAX,
    DerivedAttribute,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from allot.core.validation.configuration import check_configuration
from allot.core.validation.expressions import (
    ExpressionRules,
    check_derived_attribute,
    check_selectors,
    expression_rules,
)
from allot.core.validation.fields import (
    Findings,
    GoValue,
    child,
    forbidden,
    go_json,
    index,
    invalid,
    not_supported,
    required,
)
from allot.core.validation.item_text import item_text
from allot.core.validation.lists import check_list, check_set
from allot.core.validation.names import MUST_NAME_REQUEST, check_fully_qualified_name, check_label, check_subdomain
from allot.core.validation.object_meta import (
    IMMUTABLE_TEXT,
    check_object_meta,
    check_object_meta_update,
    check_template_meta,
)
from allot.core.validation.rules_resource import ALLOCATION_MODES
from allot.core.validation.taints import check_toleration

_ONE_KIND = "exactly one of `exactly` or `firstAvailable` is required"
# Upstream's text, including its second half, which belongs to another case.
_ONE_ATTRIBUTE = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
_UNUSED_ATTRIBUTE = (
    "must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request"
)
_ALL_TOO_COMPLEX = "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit"

# Names of requests, each with the names of its subrequests.
RequestNames = Mapping[str, frozenset[str]]


class _ClaimRules(msgspec.Struct, frozen=True):
    """What the parts of one claim need to know about the whole."""

    expressions: ExpressionRules
    gates: FeatureGates
    names: RequestNames
    # Attributes used by constraints, keyed by the request or "request/subrequest" they are limited to; "" is all.
    constrained: Mapping[str, frozenset[str]]


def check_create(claim: ResourceClaim, gates: FeatureGates) -> Findings:
    """A new claim."""
    found = check_object_meta(claim.metadata, namespaced=True)
    return found + check_spec(claim.spec, "spec", gates)


def check_update(new: ResourceClaim, old: ResourceClaim) -> Findings:
    """A changed claim: only metadata may change."""
    found = check_object_meta(new.metadata, namespaced=True)
    found += check_object_meta_update(new.metadata, old.metadata)
    if new.spec != old.spec:
        text = GoValue(go_json(item_text(new.spec)))
        found.append(invalid("spec", text, IMMUTABLE_TEXT, origin="immutable", covered=True))
    return found


def check_template_create(template: ResourceClaimTemplate, gates: FeatureGates) -> Findings:
    """A new template."""
    found = check_object_meta(template.metadata, namespaced=True)
    found += check_template_meta(template.spec.metadata, "spec.metadata")
    return found + check_spec(template.spec.spec, "spec.spec", gates)


def check_template_update(new: ResourceClaimTemplate, old: ResourceClaimTemplate, gates: FeatureGates) -> Findings:
    """A changed template: checked like a new one, and only metadata may change."""
    found = check_template_create(new, gates)
    found += check_object_meta_update(new.metadata, old.metadata)
    if new.spec != old.spec:
        found.append(invalid("spec", GoValue(go_json(item_text(new.spec))), IMMUTABLE_TEXT))
    return found


def check_admin_access(requests: Sequence[DeviceRequest], namespace_labels: Mapping[str, str]) -> Findings:
    """Whether the namespace permits admin access; the path lacks `exactly` (and a template's `spec`) as upstream."""
    for position, request in enumerate(requests):
        if request.exactly is not None and request.exactly.admin_access:
            return admin_access_findings(f"spec.devices.requests[{position}].adminAccess", namespace_labels)
    return []


def admin_access_findings(path: str, namespace_labels: Mapping[str, str]) -> Findings:
    """No findings for a namespace labeled for admin access."""
    if namespace_labels.get(ADMIN_ACCESS_LABEL) == "true":
        return []
    detail = f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
    return [forbidden(path, detail)]


def request_names(claim: DeviceClaim) -> RequestNames:
    """What constraints, configuration and results may refer to."""
    return {request.name: frozenset(sub.name for sub in request.first_available) for request in claim.requests}


def check_request_reference(name: str, path: str, names: RequestNames) -> Findings:
    """A reference to a request or to one of its subrequests."""
    segments = name.split("/")
    if len(segments) > 2:
        return [invalid(path, name, MUST_NAME_REQUEST)]
    found = [finding for segment in segments for finding in check_label(segment, path)]
    known = segments[0] in names and (len(segments) == 1 or segments[1] in names[segments[0]])
    if not known:
        found.append(invalid(path, name, MUST_NAME_REQUEST))
    return found


def check_request_references(requests: Sequence[str], path: str, names: RequestNames) -> Findings:
    """A list of such references."""

    def check(name: str, where: str) -> Findings:
        return check_request_reference(name, where, names)

    return check_set(requests, path, check, lambda name: name, maximum=REQUESTS_MAX, covered=True)


def _constrained_attributes(constraints: Sequence[DeviceConstraint]) -> Mapping[str, frozenset[str]]:
    attributes: dict[str, set[str]] = {}
    for constraint in constraints:
        attribute = constraint.match_attribute
        if attribute is None:
            attribute = constraint.distinct_attribute
        if attribute is None:
            continue
        for request in constraint.requests or ("",):
            attributes.setdefault(request, set()).add(attribute)
    return {request: frozenset(names) for request, names in attributes.items()}


def check_spec(spec: ResourceClaimSpec, path: str, gates: FeatureGates) -> Findings:
    """A claim's spec, in a claim or a template."""
    claim = spec.devices
    where = child(path, "devices")
    rules = _ClaimRules(
        expression_rules(gates), gates, request_names(claim), _constrained_attributes(claim.constraints)
    )
    costs: list[int] = []

    def check_request(request: DeviceRequest, at: str) -> Findings:
        return _check_request(request, at, rules, costs)

    def check_constraint(constraint: DeviceConstraint, at: str) -> Findings:
        return _check_constraint(constraint, at, rules)

    def check_entry(entry: DeviceClaimConfiguration, at: str) -> Findings:
        found = check_request_references(entry.requests, child(at, "requests"), rules.names)
        return found + check_configuration(entry.opaque, at)

    requests_path = child(where, "requests")
    found = check_set(
        claim.requests, requests_path, check_request, lambda request: request.name, maximum=REQUESTS_MAX, covered=True
    )
    constraints_path = child(where, "constraints")
    found += check_list(
        claim.constraints, constraints_path, check_constraint, maximum=CONSTRAINTS_MAX, size_covered=True
    )
    found += check_list(claim.config, child(where, "config"), check_entry, maximum=CONFIG_MAX, size_covered=True)
    if sum(costs) > CEL_COST_MAX:
        found.append(forbidden(where, _ALL_TOO_COMPLEX))
    return found


def _check_request(request: DeviceRequest, path: str, rules: _ClaimRules, costs: list[int]) -> Findings:
    found = check_label(request.name, child(path, "name"))
    match request.exactly, request.first_available:
        case None, ():
            found.append(required(path, _ONE_KIND))
        case None, subrequests:

            def check_subrequest(sub: DeviceSubRequest, where: str) -> Findings:
                return _check_subrequest(sub, where, request.name, rules, costs)

            found += check_set(
                subrequests, child(path, "firstAvailable"), check_subrequest, lambda sub: sub.name,
                maximum=FIRST_AVAILABLE_MAX, covered=True,
            )  # fmt: skip
        case exactly, ():
            where = child(path, "exactly")
            found += _check_class_name(exactly.device_class_name, child(where, "deviceClassName"), covered=False)
            found += _check_common(exactly, where, request.name, rules, costs)
        case _:
            found.append(invalid(path, None, f"{_ONE_KIND}, but multiple fields are set"))
    return found


def _check_subrequest(sub: DeviceSubRequest, path: str, parent: str, rules: _ClaimRules, costs: list[int]) -> Findings:
    found = check_label(sub.name, child(path, "name"))
    found += _check_class_name(sub.device_class_name, child(path, "deviceClassName"), covered=True)
    return found + _check_common(sub, path, f"{parent}/{sub.name}", rules, costs)


def _check_class_name(name: str, path: str, *, covered: bool) -> Findings:
    if not name:
        return [required(path, covered=covered)]
    return check_subdomain(name, path, covered=covered)


def _check_common(
    request: ExactDeviceRequest | DeviceSubRequest, path: str, name: str, rules: _ClaimRules, costs: list[int]
) -> Findings:
    """What `exactly` and subrequests share; `name` is how constraints refer to it."""
    found = check_selectors(request.selectors, child(path, "selectors"), rules.expressions)

    def check_derived(attribute: DerivedAttribute, where: str) -> Findings:
        return _check_derived(attribute, where, name, rules, costs)

    attributes_path = child(path, "derivedAttributes")
    found += check_set(request.derived_attributes, attributes_path, check_derived, lambda attribute: attribute.name)
    found += _check_allocation_mode(request.allocation_mode, request.count, path)
    for position, toleration in enumerate(request.tolerations):
        found += check_toleration(toleration, index(child(path, "tolerations"), position))
    return found


def _check_allocation_mode(mode: str, count: int, path: str) -> Findings:
    where = child(path, "count")
    match mode:
        case m if m == ALL:
            detail = f"must not be specified when allocationMode is '{ALL}'"
            return [invalid(where, count, detail)] if count != 0 else []
        case m if m == EXACT_COUNT:
            return [] if count > 0 else [invalid(where, count, "must be greater than zero")]
        case _:
            return [not_supported(child(path, "allocationMode"), mode, ALLOCATION_MODES, covered=True)]


def _check_derived(
    attribute: DerivedAttribute, path: str, request: str, rules: _ClaimRules, costs: list[int]
) -> Findings:
    found: Findings = []
    # A declarative rule checks that both are set.
    if attribute.name and not _is_constrained(attribute.name, request, rules.constrained):
        found.append(invalid(child(path, "name"), GoValue(go_json(attribute.name)), _UNUSED_ATTRIBUTE))
    if attribute.expression:
        more, cost = check_derived_attribute(attribute.expression, child(path, "expression"), rules.expressions)
        found += more
        costs.append(cost)
    return found


def _is_constrained(attribute: str, request: str, constrained: Mapping[str, frozenset[str]]) -> bool:
    parent = request.partition("/")[0]
    return any(attribute in constrained.get(target, ()) for target in ("", request, parent))


def _check_constraint(constraint: DeviceConstraint, path: str, rules: _ClaimRules) -> Findings:
    found = check_request_references(constraint.requests, child(path, "requests"), rules.names)
    if constraint.match_attribute is not None:
        found += check_fully_qualified_name(constraint.match_attribute, child(path, "matchAttribute"))
    elif constraint.distinct_attribute is not None:
        found += check_fully_qualified_name(constraint.distinct_attribute, child(path, "distinctAttribute"))
    elif "DRAConsumableCapacity" in rules.gates:
        found.append(required(path, _ONE_ATTRIBUTE))
    else:
        found.append(required(child(path, "matchAttribute")))
    return found
