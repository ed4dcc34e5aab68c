"""x-kubernetes-validations: rules of custom resources in CEL, over `self` and, for changes, `oldSelf`.

Rules are compiled once per schema. All rules together may cost as much as `COST_BUDGET`; each alone as much as any
expression. What they may cost at most is judged in `rule_costs`, when a definition is written.
Errors of values that did not change are ratcheted: told as warnings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from allot.core.cel.checking.environment import kubernetes_environment
from allot.core.cel.checking.types import BOOL, STRING, CelType, optional_of
from allot.core.cel.data.values import COST_EXCEEDED, NONE, Optional
from allot.core.cel.evaluation.program import Program, ProgramError, compile_program
from allot.core.customresources.field_paths import PathError, field_path
from allot.core.schema.declared_types import Objects, as_value, declared_type, with_object_fields
from allot.core.validation.fields import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    REQUIRED,
    FieldError,
    go_json,
    render,
)

Schema = Mapping[str, Any]

COST_BUDGET = 10_000_000
MESSAGE_BYTES_MAX = 5 * 1024
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled rule; problem says why it could not be compiled."""

    source: Mapping[str, Any]
    program: Program | None = None
    message: Program | None = None
    path: str = ""
    problem: str = ""
    message_problem: str = ""

    @property
    def uses_old(self) -> bool:
        """Whether it is about a change."""
        return self.program is not None and self.program.uses("oldSelf")

    @property
    def optional_old(self) -> bool:
        """Whether it also runs when there is nothing to compare with."""
        return self.source.get("optionalOldSelf") is True

    @property
    def shown(self) -> str:
        """The rule in messages."""
        return str(self.source.get("message") or self.source.get("rule") or "").strip()


class RuleTree:
    """The rules of a schema and of everything below it; None stands for a part without rules."""

    __slots__ = ("additional", "items", "properties", "rules", "schema", "type")

    def __init__(self, schema: Schema, *, root: bool = False) -> None:
        self.schema = with_object_fields(schema) if root or schema.get("x-kubernetes-embedded-resource") else schema
        self.type = str(schema.get("type") or "")
        self.rules = compile_rules(schema, root=root)
        properties, additional, items = (schema.get(name) for name in ("properties", "additionalProperties", "items"))
        below = properties.items() if isinstance(properties, dict) else ()
        trees = {name: rule_tree(one) for name, one in below if isinstance(one, dict)}
        self.properties = {name: tree for name, tree in trees.items() if tree is not None}
        self.additional = rule_tree(additional) if isinstance(additional, dict) else None
        self.items = rule_tree(items) if isinstance(items, dict) else None

    def __bool__(self) -> bool:
        return bool(self.rules or self.properties or self.additional is not None or self.items is not None)


def rule_tree(schema: Schema, *, root: bool = False) -> RuleTree | None:
    """The rules of a schema; None if there are none."""
    tree = RuleTree(schema, root=root)
    return tree if tree else None


def compile_rules(schema: Schema, *, root: bool = False) -> tuple[Rule, ...]:
    """The rules of one schema, without those below it."""
    rules = schema.get("x-kubernetes-validations")
    if not isinstance(rules, list) or not rules:
        return ()
    described = with_object_fields(schema) if root or schema.get("x-kubernetes-embedded-resource") else schema
    # The rules themselves say nothing about types: without them the text of a schema with many rules is short.
    types = go_json({name: one for name, one in described.items() if name != "x-kubernetes-validations"})
    return tuple(_compiled(one, described, types) for one in rules if isinstance(one, dict))


def _compiled(rule: Mapping[str, Any], schema: Schema, types: str) -> Rule:
    source = str(rule.get("rule") or "")
    if not source.strip():
        return Rule(source=rule)
    try:
        program = _program(source, types, rule.get("optionalOldSelf") is True)
    except ProgramError as error:
        return Rule(source=rule, problem=str(error))
    if program.output != BOOL:
        return Rule(source=rule, problem="cel expression must evaluate to a bool")
    message, message_problem = None, ""
    expression = str(rule.get("messageExpression") or "")
    if expression.strip():
        try:
            message = _program(expression, types, rule.get("optionalOldSelf") is True)
            if message.output != STRING:
                message, message_problem = None, "messageExpression must evaluate to a string"
        except ProgramError as error:
            message_problem = f"messageExpression {error}"
    path = ""
    if rule.get("fieldPath"):
        try:
            path = field_path(str(rule["fieldPath"]), schema).path
        except PathError:
            path = ""
    return Rule(source=rule, program=program, message=message, path=path, message_problem=message_problem)


