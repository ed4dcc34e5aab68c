"""The PodGroup protection controller: wires `core.lifecycle.pod_groups`. Admission sets the finalizer itself."""

from __future__ import annotations

from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers
from allot.core.lifecycle.claim_owners import group_name, key_of
from allot.core.lifecycle.disruption import is_terminal
from allot.core.lifecycle.pod_groups import active_member_of, is_candidate, reconcile_pod_group
from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import PodGroup

_ACTIVE = "podgroupprotection: active members"


def make(services: Services) -> Controller[str]:
    """The controller, with its handlers in place."""
    pods: Informer[Pod] = services.informers.typed(Pod, indexers={_ACTIVE: active_member_of})
    groups: Informer[PodGroup] = services.informers.typed(PodGroup)

    def reconcile(key: str, answers: Answers) -> tuple[Action, ...]:  # noqa: ARG001
        group = groups.cache.get(key)
        return () if group is None else reconcile_pod_group(group, pods.cache.by_index(_ACTIVE, key))

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name="podgroupprotection",
        component="podgroup-protection-controller",
        waits_for=(pods, groups),
    )

    def group_changed(change: Change[PodGroup]) -> None:
        if change.new is not None and is_candidate(change.new):
            controller.queue.add(change.key)

    def pod_changed(change: Change[Pod]) -> None:
        pod = change.object
        name = group_name(pod)
        if name and (change.new is None or is_terminal(pod)):
            controller.queue.add(key_of(pod.metadata.namespace, name))

    groups.add_handler(group_changed)
    pods.add_handler(pod_changed)
    return controller
