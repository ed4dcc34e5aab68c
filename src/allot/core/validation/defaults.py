"""Defaults: what the API server fills in when it reads an object, in the version it was written in.

Works on JSON values and never changes its input; values of an unexpected shape are left alone; decoding reports them
afterwards. The time is an argument; without it, times stay unset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allot.core.features import FeatureGates
from allot.core.model.resource_v1 import EXACT_COUNT, GROUP, TOLERATION_EQUAL
from allot.core.model.scheduling_v1 import GROUP as SCHEDULING_GROUP
from allot.core.model.scheduling_v1 import PREEMPT_LOWER_PRIORITY

POOL_STATUS_LIMIT = 100
TERMINATION_GRACE_PERIOD_SECONDS = 30

JSONObject = dict[str, Any]
# The object at the end of a path, as a new dict.
Change = Callable[[JSONObject], JSONObject]


def with_defaults(value: JSONObject, *, gates: FeatureGates, now: str | None) -> JSONObject:
    """The object with defaults; unknown kinds come back as they are."""
    api_version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return value
    group, _, version = api_version.rpartition("/")
    match group, kind:
        case g, "ResourceClaim" if g == GROUP:
            value = _claim_defaults(value, ("spec",), version)
            return _at(value, ("status", "allocation", "devices", "results[]", "tolerations[]"), _toleration)
        case g, "ResourceClaimTemplate" if g == GROUP:
            return _claim_defaults(value, ("spec", "spec"), version)
        case g, "ResourceSlice" if g == GROUP:
            device = ("devices[]", "basic") if version in ("v1beta1", "v1alpha3") else ("devices[]",)
            return _at(value, ("spec", *device, "taints[]"), _taint(now))
        case g, "DeviceTaintRule" if g == GROUP:
            return _at(_present(_present(value, "spec"), "spec", "taint"), ("spec", "taint"), _taint(now))
        case g, "ResourcePoolStatusRequest" if g == GROUP:
            return _at(_present(value, "spec"), ("spec",), _filler(limit=POOL_STATUS_LIMIT))
        case g, ("PodGroup" | "CompositePodGroup") if g == SCHEDULING_GROUP:
            return _group_defaults(value, gates)
        case "", "Pod":
            return _pod_defaults(value)
        case _:
            return value


# --- moving through JSON ---


def _at(value: JSONObject, path: tuple[str, ...], change: Change) -> JSONObject:
    """The value with what is at the path changed; `name[]` stands for every item of a list."""
    changed = _changed(value, path, change)
    assert isinstance(changed, dict)
    return changed


def _changed(value: Any, path: tuple[str, ...], change: Change) -> Any:
    if not path:
        return change(value) if isinstance(value, dict) else value
    name, listed = path[0].removesuffix("[]"), path[0].endswith("[]")
    if not isinstance(value, dict) or name not in value:
        return value
    member = value[name]
    if listed:
        if not isinstance(member, list):
            return value
        return {**value, name: [_changed(item, path[1:], change) for item in member]}
    return {**value, name: _changed(member, path[1:], change)}


def _present(value: JSONObject, *path: str) -> JSONObject:
    """The value with an empty object at the path where there was none."""
    name, rest = path[0], path[1:]
    member = value.get(name)
    if member is None:
        member = {}
    if rest and isinstance(member, dict):
        member = _present(member, *rest)
    return {**value, name: member}


def _filler(**members: Any) -> Change:
    """Fills in members that are absent."""

    def fill(value: JSONObject) -> JSONObject:
        return value | {name: default for name, default in members.items() if value.get(name) is None}

    return fill


# --- resource.k8s.io ---


def _toleration(value: JSONObject) -> JSONObject:
    return value if value.get("operator") else {**value, "operator": TOLERATION_EQUAL}


def _taint(now: str | None) -> Change:
    return _filler(timeAdded=now) if now is not None else lambda value: value


def _counted(value: JSONObject) -> JSONObject:
    """Allocation mode and count: 0 and "" are the same as absent."""
    if not value.get("allocationMode"):
        value = {**value, "allocationMode": EXACT_COUNT}
    count = value.get("count")
    if value["allocationMode"] == EXACT_COUNT and (count is None or (count == 0 and not isinstance(count, bool))):
        value = {**value, "count": 1}
    return value


def _counted_with_class(value: JSONObject) -> JSONObject:
    """In v1beta1's flat requests, a request without a class has subrequests and gets no defaults."""
    return _counted(value) if value.get("deviceClassName") else value


def _claim_defaults(value: JSONObject, spec: tuple[str, ...], version: str) -> JSONObject:
    requests = (*spec, "devices", "requests[]")
    if version in ("v1beta1", "v1alpha3"):
        value = _at(value, requests, _counted_with_class)
        value = _at(value, (*requests, "tolerations[]"), _toleration)
    else:
        value = _at(value, (*requests, "exactly"), _counted)
        value = _at(value, (*requests, "exactly", "tolerations[]"), _toleration)
    value = _at(value, (*requests, "firstAvailable[]"), _counted)
    return _at(value, (*requests, "firstAvailable[]", "tolerations[]"), _toleration)


# --- scheduling.k8s.io ---


def _group_defaults(value: JSONObject, gates: FeatureGates) -> JSONObject:
    members: JSONObject = {"disruptionMode": {"single": {}}}
    if "PodGroupPreemptionPolicy" in gates:
        members["preemptionPolicy"] = PREEMPT_LOWER_PRIORITY
    return _at(_present(value, "spec"), ("spec",), _filler(**members))


# --- pods ---


def _pod_defaults(value: JSONObject) -> JSONObject:
    fill = _filler(
        restartPolicy="Always",
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        terminationGracePeriodSeconds=TERMINATION_GRACE_PERIOD_SECONDS,
        securityContext={},
        enableServiceLinks=True,
    )
    value = _at(value, ("spec",), fill)
    for containers in ("initContainers[]", "containers[]"):
        value = _at(value, ("spec", containers, "resources"), _requests_from_limits)
        value = _at(value, ("spec", containers), _container)
    return value


def _container(value: JSONObject) -> JSONObject:
    image = value.get("image")
    name = image.rpartition("/")[2] if isinstance(image, str) else ""
    latest = name.endswith(":latest") or (":" not in name and "@" not in name)
    return _filler(
        imagePullPolicy="Always" if latest else "IfNotPresent",
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        resources={},
    )(value)


def _requests_from_limits(value: JSONObject) -> JSONObject:
    limits, requests = value.get("limits"), value.get("requests")
    if not isinstance(limits, dict) or not limits or not isinstance(requests, dict | None):
        return value
    return {**value, "requests": {**limits, **(requests or {})}}
