"""Selectors: whether they compile, and whether what they read exists.

Suggested expressions come from `core.advice.convert.expressions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from allot.core.advice.convert.changes import Confidence
from allot.core.advice.convert.drivers import DRIVERS, driver_named, driver_of_class
from allot.core.advice.convert.expressions import Translated, translate
from allot.core.advice.lint.claims import CLASS, GROUP, Selector, claims, class_selectors
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.expressions import ATTRIBUTES, CAPACITY, Read, Reading, read_expression
from allot.core.advice.lint.finding import Edit, Fix
from allot.core.advice.lint.knowledge import STANDARD_ATTRIBUTES, STANDARD_DOMAIN, Words
from allot.core.advice.lint.source import Subject
from allot.core.advice.nearest import did_you_mean, listed, nearest
from allot.core.advice.places import Path
from allot.core.advice.typography import has_typographic_quotes, with_plain_quotes
from allot.core.cel.selector import SelectorCompileError, compile_selector

_CEL_PLACE = re.compile(r"<input>:(\d+):(\d+)")
_DRIVER_NAMES = frozenset(driver.name for driver in DRIVERS)
# How similar to a well-known name a misspelling must be if no devices are known.
_SLIP = 0.88
_KINDS = {ATTRIBUTES: "attribute", CAPACITY: "capacity"}
_ARTICLES = {ATTRIBUTES: "an attribute", CAPACITY: "a capacity"}
_OTHER = {ATTRIBUTES: CAPACITY, CAPACITY: ATTRIBUTES}


class Located(msgspec.Struct, frozen=True):
    """A selector, its path, and the driver of its devices if known."""

    subject: Subject
    expression: str
    path: Path
    driver: str | None


def located(context: Context) -> Iterator[Located]:
    """Every selector of the input."""
    for subject in context.subjects:
        if subject.group == GROUP and subject.kind == CLASS:
            selectors = class_selectors(subject)
            driver = _driver(selectors)
            for selector in selectors:
                yield Located(subject, selector.expression, selector.path, driver)
        for claim in claims(subject):
            for request in claim.requests:
                for leaf in (request, *request.alternatives):
                    driver = driver_of(context, leaf.device_class)
                    for selector in leaf.selectors:
                        yield Located(subject, selector.expression, selector.path, driver)


def driver_of(context: Context, class_name: str) -> str | None:
    """The driver of a class's devices, if the class names it."""
    subject = context.named(CLASS).get(class_name)
    if subject is not None:
        return _driver(class_selectors(subject))
    known = context.knowledge.classes.get(class_name)
    if known is not None:
        return _driver([Selector(each.cel.expression, ()) for each in known.spec.selectors if each.cel is not None])
    table = driver_of_class(class_name)
    return table.name if table is not None else None


def _driver(selectors: tuple[Selector, ...] | list[Selector]) -> str | None:
    for selector in selectors:
        reading = read_expression(selector.expression)
        if reading is not None and len(reading.drivers) == 1:
            return reading.drivers[0]
    return None


def check(context: Context) -> None:
    """Every selector of the input."""
    for selector in located(context):
        problem = compile_problem(selector.expression)
        if problem is not None:
            _report_problem(context, selector, problem)
            continue
        reading = read_expression(selector.expression)
        if reading is not None:
            _check_names(context, selector, reading)


def compile_problem(expression: str) -> str | None:
    """The compiler's error; None if there is none."""
    try:
        compile_selector(expression)
    except SelectorCompileError as error:
        return error.message
    return None


# --- what does not compile ---


def _report_problem(context: Context, selector: Located, problem: str) -> None:
    subject, path = selector.subject, selector.path
    if has_typographic_quotes(selector.expression) and compile_problem(with_plain_quotes(selector.expression)) is None:
        text = "typographic quotes are not quotes in an expression"
        context.report(subject, "typographic-character", path, text, _quotes_fix(subject, path))
        return
    match = _CEL_PLACE.search(problem)
    line = _line_in(subject, path, int(match[1])) if match is not None else None
    context.report(subject, "cel-error", path, problem, right_fix(selector), line=line)


def _quotes_fix(subject: Subject, path: Path) -> Fix:
    place = subject.exact_place(path)
    raw = subject.source.text[slice(*place.value)] if place is not None else ""
    # Inside double quotes, the expression uses single quotes.
    right = raw if not raw else with_plain_quotes(raw).replace('"', "'") if raw[:1] == '"' else with_plain_quotes(raw)
    edits: tuple[Edit, ...] = ()
    if place is not None and raw[:1] != "'":
        edits = tuple(
            Edit(place.value[0] + index, place.value[0] + index + 1, right[index])
            for index, character in enumerate(raw)
            if has_typographic_quotes(character)
        )
    return Fix("write straight quotes", edits)


def right_expression(selector: Located) -> str | None:
    """What the expression should be, if that is known and different."""
    translated = _translated(selector)
    return translated.text if translated is not None else None


def right_fix(selector: Located) -> Fix | None:
    """The same as a fix. Replacing an expression that does not compile, or fails, is safe unless it is a guess."""
    translated = _translated(selector)
    if translated is None:
        return None
    is_safe = translated.confidence is not Confidence.GUESS
    return expression_fix(selector, translated.text, is_safe=is_safe)


