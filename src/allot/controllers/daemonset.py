"""The DaemonSet controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.owned_pods import OwnedPods
from allot.controllers.revisions import Revisions
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.core_v1 import Node
from allot.core.workloads.daemonset import FailedPodBackoff, View, reconcile
from allot.core.workloads.resources import DAEMON_SETS
from allot.core.workloads.whole import whole

Object = dict[str, Any]

# Nodes change in groups, and every set checks all of them.
_NODES_PAUSE_S = 0.2
_TIDY_S = 60.0


class DaemonSets:
    """Creates, replaces and deletes pods of DaemonSets."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        informers = services.informers
        self._sets: Informer[Object] = informers.dynamic("apps", "v1", "daemonsets", namespaced=True)
        self._nodes: Informer[Node] = informers.typed(Node)
        self._revisions = Revisions(services, DAEMON_SETS)
        self._pods = OwnedPods(services, DAEMON_SETS, self._sets)
        self._backoff = FailedPodBackoff()
        self._controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name="daemonset",
            component="daemonset-controller",
            waits_for=(self._sets, self._nodes, self._revisions.informer, self._pods.informer),
            on_written=self._pods.written,
            background=(self._tidy,),
            tells_notes_apart=True,
        )
        self._pods.watch(self._controller.queue.add_after)
        self._revisions.watch(self._controller.queue.add)
        self._sets.add_handler(self._set_changed)
        self._nodes.add_handler(self._node_changed)

    async def run(self) -> None:
        """Control until cancelled."""
        await self._controller.run()

    async def _tidy(self) -> None:
        while True:
            await self._clock.sleep(_TIDY_S)
            self._backoff.tidy(self._clock.seconds())

    def _set_changed(self, change: Change[Object]) -> None:
        self._controller.queue.add_after(change.key, self._pods.pause_after(change))

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None:
            is_same = old.metadata.labels == new.metadata.labels and old.spec.taints == new.spec.taints
            if is_same:
                return
        for key in self._sets.cache.keys():  # noqa: SIM118 - iteration gives objects
            self._controller.queue.add_after(key, _NODES_PAUSE_S)

    def _reconcile(self, key: str, answers: Answers) -> Sequence[Action]:
        found = self._sets.cache.get(key)
        if found is None:
            return ()
        set_ = whole(DAEMON_SETS, DaemonSet, found)
        metadata = set_.metadata
        view = View(
            pods=self._pods.of(metadata),
            revisions=self._revisions.of(metadata),
            revision=self._revisions.in_namespace(metadata.namespace),
            nodes=tuple(self._nodes.cache),
            backoff=self._backoff,
            is_settled=self._pods.are_settled(metadata.uid),
        )
        return reconcile(set_, view, answers, self._clock.seconds())


def make(services: Services) -> DaemonSets:
    """The controller `daemonset-controller`."""
    return DaemonSets(services)
