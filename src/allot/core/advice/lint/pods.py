"""Pods, and the claims that they use or leave unused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from allot.core.advice.convert.drivers import driver_of_extended_resource
from allot.core.advice.convert.objects import mapping
from allot.core.advice.lint.claims import CLAIM, GROUP, TEMPLATE, PodSpec, claims
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.finding import Severity
from allot.core.advice.lint.selectors import driver_of
from allot.core.advice.lint.source import Subject
from allot.core.model import resource_v1 as api
from allot.core.model.plain import plain_text
from allot.core.model.scheduling_v1 import GROUP as SCHEDULING_GROUP
from allot.core.scheduling import DIALECTS

_GROUP_PRIORITY = ("spec", "priorityClassName")
_GROUP_MINIMUM = ("spec", "schedulingPolicy", "gang", "minCount")
_FOREIGN_MINIMUM = ("spec", "minMember")
_FOREIGN = frozenset(dialect.api_group for dialect in DIALECTS)
_ANY_NUMBER = 2**31


def check(context: Context) -> None:
    """Every pod, and every claim and template that pods could use."""
    for spec in context.pods:
        _check_pod(context, spec)
        _check_replicas(context, spec)
    _check_groups(context)
    if context.pods:
        _check_unused(context)


# --- unused claims ---


def _check_unused(context: Context) -> None:
    used: set[tuple[str, str, str]] = set()
    mentions: list[str] = []
    for subject in context.subjects:
        if subject.group != GROUP:
            used |= _used_by(subject, mentions)
    text = "\n".join(mentions)
    for subject in context.subjects:
        is_claim = subject.group == GROUP and subject.kind in (CLAIM, TEMPLATE) and "spec" in subject.value
        if not is_claim or not subject.name or (subject.kind, subject.home, subject.name) in used:
            continue
        if subject.name not in text:
            context.report(subject, "unused-claim", ("metadata", "name"), f"no pod of the input uses {subject.label}")


def _used_by(subject: Subject, mentions: list[str]) -> set[tuple[str, str, str]]:
    """Claims that an object of any kind names anywhere. Strings that contain manifests are added to the mentions."""
    found: set[tuple[str, str, str]] = set()
    pending: list[Any] = [subject.value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            found.add((CLAIM, subject.home, plain_text(value.get("resourceClaimName"))))
            found.add((TEMPLATE, subject.home, plain_text(value.get("resourceClaimTemplateName"))))
            # The wrapper of old versions.
            for name in mapping(value.get("source")).values():
                found |= {(CLAIM, subject.home, plain_text(name)), (TEMPLATE, subject.home, plain_text(name))}
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str) and "resourceClaim" in value:
            mentions.append(value)
    return found


# --- one pod ---


def _check_pod(context: Context, spec: PodSpec) -> None:
    names = {plain_text(entry.get("name")) for entry, _ in spec.claims}
    is_misspelt = any(
        plain_text(use.get("name")) not in names for each, at in spec.containers for use, _ in spec.claims_of(each, at)
    )
    for entry, path in spec.claims:
        name = plain_text(entry.get("name"))
        users = spec.users_of(name)
        # A container that names a claim which the pod lacks means one that the pod has.
        if name and not users and not is_misspelt:
            message = (
                f'no container uses claim "{name}": devices are allocated for the pod, but no container can use them'
            )
            fix = f"add it to a container: resources: {{claims: [{{name: {name}}}]}}"
            context.report(spec.subject, "unused-pod-claim", path, message, fix)
        elif len(users) > 1:
            message = f'containers {", ".join(users)} use the same devices, those of claim "{name}"'
            context.report(spec.subject, "containers-share-claim", path, message)
    _check_extended_resources(context, spec)


def _check_replicas(context: Context, spec: PodSpec) -> None:
    """Replicas that all name one claim share its devices."""
    per_node = spec.subject.kind == "DaemonSet"
    count = spec.pods
    if count < 2 and not per_node:
        return
    for entry, path in spec.claims:
        name = plain_text(entry.get("resourceClaimName"))
        if not name or _is_meant_to_be_shared(context, spec.subject.home, name):
            continue
        if per_node:
            message = f'the pods on all nodes refer to ResourceClaim "{name}", whose devices belong to one node: on other nodes they wait'
        else:
            message = f'{count} pods share the devices of ResourceClaim "{name}": none has its own device'
        severity = None
        if count > api.RESERVED_FOR_MAX:
            message += f", but a claim can be reserved for at most {api.RESERVED_FOR_MAX} pods"
            severity = Severity.ERROR
        fix = "refer to a ResourceClaimTemplate in resourceClaimTemplateName, so that each pod gets its own claim"
        context.report(
            spec.subject, "replicas-share-claim", (*path, "resourceClaimName"), message, fix, severity=severity
        )


def _is_meant_to_be_shared(context: Context, namespace: str, name: str) -> bool:
    """Whether a claim configures sharing, or only monitors the devices."""
    subject = context.named(CLAIM, namespace).get(name)
    for claim in claims(subject) if subject is not None else ():
        if any(config.sharing_strategy for config in claim.configs):
            return True
        leaves = [leaf for request in claim.requests for leaf in request.leaves]
        if leaves and all(leaf.wanted.get("adminAccess") is True for leaf in leaves):
            return True
    known = context.knowledge.claims.get((namespace, name))
    return known is not None and any(
        b'"strategy"' in config.opaque.parameters.data
        for config in known.spec.devices.config
        if config.opaque is not None and config.opaque.parameters is not None
    )


def _check_extended_resources(context: Context, spec: PodSpec) -> None:
    drivers = _claimed_drivers(context, spec)
    if not drivers:
        return
    for container, path in spec.containers:
        resources = mapping(container.get("resources"))
        for field in ("limits", "requests"):
            for name in mapping(resources.get(field)):
                replaced = driver_of_extended_resource(name) if isinstance(name, str) else None
                if replaced is not None and replaced[0].name in drivers:
                    message = (
                        f"{name} requests devices in addition to those of the claim: both are of {replaced[0].name}"
                    )
                    fix = "keep one of the two"
                    context.report(
                        spec.subject, "extended-resource-and-claim", (*path, "resources", field, name), message, fix
                    )
                    return


def _claimed_drivers(context: Context, spec: PodSpec) -> set[str]:
    found: set[str] = set()
    for entry, _ in spec.claims:
        for field, kind in (("resourceClaimName", CLAIM), ("resourceClaimTemplateName", TEMPLATE)):
            subject = context.named(kind, spec.subject.home).get(plain_text(entry.get(field)))
            for claim in claims(subject) if subject is not None else ():
                for request in claim.requests:
                    found |= {driver_of(context, leaf.device_class) or "" for leaf in request.leaves}
    return found - {""}


# --- groups ---


def _check_groups(context: Context) -> None:
    """A group needs enough pods, and pods with its priority: otherwise none of them is scheduled."""
    groups = {
        (subject.group, subject.home, subject.name): subject
        for subject in context.subjects
        if subject.kind == "PodGroup" and (subject.group == SCHEDULING_GROUP or subject.group in _FOREIGN)
    }
    made: dict[tuple[str, str, str], int] = {}
    for spec in context.pods:
        key = next((key for key in _groups_named(spec) if key in groups), None)
        if key is None:
            continue
        # The number of a DaemonSet's pods is unknown here.
        count = _ANY_NUMBER if spec.subject.kind == "DaemonSet" else max(1, spec.pods)
        made[key] = made.get(key, 0) + count
        _check_priority(context, spec, groups[key])
    for key, count in made.items():
        _check_minimum(context, groups[key], count)


def _groups_named(spec: PodSpec) -> Iterator[tuple[str, str, str]]:
    """API group, namespace and name of the groups that a pod names, for every scheduler."""
    home = spec.subject.home
    yield SCHEDULING_GROUP, home, plain_text(mapping(spec.spec.get("schedulingGroup")).get("podGroupName"))
    metadata = mapping(spec.subject.at((*spec.path[:-1], "metadata")))
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    for dialect in DIALECTS:
        names = [labels.get(key) for key in dialect.labels] + [annotations.get(key) for key in dialect.annotations]
        for name in names:
            yield dialect.api_group, home, plain_text(name)


def _check_priority(context: Context, spec: PodSpec, group: Subject) -> None:
    path = (*spec.path, "priorityClassName")
    own, of_group = plain_text(spec.spec.get("priorityClassName")), plain_text(group.at(_GROUP_PRIORITY))
    values = context.priority(own), context.priority(of_group)
    if own == of_group or (None not in values and values[0] == values[1]):
        return
    is_foreign = group.group in _FOREIGN
    if is_foreign and not of_group:
        # Such a group takes the priority of its pods.
        return
    name = group.name
    why = (
        "the queue uses one of them, preemption the other"
        if is_foreign
        else "a group whose pods have a different priority is not scheduled"
    )
    message = f"the pod has {_priority_text(own)}, its PodGroup {name} has {_priority_text(of_group)}: {why}"
    severity = Severity.ERROR if None not in values and not is_foreign else None
    fix = f"priorityClassName: {of_group}" if of_group else f"give PodGroup {name} priorityClassName: {own}"
    context.report(spec.subject, "group-priority", path, message, fix, severity=severity)


def _check_minimum(context: Context, group: Subject, pods: int) -> None:
    """A gang that needs more pods at once than exist waits forever. pods: how many the input creates for it."""
    path = _FOREIGN_MINIMUM if group.group in _FOREIGN else _GROUP_MINIMUM
    minimum = group.at(path)
    if not isinstance(minimum, int) or pods >= minimum:
        return
    message = (
        f"the group needs {minimum} pods at once, but only {pods} in the input refer to it: "
        "without others, none of them starts"
    )
    context.report(group, "group-minimum", path, message, f"{path[-1]}: {pods}, or {minimum - pods} more pods")


def _priority_text(name: str) -> str:
    return f"priority class {name}" if name else "no priority class"
