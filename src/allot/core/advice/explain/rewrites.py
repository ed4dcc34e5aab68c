"""Expressions that select nothing, and what they were probably meant to say.

Checks the comparisons of a selector against what devices publish: sizes and versions compared as text, names that no
device has, values that no device has, attributes that only some have. Every rewrite is a complete new expression; the caller
tries whether it helps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from allot.core.advice.explain.diagnosis import Rank
from allot.core.advice.explain.expressions import (
    ATTRIBUTES,
    CAPACITY,
    Comparison,
    Place,
    Published,
    comparisons,
    place_of,
    value_at,
    walk,
)
from allot.core.advice.nearest import nearest
from allot.core.allocation.devices import DeviceEntry
from allot.core.cel.syntax.ast import Call, Expr, Ident, Literal, Parsed, Select
from allot.core.cel.syntax.builder import replaced
from allot.core.cel.syntax.errors import CelCompileError
from allot.core.cel.syntax.parser import parse
from allot.core.cel.syntax.unparse import unparse
from allot.core.quantity import Quantity, QuantityError
from allot.core.quoting import quoted
from allot.core.semver import Semver, SemverError

_SIZE = re.compile(r"[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE])")
# gpu.amd.com is not a misspelling of gpu.nvidia.com, but nvidia.com is.
DRIVER_LIKENESS_MIN = 0.75
_OTHER_VALUES_MAX = 3
# What a threshold becomes that is lowered, or raised, to a value that devices have.
_BOUNDS = {">=": ">=", ">": ">=", "<=": "<=", "<": "<="}
# A device that has 90 % of what is asked for is nearly as good.
_NEAR_MAX = 0.1
# How much less than an amount a round bound may be.
_ROUNDED_MAX = 0.02
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_UNIT = re.compile(r"(?:[KMGTPE]i|[kMGTPE])$")
_NUMBERS = re.compile(r"v?[0-9]+(\.[0-9]+){1,2}")


class Rewrite(msgspec.Struct, frozen=True, kw_only=True):
    """Another expression. problem: what is wrong with the current one, phrased to follow "it"; empty if nothing is, and the
    rewrite just asks for less."""

    expression: str
    text: str
    problem: str = ""
    # Fix mistakes first, then lower demands, then drop conditions.
    rank: int = Rank.FIX


def rewrites(expression: str, published: Published, devices: Sequence[DeviceEntry] = ()) -> list[Rewrite]:
    """Possible rewrites, mistakes first. devices: some that should match, to see what they lack."""
    try:
        parsed = parse(expression)
    except CelCompileError:
        return []
    found = [
        *_drivers(parsed, published),
        *_comparisons_fixed(parsed, published),
        *_names(parsed, published),
        *_guards(parsed, published, devices),
        *_lowered(parsed, published),
        *_other_values(parsed, published),
        *_without_parts(parsed),
    ]
    unique: dict[str, Rewrite] = {}
    for rewrite in found:
        if rewrite.expression != expression:
            unique.setdefault(rewrite.expression, rewrite)
    return sorted(unique.values(), key=lambda rewrite: rewrite.rank)


def _with(parsed: Parsed, node: Expr, text: str) -> str:
    """The expression with the text of a node replaced."""
    stand_in = Ident(id=-1, name=text)
    return unparse(replaced(parsed.root, {node.id: stand_in}), parsed)


# --- mistakes ---


def unknown_driver(expression: str, published: Published) -> str:
    """What is wrong if an expression selects a driver without devices; empty if it does not."""
    try:
        found = _unknown_drivers(parse(expression), published)
    except CelCompileError:
        return ""
    return next((_no_such_driver(name) for _, name in found), "")


def _no_such_driver(name: str) -> str:
    return f"selects driver {quoted(name)}, but no driver of that name has published devices"


def similar_driver(name: str, published: Published) -> str | None:
    """Another driver with devices that may have been meant."""
    others = [driver for driver in published.drivers if driver != name]
    return nearest(name, others, likeness_min=DRIVER_LIKENESS_MIN)


def _drivers(parsed: Parsed, published: Published) -> Iterator[Rewrite]:
    """Suggest only similar names: devices of another driver are different devices."""
    for literal, name in _unknown_drivers(parsed, published):
        driver = similar_driver(name, published)
        if driver is not None:
            expression = _with(parsed, literal, quoted(driver))
            yield Rewrite(expression=expression, text=f"select driver {quoted(driver)}", problem=_no_such_driver(name))


def _unknown_drivers(parsed: Parsed, published: Published) -> Iterator[tuple[Literal, str]]:
    for node in walk(parsed.root):
        if not (isinstance(node, Call) and node.function == "_==_"):
            continue
        for one, other in (node.args, node.args[::-1]):
            if (
                isinstance(one, Select)
                and one.field == "driver"
                and isinstance(one.operand, Ident)
                and isinstance(other, Literal)
                and isinstance(other.value, str)
                and other.value not in published.drivers
            ):
                yield other, other.value


def _comparisons_fixed(parsed: Parsed, published: Published) -> Iterator[Rewrite]:
    for found in comparisons(parsed.root):
        place, value = found.place, found.value
        values = published.values(place)
        kinds = set(values.values())
        if found.wrapped and kinds == {"string"}:
            yield from _converted(parsed, found, values)
        if not isinstance(value, str) or found.wrapped:
            continue
        capacity = Place(CAPACITY, place.domain, place.name)
        is_size, is_version = _SIZE.fullmatch(value) is not None, _NUMBERS.fullmatch(value) is not None
        if is_size and (place.kind == CAPACITY or published.values(capacity)):
            read = capacity if place.kind == ATTRIBUTES else place
            new = f"{read.text}.compareTo(quantity({quoted(value)})) {found.relation} 0"
            absent = f"the attribute {place.name}, which no device has," if not values else f"the text {place.name}"
            problem = f"compares {absent} with {quoted(value)}, but {place.name} is a capacity, which is a quantity"
            yield Rewrite(expression=_with(parsed, found.node, new), text="compare quantities", problem=problem)
        elif is_size and "string" in kinds:
            new = f"quantity({_bare(found, parsed)}).compareTo(quantity({quoted(value)})) {found.relation} 0"
            yield Rewrite(
                expression=_with(parsed, found.node, new),
                text="compare quantities instead of texts",
                problem=_as_text(found, values, "sizes", _as_size),
            )
        elif is_version and "version" in kinds:
            new = f"{_bare(found, parsed)}.compareTo(semver({quoted(_full(value))})) {found.relation} 0"
            problem = f"compares the version {place.name} with the text {quoted(value)}"
            yield Rewrite(expression=_with(parsed, found.node, new), text="compare versions", problem=problem)
        elif is_version and "string" in kinds and found.relation not in ("==", "!="):
            new = f"semver({_bare(found, parsed)}, true).compareTo(semver({quoted(value)}, true)) {found.relation} 0"
            yield Rewrite(
                expression=_with(parsed, found.node, new),
                text="compare versions instead of texts",
                problem=_as_text(found, values, "versions", _as_version),
            )
        elif "int" in kinds and _INTEGER.fullmatch(value):
            problem = f"compares the number {place.name} with the text {quoted(value)}"
            new = f"{_bare(found, parsed)} {found.relation} {int(value)}"
            yield Rewrite(expression=_with(parsed, found.node, new), text="compare numbers", problem=problem)
        elif found.relation == "==" and kinds == {"string"} and value not in values:
            yield from _values_meant(parsed, found, values)


def _converted(parsed: Parsed, found: Comparison, values: dict[object, str]) -> Iterator[Rewrite]:
    """Convert a text that is compared as if it were a version or a quantity."""
    what, read = ("version", Semver.parse) if found.wrapped == "semver" else ("quantity", Quantity.parse)
    try:
        for value in values:
            read(str(value))
        lenient = ""
    except (QuantityError, SemverError):
        if found.wrapped != "semver":
            return
        lenient = ", true"
    there = f"{found.wrapped}({_bare(found, parsed)}{lenient})"
    new = f"{there}.compareTo({found.wrapped}({quoted(str(found.value))}{lenient})) {found.relation} 0"
    yield Rewrite(
        expression=_with(parsed, found.node, new),
        text=f"convert {found.place.name} to a {what}",
        problem=f"compares {found.place.name} as a {what}, but devices publish it as text ({_some({str(each) for each in values})})",
    )


def _values_meant(parsed: Parsed, found: Comparison, values: dict[object, str]) -> Iterator[Rewrite]:
    value = str(found.value)
    texts = {str(each) for each in values}
    inside = sorted(text for text in texts if value.lower() in text.lower() or text.lower() in value.lower())
    close = nearest(value, texts)
    for text in dict.fromkeys([*inside, *([close] if close is not None else [])]):
        new = f"{_bare(found, parsed)} == {quoted(text)}"
        yield Rewrite(
            expression=_with(parsed, found.node, new),
            text=f"ask for {quoted(text)}",
            problem=f"asks for {found.place.name} {quoted(value)}, which no device has (devices have {_some(texts)})",
        )


def _some(texts: set[str]) -> str:
    shown = sorted(texts)[:3]
    return ", ".join(quoted(text) for text in shown) + (" and others" if len(texts) > len(shown) else "")


def _bare(found: Comparison, parsed: Parsed) -> str:
    return unparse(found.read, parsed)


def _full(version: str) -> str:
    numbers = version.removeprefix("v").split(".")
    return ".".join([*numbers, "0", "0"][:3])


def _as_size(text: str) -> Quantity:
    return Quantity.parse(text)


def _as_version(text: str) -> Semver:
    return Semver.parse(_full(text))


def _as_text(found: Comparison, values: dict[object, str], what: str, read: Callable[[str], object]) -> str:
    """The mistake, with a device's value that it puts on the wrong side."""
    wanted = str(found.value)
    problem = f"compares {found.place.name} as text, not as {what}"
    for value in sorted(str(each) for each in values):
        try:
            meant = _holds(read(value), found.relation, read(wanted))
        except (QuantityError, SemverError):
            continue
        said = _holds(value, found.relation, wanted)
        if meant != said:
            return f"{problem}: {quoted(value)} {found.relation} {quoted(wanted)} is {str(said).lower()}"
    return problem


