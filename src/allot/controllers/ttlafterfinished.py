"""The TTL-after-finished controller: wires `core.workloads.job_ttl`."""

from __future__ import annotations

from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers
from allot.core.workloads.job_ttl import reconcile_ttl

Object = dict[str, Any]


def make(services: Services) -> Controller[str]:
    """The controller `ttl-after-finished-controller`."""
    jobs: Informer[Object] = services.informers.dynamic("batch", "v1", "jobs", namespaced=True)

    def reconcile(key: str, answers: Answers) -> tuple[Action, ...]:
        job = jobs.cache.get(key)
        return () if job is None else reconcile_ttl(job, answers, services.clock.seconds())

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name="ttl_jobs_to_delete",
        component="ttl-after-finished-controller",
        waits_for=(jobs,),
    )

    def job_changed(change: Change[Object]) -> None:
        if change.new is not None and change.new["spec"].get("ttlSecondsAfterFinished") is not None:
            controller.queue.add(change.key)

    jobs.add_handler(job_changed)
    return controller
