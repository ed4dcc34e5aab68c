"""Valid claims and classes that do not do what they seem to: alternatives, constraints, sharing, configuration."""

from __future__ import annotations

from typing import Any

from allot.core.advice.convert.objects import mapping
from allot.core.advice.lint.claims import (
    CLASS,
    GROUP,
    Claim,
    Config,
    Request,
    claims,
    class_configs,
)
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.expressions import ATTRIBUTES
from allot.core.advice.lint.finding import Fix, Severity
from allot.core.advice.lint.knowledge import STANDARD_ATTRIBUTES, STANDARD_DOMAIN
from allot.core.advice.lint.selectors import is_known
from allot.core.advice.lint.source import Subject
from allot.core.advice.nearest import did_you_mean, nearest
from allot.core.cel.device import split_name
from allot.core.model.plain import plain_text
from allot.core.model.resource_v1 import ADMIN_ACCESS_LABEL

# How similar to a Kubernetes attribute a misspelling must be.
_SLIP = 0.8
# Attributes that requests derive, which devices do not have.
_DERIVED_DOMAIN = "derived"


def check(context: Context) -> None:
    """Every claim, template and class."""
    for subject in context.subjects:
        if subject.group == GROUP and subject.kind == CLASS:
            _check_class(context, subject)
        for claim in claims(subject):
            for request in claim.requests:
                _check_alternatives(context, claim, request)
                _check_admin_access(context, claim, request)
            _check_constraints(context, claim)
            _check_sharing(context, claim)
            for config in claim.configs:
                _check_config(context, subject, config)


def _check_class(context: Context, subject: Subject) -> None:
    spec = mapping(subject.value.get("spec"))
    if not spec.get("selectors") and "spec" in subject.value:
        message = "without selectors, the class includes every device of every driver"
        context.report(
            subject,
            "class-without-selectors",
            ("spec",),
            message,
            'select by driver: device.driver == "driver.example.com"',
        )
    for config in class_configs(subject):
        _check_config(context, subject, config)


def _check_config(context: Context, subject: Subject, config: Config) -> None:
    check = context.knowledge.config_checks.get(config.driver)
    problem = check(config.parameters) if check is not None and isinstance(config.parameters, dict) else ""
    if problem:
        message = f"driver {config.driver} would refuse it: {problem}"
        context.report(subject, "unknown-config", (*config.path, "parameters"), message)


# --- alternatives ---


def _check_alternatives(context: Context, claim: Claim, request: Request) -> None:
    for index, alternative in enumerate(request.alternatives):
        if alternative.wants_all:
            message = (
                f'alternative "{alternative.name}" takes all matching devices, however many, so later alternatives '
                "apply only to nodes without any; and it is not chosen as soon as one device is in use"
            )
            context.report(
                claim.subject,
                "all-in-alternative",
                (*alternative.wanted_path, "allocationMode"),
                message,
                "set a count",
            )
        for earlier in request.alternatives[:index]:
            if _asks_no_less(alternative, earlier) and not _is_named(claim, request):
                message = f'alternative "{alternative.name}" is never chosen: it asks for at least as much as "{earlier.name}" before it'
                context.report(
                    claim.subject, "unreachable-alternative", alternative.path, message, "remove it, or ask for less"
                )
                break


def _asks_no_less(later: Request, earlier: Request) -> bool:
    """Whether everything that satisfies the later alternative also satisfies the earlier one."""
    if later.wants_all or earlier.wants_all or later.device_class != earlier.device_class:
        return False
    if earlier.wanted.get("capacity") != later.wanted.get("capacity"):
        return False
    tolerations = earlier.wanted.get("tolerations") or []
    if any(each not in tolerations for each in later.wanted.get("tolerations") or ()):
        return False
    later_expressions = {selector.expression.strip() for selector in later.selectors}
    return earlier.count <= later.count and all(
        selector.expression.strip() in later_expressions for selector in earlier.selectors
    )


