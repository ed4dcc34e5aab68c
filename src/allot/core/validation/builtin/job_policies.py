"""When pods of a job count as failed, and when the job has succeeded: its policies, and lists of its indexes."""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.validation import formats
from allot.core.validation.builtin.checks import one_of, told
from allot.core.validation.builtin.values import Object, given, items, members, number, text
from allot.core.validation.fields import (
    Findings,
    byte_length,
    child,
    duplicate,
    index,
    invalid,
    invalid_whole,
    not_supported,
    quote,
    required,
    too_long,
    too_many,
)

_RULES_MAX = 20
_EXIT_CODES_MAX = 255
_CONDITIONS_MAX = 20
_INDEXES_LENGTH_MAX = 64 * 1024
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_DIGITS_MAX = 18


# --- pods that fail ---


def check_failure_policy(spec: Object, path: str) -> Findings:
    """spec.podFailurePolicy of a job."""
    rules, where = items(spec, "podFailurePolicy", "rules"), child(path, "rules")
    found = [too_many(where, len(rules), _RULES_MAX)] if len(rules) > _RULES_MAX else []
    template = members(spec, "template", "spec")
    containers = {text(one, "name") for part in ("containers", "initContainers") for one in items(template, part)}
    for place, rule in enumerate(rules):
        found += _check_rule(rule, index(where, place), containers, given(spec, "backoffLimitPerIndex"))
    return found


