"""Jobs and cron jobs. Their policies are in `job_policies`, the status in `job_status`, spec.scheduling in `job_scheduling`."""

from __future__ import annotations

import re
from typing import Any

from allot.core.cron import ScheduleError, parse_schedule, time_zone
from allot.core.validation import formats
from allot.core.validation.builtin.checks import (
    immutable,
    label_selector,
    not_negative,
    one_of,
    selector_matches,
    told,
)
from allot.core.validation.builtin.job_policies import check_failure_policy, check_success_policy
from allot.core.validation.builtin.job_status import check_status_update, has
from allot.core.validation.builtin.pod_defaults import template_defaults
from allot.core.validation.builtin.pod_template import check_template
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import (
    Object,
    copied,
    fill,
    fill_text,
    flag,
    given,
    items,
    members,
    number,
    present,
    text,
)
from allot.core.validation.builtin.workloads import selector_shown
from allot.core.validation.fields import (
    Findings,
    byte_length,
    child,
    invalid,
    not_supported,
    required,
    too_long,
)

JOB_UID_LABEL = "batch.kubernetes.io/controller-uid"
_NAME_LABEL = "batch.kubernetes.io/job-name"
_INT32_MAX = 2**31 - 1
_PARALLELISM_MAX = 100_000
_FAILED_INDEXES_MAX = 100_000
_MANAGED_BY_LENGTH_MAX = 63
_CRON_NAME_LENGTH_MAX = 52

# With this many completions or more, tighter limits apply to what the status lists.
_COMPLETIONS_HIGH = 100_000
_HIGH_LIMIT = 10_000
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"

_zone_part = re.compile(r"[A-Za-z0-9_+\-.]{1,14}").fullmatch
_path_characters = re.compile(_PATH).fullmatch


def _job_spec_defaults(spec: Object) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    fill(
        spec,
        parallelism=1,
        backoffLimit=_INT32_MAX if given(spec, "backoffLimitPerIndex") else 6,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy="Failed" if given(spec, "podFailurePolicy") else "TerminatingOrFailed",
        manualSelector=False,
    )
    for rule in items(spec, "podFailurePolicy", "rules"):
        for pattern in items(rule, "onPodConditions"):
            fill_text(pattern, status="True")


def _job_defaults(job: Object) -> None:
    spec = present(job, "spec")
    _job_spec_defaults(spec)
    template = present(spec, "template")
    template_defaults(template)
    label_job(job)


