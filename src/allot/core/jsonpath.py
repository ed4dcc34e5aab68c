"""JSONPath as kubectl and printer columns use it: fields, indices, slices, unions, wildcards, recursion and filters.

`parse` reads an expression such as `.status.conditions[?(@.type=="Ready")].status`; `find` returns the values that it
selects, in order, without missing ones. Templates with text and `range` are left to kubectl. Work is
bounded: long or deeply nested expressions are refused, results beyond a limit are not collected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

LENGTH_MAX = 1024
STEPS_MAX = 64
RESULTS_MAX = 10_000

_FIELD = re.compile(r"(?:\\.|[^\s.\[\]{}()'\"?*,|=!<>@$\\])+")
_QUOTED = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_SLICE = re.compile(r"\s*(-?\d*)\s*(?::\s*(-?\d*)\s*)?(?::\s*(-?\d*)\s*)?")
_OPERATOR = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*")


class JSONPathError(ValueError):
    """An expression that cannot be parsed."""


class Field(msgspec.Struct, frozen=True):
    """A member of an object, or of every object in a list."""

    name: str


class Wildcard(msgspec.Struct, frozen=True):
    """Every item or member."""


class Recursive(msgspec.Struct, frozen=True):
    """The value and everything below it."""


class Slice(msgspec.Struct, frozen=True):
    """Items of a list by position; `only` stands for a single index."""

    start: int | None
    end: int | None
    step: int | None
    only: bool


class Union(msgspec.Struct, frozen=True):
    """Several alternatives, one after the other."""

    ways: tuple[Field | Slice, ...]


class Filter(msgspec.Struct, frozen=True):
    """Items for which a comparison holds or, without an operator, for which a value exists."""

    left: Operand
    operator: str
    right: Operand | None


class Literal(msgspec.Struct, frozen=True):
    """A constant in a filter."""

    value: Any


class Path(msgspec.Struct, frozen=True):
    """A parsed expression."""

    steps: tuple[Step, ...]


Step = Field | Wildcard | Recursive | Slice | Union | Filter
Operand = Path | Literal


# --- reading ---


def parse(expression: str) -> Path:
    """An expression, with or without braces around it and `$` in front."""
    if len(expression) > LENGTH_MAX:
        raise JSONPathError(f"JSONPath of {len(expression)} characters: expected at most {LENGTH_MAX}")
    text = expression.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    parser = _Parser(text)
    path = parser.path(("$", "@"), depth=0)
    if parser.position != len(text):
        raise parser.error("unexpected")
    return path


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def error(self, what: str) -> JSONPathError:
        rest = self.text[self.position : self.position + 20]
        return JSONPathError(f"JSONPath {self.text[:80]!r}: {what} {rest!r} at {self.position}")

    def accept(self, text: str) -> bool:
        found = self.text.startswith(text, self.position)
        self.position += len(text) if found else 0
        return found

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.position)
        if found is not None:
            self.position = found.end()
        return found

    def path(self, roots: tuple[str, ...], depth: int) -> Path:
        if depth > 4:
            raise self.error("filters nested too deeply:")
        for root in roots:
            if self.accept(root):
                break
        steps: list[Step] = []
        if self.position < len(self.text) and self.text[self.position] not in ".[":
            # A path may begin with a name.
            field = self.match(_FIELD)
            if field is None:
                raise self.error("unexpected")
            steps.append(Field(_unescaped(field.group())))
        while self.position < len(self.text):
            if self.accept(".."):
                steps.append(Recursive())
                self._name(steps, required=not self.text.startswith("[", self.position))
            elif self.accept("."):
                self._name(steps, required=False)
            elif self.accept("["):
                steps.append(self._brackets(depth))
            else:
                break
            if len(steps) > STEPS_MAX:
                raise JSONPathError(f"JSONPath {self.text[:80]!r}: more than {STEPS_MAX} steps")
        return Path(tuple(steps))

    def _name(self, steps: list[Step], *, required: bool) -> None:
        if self.accept("*"):
            steps.append(Wildcard())
            return
        field = self.match(_FIELD)
        if field is not None:
            steps.append(Field(_unescaped(field.group())))
        elif required:
            raise self.error("expected a name, got")

    def _brackets(self, depth: int) -> Step:
        if self.accept("?("):
            return self._filter(depth)
        if self.accept("*]"):
            return Wildcard()
        ways: list[Field | Slice] = []
        while True:
            ways.append(self._way())
            if self.accept("]"):
                return ways[0] if len(ways) == 1 else Union(tuple(ways))
            if not self.accept(","):
                raise self.error("expected ']', got")
            while self.accept(" "):
                pass

    def _way(self) -> Field | Slice:
        quoted = self.match(_QUOTED)
        if quoted is not None:
            return Field(_unescaped(quoted.group(1) if quoted.group(1) is not None else quoted.group(2)))
        begin = self.position
        found = self.match(_SLICE)
        if found is not None and found.group().strip():
            numbers = [int(part) if part and part != "-" and len(part) < 12 else None for part in found.groups()]
            only = ":" not in found.group()
            if not only or numbers[0] is not None:
                return Slice(numbers[0], numbers[1], numbers[2], only)
        self.position = begin
        field = self.match(_FIELD)
        if field is None:
            raise self.error("expected an index or a name, got")
        return Field(_unescaped(field.group()))

    def _filter(self, depth: int) -> Filter:
        left = self._operand(depth)
        operator = self.match(_OPERATOR)
        right = self._operand(depth) if operator is not None else None
        while self.accept(" "):
            pass
        if not self.accept(")]"):
            raise self.error("expected ')]', got")
        return Filter(left, operator.group(1) if operator is not None else "exists", right)

    def _operand(self, depth: int) -> Operand:
        while self.accept(" "):
            pass
        quoted = self.match(_QUOTED)
        if quoted is not None:
            return Literal(_unescaped(quoted.group(1) if quoted.group(1) is not None else quoted.group(2)))
        number = self.match(_NUMBER)
        if number is not None:
            text = number.group()
            return Literal(float(text) if "." in text or len(text) > 20 else int(text))
        for word, value in (("true", True), ("false", False)):
            if self.accept(word):
                return Literal(value)
        if self.position < len(self.text) and self.text[self.position] in "@$.":
            return self.path(("@", "$"), depth + 1)
        raise self.error("expected a value, got")


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text


# --- finding ---


def find(path: Path, value: Any) -> list[Any]:
    """The values that a path selects, starting at a value; missing ones are left out."""
    found = [value]
    for step in path.steps:
        found = _limited(_follow(step, found))
        if not found:
            break
    return found


def _limited(values: Iterable[Any]) -> list[Any]:
    kept = []
    for value in values:
        kept.append(value)
        if len(kept) >= RESULTS_MAX:
            break
    return kept


def _follow(step: Step, values: list[Any]) -> Iterator[Any]:
    for value in values:
        match step:
            case Field(name):
                if isinstance(value, dict) and name in value:
                    yield value[name]
            case Wildcard():
                yield from _parts(value)
            case Recursive():
                yield from _below(value)
            case Slice():
                yield from _sliced(step, value)
            case Union(ways):
                for way in ways:
                    yield from _follow(way, [value])
            case Filter():
                yield from (part for part in _parts(value) if _holds(step, part))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _below(value: Any) -> Iterator[Any]:
    level = [value]
    while level:
        yield from level
        level = [part for item in level for part in _parts(item) if isinstance(part, dict | list)]


def _sliced(slice_: Slice, value: Any) -> Iterable[Any]:
    if not isinstance(value, list):
        return ()
    if slice_.only:
        index = slice_.start or 0
        return [value[index]] if -len(value) <= index < len(value) else ()
    step = slice_.step if slice_.step is not None and slice_.step > 0 else 1
    return value[slice_.start : slice_.end : step]


def _holds(filter_: Filter, item: Any) -> bool:
    left = _values(filter_.left, item)
    if filter_.operator == "exists":
        return bool(left)
    right = _values(filter_.right, item)
    return bool(left and right) and _compares(left[0], filter_.operator, right[0])


def _values(operand: Operand | None, item: Any) -> list[Any]:
    match operand:
        case Literal(value):
            return [value]
        case Path():
            return find(operand, item)
        case _:
            return []


def _compares(left: Any, operator: str, right: Any) -> bool:
    if isinstance(left, bool) is not isinstance(right, bool):
        return operator == "!="
    both_numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if not both_numbers and type(left) is not type(right):
        return operator == "!="
    if operator in ("==", "!="):
        return (left == right) is (operator == "==")
    if not both_numbers and not isinstance(left, str):
        return False
    less, same = bool(left < right), bool(left == right)
    return {"<": less, "<=": less or same, ">": not less and not same, ">=": not less}[operator]
