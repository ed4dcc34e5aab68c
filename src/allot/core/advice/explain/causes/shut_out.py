"""Free devices that a request does not get: a selector asks for slightly more than they have, the request and its class contradict
each other, or a newer class has taken the name of an extended resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from allot.core.advice.explain.causes.placing import Placing, is_wish
from allot.core.advice.explain.devices import Wanted
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, place_of_claim
from allot.core.advice.explain.remedies import selectors
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.rewrites import NearMiss, near_misses
from allot.core.advice.explain.trial import pod_subject, would_help
from allot.core.advice.explain.unreached import unreached
from allot.core.advice.explain.wording import count, listed, named, one_line
from allot.core.allocation.devices import DeviceEntry
from allot.core.allocation.signature import USABLE, Rule, Signature
from allot.core.cel.selector import EvaluationError, SelectorCompileError, compile_selector
from allot.core.model import resource_v1 as api

# In a larger cluster this takes too long.
_DEVICES_MAX = 5000


class _Spare(NamedTuple):
    """A device that no one has, and its node; empty for one that is attached to none."""

    entry: DeviceEntry
    node: str


def _spare(placing: Placing) -> list[_Spare]:
    """The free devices, without taints, that some node reaches which the pod does not exclude itself."""
    what_if = placing.what_if
    found: list[_Spare] = []
    lost = {each.id for one in unreached(what_if) for each in one.entries}
    for slice_ in what_if.all(api.ResourceSlice):
        node = slice_.spec.node_name or ""
        if node and (node not in placing.checks or any(map(is_wish, placing.checks[node]))):
            continue
        entries = what_if.claims.inventory.devices_of(slice_.metadata.name)
        found += [
            _Spare(entry, node)
            for entry in entries
            if not entry.state.allocated and not entry.taints and entry.id not in lost
        ]
        if len(found) > _DEVICES_MAX:
            return []
    return found


def _accepts(rules: Sequence[Rule], entry: DeviceEntry) -> bool:
    try:
        return all(rule.compiled is not None and rule.compiled.matches(entry.view) for rule in rules)
    except EvaluationError:
        return False


def _enough(found: Sequence[_Spare], wanted: Wanted) -> list[_Spare]:
    """Those of nodes that have as many as the request needs."""
    by_node = Counter(each.node for each in found)
    return [each for each in found if by_node[each.node] >= wanted.leaf.count]


def _where(found: Sequence[_Spare]) -> str:
    names = sorted({each.node for each in found if each.node})
    return f" on {named('node', names)}" if names else ""


# --- a selector that asks for slightly more ---


def nearly(placing: Placing, wanted: Wanted) -> tuple[str, list[Candidate]]:
    """Free devices that miss a selector of the request or its class by little: what is said of them, and the selector with what they
    have; nothing if there are none."""
    signature = wanted.leaf.signature
    spare = _spare(placing) if signature is not None and not wanted.leaf.all_devices else []
    text = ""
    candidates: list[Candidate] = []
    place = place_of_claim(placing.what_if, placing.pod, wanted.claim)
    class_ = placing.what_if.get(api.DeviceClass, wanted.class_name)
    for rule in signature.rules if signature is not None else ():
        others = [each for each in signature.rules if each is not rule] if signature is not None else []
        # Usable but for this rule.
        left = [each for each in spare if _accepts(others, each.entry) and not _accepts([rule], each.entry)]
        own = rule.class_name is None
        of = wanted.leaf.request.selectors if own else class_.spec.selectors if class_ is not None else ()
        selector = of[rule.number].cel if rule.number < len(of) else None
        if not left or selector is None:
            continue
        for miss in near_misses(selector.expression, [each.entry for each in left]):
            found = _enough([each for each in left if _matches(miss.rewrite.expression, each.entry)], wanted)
            if not found:
                continue
            if own and place is not None:
                candidates += selectors.own_selector(place, wanted, rule.number, [miss.rewrite])
            elif not own and class_ is not None:
                candidates += selectors.class_selector(class_, rule.number, [miss.rewrite])
            who = placing.request_text(wanted)
            text = text or _miss_text(miss, who if own else f"DeviceClass {wanted.class_name}", found)
    return text, candidates


def _matches(expression: str, entry: DeviceEntry) -> bool:
    try:
        return compile_selector(expression).matches(entry.view)
    except (SelectorCompileError, EvaluationError):
        return False


def _miss_text(miss: NearMiss, who: str, found: Sequence[_Spare]) -> str:
    number = len(found)
    have = "has" if number == 1 else "have"
    return f"{who} asks for {miss.asked}, and {count(number, 'free device')}{_where(found)} {have} {miss.actual}"


# --- a request and its class that contradict each other ---


def contradiction(placing: Placing, wanted: Wanted) -> Diagnosis | None:
    """A request whose selectors accept only devices that its class excludes; None if that is not the cause."""
    signature = wanted.leaf.signature
    place = place_of_claim(placing.what_if, placing.pod, wanted.claim)
    class_ = placing.what_if.get(api.DeviceClass, wanted.class_name)
    if signature is None or place is None or class_ is None or wanted.leaf.all_devices:
        return None
    own = [rule for rule in signature.rules if rule.class_name is None]
    of_class = [rule for rule in signature.rules if rule.class_name is not None]
    accepted = [each for each in _spare(placing) if own and _accepts(own, each.entry)]
    found = _enough([each for each in accepted if not _accepts(of_class, each.entry)], wanted)
    if not found:
        return None
    wants = listed(one_line(each.cel.expression) for each in wanted.leaf.request.selectors if each.cel is not None)
    changed = f" (generation {class_.metadata.generation}: it was changed)" if class_.metadata.generation > 1 else ""
    are = "satisfies the request, but is" if len(found) == 1 else "satisfy the request, but are"
    text = (
        f"DeviceClass {wanted.class_name}{changed} selects {_excluding(of_class, found[0].entry)}, and {placing.request_name(wanted)} of "
        f"{place.spoken} selects {wants}: no device satisfies both; {count(len(found), 'free device')}{_where(found)} {are} not in the class"
    )
    candidates = [
        selectors.with_class(place, wanted.claim.spec, wanted.leaf.full_name, name, Rank.FIX)
        for name in sorted(each.metadata.name for each in placing.what_if.all(api.DeviceClass))
        if name != wanted.class_name
        and (other := _of_class(placing, name)) is not None
        and any(other.verdict(each.entry) == USABLE for each in found)
    ]
    return Diagnosis(reason=Reason.SELECTOR, text=text, candidates=tuple(candidates))


def _excluding(rules: Sequence[Rule], entry: DeviceEntry) -> str:
    """The part of a class' selectors that excludes a device."""
    for rule in rules:
        if rule.compiled is not None and not _accepts([rule], entry):
            return one_line(rule.compiled.explain(entry.view).expression)
    return "no device"


