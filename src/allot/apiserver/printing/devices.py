"""Rows of device allocation and gangs: resource.k8s.io and scheduling.k8s.io."""

from __future__ import annotations

from allot.apiserver.printing.cells import (
    NONE,
    Cells,
    Moment,
    Object,
    Printer,
    columns,
    condition,
    count,
    flag,
    given,
    integer,
    is_true,
    items,
    members,
    name_of,
    text,
)

_NAME_AND_AGE = Printer(columns("Name|Age"), lambda o, now: [name_of(o), now.age(o)])


def _claim_state(claim: Object) -> str:
    deleted = bool(text(claim, "metadata", "deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if given(claim, "status", "allocation"):
        states.append("allocated")
        if count(claim, "status", "reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return ",".join(states)


def _slice(slice_: Object, now: Moment) -> Cells:
    spec = members(slice_, "spec")
    return [name_of(slice_), text(spec, "nodeName"), text(spec, "driver"), text(spec, "pool", "name"), now.age(slice_)]


def _taint_rule(rule: Object, now: Moment) -> Cells:
    taint = members(rule, "spec", "taint")
    added = text(taint, "timeAdded")
    shown = (text(taint, name) for name in ("key", "value", "effect"))
    return [name_of(rule), *shown, now.since(added) if added else "", now.age(rule)]


_POOL_SUMS = ("totalDevices", "availableDevices", "allocatedDevices", "unavailableDevices")


def _pool_status(request: Object, now: Moment) -> Cells:
    name, driver = name_of(request), text(request, "spec", "driver")
    status = request.get("status")
    if not isinstance(status, dict):
        return [name, driver, *["-"] * 5, 0, "Pending", NONE]
    pools, pool_count = items(status, "pools"), integer(status, "poolCount")
    complete = condition(request, "Complete")
    state, completed, failed = "Pending", NONE, False
    if is_true(complete):
        state, completed = "Complete", now.since((complete or {}).get("lastTransitionTime"))
        if pool_count > len(pools):
            state = f"Complete ({len(pools)}/{pool_count} pools)"
    elif is_true(condition(request, "Failed")):
        state, failed = "Failed", True
    sums = ["-"] * 5
    if not failed:
        sums = [str(sum(integer(pool, field) for pool in pools)) for field in _POOL_SUMS]
        sums.append(str(sum(given(pool, "validationError") for pool in pools)))
    return [name, driver, *sums, pool_count, state, completed]


def _policy(group: Object) -> str:
    return "Gang" if given(group, "spec", "schedulingPolicy", "gang") else "Basic"


def _workload_of(group: Object) -> str:
    return text(group, "spec", "workloadRef", "workloadName") if given(group, "spec", "workloadRef") else NONE


def _pod_group(group: Object, now: Moment) -> Cells:
    scheduled, disrupted = condition(group, "PodGroupInitiallyScheduled"), condition(group, "DisruptionTarget")
    status = "Pending"
    if scheduled is not None:
        status = "Scheduled" if is_true(scheduled) else "Unschedulable"
    if disrupted is not None:
        status = text(disrupted, "reason")
    return [name_of(group), _policy(group), _workload_of(group), status, now.age(group)]


def _priority_class(class_: Object, now: Moment) -> Cells:
    default = flag(class_, "globalDefault")
    return [name_of(class_), integer(class_, "value"), default, now.age(class_), text(class_, "preemptionPolicy")]


PRINTERS: dict[tuple[str, str], Printer] = {
    ("resource.k8s.io", "DeviceClass"): _NAME_AND_AGE,
    ("resource.k8s.io", "ResourceClaim"): Printer(
        columns("Name|State|Age"), lambda o, now: [name_of(o), _claim_state(o), now.age(o)]
    ),
    ("resource.k8s.io", "ResourceClaimTemplate"): _NAME_AND_AGE,
    ("resource.k8s.io", "ResourceSlice"): Printer(columns("Name|Node|Driver|Pool|Age"), _slice),
    ("resource.k8s.io", "DeviceTaintRule"): Printer(columns("Name|Key|Value|Effect|TimeAdded|Age"), _taint_rule),
    ("resource.k8s.io", "ResourcePoolStatusRequest"): Printer(
        columns("Name|Driver|Total|Available|Allocated|Unavailable|Errors|Pools#|Status|Completed"), _pool_status
    ),
    ("scheduling.k8s.io", "PriorityClass"): Printer(
        columns("Name|Value#|Global-Default?|Age|PreemptionPolicy"), _priority_class
    ),
    ("scheduling.k8s.io", "Workload"): _NAME_AND_AGE,
    ("scheduling.k8s.io", "PodGroup"): Printer(columns("Name|Policy|Workload|Status|Age"), _pod_group),
    ("scheduling.k8s.io", "CompositePodGroup"): Printer(
        columns("Name|Policy|Workload|Age"), lambda o, now: [name_of(o), _policy(o), _workload_of(o), now.age(o)]
    ),
}
