"""The Deployment controller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from allot.client.errors import AlreadyExists, ApiError, Conflict
from allot.client.informer import Change, Informer
from allot.controllers.owned_objects import (
    BY_SOURCE_CONTROLLER,
    source_controller,
    source_controller_keys,
    written_metadata,
)
from allot.controllers.runner import Controller, Services, is_about_a_dying_namespace
from allot.core.lifecycle.actions import Action, Answers, Create, LookUp, RequeueAfter, Update, Write
from allot.core.model.apps_v1 import Deployment, ReplicaSet
from allot.core.model.core_v1 import Pod
from allot.core.workloads.deployment import View, reconcile
from allot.core.workloads.expectations import Expectations
from allot.core.workloads.ownership import BY_CONTROLLER, controller_keys, controller_reference, orphans_of
from allot.core.workloads.resources import DEPLOYMENTS, REPLICA_SETS
from allot.core.workloads.whole import Whole, whole

Object = dict[str, Any]

_UNSETTLED_S = 30.0


class Deployments:
    """Creates, scales and deletes ReplicaSets of Deployments."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        informers = services.informers
        self._deployments: Informer[Object] = informers.dynamic("apps", "v1", "deployments", namespaced=True)
        self._sets: Informer[Object] = informers.dynamic("apps", "v1", "replicasets", namespaced=True)
        self._sets.cache.add_index(BY_SOURCE_CONTROLLER, source_controller_keys)
        self._pods: Informer[Pod] = informers.typed(Pod, indexers={BY_CONTROLLER: controller_keys})
        self._expectations = Expectations()
        # Why the last attempt to create a ReplicaSet failed, by uid of the Deployment.
        self._failures: dict[str, str] = {}
        self._controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name="deployment",
            component="deployment-controller",
            waits_for=(self._deployments, self._sets, self._pods),
            on_written=self._written,
            tells_notes_apart=True,
        )
        self._deployments.add_handler(self._deployment_changed)
        self._sets.add_handler(self._set_changed)
        self._pods.add_handler(self._pod_changed)

    async def run(self) -> None:
        """Control until cancelled."""
        await self._controller.run()

    # --- affected keys ---

    def _deployment_changed(self, change: Change[Object]) -> None:
        if change.new is None:
            uid = change.object["metadata"]["uid"]
            self._failures.pop(uid, None)
            self._expectations.forget(uid)
        self._controller.queue.add(change.key)

    def _set_changed(self, change: Change[Object]) -> None:
        before = None if change.old is None else source_controller(change.old)
        after = None if change.new is None else source_controller(change.new)
        namespace = change.object["metadata"].get("namespace", "")
        for owner in (before, after):
            if owner is not None and owner.get("kind") == DEPLOYMENTS.kind:
                self._controller.queue.add(f"{namespace}/{owner.get('name')}")
        if after is None and change.new is not None:
            for key in self._in_namespace(namespace):
                self._controller.queue.add(key)

    def _in_namespace(self, namespace: str) -> Iterator[str]:
        """Orphans are rare: all Deployments of the namespace check whether they adopt it."""
        prefix = f"{namespace}/"
        return (key for key in self._deployments.cache.keys() if key.startswith(prefix))  # noqa: SIM118

    def _pod_changed(self, change: Change[Pod]) -> None:
        """The end of an old ReplicaSet's last pod lets a Deployment with strategy Recreate continue."""
        old, new = change.old, change.new
        if old is None or not old.metadata.owner_references:
            return
        if new is not None and new.status.phase == old.status.phase:
            return
        owner = controller_reference(old.metadata)
        if owner is None or owner.kind != REPLICA_SETS.kind:
            return
        set_ = self._sets.cache.get(f"{old.metadata.namespace}/{owner.name}")
        above = None if set_ is None else source_controller(set_)
        if above is None or above.get("kind") != DEPLOYMENTS.kind:
            return
        key = f"{old.metadata.namespace}/{above.get('name')}"
        deployment = self._deployments.cache.get(key)
        if deployment is not None and (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
            self._controller.queue.add(key)

    # --- what to do ---

    def _reconcile(self, key: str, answers: Answers) -> Sequence[Action]:
        found = self._deployments.cache.get(key)
        if found is None:
            return ()
        deployment = whole(DEPLOYMENTS, Deployment, found)
        metadata = deployment.metadata
        if not self._expectations.are_met(metadata.uid, self, self._clock.monotonic()):
            # Sizes depend on all ReplicaSets together; the watch reports when they are known.
            return (RequeueAfter(seconds=_UNSETTLED_S),)
        cache = self._sets.cache
        own = cache.by_index(BY_SOURCE_CONTROLLER, metadata.uid)
        orphans = cache.by_index(BY_SOURCE_CONTROLLER, orphans_of(metadata.namespace))

        def named(name: str) -> Whole[ReplicaSet] | None:
            return self.get(f"{metadata.namespace}/{name}")

        def pods_of(uid: str) -> tuple[Pod, ...]:
            return self._pods.cache.by_index(BY_CONTROLLER, uid)

        view = View(
            replica_sets=tuple(whole(REPLICA_SETS, ReplicaSet, each) for each in own + orphans),
            named=named,
            pods_of=pods_of,
            failure=self._failures.get(metadata.uid, ""),
        )
        actions = reconcile(deployment, view, answers, self._clock.seconds())
        if not any(isinstance(action, LookUp) for action in actions):
            self._failures.pop(metadata.uid, None)
        return actions

    def get(self, key: str) -> Whole[ReplicaSet] | None:
        """A ReplicaSet."""
        source = self._sets.cache.get(key)
        return None if source is None else whole(REPLICA_SETS, ReplicaSet, source)

    def has_seen(self, version: str) -> bool:
        """Whether all ReplicaSets up to a resourceVersion are known."""
        return self._sets.has_seen(version)

    def _written(self, action: Write, after: Object | None, error: ApiError | None) -> None:
        if not isinstance(action, Create | Update) or action.resource is not REPLICA_SETS:
            return
        reference = source_controller(action.object)  # type: ignore[arg-type]
        owner = "" if reference is None else str(reference.get("uid", ""))
        if after is not None:
            self._expectations.updated(owner, written_metadata(after), self._clock.monotonic())
        elif isinstance(action, Create) and not isinstance(error, AlreadyExists | Conflict):
            assert error is not None
            if not is_about_a_dying_namespace(error):
                self._failures[owner] = error.message


def make(services: Services) -> Deployments:
    """The controller `deployment-controller`."""
    return Deployments(services)
