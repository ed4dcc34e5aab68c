"""Causes in devices that do not go together: requests that compete, constraints that no combination meets, limits of a claim."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes.kinship import pods_text
from allot.core.advice.explain.causes.placing import VALUES, Placing, users_on
from allot.core.advice.explain.causes.vendors import is_accelerator
from allot.core.advice.explain.devices import (
    Wanted,
    device_id,
    expected_drivers,
    find_claim,
)
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, place_of_claim
from allot.core.advice.explain.holding import (
    FITS_TOO,
    Possessor,
    holders_text,
    possessor,
)
from allot.core.advice.explain.remedies import drivers, holders, requests, selectors
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import joined, listed, named
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.devices import attribute_value
from allot.core.explain import Obstacle, RequestReason
from allot.core.model import resource_v1 as api
from allot.core.scheduling import NodeInfo

_GATE = re.compile(
    r"claim (?P<claim>\S+), request (?P<request>\S+): has (?P<what>.*), but the (?P<gate>DRA\w+) feature is disabled"
)
_COMPETE = re.compile(r"\d+ requests(?: of \d+ claims)? compete for (?P<there>\d+) devices? and need (?P<needed>\d+)")
_LACKING = re.compile(r"none of them has attribute (?P<attribute>[^,]+),")
_TOO_MANY = re.compile(
    r"claim (?P<claim>\S+): number of requested devices (?P<asked>\d+) exceeds the claim limit of (?P<most>\d+)"
)
_ALL_UNSURE = re.compile(
    r"request (?P<request>\S+): asks for all devices, but resource pool (?P<driver>[^/\s]+)/(?P<pool>\S+) is currently"
)
_NODES_TRIED_MAX = 16
_OTHERS_MAX = 3
_HOLDERS_MAX = 3
_LISTS = "DRAListTypeAttributes"


def switched_off(what_if: WhatIfCluster, said: str) -> Diagnosis | None:
    """The scheduler's answer for a claim that needs a disabled feature gate."""
    found = _GATE.search(said)
    if found is None:
        return None
    name = found["gate"]
    what = f"request {found['request']} of claim {found['claim']} has {found['what']}"
    text = f"{what}, but feature gate {name} is disabled"
    return Diagnosis(reason=Reason.FEATURE, text=text, candidates=tuple(drivers.gate(what_if, name)))


def combination_cause(placing: Placing) -> Diagnosis:
    """Every request could be met alone."""
    assert placing.survey is not None
    info, reasons = placing.nearest[0], placing.survey.on_node(placing.nearest[0])
    for each in placing.nearest[:_NODES_TRIED_MAX]:
        found = placing.survey.on_node(each)
        if any(reason.together for reason in found):
            info, reasons = each, found
            break
    claims = {wanted.claim_name: wanted.claim for wanted in placing.wanted}
    candidates = _apart(placing, list(claims.values()))
    together = [reason for reason in reasons if reason.together]
    twice = _asked_twice(placing, info.name)
    if twice is not None:
        return twice
    if together:
        text = _too_few_for_all(placing, info.name, together) or _clash(placing, info.name, together)
        if _LISTS in text:
            candidates += drivers.gate(placing.what_if, _LISTS)
        constrained = any(claim.spec.devices.constraints for claim in claims.values())
        reason = Reason.CONSTRAINT if constrained else Reason.TOGETHER
        return Diagnosis(reason=reason, text=text, candidates=tuple(candidates))
    status = placing.failure.status
    text = "; ".join(status.reasons) if status is not None else _split(placing, info)
    unsure = _ALL_UNSURE.search(text)
    if unsure is not None:
        return _all_of_unsure_pool(placing, unsure["request"], unsure["driver"], unsure["pool"])
    over = _TOO_MANY.search(text)
    if over is not None:
        return _over_limit(placing, over["claim"], int(over["asked"]), int(over["most"]))
    off = switched_off(placing.what_if, text)
    if off is not None:
        return off
    return Diagnosis(reason=Reason.TOGETHER, text=text, candidates=tuple(candidates))