def _holds(one: object, relation: str, other: object) -> bool:
    below, equal = bool(one < other), one == other  # type: ignore[operator]
    answers = {"<": below, "<=": below or equal, ">": not below and not equal, ">=": not below, "==": equal}
    return answers.get(relation, not equal)


def _names(parsed: Parsed, published: Published) -> Iterator[Rewrite]:
    """Names that no device has."""
    for node in walk(parsed.root):
        place = place_of(node)
        if place is None or published.values(place):
            continue
        word = "attribute" if place.kind == ATTRIBUTES else "capacity"
        problem = f"reads {word} {place.name} of {quoted(place.domain)}, which no device has"
        for other in _meant(place, published):
            yield Rewrite(
                expression=_with(parsed, node, other.text),
                text=f"read {other.text}",
                problem=f"{problem} ({other.text} exists)",
            )


def _meant(place: Place, published: Published) -> list[Place]:
    same_name = [each for each in published.places if each.name == place.name and each.kind == place.kind]
    elsewhere = [each for each in published.places if each.name == place.name and each.kind != place.kind]
    domain = {each.name: each for each in published.places if each.domain == place.domain and each.kind == place.kind}
    if not domain:
        domain = {each.name: each for each in published.places if each.kind == place.kind}
    close = nearest(place.name, domain)
    near = [domain[close]] if close is not None else []
    order = lambda each: (-_likeness(each.domain, place.domain), each.domain)  # noqa: E731
    return [*sorted(same_name, key=order), *near, *sorted(elsewhere, key=order)][:3]


