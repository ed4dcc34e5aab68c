"""The resourceclaim controller: claims from templates (`core.lifecycle.templates`) and their release (`.claims`).

Wires caches and their changes to the reconcilers. Remembers two facts that caches do not have: new claims that the
watch has not reported yet, and the uids of deleted pods.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry

from allot.client.cache import Cache
from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.client.informers import Informers
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle import claim_keys
from allot.core.lifecycle.actions import Action, Answers, Create, Write
from allot.core.lifecycle.claim_keys import CLAIM, POD, POD_GROUP, Key
from allot.core.lifecycle.claim_owners import (
    claim_keys as keys_of_claims,
)
from allot.core.lifecycle.claim_owners import controller_of, group_name, key_of, owner_uids, template_keys
from allot.core.lifecycle.claims import reconcile_claim
from allot.core.lifecycle.templates import reconcile_pod, reconcile_pod_group
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    POD_CLAIM_NAME_ANNOTATION,
    ResourceClaim,
    ResourceClaimTemplate,
)
from allot.core.model.scheduling_v1 import PodGroup
from allot.process.clock import Clock
from allot.process.metrics import Counter, Gauge, Labels

_USED_CLAIM = "resourceclaim: claims used"
_USED_TEMPLATE = "resourceclaim: templates used"
_MEMBER_OF = "resourceclaim: group"
_MADE_FOR = "resourceclaim: made for"

# Each pod needs two consecutive writes, and a durable write takes as long as the disk, however many run at once.
_CONCURRENCY = 128
# Kubernetes remembers 500; at a thousand pods a second that would be half a second.
_DELETED_MAX = 10_000
_RECENT_MAX = 10_000
# A claim that the watch has not reported by then was already deleted.
_RECENT_S = 60.0


def make(services: Services) -> Controller[Key]:
    """The controller, with its handlers in place."""
    return _ResourceClaims(services).controller


class _Recent:
    """New claims until the watch reports them: by key, by owner, and by entry of that owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._claims: OrderedDict[str, tuple[float, ResourceClaim]] = OrderedDict()
        self._by_owner: dict[str, dict[str, None]] = {}

    def put(self, key: str, claim: ResourceClaim) -> None:
        self._claims[key] = (self._clock.monotonic(), claim)
        for uid in owner_uids(claim):
            self._by_owner.setdefault(uid, {})[key] = None
        while len(self._claims) > _RECENT_MAX:
            self.forget(next(iter(self._claims)))

    def forget(self, key: str) -> None:
        found = self._claims.pop(key, None)
        if found is None:
            return
        for uid in owner_uids(found[1]):
            keys = self._by_owner.get(uid, {})
            keys.pop(key, None)
            if not keys:
                self._by_owner.pop(uid, None)

    def get(self, key: str) -> ResourceClaim | None:
        found = self._claims.get(key)
        if found is None:
            return None
        if self._clock.monotonic() - found[0] > _RECENT_S:
            self.forget(key)
            return None
        return found[1]

    def made_for(self, uid: str) -> Iterator[ResourceClaim]:
        for key in tuple(self._by_owner.get(uid, ())):
            claim = self.get(key)
            if claim is not None:
                yield claim


class _View:
    """The caches as the reconcilers see them (`claim_keys.View`)."""

    def __init__(self, informers: Informers, clock: Clock, *, has_groups: bool) -> None:
        self.pods: Informer[Pod] = informers.typed(
            Pod, indexers={_USED_CLAIM: keys_of_claims, _USED_TEMPLATE: template_keys, _MEMBER_OF: _group_keys}
        )
        self.claims: Informer[ResourceClaim] = informers.typed(ResourceClaim, indexers={_MADE_FOR: owner_uids})
        self.templates: Informer[ResourceClaimTemplate] = informers.typed(ResourceClaimTemplate)
        self.groups: Informer[PodGroup] | None = None
        if has_groups:
            self.groups = informers.typed(
                PodGroup, indexers={_USED_CLAIM: keys_of_claims, _USED_TEMPLATE: template_keys}
            )
        self.recent = _Recent(clock)
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def note_deleted(self, uid: str) -> None:
        self._deleted[uid] = None
        if len(self._deleted) > _DELETED_MAX:
            self._deleted.popitem(last=False)

    def is_deleted(self, uid: str) -> bool:
        return uid in self._deleted

    def pod(self, key: str) -> Pod | None:
        return self.pods.cache.get(key)

    def pod_group(self, key: str) -> PodGroup | None:
        return None if self.groups is None else self.groups.cache.get(key)

    def claim(self, key: str) -> ResourceClaim | None:
        return self.claims.cache.get(key) or self.recent.get(key)

    def claims_made_for(self, uid: str) -> Iterable[ResourceClaim]:
        return (*self.claims.cache.by_index(_MADE_FOR, uid), *self.recent.made_for(uid))

    def template(self, key: str) -> ResourceClaimTemplate | None:
        return self.templates.cache.get(key)

    def pods_using(self, claim_key: str) -> Iterable[Pod]:
        return self.pods.cache.by_index(_USED_CLAIM, claim_key)

    def pod_groups_using(self, claim_key: str) -> Iterable[PodGroup]:
        return () if self.groups is None else self.groups.cache.by_index(_USED_CLAIM, claim_key)

    def members(self, group_key: str) -> Iterable[Pod]:
        return self.pods.cache.by_index(_MEMBER_OF, group_key)


