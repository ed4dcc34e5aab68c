"""Kinds and versions that the API server does not serve: removed, misspelt, or of another scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from allot.core.advice.lint.context import Context
from allot.core.advice.lint.finding import Severity
from allot.core.advice.lint.old_forms import OldForms, report_old_forms
from allot.core.advice.lint.source import Subject
from allot.core.advice.nearest import did_you_mean, nearest

CONVERT = "allot convert writes it in the current version"
_POD_GROUPS = {
    "scheduling.x-k8s.io": "the scheduler-plugins project",
    "scheduling.sigs.k8s.io": "the scheduler-plugins project",
    "scheduling.run.ai": "KAI Scheduler",
    "scheduling.volcano.sh": "Volcano",
}
_OWN_POD_GROUP = "Kubernetes' own is scheduling.k8s.io PodGroup, which pods refer to in spec.schedulingGroup; allot convert --gangs creates it"
_FORMER_GROUPS = ("extensions",)
# How similar to a served group a misspelling must be.
_SLIP = 0.93
_GONE = {
    "ResourceClass": "it became DeviceClass",
    "ResourceClassParameters": "parameters became selectors and config of a DeviceClass",
    "ResourceClaimParameters": "parameters became requests, selectors and config of the claim",
    "PodSchedulingContext": "the scheduler now allocates without it",
}

# Group, version and kind of everything that is served.
_Served = Sequence[tuple[str, str, str]]


def check_unserved(context: Context, forms: OldForms, subject: Subject, served: _Served) -> None:
    """An object with an unserved version or kind. Custom resources are not reported."""
    group, kind = subject.group, subject.kind
    if kind == "PodGroup" and group in _POD_GROUPS:
        text = f"{group} PodGroup belongs to {_POD_GROUPS[group]}: kube-scheduler places its pods one by one"
        context.report(subject, "foreign-pod-group", ("apiVersion",), text, _OWN_POD_GROUP)
        return
    versions = [version for each_group, version, each_kind in served if (each_group, each_kind) == (group, kind)]
    if versions:
        text = f"{subject.api_version} {kind} is not served: expected {' or '.join(_joined(group, each) for each in versions)}"
        fix = CONVERT if forms.changes(subject) else f"write it in {_joined(group, versions[0])}"
        context.report(subject, "old-api-version", ("apiVersion",), text, fix, severity=Severity.ERROR)
        report_old_forms(context, forms, subject)
        return
    if group == "resource.k8s.io" and kind in _GONE:
        text = f"{subject.api_version} {kind} no longer exists: {_GONE[kind]}"
        context.report(subject, "old-api-version", ("apiVersion",), text, CONVERT, severity=Severity.ERROR)
        report_old_forms(context, forms, subject)
        return
    meant = group_meant(group, served)
    if meant is not None:
        text = f'no matches for kind "{kind}" in version "{subject.api_version}"'
        context.report(subject, "unknown-kind", ("kind",), text, _kind_meant(meant, kind, served))


def _kind_meant(group: str, kind: str, served: _Served) -> str:
    others = sorted({f"{_joined(g, v)} {k}" for g, v, k in served if k == kind})
    if others:
        return f"{kind} is in {' or '.join(others)}"
    return did_you_mean(kind, {k for g, _, k in served if g == group} or {k for _, _, k in served})


def _joined(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def group_meant(group: str, served: Iterable[tuple[str, str, str]]) -> str | None:
    """The intended API group. Other groups belong to custom resources and configuration files of Kubernetes programs,
    which are unknown here; so do, by convention, those that end in x-k8s.io."""
    groups = {each for each, _, _ in served}
    if group.endswith(".x-k8s.io"):
        return None
    if group in groups or group in _FORMER_GROUPS:
        return group
    return nearest(group, groups - {""}, likeness_min=_SLIP) if "k8s" in group or group.endswith(".io") else None
