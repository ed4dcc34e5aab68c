"""JobSets: failed for good, held back by one of their Jobs, or suspended."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.explain.causes.kueue import held_by_kueue, queue_of, workload_of
from allot.core.advice.explain.report import Explanation, Reason, State
from allot.core.advice.explain.wording import count, one_line
from allot.core.advice.explain.workloads.jobs import explain_job
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, left_alone, not_as_wanted, of_pod
from allot.core.model.batch_v1 import Job
from allot.core.model.job_sets import JobSet
from allot.core.model.meta import Condition

_KIND = "JobSet"
_CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
# Its Jobs start one after the other.
_IN_ORDER = "StartupPolicyInProgress"


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
        return of_pod(not_as_wanted(_KIND, found, held.reason, f"waits{again}: {held.cause}"), held)
    wanted = sum(each.replicas for each in spec.replicated_jobs)
    if not jobs and not found.status.conditions:
        text = f"has no Jobs{again}: no controller has processed it"
        return left_alone(scene, _KIND, found, text, "jobset-controller-manager")
    has = f"has {len(jobs)} of {count(wanted, 'Job')}{again}"
    if len(jobs) < wanted:
        order = " (startupPolicy: InOrder)" if _condition(found, _IN_ORDER) is not None else ""
        return not_as_wanted(_KIND, found, Reason.PROGRESSING, f"{has}: its controller is working on it{order}")
    return as_wanted(_KIND, found, has)


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
