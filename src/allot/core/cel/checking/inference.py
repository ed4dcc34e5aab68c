"""Relations between types while inference is in progress.

`Bindings` holds what is known about type variables. Assigning one type to another may bind variables; when it fails,
everything it bound is undone. The rules are those of cel-go's checker: dyn, any and errors are compatible with everything, null
with objects, durations and timestamps. Types nest no deeper than a fixed bound, so recursion here is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.cel.checking.types import DYN, CelType, Kind, Overload

# Types nested deeper than this, or with more parts, are refused; upstream has no such bounds.
TYPE_DEPTH_MAX = 60
TYPE_PARTS_MAX = 1_000

_DYNAMIC = (Kind.DYN, Kind.ANY)
_WILD = (Kind.DYN, Kind.ANY, Kind.ERROR)
# Kinds that are compatible with other kinds.
_FLEXIBLE = (Kind.TYPE_PARAM, Kind.DYN, Kind.ANY, Kind.ERROR, Kind.NULL)
_PARAMETERIZED = (Kind.LIST, Kind.MAP, Kind.OPAQUE)
_NULLABLE = (Kind.NULL, Kind.OPAQUE, Kind.OBJECT, Kind.DURATION, Kind.TIMESTAMP)


class TypeTooComplex(Exception):
    """A type is nested deeper, or has more parts, than any sensible expression needs."""


class Bindings:
    """Type variables and what they stand for."""

    def __init__(self) -> None:
        self._bound: dict[str, CelType] = {}
        # Names with their former binding, to undo.
        self._trail: list[tuple[str, CelType | None]] = []
        self._fresh = 0

    def fresh(self) -> CelType:
        """A new type variable. Its name cannot be that of a declared type parameter."""
        self._fresh += 1
        return CelType(Kind.TYPE_PARAM, f"_var{self._fresh - 1}")

    def instantiate(self, overload: Overload) -> tuple[tuple[CelType, ...], CelType]:
        """Parameter types and result type of an overload with fresh variables for its type parameters."""
        if not overload.generic:
            return overload.params, overload.result
        fresh: dict[str, CelType] = {}
        params = tuple([self._renamed(param, fresh) for param in overload.params])
        return params, self._renamed(overload.result, fresh)

    def _renamed(self, declared: CelType, fresh: dict[str, CelType]) -> CelType:
        if declared.kind is Kind.TYPE_PARAM:
            variable = fresh.get(declared.name)
            if variable is None:
                variable = fresh[declared.name] = self.fresh()
            return variable
        if not declared.params:
            return declared
        params = tuple([self._renamed(param, fresh) for param in declared.params])
        return CelType(declared.kind, declared.name, params)

    def resolve(self, found: CelType, *, free_as_dyn: bool = False) -> CelType:
        """A type with variables replaced by what they stand for; unbound ones stay, or become dyn."""
        if not found.params and found.kind is not Kind.TYPE_PARAM:
            return found
        return self._resolve(found, free_as_dyn, 0)

    def _resolve(self, found: CelType, free_as_dyn: bool, depth: int) -> CelType:
        if depth > TYPE_DEPTH_MAX:
            raise TypeTooComplex
        while found.kind is Kind.TYPE_PARAM:
            bound = self._bound.get(found.name)
            if bound is None:
                return DYN if free_as_dyn else found
            found = bound
        if not found.params:
            return found
        params = tuple([self._resolve(param, free_as_dyn, depth + 1) for param in found.params])
        return found if params == found.params else CelType(found.kind, found.name, params)

    def assign(self, to: CelType, value: CelType) -> bool:
        """Whether a value can stand where `to` is expected; binds variables if so."""
        mark = len(self._trail)
        if self._assignable(to, value, 0):
            return True
        self._undo(mark)
        return False

    def assign_all(self, to: Sequence[CelType], values: Sequence[CelType]) -> bool:
        """The same for several pairs at once: all or none."""
        if len(to) != len(values):
            return False
        mark = len(self._trail)
        for expected, value in zip(to, values, strict=True):
            if not self._assignable(expected, value, 0):
                self._undo(mark)
                return False
        return True

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            name, former = self._trail.pop()
            if former is None:
                del self._bound[name]
            else:
                self._bound[name] = former

    def _bind(self, name: str, to: CelType) -> None:
        self._trail.append((name, self._bound.get(name)))
        self._bound[name] = to

    def _assignable(self, left: CelType, right: CelType, depth: int) -> bool:
        if left is right:
            return True
        if depth > TYPE_DEPTH_MAX:
            raise TypeTooComplex
        left_kind, right_kind = left.kind, right.kind
        if right_kind is Kind.TYPE_PARAM:
            fits, known = self._substitutable(left, right, depth)
            if fits or known:
                return fits
        if left_kind is Kind.TYPE_PARAM:
            return self._substitutable(right, left, depth)[0]
        if left_kind in _WILD or right_kind in _WILD:
            return True
        if left_kind is Kind.NULL or right_kind is Kind.NULL:
            return (right_kind if left_kind is Kind.NULL else left_kind) in _NULLABLE
        if left_kind is not right_kind or left.name != right.name:
            return False
        if left_kind not in _PARAMETERIZED or not left.params:
            return True
        if len(left.params) != len(right.params):
            return False
        for left_param, right_param in zip(left.params, right.params, strict=True):
            if not self._assignable(left_param, right_param, depth + 1):
                return False
        return True

    def _substitutable(self, candidate: CelType, variable: CelType, depth: int) -> tuple[bool, bool]:
        """Whether candidate may stand for variable, and whether the variable was bound already."""
        if candidate == variable:
            return True, True
        bound = self._bound.get(variable.name)
        if bound is None:
            if self._occurs(variable, candidate, depth):
                return False, False
            self._bind(variable.name, candidate)
            return True, False
        if candidate == bound:
            return True, True
        if not self._assignable(candidate, bound, depth + 1):
            return False, True
        general = most_general(candidate, bound)
        if not self._occurs(variable, general, depth):
            self._bind(variable.name, general)
        return True, True

    def _occurs(self, variable: CelType, within: CelType, depth: int) -> bool:
        """Whether a type mentions the variable, so that binding it would make a type that contains itself."""
        if depth > TYPE_DEPTH_MAX:
            raise TypeTooComplex
        while within.kind is Kind.TYPE_PARAM:
            if within.name == variable.name:
                return True
            bound = self._bound.get(within.name)
            if bound is None:
                return False
            within = bound
        return any(self._occurs(variable, param, depth + 1) for param in within.params)


def cannot_match(params: Sequence[CelType], args: Sequence[CelType]) -> bool:
    """Whether arguments of these types obviously do not match: a cheap check for the common case."""
    for param, arg in zip(params, args, strict=True):
        param_kind, arg_kind = param.kind, arg.kind
        if param_kind is not arg_kind and param_kind not in _FLEXIBLE and arg_kind not in _FLEXIBLE:
            return True
    return False


def most_general(first: CelType, second: CelType) -> CelType:
    """The more general of two assignable types."""
    return first if _says_less(first, second) else second


def _says_less(first: CelType, second: CelType) -> bool:
    """Whether the first type is at least as general as the second."""
    if first.kind in _DYNAMIC or first.kind is Kind.TYPE_PARAM:
        return True
    if second.kind in _DYNAMIC or second.kind is Kind.TYPE_PARAM:
        return False
    if first.kind is not second.kind or first.name != second.name:
        return False
    if first.kind is Kind.TYPE:
        return True
    if len(first.params) != len(second.params):
        return False
    for first_param, second_param in zip(first.params, second.params, strict=True):
        if not _says_less(first_param, second_param):
            return False
    return True


def unwrap_optional(found: CelType) -> tuple[CelType, bool]:
    """What an optional holds, and whether it was one."""
    if found.kind is Kind.OPAQUE and found.name == "optional_type":
        return found.params[0], True
    return found, False


def is_dynamic(found: CelType) -> bool:
    """dyn or any."""
    return found.kind in _DYNAMIC


def limit_size(found: CelType) -> None:
    """Raises TypeTooComplex for types that would make every later step slow."""
    level = [found]
    parts = 0
    for _ in range(TYPE_DEPTH_MAX):
        parts += len(level)
        if parts > TYPE_PARTS_MAX:
            raise TypeTooComplex
        level = [param for outer in level for param in outer.params]
        if not level:
            return
    raise TypeTooComplex


# Type names in the checker's messages; others use their own name.
_CHECKER_NAMES = {Kind.ANY: "any", Kind.DURATION: "duration", Kind.TIMESTAMP: "timestamp", Kind.NULL: "null"}
_NAMED_KINDS = (Kind.OPAQUE, Kind.OBJECT, Kind.TYPE_PARAM)


def describe(found: CelType) -> str:
    """A type as the checker's messages write it: `map(string, any)`."""
    name = found.name if found.kind in _NAMED_KINDS else _CHECKER_NAMES.get(found.kind, found.kind.value)
    if not found.params:
        return name
    return f"{name}({', '.join([describe(param) for param in found.params])})"


def full_name(found: CelType) -> str:
    """A type as messages about an expression's result write it: `map(string, google.protobuf.Any)`."""
    if found.kind is Kind.TYPE_PARAM:
        return f"<{found.name}>"
    name = "google.protobuf.Any" if found.kind is Kind.ANY else found.name or found.kind.value
    if not found.params:
        return name
    return f"{name}({', '.join([full_name(param) for param in found.params])})"


def describe_signature(args: Sequence[CelType], is_member: bool) -> str:
    """Argument types as a message about overloads writes them: `string.(int)`, `(int, int)`."""
    texts = [describe(arg) for arg in args]
    receiver = f"{texts.pop(0)}." if is_member else ""
    return f"{receiver}({', '.join(texts)})"
