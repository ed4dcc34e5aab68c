"""The status of a DeviceTaintRule: the progress of its eviction, or what it would do.

At most every ten seconds, but at once for a new rule or a changed one. A rule without effect (None) shows once what it
would do with the effect NoExecute.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from allot.core.features import FeatureGates
from allot.core.lifecycle import device_taint_evictions
from allot.core.lifecycle.actions import Action, Apply, RequeueAfter, resource_of
from allot.core.lifecycle.device_taint_evictions import PoolName, PoolTaints
from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import Condition
from allot.core.model.resource_v1 import (
    EFFECT_NO_EXECUTE,
    EFFECT_NONE,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from allot.core.selectors import selects_device

CONTROLLER = "device-taint-eviction-controller"
CONDITION = "EvictionInProgress"
STATUS_PERIOD_S = 10.0


class View(device_taint_evictions.View, Protocol):
    """What the status of a rule depends on."""

    def allocated_claims(self) -> Iterable[ResourceClaim]:
        """All claims with an allocation."""

    def consumers(self, claim: ResourceClaim) -> Iterable[Pod]:
        """The pods for which a claim is reserved, including those of a group."""

    def slices(self) -> Iterable[ResourceSlice]:
        """All slices."""


def reconcile_rule(
    rule: DeviceTaintRule, view: View, evicted: int, now_s: float, gates: FeatureGates
) -> tuple[Action, ...]:
    """The status of a rule. evicted: how many pods it has evicted since the controller started."""
    present = next((condition for condition in rule.status.conditions if condition.type == CONDITION), None)
    if present is not None and present.observed_generation == rule.metadata.generation:
        since_s = now_s - seconds_of(present.last_transition_time) if present.last_transition_time else STATUS_PERIOD_S
        if since_s < STATUS_PERIOD_S:
            return (RequeueAfter(seconds=STATUS_PERIOD_S - since_s),)
    wanted = _condition(rule, view, evicted, gates)
    if present is not None and wanted == replace(present, last_transition_time=None):
        return ()
    fields = msgspec.to_builtins(replace(wanted, last_transition_time=time_of(now_s)))
    # Empty members are omitted from structs, but applying none would keep the values of another manager.
    condition = {"message": "", **fields}
    apply = Apply(
        resource=resource_of(DeviceTaintRule),
        name=rule.metadata.name,
        uid=rule.metadata.uid,
        fields={"status": {"conditions": [condition]}},
        manager=CONTROLLER,
        subresource="status",
    )
    return (apply,)


def _condition(rule: DeviceTaintRule, view: View, evicted: int, gates: FeatureGates) -> Condition:
    status, texts = "False", []
    effect = rule.spec.taint.effect
    if effect == EFFECT_NO_EXECUTE:
        pods, namespaces = _affected(rule, view, gates)
        if pods:
            status, reason = "True", "PodsPendingEviction"
            need = "1 pod needs" if pods == 1 else f"{pods} pods need"
            texts.append(f"{need} to be evicted in {_namespaces(namespaces)}.")
        else:
            reason = "Completed" if evicted else "NotStarted"
    elif effect == EFFECT_NONE:
        reason = "NoEffect"
        texts.append(_dry_run(rule, view, gates))
    else:
        reason = "OtherEffect"
        texts.append("Eviction only happens for the NoExecute effect.")
    if evicted:
        texts.append(f"{_count(evicted, 'pod')} evicted since starting the controller.")
    return Condition(
        type=CONDITION,
        status=status,
        reason=reason,
        message=" ".join(texts),
        observed_generation=rule.metadata.generation,
    )


def _dry_run(rule: DeviceTaintRule, view: View, gates: FeatureGates) -> str:
    taint = replace(rule.spec.taint, effect=EFFECT_NO_EXECUTE)
    pods, namespaces = _affected(replace(rule, spec=replace(rule.spec, taint=taint)), view, gates)
    return (
        f"{_count(_published(rule, view), 'published device')} selected. "
        f"{_count(_allocated(rule, view), 'allocated device')} selected. "
        f"{_count(pods, 'pod')} would be evicted in {_namespaces(namespaces)} if the effect was NoExecute. "
        "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
    )


# --- counting ---


class _OneRule:
    """A view with only the taint of one rule."""

    def __init__(self, rule: DeviceTaintRule, view: View) -> None:
        self._rule = rule
        self._view = view

    def taints(self, pool: PoolName) -> PoolTaints:  # noqa: ARG002
        return {}

    def rules(self) -> Iterable[DeviceTaintRule]:
        return (self._rule,)

    def claim(self, key: str) -> ResourceClaim | None:
        return self._view.claim(key)


def _affected(rule: DeviceTaintRule, view: View, gates: FeatureGates) -> tuple[int, int]:
    """How many pods must be evicted because of a rule, now or later, and in how many namespaces."""
    alone = _OneRule(rule, view)
    found: dict[str, str] = {}
    for claim in view.allocated_claims():
        if device_taint_evictions.claim_eviction(claim, alone) is None:
            continue
        for pod in view.consumers(claim):
            if (
                pod.metadata.uid not in found
                and pod.metadata.deletion_timestamp is None
                and device_taint_evictions.pod_eviction(pod, alone, gates) is not None
            ):
                found[pod.metadata.uid] = pod.metadata.namespace
    return len(found), len(dict.fromkeys(found.values()))


def _published(rule: DeviceTaintRule, view: View) -> int:
    slices = tuple(view.slices())
    newest: dict[PoolName, int] = {}
    for slice_ in slices:
        pool = (slice_.spec.driver, slice_.spec.pool.name)
        newest[pool] = max(newest.get(pool, slice_.spec.pool.generation), slice_.spec.pool.generation)
    return sum(
        selects_device(rule.spec.device_selector, *pool, device.name, absent_selects=False)
        for slice_ in slices
        if slice_.spec.pool.generation == newest[pool := (slice_.spec.driver, slice_.spec.pool.name)]
        for device in slice_.spec.devices or ()
    )


def _allocated(rule: DeviceTaintRule, view: View) -> int:
    return sum(
        device_taint_evictions.matches(rule, result)
        for claim in view.allocated_claims()
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    )


# --- texts ---


def _count(number: int, word: str) -> str:
    return f"1 {word}" if number == 1 else f"{number} {word}s"


def _namespaces(number: int) -> str:
    return "1 namespace" if number == 1 else f"{number} different namespaces"
