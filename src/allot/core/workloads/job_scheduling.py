"""Jobs as groups (gate WorkloadWithJob): a Workload and a PodGroup are created for a job before its first pod.

A job without a controller gets both; one whose owner has a Workload and names the job's template in it gets a PodGroup from that.
Only a job that has never run gets them, so that jobs from before the gate was enabled stay unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from allot.core.lifecycle.actions import (
    NORMAL,
    WARNING,
    Action,
    Create,
    Emit,
    Patch,
    PatchType,
    Resource,
    Retry,
    resource_of,
)
from allot.core.model.batch_v1 import SUSPENDED, Job
from allot.core.model.codec import encode
from allot.core.model.meta import ObjectMeta, OwnerReference
from allot.core.model.scheduling_v1 import (
    BasicSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupTemplate,
    TypedLocalObjectReference,
    Workload,
    WorkloadReference,
    WorkloadSpec,
)
from allot.core.workloads.job_ends import condition_of
from allot.core.workloads.ownership import controller_reference, is_controlled_by, reference_to
from allot.core.workloads.pod_templates import hash_of, template_value
from allot.core.workloads.resources import JOBS
from allot.core.workloads.whole import Whole

WORKLOADS = resource_of(Workload)
POD_GROUPS = resource_of(PodGroup)
GROUP_TEMPLATE = "scheduling.k8s.io/group-template-name"
_NAME_LENGTH_MAX = 253


class Grouped(msgspec.Struct, frozen=True):
    """What to do first (while the job waits), or the group of its pods; empty if they have none."""

    actions: tuple[Action, ...] = ()
    pod_group: str = ""


def workload_jobs(workload: Workload) -> tuple[str, ...]:
    """The object that a workload was created for; a cache index."""
    reference = workload.spec.controller_ref
    if reference is None or not reference.name:
        return ()
    return (workload_key(workload.metadata.namespace, reference.api_group, reference.kind, reference.name),)


def workload_key(namespace: str, group: str, kind: str, name: str) -> str:
    """The key under which `workload_jobs` finds an object's workloads."""
    return f"{namespace}/{group}/{kind}/{name}"


def group_workloads(group: PodGroup) -> tuple[str, ...]:
    """The workload that a group was created from; a cache index."""
    reference = group.spec.workload_ref
    return () if reference is None else (f"{group.metadata.namespace}/{reference.workload_name}",)


def wanted_workload(job: Whole[Job]) -> str | None:
    """The key of the workloads relevant to a job; None if it is not a group."""
    if (template_value(job.value.spec.template).get("spec") or {}).get("schedulingGroup") is not None:
        return None
    owner, namespace = controller_reference(job.metadata), job.metadata.namespace
    if owner is None:
        return workload_key(namespace, JOBS.group, JOBS.kind, job.metadata.name)
    if GROUP_TEMPLATE not in job.metadata.annotations:
        return None
    group, _, _ = owner.api_version.rpartition("/")
    return workload_key(namespace, group, owner.kind, owner.name)


def ensure_group(job: Whole[Job], has_pods: bool, workloads: Sequence[Workload], groups: Sequence[PodGroup]) -> Grouped:
    """The group of a job's pods. workloads: those relevant to it; groups: all that were created from one of them."""
    is_new = _is_new(job.value, has_pods)
    if controller_reference(job.metadata) is not None:
        return _delegated(job, is_new, workloads, groups)
    own = [each for each in workloads if is_controlled_by(each, job.metadata.uid)]
    if not own:
        return Grouped((_create_workload(job),)) if is_new else Grouped()
    if len(own) > 1:
        return Grouped()
    workload = own[0]
    templates = workload.spec.pod_group_templates
    if len(templates) != 1:
        name = f"{workload.metadata.namespace}/{workload.metadata.name}"
        about = f"{job.metadata.namespace}/{job.metadata.name}"
        message = f"workload {name} for job {about} has {len(templates)} PodGroupTemplates, want exactly 1"
        return Grouped((Retry(message=message),))
    found = _own_groups(job, workload, groups)
    if not found:
        return Grouped((_create_group(job, workload, templates[0], links=True),)) if is_new else Grouped()
    if len(found) > 1:
        return Grouped()
    wanted = _template(job).scheduling_policy
    return Grouped((*_resized_workload(workload, wanted), *_resized_group(found[0], wanted)), found[0].metadata.name)


def _delegated(job: Whole[Job], is_new: bool, workloads: Sequence[Workload], groups: Sequence[PodGroup]) -> Grouped:
    name = job.metadata.annotations[GROUP_TEMPLATE]
    if not workloads:
        return Grouped()
    workload = workloads[0]
    template = next((one for one in workload.spec.pod_group_templates if one.name == name), None)
    if template is None:
        return Grouped()
    found = _own_groups(job, workload, groups)
    if not found:
        return Grouped((_create_group(job, workload, template, links=False),)) if is_new else Grouped()
    return Grouped(_resized_group(found[0], template.scheduling_policy), found[0].metadata.name)


def _is_new(job: Job, has_pods: bool) -> bool:
    status = job.status
    has_run = has_pods or status.start_time is not None or status.succeeded or status.failed
    return not has_run and condition_of(status, SUSPENDED) is None


def _own_groups(job: Whole[Job], workload: Workload, groups: Sequence[PodGroup]) -> list[PodGroup]:
    key = f"{workload.metadata.namespace}/{workload.metadata.name}"
    return [each for each in groups if is_controlled_by(each, job.metadata.uid) and key in group_workloads(each)]


# --- what they look like ---


