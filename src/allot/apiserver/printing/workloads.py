"""Rows of what runs pods: apps, batch, autoscaling, policy."""

from __future__ import annotations

from typing import Any

from allot.apiserver.printing.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    Cells,
    Moment,
    Object,
    Printer,
    columns,
    condition,
    containers,
    count,
    duration,
    integer,
    is_true,
    items,
    labels,
    members,
    name_of,
    number,
    scalar,
    seconds_of,
    selector,
    selector_text,
    text,
)

_METRICS_SHOWN = 2
# Condition of a job -> what its row says, the first that holds; a job that is being deleted is in between.
_JOB_ENDS = ("Complete", "Failed")
_JOB_STATES = {"Suspended": "Suspended", "FailureTarget": "FailureTarget", "SuccessCriteriaMet": "SuccessCriteriaMet"}


def _deployment(deployment: Object, now: Moment) -> Cells:
    spec, status = members(deployment, "spec"), members(deployment, "status")
    return [
        name_of(deployment),
        f"{integer(status, 'readyReplicas')}/{integer(spec, 'replicas')}",
        integer(status, "updatedReplicas"),
        integer(status, "availableReplicas"),
        now.age(deployment),
        *containers(spec.get("template")),
        selector_text(spec.get("selector")),
    ]


def _replica_set(replica_set: Object, now: Moment) -> Cells:
    spec, status = members(replica_set, "spec"), members(replica_set, "status")
    return [
        name_of(replica_set),
        integer(spec, "replicas"),
        integer(status, "replicas"),
        integer(status, "readyReplicas"),
        now.age(replica_set),
        *containers(spec.get("template")),
        selector(spec.get("selector")),
    ]


def _stateful_set(stateful_set: Object, now: Moment) -> Cells:
    spec = members(stateful_set, "spec")
    ready = f"{integer(stateful_set, 'status', 'readyReplicas')}/{integer(spec, 'replicas')}"
    return [name_of(stateful_set), ready, now.age(stateful_set), *containers(spec.get("template"))]


def _daemon_set(daemon_set: Object, now: Moment) -> Cells:
    spec, status = members(daemon_set, "spec"), members(daemon_set, "status")
    numbers = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        name_of(daemon_set),
        *(integer(status, name) for name in numbers),
        labels(members(spec, "template", "spec").get("nodeSelector")),
        now.age(daemon_set),
        *containers(spec.get("template")),
        selector(spec.get("selector")),
    ]


def _revision(revision: Object, now: Moment) -> Cells:
    owner = next((item for item in items(revision, "metadata", "ownerReferences") if item.get("controller")), None)
    shown = NONE
    if owner is not None:
        group = text(owner, "apiVersion").rpartition("/")[0]
        kind = f"{text(owner, 'kind')}.{group}" if group else text(owner, "kind")
        shown = f"{kind.lower()}/{text(owner, 'name')}"
    return [name_of(revision), shown, integer(revision, "revision"), now.age(revision)]


def _job(job: Object, now: Moment) -> Cells:
    spec, status = members(job, "spec"), members(job, "status")
    succeeded, completions = integer(status, "succeeded"), number(spec, "completions")
    parallelism = integer(spec, "parallelism")
    done = f"{succeeded}/{completions if completions is not None else 1}"
    if completions is None and parallelism > 1:
        done += f" of {parallelism}"
    return [
        name_of(job),
        _job_state(job),
        done,
        _job_duration(status, now),
        now.age(job),
        *containers(spec.get("template")),
        selector(spec.get("selector")),
    ]