def _translated(selector: Located) -> Translated | None:
    translated = translate(selector.expression, selector.driver)
    return None if translated.problems or translated.text == selector.expression else translated


def expression_fix(selector: Located, right: str, *, is_safe: bool) -> Fix:
    """Another expression instead."""
    old, new = selector.expression.strip(), right.strip()
    return Fix(f"write {new}", selector.subject.replacement(selector.path, old, new) if is_safe else ())


def _line_in(subject: Subject, path: Path, line: int) -> int | None:
    """The source line of a line in a multi-line value."""
    place = subject.exact_place(path)
    if place is None or subject.source.text[place.value[0]] != "|":
        return None
    return place.line + line


# --- what is read ---


def _check_names(context: Context, selector: Located, reading: Reading) -> None:
    for driver in reading.drivers:
        check_driver(context, selector.subject, selector.path, driver)
    # `comparisons` reports problems with these.
    ordered = {comparison.read for comparison in reading.comparisons if comparison.orders_text}
    for read in reading.reads:
        _check_read(context, selector, read, told=read in ordered)


def check_driver(context: Context, subject: Subject, path: Path, driver: str) -> None:
    """A name of a driver."""
    known = context.knowledge.drivers
    if driver in known or (not known and driver in _DRIVER_NAMES):
        return
    if known:
        text = f'no known device has driver "{driver}"'
        context.report(subject, "unknown-driver", path, text, did_you_mean(driver, known))
        return
    meant = nearest(driver, _DRIVER_NAMES, likeness_min=_SLIP)
    if meant is not None:
        context.report(subject, "unknown-driver", path, f'driver "{driver}" is unknown', f'did you mean "{meant}"?')


def _check_read(context: Context, selector: Located, read: Read, *, told: bool) -> None:
    domain = read.domain or selector.driver
    if domain is None or (domain == STANDARD_DOMAIN and read.name in STANDARD_ATTRIBUTES):
        return
    if "." not in domain:
        _report_missing_domain(context, selector, read)
        return
    known = context.knowledge.words
    if not context.knowledge.has_devices:
        _check_by_table(context, selector, read, domain, told=told)
    elif domain not in known.domains:
        text = f'no known device has attributes or capacities of "{domain}"'
        context.report(selector.subject, "unknown-domain", selector.path, text, did_you_mean(domain, known.domains))
    elif not is_known(context, read.kind, domain, read.name):
        _report_unknown(context, selector, read, domain, known, told=told)


def is_known(context: Context, kind: str, domain: str, name: str) -> bool:
    """Whether known devices have an attribute or capacity or, if they are only examples, could have it."""
    if name in context.knowledge.words.of(kind, domain):
        return True
    driver = driver_named(domain)
    return not context.knowledge.is_cluster and name in (driver.attributes if kind == ATTRIBUTES else driver.capacities)


def _report_missing_domain(context: Context, selector: Located, read: Read) -> None:
    text = f'"{read.domain}" is not a domain: {read.kind} of a device are looked up by domain, then by name'
    example = f'device.{read.kind}["{selector.driver or "driver.example.com"}"].{read.domain}'
    context.report(selector.subject, "missing-domain", selector.path, text, f"write {example}")


def _report_unknown(context: Context, selector: Located, read: Read, domain: str, known: Words, *, told: bool) -> None:
    rule = f"unknown-{_KINDS[read.kind]}"
    if read.name in known.of(_OTHER[read.kind], domain):
        if not told:
            _report_other_kind(context, selector, read, domain)
        return
    names = known.of(read.kind, domain)
    text = f'no known device has {_KINDS[read.kind]} "{read.name}" of {domain}'
    context.report(selector.subject, rule, selector.path, text, did_you_mean(read.name, names))


def _report_other_kind(context: Context, selector: Located, read: Read, domain: str) -> None:
    text = f"{read.name} is {_ARTICLES[_OTHER[read.kind]]} of {domain}, not {_ARTICLES[read.kind]}"
    rule = f"unknown-{_KINDS[read.kind]}"
    context.report(selector.subject, rule, selector.path, text, right_fix(selector))


def _check_by_table(context: Context, selector: Located, read: Read, domain: str, *, told: bool) -> None:
    """Without devices: well-known names of the driver. It may have more, so only likely misspellings are reported."""
    driver = driver_named(domain)
    kinds = {ATTRIBUTES: tuple(driver.attributes), CAPACITY: driver.capacities}
    if read.name in kinds[read.kind]:
        return
    rule = f"unknown-{_KINDS[read.kind]}"
    if read.name in kinds[_OTHER[read.kind]]:
        if not told:
            _report_other_kind(context, selector, read, domain)
        return
    meant = nearest(read.name, kinds[read.kind], likeness_min=_SLIP)
    if meant is not None:
        text = (
            f'driver {domain} has no {_KINDS[read.kind]} "{read.name}", as far as is known: {listed(kinds[read.kind])}'
        )
        context.report(selector.subject, rule, selector.path, text, f'did you mean "{meant}"?')
