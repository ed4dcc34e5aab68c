"""Deletion of a namespace: the order of deletion, how long to wait for the rest, and its conditions.

Texts and reasons are Kubernetes'. One improvement: remaining pods that everything else waits for are reported as remaining
content (Kubernetes v1.37 says "All content successfully removed" meanwhile).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.actions import Resource
from allot.core.model.core_v1 import Pod

FINALIZER = "kubernetes"
TERMINATING = "Terminating"
# The longest wait for finalizers before the next check.
FINALIZER_ESTIMATE_S = 15
_FIRST_PAUSE_S = 0.1
_FAILED_PAUSE_S = 60.0
_PODS = ("", "pods")

JSON = Mapping[str, Any]

_DISCOVERY = "NamespaceDeletionDiscoveryFailure"
_PARSING = "NamespaceDeletionGroupVersionParsingFailure"
_CONTENT = "NamespaceDeletionContentFailure"
_REMAINING = "NamespaceContentRemaining"
_FINALIZERS = "NamespaceFinalizersRemaining"
# Reason and message while there are no problems.
_FINE = {
    _DISCOVERY: ("ResourcesDiscovered", "All resources successfully discovered"),
    _PARSING: ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    _CONTENT: ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    _REMAINING: ("ContentRemoved", "All content successfully removed"),
    _FINALIZERS: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one resource that were deleted but still exist."""

    resource: Resource
    count: int
    # How many of them have each finalizer.
    finalizers: Mapping[str, int] = {}


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The result of deleting everything in a namespace once."""

    leftovers: tuple[Leftover, ...] = ()
    failures: tuple[str, ...] = ()
    # Why the list of things to delete is unknown; empty if it is known.
    discovery_failure: str = ""
    # How long pods may take to terminate.
    grace_s: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing remains and nothing failed."""
        return not (self.leftovers or self.failures or self.discovery_failure)


def phases(resources: Iterable[Resource]) -> tuple[tuple[Resource, ...], ...]:
    """The order of deletion. Pods go first: what they use must not be deleted before them."""
    ordered = sorted(resources, key=lambda one: (one.group, one.plural))
    pods = tuple(one for one in ordered if (one.group, one.plural) == _PODS)
    others = tuple(one for one in ordered if (one.group, one.plural) != _PODS)
    return tuple(phase for phase in (pods, others) if phase)


def leftover(resource: Resource, objects: Sequence[JSON]) -> Leftover | None:
    """What remains according to a list after the deletion."""
    if not objects:
        return None
    finalizers = Counter(name for one in objects for name in one["metadata"].get("finalizers") or ())
    return Leftover(resource=resource, count=len(objects), finalizers=dict(sorted(finalizers.items())))


def unexpected(namespace: str, left: Leftover) -> str:
    """The error for remaining objects without finalizers."""
    kind = left.resource
    return (
        f"unexpected items still remain in namespace: {namespace} for gvr: "
        f"{kind.group}/{kind.version}, Resource={kind.plural}"
    )


def discovery_failure(missing: Sequence[str]) -> str:
    """The message if discovery failed for some groups; empty if it did not."""
    if not missing:
        return ""
    groups = ", ".join(f"{one}: stale GroupVersion discovery: {one}" for one in sorted(missing))
    return (
        f"Discovery failed for some groups, {len(missing)} failing: unable to retrieve the complete list of server APIs: "
        f"{groups}"
    )


def grace_s(pods: Iterable[Pod], deleted_since_s: float) -> int:
    """How long pods may take to terminate, at most; 0 once the namespace has been terminating for longer."""
    longest = 0
    for pod in pods:
        if pod.status.phase not in ("Succeeded", "Failed"):
            longest = max(longest, pod.spec.termination_grace_period_seconds or 0)
    return 0 if deleted_since_s >= longest else longest


def pause_s(sweep: Sweep, attempts: int) -> float:
    """When to check again. Kubernetes waits for half of the estimate; finalizers are often removed sooner, so the first pauses
    are short.
    """
    held = any(left.finalizers for left in sweep.leftovers)
    longest = max(sweep.grace_s, FINALIZER_ESTIMATE_S if held else 0) / 2 + 1
    if sweep.failures or sweep.discovery_failure:
        longest = _FAILED_PAUSE_S
    return min(_FIRST_PAUSE_S * 2.0 ** min(attempts, 20), longest)


def with_conditions(namespace: JSON, sweep: Sweep, now: str) -> dict[str, Any] | None:
    """The namespace with conditions about a sweep; None if they are current."""
    status = namespace.get("status") or {}
    before: Sequence[JSON] = status.get("conditions") or ()
    conditions = list(before)
    for type_, told in _told(sweep).items():
        old = next((one for one in before if one.get("type") == type_), None)
        wanted = dict(zip(("status", "reason", "message"), told, strict=True))
        if old is not None and all(old.get(name) == value for name, value in wanted.items()):
            continue
        same = old is not None and old.get("status") == wanted["status"]
        since = old["lastTransitionTime"] if same and old is not None and "lastTransitionTime" in old else now
        new = {"type": type_, "status": told[0], "lastTransitionTime": since, "reason": told[1], "message": told[2]}
        if old is None:
            conditions.append(new)
        else:
            conditions[conditions.index(old)] = new
    if conditions == list(before) and status.get("phase") == TERMINATING:
        return None
    return {**namespace, "status": {**status, "phase": TERMINATING, "conditions": conditions}}


def _told(sweep: Sweep) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of every condition, in Kubernetes' order."""
    told = {type_: ("False", *fine) for type_, fine in _FINE.items()}
    if sweep.discovery_failure:
        told[_DISCOVERY] = ("True", "DiscoveryFailed", sweep.discovery_failure)
    if sweep.failures:
        texts = ", ".join(sorted(sweep.failures))
        message = f"Failed to delete all resource types, {len(sweep.failures)} remaining: {texts}"
        told[_CONTENT] = ("True", "ContentDeletionFailed", message)
    if sweep.leftovers:
        counts = sorted(
            f"{left.resource.plural}.{left.resource.group} has {left.count} resource instances"
            for left in sweep.leftovers
        )
        told[_REMAINING] = ("True", "SomeResourcesRemain", f"Some resources are remaining: {', '.join(counts)}")
    held: Counter[str] = Counter()
    for left in sweep.leftovers:
        held.update(left.finalizers)
    if held:
        texts = ", ".join(sorted(f"{name} in {count} resource instances" for name, count in held.items()))
        message = f"Some content in the namespace has finalizers remaining: {texts}"
        told[_FINALIZERS] = ("True", "SomeFinalizersRemain", message)
    return told


def finalizers(namespace: JSON) -> tuple[str, ...]:
    """The finalizers of a namespace."""
    return tuple((namespace.get("spec") or {}).get("finalizers") or ())


def finalized(namespace: JSON) -> dict[str, Any]:
    """The namespace without our finalizer."""
    kept = [name for name in finalizers(namespace) if name != FINALIZER]
    spec = {name: value for name, value in (namespace.get("spec") or {}).items() if name != "finalizers"}
    return {**namespace, "spec": {**spec, "finalizers": kept} if kept else spec}


def is_held_by_others(namespace: JSON) -> bool:
    """Whether a namespace remains after we are done, so that its conditions will be read."""
    return bool(namespace["metadata"].get("finalizers")) or any(name != FINALIZER for name in finalizers(namespace))
