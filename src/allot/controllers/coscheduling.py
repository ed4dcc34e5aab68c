"""The controller of scheduling.x-k8s.io PodGroups: wires `core.lifecycle.coscheduling`. It begins when a server has the kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.late_kinds import WhenServed
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers
from allot.core.lifecycle.coscheduling import POD_GROUPS, reconcile_group
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import CoschedulingPodGroup
from allot.core.scheduling import coscheduling_group

_MEMBERS = "coscheduling: members"


def make(services: Services) -> WhenServed:
    """The controller."""
    return WhenServed(services, (POD_GROUPS,), _controller)


def _members(pod: Pod) -> Iterator[str]:
    name = coscheduling_group(pod)
    if name:
        yield f"{pod.metadata.namespace}/{name}"


def _controller(services: Services) -> Controller[str]:
    pods: Informer[Pod] = services.informers.typed(Pod, indexers={_MEMBERS: _members})
    groups: Informer[dict[str, Any]] = services.informers.dynamic(
        POD_GROUPS.group, POD_GROUPS.version, POD_GROUPS.plural, namespaced=True
    )

    def reconcile(key: str, answers: Answers) -> tuple[Action, ...]:  # noqa: ARG001
        found = groups.cache.get(key)
        if found is None:
            return ()
        try:
            group = decode_served(without_managed_fields(found), CoschedulingPodGroup)
        except DecodeError:
            # Nothing that it says can be relied on.
            return ()
        return reconcile_group(group, list(pods.cache.by_index(_MEMBERS, key)))

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name="coscheduling",
        component="coscheduling-controller",
        waits_for=(pods, groups),
    )

    def group_changed(change: Change[dict[str, Any]]) -> None:
        controller.queue.add(change.key)

    def pod_changed(change: Change[Pod]) -> None:
        for key in _members(change.object):
            controller.queue.add(key)

    groups.add_handler(group_changed)
    pods.add_handler(pod_changed)
    return controller
