"""What rules of custom resources may cost at most: computed when a definition is written, so that rules which could never
be run within their budget are refused before there are objects.

Sizes that a schema does not bound are bounded by the largest request: the smaller a value can be written, the more of them
fit. A rule below lists and maps runs once for each of their elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.cel.costs.ranges import multiply
from allot.core.cel.costs.sizes import Bounds, SizeEstimates
from allot.core.cel.evaluation.program import Program
from allot.core.customresources.rules import compile_rules
from allot.core.customresources.structural import below
from allot.core.schema.declared_types import escaped, with_object_fields
from allot.core.validation.fields import Finding, forbidden

Schema = Mapping[str, Any]

# Of one expression, and of all in a schema.
EXPRESSION_COST_MAX = 10_000_000
SCHEMA_COST_MAX = 100_000_000
_REQUEST_BYTES_MAX = 3 * 1024 * 1024
_TEXT_BYTES_MAX = _REQUEST_BYTES_MAX - 2
# As JSON, in bytes at least, and in characters at most.
_FORMATS = {"duration": (3, 32), "date": (12, 12), "date-time": (21, 32)}
_SCALAR_BYTES_MIN = {"boolean": 4, "number": 1, "integer": 1, "string": 2}
_MOST_EXPENSIVE_TOLD = 4


class Sized(msgspec.Struct, frozen=True):
    """How large values of a schema can get, and how short the shortest is as JSON."""

    bounds: Bounds
    bytes_min: int


def sized(schema: Schema, *, root: bool = False) -> Sized | None:
    """The sizes of a schema's values; None if rules cannot see them."""
    if schema.get("x-kubernetes-int-or-string") is True:
        return Sized(Bounds(size_max=_limit(schema, "maxLength", 4, _TEXT_BYTES_MAX)), 1)
    if root or schema.get("x-kubernetes-embedded-resource") is True:
        schema = with_object_fields(schema)
    match schema.get("type"):
        case "array":
            return _list(schema)
        case "object":
            return _object(schema)
        case "string":
            return _text(schema)
        case "boolean" | "number" | "integer" as scalar:
            return Sized(Bounds(), _SCALAR_BYTES_MIN[scalar])
    return None


def _limit(schema: Schema, name: str, factor: int, default: int) -> int:
    given = schema.get(name)
    return max(given, 0) * factor if isinstance(given, int) and not isinstance(given, bool) else default


def _text(schema: Schema) -> Sized:
    format_ = schema.get("format")
    if format_ in _FORMATS:
        bytes_min, size_max = _FORMATS[format_]
        return Sized(Bounds(size_max=size_max), bytes_min)
    if format_ == "byte":
        return Sized(Bounds(size_max=_limit(schema, "maxLength", 1, _TEXT_BYTES_MAX)), 2)
    known = schema.get("enum")
    lengths = [len(value.encode()) for value in known if isinstance(value, str)] if isinstance(known, list) else []
    longest = max(lengths, default=0) if isinstance(known, list) and known else _TEXT_BYTES_MAX
    # A character can take four bytes.
    return Sized(Bounds(size_max=_limit(schema, "maxLength", 4, longest)), 2)


def _list(schema: Schema) -> Sized | None:
    items = schema.get("items")
    element = sized(items) if isinstance(items, dict) else None
    if element is None:
        return None
    count = _limit(schema, "maxItems", 1, _TEXT_BYTES_MAX // (element.bytes_min + 1))
    return Sized(Bounds(size_max=count, elements=element.bounds), 2)


def _object(schema: Schema) -> Sized | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        element = sized(additional)
        if element is None:
            return None
        # At least two quotes, a letter or two, a colon and a comma besides the value.
        count = _limit(schema, "maxProperties", 1, _TEXT_BYTES_MAX // (element.bytes_min + 6))
        return Sized(Bounds(size_max=count, keys=Bounds(), elements=element.bounds), 2)
    properties = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    fields: dict[str, Bounds] = {}
    bytes_min = 2
    for name, one in properties.items() if isinstance(properties, dict) else ():
        found = sized(one) if isinstance(one, dict) else None
        if found is None:
            continue
        shown = escaped(name)
        if shown:
            fields[shown] = found.bounds
        if name in needed and one.get("default") is None:
            bytes_min += len(name) + found.bytes_min + 4
    return Sized(Bounds(fields=fields), bytes_min)


def rule_cost(program: Program, values: Sized) -> int:
    """The most that running a rule once may cost."""
    return program.estimate(SizeEstimates({"self": values.bounds, "oldSelf": values.bounds})).max


# --- definitions ---


def check_costs(schema: Schema, path: str) -> list[Finding]:
    """Expressions of a schema that may cost too much, alone or together."""
    costs: list[tuple[str, int]] = []
    found = _check(schema, path, 1, costs, root=True)
    total = sum(cost for _, cost in costs)
    if total > SCHEMA_COST_MAX:
        most = sorted((each for each in costs if each[1] >= SCHEMA_COST_MAX // 100), key=lambda each: -each[1])
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        found += [forbidden(place, text) for place, _ in most[:_MOST_EXPENSIVE_TOLD]]
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        found.append(forbidden(path, _too_much(what, total, SCHEMA_COST_MAX)))
    return found


def _check(
    schema: Schema, path: str, times: int | None, costs: list[tuple[str, int]], *, root: bool = False
) -> list[Finding]:
    """times: how often there can be values of this schema in an object, None if nothing but its size bounds that."""
    found: list[Finding] = []
    rules = compile_rules(schema, root=root)
    values = sized(schema, root=root) if rules else None
    for position, rule in enumerate(rules):
        if rule.program is None or values is None:
            continue
        place = f"{path}.x-kubernetes-validations[{position}]"
        often = times if times is not None else _REQUEST_BYTES_MAX // (values.bytes_min + 1)
        cost = multiply(rule_cost(rule.program, values), often)
        found += _checked(f"{place}.rule", "estimated rule cost", cost, costs)
        if rule.message is not None:
            cost = rule_cost(rule.message, values)
            found += _checked(f"{place}.messageExpression", "estimated messageExpression cost", cost, costs)
    more = _elements(schema)
    inside = None if times is None or more is None else multiply(times, more)
    for place, one in below(schema):
        found += _check(one, f"{path}.{place}", inside, costs)
    return found


def _checked(place: str, what: str, cost: int, costs: list[tuple[str, int]]) -> list[Finding]:
    costs.append((place, cost))
    return [forbidden(place, _too_much(what, cost, EXPRESSION_COST_MAX))] if cost > EXPRESSION_COST_MAX else []


def _elements(schema: Schema) -> int | None:
    """How many values there can be inside one value; None if the schema does not say."""
    name = None
    if schema.get("type") == "array":
        name = "maxItems"
    elif schema.get("type") == "object" and schema.get("additionalProperties") is not None:
        name = "maxProperties"
    if name is None:
        return 1
    limit = _limit(schema, name, 1, -1)
    return limit if limit >= 0 else None


def _too_much(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    told = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    hint = "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared"
    return f"{what} exceeds budget by factor of {told} ({hint})"
