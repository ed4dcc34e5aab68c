"""JobSets (jobset.x-k8s.io/v1alpha2), as far as they are acted on. They are custom resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.model.meta import EMPTY, Condition, Int32, ObjectMeta, PartialStruct

JOB_SET_GROUP, JOB_SET_VERSION = "jobset.x-k8s.io", "v1alpha2"


class FailurePolicy(PartialStruct, frozen=True, kw_only=True):
    """How often a failed JobSet is restarted."""

    max_restarts: Int32 = 0


class DependsOn(PartialStruct, frozen=True, kw_only=True):
    """Identical Jobs that have to be Ready, or Complete, before others are created."""

    name: str = ""
    status: str = ""


class ReplicatedJob(PartialStruct, frozen=True, kw_only=True):
    """Identical Jobs."""

    name: str = ""
    replicas: Int32 = 1
    depends_on: tuple[DependsOn, ...] = ()
    template: Mapping[str, Any] = EMPTY


class StartupPolicy(PartialStruct, frozen=True, kw_only=True):
    """Whether the Jobs start in the order of the list, each when the ones before it are ready."""

    startup_policy_order: str = "AnyOrder"


class JobSetSpec(PartialStruct, frozen=True, kw_only=True):
    """What a JobSet consists of."""

    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    failure_policy: FailurePolicy | None = None
    startup_policy: StartupPolicy | None = None
    suspend: bool = False
    managed_by: str | None = None


class JobSetStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a JobSet. restarts: how often all its Jobs were recreated."""

    conditions: tuple[Condition, ...] = ()
    restarts: Int32 = 0


class JobSet(PartialStruct, frozen=True, kw_only=True):
    """jobset.x-k8s.io/v1alpha2 JobSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()
