"""Causes in selectors: those of a class or a request that no device meets, or that fail."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes import shut_out, states
from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.devices import (
    Tally,
    Wanted,
    device_id,
)
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, place_of_claim
from allot.core.advice.explain.remedies import selectors
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.rewrites import Rewrite, rewrites, unknown_driver
from allot.core.advice.explain.wording import count
from allot.core.allocation.devices import DeviceEntry
from allot.core.explain import Obstacle, numbered
from allot.core.model import resource_v1 as api

_NO_KEY = "no such key"
# Of the reasons why devices do not fit, so many are named.
SENTENCES_MAX = 3


def ended_by_selector(placing: Placing) -> Diagnosis | None:
    """An attempt that ended with a selector's error on some device, whatever other nodes have."""
    if placing.failure.status is not None and placing.survey is not None:
        for wanted in placing.survey.wanted:
            if wanted.found.count(Obstacle.SELECTOR_ERROR):
                return selector_failure(placing, wanted)
    return None


def is_met(wanted: Wanted) -> bool:
    """Whether some node has enough for the request alone."""
    found = wanted.found.nodes.values()
    if wanted.leaf.all_devices:
        return any(each.in_class and each.free == each.in_class for each in found)
    return any(each.free >= wanted.leaf.count for each in found)


def class_selectors(
    placing: Placing, class_: api.DeviceClass | None, devices: Sequence[DeviceEntry]
) -> tuple[str, list[Candidate]]:
    problem = ""
    candidates: list[Candidate] = []
    for index, selector in enumerate(class_.spec.selectors if class_ is not None else ()):
        if class_ is not None and selector.cel is not None:
            found = rewrites(selector.cel.expression, placing.published, devices)
            problem = problem or _problem(found) or unknown_driver(selector.cel.expression, placing.published)
            candidates += selectors.class_selector(class_, index, found)
    return problem, candidates


def own_selectors(placing: Placing, wanted: Wanted, devices: Sequence[DeviceEntry] = ()) -> tuple[str, list[Candidate]]:
    place = place_of_claim(placing.what_if, placing.pod, wanted.claim)
    problem = ""
    candidates: list[Candidate] = []
    for index, selector in enumerate(wanted.leaf.request.selectors):
        if selector.cel is not None:
            found = rewrites(selector.cel.expression, placing.published, devices)
            problem = problem or _problem(found) or unknown_driver(selector.cel.expression, placing.published)
            if place is not None:
                candidates += selectors.own_selector(place, wanted, index, found)
    if place is not None:
        candidates += selectors.without_selectors(place, wanted)
    return problem, candidates


def _problem(found: Sequence[Rewrite]) -> str:
    return next((rewrite.problem for rewrite in found if rewrite.problem), "")


def selector_cause(placing: Placing, wanted: Wanted) -> Diagnosis:
    """Devices are there, but the request's own selectors accept none of them."""
    tallies = wanted.found.of(Obstacle.SELECTOR)
    seen = "; ".join(numbered(tally.count, tally.reason.text) for tally in tallies[:SENTENCES_MAX])
    problem, candidates = own_selectors(placing, wanted)
    what = f"no device of class {wanted.class_name} satisfies"
    if problem:
        text = f"the selector of {placing.request_text(wanted)} {problem}, so {what} it"
    else:
        text = f"{what} the selectors of {placing.request_text(wanted)}: {seen}"
    details = (seen,) if problem else ()
    excluded = states.excluded(placing, wanted)
    text += states.unread_text(excluded)
    candidates += states.changed(placing.what_if, excluded)
    contradiction = shut_out.contradiction(placing, wanted) if not problem else None
    if contradiction is not None:
        return replace(contradiction, details=(seen,), candidates=(*contradiction.candidates, *candidates))
    return Diagnosis(reason=Reason.SELECTOR, text=text, details=details, candidates=tuple(candidates))


def selector_failure(placing: Placing, wanted: Wanted) -> Diagnosis:
    """A selector fails with an error on some device, which ends the attempt."""
    tallies = wanted.found.of(Obstacle.SELECTOR_ERROR)
    inventory = placing.what_if.claims.inventory
    devices = [
        entry for tally in tallies for device in tally.devices for entry in inventory.devices_named(device_id(device))
    ]
    class_ = placing.what_if.get(api.DeviceClass, wanted.class_name)
    status = placing.failure.status
    at_fault = status is not None and any(text.startswith(f"class {wanted.class_name}:") for text in status.reasons)
    if at_fault:
        where = f"the selector of DeviceClass {wanted.class_name}"
        problem, candidates = class_selectors(placing, class_, devices)
    else:
        where = f"the selector of {placing.request_text(wanted)}"
        problem, candidates = own_selectors(placing, wanted, devices)
    tally = tallies[0]
    said = tally.reason.text.partition(" an error: ")[2] or tally.reason.text
    number = count(tally.count, "device")
    # As upstream: section 9 of its allocator's rules.
    rule = "such an error ends the scheduler's attempt"
    spared = _spared(placing, wanted)
    if spared is not None:
        rule += (
            f", so alternative {spared.leaf.name}, for which node {spared.found.most_free()[0]} has room, is not tried"
        )
    elif any(each.free >= wanted.leaf.count for each in wanted.found.nodes.values()):
        rule += ", although other nodes have devices that match"
    if problem:
        where += f" {problem}"
        said_so = "no device has" in problem or (tally.count == 1 and tally.devices[0] in problem)
        on = "" if said_so else f" (it fails on {number}: {_device_list(tally)})"
        if _NO_KEY in said and _NO_KEY not in problem:
            on = f' (CEL error "{said}" on {number}: {_device_list(tally)})'
        text = f"{where}{on}; {rule}"
    else:
        text = f'{where} fails on {number} ({_device_list(tally)}) with "{said}"; {rule}'
    return Diagnosis(reason=Reason.SELECTOR_ERROR, text=text, candidates=tuple(candidates))


def _spared(placing: Placing, wanted: Wanted) -> Wanted | None:
    """Another alternative of a request that could be met, if it were tried; None if there is none."""
    rivals = placing.survey.wanted if placing.survey is not None and wanted.leaf.parent is not None else []
    return next(
        (
            each
            for each in rivals
            if each is not wanted
            and each.leaf.parent == wanted.leaf.parent
            and each.claim is wanted.claim
            and is_met(each)
        ),
        None,
    )


def _device_list(tally: Tally) -> str:
    more = tally.count - len(tally.devices)
    return ", ".join(tally.devices) + (f" and {more} more" if more > 0 else "")
