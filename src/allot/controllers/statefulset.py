"""The StatefulSet controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.owned_pods import OwnedPods
from allot.controllers.revisions import Revisions
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers
from allot.core.model.apps_v1 import StatefulSet
from allot.core.workloads.resources import STATEFUL_SETS
from allot.core.workloads.statefulset import View, reconcile
from allot.core.workloads.whole import whole

Object = dict[str, Any]


class StatefulSets:
    """Creates, updates and deletes pods of StatefulSets, and creates their volume claims."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        informers = services.informers
        self._sets: Informer[Object] = informers.dynamic("apps", "v1", "statefulsets", namespaced=True)
        self._claims: Informer[Object] = informers.dynamic("", "v1", "persistentvolumeclaims", namespaced=True)
        self._revisions = Revisions(services, STATEFUL_SETS)
        self._pods = OwnedPods(services, STATEFUL_SETS, self._sets)
        self._controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name="statefulset",
            component="statefulset-controller",
            waits_for=(self._sets, self._claims, self._revisions.informer, self._pods.informer),
            on_written=self._pods.written,
            tells_notes_apart=True,
        )
        self._pods.watch(self._controller.queue.add_after)
        self._revisions.watch(self._controller.queue.add)
        self._sets.add_handler(self._set_changed)

    async def run(self) -> None:
        """Control until cancelled."""
        await self._controller.run()

    def _set_changed(self, change: Change[Object]) -> None:
        self._controller.queue.add_after(change.key, self._pods.pause_after(change))

    def _reconcile(self, key: str, answers: Answers) -> Sequence[Action]:
        found = self._sets.cache.get(key)
        if found is None:
            return ()
        set_ = whole(STATEFUL_SETS, StatefulSet, found)
        metadata = set_.metadata

        def claim(name: str) -> Object | None:
            return self._claims.cache.get(f"{metadata.namespace}/{name}")

        view = View(
            pods=self._pods.of(metadata),
            revisions=self._revisions.of(metadata),
            revision=self._revisions.in_namespace(metadata.namespace),
            claim=claim,
            is_settled=self._pods.are_settled(metadata.uid),
        )
        return reconcile(set_, view, answers, self._clock.seconds())


def make(services: Services) -> StatefulSets:
    """The controller `statefulset-controller`."""
    return StatefulSets(services)
