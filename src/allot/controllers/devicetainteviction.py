"""The device taint eviction controller: evicts pods that use devices with NoExecute taints (`core.lifecycle.device_taint_evictions`), and
reports progress in DeviceTaintRules (`.taint_rules`).

Besides the caches, tracks which claims must be given up: while there are none, a change costs only a check of its devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, Delete, Write
from allot.core.lifecycle.claim_owners import claim_keys, group_name, is_group, is_pod, key_of
from allot.core.lifecycle.device_taint_evictions import (
    Eviction,
    PoolName,
    PoolTaints,
    claim_eviction,
    pod_eviction,
    published_taints,
    reconcile_pod,
)
from allot.core.lifecycle.taint_rules import CONTROLLER, STATUS_PERIOD_S, reconcile_rule
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import EFFECT_NO_EXECUTE, DeviceTaintRule, ResourceClaim, ResourceSlice
from allot.process.metrics import Counter, Histogram

_BY_POOL = "devicetainteviction: pool"
_BY_GROUP = "devicetainteviction: group"
_LATENCY_BUCKETS_S = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)
_NO_TAINTS: PoolTaints = {}

# POD and `namespace/name`, or RULE and a name.
_Key = tuple[str, str]
_POD = "pod"
_RULE = "rule"


def make(services: Services) -> Controller[_Key]:
    """The controller, with its handlers in place."""
    return _DeviceTaintEviction(services).controller


class _View:
    """The caches as the reconcilers see them (`taint_rules.View`)."""

    def __init__(self, services: Services) -> None:
        informers = services.informers
        self.pods: Informer[Pod] = informers.typed(Pod, indexers={_BY_GROUP: _group_keys})
        self.claim_informer: Informer[ResourceClaim] = informers.typed(ResourceClaim, indexers={_BY_POOL: _pools})
        self.slice_informer: Informer[ResourceSlice] = informers.typed(ResourceSlice, indexers={_BY_POOL: _pool})
        self.rule_informer: Informer[DeviceTaintRule] | None = None
        if "DRADeviceTaintRules" in services.gates:
            self.rule_informer = informers.typed(DeviceTaintRule)
        self._accepts_group = "DRAWorkloadResourceClaims" in services.gates
        self._rules: dict[str, DeviceTaintRule] = {}
        self._taints: dict[PoolName, PoolTaints] = {}

    def put_rule(self, name: str, rule: DeviceTaintRule | None) -> None:
        if rule is not None and rule.spec.taint.effect == EFFECT_NO_EXECUTE:
            self._rules[name] = rule
        else:
            self._rules.pop(name, None)

    def refresh(self, pool: PoolName) -> bool:
        """Check the slices of a pool again; returns whether its taints have changed."""
        taints = published_taints(self.slice_informer.cache.by_index(_BY_POOL, "/".join(pool)))
        if taints == self._taints.get(pool, _NO_TAINTS):
            return False
        if taints:
            self._taints[pool] = taints
        else:
            self._taints.pop(pool, None)
        return True

    def taints(self, pool: PoolName) -> PoolTaints:
        return self._taints.get(pool, _NO_TAINTS)

    def rules(self) -> Iterable[DeviceTaintRule]:
        return self._rules.values()

    def claim(self, key: str) -> ResourceClaim | None:
        return self.claim_informer.cache.get(key)

    def claims_of_pool(self, pool: PoolName) -> Iterable[ResourceClaim]:
        return self.claim_informer.cache.by_index(_BY_POOL, "/".join(pool))

    def claims_under(self, *rules: DeviceTaintRule | None) -> Iterable[ResourceClaim]:
        """The claims that rules may affect: those of their pools, if all of them name one."""
        selectors = [rule.spec.device_selector for rule in rules if rule is not None]
        pools: dict[PoolName, None] = {}
        for selector in selectors:
            if selector is None or selector.driver is None or selector.pool is None:
                return tuple(self.allocated_claims())
            pools[selector.driver, selector.pool] = None
        return tuple(claim for pool in pools for claim in self.claims_of_pool(pool))

    def allocated_claims(self) -> Iterable[ResourceClaim]:
        return (claim for claim in self.claim_informer.cache if claim.status.allocation is not None)

    def slices(self) -> Iterable[ResourceSlice]:
        return self.slice_informer.cache

    def consumers(self, claim: ResourceClaim) -> Iterator[Pod]:
        for consumer in claim.status.reserved_for:
            key = key_of(claim.metadata.namespace, consumer.name)
            if is_pod(consumer):
                pod = self.pods.cache.get(key)
                if pod is not None and pod.metadata.uid == consumer.uid:
                    yield pod
            elif is_group(consumer) and self._accepts_group:
                yield from self.pods.cache.by_index(_BY_GROUP, key)


class _DeviceTaintEviction:
    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        self._gates = services.gates
        view = self._view = _View(services)
        waits_for: list[Informer[Any]] = [view.pods, view.claim_informer, view.slice_informer]
        if view.rule_informer is not None:
            waits_for.append(view.rule_informer)
        self.controller: Controller[_Key] = Controller(
            services,
            self._reconcile,
            queue_name=CONTROLLER,
            component=CONTROLLER,
            waits_for=waits_for,
            concurrency=8,
            on_written=self._written,
        )
        self._queue = self.controller.queue
        # Claims that must be given up, by key; pending evictions, by the pod's uid; finished evictions, by rule.
        self._evicting: dict[str, Eviction] = {}
        self._pending: dict[str, Eviction] = {}
        self._evicted: dict[str, int] = {}
        registry = services.metrics.registry
        self._deletions = Counter(
            registry,
            "device_taint_eviction_controller_pod_deletions",
            "Total number of Pods deleted by DeviceTaintEvictionController since its start.",
        )
        self._latency = Histogram(
            registry,
            "device_taint_eviction_controller_pod_deletion_duration_seconds",
            "Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion"
            " via DeviceTaintEvictionController.",
            buckets=_LATENCY_BUCKETS_S,
        )
        if view.rule_informer is not None:
            view.rule_informer.add_handler(self._rule_changed)
        view.slice_informer.add_handler(self._slice_changed)
        view.claim_informer.add_handler(self._claim_changed)
        view.pods.add_handler(self._pod_changed)

    # --- affected keys ---

    def _rule_changed(self, change: Change[DeviceTaintRule]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec == new.spec:
            self._view.put_rule(change.key, new)
            return
        self._view.put_rule(change.key, new)
        if new is None:
            self._evicted.pop(change.object.metadata.uid, None)
        else:
            # First, because the result determines the rest.
            self._queue.add((_RULE, change.key))
        for claim in self._view.claims_under(old, new):
            self._judge(claim)

    def _slice_changed(self, change: Change[ResourceSlice]) -> None:
        for slice_ in (change.old, change.new):
            if slice_ is None:
                continue
            pool = (slice_.spec.driver, slice_.spec.pool.name)
            if self._view.refresh(pool):
                for claim in self._view.claims_of_pool(pool):
                    self._judge(claim)

    def _claim_changed(self, change: Change[ResourceClaim]) -> None:
        if change.new is not None and change.new.status.allocation is not None:
            self._judge(change.new, always=True)
        elif self._evicting.pop(change.key, None) is not None:
            self._look_at(change.object)
        if change.old is not None and change.key in self._evicting:
            self._look_at(change.old)

    def _judge(self, claim: ResourceClaim, *, always: bool = False) -> None:
        """Check whether a claim must be given up; queue its pods if that has changed (or, with always, if it must be)."""
        key = key_of(claim.metadata.namespace, claim.metadata.name)
        before, eviction = self._evicting.get(key), claim_eviction(claim, self._view)
        if eviction is None:
            self._evicting.pop(key, None)
        else:
            self._evicting[key] = eviction
        if before != eviction or (always and eviction is not None):
            self._look_at(claim)

    def _look_at(self, claim: ResourceClaim) -> None:
        for pod in self._view.consumers(claim):
            self._queue.add((_POD, key_of(pod.metadata.namespace, pod.metadata.name)))

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if new is None:
            self._pending.pop(change.object.metadata.uid, None)
            return
        is_same = (
            old is not None
            and old.spec.node_name == new.spec.node_name
            and old.status.resource_claim_statuses == new.status.resource_claim_statuses
        )
        if self._evicting and not is_same and any(key in self._evicting for key in claim_keys(new)):
            self._queue.add((_POD, change.key))

    # --- what to do ---

    def _reconcile(self, key: _Key, answers: Answers) -> tuple[Action, ...]:
        what, name = key
        now_s = self._clock.seconds()
        if what == _POD:
            pod = self._view.pods.cache.get(name)
            return () if pod is None else self._reconcile_pod(pod, answers, now_s)
        informer = self._view.rule_informer
        rule = None if informer is None else informer.cache.get(name)
        if rule is None:
            return ()
        return reconcile_rule(rule, self._view, self._evicted.get(rule.metadata.uid, 0), now_s, self._gates)

    def _reconcile_pod(self, pod: Pod, answers: Answers, now_s: float) -> tuple[Action, ...]:
        eviction = pod_eviction(pod, self._view, self._gates)
        was_pending = pod.metadata.uid in self._pending
        if eviction is None:
            self._pending.pop(pod.metadata.uid, None)
        else:
            self._pending[pod.metadata.uid] = eviction
            self._update_rules_later(eviction)
        return reconcile_pod(pod, eviction, answers, now_s, was_pending=was_pending)

    def _written(self, action: Write, after: dict[str, Any] | None, error: ApiError | None) -> None:  # noqa: ARG002
        if not isinstance(action, Delete) or error is not None:
            return
        eviction = self._pending.pop(action.uid, None)
        if eviction is None:
            return
        self._deletions.add()
        self._latency.observe(max(0.0, self._clock.seconds() - eviction.at_s))
        for rule in eviction.rules:
            self._evicted[rule.metadata.uid] = self._evicted.get(rule.metadata.uid, 0) + 1
        self._update_rules_later(eviction)

    def _update_rules_later(self, eviction: Eviction) -> None:
        """With a delay: more changes are coming, and the caches do not have them yet."""
        for rule in eviction.rules:
            self._queue.add_after((_RULE, rule.metadata.name), STATUS_PERIOD_S)


def _pool(slice_: ResourceSlice) -> Iterator[str]:
    yield f"{slice_.spec.driver}/{slice_.spec.pool.name}"


def _pools(claim: ResourceClaim) -> Iterator[str]:
    if claim.status.allocation is not None:
        yield from {f"{result.driver}/{result.pool}": None for result in claim.status.allocation.devices.results}


def _group_keys(pod: Pod) -> Iterator[str]:
    name = group_name(pod)
    if name:
        yield key_of(pod.metadata.namespace, name)
