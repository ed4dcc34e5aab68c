"""The controllers of ReplicaSets and ReplicationControllers, which differ only in what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.owned_objects import BY_SOURCE_CONTROLLER, source_controller_keys
from allot.controllers.owned_pods import OwnedPods
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, LookUp, Resource
from allot.core.model.apps_v1 import ReplicaSet
from allot.core.model.codec import DecodeError
from allot.core.model.core_v1 import Pod
from allot.core.selectors import Requirements
from allot.core.workloads.ownership import controller_reference, selector_of
from allot.core.workloads.replicaset import read_replica_set, read_replication_controller, reconcile
from allot.core.workloads.resources import REPLICA_SETS, REPLICATION_CONTROLLERS
from allot.core.workloads.whole import Whole

Object = dict[str, Any]


class ReplicaSets:
    """Creates and deletes pods of ReplicaSets, or of ReplicationControllers read as such."""

    def __init__(
        self, services: Services, resource: Resource, read: Callable[[Object], Whole[ReplicaSet]], name: str
    ) -> None:
        self._clock = services.clock
        self._read = read
        self._sets: Informer[Object] = services.informers.dynamic(
            resource.group, resource.version, resource.plural, namespaced=True
        )
        self._sets.cache.add_index(BY_SOURCE_CONTROLLER, source_controller_keys)
        self._pods = OwnedPods(services, resource, self._sets, self._selector)
        self._controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name=resource.kind.lower(),
            component=name,
            waits_for=(self._sets, self._pods.informer),
            on_written=self._pods.written,
            tells_notes_apart=True,
        )
        self._pods.watch(self._controller.queue.add_after)
        self._sets.add_handler(self._set_changed)

    async def run(self) -> None:
        """Control until cancelled."""
        await self._controller.run()

    def _selector(self, source: Object) -> Requirements | None:
        try:
            return selector_of(self._read(source).value.spec.selector)
        except DecodeError:
            return None

    def _set_changed(self, change: Change[Object]) -> None:
        self._controller.queue.add_after(change.key, self._pods.pause_after(change))

    def _reconcile(self, key: str, answers: Answers) -> Sequence[Action]:
        found = self._sets.cache.get(key)
        if found is None:
            return ()
        replica_set = self._read(found)
        uid = replica_set.metadata.uid
        actions = reconcile(
            replica_set,
            self._pods.of(replica_set.metadata),
            partial(self._related, replica_set),
            answers,
            self._clock.seconds(),
            is_settled=self._pods.are_settled(uid),
            failure=self._pods.failure_of(uid),
        )
        if not any(isinstance(action, LookUp) for action in actions):
            self._pods.forget_failure(uid)
        return actions

    def _related(self, replica_set: Whole[ReplicaSet]) -> Iterable[Pod]:
        """The pods of all ReplicaSets of its owner."""
        owner = controller_reference(replica_set.metadata)
        if owner is None:
            return self._pods.controlled_by(replica_set.metadata.uid)
        siblings = self._sets.cache.by_index(BY_SOURCE_CONTROLLER, owner.uid)
        return (pod for each in siblings for pod in self._pods.controlled_by(each["metadata"]["uid"]))


def make(services: Services) -> ReplicaSets:
    """The controller `replicaset-controller`."""
    return ReplicaSets(services, REPLICA_SETS, read_replica_set, "replicaset-controller")


def make_replication(services: Services) -> ReplicaSets:
    """The controller `replicationcontroller-controller`."""
    return ReplicaSets(services, REPLICATION_CONTROLLERS, read_replication_controller, "replication-controller")
