"""What a pod uses: the requests and limits of its containers taken together, and what of that a quota counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allot.core.cel.data.times import parse_timestamp
from allot.core.json_objects import mapping
from allot.core.quantity import Quantity
from allot.core.quota.amounts import Amounts, largest, parse_amounts, plus

Object = Mapping[str, Any]

ONE = Quantity.from_int(1)
REQUESTS_PREFIX = "requests."
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
_HUGE_PAGES = "hugepages-"
_POD_LEVEL = ("cpu", "memory")
_COMPUTE = ("cpu", "memory", "ephemeral-storage")

POD_RESOURCES = frozenset(
    ("count/pods", "pods", *_COMPUTE, *tuple(f"{kind}.{name}" for kind in ("requests", "limits") for name in _COMPUTE))
)
# If a quota counts one of these, every container has to say how much it wants.
_REQUIRED = frozenset(("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"))


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# --- requests and limits of the whole pod ---


def pod_requests(pod: Object, *, overhead: bool = True, resized: bool = False) -> Amounts:
    """The requests of all containers. resized: what a container has got counts too, if it is more."""
    total = _total(pod, "requests", _allocated(pod) if resized else {})
    spec = mapping(pod.get("spec"))
    return plus(total, parse_amounts(spec.get("overhead"))) if overhead else total


def pod_limits(pod: Object, *, overhead: bool = True) -> Amounts:
    """The limits of all containers; overhead is added to limits that exist."""
    total = _total(pod, "limits", {})
    more = parse_amounts(mapping(pod.get("spec")).get("overhead")) if overhead else {}
    return plus(total, {name: amount for name, amount in more.items() if name in total and total[name].sign()})


def _total(pod: Object, kind: str, got: Mapping[str, Amounts]) -> Amounts:
    """Containers and sidecars run together; other init containers run alone, with the sidecars before them."""
    spec = mapping(pod.get("spec"))
    total: Amounts = {}
    for container in _objects(spec.get("containers")):
        total = plus(total, _amounts(container, kind, got))
    sidecars: Amounts = {}
    initial: Amounts = {}
    for container in _objects(spec.get("initContainers")):
        amounts = _amounts(container, kind, got)
        if container.get("restartPolicy") == "Always":
            total = plus(total, amounts)
            sidecars = plus(sidecars, amounts)
            initial = largest(initial, sidecars)
        else:
            initial = largest(initial, plus(amounts, sidecars))
    total = largest(total, initial)
    for name, amount in parse_amounts(mapping(spec.get("resources")).get(kind)).items():
        if name in _POD_LEVEL or name.startswith(_HUGE_PAGES):
            total[name] = amount
    return total


def _amounts(container: Object, kind: str, got: Mapping[str, Amounts]) -> Amounts:
    amounts = parse_amounts(mapping(container.get("resources")).get(kind))
    return largest(amounts, got.get(str(container.get("name")), {})) if got else amounts


def _allocated(pod: Object) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {}
    status = mapping(pod.get("status"))
    for container in _objects(status.get("containerStatuses")) + _objects(status.get("initContainerStatuses")):
        running = parse_amounts(mapping(container.get("resources")).get("requests"))
        found[str(container.get("name"))] = largest(running, parse_amounts(container.get("allocatedResources")))
    return found


# --- what quota counts ---


def pod_usage(pod: Object, now: str) -> Amounts:
    """What a pod is charged with. Pods at the end of their life only count as objects."""
    usage: Amounts = {"count/pods": ONE}
    if not _is_alive(pod, now):
        return usage
    return plus(usage, _counted(pod_requests(pod, resized=True), pod_limits(pod)))


def _is_alive(pod: Object, now: str) -> bool:
    if mapping(pod.get("status")).get("phase") in ("Failed", "Succeeded"):
        return False
    meta = mapping(pod.get("metadata"))
    deleted, grace = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
    if not isinstance(deleted, str) or not isinstance(grace, int):
        return True
    ends = _seconds(deleted)
    present = _seconds(now)
    return ends is None or present is None or present <= ends + grace


def _seconds(timestamp: str) -> int | None:
    moment = parse_timestamp(timestamp)
    return None if moment is None else moment.nanoseconds // 10**9


def _counted(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Amounts:
    counted: Amounts = {"pods": ONE}
    for name in _COMPUTE:
        if name in requests:
            counted[name] = counted[REQUESTS_PREFIX + name] = requests[name]
        if name in limits:
            counted[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith(_HUGE_PAGES):
            counted[name] = counted[REQUESTS_PREFIX + name] = amount
        elif is_extended(name) or name.startswith(IMPLICIT_PREFIX):
            counted[REQUESTS_PREFIX + name] = amount
    return counted


def is_native(name: str) -> bool:
    """Whether Kubernetes itself defines a resource of this name."""
    return "/" not in name or "kubernetes.io/" in name


_QUALIFIED = re.compile(r"[^/]{1,253}/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def is_extended(name: str) -> bool:
    """Whether it is the name of an extended resource."""
    return not is_native(name) and not name.startswith(REQUESTS_PREFIX) and bool(_QUALIFIED.fullmatch(name))


def is_extended_quota_name(name: str) -> bool:
    """requests.<extended resource>, or the implicit name of a device class."""
    named = not is_native(name) or name.startswith(REQUESTS_PREFIX + IMPLICIT_PREFIX)
    return named and name.startswith(REQUESTS_PREFIX)


def matching_pod_names(names: Iterable[str]) -> list[str]:
    """The quota's names that pods are charged for."""
    prefixes = (_HUGE_PAGES, REQUESTS_PREFIX + _HUGE_PAGES)
    return [n for n in names if n in POD_RESOURCES or n.startswith(prefixes) or is_extended_quota_name(n)]