def _likeness(one: str, other: str) -> int:
    """How many labels of two domains agree, from the end."""
    count = 0
    for left, right in zip(reversed(one.split(".")), reversed(other.split(".")), strict=False):
        if left != right:
            break
        count += 1
    return count


def _guards(parsed: Parsed, published: Published, devices: Sequence[DeviceEntry]) -> Iterator[Rewrite]:
    """Guards for attributes that only some devices have."""
    missing: dict[Place, str] = {}
    for node in walk(parsed.root):
        place = place_of(node)
        if place is None or (isinstance(node, Call) and node.function in ("_?._", "_[?_]")):
            continue
        for entry in devices:
            if value_at(entry.device, entry.id.driver, place) is None:
                missing.setdefault(place, str(entry.id))
                break
    if not missing:
        return
    guards = [f"{quoted(place.name)} in device.{place.kind}[{quoted(place.domain)}]" for place in missing]
    whole = unparse(parsed.root, parsed)
    body = f"({whole})" if isinstance(parsed.root, Call) and parsed.root.function in ("_||_", "_?_:_") else whole
    place, device = next(iter(missing.items()))
    word = "attribute" if place.kind == ATTRIBUTES else "capacity"
    domains = {each.domain for each in missing}
    if len(domains) == 1 and all(entry.id.driver not in domains for entry in devices):
        driver = next(iter(domains))
        if driver in published.drivers:
            # Attributes without a domain belong to their driver: other drivers' devices are not meant.
            yield Rewrite(
                expression=f"device.driver == {quoted(driver)} && {body}",
                text=f"check first that device.driver is {driver}",
                problem=f"reads {word} {place.name} of {driver} without a check of device.driver, and device {device} does not have it",
            )
            return
    yield Rewrite(
        expression=" && ".join([*guards, body]),
        text=f"check first that there is {'an' if word[0] == 'a' else 'a'} {word} {place.name}",
        problem=f"reads {word} {place.name}, which device {device} does not have",
    )