def _all_of_unsure_pool(placing: Placing, request: str, driver: str, name: str) -> Diagnosis:
    """A request for all devices while a visible pool is incomplete or invalid: upstream refuses it, whatever is in
    the pool."""
    pool = drivers.Pool.find(placing.what_if, driver, name)
    wanted = next((each for each in placing.wanted if each.leaf.name == request), placing.wanted[0])
    asks = f"{placing.request_text(wanted)} asks for all devices"
    place = place_of_claim(placing.what_if, placing.pod, wanted.claim)
    fewer = tuple(requests.not_all(place, wanted)) if place is not None else ()
    if pool.is_invalid:
        text = f"{asks}, which is refused while any pool that its nodes see is invalid, as pool {name} of driver {driver} is"
        return Diagnosis(reason=Reason.POOL_INVALID, text=text, candidates=(*pool.once(), *fewer))
    text = f"{asks}, which is refused while any pool that its nodes see is incomplete, and {pool.sentence()}"
    return Diagnosis(reason=Reason.POOL_INCOMPLETE, text=text, candidates=(*pool.candidates(), *pool.deleted(), *fewer))


def _over_limit(placing: Placing, claim: str, asked: int, most: int) -> Diagnosis:
    """More devices than one claim can have."""
    text = f"claim {claim} asks for {asked} devices, but a claim can have at most {most}"
    candidates: list[Candidate] = []
    for wanted in placing.wanted:
        place = place_of_claim(placing.what_if, placing.pod, wanted.claim)
        if place is not None and wanted.claim_name == claim:
            candidates += requests.lower_count(place, wanted, {wanted.leaf.count - (asked - most)})
    half = -(-asked // 2)
    advice = (f"split the request over two claims of the pod, such as {half} and {asked - half} devices",)
    return Diagnosis(reason=Reason.TOO_FEW, text=text, candidates=tuple(candidates), advice=advice)


def _asked_twice(placing: Placing, node: str) -> Diagnosis | None:
    """A pod that has a claim for devices of a class and also asks for the extended resource of that class."""
    for wanted in placing.wanted:
        resource = placing.resource_of(wanted)
        rivals = [
            each for each in placing.wanted if each.class_name == wanted.class_name and not placing.resource_of(each)
        ]
        if not resource or not rivals:
            continue
        number = sum(each.leaf.count for each in rivals)
        there = wanted.found.nodes.get(node)
        text = (
            f"it asks for devices of class {wanted.class_name} twice: for {number} with claim {rivals[0].claim_name} and for "
            f"{placing.needed_of(resource)} {resource}; node {node} has {there.free if there is not None else 0} free"
        )
        candidates = selectors.without_resource(placing.pod, resource)
        return Diagnosis(reason=Reason.TOGETHER, text=text, candidates=tuple(candidates))
    return None


def _too_few_for_all(placing: Placing, node: str, reasons: Sequence[RequestReason]) -> str:
    """Requests that compete for the same devices, of which no node has enough; empty if something else is wrong."""
    found = [_COMPETE.fullmatch(reason.together) for reason in reasons]
    numbers = {(each["there"], each["needed"]) for each in found if each is not None}
    if len(numbers) != 1 or not all(found) or len(reasons) != len(placing.wanted):
        return ""
    there, needed = next(iter(numbers))
    if any(each.found.most_free()[1] > int(there) for each in placing.wanted):
        return ""
    total = len(placing.what_if.cluster.nodes)
    most = f"node {node}, the only one, has {there} free" if total == 1 else f"no node has more than {there} free"
    classes = named("class", [each.class_name for each in placing.wanted])
    return f"its {len(reasons)} requests need {needed} devices of {classes} on one node, and {most}"


def _related(placing: Placing, node: str, attribute: str) -> int:
    """How many devices must have the same value of an attribute, or different ones."""
    asked = placing.decisive(node)
    numbers = [
        sum(
            each.leaf.count
            for each in asked
            if each.claim is wanted.claim
            and (not constraint.requests or {each.leaf.full_name, each.leaf.parent} & {*constraint.requests})
        )
        for wanted in asked
        for constraint in wanted.claim.spec.devices.constraints
        if attribute in (constraint.distinct_attribute, constraint.match_attribute)
    ]
    return max(numbers, default=0)


def _clash(placing: Placing, node: str, reasons: Sequence[RequestReason]) -> str:
    """Why requests cannot be met together on a node, a sentence for each distinct reason."""
    found = [VALUES.fullmatch(reason.together) for reason in reasons]
    rules = {(each["rule"], each["attribute"]) for each in found if each is not None}
    if len(rules) == 1 and all(found):
        rule, attribute = next(iter(rules))
        shown = [
            f"those for request {reason.request} have {each['values']}"
            for reason, each in zip(reasons, found, strict=True)
            if each is not None
        ]
        # Of one request alone, how many is the question, too.
        number = _related(placing, node, attribute) if rule != "the same" or len(found) == 1 else 0
        where = f"on node {node}, {joined(shown)}{_in_use_there(placing, node, attribute, ' '.join(shown))}{_on_others(placing, node, attribute)}"
        if rule == "the same":
            return f"no node has {f'{number} ' if number else ''}free devices with the same {attribute}: {where}"
        return f"no node has free devices with {f'{number} ' if number else ''}{rule} {attribute}: {where}"
    lacking = [(reason.request, each["attribute"]) for reason in reasons if (each := _LACKING.match(reason.together))]
    if lacking:
        request, attribute = lacking[0]
        instead = _same_short_name(placing, request, attribute)
        return f"the devices for request {request} have no attribute {attribute}{instead}, which a constraint of the claim needs"
    lists = next((reason.together for reason in reasons if _LISTS in reason.together), "")
    if lists:
        return f"a constraint of the claim cannot hold: {lists}"
    texts: dict[str, list[str]] = {}
    for reason in reasons:
        texts.setdefault(reason.together, []).append(reason.request)
    parts = [f"for {named('request', requests)}, {text}" for text, requests in texts.items()]
    return f"no node has devices that fit together: on node {node}, {'; '.join(parts)}"


def _same_short_name(placing: Placing, request: str, attribute: str) -> str:
    """What devices call an attribute that they do not have under the name that is asked for; empty if they have nothing like it."""
    wanted = next((each for each in placing.wanted if request in (each.leaf.full_name, each.leaf.name)), None)
    class_ = placing.what_if.get(api.DeviceClass, wanted.class_name) if wanted is not None else None
    expected = expected_drivers(class_)
    short = attribute.rpartition("/")[2]
    names = sorted(
        {
            name
            for slice_ in placing.what_if.all(api.ResourceSlice)
            if slice_.spec.driver in expected
            for device in (slice_.spec.devices or ())[:1]
            for name in device.attributes
            if name.rpartition("/")[2] == short
        }
    )
    return f" (they have {listed(names)})" if names else ""


def _in_use_there(placing: Placing, node: str, attribute: str, free: str) -> str:
    """Other values of an attribute that devices in use on a node have, and their holders; empty if there are none. free: the values of free
    devices: who holds the rest of these comes first."""
    assert placing.survey is not None
    held: dict[str, list[str]] = {}
    for reason in placing.survey.on_node(placing.what_if.cluster.nodes[node]):
        for each in reason.in_the_way:
            if each.obstacle is not Obstacle.IN_USE:
                continue
            for entry in placing.what_if.claims.inventory.devices_named(device_id(each.device)):
                found = entry.attribute(attribute)
                value = attribute_value(found) if found is not None else None
                if value is not None:
                    held.setdefault(str(value[1]), []).extend(each.claims)
    values: dict[str, list[str]] = {}
    costs: dict[str, tuple[int, int]] = {}
    for spelled, names in sorted(held.items()):
        claims = [find_claim(placing.what_if, name) for name in dict.fromkeys(names)]
        who = [possessor(placing.what_if, claim) for claim in claims if claim is not None]
        spoken = holders_text(who)
        values.setdefault(spoken, []).append(spelled)
        costs[spoken] = _cost(who)
    # Then in the order of what helps.
    ordered = sorted(values, key=lambda who: (not any(each in free for each in values[who]), costs[who], who))
    texts = [f"{listed(values[who])} by {who}" for who in ordered]
    more = f"; {len(texts) - _HOLDERS_MAX} more" if len(texts) > _HOLDERS_MAX else ""
    return f" (in use there: {'; '.join(texts[:_HOLDERS_MAX])}{more})" if texts else ""


def _cost(who: Sequence[Possessor]) -> tuple[int, int]:
    """How important some holders are: by priority, then by their accelerators, which matter more than network devices."""
    allocations = [each.claim.status.allocation for each in who if each.claim.status.allocation is not None]
    accelerators = sum(is_accelerator(result.driver) for each in allocations for result in each.devices.results)
    return max((each.priority for each in who), default=0), accelerators


def _on_others(placing: Placing, node: str, attribute: str) -> str:
    """The same for the other nodes that come as close, if they are few."""
    assert placing.survey is not None
    others = [info for info in placing.nearest if info.name != node]
    texts: dict[str, list[str]] = {}
    same = []
    first = _values_on(placing, node)
    for info in others if len(others) <= _OTHERS_MAX else ():
        shown = _values_on(placing, info.name)
        if shown == first:
            # Who has the rest there is one of the details.
            same.append(info.name)
        elif shown:
            held = _in_use_there(placing, info.name, attribute, " ".join(shown))
            texts.setdefault(f"{joined(shown)}{held}", []).append(info.name)
    likewise = f"; likewise on {named('node', same)}" if same else ""
    return likewise + "".join(f"; on {named('node', names)}, {text}" for text, names in texts.items())


def _values_on(placing: Placing, node: str) -> list[str]:
    """Which values the free devices of a node have, for each request."""
    assert placing.survey is not None
    reasons = placing.survey.on_node(placing.what_if.cluster.nodes[node])
    found = [(each.request, VALUES.fullmatch(each.together)) for each in reasons]
    return [f"{each['values']} for request {request}" for request, each in found if each is not None]


def _apart(placing: Placing, claims: Sequence[api.ResourceClaim]) -> list[Candidate]:
    candidates: list[Candidate] = []
    for claim in claims:
        place = place_of_claim(placing.what_if, placing.pod, claim)
        if place is None:
            continue
        classes = [each.class_name for each in placing.wanted if each.claim is claim]
        known = [placing.what_if.get(api.DeviceClass, name) for name in dict.fromkeys(classes)]
        candidates += requests.other_attribute(placing.what_if, place, claim, known)
        candidates += requests.wider_attribute(placing.what_if, place, claim, known)
        candidates += requests.fewer_constraints(place, claim)
        for wanted in placing.wanted:
            if wanted.claim is claim:
                # The devices that are there would be enough: to ask for fewer comes last.
                fewer = requests.lower_count(place, wanted, range(1, wanted.leaf.count))
                candidates += [replace(each, rank=Rank.DROP + 1) for each in fewer]
    # Moving a pod that fits elsewhere comes before relaxing a request.
    candidates += [
        replace(each, rank=Rank.RELAX - 1) if FITS_TOO in each.text else each
        for each in holders.freed(placing.what_if, placing.pod, *placing.wanted)
    ]
    return candidates


def _taken_elsewhere(placing: Placing, wanted: Wanted, names: Sequence[str]) -> str:
    """Who holds the devices for a request on other nodes; empty if no one does."""
    others = [name for name, found in wanted.found.nodes.items() if found.count(Obstacle.IN_USE) and name not in names]
    who = users_on(placing, wanted, others)
    return f" (on {named('node', others)} in use by {pods_text(placing.what_if, who)})" if who else ""


def _split(placing: Placing, info: NodeInfo) -> str:
    """Requests that can each be met, but on different nodes."""
    parts = []
    for wanted in placing.wanted:
        names = [name for name, found in wanted.found.nodes.items() if found.free >= max(wanted.leaf.count, 1)]
        where = f"only on {named('node', names)}" if names else "nowhere"
        parts.append(
            f'request "{wanted.leaf.full_name}" of class {wanted.class_name} can be met {where}{_taken_elsewhere(placing, wanted, names)}'
        )
    texts = [check.text for check in placing.checks[info.name]]
    return (
        f"no node can meet all of its requests: {'; '.join(parts)}" if len(parts) > 1 else "; ".join([*parts, *texts])
    )
