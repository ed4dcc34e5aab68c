"""ConfigMaps, Secrets and PersistentVolumeClaims that a pod names but that do not exist."""

from __future__ import annotations

import re

import msgspec

from allot.core.advice.explain.wording import listed
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1, observed_v1

_MISSING = re.compile(r'(?P<kind>configmap|secret|persistentvolumeclaim) "(?P<name>[^"]+)" not found', re.IGNORECASE)
_NO_KEY = re.compile(
    r"couldn't find key (?P<key>\S+) in (?P<kind>configmap|secret) (?:(?P<namespace>[^/\s]+)/)?(?P<name>[^\s,;]+)",
    re.IGNORECASE,
)
_SLIP_MIN = 0.75
_Named = observed_v1.ConfigMap | observed_v1.Secret | core_v1.PersistentVolumeClaim
_TYPES: dict[str, type[_Named]] = {
    "configmap": observed_v1.ConfigMap,
    "secret": observed_v1.Secret,
    "persistentvolumeclaim": core_v1.PersistentVolumeClaim,
}


class Reference(msgspec.Struct, frozen=True):
    """What is wrong with a name. hint: phrased to follow the node's message; advice: what helps."""

    hint: str
    advice: tuple[str, ...]


def broken_reference(what_if: WhatIfCluster, pod: core_v1.Pod, said: str) -> Reference | None:
    """A node's message about a dangling name; None if it is about something else."""
    no_key = _NO_KEY.search(said)
    if no_key is not None:
        return _no_key(what_if, pod, _TYPES[no_key["kind"].lower()], no_key["name"], no_key["key"])
    missing = _MISSING.search(said)
    return _missing(what_if, pod, _TYPES[missing["kind"].lower()], missing["name"]) if missing is not None else None


def _missing(what_if: WhatIfCluster, pod: core_v1.Pod, type_: type[_Named], name: str) -> Reference:
    namespace, kind = pod.metadata.namespace, type_.__name__
    known: list[_Named] = list(what_if.all(type_))
    create = f"create {kind} {namespace}/{name}"
    meant = nearest(name, [each.metadata.name for each in known if each.metadata.namespace == namespace])
    if meant is not None:
        other = f"name {kind} {meant} instead of {name} in the pod"
        # A similar name is a slip; a less similar one may be what took its place.
        slip = nearest(name, [meant], likeness_min=_SLIP_MIN) is not None
        advice = (other, create) if slip else (f"{create}, as a copy of {meant} if that took its place", other)
        return Reference(f' (did you mean "{meant}"?)', advice)
    elsewhere = sorted(each.metadata.namespace for each in known if each.metadata.name == name)
    if elsewhere:
        where = f"namespace {listed(elsewhere)}"
        hint = f" (there is one in {where}, but a pod can use only those of its own namespace)"
        return Reference(hint, (f"copy {kind} {elsewhere[0]}/{name} to namespace {namespace}",))
    return Reference("", (create,))


def _no_key(what_if: WhatIfCluster, pod: core_v1.Pod, type_: type[_Named], name: str, key: str) -> Reference:
    namespace, kind = pod.metadata.namespace, type_.__name__
    found = what_if.get(type_, name, namespace)
    keys = () if found is None or isinstance(found, core_v1.PersistentVolumeClaim) else found.keys
    add = f"add key {key} to {kind} {namespace}/{name}"
    meant = nearest(key, keys)
    if meant is not None:
        return Reference(f' (did you mean "{meant}"?)', (f"name key {meant} instead of {key} in the pod", add))
    return Reference(f" (it has {listed(keys)})" if keys else "", (add,))