# --- asking for less ---


def _lowered(parsed: Parsed, published: Published) -> Iterator[Rewrite]:
    """Thresholds lowered, or raised, to what devices have."""
    for found in comparisons(parsed.root):
        values = published.values(found.place)
        for read, wrapper in ((_as_size, "quantity"), (_as_version, "semver"), (int, "")):
            if found.wrapped != wrapper or not values:
                continue
            try:
                wanted = read(str(found.value))
                there = sorted(((read(str(value)), str(value)) for value in values), key=lambda pair: pair[0])
            except (QuantityError, SemverError, ValueError):
                continue
            if any(_holds(each, found.relation, wanted) for each, _ in there):
                continue
            below = [text for each, text in there if each < wanted]  # type: ignore[operator]
            above = [text for each, text in there if not each < wanted]  # type: ignore[operator]
            if wrapper == "quantity" and below and not Quantity.parse(below[-1]).nano:
                # Every device has 0 or more: the driver could not read it.
                continue
            if found.relation in (">=", ">") and below:
                yield _relaxed(parsed, found, _round(found, below[-1], below), ">=", wrapper)
            elif found.relation in ("<=", "<") and above:
                yield _relaxed(parsed, found, above[0], "<=", wrapper)
            elif found.relation == "==":
                if below:
                    yield _relaxed(parsed, found, below[-1], ">=", wrapper)
                if above:
                    yield _relaxed(parsed, found, above[0], "==", wrapper)


class NearMiss(NamedTuple):
    """A threshold that devices miss by little. asked, actual: as text, the latter with its unit."""

    rewrite: Rewrite
    asked: str
    actual: str


def near_misses(expression: str, devices: Sequence[DeviceEntry]) -> Iterator[NearMiss]:
    """Thresholds lowered, or raised, to what some devices have, if that is nearly the same, nearest first."""
    try:
        parsed = parse(expression)
    except CelCompileError:
        return
    for found in comparisons(parsed.root):
        if found.relation not in _BOUNDS:
            continue
        there = {value_at(entry.device, entry.id.driver, found.place) for entry in devices}
        texts = sorted(str(each[1]) for each in there if each is not None)
        near = sorted((way, text) for text in texts if 0 < (way := _way(found, text)) <= _NEAR_MAX)
        if near:
            text, relation = near[0][1], _BOUNDS[found.relation]
            asked = f"{found.place.name} {found.relation} {_in_unit_of(found, text)}"
            bound = _round(found, text, texts) if relation == ">=" else text
            yield NearMiss(_relaxed(parsed, found, bound, relation, found.wrapped), asked, text)


