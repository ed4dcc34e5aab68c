"""Comparisons that compile but do not do what they seem to: sizes and versions as text, capacities for equality."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from allot.core.advice.convert.drivers import Type, driver_named
from allot.core.advice.convert.expressions import version_text
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.expressions import ATTRIBUTES, CAPACITY, IN, Comparison, read_expression
from allot.core.advice.lint.finding import Fix, Severity
from allot.core.advice.lint.selectors import Located, compile_problem, expression_fix, located, right_expression
from allot.core.advice.lint.text_values import span_of
from allot.core.advice.nearest import listed, nearest
from allot.core.cel.device import DeviceView
from allot.core.cel.selector import EvaluationError, compile_selector
from allot.core.quantity import Quantity, QuantityError
from allot.core.semver import Semver

_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBER = re.compile(r"[0-9]+")
_EXAMPLE_SIZES = (8, 141, 24, 9, 80, 40, 192, 16, 4, 2, 1, 1000)
_EXAMPLE_VERSIONS = ("9.0", "12.4", "10.0", "7.5", "8.9", "100.0", "2.0")
_DEVICES_SHOWN_MAX = 3
# How much of a known value a partial match must cover, in letters and digits.
_PART_LENGTH_MIN = 4
# How similar to a known value a misspelling must be.
_SLIP = 0.85


def check(context: Context) -> None:
    """Every comparison in every selector that compiles."""
    for selector in located(context):
        reading = read_expression(selector.expression)
        if reading is None or compile_problem(selector.expression) is not None:
            continue
        for comparison in reading.comparisons:
            _check_comparison(context, selector, comparison)


def _check_comparison(context: Context, selector: Located, comparison: Comparison) -> None:
    if comparison.read.kind == CAPACITY and comparison.relation == "==":
        _check_equality(context, selector, comparison)
    if comparison.read.kind == ATTRIBUTES and comparison.relation in ("==", IN):
        _check_value(context, selector, comparison)
    what = comparison.orders_text
    if not what:
        return
    kind = _kind_of(context, selector, comparison)
    # 8.0 is also a number: its meaning depends on the other side of the comparison.
    if kind in ("version", "quantity"):
        what = "version" if kind == "version" else "size"
    _report(context, selector, comparison, kind, what)


def _kind_of(context: Context, selector: Located, comparison: Comparison) -> str:
    """The known kind of the attribute's values; `quantity` if there is a capacity of that name instead."""
    read = comparison.read
    domain = read.domain or selector.driver or ""
    words = context.knowledge.words
    if read.name in words.of(ATTRIBUTES, domain):
        return words.of(ATTRIBUTES, domain)[read.name]
    driver = driver_named(domain)
    if read.name in words.of(CAPACITY, domain) or read.name in driver.capacities:
        return "quantity"
    known = driver.attributes.get(read.name)
    return known.value if known is not None and known is not Type.QUANTITY else ""


# --- text ---


def _report(context: Context, selector: Located, comparison: Comparison, kind: str, what: str) -> None:
    right = _right(selector, comparison, kind, what)
    parts = [f"{comparison.text} compares text, not {what}s: {_examples(comparison, what)}"]
    if kind == "quantity":
        parts.append(f"{comparison.read.name} is a capacity of {comparison.read.domain}")
    elif kind in ("version", "int"):
        parts.append(
            f"{comparison.read.name} is {'a version' if kind == 'version' else 'a number'}, so the comparison fails"
        )
    changed = _changed_sides(context, selector, right)
    if changed:
        parts.append(changed)
    context.report(
        selector.subject, f"text-compared-as-{what}", selector.path, "; ".join(parts), _fix(selector, right, kind)
    )


def _right(selector: Located, comparison: Comparison, kind: str, what: str) -> str | None:
    """The whole expression as it should be."""
    right = right_expression(selector) if kind != "string" else None
    return right or _by_conversion(selector, comparison, kind, what)


def _by_conversion(selector: Located, comparison: Comparison, kind: str, what: str) -> str | None:
    """With the value that is read converted to its intended kind, if the comparison occurs once."""
    text, literal = comparison.text, comparison.literal
    assert isinstance(literal, str)
    left, relation, quoted = text.rpartition(f" {comparison.relation} ")
    span = span_of(text, selector.expression)
    if span is None or quoted[1:-1] != literal or not relation:
        return None
    if what == "version":
        version = version_text(literal)
        function = left if kind == "version" else f"semver({left}, true)"
        new = f'{function}.compareTo(semver("{version}")) {comparison.relation} 0' if version else None
    elif kind == "int":
        new = f"{left} {comparison.relation} {literal}" if _NUMBER.fullmatch(literal) else None
    else:
        new = (
            f'quantity({left}).compareTo(quantity("{literal}")) {comparison.relation} 0' if _quantity(literal) else None
        )
    expression = selector.expression
    right = f"{expression[: span[0]]}{new}{expression[span[1] :]}" if new is not None else None
    return right if right is not None and compile_problem(right) is None else None


def _fix(selector: Located, right: str | None, kind: str) -> Fix | None:
    # An unknown attribute may be text after all.
    is_safe = kind in ("quantity", "version", "int")
    return expression_fix(selector, right, is_safe=is_safe) if right is not None else None


