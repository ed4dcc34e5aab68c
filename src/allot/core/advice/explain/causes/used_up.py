"""Devices whose counters or capacity others have used up, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from allot.core.advice.explain.causes.fragments import fragmented
from allot.core.advice.explain.causes.kinship import possessors_text
from allot.core.advice.explain.causes.placing import POOL, SELECTING, Placing
from allot.core.advice.explain.causes.selectors import SENTENCES_MAX
from allot.core.advice.explain.devices import (
    Tally,
    Wanted,
    device_id,
    find_claim,
)
from allot.core.advice.explain.holding import possessor
from allot.core.advice.explain.remedies import holders, requests
from allot.core.advice.explain.wording import listed, named
from allot.core.allocation.devices import DeviceID
from allot.core.allocation.reasons import OVERCOMMITTED
from allot.core.explain import Obstacle, numbered
from allot.core.model import resource_v1 as api

_COUNTER = re.compile(r"need \S+ of counter (?P<counter>\S+), and \S+ of (?P<total>\S+) are free")
_ALLOWED = re.compile(r"allow (?P<name>\S+) (?P<allowed>.*) per claim, not \S+")
_NO_CAPACITY = "have no capacity "
# Of more than this many, only these are named.
_HOLDERS_MAX = 200


def with_node(placing: Placing, device: str) -> str:
    """`gpu-3 on node a`, or of a pool, for a device that is on no node."""
    id_ = device_id(device)
    entries = placing.what_if.claims.inventory.devices_named(id_)
    node = next((entry.slice.spec.node_name for entry in entries if entry.slice.spec.node_name is not None), None)
    return f"{id_.device} on node {node}" if node is not None else f"{id_.device} of pool {id_.pool}"


def used_up_text(placing: Placing, wanted: Wanted, obstacle: Obstacle, subject: str, verb: str) -> str:
    """Counters, capacities and compatibility groups: what exists, what is needed, and who holds the rest."""
    tallies = wanted.found.of(obstacle)
    first = tallies[0]
    where = f" on {named('node', first.nodes)}" if len(first.nodes) > 1 else ""
    over = next((tally for tally in tallies if tally.reason.text.startswith(OVERCOMMITTED)), None)
    if over is not None:
        others = [tally for tally in tallies if tally is not over]
        rest = f"; {'; '.join(numbered_devices(wanted, tally) for tally in others[:SENTENCES_MAX])}" if others else ""
        return f"{_overdrawn(placing, over)}{rest}{_rest_held_by(placing, others) if others else ''}"
    held = _rest_held_by(placing, tallies) + (_whole(placing, wanted) if obstacle is Obstacle.CAPACITY else "")
    parts = _parts_in_use(placing, tallies) if obstacle is Obstacle.COUNTER else ""
    if parts:
        free = f" (it needs {_counter_text(first)})" if len(tallies) == 1 and first.count == 1 else ""
        return f"{subject} {verb} partly in use: {parts}{free}"
    if obstacle is Obstacle.COUNTER and len(tallies) == 1:
        return f"{subject} {'needs' if verb == 'is' else 'need'} {_counter_text(first)}{where}{held}"
    if obstacle is Obstacle.COUNTER and (split := fragmented(placing, [tally.devices[0] for tally in tallies])):
        return f"{subject} {split}"
    phrases = [numbered_devices(wanted, tally) for tally in tallies[:SENTENCES_MAX]]
    phrases[0] += _other_name(placing, wanted, first)
    more = sum(tally.count for tally in tallies[SENTENCES_MAX:])
    phrases += [f"and {more} more"] if more else []
    if obstacle is Obstacle.CAPACITY and len(tallies) == 1 and (allowed := _ALLOWED.fullmatch(first.reason.text)):
        most = f"at most {first.reason.actual} {allowed['name']} to one claim ({allowed['allowed']})"
        gives = "gives" if verb == "is" else "give"
        return f"{placing.request_text(wanted)} asks for {allowed['name']} {first.reason.needed}, but {subject} {gives} {most}"
    if obstacle is Obstacle.CAPACITY and accepted_count(wanted) == 1:
        return f"{subject} {phrases[0].removeprefix('it ')}{held}"
    if len(tallies) == 1 and first.reason.text.startswith(_NO_CAPACITY):
        return f"{subject} {phrases[0].partition(' ')[2]}{held}"
    what = "too little to give" if obstacle is Obstacle.CAPACITY else "too little left"
    if obstacle is Obstacle.COMPATIBILITY_GROUP:
        return f"{subject} cannot be used now: {'; '.join(phrases)}{held.replace('the rest', 'that')}"
    return f"{subject} {'has' if verb == 'is' else 'have'} {what}: {'; '.join(phrases)}{where}{held}"


def _parts_in_use(placing: Placing, tallies: Sequence[Tally]) -> str:
    """Of devices that are wanted whole: their parts that others hold, and who; empty if some would do with less than all counters."""
    inventory = placing.what_if.claims.inventory
    found: dict[str, str] = {}
    for tally in tallies:
        if not all(_is_whole(placing, device) for device in tally.devices):
            return ""
        for name in tally.claims:
            claim = find_claim(placing.what_if, name)
            allocation = claim.status.allocation if claim is not None else None
            for result in allocation.devices.results if allocation is not None else ():
                id_ = DeviceID(result.driver, result.pool, result.device)
                draws = any(entry.device.consumes_counters for entry in inventory.devices_named(id_))
                if claim is not None and draws and (result.pool in tally.nodes or len(tally.nodes) == 1):
                    found.setdefault(with_node(placing, str(id_)), possessor(placing.what_if, claim).text)
    return listed(f"{part} by {who}" for part, who in found.items())


def _is_whole(placing: Placing, device: str) -> bool:
    """Whether a device needs all of each counter set that it draws on."""
    id_ = device_id(device)
    there = {
        (set_.name, name): counter.value.nano
        for slice_ in placing.what_if.all(api.ResourceSlice)
        if (slice_.spec.driver, slice_.spec.pool.name) == (id_.driver, id_.pool)
        for set_ in slice_.spec.shared_counters or ()
        for name, counter in set_.counters.items()
    }
    for entry in placing.what_if.claims.inventory.devices_named(id_):
        needed = {
            (each.counter_set, name): counter.value.nano
            for each in entry.device.consumes_counters
            for name, counter in each.counters.items()
        }
        sets = {name for name, _ in needed}
        if not sets or needed != {key: amount for key, amount in there.items() if key[0] in sets}:
            return False
    return True


def _overdrawn(placing: Placing, tally: Tally) -> str:
    """A counter set of which more is in use than there is: then no device of its pool is given out."""
    pool = device_id(tally.devices[0])
    said = tally.reason.text.removeprefix("cannot be used while ")
    claims = [find_claim(placing.what_if, name) for name in list(tally.claims)[:_HOLDERS_MAX]]
    who = [possessor(placing.what_if, claim) for claim in claims if claim is not None]
    by = f" by {possessors_text(placing.what_if, who, len(tally.claims) - len(who))}" if who else ""
    rest = f"{tally.count} would do" if tally.count > 1 else "one would do"
    return f"{said}{by}, so no device of pool {pool.pool} that draws on counters is given out ({rest})"


def _other_name(placing: Placing, wanted: Wanted, tally: Tally) -> str:
    """The devices' name for a capacity that the request misnames; empty if they have nothing like it."""
    for name in requests.requested(wanted):
        meant = requests.published_as(placing.what_if, tally, name)
        if meant is not None:
            return f" (they call it {meant})"
    return ""


