"""Short ways to make jobs and their pods, as the API has them, and to look at what a sync wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allot.core.lifecycle.actions import Action, Create, Delete, Emit, Patch, RequeueAfter, Together, Update
from allot.core.lifecycle.disruption import PODS
from allot.core.lifecycle.times import time_of
from allot.core.model.batch_v1 import COMPLETION_INDEX, TRACKING_FINALIZER, Job
from allot.core.model.codec import decode
from allot.core.model.core_v1 import Pod
from allot.core.workloads.job import Synced, reconcile_job
from allot.core.workloads.resources import JOBS
from allot.core.workloads.whole import Whole, whole

Object = dict[str, Any]

NOW = 1_800_000_000.0
UID = "job-uid"
TEMPLATE: Object = {
    "metadata": {"labels": {"job-name": "j"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
}


def job(
    status: Object | None = None, *, metadata: Object | None = None, template: Object | None = None, **spec: Any
) -> Whole[Job]:
    """A job `default/j` with the defaults of the API server; members of its spec by name."""
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    given = {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False}
    given |= {"podReplacementPolicy": "TerminatingOrFailed", "template": template or TEMPLATE, **spec}
    source = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "uid": UID, "resourceVersion": "7", **(metadata or {})},
        "spec": given,
        "status": status or {},
    }
    return whole(JOBS, Job, source)


def begun(**status: Any) -> Object:
    """The status of a job that began a minute ago."""
    return {"startTime": time_of(NOW - 60), "uncountedTerminatedPods": {}, "ready": 0, "terminating": 0, **status}


def pod(
    name: str,
    phase: str = "Running",
    *,
    index: int | None = None,
    is_tracked: bool = True,
    is_deleted: bool = False,
    is_ready: bool = False,
    ended_s: float | None = None,
    exit_code: int | None = None,
    annotations: Object | None = None,
    conditions: Sequence[Object] = (),
    **more: Any,
) -> Pod:
    """A pod of the job. ended_s: how long ago its container ended."""
    metadata: Object = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": time_of(NOW - 3600),
        "labels": {"job-name": "j"},
        "annotations": dict(annotations or {}),
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": UID, "controller": True}],
    }
    if index is not None:
        metadata["annotations"][COMPLETION_INDEX] = str(index)
    if is_tracked:
        metadata["finalizers"] = [TRACKING_FINALIZER]
    if is_deleted:
        metadata["deletionTimestamp"] = time_of(NOW)
        metadata["deletionGracePeriodSeconds"] = 0
    status: Object = {"phase": phase, "conditions": list(conditions), **more}
    if is_ready:
        status["conditions"].append({"type": "Ready", "status": "True", "lastTransitionTime": time_of(NOW - 60)})
    if ended_s is not None or exit_code is not None:
        ended = time_of(NOW - (ended_s or 0))
        terminated = {"exitCode": exit_code if exit_code is not None else 1, "finishedAt": ended}
        status["containerStatuses"] = [{"name": "main", "state": {"terminated": terminated}}]
    value = {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": status}
    return decode(value, Pod).object


class Wanted:
    """What a sync wants, by what it is."""

    def __init__(self, synced: Synced) -> None:
        self.backoff = synced.backoff
        self.actions = synced.actions
        self.writes = [write for action in synced.actions for write in _writes(action)]

    @property
    def created(self) -> list[Object]:
        """The new pods."""
        return [dict(one.object) for one in self.writes if isinstance(one, Create)]  # type: ignore[arg-type]

    @property
    def deleted(self) -> list[str]:
        """The names of pods that are deleted."""
        return [one.name for one in self.writes if isinstance(one, Delete) and one.resource is PODS]

    @property
    def untracked(self) -> list[str]:
        """The names of pods that lose the finalizer."""
        return [one.name for one in self.writes if isinstance(one, Patch)]

    @property
    def status(self) -> Object | None:
        """The status that is written."""
        found = [one for one in self.writes if isinstance(one, Update)]
        assert len(found) <= 1, "a sync writes the status once"
        return dict(found[0].object["status"]) if found else None  # type: ignore[index,call-overload]

    @property
    def conditions(self) -> list[tuple[str, str, str]]:
        """Type, reason and message of the conditions that hold."""
        found = (self.status or {}).get("conditions", [])
        return [(one["type"], one["reason"], one["message"]) for one in found if one["status"] == "True"]

    @property
    def events(self) -> list[tuple[str, str]]:
        """Reason and note of what is told with the status."""
        told = [one.on_success for one in self.writes if isinstance(one, Update) and one.on_success is not None]
        told += [one for one in self.actions if isinstance(one, Emit)]
        return [(one.reason, one.note) for one in told]

    @property
    def wait_s(self) -> float | None:
        """When it wants to look again."""
        return next((one.seconds for one in self.actions if isinstance(one, RequeueAfter)), None)


def _writes(action: Action) -> Sequence[Action]:
    return action.writes if isinstance(action, Together) else (action,)


def sync(made: Whole[Job], *pods: Pod, **more: Any) -> Wanted:
    """One look at a job now."""
    return Wanted(reconcile_job(made, pods, NOW, **more))


def after(made: Whole[Job], wanted: Wanted) -> Whole[Job]:
    """The job with the status that a sync wants."""
    return whole(JOBS, Job, {**made.source, "status": wanted.status or made.source["status"]})
