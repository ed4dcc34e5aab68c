"""Building blocks of the code generator: lines, blocks, names and constants of the function being written.

Knows Python's syntax, not CEL's meaning. Expressions are pieces of text with what is known about their value; they are
evaluated where they are placed, so callers that place several must keep them in order (`ordered`, `in_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from allot.core.cel.data.values import MISSING, CelError, Optional, Value, is_list
from allot.core.cel.evaluation.plan_nodes import Constant, Node

# Python nests at most 20 blocks; each level here may take two.
_BLOCKS_MAX: Final = 9
_INDENT: Final = "    "


class Untranslatable(Exception):
    """A plan that must be interpreted."""


class Code(msgspec.Struct, frozen=True):
    """An expression: its text, the class of its value if known (list: any list), and whether evaluating it may raise."""

    text: str
    cls: type | None
    raises: bool
    # Set for a device's maps: the field, then the domain.
    path: tuple[str, ...] = ()


class Emitter:
    """A function under construction."""

    def __init__(self, visitors: dict[type, Callable[[Emitter, Any], Any]]) -> None:
        self._visitors = visitors
        self._lines: list[tuple[int, str]] = []
        self._depth = 1
        self._count = 0
        self._constants: dict[str, Value] = {}
        self._names: dict[tuple[type, Any], str] = {}
        self._locals: dict[str, Code] = {}

    # --- lines and blocks ---

    def line(self, text: str) -> None:
        """Add a line to the current block."""
        self._lines.append((self._depth, text))

    def mark(self) -> int:
        """A position between lines."""
        return len(self._lines)

    def insert(self, mark: int, text: str) -> None:
        """Add a line at an earlier position of the current block."""
        self._lines.insert(mark, (self._depth, text))

    @contextmanager
    def block(self) -> Iterator[None]:
        """Lines added within are one level deeper."""
        self._depth += 1
        if self._depth > _BLOCKS_MAX + 1:
            raise Untranslatable("too many nested blocks")
        yield
        self._depth -= 1

    def unwrap(self, mark: int) -> None:
        """Remove the `try:` at a position, moving what follows up one level: nothing in it can raise."""
        assert self._lines[mark][1] == "try:", "only a block without need is unwrapped"
        self._lines[mark:] = [(depth - 1, text) for depth, text in self._lines[mark + 1 :]]

    def catch(self, handle: Callable[[str], None]) -> None:
        """End a `try:` block: handles CEL errors, but not those that abort the evaluation."""
        caught = self.temporary()
        errors = f"({self.helper(CelError)}, KeyError)"
        self.line(f"except {errors} as e:")
        with self.block():
            # Python unbinds the name of a caught exception at the end of the block.
            self.line(f"{caught} = e")
            handle(caught)

    # --- names and constants ---

    def temporary(self) -> str:
        """A new variable."""
        self._count += 1
        return f"t{self._count}"

    def constant(self, value: Value) -> str:
        """The name under which a value is bound."""
        hashable = value.__class__ in (str, int, bool, float, bytes)
        key = (value.__class__, value) if hashable else (object, id(value))
        if key not in self._names:
            self._names[key] = f"k{len(self._constants)}"
            self._constants[self._names[key]] = value
        return self._names[key]

    def helper(self, value: Any) -> str:
        """The name under which a function or class is bound."""
        return self.constant(value)

    @property
    def missing(self) -> str:
        """The name of MISSING."""
        return self.constant(MISSING)

    def constant_code(self, value: Value) -> Code:
        """A constant as an expression."""
        value_class = value.__class__
        if value_class is bool:
            return Code(str(value), bool, False)
        return Code(self.constant(value), list if is_list(value) else value_class, False)

    def named(self, code: Code) -> str:
        """A name for an expression's value, assigned on a separate line unless it already has one."""
        if code.text.isidentifier():
            return code.text
        name = self.temporary()
        self.line(f"{name} = {code.text}")
        return name

    # --- variables of the expression ---

    def local(self, name: str) -> Code:
        """The value of a variable of the expression."""
        code = self._locals.get(name.removeprefix(".")) if not name.startswith(".") else None
        if code is None:
            raise Untranslatable(f"variable {name!r}")
        return code

    def is_local(self, name: str) -> bool:
        """Whether an enclosing loop or binding has a variable of that name."""
        return name in self._locals

    @contextmanager
    def variables(self, **codes: Code) -> Iterator[None]:
        """Variables of the expression that are visible inside."""
        outer = self._locals
        self._locals = {**outer, **codes}
        yield
        self._locals = outer

    # --- expressions ---

    def value(self, node: Node) -> Code:
        """The expression of a node; adds the lines it needs first."""
        visitor = self._visitors.get(node.__class__)
        if visitor is None:
            raise Untranslatable(f"{node.__class__.__name__} node")
        code = visitor(self, node)
        assert isinstance(code, Code), "visitors of nodes return code"
        return code

    def optional(self, node: Node) -> Code | None:
        """An optional's value or MISSING, if that works without creating an optional."""
        code = self._visitors[Optional](self, node)
        return code if isinstance(code, Code) else None

    def inline(self, nodes: Sequence[Node]) -> list[Code] | None:
        """The expressions of some nodes if none needs extra lines."""
        mark, count, constants = self.mark(), self._count, dict(self._constants)
        codes: list[Code] = []
        for node in nodes:
            codes.append(self.value(node))
            if self.mark() != mark:
                del self._lines[mark:]
                self._count = count
                self._constants = constants
                self._names = {key: name for key, name in self._names.items() if name in constants}
                return None
        return codes

    def in_order(self, nodes: Sequence[Node]) -> list[Code]:
        """The expressions of some nodes, to be placed in one expression in this order."""
        return self.ordered([lambda node=node: self.value(node) for node in nodes])  # type: ignore[misc]

    def ordered(self, makers: Sequence[Callable[[], Code]]) -> list[Code]:
        """Expressions to be placed in this order. Lines that a later one needs must not overtake an earlier one."""
        codes: list[Code] = []
        for make in makers:
            mark = self.mark()
            code = make()
            if self.mark() != mark:
                codes = [self._settled(earlier, mark + offset) for offset, earlier in enumerate(codes)]
            codes.append(code)
        return codes

    def _settled(self, code: Code, mark: int) -> Code:
        # A constant needs no variable, but a line keeps the offsets of `ordered` simple.
        name = self.temporary()
        self.insert(mark, f"{name} = {code.text}")
        return Code(name, code.cls, False, code.path)

    # --- the function ---

    def function(self, size_max: int) -> Callable[..., Value]:
        """The finished function."""
        parameters = "".join(f", {name}={name}" for name in self._constants)
        text = f"def selector(d{parameters}):\n" + "".join(f"{_INDENT * depth}{line}\n" for depth, line in self._lines)
        if len(text) > size_max:
            raise Untranslatable(f"{len(text)} characters of code")
        namespace: dict[str, Any] = dict(self._constants)
        exec(compile(text, "<selector>", "exec"), namespace)
        function: Callable[..., Value] = namespace["selector"]
        return function


def is_constant(node: Node) -> bool:
    """Whether the value is known at compile time."""
    return isinstance(node, Constant)
