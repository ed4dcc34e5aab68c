"""admissionregistration.k8s.io: rules for policies, their bindings and webhooks, expressions included.

Expressions are compiled when they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from allot.core.cel.checking.types import BOOL, NULL, STRING, list_of
from allot.core.policies.environment import APPLIED, PATCH
from allot.core.policies.expressions import Expressions, check_conditions, check_expression, check_variables
from allot.core.policies.selection import check_match_resources, check_param_kind, selection_defaults
from allot.core.policies.webhook_rules import WEBHOOKS
from allot.core.validation import formats
from allot.core.validation.builtin.checks import json_conditions, label_selector, one_of, told
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import Object, fill_text, given, items, members, present, same, text, texts
from allot.core.validation.fields import Findings, child, duplicate, forbidden, index, invalid, not_supported, required

GROUP = "admissionregistration.k8s.io"
_FAILURE_POLICIES = ("Fail", "Ignore")
_REINVOCATIONS = ("IfNeeded", "Never")
_ACTIONS = ("Audit", "Deny", "Warn")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_PATCH_TYPES = ("ApplyConfiguration", "JSONPatch")
_AUDIT_ANNOTATIONS_MAX = 20
_VALUE_EXPRESSION_LENGTH_MAX = 5 * 1024
_EXCLUSIVE = "name and selector are mutually exclusive"


# --- policies ---


def _policy_defaults(policy: Object) -> None:
    spec = present(policy, "spec")
    fill_text(spec, failurePolicy="Fail")
    if isinstance(spec.get("matchConstraints"), dict):
        selection_defaults(spec["matchConstraints"])


def _check_policy(spec: Object, expressions: Expressions, *, mutating: bool = False) -> Findings:
    """What policies that validate and policies that mutate have in common."""
    found = one_of(spec, "failurePolicy", _FAILURE_POLICIES, "spec", needed=True)
    if given(spec, "paramKind"):
        found += check_param_kind(members(spec, "paramKind"), "spec.paramKind")
    path, constraints = "spec.matchConstraints", members(spec, "matchConstraints")
    if given(spec, "matchConstraints"):
        found += check_match_resources(constraints, path, mutating=mutating)
        found += [] if items(constraints, "resourceRules") else [required(child(path, "resourceRules"))]
    else:
        found.append(required(path))
    found += check_conditions(items(spec, "matchConditions"), expressions, "spec.matchConditions")
    return found + check_variables(items(spec, "variables"), expressions, "spec.variables")


def _expressions_of(spec: Object) -> Expressions:
    return Expressions(params=given(spec, "paramKind"))


def _check_validating_policy(policy: Object) -> Findings:
    spec, name = members(policy, "spec"), text(policy, "metadata", "name")
    expressions = _expressions_of(spec)
    found = _check_policy(spec, expressions)
    validations, annotations = items(spec, "validations"), items(spec, "auditAnnotations")
    if not validations and not annotations:
        detail = "validations or auditAnnotations must contain at least one item"
        return [*found, required("spec.validations", detail), required("spec.auditAnnotations", detail)]
    for position, validation in enumerate(validations):
        found += _check_validation(validation, expressions, index("spec.validations", position))
    if len(annotations) > _AUDIT_ANNOTATIONS_MAX:
        detail = f"must not have more than {_AUDIT_ANNOTATIONS_MAX} auditAnnotations"
        found.append(invalid("spec.auditAnnotations", annotations, detail))
    keys = set()
    for position, annotation in enumerate(annotations[: _AUDIT_ANNOTATIONS_MAX + 1]):
        where, key = index("spec.auditAnnotations", position), text(annotation, "key")
        found += told(child(where, "key"), f"{name}/{key}", formats.label_key(f"{name}/{key}"))
        found += _check_annotation(text(annotation, "valueExpression"), expressions, child(where, "valueExpression"))
        if key in keys:
            found.append(duplicate(child(where, "key"), key))
        keys.add(key)
    return found


def _check_annotation(source: str, expressions: Expressions, path: str) -> Findings:
    if len(source.strip()) > _VALUE_EXPRESSION_LENGTH_MAX:
        return [required(path, f"must not exceed {_VALUE_EXPRESSION_LENGTH_MAX} bytes in length")]
    problem: Callable[[str], str] = lambda each: expressions.problem(each.strip(), STRING, NULL)  # noqa: E731
    return check_expression(source, problem, path, "valueExpression is not specified")


def _check_validation(validation: Object, expressions: Expressions, path: str) -> Findings:
    missing = "expression is not specified"
    found = check_expression(
        text(validation, "expression"), lambda each: expressions.problem(each, BOOL), child(path, "expression"), missing
    )
    told_, message = text(validation, "messageExpression"), text(validation, "message")
    where = child(path, "messageExpression")
    if told_ and not told_.strip():
        found.append(invalid(where, told_, "must be non-empty if specified"))
    elif told_:
        problem = expressions.problem(told_, STRING, authorizer=False)
        found += [invalid(where, told_, problem)] if problem else []
    if message and not message.strip():
        found.append(invalid(child(path, "message"), message, "must be non-empty if specified"))
    elif "\n" in message.strip() or "\r" in message.strip():
        found.append(invalid(child(path, "message"), message, "must not contain line breaks"))
    return found + one_of(validation, "reason", _REASONS, path)


def _check_mutating_policy(policy: Object) -> Findings:
    spec = members(policy, "spec")
    expressions = _expressions_of(spec)
    found = _check_policy(spec, expressions, mutating=True)
    mutations = items(spec, "mutations")
    if not mutations:
        found.append(required("spec.mutations", "mutations must contain at least one item"))
    for position, mutation in enumerate(mutations):
        found += _check_mutation(mutation, expressions, index("spec.mutations", position))
    return found + one_of(spec, "reinvocationPolicy", _REINVOCATIONS, "spec", needed=True)


def _check_mutation(mutation: Object, expressions: Expressions, path: str) -> Findings:
    type_ = text(mutation, "patchType")
    if type_ not in _PATCH_TYPES:
        return one_of(mutation, "patchType", _PATCH_TYPES, path, needed=True)
    used, other = ("jsonPatch", "applyConfiguration") if type_ == "JSONPatch" else ("applyConfiguration", "jsonPatch")
    wanted = list_of(PATCH) if type_ == "JSONPatch" else APPLIED
    found: Findings = []
    if not given(mutation, used):
        found.append(required(child(path, used), f"must be specified when patchType is {type_}"))
    else:
        found += check_expression(
            text(mutation, used, "expression").strip(),
            lambda each: expressions.problem(each, wanted, patches=True),
            child(path, used, "expression"),
        )
    if given(mutation, other):
        detail = f"must not be specified when patchType is {type_}"
        found.append(invalid(child(path, other), f"{{{other}}}", detail))
    return found


def _unless_unchanged(check: Callable[[Object], Findings], *names: str) -> Callable[[Object, Object], Findings]:
    """What was compiled once is not compiled again."""
    return lambda new, old: [] if all(same(new.get(name), old.get(name)) for name in names) else check(new)


def _check_validating_status(new: Object, _old: Object, subresource: str) -> Findings:
    if subresource != "status":
        return []
    found: Findings = []
    for position, warning in enumerate(items(new, "status", "typeChecking", "expressionWarnings")):
        where = index("status.typeChecking.expressionWarnings", position)
        found += [required(child(where, name)) for name in ("warning", "fieldRef") if not text(warning, name).strip()]
    return found + json_conditions(members(new, "status").get("conditions"), "status.conditions")


# --- bindings ---


def _binding_defaults(binding: Object) -> None:
    spec = members(binding, "spec")
    if isinstance(spec.get("matchResources"), dict):
        selection_defaults(spec["matchResources"])


def _check_binding(binding: Object, *, validating: bool) -> Findings:
    spec = members(binding, "spec")
    name = text(spec, "policyName")
    found = told("spec.policyName", name, formats.dns_subdomain(name)) if name else [required("spec.policyName")]
    if given(spec, "paramRef"):
        found += _check_param_ref(members(spec, "paramRef"), "spec.paramRef")
    if given(spec, "matchResources"):
        found += check_match_resources(members(spec, "matchResources"), "spec.matchResources", mutating=not validating)
    return found + _check_actions(texts(spec, "validationActions"), "spec.validationActions") if validating else found


def _check_param_ref(reference: Object, path: str) -> Findings:
    name, selects = text(reference, "name"), given(reference, "selector")
    found: Findings = []
    if name:
        found += told(child(path, "name"), name, formats.path_segment(name))
        found += [forbidden(child(path, "name"), _EXCLUSIVE)] if selects else []
    if selects:
        found += label_selector(members(reference, "selector"), child(path, "selector"))
        found += [forbidden(child(path, "selector"), _EXCLUSIVE)] if name else []
    if not name and not selects:
        found.append(required(path, "one of name or selector must be specified"))
    return found + one_of(reference, "parameterNotFoundAction", ("Allow", "Deny"), path, needed=True)


def _check_actions(actions: list[str], path: str) -> Findings:
    found: Findings = []
    seen = set()
    for position, action in enumerate(actions):
        if action not in _ACTIONS:
            found.append(not_supported(index(path, position), action, _ACTIONS))
        if action in seen:
            found.append(duplicate(index(path, position), action))
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response "
            "and headers serves no purpose)"
        )
        found.append(invalid(path, actions, detail))
    return found if seen else [*found, required(path)]


_BINDING = Rules(defaults=_binding_defaults, generation_of=("spec",))
RULES: Mapping[tuple[str, str], Rules] = {
    (GROUP, "MutatingWebhookConfiguration"): WEBHOOKS,
    (GROUP, "ValidatingWebhookConfiguration"): WEBHOOKS,
    (GROUP, "ValidatingAdmissionPolicy"): Rules(
        defaults=_policy_defaults,
        initial_status=lambda _: {},
        generation_of=("spec",),
        check=_check_validating_policy,
        recheck=_unless_unchanged(_check_validating_policy, "spec"),
        check_update=_check_validating_status,
    ),
    (GROUP, "MutatingAdmissionPolicy"): Rules(
        defaults=_policy_defaults,
        generation_of=("spec",),
        check=_check_mutating_policy,
        recheck=_unless_unchanged(_check_mutating_policy, "spec"),
    ),
    (GROUP, "ValidatingAdmissionPolicyBinding"): msgspec.structs.replace(
        _BINDING, check=lambda binding: _check_binding(binding, validating=True)
    ),
    (GROUP, "MutatingAdmissionPolicyBinding"): msgspec.structs.replace(
        _BINDING, check=lambda binding: _check_binding(binding, validating=False)
    ),
}
