"""The controllers of other schedulers' PodGroups that have phases: wire `core.lifecycle.coscheduling` and `core.lifecycle.volcano_groups`. Each
starts when the server has its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from allot.client.informer import Change, Informer
from allot.controllers.late_kinds import WhenServed
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle import coscheduling, volcano_groups
from allot.core.lifecycle.actions import Action, Answers, Resource
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import CoschedulingPodGroup, VolcanoPodGroup
from allot.core.model.meta import APIStruct
from allot.core.scheduling import DIALECTS

G = TypeVar("G", bound=APIStruct)
Reconcile = Callable[[G, Sequence[Pod]], tuple[Action, ...]]


def make(services: Services) -> WhenServed:
    """The controller of scheduling.x-k8s.io."""
    return _of(services, "coscheduling", coscheduling.POD_GROUPS, CoschedulingPodGroup, coscheduling.reconcile_group)


def make_for_volcano(services: Services) -> WhenServed:
    """The controller of scheduling.volcano.sh."""
    return _of(services, "volcano", volcano_groups.POD_GROUPS, VolcanoPodGroup, volcano_groups.reconcile_group)


def _of(services: Services, name: str, resource: Resource, type_: type[G], reconcile: Reconcile[G]) -> WhenServed:
    return WhenServed(services, (resource,), lambda services: _controller(services, name, resource, type_, reconcile))


def _controller(
    services: Services, name: str, resource: Resource, type_: type[G], reconcile_group: Reconcile[G]
) -> Controller[str]:
    dialect = next(each for each in DIALECTS if each.api_group == resource.group)
    index = f"{name}: members"

    def members(pod: Pod) -> Iterator[str]:
        group = dialect.name_in(pod)
        if group:
            yield f"{pod.metadata.namespace}/{group}"

    pods: Informer[Pod] = services.informers.typed(Pod, indexers={index: members})
    groups: Informer[dict[str, Any]] = services.informers.dynamic(
        resource.group, resource.version, resource.plural, namespaced=True
    )

    def reconcile(key: str, answers: Answers) -> tuple[Action, ...]:  # noqa: ARG001
        found = groups.cache.get(key)
        if found is None:
            return ()
        try:
            group = decode_served(without_managed_fields(found), type_)
        except DecodeError:
            # An invalid object is ignored.
            return ()
        return reconcile_group(group, list(pods.cache.by_index(index, key)))

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name=name,
        component=f"{name}-controller",
        waits_for=(pods, groups),
    )

    def group_changed(change: Change[dict[str, Any]]) -> None:
        controller.queue.add(change.key)

    def pod_changed(change: Change[Pod]) -> None:
        for key in members(change.object):
            controller.queue.add(key)

    groups.add_handler(group_changed)
    pods.add_handler(pod_changed)
    return controller
