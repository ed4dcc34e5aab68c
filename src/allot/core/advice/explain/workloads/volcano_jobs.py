"""Volcano's Jobs: not let in by their queue, held back by their pods, or failed."""

from __future__ import annotations

from allot.core.advice.explain.causes.volcano import not_let_in
from allot.core.advice.explain.report import Explanation, Reason
from allot.core.advice.explain.wording import count, one_line
from allot.core.advice.explain.workloads.scene import (
    Scene,
    as_wanted,
    held_back,
    left_alone,
    live_pods,
    not_as_wanted,
    of_pod,
)
from allot.core.model import core_v1
from allot.core.model.foreign_groups import VolcanoPodGroup
from allot.core.model.volcano_jobs import VolcanoJob

_KIND = "Job"
_FAILED = ("Failed", "Aborted", "Aborting", "Terminated", "Terminating")


def explain_volcano_job(scene: Scene, found: VolcanoJob, *, briefly: bool) -> Explanation:
    """Why a Job of Volcano does not run."""
    state = found.status.state
    wanted = sum(task.replicas for task in found.spec.tasks)
    pods = scene.owned_by(core_v1.Pod, found)
    if state.phase == "Completed":
        return as_wanted(_KIND, found, f"has completed: {count(found.status.succeeded, 'pod')} succeeded", Reason.ENDED)
    if state.phase in _FAILED:
        said = one_line(state.message or state.reason)
        text = f"has ended ({state.phase}){f': {said}' if said else ''}"
        failed = [pod for pod in pods if pod.status.phase == "Failed"]
        if not failed:
            return not_as_wanted(_KIND, found, Reason.JOB_FAILED, text)
        last = scene.explain_pod(failed[-1], briefly)
        return of_pod(not_as_wanted(_KIND, found, Reason.JOB_FAILED, f"{text}; pod {last.cause}"), last)
    held = held_back(scene, pods, briefly=briefly)
    if held is not None:
        text = f"has {found.status.running} of {count(wanted, 'pod')} running: {held.text}"
        return of_pod(not_as_wanted(_KIND, found, held.explanation.reason, text), held.explanation)
    if live_pods(pods):
        return as_wanted(_KIND, found, f"has {len(live_pods(pods))} of {count(wanted, 'pod')} running")
    groups = scene.owned_by(VolcanoPodGroup, found)
    if not groups:
        text = "has no PodGroup and no pods: no controller has processed it since it was created"
        return left_alone(scene, _KIND, found, text, "volcano-controllers")
    why = not_let_in(scene.what_if, groups[0])
    return not_as_wanted(_KIND, found, why.reason, f"has no pods because {why.text}", advice=why.advice)
