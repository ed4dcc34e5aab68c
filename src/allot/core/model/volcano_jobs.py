"""Jobs of Volcano (batch.volcano.sh/v1alpha1), as far as they are acted on. They are custom resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.model.meta import EMPTY, Int32, ObjectMeta, PartialStruct, Time

BATCH_VOLCANO = "batch.volcano.sh"


class VolcanoPolicy(PartialStruct, frozen=True, kw_only=True):
    """The action on a pod event."""

    action: str = ""
    event: str = ""
    events: tuple[str, ...] = ()
    exit_code: Int32 | None = None


class VolcanoDependsOn(PartialStruct, frozen=True, kw_only=True):
    """The tasks after which a task starts. iteration: `any`: one of them is enough."""

    name: tuple[str, ...] = ()
    iteration: str = ""


class VolcanoTask(PartialStruct, frozen=True, kw_only=True):
    """Identical pods."""

    name: str = ""
    replicas: Int32 = 1
    min_available: Int32 | None = None
    template: Mapping[str, Any] = EMPTY
    policies: tuple[VolcanoPolicy, ...] = ()
    depends_on: VolcanoDependsOn | None = None


class VolcanoJobSpec(PartialStruct, frozen=True, kw_only=True):
    """What a job consists of."""

    scheduler_name: str = "volcano"
    min_available: Int32 | None = None
    min_success: Int32 | None = None
    queue: str = ""
    tasks: tuple[VolcanoTask, ...] = ()
    policies: tuple[VolcanoPolicy, ...] = ()
    plugins: Mapping[str, Any] = EMPTY
    max_retry: Int32 = 3
    ttl_seconds_after_finished: Int32 | None = None
    priority_class_name: str = ""


class VolcanoJobState(PartialStruct, frozen=True, kw_only=True):
    """The phase of a job, and the reason."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None


class VolcanoJobStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a job. version: increases with each restart; its pods carry it."""

    state: VolcanoJobState = VolcanoJobState()
    min_available: Int32 = 0
    pending: Int32 = 0
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    terminating: Int32 = 0
    version: Int32 = 0
    retry_count: Int32 = 0
    task_status_count: Mapping[str, Any] = EMPTY


class VolcanoJob(PartialStruct, frozen=True, kw_only=True):
    """batch.volcano.sh/v1alpha1 Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolcanoJobSpec = VolcanoJobSpec()
    status: VolcanoJobStatus = VolcanoJobStatus()
