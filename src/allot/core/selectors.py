"""Which labels, nodes and devices a selector, toleration or taint rule matches.

Knows label selectors (as objects and as text), node selectors, tolerations of nodes' and devices' taints, and the selectors of DeviceTaintRules.
Knows nothing else about nodes or pods, and decides nothing about allocation.

Selectors are prepared once (`node_matcher`, `label_requirements`, `parse_label_selector`) and matched often.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from allot.core.model.core_v1 import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration
from allot.core.model.meta import LabelSelector
from allot.core.model.resource_v1 import (
    EFFECT_NO_EXECUTE,
    EFFECT_NO_SCHEDULE,
    TOLERATION_EQUAL,
    TOLERATION_EXISTS,
    DeviceTaint,
    DeviceTaintSelector,
    DeviceToleration,
)

_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*+(?<=[a-z0-9]))?+(?:\.[a-z0-9](?:[-a-z0-9]*+(?<=[a-z0-9]))?+)*+")
_LABEL_PREFIX_LENGTH_MAX = 253
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_NODE_NAME_FIELD = "metadata.name"


class SelectorError(ValueError):
    """An invalid selector."""


class Operator(StrEnum):
    """How a requirement compares."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


_NODE_OPERATORS = {operator.value: operator for operator in Operator}
_LABEL_OPERATORS = {name: operator for name, operator in _NODE_OPERATORS.items() if name not in ("Gt", "Lt")}


# --- labels ---


class Requirement(msgspec.Struct, frozen=True):
    """One condition on labels; made by `requirement`, which checks it."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()
    # The single value of Gt and Lt as a number.
    bound: int = 0

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy the condition; a missing label is in no list of values."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
        number = None if value is None else _int64(value)
        if number is None:
            return False
        return number > self.bound if self.operator is Operator.GREATER else number < self.bound


class Requirements(msgspec.Struct, frozen=True):
    """Conditions that must all hold; an empty list matches everything."""

    all: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy every condition."""
        # Called for every pod of every owner: a loop instead of a generator.
        for requirement in self.all:  # noqa: SIM110
            if not requirement.matches(labels):
                return False
        return True


def requirement(key: str, operator: Operator, values: Sequence[str], path: str = "") -> Requirement:
    """A checked condition; SelectorError with the path of the field that is wrong."""
    prefix = f"{path}." if path else ""
    if not is_label_key(key):
        raise SelectorError(f"{prefix}key: Invalid value: {_quoted(key)}: must be a label key")
    if operator in (Operator.IN, Operator.NOT_IN) and not values:
        raise SelectorError(
            f"{prefix}values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        )
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
        raise SelectorError(
            f"{prefix}values: Invalid value: {_list(values)}: values set must be empty for exists and does not exist"
        )
    bound = _bound(values, prefix) if operator in (Operator.GREATER, Operator.LESS) else 0
    for index, value in enumerate(values):
        if not is_label_value(value):
            raise SelectorError(f"{prefix}values[{index}]: Invalid value: {_quoted(value)}: must be a label value")
    return Requirement(key, operator, frozenset(values), bound)


def _bound(values: Sequence[str], prefix: str) -> int:
    if len(values) != 1:
        raise SelectorError(
            f"{prefix}values: Invalid value: {_list(values)}: for 'Gt', 'Lt' operators, exactly one value is required"
        )
    bound = _int64(values[0])
    if bound is None:
        raise SelectorError(
            f"{prefix}values[0]: Invalid value: {_quoted(values[0])}: "
            "for 'Gt', 'Lt' operators, the value must be an integer"
        )
    return bound


def is_label_key(key: str) -> bool:
    """Whether the text can be the key of a label: a name, or a DNS subdomain, a slash and a name."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _LABEL_PREFIX_LENGTH_MAX or not _LABEL_PREFIX.fullmatch(prefix)):
        return False
    return _LABEL_NAME.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Whether the text can be the value of a label."""
    return not value or _LABEL_NAME.fullmatch(value) is not None


def label_requirements(selector: LabelSelector | None) -> Requirements | None:
    """The conditions of a label selector; None, which matches nothing, without a selector."""
    if selector is None:
        return None
    found = [requirement(key, Operator.IN, (value,), "matchLabels") for key, value in selector.match_labels.items()]
    for index, expression in enumerate(selector.match_expressions):
        path = f"matchExpressions[{index}]"
        operator = _operator(expression.operator, _LABEL_OPERATORS, path)
        found.append(requirement(expression.key, operator, expression.values, path))
    return Requirements(tuple(found))


def _operator(name: str, known: Mapping[str, Operator], path: str) -> Operator:
    operator = known.get(name)
    if operator is None:
        raise SelectorError(_unsupported(f"{path}.operator", name, known))
    return operator


# --- label selectors as text: `a=b, c in (d, e), !f` ---

_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!<>(),]|[^ \t\r\n=!<>(),]++)")
_SPECIAL = frozenset({"==", "!=", "=", "!", "<", ">", "(", ")", ","})
_SET_OPERATORS = {"in": Operator.IN, "notin": Operator.NOT_IN}
_VALUE_OPERATORS = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GREATER,
    "<": Operator.LESS,
}
_END = ""