def _examples(comparison: Comparison, what: str) -> str:
    """One value that wrongly passes, and one that wrongly fails."""
    literal = comparison.literal
    assert isinstance(literal, str)
    compare = _ORDERED[comparison.relation]
    wrong: dict[bool, str] = {}
    for value, truth in _example_values(literal, what):
        as_text, as_meant = compare(value, literal), compare(truth, 0)
        if as_text != as_meant:
            wrong.setdefault(as_text, value)
    said = [
        f'"{value}" {comparison.relation} "{literal}" is {"true" if passes else "false"}'
        for passes, value in sorted(wrong.items(), reverse=True)
    ]
    return " and ".join(said) or "the order is alphabetical"


def _example_values(literal: str, what: str) -> list[tuple[str, int]]:
    """Values with their order relative to the literal: negative, 0 or positive."""
    if what == "version":
        meant = version_text(literal)
        if meant is None:
            return []
        return [(example, Semver.parse(f"{example}.0").compare(Semver.parse(meant))) for example in _EXAMPLE_VERSIONS]
    unit = literal.lstrip("0123456789.")
    own = _quantity(literal.removesuffix("B"))
    if own is None:
        return []
    examples = [(f"{number}{unit}", _quantity(f"{number}{unit.removesuffix('B')}")) for number in _EXAMPLE_SIZES]
    return [(text, (value > own) - (value < own)) for text, value in examples if value is not None]


def _quantity(text: str) -> Quantity | None:
    try:
        return Quantity.parse(text)
    except QuantityError:
        return None


# --- devices ---


def _changed_sides(context: Context, selector: Located, right: str | None) -> str:
    """Which known devices the right expression would treat differently."""
    if right is None or compile_problem(right) is not None or not context.knowledge.has_devices:
        return ""
    wrongly_in: list[str] = []
    wrongly_out: list[str] = []
    for device in context.knowledge.devices:
        before, after = _matches(selector.expression, device.view), _matches(right, device.view)
        if after is True and before is not True:
            wrongly_out.append(device.name)
        elif after is False and before is True:
            wrongly_in.append(device.name)
    said = []
    if wrongly_out:
        said.append(f"excluded although they fit: {_shown(wrongly_out)}")
    if wrongly_in:
        said.append(f"selected although they do not fit: {_shown(wrongly_in)}")
    return "; ".join(said)


def _matches(expression: str, view: DeviceView) -> bool | None:
    try:
        return compile_selector(expression).matches(view)
    except EvaluationError:
        return None


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _DEVICES_SHOWN_MAX} more" if len(names) > _DEVICES_SHOWN_MAX else ""
    return ", ".join(names[:_DEVICES_SHOWN_MAX]) + more


# --- equality ---


def _known_values(context: Context, selector: Located, comparison: Comparison) -> Iterator[object]:
    """The values of known devices at the compared place."""
    read = comparison.read
    domain = read.domain or selector.driver or ""
    for device in context.knowledge.devices:
        found = device.view.attributes if read.kind == ATTRIBUTES else device.view.capacity
        value = found.get(domain, {}).get(read.name)
        if value is not None:
            yield value


def _check_value(context: Context, selector: Located, comparison: Comparison) -> None:
    """A value that no known device has but that resembles one that some have."""
    wanted = comparison.literal
    values = {value for value in _known_values(context, selector, comparison) if isinstance(value, str)}
    if not isinstance(wanted, str) or wanted in values:
        return
    meant = nearest(wanted, values, likeness_min=_SLIP) or _only_one_like(wanted, values)
    is_one_of_several = comparison.relation == IN or "firstAvailable" in selector.path
    if meant is None and (not context.knowledge.is_cluster or not values or is_one_of_several):
        # Hardware profiles are examples: other devices may have it. One of several alternatives need not exist.
        return
    text = f'no known device has {comparison.read.name} "{wanted}"'
    fix = f'did you mean "{meant}"?' if meant is not None else f"there is {listed(values)}"
    context.report(selector.subject, "unknown-value", selector.path, text, fix)


def _only_one_like(wanted: str, values: Iterable[str]) -> str | None:
    """The only value that contains this one, whatever separates the words: `NVIDIA-H100` in `NVIDIA H100 80GB HBM3`."""
    part = _letters(wanted)
    found = [value for value in values if part in _letters(value)] if len(part) >= _PART_LENGTH_MIN else []
    return found[0] if len(found) == 1 else None


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


def _check_equality(context: Context, selector: Located, comparison: Comparison) -> None:
    wanted = _quantity(str(comparison.literal))
    if wanted is None or not comparison.is_quantity:
        return
    values = {str(value) for value in _known_values(context, selector, comparison)}
    if any(_quantity(value) == wanted for value in values):
        return
    found = f"; known devices have {', '.join(sorted(values)[:_DEVICES_SHOWN_MAX])}" if values else ""
    text = f"{comparison.text} matches only devices with exactly this value, but cards of one model differ{found}"
    new = comparison.text.replace(
        f" == quantity({_literal_text(comparison)})", f".compareTo(quantity({_literal_text(comparison)})) >= 0"
    )
    fix = f"for at least this value, write {new}" if new != comparison.text else None
    severity = Severity.WARNING if values else None
    context.report(selector.subject, "capacity-equality", selector.path, text, fix, severity=severity)


def _literal_text(comparison: Comparison) -> str:
    quote = '"' if f'quantity("{comparison.literal}")' in comparison.text else "'"
    return f"{quote}{comparison.literal}{quote}"
