"""Causes related to devices: none exist, none fit, they are in use, or they cannot be combined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes import shut_out, unreached
from allot.core.advice.explain.causes.combining import combination_cause, switched_off
from allot.core.advice.explain.causes.obstacles import ON_DEVICES, all_taken, pool_cause, too_few, would_do_with_pool
from allot.core.advice.explain.causes.placing import POOL, SELECTING, Placing
from allot.core.advice.explain.causes.publishing import nothing_in_class, nothing_published
from allot.core.advice.explain.causes.selectors import ended_by_selector, is_met, selector_cause, selector_failure
from allot.core.advice.explain.devices import (
    Wanted,
)
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank
from allot.core.advice.explain.remedies import selectors
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import count
from allot.core.explain import Obstacle

_NUMBER = re.compile(r"[0-9]+")


def device_cause(placing: Placing) -> Diagnosis:
    """Why the nearest nodes cannot provide the devices."""
    if not placing.wanted:
        text = "; ".join(check.text for check in placing.checks[placing.nearest[0].name])
        return switched_off(placing.what_if, text) or Diagnosis(reason=Reason.NO_DEVICES, text=text)
    ended = ended_by_selector(placing)
    if ended is not None:
        return ended
    for wanted in placing.wanted:
        short = _short_of_resource(placing, wanted)
        if short is not None:
            return shut_out.overshadowing(placing, wanted, short)
    failing = [wanted for wanted in placing.wanted if not is_met(wanted)]
    for wanted in failing:
        if wanted.leaf.parent is None:
            return shut_out.overshadowing(placing, wanted, _request_cause(placing, wanted))
        alternatives = [each for each in placing.wanted if each.leaf.parent == wanted.leaf.parent]
        if all(each in failing for each in alternatives):
            return _no_alternative(placing, alternatives)
    return combination_cause(placing)


def _short_of_resource(placing: Placing, wanted: Wanted) -> Diagnosis | None:
    """More of an extended resource than any node has. Its containers have generated requests, which the user does not know."""
    resource = placing.resource_of(wanted)
    needed = placing.needed_of(resource)
    there = {name: each.in_class - each.count(*SELECTING, *POOL) for name, each in wanted.found.nodes.items()}
    best = max(there, key=lambda name: there[name], default="")
    if not resource or not best or not there[best] or needed <= there[best]:
        return None
    of = f" of class {wanted.class_name}" if wanted.class_name not in resource else ""
    text = f"it needs {needed} {resource} on one node, but no node has more than {count(there[best], 'device')}{of} (node {best})"
    most = {there[best], max(each.free for each in wanted.found.nodes.values())}
    candidates = selectors.fewer_of_resource(placing.pod, resource, most)
    return Diagnosis(reason=Reason.TOO_FEW, text=text, candidates=tuple(candidates))


def _no_alternative(placing: Placing, alternatives: Sequence[Wanted]) -> Diagnosis:
    causes = [_request_cause(placing, wanted) for wanted in alternatives]
    if len(causes) == 1:
        return causes[0]
    parts = [f"{wanted.leaf.name}: {cause.text}" for wanted, cause in zip(alternatives, causes, strict=True)]
    request = alternatives[0].leaf.parent
    text = f'none of the {len(parts)} alternatives of request "{request}" fits ({"; ".join(parts)})'
    # An alternative without devices is not a mistake as long as another alternative has some.
    served = any(cause.reason in ON_DEVICES.values() for cause in causes)
    # The others say how much less would do: to ask for less than that comes after holders that could leave.
    candidates = tuple(
        replace(candidate, rank=max(candidate.rank, Rank.DROP))
        if candidate.rank == Rank.FEWER
        or (served and cause.reason not in ON_DEVICES.values() and not _corrects(wanted, candidate))
        else candidate
        for wanted, cause in zip(alternatives, causes, strict=True)
        for candidate in cause.candidates
    )
    return Diagnosis(reason=Reason.NO_DEVICES, text=text, candidates=candidates)


def _corrects(wanted: Wanted, candidate: Candidate) -> bool:
    """Whether a change corrects a mistake in a selector of a request: it keeps all numbers, which say what kind of device is meant."""
    if candidate.rank != Rank.FIX or not candidate.expression:
        return False
    meant = [
        Counter(_NUMBER.findall(each.cel.expression)) for each in wanted.leaf.request.selectors if each.cel is not None
    ]
    return any(each <= Counter(_NUMBER.findall(candidate.expression)) for each in meant)


def _request_cause(placing: Placing, wanted: Wanted) -> Diagnosis:
    """Why one request alone cannot be met."""
    return unreached.beside(placing, wanted, _within_reach(placing, wanted))


def _within_reach(placing: Placing, wanted: Wanted) -> Diagnosis:
    """Why the devices that nodes reach do not meet a request."""
    found = wanted.found
    if not found.published:
        return nothing_published(placing, wanted)
    if not found.in_class:
        return nothing_in_class(placing, wanted)
    most = max((each.in_class - each.count(*SELECTING, *POOL) for each in found.nodes.values()), default=0)
    enough = most >= wanted.leaf.count and not wanted.leaf.all_devices
    if found.count(*POOL) and (not enough or would_do_with_pool(placing, wanted)):
        return pool_cause(placing, wanted)
    if not most:
        return selector_cause(placing, wanted) if found.count(Obstacle.SELECTOR) else selector_failure(placing, wanted)
    if not wanted.leaf.all_devices and most < wanted.leaf.count:
        return too_few(placing, wanted, most)
    return all_taken(placing, wanted)