def label_job(job: Object) -> None:
    """A job without labels gets those of its pods, generated ones included: kube-apiserver applies defaults to what it reads back."""
    labels, metadata = members(job, "spec", "template", "metadata", "labels"), present(job, "metadata")
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _cron_job_defaults(cron_job: Object) -> None:
    spec = present(cron_job, "spec")
    fill_text(spec, concurrencyPolicy="Allow")
    fill(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    template = present(spec, "jobTemplate")
    fill(template, metadata={})
    # A job template gets only the defaults of pods; those of jobs apply when a job is created from it.
    template_defaults(present(present(template, "spec"), "template"))


def _generate_selector(job: Object) -> None:
    """A job selects its pods by its uid, unless manualSelector is set."""
    spec, uid, name = members(job, "spec"), text(job, "metadata", "uid"), text(job, "metadata", "name")
    if flag(spec, "manualSelector") or not uid:
        return
    template = present(spec, "template")
    metadata = present(template, "metadata")
    # Labels set by the client stay, and validation reports them.
    labels = {JOB_UID_LABEL: uid, _NAME_LABEL: name, "controller-uid": uid, "job-name": name}
    metadata["labels"] = labels | members(metadata, "labels")
    selector = present(spec, "selector")
    selector["matchLabels"] = {JOB_UID_LABEL: uid} | members(selector, "matchLabels")
    label_job(job)


def _check_job(job: Object) -> Findings:
    spec = members(job, "spec")
    found: Findings = []
    if given(spec, "selector") and not flag(spec, "manualSelector"):
        found += _check_generated(job, spec["selector"], members(spec, "template", "metadata", "labels"))
    return found + _recheck_job(job, job)


def _recheck_job(job: Object, _old: Object) -> Findings:
    spec = members(job, "spec")
    selector, labels = spec.get("selector"), members(spec, "template", "metadata", "labels")
    found = _check_job_spec(spec, "spec")
    if selector is None:
        found.append(required("spec.selector"))
    else:
        found += label_selector(selector, "spec.selector")
    if selector is None or not selector_matches(selector, labels):
        detail = "`selector` does not match template `labels`"
        found.append(invalid("spec.template.metadata.labels", dict(sorted(labels.items())) or None, detail))
    if text(job, "metadata", "name") and text(spec, "completionMode") == "Indexed":
        found += _check_indexed_name(text(job, "metadata", "name"), number(spec, "completions"))
    return found


def _check_generated(job: Object, selector: Any, labels: Object) -> Findings:
    uid, name = text(job, "metadata", "uid"), text(job, "metadata", "name")
    expected = {"controller-uid": uid, "job-name": name, JOB_UID_LABEL: uid, _NAME_LABEL: name}
    found: Findings = [] if uid else [required("metadata.uid")]
    for label, value in expected.items():
        where = f"spec.template.metadata.labels[{label}]"
        if label not in labels:
            found.append(required(where, f"must be '{value}'"))
        elif labels[label] != value:
            found.append(invalid(where, dict(sorted(labels.items())), f"must be '{value}'"))
    if not selector_matches(selector, expected):
        found.append(invalid("spec.selector", selector_shown(selector), "`selector` not auto-generated"))
    return found


def _check_indexed_name(name: str, completions: int | None) -> Findings:
    if not completions or completions < 1:
        return []
    # Pods of an indexed job get its name plus their index as host name.
    messages = formats.dns_label(f"{name}-{completions - 1}")
    return [invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {name}-{completions - 1}")
            ] if messages else []  # fmt: skip


def _check_job_spec(spec: Object, path: str) -> Findings:
    found = not_negative(
        spec,
        path,
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    )
    if given(spec, "maxFailedIndexes") and not given(spec, "backoffLimitPerIndex"):
        found.append(required(child(path, "backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
    if given(spec, "managedBy"):
        found += _check_managed_by(text(spec, "managedBy"), child(path, "managedBy"))
    found += one_of(spec, "completionMode", ("Indexed", "NonIndexed"), path)
    found += _check_indexed(spec, path)
    if given(spec, "podFailurePolicy"):
        found += check_failure_policy(spec, child(path, "podFailurePolicy"))
    if given(spec, "successPolicy"):
        where = child(path, "successPolicy")
        if text(spec, "completionMode") == "Indexed":
            found += check_success_policy(spec, where)
        else:
            found.append(invalid(where, spec["successPolicy"], "requires indexed completion mode"))
    replacements = ("Failed",) if given(spec, "podFailurePolicy") else ("Failed", "TerminatingOrFailed")
    found += one_of(spec, "podReplacementPolicy", replacements, path)
    found += check_template(members(spec, "template"), child(path, "template"))
    return found + _check_restart_policy(spec, child(path, "template", "spec", "restartPolicy"))


def _check_managed_by(manager: str, path: str) -> Findings:
    if not manager:
        return [required(path)]
    domain, slash, rest = manager.partition("/")
    if not (domain and slash and rest):
        found = [invalid(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    else:
        found = told(path, domain, formats.dns_subdomain(domain))
        if not _path_characters(rest):
            detail = f"Invalid path (regex used for validation is '{_PATH}')"
            found.append(invalid(path, rest, detail))
    if byte_length(manager) > _MANAGED_BY_LENGTH_MAX:
        found.append(too_long(path, _MANAGED_BY_LENGTH_MAX))
    return found


def _check_indexed(spec: Object, path: str) -> Findings:
    mode = spec.get("completionMode")
    if mode is None or mode == "NonIndexed":
        return [
            invalid(child(path, name), spec[name], "requires indexed completion mode")
            for name in ("backoffLimitPerIndex", "maxFailedIndexes")
            if given(spec, name)
        ]
    if mode != "Indexed":
        return []
    found: Findings = []
    failed, completions = number(spec, "maxFailedIndexes"), number(spec, "completions")
    parallelism = number(spec, "parallelism")
    if completions is None:
        found.append(required(child(path, "completions"), "when completion mode is Indexed"))
    if parallelism is not None and parallelism > _PARALLELISM_MAX:
        detail = f"must be less than or equal to {_PARALLELISM_MAX} when completion mode is Indexed"
        found.append(invalid(child(path, "parallelism"), parallelism, detail))
    if failed is not None and completions is not None and failed > completions:
        found.append(invalid(child(path, "maxFailedIndexes"), failed, "must be less than or equal to completions"))
    if failed is not None and failed > _FAILED_INDEXES_MAX:
        detail = f"must be less than or equal to {_FAILED_INDEXES_MAX}"
        found.append(invalid(child(path, "maxFailedIndexes"), failed, detail))
    if completions is not None and completions > _COMPLETIONS_HIGH and given(spec, "backoffLimitPerIndex"):
        found += _check_many_indexes(failed, parallelism, path)
    return found


def _check_many_indexes(failed: int | None, parallelism: int | None, path: str) -> Findings:
    """The status names failed indexes, and must not grow without bounds."""
    found: Findings = []
    when = f"when completions are above {_COMPLETIONS_HIGH} and used with backoff limit per index"
    if failed is None:
        detail = f"must be specified when completions is above {_COMPLETIONS_HIGH}"
        found.append(required(child(path, "maxFailedIndexes"), detail))
    for name, value in (("parallelism", parallelism), ("maxFailedIndexes", failed)):
        if value is not None and value > _HIGH_LIMIT:
            found.append(invalid(child(path, name), value, f"must be less than or equal to {_HIGH_LIMIT} {when}"))
    return found


def _check_restart_policy(spec: Object, path: str) -> Findings:
    policy = text(spec, "template", "spec", "restartPolicy")
    if policy in ("Always", ""):
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):
        return [not_supported(path, policy, ("OnFailure", "Never"))]
    if given(spec, "podFailurePolicy") and policy != "Never":
        return [invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def _check_job_update(new: Object, old: Object, subresource: str) -> Findings:
    if subresource:
        return check_status_update(new, old)
    spec, before = members(new, "spec"), members(old, "spec")
    found: Findings = []
    if text(spec, "completionMode") != "Indexed":
        found += immutable(spec.get("completions"), before.get("completions"), "spec.completions")
    elif (
        given(spec, "completions")
        and spec["completions"] != before.get("completions")
        and spec["completions"] != spec.get("parallelism")
    ):
        detail = "can only be modified in tandem with spec.parallelism"
        found.append(invalid("spec.completions", spec["completions"], detail))
    found += immutable(selector_shown(spec.get("selector")), selector_shown(before.get("selector")), "spec.selector")
    found += _check_template_update(members(spec, "template"), old)
    for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        found += immutable(spec.get(name), before.get(name), child("spec", name))
    return found


def _check_template_update(template: Object, old: Object) -> Findings:
    """A template is immutable, except for scheduling directives and resources while the job is suspended
    and has no pods."""
    before = copied(members(old, "spec", "template"))
    status = members(old, "status")
    is_open = (
        flag(old, "spec", "suspend")
        and (not given(status, "startTime") or has(status, "Suspended"))
        and not number(status, "active")
    )
    if not is_open:
        return immutable(template, before, "spec.template")
    spec, old_spec = members(template, "spec"), present(before, "spec")
    _take(old_spec, spec, "nodeSelector", "tolerations", "schedulingGates")
    _take_node_affinity(old_spec, spec)
    _take(present(before, "metadata"), members(template, "metadata"), "labels", "annotations")
    for part in ("containers", "initContainers"):
        ours, theirs = items(spec, part), items(old_spec, part)
        if len(ours) == len(theirs):
            for one, other in zip(ours, theirs, strict=True):
                if text(one, "name") == text(other, "name"):
                    _take(other, one, "resources")
    return immutable(spec, old_spec, "spec.template.spec")


def _take(to: Object, of: Object, *names: str) -> None:
    for name in names:
        if name in of:
            to[name] = of[name]
        else:
            to.pop(name, None)


def _take_node_affinity(old_spec: Object, spec: Object) -> None:
    affinity = copied(members(old_spec, "affinity"))
    _take(affinity, members(spec, "affinity"), "nodeAffinity")
    if affinity or given(spec, "affinity"):
        old_spec["affinity"] = affinity
    else:
        old_spec.pop("affinity", None)


# --- cron jobs ---


def _check_cron_job(cron_job: Object) -> Findings:
    found = _check_cron_job_spec(members(cron_job, "spec"), None)
    name = text(cron_job, "metadata", "name")
    if len(name) > _CRON_NAME_LENGTH_MAX:
        # A cron job appends the scheduled time to the names of its jobs.
        found.append(invalid("metadata.name", name, f"must be no more than {_CRON_NAME_LENGTH_MAX} characters"))
    return found


def _recheck_cron_job(new: Object, old: Object) -> Findings:
    return _check_cron_job_spec(members(new, "spec"), members(old, "spec"))


def _check_cron_job_spec(spec: Object, before: Object | None) -> Findings:
    schedule = text(spec, "schedule")
    found: Findings = []
    if not schedule:
        found.append(required("spec.schedule"))
    else:
        found += _check_schedule(schedule, spec, before)
    found += not_negative(spec, "spec", "startingDeadlineSeconds")
    if before is None or before.get("timeZone") != spec.get("timeZone"):
        found += _check_time_zone(spec)
    found += one_of(spec, "concurrencyPolicy", ("Allow", "Forbid", "Replace"), "spec", needed=True)
    template = members(spec, "jobTemplate", "spec")
    path = "spec.jobTemplate.spec"
    found += _check_job_spec(template, path)
    if given(template, "selector"):
        shown = selector_shown(template["selector"])
        found.append(invalid(child(path, "selector"), shown, "`selector` will be auto-generated"))
    if flag(template, "manualSelector"):
        found.append(not_supported(child(path, "manualSelector"), True, ("nil", "false")))
    return found + not_negative(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")


def _check_schedule(schedule: str, spec: Object, before: Object | None) -> Findings:
    found: Findings = []
    try:
        parse_schedule(schedule)
    except ScheduleError as error:
        found.append(invalid("spec.schedule", schedule, str(error)))
    if "TZ" not in schedule:
        return found
    if before is None or "TZ" not in text(before, "schedule"):
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        found.append(invalid("spec.schedule", schedule, detail))
    elif given(spec, "timeZone"):
        detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        found.append(invalid("spec.schedule", schedule, detail))
    return found


def _check_time_zone(spec: Object) -> Findings:
    if not given(spec, "timeZone"):
        return []
    zone = text(spec, "timeZone")
    if not zone:
        return [invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")]
    parts = zone.split("/")
    if any(part in (".", "..") or part.startswith("-") or not _zone_part(part) for part in parts):
        return [invalid("spec.timeZone", zone, f"unknown time zone {zone}")]
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        found = [invalid("spec.timeZone", zone, detail)]
        return found if zone == "Local" else [*found, invalid("spec.timeZone", zone, f"unknown time zone {zone}")]
    return [] if time_zone(zone) is not None else [invalid("spec.timeZone", zone, f"unknown time zone {zone}")]


def _warnings(path: str, object_: Object) -> tuple[str, ...]:
    name, spec = text(object_, "metadata", "name"), members(object_, *path.split("."))
    found = []
    messages = formats.dns_label(name)
    if messages:
        shown = " ".join(messages)
        found.append(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS "
            f"label is recommended: [{shown}]"
        )
    is_large = (number(spec, "completions") or 0) > _COMPLETIONS_HIGH and (
        number(spec, "parallelism") or 0
    ) > _HIGH_LIMIT
    if text(spec, "completionMode") == "Indexed" and is_large:
        found.append(
            f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
            "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    return tuple(found)


JOB = Rules(
    defaults=_job_defaults,
    initial_status=lambda _: {},
    generation_of=("spec",),
    prepare_create=_generate_selector,
    check=_check_job,
    recheck=_recheck_job,
    check_update=_check_job_update,
    warnings=lambda job: _warnings("spec", job),
)
CRON_JOB = Rules(
    defaults=_cron_job_defaults,
    initial_status=lambda _: {},
    generation_of=("spec",),
    check=_check_cron_job,
    recheck=_recheck_cron_job,
    warnings=lambda cron_job: _warnings("spec.jobTemplate.spec", cron_job),
)