def parse_label_selector(text: str) -> Requirements:
    """The conditions of a label selector written as text; an empty text matches everything."""
    tokens = [*_TOKEN.findall(text), _END]
    found: list[Requirement] = []
    position = 0
    while tokens[position] != _END:
        parsed, position = _text_requirement(tokens, position)
        found.append(parsed)
        if tokens[position] == ",":
            position += 1
            if tokens[position] in (_SPECIAL - {"!"}) | {_END}:
                raise _unexpected(tokens[position], "identifier after ','")
        elif tokens[position] != _END:
            raise _unexpected(tokens[position], "',' or 'end of string'")
    return Requirements(tuple(found))


def _text_requirement(tokens: list[str], position: int) -> tuple[Requirement, int]:
    """The condition that starts at `position`, and where the next token is."""
    absent = tokens[position] == "!"
    key = tokens[position + absent]
    if key in _SPECIAL or key == _END:
        raise _unexpected(key, "!, identifier, or 'end of string'")
    position += absent + 1
    sign = tokens[position]
    if absent:
        return requirement(key, Operator.DOES_NOT_EXIST, ()), position
    if sign in (_END, ","):
        return requirement(key, Operator.EXISTS, ()), position
    if sign in _SET_OPERATORS:
        values, position = _text_values(tokens, position + 1)
        return requirement(key, _SET_OPERATORS[sign], values), position
    if sign not in _VALUE_OPERATORS:
        raise _unexpected(sign, "in, notin, =, ==, !=, <, >")
    value = tokens[position + 1]
    if value in (_END, ","):
        return requirement(key, _VALUE_OPERATORS[sign], ("",)), position + 1
    if value in _SPECIAL:
        raise _unexpected(value, "identifier")
    return requirement(key, _VALUE_OPERATORS[sign], (value,)), position + 2


def _text_values(tokens: list[str], position: int) -> tuple[tuple[str, ...], int]:
    """The values in parentheses at `position`; nothing between two commas is an empty value."""
    if tokens[position] != "(":
        raise _unexpected(tokens[position], "'('")
    position += 1
    if tokens[position] == ")":
        return (), position + 1
    values = [""]
    while tokens[position] != ")":
        token = tokens[position]
        if token == ",":
            values.append("")
        elif token in _SPECIAL or token == _END or values[-1]:
            raise _unexpected(token, "',' or ')'")
        else:
            values[-1] = token
        position += 1
    return tuple(values), position + 1


def _unexpected(token: str, expected: str) -> SelectorError:
    shown = token if len(token) <= 80 else token[:77] + "..."
    return SelectorError(f"unable to parse requirement: found '{shown}', expected: {expected}")


# --- nodes ---


class _Term(msgspec.Struct, frozen=True):
    """A prepared node selector term: conditions on labels and on the node's name, or what is wrong with them."""

    labels: Requirements = Requirements()
    # The name, and whether it must be equal or different.
    names: tuple[tuple[bool, str], ...] = ()
    # A condition on a field that no node has.
    never: bool = False
    problem: str = ""

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        for requirement in self.labels.all:
            if not requirement.matches(labels):
                return False
        # As upstream: a node without a name has no fields, and conditions on fields do not apply to it.
        if not name:
            return True
        for equal, value in self.names:
            if (name == value) is not equal:
                return False
        return not self.never


class NodeMatcher(msgspec.Struct, frozen=True):
    """A prepared node selector."""

    terms: tuple[_Term, ...]

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node with this name and these labels matches.

        An invalid term matches nothing; SelectorError only if no other term matches.
        """
        for term in self.terms:
            if not term.problem and term.matches(name, labels):
                return True
        problems = [term.problem for term in self.terms if term.problem]
        if problems:
            raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
        return False

    def matches_node(self, node: Node) -> bool:
        """As `matches`, for a whole node."""
        return self.matches(node.metadata.name, node.metadata.labels)


def node_matcher(selector: NodeSelector) -> NodeMatcher:
    """A node selector prepared for many nodes. Terms are ORed; an empty term, and so an empty selector, matches no node."""
    terms = enumerate(selector.node_selector_terms)
    return NodeMatcher(
        tuple(
            _term(term, f"nodeSelectorTerms[{index}]")
            for index, term in terms
            if term.match_expressions or term.match_fields
        )
    )


def matches_if_valid(matcher: NodeMatcher, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node matches; an invalid selector matches none."""
    try:
        return matcher.matches(name, labels)
    except SelectorError:
        return False