def _check_rule(rule: Object, path: str, containers: set[str], is_per_index: bool) -> Findings:
    action, where = text(rule, "action"), child(path, "action")
    found: Findings = []
    if not action:
        found.append(required(where, f"valid values: {_listed(_ACTIONS)}"))
    elif action == "FailIndex" and not is_per_index:
        found.append(invalid(where, action, "requires the backoffLimitPerIndex to be set"))
    elif action not in _ACTIONS:
        found.append(not_supported(where, action, _ACTIONS))
    has_codes, conditions = given(rule, "onExitCodes"), items(rule, "onPodConditions")
    if has_codes:
        found += _check_exit_codes(members(rule, "onExitCodes"), child(path, "onExitCodes"), containers)
    if conditions:
        found += _check_conditions(conditions, child(path, "onPodConditions"))
    if has_codes and conditions:
        found.append(invalid_whole(path, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if not has_codes and not conditions:
        found.append(invalid_whole(path, "specifying one of OnExitCodes and OnPodConditions is required"))
    return found


def _check_conditions(conditions: list[Object], path: str) -> Findings:
    found = [too_many(path, len(conditions), _CONDITIONS_MAX)] if len(conditions) > _CONDITIONS_MAX else []
    for place, pattern in enumerate(conditions):
        where, type_ = index(path, place), text(pattern, "type")
        found += told(child(where, "type"), type_, formats.label_key(type_))
        if not text(pattern, "status"):
            found.append(required(child(where, "status"), f"valid values: {_listed(_STATUSES)}"))
        else:
            found += one_of(pattern, "status", _STATUSES, where)
    return found


def _check_exit_codes(requirement: Object, path: str, containers: set[str]) -> Findings:
    operator, where = text(requirement, "operator"), child(path, "values")
    found: Findings = []
    if not operator:
        found.append(required(child(path, "operator"), f"valid values: {_listed(_OPERATORS)}"))
    else:
        found += one_of(requirement, "operator", _OPERATORS, path)
    name = requirement.get("containerName")
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        found.append(invalid(child(path, "containerName"), name, detail))
    listed = requirement.get("values")
    codes = [code for code in listed if isinstance(code, int)] if isinstance(listed, list) else []
    if not codes:
        found.append(invalid(where, listed, "at least one value is required"))
    elif len(codes) > _EXIT_CODES_MAX:
        found.append(too_many(where, len(codes), _EXIT_CODES_MAX))
    seen: set[int] = set()
    for place, code in enumerate(codes):
        if operator == "In" and code == 0:
            found.append(invalid(index(where, place), code, "must not be 0 for the In operator"))
        if code in seen:
            found.append(duplicate(index(where, place), code))
        seen.add(code)
    if codes != sorted(codes):
        found.append(invalid(where, codes, "must be ordered"))
    return found


def _listed(values: tuple[str, ...]) -> str:
    return f"[{' '.join(quote(value) for value in values)}]"


# --- jobs that succeed ---


def check_success_policy(spec: Object, path: str) -> Findings:
    """spec.successPolicy of an indexed job."""
    rules, where = items(spec, "successPolicy", "rules"), child(path, "rules")
    found: Findings = []
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        found.append(required(where, detail))
    if len(rules) > _RULES_MAX:
        found.append(too_many(where, len(rules), _RULES_MAX))
    for place, rule in enumerate(rules):
        found += _check_success_rule(rule, number(spec, "completions") or 0, index(where, place))
    return found


def _check_success_rule(rule: Object, completions: int, path: str) -> Findings:
    indexes, count, where = rule.get("succeededIndexes"), number(rule, "succeededCount"), child(path, "succeededCount")
    found: Findings = []
    if indexes is None and count is None:
        found.append(required(path, "at least one of succeededCount or succeededIndexes must be specified"))
    total = 0
    if isinstance(indexes, str):
        field = child(path, "succeededIndexes")
        if byte_length(indexes) > _INDEXES_LENGTH_MAX:
            found.append(too_long(field, _INDEXES_LENGTH_MAX))
        total, problem = indexes_problem(indexes, completions)
        if problem:
            found.append(invalid(field, indexes, f"error parsing succeededIndexes: {problem}"))
    if count is None:
        return found
    if count < 0:
        found.append(invalid(where, count, "must be greater than or equal to 0"))
    if count > completions:
        detail = f"must be less than or equal to {completions} (the number of specified completions)"
        found.append(invalid(where, count, detail))
    if indexes is not None and count > total:
        named = "the number of indexes in the specified succeededIndexes field"
        found.append(invalid(where, count, f"must be less than or equal to {total} ({named})"))
    return found


# --- indexes ---


def indexes_problem(indexes: str, completions: int) -> tuple[int, str]:
    """How many indexes a text names, and what is wrong with it; empty if valid."""
    total, last = 0, -1
    for first, end, problem in _intervals(indexes, completions):
        if problem:
            return 0, problem
        if last >= first:
            return 0, f"non-increasing order, previous: {last}, current: {first}"
        total += end - first + 1
        last = end
    return total, ""


def overlap(completed: str, failed: str, completions: int) -> int | None:
    """The first index that both texts name; invalid parts are ignored."""
    theirs = [(first, end) for first, end, problem in _intervals(failed, completions) if not problem]
    place = 0
    for first, end, problem in _intervals(completed, completions):
        if problem:
            continue
        while place < len(theirs) and theirs[place][1] < first:
            place += 1
        if place < len(theirs) and theirs[place][0] <= end:
            return max(first, theirs[place][0])
    return None


def _intervals(indexes: str, completions: int) -> Iterator[tuple[int, int, str]]:
    for part in indexes.split(",") if indexes else ():
        yield _interval(part, completions)


def _interval(part: str, completions: int) -> tuple[int, int, str]:
    limits = part.split("-")
    if len(limits) > 2:
        rule = "violates the requirement that an index interval can have at most two parts separated by '-'"
        return 0, 0, f"the fragment {quote(part)} {rule}"
    ends: list[int] = []
    for limit in limits:
        digits = limit.removeprefix("+")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
            return 0, 0, f"cannot convert string to integer for index: {quote(limit)}"
        if int(digits) >= completions:
            return 0, 0, f"too large index: {quote(limit)}"
        ends.append(int(digits))
    if len(ends) == 2 and ends[0] >= ends[1]:
        return 0, 0, f"non-increasing order, previous: {ends[0]}, current: {ends[1]}"
    return ends[0], ends[-1], ""
