"""JobSets: failed for good, held back by one of their Jobs, or suspended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from allot.core.advice.explain.causes.kueue import held_by_kueue, queue_of, workload_of
from allot.core.advice.explain.report import Explanation, Reason, State
from allot.core.advice.explain.wording import count, listed, one_line
from allot.core.advice.explain.workloads.jobs import explain_job
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, left_alone, not_as_wanted, of_pod
from allot.core.model.batch_v1 import Job
from allot.core.model.job_sets import JobSet
from allot.core.model.meta import Condition

_KIND = "JobSet"
_CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
# Its Jobs start one after the other.
_IN_ORDER = "StartupPolicyInProgress"
_ORDERED, _READY = "InOrder", "Ready"
_PROBE = re.compile(r"readiness probe .*")
# What a probe is called, or answers, that asks for more than its own pod.
_OTHERS = ("worker", "peer", "member", "quorum", "join")
_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"


def explain_job_set(scene: Scene, found: JobSet, *, briefly: bool) -> Explanation:
    """Why a JobSet has not completed."""
    spec, jobs = found.spec, scene.owned_by(Job, found)
    done, failed = _condition(found, "Completed"), _condition(found, "Failed")
    if done is not None:
        return as_wanted(_KIND, found, f"has completed: {one_line(done.message) or done.reason}", Reason.ENDED)
    held = _held_back(scene, jobs, briefly=briefly)
    if failed is not None:
        return _failed(found, failed, held)
    if spec.managed_by not in (None, _CONTROLLER):
        return as_wanted(_KIND, found, f"is managed by {spec.managed_by} (spec.managedBy)")
    if spec.suspend:
        return _suspended(scene, found)
    again = f" after {count(found.status.restarts, 'restart')}" if found.status.restarts else ""
    if held is not None:
        later = _later(found, jobs, held)
        text = f"waits{again}: {held.cause}{later.text if later is not None else ''}"
        made = of_pod(not_as_wanted(_KIND, found, held.reason, text), held)
        if later is None:
            return made
        own = not_as_wanted(_KIND, found, held.reason, text, advice=later.advice).changes
        return replace(made, changes=(*own, *made.changes) if later.is_circular else (*made.changes, *own))
    wanted = sum(each.replicas for each in spec.replicated_jobs)
    if not jobs and not found.status.conditions:
        text = f"has no Jobs{again}: no controller has processed it"
        return left_alone(scene, _KIND, found, text, "jobset-controller-manager")
    has = f"has {len(jobs)} of {count(wanted, 'Job')}{again}"
    if len(jobs) < wanted:
        order = " (startupPolicy: InOrder)" if _condition(found, _IN_ORDER) is not None else ""
        return not_as_wanted(_KIND, found, Reason.PROGRESSING, f"{has}: its controller is working on it{order}")
    return as_wanted(_KIND, found, has)


class _Later(NamedTuple):
    """Jobs that are not created yet, because others have to be ready first. text: phrased to follow why those are not."""

    text: str
    advice: tuple[str, ...] = ()
    # Whether the others seem to need these to become ready.
    is_circular: bool = False


def _later(found: JobSet, jobs: Sequence[Job], held: Explanation) -> _Later | None:
    """What waits for the Job that holds a JobSet back; None if nothing does."""
    replicated = {job.metadata.name: job.metadata.labels.get(_REPLICATED_JOB, "") for job in jobs}
    first = replicated.get(held.name, "")
    names = [each.name for each in found.spec.replicated_jobs]
    if first not in names:
        return None
    absent = [each for each in found.spec.replicated_jobs if each.name not in replicated.values()]
    policy = found.spec.startup_policy
    if policy is not None and policy.startup_policy_order == _ORDERED:
        waiting = [each.name for each in absent if names.index(each.name) > names.index(first)]
        rule, remedy = f"startupPolicy: {_ORDERED}", "set startupPolicyOrder: AnyOrder in"
    else:
        waiting = [
            each.name for each in absent if any((one.name, one.status) == (first, _READY) for one in each.depends_on)
        ]
        rule, remedy = f"dependsOn {first}", f"drop dependsOn {first} from"
    if not waiting:
        return None
    text = f"; the Jobs of {listed(waiting)} are created only when {first} is ready ({rule})"
    if held.reason is not Reason.NOT_READY:
        return _Later(text)
    wait = "waits" if len(waiting) == 1 else "wait"
    probe = (
        f"if the readiness probe of {first} needs {listed(waiting)}, which {wait} for it, let it check {first} alone"
    )
    asked = _PROBE.search(held.cause)
    words = [word.removesuffix("s") for name in waiting for word in name.lower().split("-")]
    circular = asked is not None and any(word in asked[0].lower() for word in (*_OTHERS, *words))
    advice = (probe, f"{remedy} JobSet {found.metadata.name} (recreate the JobSet)")
    return _Later(text, advice, circular)


def _condition(found: JobSet, type_: str) -> Condition | None:
    return next((each for each in found.status.conditions if each.type == type_ and each.status == "True"), None)


def _held_back(scene: Scene, jobs: Sequence[Job], *, briefly: bool) -> Explanation | None:
    """Its Job that has failed, or else one that is not as wanted."""
    explained = [explain_job(scene, job, briefly=briefly) for job in jobs]
    wrong = [each for each in explained if each.state is State.NOT_AS_WANTED]
    return min(wrong, key=lambda each: each.reason is not Reason.JOB_FAILED, default=None)


def _failed(found: JobSet, failed: Condition, held: Explanation | None) -> Explanation:
    most = found.spec.failure_policy.max_restarts if found.spec.failure_policy is not None else 0
    restarts = f", after {found.status.restarts} of {count(most, 'restart')}" if most else ""
    text = f"has failed ({failed.reason}{restarts})"
    if held is None:
        said = one_line(failed.message)
        advice = ("recreate the JobSet when that is fixed: a failed JobSet does not restart",)
        return not_as_wanted(_KIND, found, Reason.JOB_FAILED, f"{text}: {said}" if said else text, advice=advice)
    return of_pod(not_as_wanted(_KIND, found, Reason.JOB_FAILED, f"{text}: {held.cause}"), held)


def _suspended(scene: Scene, found: JobSet) -> Explanation:
    metadata = found.metadata
    if not queue_of(metadata) and workload_of(scene.what_if, metadata) is None:
        resume = f'kubectl patch jobset {metadata.name} -n {metadata.namespace} --type merge -p \'{{"spec":{{"suspend":false}}}}\''
        text = "is suspended (spec.suspend): it creates no pods"
        return not_as_wanted(_KIND, found, Reason.SUSPENDED, text, advice=(resume,))
    held = held_by_kueue(scene.what_if, _KIND, metadata, ())
    queue = queue_of(metadata)
    text = f"is suspended until Kueue admits it{f' from queue {queue}' if queue else ''}"
    text += f": {held.text}" if held.text else ", which it has not done yet"
    return not_as_wanted(_KIND, found, Reason.SUSPENDED, text, advice=(held.advice, *held.others))