@lru_cache(maxsize=512)
def _program(expression: str, types: str, optional_old: bool) -> Program:
    declared, objects = _declared(types)
    if declared is None:
        raise ProgramError("failed to convert to declType for CEL validation rules")
    old = optional_of(declared) if optional_old else declared
    return compile_program(expression, kubernetes_environment({"self": declared, "oldSelf": old}, objects))


@lru_cache(maxsize=64)
def _declared(types: str) -> tuple[CelType | None, Objects]:
    """The type of self, and the types of the objects in it."""
    objects: Objects = {}
    return declared_type(msgspec.json.decode(types), "selfType", objects), objects


# --- evaluating ---


class RuleResults:
    """What was found, and what is left of the budget; below zero nothing more is run."""

    __slots__ = ("budget", "errors", "warnings")

    def __init__(self, budget: int = COST_BUDGET) -> None:
        self.errors: list[FieldError] = []
        self.warnings: list[str] = []
        self.budget = budget


def check_rules(tree: RuleTree | None, value: Any, old: Any = None, path: str = "") -> RuleResults:
    """Run all rules of an object; old: what it replaces."""
    verdict = RuleResults()
    _walk(tree, value, old, path, verdict, _same(value, old) if old is not None else False)
    return verdict


def _same(value: Any, old: Any) -> bool:
    return bool(value == old)


def _walk(tree: RuleTree | None, value: Any, old: Any, path: str, verdict: RuleResults, unchanged: bool) -> None:
    if tree is None or value is None or verdict.budget < 0:
        return
    _run_rules(tree, value, old, path, verdict, unchanged)
    if isinstance(value, list) and tree.items is not None:
        olds = _keyed(old, tree.schema)
        for position, item in enumerate(value):
            before = olds.get(_key(item, tree.schema)) if olds else None
            same = unchanged or (before is not None and _same(item, before))
            _walk(tree.items, item, before, f"{path}[{position}]", verdict, same)
    elif isinstance(value, dict):
        before_all = old if isinstance(old, dict) else {}
        for name in sorted(value):
            below, place = tree.properties.get(name), f"{path}.{name}" if path else name
            if below is None and tree.additional is not None:
                below, place = tree.additional, f"{path}[{name}]"
            if below is not None:
                before = before_all.get(name)
                same = unchanged or (name in before_all and _same(value[name], before))
                _walk(below, value[name], before, place, verdict, same)


def _keyed(old: Any, schema: Schema) -> dict[str, Any]:
    """The old items by their keys; only keyed lists can be compared item by item."""
    if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
        return {}
    found: dict[str, Any] = {}
    for item in old:
        found.setdefault(_key(item, schema), item)
    return found


def _key(item: Any, schema: Schema) -> str:
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    return go_json([item.get(key) for key in keys] if isinstance(item, dict) else None)


def _run_rules(tree: RuleTree, value: Any, old: Any, path: str, verdict: RuleResults, unchanged: bool) -> None:
    if not tree.rules:
        return
    place = path or "<nil>"
    shown = render(tree.type)
    seen = as_value(value, tree.schema)
    before = None if old is None else as_value(old, tree.schema)
    for rule in tree.rules:
        if verdict.budget <= 0:
            verdict.errors.append(FieldError(place, INVALID, f"Invalid value: {shown}: {_OUT_OF_BUDGET}"))
            verdict.budget = -1
            return
        if rule.problem:
            verdict.errors.append(
                FieldError(place, INVALID, f"Invalid value: {shown}: rule compile error: {rule.problem}")
            )
            continue
        if rule.program is None or (rule.uses_old and old is None and not rule.optional_old):
            continue
        variables = {"self": seen, "oldSelf": before}
        if rule.optional_old:
            variables["oldSelf"] = NONE if old is None else Optional(before)
        _run_rule(rule, variables, tree, value, path, verdict, unchanged)
        if verdict.budget < 0:
            return


