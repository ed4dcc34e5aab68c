"""Pods and the claims that they use or do not use."""

from __future__ import annotations

from allot.core.advice.convert.drivers import driver_of_extended_resource
from allot.core.advice.convert.objects import mapping
from allot.core.advice.lint.claims import CLAIM, GROUP, TEMPLATE, PodSpec, claims, pod_specs
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.selectors import driver_of
from allot.core.advice.lint.source import Subject
from allot.core.model.plain import plain_text


def check(context: Context) -> None:
    """Every pod, and every claim and template that pods could use."""
    used: set[tuple[str, str, str]] = set()
    has_pods = False
    for subject in context.subjects:
        for spec in pod_specs(subject):
            has_pods = True
            _check_pod(context, spec)
            for entry, _ in spec.claims:
                used.add((CLAIM, subject.home, plain_text(entry.get("resourceClaimName"))))
                used.add((TEMPLATE, subject.home, plain_text(entry.get("resourceClaimTemplateName"))))
                # The wrapper of old versions, whatever it calls them.
                for name in mapping(entry.get("source")).values():
                    used |= {(CLAIM, subject.home, plain_text(name)), (TEMPLATE, subject.home, plain_text(name))}
        used |= _used_by_group(subject)
    for subject in context.subjects if has_pods else ():
        is_claim = subject.group == GROUP and subject.kind in (CLAIM, TEMPLATE) and "spec" in subject.value
        if is_claim and subject.name and (subject.kind, subject.home, subject.name) not in used:
            context.report(subject, "unused-claim", ("metadata", "name"), f"no pod of the input uses {subject.label}")


def _used_by_group(subject: Subject) -> set[tuple[str, str, str]]:
    """Claims that a PodGroup or Workload names."""
    if subject.group != "scheduling.k8s.io":
        return set()
    found: set[tuple[str, str, str]] = set()
    pending = [subject.value.get("spec")]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            found.add((CLAIM, subject.home, plain_text(value.get("resourceClaimName"))))
            found.add((TEMPLATE, subject.home, plain_text(value.get("resourceClaimTemplateName"))))
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return found


def _check_pod(context: Context, spec: PodSpec) -> None:
    for entry, path in spec.claims:
        name = plain_text(entry.get("name"))
        users = spec.users_of(name)
        if name and not users:
            message = (
                f'no container uses claim "{name}": devices are allocated for the pod and none of them gets to see them'
            )
            fix = f"add it to a container: resources: {{claims: [{{name: {name}}}]}}"
            context.report(spec.subject, "unused-pod-claim", path, message, fix)
        elif len(users) > 1:
            message = f'containers {", ".join(users)} use the same devices, those of claim "{name}"'
            context.report(spec.subject, "containers-share-claim", path, message)
    _check_extended_resources(context, spec)


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
                    message = f"{name} asks for devices besides those of the claim: both are of {replaced[0].name}"
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
