"""A quota's usage, counted from all objects of its namespace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.quota.amounts import Amounts, as_json, parse_amounts, plus
from allot.core.quota.charge import Quota, quota_of, total_usage
from allot.core.quota.claims import DeviceClasses
from allot.core.quota.usage import CLAIMS, PODS, SERVICES, VOLUME_CLAIMS, QuotaContext, matching_names

Object = Mapping[str, Any]
KindName = tuple[str, str]

_WITH_RESOURCES = (PODS, CLAIMS, SERVICES, VOLUME_CLAIMS)
_PART = 200
_ALIASES = ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")


def measured_kinds(hard: Mapping[str, Any], classes: DeviceClasses) -> tuple[KindName, ...]:
    """The kinds, as group and plural, whose objects count for something in a quota. Pods come with claims, because claims
    for extended resources are charged less if their pod has paid already."""
    found = {kind for kind in _WITH_RESOURCES if matching_names(kind, hard, classes)}
    for name in hard:
        if name.startswith("count/"):
            plural, _, group = name.removeprefix("count/").partition(".")
            found.add((group, plural))
        elif name in _ALIASES:
            found.add(("", name))
    if CLAIMS in found:
        found.add(PODS)
    return tuple(sorted(found))


def measure(quota: Quota, objects: Mapping[KindName, Sequence[Object]], classes: DeviceClasses, now: str) -> Amounts:
    """The usage of a quota whose limits are those in its `hard`."""
    used: Amounts = {}
    for part in measured_parts(quota, objects, classes, now):
        used = plus(used, part)
    return used


def measured_parts(
    quota: Quota, objects: Mapping[KindName, Sequence[Object]], classes: DeviceClasses, now: str
) -> Iterator[Amounts]:
    """The usage in parts to add up, at least one, for those who cannot count ten thousand objects without a pause."""
    pods = {str(pod["metadata"].get("name")): pod for pod in objects.get(PODS, ())}
    around = QuotaContext(now=now, classes=classes, pods=pods, claims=objects.get(CLAIMS, ()))
    yield total_usage(quota, (), around)
    for kind, items in objects.items():
        for start in range(0, len(items), _PART):
            yield total_usage(quota, ((kind, items[start : start + _PART]),), around)


def wanted_quota(object_: Object) -> Quota:
    """A quota with the limits of its spec in force."""
    quota = quota_of(object_)
    return msgspec.structs.replace(quota, hard=parse_amounts(quota.spec.get("hard")))


def with_usage(object_: Object, quota: Quota, used: Amounts) -> dict[str, Any] | None:
    """The ResourceQuota with a status that says so; None if it does already."""
    present = quota_of(object_)
    if dict(present.hard) == dict(quota.hard) and dict(present.used) == used:
        return None
    status = {"hard": as_json(quota.hard), "used": as_json(used)}
    return {**object_, "status": {**(object_.get("status") or {}), **status}}


def frees(before: Object, after: Object) -> bool:
    """Whether a quota says that less is used than it said before."""
    then, now = quota_of(before).used, quota_of(after).used
    return any(name in now and now[name] < amount for name, amount in then.items())


def may_free(kind: KindName, old: Object, new: Object | None) -> bool:
    """Whether a change of an object can make room in a quota: it is gone, or uses less than before."""
    if new is None:
        return True
    if kind == PODS:
        return not _has_ended(old) and _has_ended(new)
    return kind in (SERVICES, VOLUME_CLAIMS) and old.get("spec") != new.get("spec")


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
