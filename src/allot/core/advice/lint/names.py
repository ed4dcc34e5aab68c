"""Dangling names: device classes, claims and templates, drivers of configuration, requests that containers name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from allot.core.advice.lint.claims import (
    CLAIM,
    CLASS,
    GROUP,
    TEMPLATE,
    Config,
    PodSpec,
    claims,
    class_configs,
)
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.finding import Severity
from allot.core.advice.lint.selectors import check_driver
from allot.core.advice.lint.source import Subject
from allot.core.advice.nearest import did_you_mean, nearest
from allot.core.advice.places import Path
from allot.core.model.plain import plain_text

# How similar to a known name a misspelling must be.
_SLIP = 0.8
_DIGITS = re.compile("[0-9]+")


def check(context: Context) -> None:
    """Every object."""
    seen: dict[tuple[str, str, str, str], Subject] = {}
    for subject in context.subjects:
        _check_twice(context, subject, seen)
        if subject.group == GROUP and subject.kind == CLASS:
            _check_config_drivers(context, subject, class_configs(subject))
        for claim in claims(subject):
            _check_config_drivers(context, subject, claim.configs)
            for request in claim.requests:
                for leaf in request.leaves:
                    if leaf.device_class:
                        _check_class(context, subject, (*leaf.wanted_path, "deviceClassName"), leaf.device_class)
    for spec in context.pods:
        _check_pod(context, spec)


def _check_twice(context: Context, subject: Subject, seen: dict[tuple[str, str, str, str], Subject]) -> None:
    if not subject.at(("metadata", "name")):
        return
    key = (subject.group, subject.kind, subject.home, subject.name)
    first = seen.setdefault(key, subject)
    is_part = "status" in subject.value and "spec" not in subject.value
    if first is not subject and not is_part and "spec" in first.value:
        where = f"{first.source.name}:{first.place(()).line}"
        message = f"{subject.label} is also in {where}, which this one replaces"
        # Files that are variants of each other are not used together.
        severity = None if first.source is subject.source else Severity.NOTE
        context.report(subject, "duplicate-object", ("metadata", "name"), message, severity=severity)


def _check_config_drivers(context: Context, subject: Subject, configs: Iterable[Config]) -> None:
    for config in configs:
        if config.driver:
            check_driver(context, subject, (*config.path, "driver"), config.driver)


# --- device classes ---


def _check_class(context: Context, subject: Subject, path: Path, name: str) -> None:
    in_input = context.named(CLASS)
    known = {*in_input, *context.knowledge.classes}
    if name in known:
        return
    message = f'device class "{name}" is unknown'
    if context.knowledge.is_cluster:
        message = f'device class "{name}" does not exist: the pod would stay pending'
    elif not context.knowledge.is_given and not is_slip(name, known):
        # Without a cluster, only a likely misspelling is reported.
        return
    context.report(subject, "unknown-device-class", path, message, did_you_mean(name, known), severity=context.certain)


# --- pods ---


def _check_pod(context: Context, spec: PodSpec) -> None:
    for entry, path in spec.claims:
        for field, kind in (("resourceClaimName", CLAIM), ("resourceClaimTemplateName", TEMPLATE)):
            name = plain_text(entry.get(field))
            if name:
                _check_reference(context, spec.subject, (*path, field), kind, name)
    for container, container_path in spec.containers:
        for use, path in spec.claims_of(container, container_path):
            _check_use(context, spec, plain_text(use.get("name")), plain_text(use.get("request")), path)


def _check_reference(context: Context, subject: Subject, path: Path, kind: str, name: str) -> None:
    namespace = subject.home
    known = set(context.named(kind, namespace)) | {each for where, each in _known(context, kind) if where == namespace}
    if name in known:
        return
    rule, noun = ("unknown-claim", "claim") if kind == CLAIM else ("unknown-template", "claim template")
    elsewhere = sorted(
        {each.home for each in context.subjects if (each.kind, each.name, each.group) == (kind, name, GROUP)}
    )
    fix = did_you_mean(name, known)
    if elsewhere:
        fix = f"{kind} {name} is in namespace {', '.join(elsewhere)}: a pod can use only claims in its own namespace"
    slip = bool(elsewhere) or is_slip(name, known)
    severity = Severity.ERROR if context.knowledge.is_cluster else Severity.WARNING if slip else None
    where = "in the cluster or the input" if context.knowledge.is_cluster else "in the input"
    message = f'{noun} "{name}" of namespace {namespace} is not {where}'
    context.report(subject, rule, path, message, fix, severity=severity)


def is_slip(name: str, known: Iterable[str]) -> bool:
    """Whether a name looks misspelt. Names that differ only in their numbers belong to a series."""
    meant = nearest(name, known, likeness_min=_SLIP)
    return meant is not None and _DIGITS.sub("", meant) != _DIGITS.sub("", name)


def _known(context: Context, kind: str) -> Iterable[tuple[str, str]]:
    return context.knowledge.claims if kind == CLAIM else context.knowledge.templates


def _check_use(context: Context, spec: PodSpec, claim_name: str, request: str, path: Path) -> None:
    """A request that a container names."""
    if not request:
        return
    requests = requests_of(context, spec, claim_name)
    if requests is not None and request not in requests:
        message = f'claim "{claim_name}" has no request "{request}"'
        context.report(spec.subject, "unknown-request", (*path, "request"), message, did_you_mean(request, requests))


def requests_of(context: Context, spec: PodSpec, claim_name: str) -> list[str] | None:
    """The request names of a pod's claim; None if the claim is unknown."""
    for entry, _ in spec.claims:
        if entry.get("name") != claim_name:
            continue
        for field, kind in (("resourceClaimName", CLAIM), ("resourceClaimTemplateName", TEMPLATE)):
            name = plain_text(entry.get(field))
            subject = context.named(kind, spec.subject.home).get(name)
            if subject is not None:
                return [request.name for claim in claims(subject) for request in claim.requests]
            known = _object(context, kind, spec.subject.home, name)
            if known is not None:
                return known
    return None


def _object(context: Context, kind: str, namespace: str, name: str) -> list[str] | None:
    knowledge, key = context.knowledge, (namespace, name)
    if kind == CLAIM and key in knowledge.claims:
        devices = knowledge.claims[key].spec.devices
    elif kind == TEMPLATE and key in knowledge.templates:
        devices = knowledge.templates[key].spec.spec.devices
    else:
        return None
    return [request.name for request in devices.requests]