def _job_state(job: Object) -> str:
    for type_ in _JOB_ENDS:
        if is_true(condition(job, type_)):
            return type_
    if text(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    return next((state for type_, state in _JOB_STATES.items() if is_true(condition(job, type_))), "Running")


def _job_duration(status: Object, now: Moment) -> str:
    start = seconds_of(text(status, "startTime"))
    if start is None:
        return ""
    end = seconds_of(text(status, "completionTime"))
    return duration((now.seconds if end is None else end) - start)


def _cron_job(cron_job: Object, now: Moment) -> Cells:
    spec, status = members(cron_job, "spec"), members(cron_job, "status")
    last, suspend = status.get("lastScheduleTime"), spec.get("suspend")
    template = members(spec, "jobTemplate", "spec")
    return [
        name_of(cron_job),
        text(spec, "schedule"),
        text(spec, "timeZone") or NONE,
        str(suspend) if isinstance(suspend, bool) else UNSET,
        count(status, "active"),
        now.since(last) if last else NONE,
        now.age(cron_job),
        *containers(template.get("template")),
        selector(template.get("selector")),
    ]


def _autoscaler(autoscaler: Object, now: Moment) -> Cells:
    spec, status = members(autoscaler, "spec"), members(autoscaler, "status")
    target, minimum = members(spec, "scaleTargetRef"), number(spec, "minReplicas")
    return [
        name_of(autoscaler),
        f"{text(target, 'kind')}/{text(target, 'name')}",
        _metrics(items(spec, "metrics"), items(status, "currentMetrics")),
        UNSET if minimum is None else str(minimum),
        integer(spec, "maxReplicas"),
        integer(status, "currentReplicas"),
        now.age(autoscaler),
    ]


def _metrics(wanted: list[Object], current: list[Object]) -> str:
    if not wanted:
        return NONE
    shown = [
        _metric(metric, current[position] if position < len(current) else {}) for position, metric in enumerate(wanted)
    ]
    text_ = ", ".join(shown[:_METRICS_SHOWN])
    more = len(shown) - _METRICS_SHOWN
    return f"{text_} + {more} more..." if more > 0 else text_


def _metric(metric: Object, current: Object) -> str:
    type_ = text(metric, "type")
    source = type_[:1].lower() + type_[1:]
    if source not in ("resource", "containerResource", "pods", "object", "external"):
        return "<unknown type>"
    target, now = members(metric, source, "target"), members(current, source, "current")
    if source in ("resource", "containerResource"):
        name = text(metric, source, "name")
        if target.get("averageValue") is not None:
            return f"{name}: {scalar(now.get('averageValue'), UNKNOWN)}/{scalar(target['averageValue'])}"
        return f"{name}: {_percent(now, UNKNOWN)}/{_percent(target, '<auto>')}"
    if source == "pods":
        return f"{scalar(now.get('averageValue'), UNKNOWN)}/{scalar(target.get('averageValue'), '0')}"
    if target.get("averageValue") is not None:
        return f"{scalar(now.get('averageValue'), UNKNOWN)}/{scalar(target['averageValue'])} (avg)"
    return f"{scalar(now.get('value'), UNKNOWN)}/{scalar(target.get('value'), '0')}"


def _percent(values: Object, default: str) -> str:
    utilization: Any = number(values, "averageUtilization")
    return default if utilization is None else f"{utilization}%"


def _budget(budget: Object, now: Moment) -> Cells:
    spec = members(budget, "spec")
    return [
        name_of(budget),
        scalar(spec.get("minAvailable"), "N/A"),
        scalar(spec.get("maxUnavailable"), "N/A"),
        integer(budget, "status", "disruptionsAllowed"),
        now.age(budget),
    ]


PRINTERS: dict[tuple[str, str], Printer] = {
    ("apps", "Deployment"): Printer(
        columns("Name|Ready|Up-to-date|Available|Age|Containers+|Images+|Selector+"), _deployment
    ),
    ("apps", "ReplicaSet"): Printer(
        columns("Name|Desired#|Current#|Ready#|Age|Containers+|Images+|Selector+"), _replica_set
    ),
    ("apps", "StatefulSet"): Printer(columns("Name|Ready|Age|Containers+|Images+"), _stateful_set),
    ("apps", "DaemonSet"): Printer(
        columns("Name|Desired#|Current#|Ready#|Up-to-date#|Available#|Node Selector|Age|Containers+|Images+|Selector+"),
        _daemon_set,
    ),
    ("apps", "ControllerRevision"): Printer(columns("Name|Controller|Revision|Age"), _revision),
    ("batch", "Job"): Printer(columns("Name|Status|Completions|Duration|Age|Containers+|Images+|Selector+"), _job),
    ("batch", "CronJob"): Printer(
        columns("Name|Schedule|Timezone|Suspend?|Active#|Last Schedule|Age|Containers+|Images+|Selector+"), _cron_job
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): Printer(
        columns("Name|Reference|Targets|MinPods|MaxPods|Replicas|Age"), _autoscaler
    ),
    ("policy", "PodDisruptionBudget"): Printer(
        columns("Name|Min Available|Max Unavailable|Allowed Disruptions#|Age"), _budget
    ),
}