def _of_class(placing: Placing, name: str) -> Signature | None:
    """What decides which devices are in a class."""
    request = api.DeviceRequest(
        name="any", exactly=api.ExactDeviceRequest(device_class_name=name, allocation_mode=api.EXACT_COUNT, count=1)
    )
    spec = api.ResourceClaimSpec(devices=api.DeviceClaim(requests=(request,)))
    return placing.what_if.claims.inventory.plan(spec).requests[0].leaves[0].signature


# --- two classes for one extended resource ---


def overshadowing(placing: Placing, wanted: Wanted, found: Diagnosis) -> Diagnosis:
    """A class that provides an extended resource only because it is newer than another one, which has devices for the pod."""
    resource = placing.resource_of(wanted)
    older = selectors.older_classes(placing.what_if, resource, wanted.class_name)
    if not older:
        return found
    changes = tuple(selectors.not_for_resource(wanted.class_name, resource, older))
    if wanted.found.in_class:
        outcome = would_help(placing.what_if, pod_subject(placing.pod), changes[0].patches)
        if outcome is None or not outcome.schedulable:
            return found
    stands = f"{resource} means DeviceClass {wanted.class_name}, which is newer than {listed(older)}{_lost(placing, wanted, older)}"
    prefix = api.IMPLICIT_EXTENDED_RESOURCE_PREFIX
    named_anew = [each for name in older for each in selectors.renamed_resource(placing.pod, resource, prefix + name)]
    # Its selectors say what the newer class is for: they are not the mistake.
    others = [
        each
        for each in found.candidates
        if not any((patch.kind, patch.name) == ("DeviceClass", wanted.class_name) for patch in each.patches)
    ]
    return replace(found, text=f"{stands}; {found.text}", candidates=(*changes, *named_anew, *others))


def _lost(placing: Placing, wanted: Wanted, older: Sequence[str]) -> str:
    """The free devices of classes that a newer one stands before; empty if there are none."""
    known = [each for name in older if (each := _of_class(placing, name)) is not None]
    newer = _of_class(placing, wanted.class_name)
    free = [
        each
        for each in _spare(placing)
        if any(one.verdict(each.entry) == USABLE for one in known)
        and (newer is None or newer.verdict(each.entry) != USABLE)
    ]
    if not free or len(older) > 1:
        return ""
    return f" and hides the {count(len(free), 'free device')} of that class{_where(free)}"
