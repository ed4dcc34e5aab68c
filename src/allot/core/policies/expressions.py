"""Compiles expressions of policies and webhooks to find their errors."""

from __future__ import annotations

import re
from collections.abc import Callable

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.types import ANY, BOOL, DYN, CelType
from allot.core.cel.results import type_text
from allot.core.cel.syntax.errors import CelCompileError
from allot.core.policies.environment import expression_environment, variable_type
from allot.core.validation import formats
from allot.core.validation.builtin.checks import told
from allot.core.validation.builtin.values import Object, text
from allot.core.validation.fields import Findings, child, duplicate, index, invalid, required, too_many

_MATCH_CONDITIONS_MAX = 64
_identifier = re.compile("[_a-zA-Z][_a-zA-Z0-9]*").fullmatch
_RESERVED = frozenset(
    (
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
        "namespace", "null", "package", "return", "true", "var", "void", "while",
    )
)  # fmt: skip


class Expressions:
    """Compiles the expressions of a policy: variables first, each of which may read those before it."""

    def __init__(self, *, params: bool = False) -> None:
        self._params = params
        self._fields: dict[str, CelType] = {}

    def variable(self, name: str, source: str) -> str:
        """What is wrong with a variable, which others can read from now on."""
        problem, type_ = self._compiled(source, (ANY,))
        self._fields[name] = variable_type(type_)
        return problem

    def problem(
        self,
        source: str,
        *results: CelType,
        variables: bool = True,
        authorizer: bool = True,
        patches: bool = False,
    ) -> str:
        """What is wrong with an expression; empty when it is fine."""
        return self._compiled(source, results, variables=variables, authorizer=authorizer, patches=patches)[0]

    def _compiled(
        self,
        source: str,
        results: tuple[CelType, ...],
        *,
        variables: bool = True,
        authorizer: bool = True,
        patches: bool = False,
    ) -> tuple[str, CelType]:
        environment = expression_environment(
            self._fields if variables else None, params=self._params, authorizer=authorizer, patches=patches
        )
        try:
            checked = compile_expression(source, environment)
        except CelCompileError as error:
            return f"compilation failed: {error}", DYN
        output = checked.types[checked.parsed.root.id]
        if ANY in results or output in results:
            return "", output
        wanted = [type_text(each) for each in results]
        names = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted)}]"
        return f"must evaluate to {names} but got {type_text(output)}", output


def check_expression(source: str, problem: Callable[[str], str], path: str, missing: str = "") -> Findings:
    """An expression that has to be there."""
    if not source.strip():
        return [required(path, missing)]
    found = problem(source)
    return [invalid(path, source, found)] if found else []


def check_conditions(conditions: list[Object], expressions: Expressions, path: str) -> Findings:
    """matchConditions."""
    found: Findings = []
    if len(conditions) > _MATCH_CONDITIONS_MAX:
        found.append(too_many(path, len(conditions), _MATCH_CONDITIONS_MAX))
    names = set()
    for position, condition in enumerate(conditions[: _MATCH_CONDITIONS_MAX + 1]):
        where, name = index(path, position), text(condition, "name")
        source = text(condition, "expression").strip()
        found += check_expression(
            source, lambda each: expressions.problem(each, BOOL, variables=False), child(where, "expression")
        )
        found += told(child(where, "name"), name, formats.label_key(name)) if name else [required(child(where, "name"))]
        if name and name in names:
            found.append(duplicate(child(where, "name"), name))
        names.add(name)
    return found


def check_variables(variables: list[Object], expressions: Expressions, path: str) -> Findings:
    """Variables, which expressions after them can read."""
    found: Findings = []
    for position, variable in enumerate(variables):
        where, name = index(path, position), text(variable, "name")
        if not name.strip():
            found.append(required(child(where, "name"), "name is not specified"))
        elif not _identifier(name) or name in _RESERVED:
            found.append(invalid(child(where, "name"), name, "must be a valid CEL identifier"))
        found += check_expression(
            text(variable, "expression"),
            lambda each, name=name: expressions.variable(name, each),  # type: ignore[misc]
            child(where, "expression"),
            "expression is not specified",
        )
    return found