def _is_named(claim: Claim, request: Request) -> bool:
    """Whether something names one alternative of the request, which makes it differ from the others."""
    prefix = f"{request.name}/"
    named = [name for config in claim.configs for name in config.requests]
    for constraint, _ in claim.constraints:
        named += [name for name in constraint.get("requests") or () if isinstance(name, str)]
    return any(name.startswith(prefix) for name in named)


# --- admin access ---


def _check_admin_access(context: Context, claim: Claim, request: Request) -> None:
    if request.wanted.get("adminAccess") is not True:
        return
    namespace = claim.subject.home
    labels = context.namespace_labels.get(namespace)
    if labels is not None and labels.get(ADMIN_ACCESS_LABEL) == "true":
        return
    fix = f'label the namespace: {ADMIN_ACCESS_LABEL}: "true"'
    known = labels is not None
    message = f"admin access is allowed only in namespaces with the label {ADMIN_ACCESS_LABEL}, " + (
        f"and {namespace} lacks it" if known else f"and the labels of {namespace} are unknown"
    )
    severity = Severity.ERROR if known else Severity.NOTE
    context.report(
        claim.subject, "admin-access", (*request.wanted_path, "adminAccess"), message, fix, severity=severity
    )


# --- constraints ---


def _check_constraints(context: Context, claim: Claim) -> None:
    for constraint, path in claim.constraints:
        named = constraint.get("requests")
        named = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
        meant = [
            request
            for request in claim.requests
            if not named or any(name == request.name or name.startswith(f"{request.name}/") for name in named)
        ]
        if len(meant) == 1 and all(not leaf.wants_all and leaf.count == 1 for leaf in meant[0].leaves):
            message = f'the constraint concerns only request "{meant[0].name}", which is one device'
            context.report(
                claim.subject, "constraint-without-effect", path, message, "add the other requests, or remove it"
            )
        attribute = plain_text(constraint.get("matchAttribute")) or plain_text(constraint.get("distinctAttribute"))
        if attribute and meant:
            _check_constraint_attribute(context, claim, attribute, path)


def _check_constraint_attribute(context: Context, claim: Claim, attribute: str, path: Any) -> None:
    knowledge = context.knowledge
    domain, name = split_name(attribute, "")
    if domain == _DERIVED_DOMAIN:
        return
    field = "matchAttribute" if claim.subject.at((*path, "matchAttribute")) else "distinctAttribute"
    if domain == STANDARD_DOMAIN and name not in STANDARD_ATTRIBUTES:
        meant = nearest(name, STANDARD_ATTRIBUTES, likeness_min=_SLIP)
        if meant is not None:
            message = f'Kubernetes has no attribute "{attribute}"'
            fix = Fix(f'write "{domain}/{meant}"', claim.subject.text_edit((*path, field), f"{domain}/{meant}"))
            context.report(claim.subject, "constraint-attribute", (*path, field), message, fix)
            return
    if not knowledge.has_devices or is_known(context, ATTRIBUTES, domain, name):
        return
    message = f'no known device has attribute "{attribute}", so the constraint cannot be satisfied'
    known = [f"{where}/{each}" for where, each_names in knowledge.words.attributes.items() for each in each_names]
    context.report(claim.subject, "constraint-attribute", (*path, field), message, did_you_mean(attribute, known))


# --- sharing ---


def _check_sharing(context: Context, claim: Claim) -> None:
    if not claim.is_template:
        return
    for config in claim.configs:
        strategy = config.sharing_strategy
        if not strategy or _is_shared_in_pods(context, claim):
            continue
        message = f"{strategy} in a template does not share a device among pods: each pod gets its own claim and therefore its own device"
        fix = "make it a ResourceClaim that the pods refer to in resourceClaimName"
        context.report(claim.subject, "sharing-in-template", (*config.path, "parameters", "sharing"), message, fix)


def _is_shared_in_pods(context: Context, claim: Claim) -> bool:
    """Whether the pods of the input share it among their containers."""
    users = context.pods_by_template.get((claim.subject.home, claim.subject.name), ())
    return bool(users) and all(len(spec.users_of(name)) > 1 for spec, name in users)
