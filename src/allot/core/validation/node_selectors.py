"""Node selectors: the rules of core/v1 NodeSelector in allocations and slices."""

from __future__ import annotations

from allot.core.model.core_v1 import NodeSelector, NodeSelectorRequirement
from allot.core.validation import formats
from allot.core.validation.fields import Findings, child, forbidden, index, invalid, required
from allot.core.validation.object_meta import check_label_key

_BAD_OPERATOR = "not a valid selector operator"


def check_node_selector(selector: NodeSelector, path: str) -> Findings:
    """At least one term; every requirement well formed."""
    terms_path = child(path, "nodeSelectorTerms")
    if not selector.node_selector_terms:
        return [required(terms_path, "must have at least one node selector term")]
    found: Findings = []
    for position, term in enumerate(selector.node_selector_terms):
        where = index(terms_path, position)
        for number, requirement in enumerate(term.match_expressions):
            found += _check_expression(requirement, index(child(where, "matchExpressions"), number))
        for number, requirement in enumerate(term.match_fields):
            found += _check_field(requirement, index(child(where, "matchFields"), number))
    return found


def _check_expression(requirement: NodeSelectorRequirement, path: str) -> Findings:
    found: Findings = []
    values_path = child(path, "values")
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                found.append(required(values_path, "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if requirement.values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                found.append(forbidden(values_path, detail))
        case "Gt" | "Lt":
            if len(requirement.values) != 1:
                detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                found.append(required(values_path, detail))
        case _:
            found.append(invalid(child(path, "operator"), requirement.operator, _BAD_OPERATOR))
    found += check_label_key(requirement.key, child(path, "key"))
    for position, value in enumerate(requirement.values):
        for message in formats.label_value(value):
            found.append(invalid(index(values_path, position), value, message))
    return found


def _check_field(requirement: NodeSelectorRequirement, path: str) -> Findings:
    found: Findings = []
    values_path = child(path, "values")
    if requirement.operator not in ("In", "NotIn"):
        found.append(invalid(child(path, "operator"), requirement.operator, _BAD_OPERATOR))
    elif len(requirement.values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(required(values_path, detail))
    if requirement.key != "metadata.name":
        found.append(invalid(child(path, "key"), requirement.key, "not a valid field selector key"))
        return found
    for position, value in enumerate(requirement.values):
        for message in formats.dns_subdomain(value):
            found.append(invalid(index(values_path, position), value, message))
    return found