class _ResourceClaims:
    def __init__(self, services: Services) -> None:
        self._gates = services.gates
        has_groups = "GenericWorkload" in services.gates
        view = self._view = _View(services.informers, services.clock, has_groups=has_groups)
        waits_for: list[Informer[Any]] = [view.pods, view.claims, view.templates]
        if view.groups is not None:
            waits_for.append(view.groups)
        self.controller: Controller[Key] = Controller(
            services,
            self._reconcile,
            queue_name="resource_claim",
            component="resource_claim",
            waits_for=waits_for,
            concurrency=_CONCURRENCY,
            on_written=self._written,
        )
        self._metrics = _Metrics(services.metrics.registry, view.claims.cache)
        self._queue = self.controller.queue
        view.pods.add_handler(self._pod_changed)
        view.claims.add_handler(self._claim_changed)
        view.templates.add_handler(self._template_changed)
        if view.groups is not None:
            view.groups.add_handler(self._group_changed)

    # --- affected keys ---

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.object
        if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
            return
        is_deleted = change.new is None
        if is_deleted:
            self._view.note_deleted(pod.metadata.uid)
        self._enqueue(claim_keys.keys_of_pod(pod, self._view, self._gates, is_deleted=is_deleted))

    def _group_changed(self, change: Change[PodGroup]) -> None:
        group, is_deleted = change.object, change.new is None
        if is_deleted:
            self._view.note_deleted(group.metadata.uid)
        self._enqueue(claim_keys.keys_of_pod_group(group, self._view, self._gates, is_deleted=is_deleted))

    def _claim_changed(self, change: Change[ResourceClaim]) -> None:
        self._view.recent.forget(change.key)
        is_deleted = change.new is None
        self._enqueue(claim_keys.keys_of_claim(change.object, self._view, self._gates, is_deleted=is_deleted))

    def _template_changed(self, change: Change[ResourceClaimTemplate]) -> None:
        if change.new is None:
            return
        for pod in self._view.pods.cache.by_index(_USED_TEMPLATE, change.key):
            self._enqueue(claim_keys.keys_of_pod(pod, self._view, self._gates))
        if self._view.groups is not None:
            for group in self._view.groups.cache.by_index(_USED_TEMPLATE, change.key):
                self._enqueue(claim_keys.keys_of_pod_group(group, self._view, self._gates))

    def _enqueue(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._queue.add(key)

    # --- what to do ---

    def _reconcile(self, key: Key, answers: Answers) -> tuple[Action, ...]:
        what, name = key
        if what == CLAIM:
            claim = self._view.claims.cache.get(name)
            return () if claim is None else reconcile_claim(claim, self._view, answers, self._gates)
        if what == POD:
            pod = self._view.pod(name)
            return () if pod is None else reconcile_pod(pod, self._view, answers, self._gates)
        assert what == POD_GROUP, f"unexpected key {key}"
        group = self._view.pod_group(name)
        return () if group is None else reconcile_pod_group(group, self._view, answers, self._gates)

    def _written(self, action: Write, after: dict[str, Any] | None, error: ApiError | None) -> None:
        if not isinstance(action, Create):
            return
        assert isinstance(action.object, ResourceClaim)
        self._metrics.created(action.object, is_success=error is None)
        claim = action.object
        key = key_of(claim.metadata.namespace, claim.metadata.name)
        if after is not None and key not in self._view.claims.cache:
            # As sent: until the watch reports it, only its owner and entry matter.
            self._view.recent.put(key, claim)


class _Metrics:
    """Kubernetes' metrics of claims."""

    def __init__(self, registry: CollectorRegistry, claims: Cache[ResourceClaim]) -> None:
        self._claims = claims
        self._creates = Counter(
            registry,
            "dynamic_resource_allocation_resourceclaim_creates",
            "Number of ResourceClaims creation requests, categorized by creation status, admin access and owner.",
            ("status", "admin_access", "owner_api_group", "owner_api_kind"),
        )
        Gauge(
            registry,
            "dynamic_resource_allocation_resource_claims",
            "Number of ResourceClaims, categorized by allocation status, admin access and source.",
            ("allocated", "admin_access", "source"),
            self._count,
        )

    def created(self, claim: ResourceClaim, *, is_success: bool) -> None:
        """Count an attempt to create a claim."""
        owner = controller_of(claim)
        group, kind = (owner.api_version.rpartition("/")[0], owner.kind) if owner is not None else ("", "")
        self._creates.add("success" if is_success else "failure", _has_admin_access(claim), group, kind)

    def _count(self) -> dict[Labels, float]:
        counts: dict[Labels, float] = {}
        for claim in self._claims:
            labels = ("false" if claim.status.allocation is None else "true", _has_admin_access(claim), _source(claim))
            counts[labels] = counts.get(labels, 0) + 1
        return counts


def _has_admin_access(claim: ResourceClaim) -> str:
    requests = claim.spec.devices.requests
    return (
        "true" if any(request.exactly is not None and request.exactly.admin_access for request in requests) else "false"
    )


def _source(claim: ResourceClaim) -> str:
    annotations = claim.metadata.annotations
    if annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true":
        return "extended_resource"
    return "resource_claim_template" if annotations.get(POD_CLAIM_NAME_ANNOTATION) else ""


def _group_keys(pod: Pod) -> Iterator[str]:
    name = group_name(pod)
    if name:
        yield key_of(pod.metadata.namespace, name)
