"""Evaluates selectors on the known devices: an expression that fails on one device makes the scheduler skip its node.

The order is the scheduler's: the selectors of the class, then those of the request, until one is false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from allot.core.advice.lint.claims import CLASS, GROUP, claims, class_selectors
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.expressions import Read, read_expression
from allot.core.advice.lint.selectors import compile_problem, is_known
from allot.core.advice.lint.source import Subject
from allot.core.advice.places import Path
from allot.core.cel.device import DeviceView
from allot.core.cel.selector import CompiledSelector, EvaluationError, compile_selector

_NO_SUCH_KEY = re.compile(r"no such key: ([^\s.,]+)")
_DEVICES_SHOWN_MAX = 3


class _Step(msgspec.Struct, frozen=True):
    """One selector of the sequence; without a path it is not in the input."""

    selector: CompiledSelector
    path: Path | None


def check(context: Context) -> None:
    """Every class, and every request with a known class."""
    if not context.knowledge.has_devices:
        return
    for subject in context.subjects:
        if id(subject) in context.refused or subject.group != GROUP:
            continue
        if subject.kind == CLASS:
            steps = _compiled((each.expression, each.path) for each in class_selectors(subject))
            if steps is not None:
                _try_out(context, subject, steps)
        for claim in claims(subject):
            for request in claim.requests:
                for leaf in request.leaves:
                    before = _class_steps(context, leaf.device_class)
                    own = _compiled((each.expression, each.path) for each in leaf.selectors)
                    if before is not None and own:
                        _try_out(context, subject, [*before, *own])


def _class_steps(context: Context, name: str) -> list[_Step] | None:
    subject = context.named(CLASS).get(name)
    if subject is not None:
        return _compiled((each.expression, None) for each in class_selectors(subject))
    known = context.knowledge.classes.get(name)
    if known is None:
        return None
    return _compiled((each.cel.expression, None) for each in known.spec.selectors if each.cel is not None)


def _compiled(selectors: Iterator[tuple[str, Path | None]]) -> list[_Step] | None:
    steps = []
    for expression, path in selectors:
        if compile_problem(expression) is not None:
            return None
        steps.append(_Step(compile_selector(expression), path))
    return steps


def _try_out(context: Context, subject: Subject, steps: Sequence[_Step]) -> None:
    failures: dict[tuple[Path, str], list[str]] = {}
    for device in context.knowledge.devices:
        failed = _first_failure(steps, device.view)
        if failed is not None and failed[0].path is not None:
            failures.setdefault((failed[0].path, failed[1]), []).append(device.name)
    for (path, error), devices in failures.items():
        _report(context, subject, path, error, devices)


def _first_failure(steps: Sequence[_Step], view: DeviceView) -> tuple[_Step, str] | None:
    for step in steps:
        try:
            if not step.selector.matches(view):
                return None
        except EvaluationError as error:
            return step, error.message
    return None


def _report(context: Context, subject: Subject, path: Path, error: str, devices: list[str]) -> None:
    more = f" and {len(devices) - _DEVICES_SHOWN_MAX} more" if len(devices) > _DEVICES_SHOWN_MAX else ""
    where = f"{', '.join(devices[:_DEVICES_SHOWN_MAX])}{more}"
    match = _NO_SUCH_KEY.search(error)
    if match is None:
        text = f"fails on {where}: {error}; the scheduler skips nodes with such a device"
        context.report(subject, "selector-error", path, text)
        return
    read = _read_of(subject.at(path), match[1])
    if read is not None and read.domain and not is_known(context, read.kind, read.domain, read.name):
        # `selectors` reports that no device has it.
        return
    text = f'fails on {where}, which lack "{match[1]}"; the scheduler skips nodes with such a device'
    context.report(subject, "missing-attribute", path, text, _guarded(read) if read is not None else None)


def _read_of(expression: str, name: str) -> Read | None:
    reading = read_expression(expression)
    found = (read for read in (reading.reads if reading is not None else ()) if read.name == name)
    return next((read for read in found if not read.is_optional), None)


def _guarded(read: Read) -> str:
    """The guard that checks for presence."""
    domain = f'"{read.domain}"' if read.domain else "device.driver"
    return f"check first: has(device.{read.kind}[{domain}].{read.name}) && ..."
