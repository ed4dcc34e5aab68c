"""Jobs and cron jobs.

Not covered: pod failure and success policies, gangs of jobs, changes of a suspended job's resources.
"""

from __future__ import annotations

import re
from typing import Any

from allot.core.validation import formats
from allot.core.validation.builtin.checks import immutable, label_selector, not_negative, one_of, selector_matches
from allot.core.validation.builtin.cron import schedule_problem
from allot.core.validation.builtin.pod_defaults import template_defaults
from allot.core.validation.builtin.pod_template import check_template
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import (
    Object,
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
    go_json,
    invalid,
    not_supported,
    required,
    too_long,
)

_UID_LABEL = "batch.kubernetes.io/controller-uid"
_NAME_LABEL = "batch.kubernetes.io/job-name"
_INT32_MAX = 2**31 - 1
_PARALLELISM_MAX = 100_000
_FAILED_INDEXES_MAX = 100_000
_MANAGED_BY_LENGTH_MAX = 63
_CRON_NAME_LENGTH_MAX = 52

_zone_part = re.compile(r"[A-Za-z0-9_+\-.]{1,64}").fullmatch


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
    labels = members(template, "metadata", "labels")
    metadata = present(job, "metadata")
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _cron_job_defaults(cron_job: Object) -> None:
    spec = present(cron_job, "spec")
    fill_text(spec, concurrencyPolicy="Allow")
    fill(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    template = present(spec, "jobTemplate")
    fill(template, metadata={})
    # A job template gets the defaults of pods only; those of jobs come when a job is made of it.
    template_defaults(present(present(template, "spec"), "template"))


def _generate_selector(job: Object) -> None:
    """A job selects its pods by its own uid, unless it was told to select by hand."""
    spec, uid, name = members(job, "spec"), text(job, "metadata", "uid"), text(job, "metadata", "name")
    if flag(spec, "manualSelector") or not uid:
        return
    template = present(spec, "template")
    metadata = present(template, "metadata")
    # Labels that somebody else put there stay, and validation reports them.
    labels = {_UID_LABEL: uid, _NAME_LABEL: name, "controller-uid": uid, "job-name": name}
    metadata["labels"] = labels | members(metadata, "labels")
    selector = present(spec, "selector")
    selector["matchLabels"] = {_UID_LABEL: uid} | members(selector, "matchLabels")


def _check_job(job: Object) -> Findings:
    spec = members(job, "spec")
    found = _check_job_spec(spec, "spec")
    selector, labels = spec.get("selector"), members(spec, "template", "metadata", "labels")
    if selector is None:
        found.append(required("spec.selector"))
    else:
        found += label_selector(selector, "spec.selector")
        if not selector_matches(selector, labels):
            detail = "`selector` does not match template `labels`"
            found.append(invalid("spec.template.metadata.labels", dict(sorted(labels.items())), detail))
        if not flag(spec, "manualSelector"):
            found += _check_generated(job, selector, labels)
    if text(job, "metadata", "name") and text(spec, "completionMode") == "Indexed":
        found += _check_indexed_name(text(job, "metadata", "name"), number(spec, "completions"))
    return found


def _check_generated(job: Object, selector: Any, labels: Object) -> Findings:
    uid, name = text(job, "metadata", "uid"), text(job, "metadata", "name")
    expected = {"controller-uid": uid, "job-name": name, _UID_LABEL: uid, _NAME_LABEL: name}
    found: Findings = []
    for label, value in expected.items():
        where = f"spec.template.metadata.labels[{label}]"
        if label not in labels:
            found.append(required("spec.template.metadata.labels", f"must be '{value}'"))
        elif labels[label] != value:
            found.append(invalid(where, dict(sorted(labels.items())), f"must be '{value}'"))
    if not selector_matches(selector, expected):
        found.append(invalid("spec.selector", selector_shown(selector), "`selector` not auto-generated"))
    return found


def _check_indexed_name(name: str, completions: int | None) -> Findings:
    if not completions or completions < 1:
        return []
    # The pods of an indexed job get its name with their index as host name.
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
    if byte_length(text(spec, "managedBy")) > _MANAGED_BY_LENGTH_MAX:
        found.append(too_long(child(path, "managedBy"), _MANAGED_BY_LENGTH_MAX))
    found += one_of(spec, "completionMode", ("Indexed", "NonIndexed"), path)
    found += _check_indexed(spec, path)
    if given(spec, "podFailurePolicy"):
        found += one_of(spec, "podReplacementPolicy", ("Failed",), path)
    else:
        found += one_of(spec, "podReplacementPolicy", ("Failed", "TerminatingOrFailed"), path)
    found += check_template(members(spec, "template"), child(path, "template"))
    return found + _check_restart_policy(spec, child(path, "template", "spec", "restartPolicy"))


def _check_indexed(spec: Object, path: str) -> Findings:
    found: Findings = []
    failed, completions = number(spec, "maxFailedIndexes"), number(spec, "completions")
    if text(spec, "completionMode") != "Indexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if given(spec, name):
                found.append(invalid(child(path, name), spec[name], "requires indexed completion mode"))
        if given(spec, "successPolicy"):
            found.append(
                invalid(child(path, "successPolicy"), spec["successPolicy"], "requires indexed completion mode")
            )
        return found
    if completions is None:
        found.append(required(child(path, "completions"), "when completion mode is Indexed"))
    parallelism = number(spec, "parallelism")
    if parallelism is not None and parallelism > _PARALLELISM_MAX:
        detail = f"must be less than or equal to {_PARALLELISM_MAX} when completion mode is Indexed"
        found.append(invalid(child(path, "parallelism"), parallelism, detail))
    if failed is not None and completions is not None and failed > completions:
        found.append(invalid(child(path, "maxFailedIndexes"), failed, "must be less than or equal to completions"))
    if failed is not None and failed > _FAILED_INDEXES_MAX:
        detail = f"must be less than or equal to {_FAILED_INDEXES_MAX}"
        found.append(invalid(child(path, "maxFailedIndexes"), failed, detail))
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
        return []
    spec, before = members(new, "spec"), members(old, "spec")
    found: Findings = []
    if text(spec, "completionMode") != "Indexed":
        found += immutable(spec.get("completions"), before.get("completions"), "spec.completions")
    elif spec.get("completions") != before.get("completions") and spec.get("completions") != spec.get("parallelism"):
        detail = "can only be modified in tandem with spec.parallelism"
        found.append(invalid("spec.completions", spec.get("completions"), detail))
    found += immutable(selector_shown(spec.get("selector")), selector_shown(before.get("selector")), "spec.selector")
    if not flag(before, "suspend"):
        found += immutable(spec.get("template"), before.get("template"), "spec.template")
    for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        found += immutable(spec.get(name), before.get(name), child("spec", name))
    return found


# --- cron jobs ---


def _check_cron_job(cron_job: Object) -> Findings:
    spec = members(cron_job, "spec")
    schedule, name = text(spec, "schedule"), text(cron_job, "metadata", "name")
    found: Findings = []
    if not schedule:
        found.append(required("spec.schedule"))
    else:
        problem = schedule_problem(schedule)
        found += [invalid("spec.schedule", schedule, problem)] if problem else []
        if "TZ" in schedule:
            detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            found.append(invalid("spec.schedule", schedule, detail))
    found += not_negative(spec, "spec", "startingDeadlineSeconds")
    found += _check_time_zone(spec)
    found += one_of(spec, "concurrencyPolicy", ("Allow", "Forbid", "Replace"), "spec", needed=True)
    template = members(spec, "jobTemplate", "spec")
    path = "spec.jobTemplate.spec"
    found += _check_job_spec(template, path)
    if given(template, "selector"):
        shown = selector_shown(template["selector"])
        found.append(invalid(child(path, "selector"), shown, "`selector` will be auto-generated"))
    if flag(template, "manualSelector"):
        found.append(not_supported(child(path, "manualSelector"), go_json(True), ("nil", "false")))
    found += not_negative(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    if len(name) > _CRON_NAME_LENGTH_MAX:
        # A job made at a certain time has that time behind its name.
        found.append(invalid("metadata.name", name, f"must be no more than {_CRON_NAME_LENGTH_MAX} characters"))
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
        return [invalid("spec.timeZone", zone, detail)]
    return []


JOB = Rules(
    defaults=_job_defaults,
    initial_status=lambda _: {},
    generation_of=("spec",),
    prepare_create=_generate_selector,
    check=_check_job,
    check_update=_check_job_update,
)
CRON_JOB = Rules(
    defaults=_cron_job_defaults,
    initial_status=lambda _: {},
    generation_of=("spec",),
    check=_check_cron_job,
)
