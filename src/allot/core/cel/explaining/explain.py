"""Why an expression was false for a device, or failed: the part that decided, and what it saw.

Descends through logic, conditionals, cel.bind and loops to the comparison or test that made the difference, evaluating
parts of the plan on the way. The result is data; `sentence` puts it into a few words. Slow compared with an evaluation:
for display, not for the search.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from allot.core.cel.checking.types import Checked
from allot.core.cel.costs.tracker import Tracker
from allot.core.cel.data.values import NONE, CelError, EvaluationError, Value, is_list, is_map, keys
from allot.core.cel.device import DeviceView
from allot.core.cel.evaluation.interpret import Interpreter
from allot.core.cel.evaluation.plan_nodes import (
    And,
    Call,
    Chain,
    Conditional,
    Constant,
    Equal,
    Fold,
    Membership,
    Node,
    Operand,
    OptionalOr,
    Or,
    Variable,
)
from allot.core.cel.evaluation.scopes import FoldScope, RootScope, Scope
from allot.core.cel.explaining.answer import Explanation, value_text
from allot.core.cel.results import as_bool
from allot.core.cel.syntax import ast
from allot.core.cel.syntax.unparse import unparse

_DEPTH_MAX: Final = 100
_HEIGHT_MAX: Final = 200
_VALUES_MAX: Final = 8

_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_NEGATED: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_RELATIONS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_METHODS: Final = {"isGreaterThan": ">", "isLessThan": "<"}
_TEXT_TESTS: Final = frozenset(("startsWith", "endsWith", "contains", "matches"))


def explain(plan: Node, checked: Checked, view: DeviceView) -> Explanation:
    """What the expression evaluates to for a device, and why."""
    explainer = _Explainer(checked, view)
    text = explainer.text(plan)
    try:
        value = explainer.run(plan)
        if value.__class__ is not CelError and as_bool(value):
            return Explanation(outcome="match", expression=text)
        if plan.height > _HEIGHT_MAX:
            return _bare(value, text)
        return explainer.decided(plan, value, False, 0)
    except EvaluationError as error:
        return Explanation(outcome="error", expression=text, error=error.message)
    except RecursionError:
        return Explanation(outcome="error", expression=text, error="expression nests too deeply to be explained")


def _bare(value: Value, text: str) -> Explanation:
    if value.__class__ is CelError:
        return Explanation(outcome="error", expression=text, error=value.message)
    return Explanation(outcome="no match", expression=text)


class _Explainer:
    def __init__(self, checked: Checked, view: DeviceView) -> None:
        self._parsed = checked.parsed
        self._nodes = {node.id: node for node in _walk(checked.parsed.root)}
        self._scope: Scope = RootScope(view.variables)

    def run(self, node: Node) -> Value:
        """The value of a part in the current scope; each part has its own cost limit."""
        return Interpreter(self._scope, Tracker()).run(node)

    def text(self, node: Node) -> str:
        """The source text of a part."""
        found = self._nodes.get(node.id)
        return "" if found is None else unparse(found, self._parsed)

    # --- descending ---

    def decided(self, node: Node, value: Value, negated: bool, depth: int) -> Explanation:
        """Why a part evaluated to its value, which is not the one needed; negated: false was needed."""
        if depth > _DEPTH_MAX:
            return _bare(value, self.text(node))
        if isinstance(node, And | Or):
            return self._logical(node, value, negated, depth)
        if isinstance(node, Call) and node.function == "!_" and value.__class__ is bool:
            return self.decided(node.arguments[0], not value, not negated, depth + 1)
        if isinstance(node, Chain) and isinstance(node.source, Conditional):
            condition = self.run(node.source.condition)
            if condition.__class__ is not bool:
                return self.decided(node.source.condition, condition, False, depth + 1)
            return self.decided(node.source.truthy if condition else node.source.falsy, value, negated, depth + 1)
        if isinstance(node, Chain) and isinstance(node.source, Operand) and not node.qualifiers:
            return self.decided(node.source.node, value, negated, depth + 1)
        if isinstance(node, Fold):
            return self._fold(node, value, negated, depth)
        if value.__class__ is CelError:
            return self._failed(node, value, depth)
        return self._leaf(node, value, negated)

    def _logical(self, node: And | Or, value: Value, negated: bool, depth: int) -> Explanation:
        decisive = isinstance(node, Or)
        seen = [(term, self.run(term)) for term in node.terms]
        if value.__class__ is CelError:
            for term, result in seen:
                if result.__class__ is not bool:
                    return self.decided(term, result, negated, depth + 1)
        for term, result in seen:
            if result is decisive and value is decisive:
                return self.decided(term, result, negated, depth + 1)
        # None of them holds: each has its reason.
        reasons = tuple(self.decided(term, result, negated, depth + 1) for term, result in seen)
        flat = tuple(part for reason in reasons for part in (reason.alternatives or (reason,)))
        values = tuple(pair for reason in flat for pair in reason.values)[:_VALUES_MAX]
        return Explanation(outcome="no match", expression=self.text(node), values=values, alternatives=flat)

    def _fold(self, node: Fold, value: Value, negated: bool, depth: int) -> Explanation:
        outer = self._scope
        scope = FoldScope(outer, node)
        try:
            if node.is_binding:
                scope.finish()
                self._scope = scope
                return self.decided(node.result, value, negated, depth + 1)
            step = node.step
            if isinstance(step, And | Or) and len(step.terms) == 2 and value.__class__ is bool:
                decisive = isinstance(step, Or)
                for first, second in _walked(node, self.run(node.iter_range)):
                    scope.next(first, second)
                    self._scope = scope
                    if value is decisive and self.run(step.terms[1]) is decisive:
                        return self.decided(step.terms[1], value, negated, depth + 1)
                    self._scope = outer
        finally:
            self._scope = outer
        if value.__class__ is CelError:
            return Explanation(outcome="error", expression=self.text(node), error=value.message)
        return self._none_found(node, negated)

    def _none_found(self, node: Fold, negated: bool) -> Explanation:
        walked = self._shown(node.iter_range)
        explanation = Explanation(
            outcome="no match", expression=self.text(node), values=((self.text(node.iter_range), walked),)
        )
        if not isinstance(node.step, Or) or negated:
            return explanation
        subject, path = self._subject(node.iter_range)
        wanted = self.text(node.step.terms[-1])
        return msgspec.structs.replace(
            explanation, subject=subject, path=path, actual=walked, operator="exists", expected=wanted
        )

    def _failed(self, node: Node, error: CelError, depth: int) -> Explanation:
        """The innermost part that gives the same error."""
        for child in _children(node):
            result = self.run(child)
            if result.__class__ is CelError and result.message == error.message:
                return self.decided(child, result, False, depth + 1)
        explanation = Explanation(outcome="error", expression=self.text(node), error=error.message)
        path = _path(node)
        if path is not None and error.message == f"no such key: {path[2]}":
            return msgspec.structs.replace(explanation, subject=path[2], operator="has", expected="", path=path[:2])
        values = tuple((self.text(child), self._shown(child)) for child in _children(node))
        return msgspec.structs.replace(explanation, values=tuple(pair for pair in values if pair[0])[:_VALUES_MAX])

    def _shown(self, node: Node) -> str:
        value = self.run(node)
        return value.message if value.__class__ is CelError else value_text(value)

    # --- the part that decided ---

    def _leaf(self, node: Node, value: Value, negated: bool) -> Explanation:
        outcome = "no match" if value.__class__ is bool else "error"
        explanation = Explanation(outcome=outcome, expression=self.text(node))
        if value.__class__ is not bool:
            error = f"the result is {value_text(value)}, not true or false"
            return msgspec.structs.replace(explanation, error=error, values=((self.text(node), value_text(value)),))
        named = _named_presence(node)
        if named is not None:
            operator = "not has" if negated else "has"
            return msgspec.structs.replace(explanation, subject=named[2], operator=operator, path=named[:2])
        shape = self._comparison(node)
        if shape is None:
            values = tuple((self.text(child), self._shown(child)) for child in _children(node))
            return msgspec.structs.replace(explanation, values=tuple(pair for pair in values if pair[0])[:_VALUES_MAX])
        left, operator, right, expected = shape
        if negated:
            operator = _NEGATED.get(operator, f"not {operator}")
        subject, path = self._subject(left)
        actual = self._shown(left)
        if operator in ("has", "not has"):
            return msgspec.structs.replace(explanation, subject=subject, operator=operator, path=path)
        values = tuple((self.text(part), self._shown(part)) for part in (left, right) if part is not None)
        return msgspec.structs.replace(
            explanation,
            subject=subject,
            path=path,
            actual=actual,
            operator=operator,
            expected=expected,
            absent=self._is_absent(left),
            values=values,
        )

    def _comparison(self, node: Node) -> tuple[Node, str, Node | None, str] | None:
        """Subject, operator, the other operand and its text, for the common shapes."""
        if isinstance(node, Equal):
            return self._sided(node.left, "!=" if node.negated else "==", node.right)
        if isinstance(node, Membership):
            return node.wanted, "in", None, ", ".join(map(value_text, node.elements))
        if isinstance(node, Call):
            return self._tested(node)
        if isinstance(node, Chain):
            return (node, "has", None, "") if node.test else (node, "==", None, "true")
        return (node, "==", None, "true") if isinstance(node, OptionalOr) else None

    def _tested(self, node: Call) -> tuple[Node, str, Node | None, str] | None:
        arguments = node.arguments
        operator = _RELATIONS.get(node.function)
        if operator is not None:
            compared = arguments[0]
            zero = isinstance(arguments[1], Constant) and arguments[1].value.__class__ is int
            if isinstance(compared, Call) and compared.function == "compareTo" and zero:
                return self._sided(compared.arguments[0], operator, compared.arguments[1])
            return self._sided(arguments[0], operator, arguments[1])
        if node.function in _METHODS:
            return self._sided(arguments[0], _METHODS[node.function], arguments[1])
        if node.function in _TEXT_TESTS and len(arguments) == 2:
            return arguments[0], node.function, arguments[1], self._shown(arguments[1])
        if node.function == "includes":
            return arguments[0], "includes", arguments[1], self._shown(arguments[1])
        if node.function == "@in":
            return self._contained(arguments[0], arguments[1])
        return None

    def _contained(self, wanted: Node, container: Node) -> tuple[Node, str, Node | None, str]:
        if isinstance(wanted, Constant) and _path(container) is not None:
            return container, "includes", wanted, value_text(wanted.value)
        return wanted, "in", container, self._shown(container)

    def _sided(self, left: Node, operator: str, right: Node) -> tuple[Node, str, Node | None, str]:
        """The side that comes from the device is the subject."""
        if _path(left) is None and _path(right) is not None:
            left, operator, right = right, _FLIPPED[operator], left
        return left, operator, right, self._shown(right)

    def _subject(self, node: Node) -> tuple[str, tuple[str, str]]:
        path = _path(node)
        return (self.text(node), ("", "")) if path is None else (path[2], path[:2])

    def _is_absent(self, node: Node) -> bool:
        return isinstance(node, OptionalOr) and self.run(node.left) is NONE


def _named_presence(node: Node) -> tuple[str, str, str] | None:
    """Kind, domain and name in `"name" in device.attributes["domain"]`."""
    if not isinstance(node, Call) or node.function != "@in":
        return None
    wanted, container = node.arguments
    if not isinstance(wanted, Constant) or wanted.value.__class__ is not str or not isinstance(container, Chain):
        return None
    if not isinstance(container.source, Variable) or container.source.name != "device":
        return None
    names = [qualifier.key for qualifier in container.qualifiers]
    if len(names) != 2 or any(name.__class__ is not str for name in names):
        return None
    return names[0], names[1], wanted.value


def _path(node: Node) -> tuple[str, str, str] | None:
    """Kind, domain and name of the attribute or capacity that a part reads; for the driver only a name."""
    if isinstance(node, OptionalOr):
        node = node.left
    if not isinstance(node, Chain) or not isinstance(node.source, Variable):
        return None
    names = [qualifier.key for qualifier in node.qualifiers]
    if not names or any(name.__class__ is not str for name in names):
        return None
    if node.source.name == "device" and len(names) == 3:
        return names[0], names[1], names[2]
    return ("", "", names[-1]) if node.source.name != "device" or len(names) == 1 else None


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Call):
        return node.arguments
    if isinstance(node, Equal | OptionalOr):
        return (node.left, node.right)
    if isinstance(node, Membership):
        return (node.wanted,)
    if isinstance(node, Chain) and isinstance(node.source, Operand):
        return (node.source.node,)
    return ()


def _walked(node: Fold, iter_range: Value) -> Iterator[tuple[Value, Value]]:
    if is_map(iter_range):
        yield from zip(keys(iter_range), iter_range.values(), strict=True)
    elif is_list(iter_range):
        yield from enumerate(iter_range) if node.iter_var2 else ((element, None) for element in iter_range)


def _walk(root: ast.Expr) -> Iterator[ast.Expr]:
    stack: list[ast.Expr] = [root]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, ast.Select):
            stack.append(node.operand)
        elif isinstance(node, ast.Call):
            stack.extend(node.args)
            if node.target is not None:
                stack.append(node.target)
        elif isinstance(node, ast.ListExpr):
            stack.extend(node.elements)
        elif isinstance(node, ast.MapExpr):
            for entry in node.entries:
                stack += (entry.key, entry.value)
        elif isinstance(node, ast.Comprehension):
            stack += (node.iter_range, node.accu_init, node.loop_condition, node.loop_step, node.result)
