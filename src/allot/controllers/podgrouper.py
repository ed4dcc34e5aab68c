"""The pod grouper: wires `core.workloads.pod_grouper`. Starts when the server has KAI's PodGroups."""

from __future__ import annotations

from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.late_kinds import WhenServed
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, LookUp, Resource
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import DeviceClass, ResourceClaimTemplate, ResourceSlice
from allot.core.model.scheduling_v1 import PriorityClass
from allot.core.workloads.gpu_shares import CLAIM, reconcile_template
from allot.core.workloads.pod_grouper import POD_GROUPS, is_concerned, reconcile_pod
from allot.core.workloads.pod_grouping import OWNERS

Object = dict[str, Any]
# Kinds that controllers of this process watch anyway; others need requests.
_WATCHED = ("apps", "batch")


def make(services: Services) -> WhenServed:
    """The controller."""
    return WhenServed(services, (POD_GROUPS,), _controller)


def _controller(services: Services) -> Controller[str]:
    pods: Informer[Pod] = services.informers.typed(Pod)
    classes: Informer[PriorityClass] = services.informers.typed(PriorityClass)
    device_classes: Informer[DeviceClass] = services.informers.typed(DeviceClass)
    slices: Informer[ResourceSlice] = services.informers.typed(ResourceSlice)
    templates: Informer[ResourceClaimTemplate] = services.informers.typed(ResourceClaimTemplate)
    groups = _watch(services, POD_GROUPS)
    owners = {
        resource: _watch(services, resource)
        for known in OWNERS.values()
        for resource in known
        if resource.group in _WATCHED
    }

    def reconcile(key: str, answers: Answers) -> tuple[Action, ...]:
        pod = pods.cache.get(key)
        if pod is None:
            return ()

        def find(resource: Resource, namespace: str, name: str) -> Object | LookUp | None:
            informer = owners.get(resource)
            found = informer.cache.get(f"{namespace}/{name}") if informer is not None else None
            if found is not None:
                return found
            question = LookUp(resource=resource, namespace=namespace, name=name)
            answer: Object | LookUp | None = answers.get(question, question)
            return answer

        names = {each.metadata.name for each in classes.cache}
        return (*reconcile_pod(pod, find, groups.cache.get, names), *share_of(pod))

    def share_of(pod: Pod) -> tuple[Action, ...]:
        wanted = next(
            (each.resource_claim_template_name for each in pod.spec.resource_claims if each.name == CLAIM), ""
        )
        if not wanted or pod.spec.node_name:
            return ()
        known = templates.cache.get(f"{pod.metadata.namespace}/{wanted}")
        return reconcile_template(pod, known, device_classes.cache, slices.cache)

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name="pod_grouper",
        component="pod-grouper-controller",
        waits_for=(pods, classes, device_classes, slices, templates, groups, *owners.values()),
    )

    def pod_changed(change: Change[Pod]) -> None:
        if change.new is not None and is_concerned(change.new):
            controller.queue.add(change.key)

    pods.add_handler(pod_changed)
    return controller


def _watch(services: Services, resource: Resource) -> Informer[Object]:
    return services.informers.dynamic(resource.group, resource.version, resource.plural, namespaced=resource.namespaced)
