"""Limit ranges: defaults for containers' requests and limits, and bounds for them, for pods and for volume claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.json_objects import mapping
from allot.core.quantity import Quantity
from allot.core.quota.amounts import Amounts, parse_amounts
from allot.core.quota.pods import pod_limits, pod_requests

Object = Mapping[str, Any]

ANNOTATION = "kubernetes.io/limit-ranger"
# Above this, amounts are compared in whole units instead of thousandths, as upstream does to stay within 64 bits.
_MILLI_MAX = (2**63 - 1) // 1000


def _objects(value: Any) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _limits(limit_range: Object, kind: str) -> list[Object]:
    return [one for one in _objects(mapping(limit_range.get("spec")).get("limits")) if one.get("type") == kind]


# --- defaults ---


def with_default_limits(pod: dict[str, Any], limit_range: Object) -> dict[str, Any]:
    """The pod with what its containers do not say filled in, and an annotation that tells what was."""
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for limit in _limits(limit_range, "Container"):
        requests.update(mapping(limit.get("defaultRequest")))
        limits.update(mapping(limit.get("default")))
    if not requests and not limits:
        return pod
    told: list[str] = []
    spec = dict(mapping(pod.get("spec")))
    for kind, label in (("containers", "container"), ("initContainers", "init container")):
        items = spec.get(kind)
        if isinstance(items, list):
            spec[kind] = [
                _with_defaults(item, requests, limits, label, told) if isinstance(item, dict) else item
                for item in items
            ]
    if not told:
        return pod
    meta = dict(mapping(pod.get("metadata")))
    meta["annotations"] = {
        **mapping(meta.get("annotations")),
        ANNOTATION: "LimitRanger plugin set: " + "; ".join(told),
    }
    return {**pod, "metadata": meta, "spec": spec}


def _with_defaults(
    container: Object, requests: Mapping[str, Any], limits: Mapping[str, Any], label: str, told: list[str]
) -> dict[str, Any]:
    resources = dict(mapping(container.get("resources")))
    for field, word, defaults in (("requests", "request", requests), ("limits", "limit", limits)):
        given = mapping(resources.get(field))
        added = sorted(name for name in defaults if name not in given)
        if added:
            resources[field] = {**given, **{name: defaults[name] for name in added}}
            told.append(f"{', '.join(added)} {word} for {label} {container.get('name', '')}")
    return {**container, "resources": resources}


# --- bounds ---


def pod_limit_errors(pod: Object, limit_range: Object) -> list[str]:
    """Everything in which a pod breaks a limit range."""
    errors: list[str] = []
    spec = mapping(pod.get("spec"))
    for limit in _objects(mapping(limit_range.get("spec")).get("limits")):
        if limit.get("type") == "Container":
            for container in _objects(spec.get("containers")) + _objects(spec.get("initContainers")):
                resources = mapping(container.get("resources"))
                requests, limits = parse_amounts(resources.get("requests")), parse_amounts(resources.get("limits"))
                errors += _bound_errors(limit, requests, limits)
        elif limit.get("type") == "Pod":
            errors += _bound_errors(limit, pod_requests(pod, overhead=False), pod_limits(pod, overhead=False))
    return errors


def volume_claim_limit_errors(claim: Object, limit_range: Object) -> list[str]:
    """Everything in which a volume claim breaks a limit range; only requests are checked."""
    errors: list[str] = []
    requests = parse_amounts(mapping(mapping(claim.get("spec")).get("resources")).get("requests"))
    for limit in _limits(limit_range, "PersistentVolumeClaim"):
        for name, bound in sorted(parse_amounts(limit.get("min")).items()):
            errors += _minimum("PersistentVolumeClaim", name, bound, requests, {})
        for name, bound in sorted(parse_amounts(limit.get("max")).items()):
            told = f"maximum {name} usage per PersistentVolumeClaim is {bound}"
            if name not in requests:
                errors.append(f"{told}.  No request is specified")
            elif _is_above(requests[name], bound):
                errors.append(f"{told}, but request is {requests[name]}")
    return errors


def _bound_errors(limit: Object, requests: Amounts, limits: Amounts) -> list[str]:
    kind = str(limit.get("type"))
    errors: list[str] = []
    for name, bound in sorted(parse_amounts(limit.get("min")).items()):
        errors += _minimum(kind, name, bound, requests, limits)
    for name, bound in sorted(parse_amounts(limit.get("max")).items()):
        errors += _maximum(kind, name, bound, requests, limits)
    for name, bound in sorted(parse_amounts(limit.get("maxLimitRequestRatio")).items()):
        errors += _ratio(kind, name, bound, requests, limits)
    return errors


def _minimum(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> list[str]:
    told = f"minimum {name} usage per {kind} is {bound}"
    if name not in requests:
        return [f"{told}.  No request is specified"]
    if _is_above(bound, requests[name]):
        return [f"{told}, but request is {requests[name]}"]
    if name in limits and _is_above(bound, limits[name]):
        return [f"{told}, but limit is {limits[name]}"]
    return []


def _maximum(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> list[str]:
    told = f"maximum {name} usage per {kind} is {bound}"
    if name not in limits:
        return [f"{told}.  No limit is specified"]
    if _is_above(limits[name], bound):
        return [f"{told}, but limit is {limits[name]}"]
    if name in requests and _is_above(requests[name], bound):
        return [f"{told}, but request is {requests[name]}"]
    return []


def _is_above(one: Quantity, other: Quantity) -> bool:
    if one.value() <= _MILLI_MAX and other.value() <= _MILLI_MAX:
        return one.milli_value() > other.milli_value()
    return one.value() > other.value()


def _ratio(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> list[str]:
    told = f"{name} max limit to request ratio per {kind} is {bound}"
    request, limit = requests.get(name), limits.get(name)
    if request is None or not request.sign():
        return [f"{told}, but no request is specified or request is 0"]
    if limit is None or not limit.sign():
        return [f"{told}, but no limit is specified or limit is 0"]
    # Exact: limit/request > bound, without dividing.
    if limit.nano * 10**9 > bound.nano * request.nano:
        hundred_thousandths = (limit.nano * 10**7 // request.nano + 5) // 10
        return [f"{told}, but provided ratio is {hundred_thousandths // 10**6}.{hundred_thousandths % 10**6:06d}"]
    return []