def missing_requests(pod: Object, names: Iterable[str]) -> str:
    """What containers fail to say although a quota needs it, as a message; empty if nothing is missing."""
    spec = mapping(pod.get("spec"))
    level = mapping(spec.get("resources"))
    if any(
        n in _POD_LEVEL or n.startswith(_HUGE_PAGES)
        for kind in ("requests", "limits")
        for n in mapping(level.get(kind))
    ):
        return ""
    required = _REQUIRED.intersection(names)
    missing: dict[str, set[str]] = {}
    for container in _objects(spec.get("containers")) + _objects(spec.get("initContainers")):
        resources = mapping(container.get("resources"))
        counted = _counted(parse_amounts(resources.get("requests")), parse_amounts(resources.get("limits")))
        for name in required.difference(counted):
            missing.setdefault(name, set()).add(str(container.get("name")))
    if not missing:
        return ""
    return "must specify " + "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))


# --- scopes ---


def scope_requirements(quota_spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """scopes and scopeSelector as one list of requirements."""
    scopes = quota_spec.get("scopes")
    found: list[Mapping[str, Any]] = [
        {"scopeName": scope, "operator": "Exists"} for scope in (scopes if isinstance(scopes, list) else ())
    ]
    return found + _objects(mapping(quota_spec.get("scopeSelector")).get("matchExpressions"))


def is_terminating(pod: Object) -> bool:
    """Whether a pod is meant to end: it has a deadline."""
    deadline = mapping(pod.get("spec")).get("activeDeadlineSeconds")
    return isinstance(deadline, int) and deadline >= 0


def pod_matches_scope(requirement: Mapping[str, Any], pod: Object) -> bool:
    """Whether a pod is in the scope of a requirement."""
    match requirement.get("scopeName"):
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "PriorityClass":
            return _matches_priority_class(requirement, pod)
        case "CrossNamespacePodAffinity":
            return _looks_into_other_namespaces(pod)
        case _:
            return False


def _is_best_effort(pod: Object) -> bool:
    said = mapping(pod.get("status")).get("qosClass")
    if said:
        return bool(said == "BestEffort")
    both = largest(pod_requests(pod, overhead=False), pod_limits(pod, overhead=False))
    return not any(name in both and both[name].sign() for name in _POD_LEVEL)


def _matches_priority_class(requirement: Mapping[str, Any], pod: Object) -> bool:
    name = mapping(pod.get("spec")).get("priorityClassName") or ""
    values: Sequence[Any] = requirement.get("values") or ()
    match requirement.get("operator"):
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
        case "In":
            return bool(name) and name in values
        case "NotIn":
            return name not in values
        case _:
            return False


def _looks_into_other_namespaces(pod: Object) -> bool:
    affinity = mapping(mapping(pod.get("spec")).get("affinity"))
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = mapping(affinity.get(kind))
        terms = _objects(rules.get("requiredDuringSchedulingIgnoredDuringExecution"))
        preferred = _objects(rules.get("preferredDuringSchedulingIgnoredDuringExecution"))
        terms += [mapping(weighted.get("podAffinityTerm")) for weighted in preferred]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False
