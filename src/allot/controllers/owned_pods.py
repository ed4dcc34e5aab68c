"""The pods of owners of one kind: which owner a pod change affects, and pending writes by owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.controllers.owned_objects import written_metadata
from allot.controllers.runner import Services, is_about_a_dying_namespace
from allot.core.lifecycle.actions import Create, Delete, Resource, Write
from allot.core.lifecycle.disruption import PODS
from allot.core.model.codec import DecodeError, decode
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import LabelSelector, ObjectMeta, OwnerReference
from allot.core.selectors import Requirements
from allot.core.workloads.expectations import Expectations
from allot.core.workloads.ownership import BY_CONTROLLER, controller_keys, controller_reference, orphans_of, selector_of
from allot.core.workloads.replicaset import Failure

Object = dict[str, Any]

# Reconciling an owner costs in proportion to its pods, and writes a status: many pod changes are handled together.
_PAUSE_PER_POD_S = 1e-3
_PAUSE_MAX_S = 1.0
_FEW = 20


def _selector(owner: Object) -> Requirements | None:
    given = (owner.get("spec") or {}).get("selector")
    try:
        return selector_of(decode(given or {}, LabelSelector).object)
    except DecodeError:
        return None


class OwnedPods:
    """Pods by owner."""

    def __init__(
        self,
        services: Services,
        resource: Resource,
        owners: Informer[Object],
        read_selector: Callable[[Object], Requirements | None] = _selector,
    ) -> None:
        self._clock = services.clock
        self._resource = resource
        self._owners = owners
        self._read_selector = read_selector
        self.informer: Informer[Pod] = services.informers.typed(Pod, indexers={BY_CONTROLLER: controller_keys})
        self.expectations = Expectations()
        self._failures: dict[str, Failure] = {}
        # Namespace -> key of an owner -> its selector.
        self._selectors: dict[str, dict[str, Requirements]] = {}

    def watch(self, enqueue: Callable[[str, float], None]) -> None:
        """From now on report the keys of affected owners, and after how many seconds to reconcile them."""
        self._enqueue = enqueue
        self._owners.add_handler(self._owner_changed)
        self.informer.add_handler(self._pod_changed)

    def pause_after(self, change: Change[Object]) -> float:
        """After how many seconds to reconcile a changed owner: immediately, unless only its status has changed, which its
        controller writes itself after each pass.
        """
        old, new = change.old, change.new
        if old is None or new is None or _asked_for(old) != _asked_for(new):
            return 0.0
        return self._pause(_uid(new))

    # --- for reconcilers ---

    def of(self, owner: ObjectMeta) -> tuple[Pod, ...]:
        """All pods that the owner controls, and the orphans in its namespace that it may adopt."""
        cache = self.informer.cache
        own = cache.by_index(BY_CONTROLLER, owner.uid)
        selector = self._selectors.get(owner.namespace, {}).get(f"{owner.namespace}/{owner.name}")
        orphans = cache.by_index(BY_CONTROLLER, orphans_of(owner.namespace))
        if not orphans or selector is None:
            return own
        return own + tuple(pod for pod in orphans if selector.matches(pod.metadata.labels))

    def controlled_by(self, uid: str) -> tuple[Pod, ...]:
        """All pods that an owner controls."""
        return self.informer.cache.by_index(BY_CONTROLLER, uid)

    def get(self, key: str) -> Pod | None:
        """A pod."""
        return self.informer.cache.get(key)

    def has_seen(self, version: str) -> bool:
        """Whether everything up to a resourceVersion is known."""
        return self.informer.has_seen(version)

    def are_settled(self, owner: str) -> bool:
        """Whether everything that was written for an owner is known."""
        return self.expectations.are_met(owner, self, self._clock.monotonic())

    def failure_of(self, owner: str) -> Failure | None:
        """Why the last attempt to write pods for an owner failed."""
        return self._failures.get(owner)

    def forget_failure(self, owner: str) -> None:
        """Forget the failure before the next attempt."""
        self._failures.pop(owner, None)

    # --- events ---

    def written(self, action: Write, after: Object | None, error: ApiError | None) -> None:
        """Receives every write (`OnWritten`)."""
        if not isinstance(action, Create | Delete) or action.resource is not PODS:
            return
        now = self._clock.monotonic()
        if isinstance(action, Create):
            owner = action.object["metadata"]["ownerReferences"][0]["uid"]  # type: ignore[index]
            if after is not None:
                self.expectations.created(owner, written_metadata(after), now)
        else:
            pod = self.informer.cache.get(f"{action.namespace}/{action.name}")
            reference = None if pod is None else controller_reference(pod.metadata)
            if pod is None or reference is None:
                return
            owner = reference.uid
            if error is None:
                self.expectations.deleted(owner, pod.metadata, now)
        if error is not None and not is_about_a_dying_namespace(error):
            reason = "FailedCreate" if isinstance(action, Create) else "FailedDelete"
            self._failures.setdefault(owner, Failure(reason, error.message))

    def _owner_changed(self, change: Change[Object]) -> None:
        namespace = change.object["metadata"].get("namespace", "")
        selectors = self._selectors.setdefault(namespace, {})
        selector = None if change.new is None else self._read_selector(change.new)
        if selector is not None:
            selectors[change.key] = selector
        else:
            selectors.pop(change.key, None)
            if not selectors:
                del self._selectors[namespace]
        if change.new is None or (change.old is not None and _uid(change.old) != _uid(change.new)):
            gone = _uid(change.object if change.old is None else change.old)
            self.expectations.forget(gone)
            self._failures.pop(gone, None)

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        before = None if old is None or not old.metadata.owner_references else controller_reference(old.metadata)
        after = None if new is None or not new.metadata.owner_references else controller_reference(new.metadata)
        if before is not None and (after is None or after.uid != before.uid) and self._is_ours(before):
            assert old is not None
            self._look_at(old, before)
        if after is not None:
            if self._is_ours(after):
                assert new is not None
                self._look_at(new, after)
        elif new is not None and self._selectors and (before is not None or _labels(old) != new.metadata.labels):
            for key in self._wanting(new):
                self._enqueue(key, 0.0)

    def _is_ours(self, owner: OwnerReference) -> bool:
        return owner.kind == self._resource.kind and owner.api_version == self._resource.api_version

    def _look_at(self, pod: Pod, owner: OwnerReference) -> None:
        self._enqueue(f"{pod.metadata.namespace}/{owner.name}", self._pause(owner.uid))

    def _pause(self, owner: str) -> float:
        count = self.informer.cache.count(BY_CONTROLLER, owner)
        return 0.0 if count <= _FEW else min(count * _PAUSE_PER_POD_S, _PAUSE_MAX_S)

    def _wanting(self, orphan: Pod) -> Iterator[str]:
        for key, selector in self._selectors.get(orphan.metadata.namespace, {}).items():
            if selector.matches(orphan.metadata.labels):
                yield key


def _labels(pod: Pod | None) -> Mapping[str, str] | None:
    return None if pod is None else pod.metadata.labels


def _asked_for(owner: Object) -> Object:
    """An owner without the fields that its controllers and the server write."""
    metadata = {
        key: value for key, value in owner["metadata"].items() if key not in ("resourceVersion", "managedFields")
    }
    return {**owner, "metadata": metadata, "status": None}


def _uid(object_: Object) -> str:
    return str(object_["metadata"].get("uid", ""))