def _way(found: Comparison, actual: str) -> float:
    """By which part of it an amount misses a threshold; 0 or less if it does not. A version is no amount."""
    sign = 1 if found.relation in (">=", ">") else -1
    try:
        if found.wrapped == "quantity":
            wanted, there = Quantity.parse(str(found.value)).nano, Quantity.parse(actual).nano
        elif isinstance(found.value, int) and not isinstance(found.value, bool):
            wanted, there = found.value, int(actual)
        else:
            return 0
    except (QuantityError, ValueError):
        return 0
    return sign * (wanted - there) / abs(wanted) if wanted else 0


def _in_unit_of(found: Comparison, actual: str) -> str:
    """A threshold, also in the unit of a value: `80Gi (81920Mi)`."""
    asked = str(found.value)
    unit = _UNIT.search(actual)
    if found.wrapped != "quantity" or unit is None or asked.endswith(unit[0]):
        return asked
    amount, size = Quantity.parse(asked).nano, Quantity.parse(f"1{unit[0]}").nano
    return f"{asked} ({amount // size}{unit[0]})" if amount % size == 0 else asked


def _round(found: Comparison, actual: str, others: Sequence[str]) -> str:
    """A lower bound for an amount that is a whole number of the threshold's unit: 79Gi for 81559Mi. It is the amount itself if that would
    be much less, or if it lets in others."""
    asked, unit = str(found.value), _UNIT.search(str(found.value))
    if found.wrapped != "quantity" or unit is None or not asked.removesuffix(unit[0]).isdecimal():
        return actual
    size, amount = Quantity.parse(f"1{unit[0]}").nano, Quantity.parse(actual).nano
    whole = amount // size
    lower = [each for each in others if whole * size <= Quantity.parse(each).nano < amount]
    is_near = amount - whole * size <= amount * _ROUNDED_MAX
    return f"{whole}{unit[0]}" if whole and is_near and not lower and amount % size else actual


def _relaxed(parsed: Parsed, found: Comparison, text: str, relation: str, wrapper: str) -> Rewrite:
    read = unparse(found.read, parsed)
    if wrapper:
        new = f"{read}.compareTo({wrapper}({quoted(text)})) {relation} 0"
    else:
        new = f"{read} {relation} {text}"
    word = {">=": "at least", "<=": "at most", "==": "exactly"}[relation]
    problem = ""
    if found.relation == "==":
        problem = f"asks for {found.place.name} of exactly {found.value}, which no device has (the nearest has {text})"
    return Rewrite(
        expression=_with(parsed, found.node, new),
        text=f"ask for {found.place.name} of {word} {text}",
        problem=problem,
        rank=Rank.FIX if problem else Rank.RELAX,
    )


def _other_values(parsed: Parsed, published: Published) -> Iterator[Rewrite]:
    """Another value that devices have, if those with the requested one do not fit; next smaller ones first."""
    for found in comparisons(parsed.root):
        values = published.values(found.place)
        if found.relation != "==" or found.wrapped or found.value not in values or set(values.values()) != {"string"}:
            continue
        value = str(found.value)
        texts = sorted({str(each) for each in values} - {value}, key=_natural)
        below = [text for text in texts if _natural(text) < _natural(value)]
        above = [text for text in texts if _natural(text) > _natural(value)]
        for text in [*reversed(below), *above][:_OTHER_VALUES_MAX]:
            new = f"{_bare(found, parsed)} == {quoted(text)}"
            yield Rewrite(
                expression=_with(parsed, found.node, new),
                text=f"ask for {found.place.name} {quoted(text)} instead of {quoted(value)}",
                rank=Rank.DROP,
            )


def _natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts `2g` before `10g`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def _without_parts(parsed: Parsed) -> Iterator[Rewrite]:
    """Conditions left out, one at a time."""
    parts: list[Expr] = []
    pending = [parsed.root]
    while pending:
        node = pending.pop()
        if isinstance(node, Call) and node.function == "_&&_":
            pending.extend(reversed(node.args))
        else:
            parts.append(node)
    if len(parts) < 2:
        return
    for part in parts:
        rest = [other for other in parts if other is not part]
        texts = [unparse(other, parsed) for other in rest]
        texts = [
            f"({text})" if isinstance(o, Call) and o.function in ("_||_", "_?_:_") else text
            for text, o in zip(texts, rest, strict=True)
        ]
        yield Rewrite(expression=" && ".join(texts), text=f"drop {unparse(part, parsed)}", rank=Rank.DROP)
