"""Pods of jobs: what they look like, their indexes, and tracking.

A pod of a job carries a finalizer until the job's status has counted it, so that none ends uncounted. A pod of an indexed job has
its index in an annotation, a label, its host name and an environment variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allot.core.lifecycle.actions import Create, Patch, PatchType
from allot.core.lifecycle.disruption import PODS
from allot.core.model.batch_v1 import (
    COMPLETION_INDEX,
    INDEX_FAILURE_COUNT,
    INDEX_IGNORED_FAILURE_COUNT,
    INDEXED,
    TRACKING_FINALIZER,
    Job,
    JobSpec,
)
from allot.core.model.core_v1 import Pod
from allot.core.workloads.job_failures import successor_failures
from allot.core.workloads.ownership import reference_to
from allot.core.workloads.pod_templates import create_pod, generated_name, pod_from_template, template_value
from allot.core.workloads.whole import Whole

_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_INDEX_FROM = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
# The server adds five characters, and a host name has at most 63.
_PREFIX_LENGTH_MAX = 58


def is_tracked(pod: Pod) -> bool:
    """Whether the job still has to count a pod, or decide that it does not count."""
    return TRACKING_FINALIZER in pod.metadata.finalizers


def stop_tracking(pod: Pod) -> Patch:
    """Remove the finalizer from exactly this pod."""
    metadata = {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}
    return Patch(
        resource=PODS,
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        patch={"metadata": metadata},
        type=PatchType.STRATEGIC,
    )


def completion_index(pod: Pod) -> int | None:
    """The index of a pod; None if missing or invalid."""
    text = pod.metadata.annotations.get(COMPLETION_INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def indexes_of(pods: Iterable[Pod]) -> list[int]:
    """The indexes that pods have."""
    return [index for index in map(completion_index, pods) if index is not None]


class PodMaker:
    """Creates the pods of one job."""

    def __init__(self, job: Whole[Job], pod_group: str) -> None:
        self._job = job
        self._spec: JobSpec = job.value.spec
        reference = reference_to(job.resource, job.metadata)
        pod = pod_from_template(template_value(self._spec.template), reference, job.metadata.namespace)
        finalizers = pod["metadata"].get("finalizers") or []
        if TRACKING_FINALIZER not in finalizers:
            pod["metadata"]["finalizers"] = [*finalizers, TRACKING_FINALIZER]
        if pod_group:
            pod["spec"] = {**pod["spec"], "schedulingGroup": {"podGroupName": pod_group}}
        if self._spec.completion_mode == INDEXED:
            pod["spec"] = _with_variable(pod["spec"])
        self._pod = pod

    def create(self) -> Create:
        """A pod without an index."""
        name = {"generateName": generated_name(self._job.metadata.name)}
        return create_pod({**self._pod, "metadata": {**self._pod["metadata"], **name}}, self._job.reference)

    def create_indexed(self, index: int, replaced: Pod | None) -> Create:
        """The pod of an index; replaced: the failed pod that it replaces, if failures are counted by index."""
        job = self._job.metadata.name
        suffix = f"-{index}-"
        prefix = f"{job}{suffix}"
        if len(prefix) > _PREFIX_LENGTH_MAX:
            prefix = job[: _PREFIX_LENGTH_MAX - len(suffix)] + suffix
        annotations = {COMPLETION_INDEX: str(index)}
        if self._spec.backoff_limit_per_index is not None:
            counted, ignored = successor_failures(self._spec, replaced)
            annotations[INDEX_FAILURE_COUNT] = str(counted)
            if ignored:
                annotations[INDEX_IGNORED_FAILURE_COUNT] = str(ignored)
        metadata = self._pod["metadata"]
        metadata = {
            **metadata,
            "generateName": prefix,
            "annotations": {**metadata.get("annotations", {}), **annotations},
            "labels": {**metadata.get("labels", {}), COMPLETION_INDEX: str(index)},
        }
        spec = {**self._pod["spec"], "hostname": f"{job}-{index}"}
        return create_pod({**self._pod, "metadata": metadata, "spec": spec}, self._job.reference)


def _with_variable(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A pod's spec with the index as a variable in every container, unless it already has a variable of that name."""
    told = dict(spec)
    for part in ("initContainers", "containers"):
        if spec.get(part):
            told[part] = [_told(container) for container in spec[part]]
    return told


def _told(container: Mapping[str, Any]) -> Mapping[str, Any]:
    variables = container.get("env") or []
    if any(variable.get("name") == _INDEX_VARIABLE for variable in variables):
        return container
    return {**container, "env": [*variables, {"name": _INDEX_VARIABLE, "valueFrom": _INDEX_FROM}]}