def matches(selector: NodeSelector, node: Node) -> bool:
    """Whether the selector matches the node; SelectorError as `NodeMatcher.matches`."""
    return node_matcher(selector).matches_node(node)


def nodes_named(selector: NodeSelector | None) -> tuple[str, ...]:
    """The nodes that a selector names; none if it can match others too."""
    names: list[str] = []
    for term in selector.node_selector_terms if selector is not None else ():
        fields = [field for field in term.match_fields if field.key == _NODE_NAME_FIELD and field.operator == "In"]
        if not fields:
            return ()
        names += [name for field in fields for name in field.values]
    return tuple(dict.fromkeys(names))


def _term(term: NodeSelectorTerm, path: str) -> _Term:
    problems: list[str] = []
    requirements = []
    names = []
    never = False
    for index, expression in enumerate(term.match_expressions):
        try:
            requirements.append(_node_requirement(expression, f"{path}.matchExpressions[{index}]"))
        except SelectorError as error:
            problems.append(str(error))
    for index, expression in enumerate(term.match_fields):
        problem = _field_problem(expression, f"{path}.matchFields[{index}]")
        if problem:
            problems.append(problem)
            continue
        equal, value = expression.operator == Operator.IN, expression.values[0]
        if expression.key == _NODE_NAME_FIELD:
            names.append((equal, value))
        elif (value == "") is not equal:
            # Any other field is empty on every node.
            never = True
    if problems:
        return _Term(problem=", ".join(problems))
    return _Term(Requirements(tuple(requirements)), tuple(names), never)


def _node_requirement(expression: NodeSelectorRequirement, path: str) -> Requirement:
    operator = _operator(expression.operator, _NODE_OPERATORS, path)
    return requirement(expression.key, operator, expression.values, path)


def _field_problem(expression: NodeSelectorRequirement, path: str) -> str:
    if expression.operator not in (Operator.IN, Operator.NOT_IN):
        return _unsupported(f"{path}.operator", expression.operator, (Operator.IN.value, Operator.NOT_IN.value))
    if len(expression.values) != 1:
        return f"{path}.values: Invalid value: {_list(expression.values)}: must have one element"
    return ""


# --- taints of nodes and devices ---


def tolerates(toleration: DeviceToleration | Toleration, taint: DeviceTaint | Taint) -> bool:
    """Whether the toleration covers the taint, for however long."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", TOLERATION_EQUAL):
        return toleration.value == taint.value
    return toleration.operator == TOLERATION_EXISTS


def blocking_taints(taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> tuple[DeviceTaint, ...]:
    """The taints that keep a device from being allocated: those with a blocking effect that are not tolerated.

    Other effects, including future ones, do not block.
    """
    return tuple(
        taint
        for taint in taints
        if taint.effect in (EFFECT_NO_SCHEDULE, EFFECT_NO_EXECUTE)
        and not any(tolerates(toleration, taint) for toleration in tolerations)
    )


def selects_device(
    selector: DeviceTaintSelector | None, driver: str, pool: str, device: str, *, absent_selects: bool = True
) -> bool:
    """Whether a DeviceTaintRule's selector matches the device: each field that is set must be equal.

    An empty selector matches every device. No selector matches every device for the scheduler, but none for the
    eviction and pool status controllers, which pass `absent_selects=False`; the API's documentation says none.
    """
    if selector is None:
        return absent_selects
    return all(
        wanted is None or wanted == actual
        for wanted, actual in ((selector.driver, driver), (selector.pool, pool), (selector.device, device))
    )


# --- texts ---


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if _INT64_MIN <= number <= _INT64_MAX else None


def _unsupported(path: str, name: str, known: Iterable[str]) -> str:
    supported = ", ".join(_quoted(value) for value in sorted(known))
    return f"{path}: Unsupported value: {_quoted(name)}: supported values: {supported}"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text.encode(errors="backslashreplace").decode()).decode()


def _list(values: Sequence[str]) -> str:
    return "[" + ",".join(_quoted(value) for value in values) + "]"
