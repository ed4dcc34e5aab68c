"""A short notation for function declarations: `"list(A).(int) -> A"` is a member overload, `"string -> int"` a global one.

Only parses the notation; the functions are in `declarations` and `standard_declarations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from allot.core.cel.checking.types import (
    ANY,
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    FORMAT,
    INT,
    IP,
    NULL,
    QUANTITY,
    SEMVER,
    STRING,
    TIMESTAMP,
    UINT,
    URL,
    CelType,
    Function,
    Kind,
    Overload,
    list_of,
    map_of,
    optional_of,
    type_of,
    type_param,
)

_NAMED = {
    "null": NULL,
    "bool": BOOL,
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "dyn": DYN,
    "any": ANY,
    "Quantity": QUANTITY,
    "Semver": SEMVER,
    "IP": IP,
    "CIDR": CIDR,
    "URL": URL,
    "Format": FORMAT,
    "Authorizer": CelType(Kind.OBJECT, "kubernetes.authorization.Authorizer"),
    "PathCheck": CelType(Kind.OBJECT, "kubernetes.authorization.PathCheck"),
    "GroupCheck": CelType(Kind.OBJECT, "kubernetes.authorization.GroupCheck"),
    "ResourceCheck": CelType(Kind.OBJECT, "kubernetes.authorization.ResourceCheck"),
    "Decision": CelType(Kind.OBJECT, "kubernetes.authorization.Decision"),
}
_TERM = re.compile(r"\s*([A-Za-z]+)\s*(\()?")

# Overload id -> signature, per function.
Library = Mapping[str, Mapping[str, str]]


def functions(library: Library) -> tuple[Function, ...]:
    """The functions of a library."""
    return tuple(
        Function(name, tuple(overload(overload_id, text) for overload_id, text in overloads.items()))
        for name, overloads in library.items()
    )


def merged(*libraries: Iterable[Function]) -> dict[str, Function]:
    """All functions by name. A function in several libraries gets the overloads of each, in order."""
    result: dict[str, Function] = {}
    for library in libraries:
        for function in library:
            present = result.get(function.name)
            if present is None:
                result[function.name] = function
                continue
            known = {overload.id for overload in present.overloads}
            added = tuple(overload for overload in function.overloads if overload.id not in known)
            result[function.name] = Function(function.name, present.overloads + added)
    return result


def overload(overload_id: str, text: str) -> Overload:
    """One overload from its notation."""
    left, _, result = text.partition("->")
    receiver, is_member, rest = left.partition(".(")
    params = [*_types(receiver), *_types(rest.strip().removesuffix(")"))] if is_member else _types(left)
    (result_type,) = _types(result)
    generic = any(map(_is_generic, params)) or _is_generic(result_type)
    return Overload(overload_id, tuple(params), result_type, bool(is_member), generic)


def _is_generic(declared: CelType) -> bool:
    return declared.kind is Kind.TYPE_PARAM or any(map(_is_generic, declared.params))


@cache
def _types(text: str) -> tuple[CelType, ...]:
    """Types separated by commas; nested ones in parentheses."""
    found: list[CelType] = []
    position = 0
    while (match := _TERM.match(text, position)) is not None:
        name, opens = match.groups()
        position = match.end()
        if opens:
            stop = _closing(text, position)
            found.append(_parameterized(name, _types(text[position:stop])))
            position = stop + 1
        else:
            # Single capital letters are type parameters.
            found.append(type_param(name) if len(name) == 1 else _NAMED[name])
        position = text.find(",", position) + 1 or len(text)
    return tuple(found)


def _closing(text: str, position: int) -> int:
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        position += 1
    return position - 1


def _parameterized(name: str, params: tuple[CelType, ...]) -> CelType:
    match name:
        case "list":
            return list_of(params[0])
        case "map":
            return map_of(*params)
        case "optional":
            return optional_of(params[0])
        case _:
            assert name == "type", f"unknown type {name!r} in a declaration"
            return type_of(params[0])
