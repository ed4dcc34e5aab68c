"""Name lookup for the interpreter: input variables, and variables of the loops and blocks around a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from allot.core.cel.data.values import MISSING, MutableList, MutableMap, Value, is_list, is_map
from allot.core.cel.evaluation.plan_nodes import Block, Fold, Node

_SLOT = "@index"


class Evaluator(Protocol):
    """Evaluates an initial value or a slot on first read."""

    scope: Scope

    def run(self, node: Node) -> Value:
        """The value of a node in the current scope."""
        ...


class Scope:
    """Names within a part of the plan; `outer` is the scope around it."""

    __slots__ = ("outer",)

    outer: Scope | None

    def own(self, name: str, evaluator: Evaluator) -> Value:
        """The value that this scope itself gives a name, or MISSING."""
        raise NotImplementedError

    def lookup(self, name: str, evaluator: Evaluator) -> Value:
        """The value of a name here or further out, or MISSING. A leading dot skips all but the outermost scope."""
        scope: Scope | None = self
        if name[:1] == ".":
            name = name[1:]
            while scope is not None and scope.outer is not None:
                scope = scope.outer
        while scope is not None:
            value = scope.own(name, evaluator)
            if value is not MISSING:
                return value
            scope = scope.outer
        return MISSING


class RootScope(Scope):
    """The input variables of an evaluation."""

    __slots__ = ("_variables",)

    def __init__(self, variables: Mapping[str, Value]) -> None:
        self.outer = None
        self._variables = variables

    def own(self, name: str, evaluator: Evaluator) -> Value:  # noqa: ARG002
        return self._variables.get(name, MISSING)


class FoldScope(Scope):
    """The variables of a loop: the iteration variables until the result is computed, and the accumulator."""

    __slots__ = ("_accumulated", "_first", "_fold", "_second", "_walking", "mutable")

    def __init__(self, outer: Scope, fold: Fold) -> None:
        self.outer = outer
        self._fold = fold
        self._accumulated: Value = MISSING
        self._first: Value = MISSING
        self._second: Value = MISSING
        self._walking = True
        # Whether the accumulator began empty and is changed in place.
        self.mutable = False

    def next(self, first: Value, second: Value) -> None:
        """Set the iteration variables."""
        self._first, self._second = first, second

    def accumulate(self, value: Value) -> None:
        """Set the accumulator."""
        self._accumulated = value

    def finish(self) -> None:
        """The loop is over: iteration variables are out of scope."""
        self._walking = False

    def own(self, name: str, evaluator: Evaluator) -> Value:
        fold = self._fold
        if name == fold.accu_var:
            if self._accumulated is MISSING:
                self._initialize(evaluator)
            return self._accumulated
        if self._walking:
            if name == fold.iter_var:
                return self._first
            if name == fold.iter_var2:
                return self._second
        return MISSING

    def _initialize(self, evaluator: Evaluator) -> None:
        inner, evaluator.scope = evaluator.scope, self.outer  # type: ignore[assignment]
        try:
            value = evaluator.run(self._fold.accu_init)
        finally:
            evaluator.scope = inner
        if is_list(value) and not value:
            value, self.mutable = MutableList(), True
        elif is_map(value) and not value:
            value, self.mutable = MutableMap(), True
        self._accumulated = value


class BlockScope(Scope):
    """The slots of cel.block."""

    __slots__ = ("_block", "_values")

    def __init__(self, outer: Scope, block: Block) -> None:
        self.outer = outer
        self._block = block
        self._values: dict[int, Value] = {}

    def own(self, name: str, evaluator: Evaluator) -> Value:
        digits = name.removeprefix(_SLOT)
        if digits == name or not digits.isdecimal() or int(digits) >= len(self._block.slots):
            return MISSING
        slot = int(digits)
        if slot not in self._values:
            # A slot that refers to itself is not found.
            self._values[slot] = MISSING
            inner, evaluator.scope = evaluator.scope, self
            try:
                self._values[slot] = evaluator.run(self._block.slots[slot])
            finally:
                evaluator.scope = inner
        return self._values[slot]