def _whole(placing: Placing, wanted: Wanted) -> str:
    """Claims that hold a whole shared device because they name no amount; empty if there are none."""
    found = holders.without_amount(placing.what_if, wanted)
    if not found:
        return ""
    where = dict.fromkeys(each.place.spoken for each in found)
    one = len(where) == 1
    claims = "it" if one else "each"
    if all(each.place.kind == "ResourceClaimTemplate" for each in found):
        claims = f"each claim from {'it' if one else 'them'}"
    verb = "names" if one else "name"
    return f": {listed(where)} {verb} no amount of {found[0].capacity}, so {claims} takes a whole device"


def accepted_count(wanted: Wanted) -> int:
    """How many devices the class and the selectors accept."""
    return wanted.found.in_class - wanted.found.count(*SELECTING, *POOL)


def numbered_devices(wanted: Wanted, tally: Tally) -> str:
    """What is wrong with devices, phrased to follow their number, or about the only one."""
    text = numbered(tally.count, tally.reason.text)
    return f"it {text.partition(' ')[2]}" if accepted_count(wanted) == 1 else text


def _counter_text(tally: Tally) -> str:
    """`4 slices of gpu-0, but 2 of 7 are free`."""
    found = _COUNTER.fullmatch(tally.reason.text)
    assert found is not None, tally.reason.text
    set_name, _, counter = found["counter"].partition("/")
    return f"{tally.reason.needed} {counter} of {set_name}, but {tally.reason.actual} of {found['total']} are free"


def _rest_held_by(placing: Placing, tallies: Sequence[Tally]) -> str:
    names = list(dict.fromkeys(claim for tally in tallies for claim in tally.claims))
    claims = [find_claim(placing.what_if, name) for name in names[:_HOLDERS_MAX]]
    who = [possessor(placing.what_if, claim) for claim in claims if claim is not None]
    if not who:
        return ""
    verb = "holds" if len(names) == 1 else "hold"
    return f"; {possessors_text(placing.what_if, who, len(names) - len(who))} {verb} the rest"
