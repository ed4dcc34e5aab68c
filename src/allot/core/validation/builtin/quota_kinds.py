"""ResourceQuota and LimitRange.

Not covered: comparing a limit range's ratio with its bounds.
"""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.quantity import Quantity
from allot.core.validation.builtin.checks import amounts, duplicate_of, told
from allot.core.validation.builtin.pod_defaults import canonical_quantities
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import Object, items, members, present, text, texts
from allot.core.validation.fields import Findings, child, forbidden, index, invalid, key, required
from allot.core.validation.formats import label_key
from allot.core.validation.object_meta import IMMUTABLE_TEXT, NEGATIVE_TEXT
from allot.core.validation.pod_resources import container_resource_name, is_extended_resource, resource_name

_COUNTED = (
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
)
_COMPUTE = ("cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
_QUOTA_RESOURCES = frozenset(
    (
        *_COUNTED,
        *_COMPUTE,
        "ephemeral-storage",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.ephemeral-storage",
    )
)
_POD_SCOPES = ("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity")
_SCOPES = (*_POD_SCOPES, "BestEffort", "VolumeAttributesClass")
_EXISTS_ONLY = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity")
_EXISTS_TEXT = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def _is_quota_resource(name: str) -> bool:
    return name in _QUOTA_RESOURCES or name.startswith(("hugepages-", "requests.hugepages-"))


def _quota_defaults(quota: Object) -> None:
    canonical_quantities(present(quota, "spec").get("hard"))
    for name in ("hard", "used"):
        canonical_quantities(members(quota, "status").get(name))


def _check_amounts(hard: object, path: str) -> Findings:
    found: Findings = []
    for name, amount in amounts(hard).items():
        where = key(path, name)
        found += resource_name(name, where)
        if "/" not in name and not _is_quota_resource(name):
            found.append(invalid(where, name, "must be a standard resource for quota"))
        if amount.sign() < 0:
            found.append(invalid(where, amount, NEGATIVE_TEXT))
        if (name in _COUNTED or is_extended_resource(name)) and amount.milli_value() % 1000:
            found.append(invalid(where, amount, "must be an integer"))
    return found


def _fits(scope: str, resource: str) -> bool:
    if scope in _POD_SCOPES:
        return resource == "pods" or resource in _COMPUTE
    if scope == "BestEffort":
        return resource == "pods"
    if scope == "VolumeAttributesClass":
        return resource in ("persistentvolumeclaims", "requests.storage")
    return True


def _has_misfit(scopes: Iterable[str], resources: list[str]) -> bool:
    """Whether a scope does not apply to one of the resources."""
    limiting = [scope for scope in scopes if scope in _SCOPES]
    return any(not _fits(scope, name) for scope in limiting for name in resources)


def _check_quota(quota: Object) -> Findings:
    spec = members(quota, "spec")
    found = _check_amounts(spec.get("hard"), "spec.hard")
    hard = sorted(name for name in members(spec, "hard") if _is_quota_resource(name))
    scopes = texts(spec, "scopes")
    # Every error lists all scopes, so it is reported once rather than per scope and resource.
    if any(scope not in _SCOPES for scope in scopes):
        found.append(invalid("spec.scopes", scopes, "unsupported scope"))
    if _has_misfit(dict.fromkeys(scopes), hard):
        found.append(invalid("spec.scopes", scopes, "unsupported scope applied to resource"))
    found += [invalid("spec.scopes", scopes, "conflicting scopes") for pair in _CONFLICTS if pair <= set(scopes)]
    return found + _check_scope_selector(spec, hard)


def _check_scope_selector(spec: Object, hard: list[str]) -> Findings:
    path = "spec.scopeSelector.matchExpressions"
    found: Findings = []
    requirements = items(spec, "scopeSelector", "matchExpressions")
    for requirement in requirements:
        scope, operator, values = (
            text(requirement, "scopeName"),
            text(requirement, "operator"),
            texts(requirement, "values"),
        )
        if scope not in _SCOPES:
            found.append(invalid(child(path, "scopeName"), scope, "unsupported scope"))
        if scope in _EXISTS_ONLY and operator != "Exists":
            found.append(invalid(child(path, "operator"), operator, _EXISTS_TEXT))
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                found.append(required(child(path, "values"), detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                found.append(invalid(child(path, "values"), values, detail))
        else:
            found.append(invalid(child(path, "operator"), operator, "not a valid selector operator"))
    named = dict.fromkeys(text(requirement, "scopeName") for requirement in requirements)
    if _has_misfit(named, hard):
        shown = {"MatchExpressions": [
            {"ScopeName": text(r, "scopeName"), "Operator": text(r, "operator"), "Values": r.get("values")}
            for r in requirements
        ]}  # fmt: skip
        found.append(invalid(path, shown, "unsupported scope applied to resource"))
    scopes = spec.get("scopes")
    return found + [invalid(path, scopes, "conflicting scopes") for pair in _CONFLICTS if pair <= named.keys()]


def _check_quota_update(new: Object, old: Object, subresource: str) -> Findings:
    if subresource == "status":
        status = members(new, "status")
        return _check_amounts(status.get("hard"), "status.hard") + _check_amounts(status.get("used"), "status.used")
    scopes = texts(new, "spec", "scopes")
    same = set(scopes) == set(texts(old, "spec", "scopes"))
    return [] if same else [invalid("spec.scopes", scopes, IMMUTABLE_TEXT)]


RESOURCE_QUOTA = Rules(
    defaults=_quota_defaults,
    initial_status=lambda _: {},
    check=_check_quota,
    check_update=_check_quota_update,
)

# --- limit ranges ---

_LIMIT_SIDES = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def _limit_defaults(limits: Object) -> None:
    for limit in items(limits, "spec", "limits"):
        for side in _LIMIT_SIDES:
            canonical_quantities(limit.get(side))
        if text(limit, "type") == "Container":
            default = {**members(limit, "max"), **members(limit, "default")}
            request = {**members(limit, "min"), **default, **members(limit, "defaultRequest")}
            limit |= {"default": default} if default else {}
            limit |= {"defaultRequest": request} if request else {}


def _check_limits(limits: Object) -> Findings:
    found: Findings = []
    types = set()
    for position, limit in enumerate(items(limits, "spec", "limits")):
        where, type_ = index("spec.limits", position), text(limit, "type")
        messages = label_key(type_)
        found += told(child(where, "type"), type_, messages)
        if not messages and "/" not in type_ and type_ not in ("Pod", "Container", "PersistentVolumeClaim"):
            detail = "must be a standard limit type or fully qualified"
            found.append(invalid(child(where, "type"), type_, detail))
        if type_ in types:
            found.append(duplicate_of(child(where, "type"), type_))
        types.add(type_)
        found += _check_limit(limit, type_, where)
    return found


def _check_limit(limit: Object, type_: str, path: str) -> Findings:
    check_name = container_resource_name if type_ in ("Pod", "Container") else resource_name
    found: Findings = []
    for side in _LIMIT_SIDES:
        if type_ == "Pod" and side in ("default", "defaultRequest"):
            if members(limit, side):
                found.append(forbidden(child(path, side), "may not be specified when `type` is 'Pod'"))
            continue
        for name in members(limit, side):
            found += check_name(name, key(child(path, side), name))
    if type_ == "PersistentVolumeClaim" and not {"storage"} & (
        members(limit, "min").keys() | members(limit, "max").keys()
    ):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        found.append(required(child(path, "limits"), detail))
    return found + _check_order(limit, path)


# The first side may not exceed the second: both sides, the side reported, the value reported, and both names in messages.
_ORDER = (
    ("min", "max", "min", "min", "min value", "max value"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest", "min value", "default request value"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest", "default request value", "max value"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest", "default request value", "default limit value"),
    ("min", "default", "default", "min", "min value", "default value"),
    ("default", "max", "default", "max", "default value", "max value"),
)


def _check_order(limit: Object, path: str) -> Findings:
    sides = {side: amounts(limit.get(side)) for side in _LIMIT_SIDES}
    names = sorted({name for side in sides.values() for name in side})
    found: Findings = []
    for name in names:
        for low, high, reported, value, low_text, high_text in _ORDER:
            small, large = sides[low].get(name), sides[high].get(name)
            if small is not None and large is not None and small > large:
                detail = f"{low_text} {small} is greater than {high_text} {large}"
                found.append(invalid(key(child(path, reported), name), sides[value][name], detail))
        ratio = sides["maxLimitRequestRatio"].get(name)
        if ratio is not None and ratio < Quantity.from_int(1):
            where = key(child(path, "maxLimitRequestRatio"), name)
            found.append(invalid(where, ratio, f"ratio {ratio} is less than 1"))
    return found


LIMIT_RANGE = Rules(defaults=_limit_defaults, check=_check_limits)