def _template(job: Whole[Job]) -> PodGroupTemplate:
    spec = job.value.spec
    scheduling = spec.scheduling
    policy = PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())
    given = scheduling.scheduling_policy if scheduling is not None else None
    if given is not None and given.gang is not None:
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        count = given.gang.min_count if given.gang.min_count is not None else max(1, parallelism)
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=count))
    pod_spec = template_value(spec.template).get("spec") or {}
    constraints = scheduling.scheduling_constraints if scheduling is not None else None
    return PodGroupTemplate(
        name=f"{job.metadata.name}-pgt-0",
        scheduling_policy=policy,
        scheduling_constraints=constraints if constraints is not None and constraints.topology else None,
        disruption_mode=scheduling.disruption_mode if scheduling is not None else None,
        resource_claims=scheduling.resource_claims if scheduling is not None else (),
        priority_class_name=str(pod_spec.get("priorityClassName") or ""),
    )


def _create_workload(job: Whole[Job]) -> Create:
    suffix = hash_of(job.metadata.uid.encode(), None)
    name = f"{job.metadata.name[: _NAME_LENGTH_MAX - len(suffix) - 1]}-{suffix}"
    reference = TypedLocalObjectReference(api_group=JOBS.group, kind=JOBS.kind, name=job.metadata.name)
    workload = Workload(
        metadata=ObjectMeta(name=name, namespace=job.metadata.namespace, owner_references=(_owner(job),)),
        spec=WorkloadSpec(controller_ref=reference, pod_group_templates=(_template(job),)),
    )
    about = job.metadata.name
    return Create(
        resource=WORKLOADS,
        object=encode(workload),
        namespace=job.metadata.namespace,
        on_success=_told(job, NORMAL, "WorkloadCreated", f"Created Workload {name} for Job {about}"),
        on_failure=_told(job, WARNING, "FailedWorkloadCreate", f"Failed to create Workload for Job {about}: "),
    )


def _create_group(job: Whole[Job], workload: Workload, template: PodGroupTemplate, *, links: bool) -> Create:
    """links: whether the workload belongs to the job, and so also owns the group."""
    name = _group_name(workload.metadata.name, template.name)
    owners = [_owner(job)]
    if links:
        owners.append(
            OwnerReference(
                api_version=WORKLOADS.api_version,
                kind=WORKLOADS.kind,
                name=workload.metadata.name,
                uid=workload.metadata.uid,
            )
        )
    group = PodGroup(
        metadata=ObjectMeta(name=name, namespace=job.metadata.namespace, owner_references=tuple(owners)),
        spec=PodGroupSpec(
            workload_ref=WorkloadReference(workload_name=workload.metadata.name, template_name=template.name),
            scheduling_policy=template.scheduling_policy,
            scheduling_constraints=template.scheduling_constraints,
            disruption_mode=template.disruption_mode,
            resource_claims=template.resource_claims,
            priority_class_name=template.priority_class_name,
            priority=template.priority,
        ),
    )
    return Create(
        resource=POD_GROUPS,
        object=encode(group),
        namespace=job.metadata.namespace,
        on_success=_told(job, NORMAL, "PodGroupCreated", f"Created PodGroup {name} for Job {job.metadata.name}"),
    )


def _group_name(workload: str, template: str) -> str:
    suffix = hash_of(f"{workload}{template}".encode(), None)
    room = _NAME_LENGTH_MAX - len(suffix) - 2
    if len(workload) + len(template) > room:
        half = room // 2
        if len(workload) <= half:
            template = template[: room - len(workload)]
        elif len(template) <= half:
            workload = workload[: room - len(template)]
        else:
            workload, template = workload[: room - half], template[:half]
    return f"{workload}-{template}-{suffix}"


def _owner(job: Whole[Job]) -> OwnerReference:
    return msgspec.convert(reference_to(JOBS, job.metadata), OwnerReference)


def _told(job: Whole[Job], type_: str, reason: str, note: str) -> Emit:
    return Emit(regarding=job.reference, type=type_, reason=reason, action=reason, note=note)


# --- gangs that change their size ---


def _resized_workload(workload: Workload, wanted: PodGroupSchedulingPolicy) -> tuple[Patch, ...]:
    template = workload.spec.pod_group_templates[0]
    if not _differs(template.scheduling_policy, wanted):
        return ()
    assert wanted.gang is not None
    policy = {"schedulingPolicy": {"gang": {"minCount": wanted.gang.min_count}}}
    patch = {"podGroupTemplates": [{"name": template.name, **policy}]}
    return (_patch_spec(WORKLOADS, workload.metadata, patch),)


def _resized_group(group: PodGroup, wanted: PodGroupSchedulingPolicy) -> tuple[Patch, ...]:
    if not _differs(group.spec.scheduling_policy, wanted):
        return ()
    assert wanted.gang is not None
    patch = {"schedulingPolicy": {"gang": {"minCount": wanted.gang.min_count}}}
    return (_patch_spec(POD_GROUPS, group.metadata, patch),)


def _differs(present: PodGroupSchedulingPolicy, wanted: PodGroupSchedulingPolicy) -> bool:
    return present.gang is not None and wanted.gang is not None and present.gang.min_count != wanted.gang.min_count


def _patch_spec(resource: Resource, metadata: ObjectMeta, spec: Mapping[str, object]) -> Patch:
    return Patch(
        resource=resource,
        name=metadata.name,
        namespace=metadata.namespace,
        patch={"metadata": {"uid": metadata.uid}, "spec": spec},
        type=PatchType.STRATEGIC,
    )
