"""Cron schedules: whether a text is one. Five fields, or a name such as @daily, or @every with a duration."""

from __future__ import annotations

import re

_LENGTH_MAX = 500
_NAMES = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
# Lowest and highest value of each field, and the names that stand for numbers.
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_duration = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+").fullmatch


def schedule_problem(schedule: str) -> str:
    """What is wrong with a schedule; empty when nothing is."""
    text = schedule
    if text.startswith(("TZ=", "CRON_TZ=")):
        text = text.partition(" ")[2].strip()
    if not text:
        return "empty spec string"
    if len(text) > _LENGTH_MAX:
        return f"expected at most {_LENGTH_MAX} characters, found {len(text)}"
    if text.startswith("@every "):
        duration = text.removeprefix("@every ")
        return "" if _duration(duration) else f'failed to parse duration {text}: time: invalid duration "{duration}"'
    if text.startswith("@"):
        return "" if text in _NAMES else f"unrecognized descriptor: {text}"
    fields = text.split()
    if len(fields) != len(_FIELDS):
        shown = " ".join(fields)
        return f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{shown}]"
    for field, (low, high, names) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            problem = _part_problem(part, low, high, names)
            if problem:
                return problem
    return ""


def _part_problem(part: str, low: int, high: int, names: dict[str, int]) -> str:
    pieces = part.split("/")
    bounds = pieces[0].split("-")
    if len(pieces) > 2:
        return f"too many slashes: {part}"
    if len(bounds) > 2:
        return f"too many hyphens: {part}"
    if bounds[0] in ("*", "?"):
        if len(bounds) > 1:
            return f"failed to parse int from {bounds[0]}: expected a number"
        numbers = [low, high]
    else:
        numbers = []
        for bound in bounds:
            number = names.get(bound.lower()) if bound.lower() in names else _number(bound)
            if number is None:
                return f'failed to parse int from {bound}: strconv.Atoi: parsing "{bound}": invalid syntax'
            numbers.append(number)
    step = 1
    if len(pieces) == 2:
        parsed = _number(pieces[1])
        if parsed is None:
            return f'failed to parse int from {pieces[1]}: strconv.Atoi: parsing "{pieces[1]}": invalid syntax'
        step = parsed
        if len(numbers) == 1:
            numbers.append(high)
    start, end = numbers[0], numbers[-1]
    if start < low:
        return f"beginning of range ({start}) below minimum ({low}): {part}"
    if end > high:
        return f"end of range ({end}) above maximum ({high}): {part}"
    if start > end:
        return f"beginning of range ({start}) beyond end of range ({end}): {part}"
    return f"step of range should be a positive number: {part}" if step == 0 else ""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
