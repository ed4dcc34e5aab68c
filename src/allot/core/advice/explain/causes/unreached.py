"""Causes in network-attached devices that no node reaches."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes.placing import SELECTING, Placing
from allot.core.advice.explain.devices import Wanted
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank
from allot.core.advice.explain.holding import comes_back
from allot.core.advice.explain.remedies import reach
from allot.core.advice.explain.remedies.nodes import selector_text
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.trial import pod_subject, would_help
from allot.core.advice.explain.unreached import Unreached, networked, unreached, usable_unreached
from allot.core.advice.explain.wording import count, named
from allot.core.model import core_v1


def _but(placing: Placing, selector: core_v1.NodeSelector) -> str:
    """What nodes have instead of what a selector asks for."""
    missed = reach.near_miss(placing.what_if, selector)
    return (
        missed.text
        if missed is not None
        else f"none of the {count(len(placing.what_if.cluster.nodes), 'node')} has that"
    )


def nothing_reached(placing: Placing, expected: Sequence[str]) -> Diagnosis | None:
    """All devices for nodes with labels are out of reach. expected: the drivers in question; none for any."""
    found = [each for each in unreached(placing.what_if) if not expected or each.driver in expected]
    lost = {each.id for one in found for each in one.entries}
    there = (entry.id for entry, _ in networked(placing.what_if) if not expected or entry.id.driver in expected)
    if not found or any(each not in lost for each in there):
        return None
    first = found[0]
    pools = sorted({each.pool for each in found})
    verb = "is" if len(pools) == 1 else "are"
    text = (
        f"no node reaches the devices of driver {first.driver}: {named('pool', pools)} {verb} only for nodes with "
        f"{selector_text(first.selector)}, and {_but(placing, first.selector)}"
    )
    return Diagnosis(
        reason=Reason.NOT_REACHABLE, text=text, candidates=_candidates(placing, first), advice=_advice(first)
    )


def _advice(found: Unreached) -> tuple[str, ...]:
    return (f"check how the driver publishes pool {found.pool}: its ResourceSlices say which nodes reach it",)


def _candidates(placing: Placing, found: Unreached) -> tuple[Candidate, ...]:
    """Nodes that reach the devices."""
    return tuple(reach.connected(placing.what_if, placing.near, found.selector, found.slices))


def _free(placing: Placing, wanted: Wanted) -> list[Unreached]:
    """Free devices that a request could use if a node reached them; those first that some nodes miss by a label."""
    found = []
    for each in usable_unreached(placing.what_if, wanted.leaf.signature):
        free = [one for one in each.entries if not one.state.allocated and not one.taints]
        found += [each._replace(entries=tuple(free))] if free else []
    return sorted(found, key=lambda each: not _is_missed(placing, each))


def beside(placing: Placing, wanted: Wanted, found: Diagnosis) -> Diagnosis:
    """A cause in the devices that nodes reach, with free ones that none reaches. These come first if nodes only miss a label, or if
    the others do not fit."""
    if found.reason is Reason.NOT_REACHABLE or wanted.leaf.all_devices or comes_back(placing.pod):
        return found
    lost = _free(placing, wanted)
    if not lost:
        return found
    first = lost[0]
    candidates = _candidates(placing, first)
    labels = selector_text(first.selector)
    fits_none = wanted.found.in_class == wanted.found.count(*SELECTING)
    if fits_none or (_is_missed(placing, first) and _would_help(placing, candidates)):
        number = len(first.entries)
        those = "the only free device" if number == 1 else f"the {number} free devices"
        which = f"{placing.class_text(wanted)} in pool {first.pool}"
        are = "is" if number == 1 else "are"
        rest = "" if fits_none else f"; within reach, {found.text}"
        text = f"no node reaches {those} {which}, which {are} only for nodes with {labels}: {_but(placing, first.selector)}{rest}"
        advice = (*_advice(first), *found.advice) if fits_none else found.advice
        # Devices of another kind come last.
        last = Rank.ADMIN + 1 if fits_none else 0
        others = (replace(each, rank=max(each.rank, last)) for each in found.candidates)
        return replace(
            found,
            reason=Reason.NOT_REACHABLE,
            text=text,
            candidates=(*candidates, *others),
            advice=advice,
        )
    pools = [each.pool for each in lost[1:]]
    more = f", nor those of {named('pool', pools)}" if pools else ""
    free = f"{count(len(first.entries), 'free device')} of pool {first.pool}, only for nodes with {labels}"
    later = (replace(each, rank=max(each.rank, Rank.ADMIN)) for each in candidates)
    return replace(found, text=f"{found.text}; no node reaches {free}{more}", candidates=(*found.candidates, *later))


def _is_missed(placing: Placing, found: Unreached) -> bool:
    return reach.near_miss(placing.what_if, found.selector) is not None


def _would_help(placing: Placing, candidates: Sequence[Candidate]) -> bool:
    """Whether the first change is enough for the pod."""
    outcome = would_help(placing.what_if, pod_subject(placing.pod), candidates[0].patches) if candidates else None
    return outcome is not None and outcome.schedulable
