"""The status of a ComputeClass: whether it matches the pools, and for each priority why no nodes can be added.

Types, reasons and messages are those of GKE, as far as they have been published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.autoscaling.classes import Classes, ClassProblem
from allot.core.autoscaling.pools import Pool
from allot.core.model.compute_classes import SCALE_UP_ANYWAY

Object = dict[str, Any]

_CLASS_WRONG, _POOL_WRONG, _RULE_WRONG = "CrdMisconfigured", "NodepoolMisconfigured", "RuleMisconfigured"
_TYPES = {"CrdLabelNotMatching": _POOL_WRONG, "NoRuleMatching": _RULE_WRONG}


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a pool besides its price. coming: requested nodes; error, until: why it is in backoff, and how long."""

    pool: Pool
    coming: int = 0
    error: str = ""
    until: str = ""


def class_status(
    name: str,
    classes: Classes,
    states: Sequence[PoolState],
    hint: Mapping[ClassProblem, str],
    before: Mapping[str, Any],
    now: str,
) -> Object:
    """The status of an existing class. hint: a suggestion for a name; before: its current status; now: the time of changes."""
    found = classes.by_name[name]
    old = {
        (identifier, each.get("type"), each.get("reason")): each
        for identifier, conditions in _all_conditions(before)
        for each in conditions
    }

    def dated(identifier: str, conditions: Iterable[Object]) -> list[Object]:
        made = []
        for each in conditions:
            known = old.get((identifier, each["type"], each["reason"]), {})
            since = known.get("lastTransitionTime", now) if known.get("status") == each["status"] else now
            made.append({**each, "lastTransitionTime": since, "observedGeneration": found.metadata.generation})
        return made

    problems = list(hint)
    statuses = []
    last = (SCALE_UP_ANYWAY,) if found.spec.when_unsatisfiable == SCALE_UP_ANYWAY else ()
    for identifier in (*map(str, range(len(found.spec.priorities))), *last):
        index = int(identifier) if identifier.isdigit() else None
        own = [each for each in states if _is_of(each.pool, name, index)]
        wrong = [each for each in problems if index is not None and each.index == index]
        conditions = [*_misconfigured(wrong, hint), *_provisioning(own)]
        statuses.append({"identifier": identifier, "conditions": dated(identifier, conditions)})
    return {
        "conditions": dated("", [_health(not problems), *_misconfigured(problems, hint)]),
        "priorityStatuses": statuses,
    }


def _all_conditions(status: Mapping[str, Any]) -> Iterable[tuple[str, Sequence[Mapping[str, Any]]]]:
    yield "", status.get("conditions") or ()
    for each in status.get("priorityStatuses") or ():
        yield each.get("identifier", ""), each.get("conditions") or ()


def _is_of(pool: Pool, name: str, index: int | None) -> bool:
    standing = pool.standing
    return standing is not None and standing.compute_class == name and standing.index == index and not pool.barred


def _condition(type_: str, reason: str, message: str, *, is_true: bool = True) -> Object:
    return {"type": type_, "status": "True" if is_true else "False", "reason": reason, "message": message}


def _health(is_healthy: bool) -> Object:
    message = "Crd is healthy." if is_healthy else "Crd is not healthy."
    return _condition("Health", "Health", message, is_true=is_healthy)


def _misconfigured(problems: Sequence[ClassProblem], hint: Mapping[ClassProblem, str]) -> list[Object]:
    """One condition for each reason, with all its problems."""
    texts: dict[tuple[str, str], list[str]] = {}
    for each in problems:
        key = (_TYPES.get(each.reason, _CLASS_WRONG), each.reason)
        texts.setdefault(key, []).append(f"{each.text} {hint[each]}".strip())
    return [_condition(type_, reason, " ".join(found)) for (type_, reason), found in texts.items()]


def _provisioning(states: Sequence[PoolState]) -> list[Object]:
    found = []
    closed = [each for each in states if each.pool.closed]
    if closed and len(closed) == len(states):
        until = max(each.until for each in closed)
        reason = closed[0].error or "OtherErrors"
        message = (
            f"NodeProvisioning associated with this priority failed due to the {reason} error. "
            f"Backing off the priority until {until}."
        )
        found.append(_condition("ProvisioningSuspended", reason, message))
    elif closed:
        reason = closed[0].error or "OtherErrors"
        message = (
            f"NodeProvisioning of the node pools associated with this priority failed due to the {reason} error. "
            f"In backoff until {max(each.until for each in closed)}."
        )
        found.append(_condition("ProvisioningConstrained", reason, message))
    coming = [each for each in states if each.coming]
    if coming:
        count = sum(each.coming for each in coming)
        pools = ", ".join(each.pool.name for each in coming)
        message = f"{count} new nodes will be added with config: {{NodePool: {pools}}}"
        found.append(_condition("NodeProvisioningInProgress", "PodPending", message))
    return found
