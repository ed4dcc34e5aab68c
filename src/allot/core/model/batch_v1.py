"""batch/v1 as of Kubernetes 1.37: Job and CronJob, every field. Pod and job templates stay as written."""

from __future__ import annotations

from allot.core.model.core_v1 import ObjectReference
from allot.core.model.meta import APIStruct, Int32, Int64, LabelSelector, ObjectMeta, PartialStruct, RawJSON, Time
from allot.core.model.scheduling_v1 import (
    BasicSchedulingPolicy,
    DisruptionMode,
    PodGroupResourceClaim,
    SchedulingConstraints,
)

GROUP = "batch"

# --- well-known strings ---
INDEXED = "Indexed"
NON_INDEXED = "NonIndexed"
TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED_FAILURE_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
SCHEDULED_TIMESTAMP = "batch.kubernetes.io/cronjob-scheduled-timestamp"
JOB_CONTROLLER = "kubernetes.io/job-controller"
# When pods are replaced: as soon as they are deleted, or only when they have ended.
REPLACE_TERMINATING_OR_FAILED = "TerminatingOrFailed"
REPLACE_FAILED = "Failed"
# Conditions.
SUSPENDED = "Suspended"
COMPLETE = "Complete"
FAILED = "Failed"
FAILURE_TARGET = "FailureTarget"
SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"

POD_FAILURE_RULES_MAX = 20
SUCCESS_RULES_MAX = 20


# --- when pods and jobs fail and succeed ---


class PodFailurePolicyOnExitCodesRequirement(PartialStruct, frozen=True, kw_only=True):
    """Exit codes of a container, or of any."""

    container_name: str | None = None
    operator: str = ""
    values: tuple[Int32, ...] = ()


class PodFailurePolicyOnPodConditionsPattern(PartialStruct, frozen=True, kw_only=True):
    """A condition of a pod."""

    type: str = ""
    status: str = ""


class PodFailurePolicyRule(PartialStruct, frozen=True, kw_only=True):
    """The action for a pod that failed in a certain way: FailJob, FailIndex, Ignore or Count."""

    action: str = ""
    on_exit_codes: PodFailurePolicyOnExitCodesRequirement | None = None
    on_pod_conditions: tuple[PodFailurePolicyOnPodConditionsPattern, ...] = ()


class PodFailurePolicy(PartialStruct, frozen=True, kw_only=True):
    """Rules; the first match decides."""

    rules: tuple[PodFailurePolicyRule, ...] = ()


class SuccessPolicyRule(PartialStruct, frozen=True, kw_only=True):
    """Which indexes, or how many, are enough."""

    succeeded_indexes: str | None = None
    succeeded_count: Int32 | None = None


class SuccessPolicy(PartialStruct, frozen=True, kw_only=True):
    """Rules; one match is enough."""

    rules: tuple[SuccessPolicyRule, ...] = ()


# --- how pods of a job are scheduled (gate WorkloadWithJob) ---


class JobGangSchedulingPolicy(APIStruct, frozen=True, kw_only=True):
    """The minimum number of pods to schedule at once; by default the job's parallelism."""

    min_count: Int32 | None = None


class JobSchedulingPolicy(APIStruct, frozen=True, kw_only=True):
    """One-of: basic or gang."""

    basic: BasicSchedulingPolicy | None = None
    gang: JobGangSchedulingPolicy | None = None


class JobSchedulingConfiguration(APIStruct, frozen=True, kw_only=True):
    """Configures the job's Workload and PodGroup."""

    scheduling_policy: JobSchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()


# --- Job ---


class JobSpec(PartialStruct, frozen=True, kw_only=True):
    """What a job runs, how often, and when it has failed."""

    parallelism: Int32 | None = None
    completions: Int32 | None = None
    active_deadline_seconds: Int64 | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    backoff_limit: Int32 | None = None
    backoff_limit_per_index: Int32 | None = None
    max_failed_indexes: Int32 | None = None
    selector: LabelSelector | None = None
    manual_selector: bool | None = None
    template: RawJSON = RawJSON({})
    ttl_seconds_after_finished: Int32 | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    pod_replacement_policy: str | None = None
    managed_by: str | None = None
    scheduling: JobSchedulingConfiguration | None = None


class JobCondition(PartialStruct, frozen=True, kw_only=True):
    """A condition of a job."""

    type: str = ""
    status: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class UncountedTerminatedPods(APIStruct, frozen=True, kw_only=True):
    """Terminated pods (uids) that are not yet counted."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a job."""

    conditions: tuple[JobCondition, ...] = ()
    start_time: Time | None = None
    completion_time: Time | None = None
    active: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    terminating: Int32 | None = None
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None
    ready: Int32 | None = None


class Job(PartialStruct, frozen=True, kw_only=True):
    """Pods that run until enough of them have succeeded."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


# --- CronJob ---


class CronJobSpec(PartialStruct, frozen=True, kw_only=True):
    """Which jobs are created, and when."""

    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: Int64 | None = None
    concurrency_policy: str = ""
    suspend: bool | None = None
    job_template: RawJSON = RawJSON({})
    successful_jobs_history_limit: Int32 | None = None
    failed_jobs_history_limit: Int32 | None = None


class CronJobStatus(PartialStruct, frozen=True, kw_only=True):
    """The jobs of a cron job, and when it last ran."""

    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: Time | None = None
    last_successful_time: Time | None = None


class CronJob(PartialStruct, frozen=True, kw_only=True):
    """Creates jobs on a schedule."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()
