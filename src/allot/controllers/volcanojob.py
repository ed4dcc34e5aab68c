"""The controller of Volcano's Jobs: wires `core.workloads.volcano_job`. Starts when the server has the kind."""

from __future__ import annotations

from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.late_kinds import WhenServed
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers
from allot.core.lifecycle.volcano_groups import POD_GROUPS
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.core_v1 import Pod
from allot.core.model.volcano_jobs import BATCH_VOLCANO, VolcanoJob
from allot.core.workloads.ownership import BY_CONTROLLER, controller_keys, controller_reference
from allot.core.workloads.volcano_job import JOBS, SERVICES, group_name, reconcile_job

Object = dict[str, Any]


def make(services: Services) -> WhenServed:
    """The controller."""
    return WhenServed(services, (JOBS, POD_GROUPS), _controller)


def _controller(services: Services) -> Controller[str]:
    informers = services.informers
    pods: Informer[Pod] = informers.typed(Pod, indexers={BY_CONTROLLER: controller_keys})
    jobs: Informer[Object] = informers.dynamic(JOBS.group, JOBS.version, JOBS.plural, namespaced=True)
    groups: Informer[Object] = informers.dynamic(
        POD_GROUPS.group, POD_GROUPS.version, POD_GROUPS.plural, namespaced=True
    )
    known_services: Informer[Object] = informers.dynamic("", "v1", SERVICES.plural, namespaced=True)

    def reconcile(key: str, answers: Answers) -> tuple[Action, ...]:  # noqa: ARG001
        found = jobs.cache.get(key)
        if found is None:
            return ()
        try:
            job = decode_served(without_managed_fields(found), VolcanoJob)
        except DecodeError:
            # An invalid object is ignored.
            return ()
        own = pods.cache.by_index(BY_CONTROLLER, job.metadata.uid)
        group = groups.cache.get(f"{job.metadata.namespace}/{group_name(job)}")
        has_service = key in known_services.cache
        return reconcile_job(job, own, group, has_service=has_service, now_s=services.clock.seconds())

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name="volcano_job",
        component="volcano-job-controller",
        waits_for=(pods, jobs, groups, known_services),
    )

    def job_changed(change: Change[Object]) -> None:
        controller.queue.add(change.key)

    def pod_changed(change: Change[Pod]) -> None:
        owner = controller_reference(change.object.metadata)
        if owner is not None and owner.api_version.partition("/")[0] == BATCH_VOLCANO:
            controller.queue.add(f"{change.object.metadata.namespace}/{owner.name}")

    jobs.add_handler(job_changed)
    pods.add_handler(pod_changed)
    return controller
