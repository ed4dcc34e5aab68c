"""Which pods to evict because one of their devices has a NoExecute taint, and when; and the steps of an eviction.

Taints are those that drivers publish in slices, of the newest generation of a pool, and those of DeviceTaintRules, which also
apply to allocated devices that are no longer published. Only tolerations in the allocation with exactly the effect NoExecute
count here, although the scheduler accepts an empty effect: Kubernetes 1.37 does the same. Like there, claims for extended
resources are not checked (kubernetes#141290).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from allot.core.features import FeatureGates
from allot.core.lifecycle.actions import (
    NORMAL,
    Action,
    Answers,
    Emit,
    LookUp,
    RequeueAfter,
    resource_of,
)
from allot.core.lifecycle.claim_owners import claim_name, is_made_for, is_reserved_for, key_of
from allot.core.lifecycle.disruption import delete_pod, is_terminal, mark_disrupted
from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import (
    EFFECT_NO_EXECUTE,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from allot.core.selectors import selects_device, tolerates

EVENT_REASON = "DeviceTaintManagerEviction"
CONDITION_REASON = "DeletionByDeviceTaintManager"
CONDITION_MESSAGE = "Device Taint manager: deleting due to NoExecute taint"
_ACTION = "Evict"

# Driver and pool.
PoolName = tuple[str, str]
# NoExecute taints by device.
PoolTaints = Mapping[str, tuple[DeviceTaint, ...]]


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """When a user must be evicted (seconds since 1970), and the rules among the reasons, by name."""

    at_s: float
    rules: tuple[DeviceTaintRule, ...] = ()


class View(Protocol):
    """Known taints and claims. Keys are `namespace/name`."""

    def taints(self, pool: PoolName) -> PoolTaints:
        """The published NoExecute taints of a pool."""

    def rules(self) -> Iterable[DeviceTaintRule]:
        """The rules with the effect NoExecute."""

    def claim(self, key: str) -> ResourceClaim | None:
        """A claim, if it is known."""


def published_taints(slices: Iterable[ResourceSlice]) -> PoolTaints:
    """The NoExecute taints of a pool, from the slices of its highest generation."""
    slices = tuple(slices)
    newest = max((slice_.spec.pool.generation for slice_ in slices), default=0)
    found: dict[str, tuple[DeviceTaint, ...]] = {}
    for slice_ in slices:
        if slice_.spec.pool.generation != newest:
            continue
        for device in slice_.spec.devices or ():
            if device.taints:
                evicting = tuple(taint for taint in device.taints if taint.effect == EFFECT_NO_EXECUTE)
                if evicting:
                    found[device.name] = evicting
    return found


# --- when ---


def claim_eviction(claim: ResourceClaim, view: View) -> Eviction | None:
    """When the pods that use a claim must be evicted; None if never."""
    allocation = claim.status.allocation
    if allocation is None:
        return None
    at_s: float | None = None
    rules: dict[str, DeviceTaintRule] = {}
    for result in allocation.devices.results:
        for taint in view.taints((result.driver, result.pool)).get(result.device, ()):
            at_s = _earlier(at_s, _taint_eviction(taint, result))
        for rule in view.rules():
            if not matches(rule, result):
                continue
            when = _taint_eviction(rule.spec.taint, result)
            if when is not None:
                at_s = _earlier(at_s, when)
                rules[rule.metadata.name] = rule
    return None if at_s is None else Eviction(at_s=at_s, rules=tuple(rules[name] for name in sorted(rules)))


def pod_eviction(pod: Pod, view: View, gates: FeatureGates) -> Eviction | None:
    """When a pod must be evicted: with the first of its claims. A pod without a node uses none."""
    if not pod.spec.node_name or is_terminal(pod):
        return None
    found: Eviction | None = None
    for claim in used_claims(pod, view, gates):
        eviction = claim_eviction(claim, view)
        if eviction is None:
            continue
        if found is None:
            found = eviction
        else:
            rules = {rule.metadata.name: rule for rule in (*found.rules, *eviction.rules)}
            found = Eviction(at_s=min(found.at_s, eviction.at_s), rules=tuple(rules[name] for name in sorted(rules)))
    return found


def used_claims(pod: Pod, view: View, gates: FeatureGates) -> Iterable[ResourceClaim]:
    """The claims that a pod names or got from templates, and that are reserved for it or its group."""
    accepts_group = "DRAWorkloadResourceClaims" in gates
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        claim = view.claim(key_of(pod.metadata.namespace, name)) if name else None
        if claim is None:
            continue
        if entry.resource_claim_name is None and not is_made_for(pod, claim, accepts_group=accepts_group):
            continue
        if is_reserved_for(pod, claim, accepts_group=accepts_group):
            yield claim


def matches(rule: DeviceTaintRule, result: DeviceRequestAllocationResult) -> bool:
    """Whether a rule taints an allocated device. Without a selector it taints none."""
    return selects_device(rule.spec.device_selector, result.driver, result.pool, result.device, absent_selects=False)


def _taint_eviction(taint: DeviceTaint, result: DeviceRequestAllocationResult) -> float | None:
    """When the user of a device must be evicted because of a taint; None if it is tolerated indefinitely."""
    if taint.time_added is None:
        return None
    shortest: int | None = None
    for toleration in result.tolerations:
        if toleration.effect != EFFECT_NO_EXECUTE or not tolerates(toleration, taint):
            continue
        if toleration.toleration_seconds is None:
            return None
        seconds = max(toleration.toleration_seconds, 0)
        shortest = seconds if shortest is None else min(shortest, seconds)
    return seconds_of(taint.time_added) + (shortest or 0)


def _earlier(at_s: float | None, other_s: float | None) -> float | None:
    if at_s is None or other_s is None:
        return other_s if at_s is None else at_s
    return min(at_s, other_s)


# --- what to do ---


def reconcile_pod(
    pod: Pod, eviction: Eviction | None, answers: Answers, now_s: float, *, was_pending: bool
) -> tuple[Action, ...]:
    """Evict a pod when it is due. was_pending: the eviction was already planned, so its cancellation is reported."""
    if pod.metadata.deletion_timestamp is not None:
        return ()
    if eviction is None:
        return (_event(pod, "Cancelling deletion"),) if was_pending else ()
    if eviction.at_s > now_s:
        return (RequeueAfter(seconds=eviction.at_s - now_s),)
    metadata = pod.metadata
    question = LookUp(resource=resource_of(Pod), name=metadata.name, namespace=metadata.namespace)
    if question not in answers:
        return (question,)
    present = answers[question]
    if present is None or present.metadata.uid != metadata.uid or present.metadata.deletion_timestamp is not None:
        return ()
    mark = mark_disrupted(present, CONDITION_REASON, CONDITION_MESSAGE, time_of(now_s))
    return (_event(pod, "Marking for deletion"), *(() if mark is None else (mark,)), delete_pod(pod))


def _event(pod: Pod, note: str) -> Emit:
    return Emit(regarding=pod, type=NORMAL, reason=EVENT_REASON, action=_ACTION, note=note)