def _run_rule(
    rule: Rule,
    variables: Mapping[str, Any],
    tree: RuleTree,
    value: Any,
    path: str,
    verdict: RuleResults,
    unchanged: bool,
) -> None:
    assert rule.program is not None
    place, shown = path or "<nil>", render(tree.type)
    outcome = rule.program.evaluate(variables)
    if outcome.cost > verdict.budget:
        verdict.errors.append(FieldError(place, INVALID, f"Invalid value: {shown}: {_OUT_OF_BUDGET}"))
        verdict.budget = -1
        return
    verdict.budget -= outcome.cost
    if outcome.error is not None:
        text = _failure(outcome.error, rule)
        verdict.errors.append(FieldError(place, INVALID, f"Invalid value: {shown}: {text}"))
        if outcome.error.startswith(COST_EXCEEDED):
            verdict.budget = -1
        return
    if outcome.value is True:
        return
    detail = _message(rule, variables, verdict)
    if detail is None:
        where = _joined(path, rule.path)
        text = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
        verdict.errors.append(FieldError(where, INVALID, f"Invalid value: {shown}: {text}"))
        verdict.budget = -1
        return
    error = _error(rule, _joined(path, rule.path), tree.type, value, detail)
    if unchanged and not rule.uses_old:
        verdict.warnings.append(str(error))
    else:
        verdict.errors.append(error)


def _failure(error: str, rule: Rule) -> str:
    if error.startswith("no such overload"):
        what = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{error}': {what}: {rule.shown}"
    if error.startswith(COST_EXCEEDED):
        return (
            f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule.shown}"
        )
    return f"{error} evaluating rule: {rule.shown}"


def _joined(path: str, below: str) -> str:
    if not below:
        return path or "<nil>"
    return f"{path}.{below}" if path and not below.startswith("[") else f"{path}{below}"


def _message(rule: Rule, variables: Mapping[str, Any], verdict: RuleResults) -> str | None:
    """The text of a broken rule; None if finding it costs more than is left."""
    if rule.message is not None:
        outcome = rule.message.evaluate(variables)
        if outcome.cost > verdict.budget or (outcome.error or "").startswith(COST_EXCEEDED):
            return None
        verdict.budget -= outcome.cost
        text = outcome.value.strip() if isinstance(outcome.value, str) else ""
        if text and "\n" not in text and len(text.encode("utf-8", "replace")) <= MESSAGE_BYTES_MAX:
            return text
    given = str(rule.source.get("message") or "").strip()
    return given or f"failed rule: {rule.shown}"


def _error(rule: Rule, place: str, type_: str, value: Any, detail: str) -> FieldError:
    # The whole of an object or list is not repeated.
    shown = "" if type_ in ("object", "array") else f"{render(value)}: "
    match rule.source.get("reason"):
        case "FieldValueForbidden":
            return FieldError(place, FORBIDDEN, f"Forbidden: {detail}")
        case "FieldValueRequired":
            return FieldError(place, REQUIRED, f"Required value: {detail}")
        case "FieldValueDuplicate":
            return FieldError(place, DUPLICATE, f"Duplicate value: {shown.removesuffix(': ')}".rstrip(": "))
        case _:
            return FieldError(place, INVALID, f"Invalid value: {shown}{detail}")


def all_rules(schema: Schema, path: str, *, root: bool = True) -> Sequence[tuple[str, Rule]]:
    """Every rule of a schema with its place in the schema, for checking a definition."""
    found = [
        (f"{path}.x-kubernetes-validations[{at}]", rule) for at, rule in enumerate(compile_rules(schema, root=root))
    ]
    properties = schema.get("properties")
    for name, below in sorted(properties.items()) if isinstance(properties, dict) else ():
        if isinstance(below, dict):
            found += all_rules(below, f"{path}.properties[{name}]", root=False)
    for member in ("additionalProperties", "items"):
        below = schema.get(member)
        if isinstance(below, dict):
            found += all_rules(below, f"{path}.{member}", root=False)
    return found
