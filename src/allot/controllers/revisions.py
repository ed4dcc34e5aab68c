"""The revisions (ControllerRevision) of StatefulSets and DaemonSets, by owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.owned_objects import BY_SOURCE_CONTROLLER, source_controller, source_controller_keys
from allot.controllers.runner import Services
from allot.core.lifecycle.actions import Resource
from allot.core.model.apps_v1 import ControllerRevision
from allot.core.model.meta import ObjectMeta
from allot.core.workloads.ownership import orphans_of
from allot.core.workloads.resources import CONTROLLER_REVISIONS
from allot.core.workloads.whole import Whole, whole

Object = dict[str, Any]


class Revisions:
    """Known revisions."""

    def __init__(self, services: Services, owners: Resource) -> None:
        self._kind = owners.kind
        self.informer: Informer[Object] = services.informers.dynamic(
            "apps", "v1", "controllerrevisions", namespaced=True
        )
        self.informer.cache.add_index(BY_SOURCE_CONTROLLER, source_controller_keys)

    def of(self, owner: ObjectMeta) -> tuple[Whole[ControllerRevision], ...]:
        """The revisions that the owner controls, and the orphans in its namespace."""
        cache = self.informer.cache
        own = cache.by_index(BY_SOURCE_CONTROLLER, owner.uid)
        orphans = cache.by_index(BY_SOURCE_CONTROLLER, orphans_of(owner.namespace))
        return tuple(_whole(each) for each in own + orphans)

    def in_namespace(self, namespace: str) -> Callable[[str], Whole[ControllerRevision] | None]:
        """Any revision of a namespace by name."""

        def named(name: str) -> Whole[ControllerRevision] | None:
            found = self.informer.cache.get(f"{namespace}/{name}")
            return None if found is None else _whole(found)

        return named

    def watch(self, enqueue: Callable[[str], None]) -> None:
        """From now on report the keys of owners whose revisions change."""

        def changed(change: Change[Object]) -> None:
            owner = source_controller(change.object)
            if owner is not None and owner.get("kind") == self._kind:
                enqueue(f"{change.object['metadata'].get('namespace', '')}/{owner.get('name')}")

        self.informer.add_handler(changed)


def _whole(source: Object) -> Whole[ControllerRevision]:
    return whole(CONTROLLER_REVISIONS, ControllerRevision, source)
