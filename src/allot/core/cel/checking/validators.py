"""Checks that Kubernetes runs on type-checked expressions, each of which only tightens what the checker allows.

Literal arguments of duration(), timestamp() and matches() must be meaningful, literal format strings must fit their
arguments, and the elements of a list or map literal must have the same type, without even dyn mixed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from allot.core.cel.checking.inference import describe
from allot.core.cel.checking.types import CelType, Checked, Kind
from allot.core.cel.data.regex import PatternError, compile_pattern
from allot.core.cel.data.values import EvaluationError
from allot.core.cel.library.standard import to_duration, to_timestamp
from allot.core.cel.syntax.ast import Call, Expr, ListExpr, Literal, MapExpr
from allot.core.cel.syntax.builder import children
from allot.core.cel.syntax.errors import Issues

# The first argument of these must be valid if it is a literal. For matches that is the pattern when called on a
# string, but the text when called as a global function; upstream looks at the first argument either way.
_LITERAL_ARGUMENTS: dict[str, Callable[..., object]] = {
    "duration": to_duration,
    "timestamp": to_timestamp,
    "matches": compile_pattern,
}


def validate(checked: Checked) -> None:
    """Raises CelCompileError if a literal in the expression is refused."""
    issues = Issues(checked.parsed.source)
    validator = _Validator(checked, issues)
    # Inside the arguments of format(), literals may be mixed.
    for node, exempt in _nodes(checked.parsed.root):
        if isinstance(node, Call):
            validator.call(node)
        elif isinstance(node, ListExpr) and len(node.elements) > 1 and not exempt:
            validator.list_elements(node)
        elif isinstance(node, MapExpr) and len(node.entries) > 1 and not exempt:
            validator.map_entries(node)
    issues.raise_any()


def _nodes(root: Expr) -> Iterator[tuple[Expr, bool]]:
    """Every node, and whether it is inside a call of format()."""
    stack = [(root, False)]
    while stack:
        node, exempt = stack.pop()
        yield node, exempt
        exempt = exempt or (isinstance(node, Call) and node.function == "format")
        stack.extend((child, exempt) for child in children(node))


class _Validator:
    """The checks and their shared state."""

    def __init__(self, checked: Checked, issues: Issues) -> None:
        self.types = checked.types
        self.offsets = checked.parsed.offsets
        self.issues = issues

    def report(self, node_id: int, message: str) -> None:
        self.issues.report(self.offsets.get(node_id, -1), message)

    def call(self, node: Call) -> None:
        literal = node.args[0] if node.args else None
        read = _LITERAL_ARGUMENTS.get(node.function)
        if read is not None and isinstance(literal, Literal):
            try:
                read(literal.value)
            except (EvaluationError, PatternError):
                self.report(literal.id, f"invalid {node.function} argument")
        elif (
            node.function == "format"
            and isinstance(node.target, Literal)
            and isinstance(node.target.value, str)
            and isinstance(literal, ListExpr)
        ):
            self.format_call(node, node.target.value, literal.elements)

    def list_elements(self, node: ListExpr) -> None:
        first: CelType | None = None
        for index, element in enumerate(node.elements):
            found = self.types[element.id]
            if index in node.optional_indices:
                found = _held(found)
            if first is None:
                first = found
            elif first != found:
                self.mismatch(element, first, found)
                return

    def map_entries(self, node: MapExpr) -> None:
        first: tuple[CelType, CelType] | None = None
        for entry in node.entries:
            value = self.types[entry.value.id]
            found = (self.types[entry.key.id], _held(value) if entry.optional else value)
            if first is None:
                first = found
                continue
            if first[0] != found[0]:
                self.mismatch(entry.key, first[0], found[0])
            if first[1] != found[1]:
                self.mismatch(entry.value, first[1], found[1])

    def mismatch(self, node: Expr, expected: CelType, found: CelType) -> None:
        self.report(node.id, f"expected type '{describe(expected)}' but found '{describe(found)}'")

    def format_call(self, node: Call, template: str, args: tuple[Expr, ...]) -> None:
        """A literal format string must match its arguments."""
        used = 0
        for clause in _CLAUSE.finditer(template):
            if clause.group() == "%%":
                continue
            problem = self.clause(clause, args[used] if used < len(args) else None, used)
            if problem is not None:
                self.report(problem[0] or node.id, problem[1])
                return
            used += 1
        if len(args) > used:
            self.report(node.id, f"too many arguments supplied to string.format (expected {used}, got {len(args)})")

    def clause(self, clause: re.Match[str], arg: Expr | None, index: int) -> tuple[int, str] | None:
        """What is wrong with one % clause: the node to blame (0: the call) and the message."""
        dot, digits, verb = clause.groups()
        if clause.end() == clause.start() + 1:
            return 0, "unexpected end of string"
        if arg is None:
            return 0, f"index {index} out of range"
        precision_problem = _precision_problem(dot, digits, verb)
        if precision_problem is not None:
            return 0, f"could not parse formatting clause: error while parsing precision: {precision_problem}"
        if verb not in _VERBS:
            # Upstream reads a byte where the clause begins, so other characters show as their first byte.
            shown = chr(verb.encode()[0])
            return 0, f'could not parse formatting clause: unrecognized formatting clause "{shown}"'
        kinds, complaint = _VERBS[verb]
        for part in self.formatted_parts(arg) if verb == "s" else (arg,):
            found = self.types[part.id]
            if found.kind is not Kind.DYN and found.kind not in kinds:
                return part.id, f"error during formatting: {complaint}, was given {_type_name(found)}"
        return None

    def formatted_parts(self, arg: Expr) -> Iterator[Expr]:
        """An argument and, if it is a list or map literal, its elements."""
        stack = [arg]
        while stack:
            node = stack.pop()
            yield node
            if isinstance(node, ListExpr | MapExpr):
                stack.extend(reversed(children(node)))


def _held(found: CelType) -> CelType:
    """What an optional holds; anything else is left as it is."""
    return found.params[0] if found.kind is Kind.OPAQUE and found.params else found


def _type_name(found: CelType) -> str:
    return "google.protobuf.Any" if found.kind is Kind.ANY else found.name or found.kind.value


# A percent sign with the precision and verb after it, if present.
_CLAUSE = re.compile(r"%%|%(?:(\.)([0-9]*))?([\s\S])?")

_INTEGERS = (Kind.INT, Kind.UINT)
_DOUBLES = (Kind.DOUBLE, Kind.STRING)
_SCALARS = (Kind.BOOL, Kind.STRING, Kind.BYTES, Kind.DOUBLE, Kind.DURATION, Kind.TIMESTAMP, Kind.TYPE, Kind.NULL)
_HEXADECIMAL = (
    (*_INTEGERS, Kind.STRING, Kind.BYTES),
    "only integers, byte buffers, and strings can be formatted as hex",
)
_STRING_KINDS = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
_VERBS: dict[str, tuple[tuple[Kind, ...], str]] = {
    "s": (
        (*_INTEGERS, *_SCALARS, Kind.LIST, Kind.MAP),
        f"string clause can only be used on {_STRING_KINDS}",
    ),
    "d": (_INTEGERS, "decimal clause can only be used on integers"),
    "f": (_DOUBLES, "fixed-point clause can only be used on doubles"),
    "e": (_DOUBLES, "scientific clause can only be used on doubles"),
    "b": ((*_INTEGERS, Kind.BOOL), "only integers and bools can be formatted as binary"),
    "x": _HEXADECIMAL,
    "X": _HEXADECIMAL,
    "o": (_INTEGERS, "octal clause can only be used on integers"),
}


def _precision_problem(dot: str | None, digits: str | None, verb: str | None) -> str | None:
    if dot is None:
        return None
    if verb is None:
        return "could not find end of precision specifier"
    if not digits:
        return 'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
    if len(digits.lstrip("0")) > 18 and int(digits[:40]) >= 2**63:
        return f'error while converting precision to integer: strconv.Atoi: parsing "{digits}": value out of range'
    return None
