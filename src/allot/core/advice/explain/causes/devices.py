"""Causes related to devices: none exist, none fit, they are in use, or they cannot be combined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes import driver_pods, shut_out, states
from allot.core.advice.explain.causes.fragments import fragmented
from allot.core.advice.explain.causes.kinship import by_deployment, kin_advice, kinship
from allot.core.advice.explain.causes.placing import POOL, SELECTING, VALUES, Placing, users_on
from allot.core.advice.explain.causes.vendors import drivers_by_node, is_of_others
from allot.core.advice.explain.devices import (
    Tally,
    Wanted,
    device_id,
    expected_drivers,
    find_claim,
    is_in_flight,
    nodes_of,
)
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, place_of_claim
from allot.core.advice.explain.holding import (
    FITS_TOO,
    Possessor,
    are_siblings,
    comes_back,
    done_text,
    holders_text,
    importance,
    possessor,
    priorities_text,
)
from allot.core.advice.explain.nodes import selects_node
from allot.core.advice.explain.remedies import drivers, holders, nodes, requests, selectors
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.rewrites import Rewrite, rewrites, similar_driver, unknown_driver
from allot.core.advice.explain.wording import count, joined, listed, named
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.allocation.devices import DeviceEntry, DeviceID, attribute_value
from allot.core.allocation.reasons import FRACTIONS, OVERCOMMITTED
from allot.core.explain import Obstacle, RequestReason, numbered
from allot.core.lifecycle.claim_owners import group_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import NodeInfo

# What excludes devices that the selectors accept.
_ON_DEVICES = {
    Obstacle.TAINT: Reason.TAINT,
    Obstacle.FEATURE: Reason.FEATURE,
    Obstacle.COUNTER: Reason.COUNTERS,
    Obstacle.COMPATIBILITY_GROUP: Reason.COUNTERS,
    Obstacle.CAPACITY: Reason.CAPACITY,
    Obstacle.IN_USE: Reason.IN_USE,
}
_GATE = re.compile(
    r"claim (?P<claim>\S+), request (?P<request>\S+): has (?P<what>.*), but the (?P<gate>DRA\w+) feature is disabled"
)
_COMPETE = re.compile(r"\d+ requests(?: of \d+ claims)? compete for (?P<there>\d+) devices? and need (?P<needed>\d+)")
_LACKING = re.compile(r"none of them has attribute (?P<attribute>[^,]+),")
_COUNTER = re.compile(r"need \S+ of counter (?P<counter>\S+), and \S+ of (?P<total>\S+) are free")
_ALLOWED = re.compile(r"allow (?P<name>\S+) (?P<allowed>.*) per claim, not \S+")
_TOO_MANY = re.compile(
    r"claim (?P<claim>\S+): number of requested devices (?P<asked>\d+) exceeds the claim limit of (?P<most>\d+)"
)
_ALL_UNSURE = re.compile(
    r"request (?P<request>\S+): asks for all devices, but resource pool (?P<driver>[^/\s]+)/(?P<pool>\S+) is currently"
)
_NUMBER = re.compile(r"[0-9]+")
_NO_KEY = "no such key"
_NO_CAPACITY = "have no capacity "
_NODES_TRIED_MAX = 16
_HOLDERS_MAX = 5
# Of more than this many, only the longest holders are named.
_HOLDERS_LOOKED_AT_MAX = 200
_SENTENCES_MAX = 3
_ADVICE_MAX = 2
_OTHERS_MAX = 3
_NAMED_MAX = 3
_LISTS = "DRAListTypeAttributes"
_ENOUGH = 10**9


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
    failing = [wanted for wanted in placing.wanted if not _is_met(wanted)]
    for wanted in failing:
        if wanted.leaf.parent is None:
            return shut_out.overshadowing(placing, wanted, _request_cause(placing, wanted))
        alternatives = [each for each in placing.wanted if each.leaf.parent == wanted.leaf.parent]
        if all(each in failing for each in alternatives):
            return _no_alternative(placing, alternatives)
    return _together(placing)


def ended_by_selector(placing: Placing) -> Diagnosis | None:
    """An attempt that ended with a selector's error on some device, whatever other nodes have."""
    if placing.failure.status is not None and placing.survey is not None:
        for wanted in placing.survey.wanted:
            if wanted.found.count(Obstacle.SELECTOR_ERROR):
                return _selector_fails(placing, wanted)
    return None


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


def switched_off(what_if: WhatIfCluster, said: str) -> Diagnosis | None:
    """The scheduler's answer for a claim that needs a disabled feature gate."""
    found = _GATE.search(said)
    if found is None:
        return None
    name = found["gate"]
    what = f"request {found['request']} of claim {found['claim']} has {found['what']}"
    text = f"{what}, but feature gate {name} is disabled"
    return Diagnosis(reason=Reason.FEATURE, text=text, candidates=tuple(drivers.gate(what_if, name)))


def _is_met(wanted: Wanted) -> bool:
    """Whether some node has enough for the request alone."""
    found = wanted.found.nodes.values()
    if wanted.leaf.all_devices:
        return any(each.in_class and each.free == each.in_class for each in found)
    return any(each.free >= wanted.leaf.count for each in found)


def _no_alternative(placing: Placing, alternatives: Sequence[Wanted]) -> Diagnosis:
    causes = [_request_cause(placing, wanted) for wanted in alternatives]
    if len(causes) == 1:
        return causes[0]
    parts = [f"{wanted.leaf.name}: {cause.text}" for wanted, cause in zip(alternatives, causes, strict=True)]
    request = alternatives[0].leaf.parent
    text = f'none of the {len(parts)} alternatives of request "{request}" fits ({"; ".join(parts)})'
    # An alternative without devices is not a mistake as long as another alternative has some.
    served = any(cause.reason in _ON_DEVICES.values() for cause in causes)
    # The others say how much less would do: to ask for less than that comes after holders that could leave.
    candidates = tuple(
        replace(candidate, rank=max(candidate.rank, Rank.DROP))
        if candidate.rank == Rank.FEWER
        or (served and cause.reason not in _ON_DEVICES.values() and not _corrects(wanted, candidate))
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
    found = wanted.found
    if not found.published:
        return _nothing_published(placing, wanted)
    if not found.in_class:
        return _nothing_in_class(placing, wanted)
    most = max((each.in_class - each.count(*SELECTING, *POOL) for each in found.nodes.values()), default=0)
    enough = most >= wanted.leaf.count and not wanted.leaf.all_devices
    if found.count(*POOL) and (not enough or _would_do_with_pool(placing, wanted)):
        return _pool(placing, wanted)
    if not most:
        return _selector(placing, wanted) if found.count(Obstacle.SELECTOR) else _selector_fails(placing, wanted)
    if not wanted.leaf.all_devices and most < wanted.leaf.count:
        return _too_few(placing, wanted, most)
    return _taken(placing, wanted)


# --- nothing there ---


def _nothing_published(placing: Placing, wanted: Wanted) -> Diagnosis:
    what_if = placing.what_if
    slices = what_if.all(api.ResourceSlice)
    ignored = [
        each
        for each in slices
        if each.spec.devices and (each.spec.shared_counters or each.spec.per_device_node_selection)
    ]
    if slices and ignored and "DRAPartitionableDevices" not in what_if.gates:
        text = "its devices draw on shared counters, and feature gate DRAPartitionableDevices is disabled"
        candidates = drivers.gate(what_if, "DRAPartitionableDevices")
        return Diagnosis(reason=Reason.FEATURE, text=text, candidates=tuple(candidates))
    expected = expected_drivers(what_if.get(api.DeviceClass, wanted.class_name))
    return _out_of_reach(placing, slices, expected) or _no_driver(placing, wanted, slices, expected)


def _no_driver(
    placing: Placing, wanted: Wanted, slices: Sequence[api.ResourceSlice], expected: Sequence[str]
) -> Diagnosis:
    """The drivers whose devices are expected have published none for the nodes of the cluster."""
    driver = named("driver", expected) if expected else "the driver of the devices"
    number = "all devices" if wanted.leaf.all_devices else count(wanted.leaf.count, "device")
    need = f"{placing.request_name(wanted)} needs {number} of class {wanted.class_name}"
    own = [each for each in slices if not expected or each.spec.driver in expected]
    candidates: list[Candidate] = []
    advice = [f"install {driver} on the nodes that have the hardware", "add a node that has the devices"]
    failing = [each for driver_name in expected for each in driver_pods.failing(placing.what_if, driver_name)]
    if not failing:
        failing = [each for name in expected if (each := driver_pods.not_made(placing.what_if, name)) is not None]
    fails = driver_pods.failing_text(failing)
    if not own:
        no_slices = "there are no ResourceSlices" + (f" of {driver}" if slices or fails else "")
        absent = f"{'it' if slices else driver} runs on no node"
        text = f"{need}, but {no_slices}: {fails or absent}"
    elif not any(slice_.spec.devices for slice_ in own):
        publishers = sorted({each.spec.driver for each in own})
        text = f"{need}, but the ResourceSlices of {named('driver', publishers)} have no devices in them"
    else:
        names = sorted({slice_.spec.node_name for slice_ in own if slice_.spec.devices and slice_.spec.node_name})
        text = f"{need}, but its devices are published for {named('node', names)}, which the cluster does not have"
        candidates += drivers.renamed_nodes(placing.what_if, own)
    if fails:
        advice = list(dict.fromkeys(each.advice for each in failing))[:_ADVICE_MAX]
    return Diagnosis(reason=Reason.NO_DRIVER, text=text, candidates=tuple(candidates), advice=tuple(advice))


def _out_of_reach(placing: Placing, slices: Sequence[api.ResourceSlice], expected: Sequence[str]) -> Diagnosis | None:
    """Network-attached devices of the expected drivers that no node of the cluster reaches."""
    found = [
        each
        for each in slices
        if each.spec.devices and each.spec.node_selector is not None and (not expected or each.spec.driver in expected)
    ]
    if not found or any(_is_on_a_node(placing, each) for each in found):
        return None
    pools = sorted({each.spec.pool.name for each in found})
    selector = found[0].spec.node_selector
    assert selector is not None
    shown = nodes.selector_text(selector)
    verb = "is" if len(pools) == 1 else "are"
    text = (
        f"no node reaches the devices of driver {found[0].spec.driver}: {named('pool', pools)} {verb} only for nodes with {shown}, "
        f"and none of the {count(len(placing.what_if.cluster.nodes), 'node')} has that"
    )
    candidates = drivers.connected(placing.what_if, placing.near, found[0])
    advice = (f"check how the driver publishes pool {pools[0]}: its ResourceSlices say which nodes reach it",)
    return Diagnosis(reason=Reason.NOT_REACHABLE, text=text, candidates=tuple(candidates), advice=advice)


def _nothing_in_class(placing: Placing, wanted: Wanted) -> Diagnosis:
    what_if = placing.what_if
    class_ = what_if.get(api.DeviceClass, wanted.class_name)
    problem, candidates = _class_selectors(placing, class_, ())
    expected = expected_drivers(class_)
    slices = what_if.all(api.ResourceSlice)
    if expected and not any(_is_on_a_node(placing, each) for each in slices if each.spec.driver in expected):
        unreached = _out_of_reach(placing, slices, expected)
        if unreached is not None:
            return unreached
        if all(similar_driver(driver, placing.published) is None for driver in expected):
            # The name is not a misspelling of another driver.
            return _no_driver(placing, wanted, slices, expected)
    if problem:
        text = f"DeviceClass {wanted.class_name} {problem}"
    else:
        tallies = wanted.found.of(Obstacle.NOT_IN_CLASS)
        why = "; ".join(numbered(tally.count, tally.reason.text) for tally in tallies[:_SENTENCES_MAX])
        published = count(wanted.found.published, "device")
        none = (
            "the only device in the cluster is not"
            if wanted.found.published == 1
            else f"none of the {published} in the cluster is"
        )
        text = f"{none} in DeviceClass {wanted.class_name}: {why}"
    candidates += states.changed(what_if, states.excluded(placing, wanted))
    candidates += selectors.other_class(what_if, placing.pod, wanted)
    missing = [driver for driver in expected if driver not in placing.published.drivers]
    advice = (f"install {named('driver', missing)} on the nodes that have the hardware",) if missing else ()
    return Diagnosis(reason=Reason.NOT_IN_CLASS, text=text, candidates=tuple(candidates), advice=advice)


def _is_on_a_node(placing: Placing, slice_: api.ResourceSlice) -> bool:
    """Whether a slice has devices for a node of the cluster."""
    spec, there = slice_.spec, placing.what_if.cluster.nodes
    if not spec.devices:
        return False
    if spec.node_name is not None:
        return spec.node_name in there
    selector = spec.node_selector
    return selector is None or any(selects_node(selector, info) for info in there.values())


# --- selectors ---


def _class_selectors(
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


def _own_selectors(
    placing: Placing, wanted: Wanted, devices: Sequence[DeviceEntry] = ()
) -> tuple[str, list[Candidate]]:
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


def _selector(placing: Placing, wanted: Wanted) -> Diagnosis:
    """Devices are there, but the request's own selectors accept none of them."""
    tallies = wanted.found.of(Obstacle.SELECTOR)
    seen = "; ".join(numbered(tally.count, tally.reason.text) for tally in tallies[:_SENTENCES_MAX])
    problem, candidates = _own_selectors(placing, wanted)
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


def _selector_fails(placing: Placing, wanted: Wanted) -> Diagnosis:
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
        problem, candidates = _class_selectors(placing, class_, devices)
    else:
        where = f"the selector of {placing.request_text(wanted)}"
        problem, candidates = _own_selectors(placing, wanted, devices)
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
            and _is_met(each)
        ),
        None,
    )


def _device_list(tally: Tally) -> str:
    more = tally.count - len(tally.devices)
    return ", ".join(tally.devices) + (f" and {more} more" if more > 0 else "")


# --- too few, or taken ---


def _would_do_with_pool(placing: Placing, wanted: Wanted) -> bool:
    """Whether a node would have enough free devices if its pools were complete and valid."""
    held = {
        (result.driver, result.pool, result.device)
        for claim in placing.what_if.all(api.ResourceClaim)
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    }
    for tally in wanted.found.of(*POOL):
        id_ = device_id(tally.reason.device)
        pool = drivers.Pool.find(placing.what_if, id_.driver, id_.pool)
        taken = sum(
            (id_.driver, id_.pool, device.name) in held for each in pool.current for device in each.spec.devices or ()
        )
        if any(
            found.free + found.count(*POOL) - taken >= wanted.leaf.count
            for name in tally.nodes
            if (found := wanted.found.nodes.get(name)) is not None
        ):
            return True
    return False


def _pool(placing: Placing, wanted: Wanted) -> Diagnosis:
    """Devices of an incomplete or invalid pool. They come before devices in use, because no pod can get them."""
    tally = wanted.found.of(*POOL)[0]
    id_ = device_id(tally.reason.device)
    pool = drivers.Pool.find(placing.what_if, id_.driver, id_.pool)
    lost = f"so its {count(len(pool.names) or tally.count, 'device')} cannot be used"
    in_use = wanted.found.count(Obstacle.IN_USE)
    freed: tuple[Candidate, ...] = ()
    if in_use:
        others = f"the other {in_use} {'is' if in_use == 1 else 'are'} in use by {_holders(placing, wanted)}"
        lost = f"{lost}; {others}"
        freed = tuple(holders.freed(placing.what_if, placing.pod, wanted))
    if tally.reason.obstacle is Obstacle.POOL_INVALID:
        said = tally.reason.text.partition(", which is invalid: ")[2]
        text = f"pool {pool.name} of driver {pool.driver} is invalid ({said}), {lost}"
        advice = (f"driver {pool.driver} must fix the pool: see its log",)
        candidates = (*pool.once(), *freed)
        return Diagnosis(reason=Reason.POOL_INVALID, text=text, candidates=candidates, advice=advice)
    homes = [each.spec.node_name for each in pool.current if each.spec.node_name]
    complaint = driver_pods.complaint(placing.what_if, pool.driver, homes[0]) if homes else None
    text = f"{pool.sentence()}, {lost}" + (f"; {complaint.text}" if complaint is not None else "")
    log = ("the driver's log on the node says why it has not published the rest",) if complaint is None else ()
    pods = driver_pods.plugins(placing.what_if, pool.driver, homes[0]) if homes else []
    plugin = f"pod {full_name(pods[0])}" if len(pods) == 1 else ""
    candidates = (*pool.candidates(complaint.advice if complaint is not None else "", plugin), *freed)
    return Diagnosis(reason=Reason.POOL_INCOMPLETE, text=text, candidates=candidates, advice=log)


def _too_few(placing: Placing, wanted: Wanted, most: int) -> Diagnosis:
    found = wanted.found
    selecting = found.count(*SELECTING)
    best = max(found.nodes, key=lambda name: found.nodes[name].in_class - found.nodes[name].count(*SELECTING, *POOL))
    what = f"devices of class {wanted.class_name}" + (" that satisfy its selectors" if selecting else "")
    text = (
        f"{placing.request_text(wanted)} needs {wanted.leaf.count} {what} on one node, but no node has more than {most} "
        f"(node {best})"
    )
    problem, candidates = _own_selectors(placing, wanted) if selecting else ("", [])
    if problem:
        text = f"the selector of {placing.request_name(wanted)} {problem}: {text}"
    excluded = states.excluded(placing, wanted)
    text += states.excluded_text(excluded, wanted)
    candidates += states.changed(placing.what_if, excluded)
    near, lowered = shut_out.nearly(placing, wanted)
    text = f"{near}; {text}" if near else text
    candidates += lowered
    place = place_of_claim(placing.what_if, placing.pod, wanted.claim)
    fewer = {most, found.most_free()[1]}
    if place is not None:
        candidates += requests.lower_count(place, wanted, fewer)
    else:
        candidates += selectors.fewer_of_resource(placing.pod, placing.resource_of(wanted), fewer)
    pods = -(-wanted.leaf.count // most)
    split = not selecting and place is not None and _accepted(wanted) >= wanted.leaf.count
    advice = (f"spread the work over {pods} pods with {most} devices each",) if split and most > 1 else ()
    return Diagnosis(reason=Reason.TOO_FEW, text=text, candidates=tuple(candidates), advice=advice)


def _taken(placing: Placing, wanted: Wanted) -> Diagnosis:
    """Enough devices fit, but too many of them are excluded: the main obstacle."""
    found = wanted.found

    def weight(obstacle: Obstacle) -> int:
        alone = any(
            each.free + each.count(obstacle) >= (each.in_class if wanted.leaf.all_devices else wanted.leaf.count)
            for each in found.nodes.values()
            if each.in_class
        )
        return found.count(obstacle) + (_ENOUGH if alone else 0)

    there = [obstacle for obstacle in _ON_DEVICES if found.count(obstacle)]
    if not there:
        return _together(placing)
    if weight(Obstacle.TAINT) >= _ENOUGH:
        # Whatever others hold: these would do, and no one has them.
        return _obstacle_cause(placing, wanted, Obstacle.TAINT)
    return _obstacle_cause(placing, wanted, max(there, key=weight))


def _obstacle_cause(placing: Placing, wanted: Wanted, obstacle: Obstacle) -> Diagnosis:
    what_if, found = placing.what_if, wanted.found
    place = place_of_claim(what_if, placing.pod, wanted.claim)
    tally = found.of(obstacle)[0]
    subject, verb = _subject(placing, wanted, obstacle)
    has = "has" if verb == "is" else "have"
    candidates: list[Candidate] = []
    if obstacle is Obstacle.IN_USE:
        text = _in_use(placing, wanted)
        text += _meant_to_share(placing, wanted, candidates)
        twin = drivers.published_twice(what_if, tally.devices)
        if twin is not None:
            return _same_pool(placing, wanted, twin, text)
    elif obstacle is Obstacle.TAINT:
        rules = drivers.taint_rules(what_if, wanted)
        text = _tainted(placing, wanted, f"{subject} {has}")
        text += drivers.near_toleration(what_if, placing.pod, wanted)
        text += drivers.rules_text(what_if, rules)
        candidates += drivers.device_taint(what_if, placing.pod, place, wanted, hurry=_outranks(placing, wanted))
    elif obstacle is Obstacle.FEATURE:
        text = f"{subject} cannot be used: {_numbered(wanted, tally)}"
        if drivers.UNDECLARED in tally.reason.text:
            names = [name for name, there in found.nodes.items() if there.count(obstacle)]
            do = "does" if len(names) == 1 else "do"
            text = text.replace(drivers.UNDECLARED, f"{named('node', names)} {do} not declare")
            candidates += drivers.declared(what_if, tally, names)
        candidates += drivers.gates(what_if)
    else:
        text = _used_up(placing, wanted, obstacle, subject, verb)
        if place is not None:
            candidates += requests.less_capacity(what_if, place, wanted)
        if obstacle is Obstacle.CAPACITY:
            candidates += holders.with_amount(what_if, placing.pod, wanted)
        if FRACTIONS in text:
            candidates += drivers.gate(what_if, FRACTIONS)
    if obstacle is not Obstacle.TAINT and found.count(Obstacle.TAINT):
        candidates += drivers.device_taint(what_if, placing.pod, place, wanted, hurry=_outranks(placing, wanted))
    unpublished, repairs = _unpublished(placing, wanted)
    # What a repair gives no one has to give up.
    text = f"{unpublished}; {text}" if unpublished else text
    candidates += repairs
    excluded = states.excluded(placing, wanted)
    candidates += states.changed(what_if, excluded)
    candidates += holders.freed(what_if, placing.pod, wanted)
    text += _others(placing, wanted, obstacle)
    text += drivers.of_lost_nodes(what_if, [device_id(device).driver for device in tally.devices])
    node, free = found.most_free()
    if free and not wanted.leaf.all_devices:
        text += f"; node {node} has {free} free, the most of all"
    if wanted.leaf.all_devices:
        watches = place is not None and _only_watches(placing)
        without = f" without {requests.ADMIN_ACCESS}" if watches else ""
        asks = (
            f"{placing.request_text(wanted)} asks for all devices of class {wanted.class_name} on a node{without}, but"
        )
        if obstacle is Obstacle.IN_USE:
            text = _one_in_the_way(placing, wanted, text)
        text = f"{asks} {text}"
        candidates += requests.with_admin_access(what_if, place, wanted) if place is not None and watches else ()
    elif wanted.leaf.count > 1:
        text += f", and {wanted.leaf.count} are needed on one node"
    if place is not None:
        candidates += (
            requests.not_all(place, wanted) if wanted.leaf.all_devices else requests.lower_count(place, wanted, {free})
        )
    text += states.excluded_text(excluded, wanted)
    near, lowered = shut_out.nearly(placing, wanted)
    text = f"{near}; {text}" if near else text
    candidates += lowered
    if found.count(Obstacle.SELECTOR):
        text += _fall_short(placing, wanted) if obstacle is Obstacle.IN_USE and excluded is None and not near else ""
        problem, more = _own_selectors(placing, wanted)
        candidates += more
        if problem:
            text += f"; and the selector of {placing.request_text(wanted)} {problem}"
    candidates += nodes.another_node(what_if, _largest(placing, wanted))
    advice = kin_advice(what_if, placing.pod, text)
    return Diagnosis(reason=_ON_DEVICES[obstacle], text=text, candidates=tuple(candidates), advice=advice)


def _tainted(placing: Placing, wanted: Wanted, subject: str) -> str:
    """Which devices have which taints; of many, their number and the first taint. subject: with its verb."""
    tallies = wanted.found.of(Obstacle.TAINT)
    number = wanted.found.count(Obstacle.TAINT)
    rest = ", which the request does not tolerate"
    if number > _NAMED_MAX or _accepted(wanted) == 1 or placing.resource_of(wanted):
        return f"{subject} taint {tallies[0].reason.actual}{rest}"
    taken = wanted.found.count(Obstacle.IN_USE) == _accepted(wanted) - number
    which = f"the only {'one' if number == 1 else 'ones'} of class {wanted.class_name} {'that is' if number == 1 else 'that are'} not in use"
    of = which if taken else f"of class {wanted.class_name}"
    texts = []
    for tally in tallies:
        names = [_with_node(placing, device) for device in tally.devices]
        texts.append(f"{named('device', names)} {'has' if len(names) == 1 else 'have'} taint {tally.reason.actual}")
    if len(texts) == 1:
        shown, _, taint = texts[0].partition(" has taint " if number == 1 else " have taint ")
        return f"{shown}, {of}, {'has' if number == 1 else 'have'} taint {taint}{rest}"
    return f"{joined(texts)} ({of}), which the request does not tolerate"


def _outranks(placing: Placing, wanted: Wanted) -> bool:
    """Whether some holder of devices matters less than the pod."""
    claims = [find_claim(placing.what_if, name) for tally in wanted.found.of(Obstacle.IN_USE) for name in tally.claims]
    held = [possessor(placing.what_if, claim) for claim in claims[:_HOLDERS_LOOKED_AT_MAX] if claim is not None]
    return any(each.priority < (placing.pod.spec.priority or 0) for each in held)


def _with_node(placing: Placing, device: str) -> str:
    """`gpu-3 on node a`, or of a pool, for a device that is on no node."""
    id_ = device_id(device)
    entries = placing.what_if.claims.inventory.devices_named(id_)
    node = next((entry.slice.spec.node_name for entry in entries if entry.slice.spec.node_name is not None), None)
    return f"{id_.device} on node {node}" if node is not None else f"{id_.device} of pool {id_.pool}"


def _same_pool(placing: Placing, wanted: Wanted, twin: drivers.Twin, in_use: str) -> Diagnosis:
    """Devices of several nodes that are published under one name: holding one of them holds them all."""
    text = (
        f"driver {twin.driver} publishes pool {twin.pool} for {named('node', twin.nodes)} with the same device names, such as "
        f"{twin.device}, and these count as one device: {in_use}"
    )
    claims = [claim for tally in wanted.found.of(Obstacle.IN_USE) for claim in tally.claims]
    homes = {
        node for name in claims if (claim := find_claim(placing.what_if, name)) is not None for node in nodes_of(claim)
    }
    return Diagnosis(reason=Reason.POOL_INVALID, text=text, candidates=tuple(twin.renamed(homes)))


def _only_watches(placing: Placing) -> bool:
    """Whether a pod that asks for all devices is likely to watch what others use: one of each node's daemons, or of a namespace
    for administrators."""
    namespace = placing.what_if.get(core_v1.Namespace, placing.pod.metadata.namespace)
    labels = namespace.metadata.labels if namespace is not None else {}
    return comes_back(placing.pod) or labels.get(api.ADMIN_ACCESS_LABEL) == "true"


def _one_in_the_way(placing: Placing, wanted: Wanted, text: str) -> str:
    """Of a request for all devices: the node of which most are free, and who has the others there. text: who has them in all,
    which is enough if no node has free ones."""
    node, free = wanted.found.most_free()
    found = wanted.found.nodes.get(node)
    users = users_on(placing, wanted, [node]) if found is not None and free else []
    if found is None or not users:
        return text
    there = f"of the {found.in_class} of node {node}, {free} {'is' if free == 1 else 'are'} free and the rest in use by {named('pod', users)}"
    alone = sum(bool(each.in_class) for each in wanted.found.nodes.values()) == 1
    return there if alone else f"{there}; in all, {text}"


def _in_use(placing: Placing, wanted: Wanted) -> str:
    """Who holds the devices; those that a gang's other pods would get are not in use yet."""
    claims = [(name, number) for tally in wanted.found.of(Obstacle.IN_USE) for name, number in tally.claims.items()]
    own = sum(number for name, number in claims if is_in_flight(placing.what_if, name))
    total = wanted.found.count(Obstacle.IN_USE)
    others = f"the gang's other pods take {'it' if total == 1 else 'all of them' if own >= total else f'{own} more'}"
    if own >= total:
        subject, _ = _subject(placing, wanted, Obstacle.IN_USE)
        return f"{subject} are not enough: {others}" if total > 1 else f"{subject} is not enough: {others}"
    subject, verb = _subject(placing, wanted, Obstacle.IN_USE, fewer=own)
    text = f"{subject} {verb} in use by {_holders(placing, wanted)}"
    return f"{text}, and {others}" if own else text


def _fall_short(placing: Placing, wanted: Wanted) -> str:
    """Free devices that the request's selectors exclude."""
    held = {
        DeviceID(result.driver, result.pool, result.device)
        for claim in placing.what_if.all(api.ResourceClaim)
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    }
    tally = wanted.found.of(Obstacle.SELECTOR)[0]
    if len(wanted.found.of(Obstacle.SELECTOR)) > 1 or not tally.reason.needed:
        return ""
    free = [device for device in tally.devices if device_id(device) not in held]
    return f"; the other {numbered(tally.count, tally.reason.text)}" if free else ""


def _unpublished(placing: Placing, wanted: Wanted) -> tuple[str, list[Candidate]]:
    """Nodes that would have devices if the driver's pod there did not fail, and candidates with that fixed."""
    found = wanted.found
    names = {device_id(device).driver for tally in found.tallies.values() for device in tally.devices[:1]}
    failing = [(driver, each) for driver in sorted(names) for each in driver_pods.failing(placing.what_if, driver)]
    failing += [
        (driver, each)
        for driver in sorted(names)
        for each in driver_pods.left_out_with_devices(placing.what_if, driver)
    ]
    if not failing:
        return "", []
    published = drivers_by_node(placing.what_if)
    there = placing.what_if.cluster.nodes
    bare = [
        each
        for driver, each in failing
        if each.node in there
        and driver not in published.get(each.node, ())
        and not is_of_others(driver, there[each.node].node, published.get(each.node, ()))
    ]
    if not bare:
        return "", []
    first, like = bare[0], _largest(placing, wanted)
    nodes_text = named("node", [each.node for each in bare])
    text = f"{nodes_text} {'publishes' if len(bare) == 1 else 'publish'} no devices of class {wanted.class_name} ({first.text})"
    if like is None:
        return text, []
    patches = nodes.slices_like(placing.what_if, like, first.node)
    return text, [Candidate(rank=Rank.NODE, text=first.advice, patches=tuple(patches))]


def _used_up(placing: Placing, wanted: Wanted, obstacle: Obstacle, subject: str, verb: str) -> str:
    """Counters, capacities and compatibility groups: what exists, what is needed, and who holds the rest."""
    tallies = wanted.found.of(obstacle)
    first = tallies[0]
    where = f" on {named('node', first.nodes)}" if len(first.nodes) > 1 else ""
    over = next((tally for tally in tallies if tally.reason.text.startswith(OVERCOMMITTED)), None)
    if over is not None:
        others = [tally for tally in tallies if tally is not over]
        rest = f"; {'; '.join(_numbered(wanted, tally) for tally in others[:_SENTENCES_MAX])}" if others else ""
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
    phrases = [_numbered(wanted, tally) for tally in tallies[:_SENTENCES_MAX]]
    phrases[0] += _other_name(placing, wanted, first)
    more = sum(tally.count for tally in tallies[_SENTENCES_MAX:])
    phrases += [f"and {more} more"] if more else []
    if obstacle is Obstacle.CAPACITY and len(tallies) == 1 and (allowed := _ALLOWED.fullmatch(first.reason.text)):
        most = f"at most {first.reason.actual} {allowed['name']} to one claim ({allowed['allowed']})"
        gives = "gives" if verb == "is" else "give"
        return f"{placing.request_text(wanted)} asks for {allowed['name']} {first.reason.needed}, but {subject} {gives} {most}"
    if obstacle is Obstacle.CAPACITY and _accepted(wanted) == 1:
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
                    found.setdefault(_with_node(placing, str(id_)), possessor(placing.what_if, claim).text)
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
    by = f" by {holders_text(who, len(tally.claims) - len(who))}" if who else ""
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
    verb = "names" if len(where) == 1 else "name"
    return f": {listed(where)} {verb} no amount of {found[0].capacity}, so each claim takes a whole device"


def _accepted(wanted: Wanted) -> int:
    """How many devices the class and the selectors accept."""
    return wanted.found.in_class - wanted.found.count(*SELECTING, *POOL)


def _numbered(wanted: Wanted, tally: Tally) -> str:
    """What is wrong with devices, phrased to follow their number, or about the only one."""
    text = numbered(tally.count, tally.reason.text)
    return f"it {text.partition(' ')[2]}" if _accepted(wanted) == 1 else text


def _others(placing: Placing, wanted: Wanted, obstacle: Obstacle) -> str:
    """What is wrong with the devices that the main obstacle does not concern."""
    found = wanted.found
    texts = []
    for other in (Obstacle.TAINT, Obstacle.IN_USE):
        number = found.count(other)
        if other is obstacle or not number:
            continue
        if other is Obstacle.IN_USE:
            # Do not name a holder twice.
            named_before = {claim for tally in found.of(obstacle) for claim in tally.claims}
            known = {claim for tally in found.of(other) for claim in tally.claims} <= named_before
            by = "" if known else f" by {_holders(placing, wanted)}"
            texts.append(f"{number} {'is' if number == 1 else 'are'} in use{by}")
        else:
            texts.append(f"{number} {'has' if number == 1 else 'have'} taint {found.of(other)[0].reason.actual}")
    return f"; {joined(texts)}" if texts else ""


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
    return f"; {holders_text(who, len(names) - len(who))} {verb} the rest"


def _subject(placing: Placing, wanted: Wanted, obstacle: Obstacle, *, fewer: int = 0) -> tuple[str, str]:
    """`all 8 devices of class x`, and the verb for it. fewer: how many of them do not count."""
    found = wanted.found
    number = found.count(obstacle) - fewer
    accepted = _accepted(wanted)
    which = ""
    if accepted == 1:
        every = "the only device"
        tally = found.of(obstacle)[0]
        # Network-attached devices are on no node.
        entries = placing.what_if.claims.inventory.devices_named(device_id(tally.devices[0]))
        of_a_node = any(entry.slice.spec.node_name is not None for entry in entries)
        where = f"on node {next(iter(tally.nodes))}" if of_a_node else f"of pool {device_id(tally.devices[0]).pool}"
        which = f"{device_id(tally.devices[0]).device} {where}"
    elif number == accepted:
        every = "both devices" if accepted == 2 else f"all {accepted} devices"
    else:
        every = f"{number} of {accepted} devices"
    matches_text = "matches" if accepted == 1 else "match"
    matching = f" that {matches_text} its selectors" if found.count(*SELECTING) else ""
    if placing.elsewhere:
        every = f"where the pod may run, {every}"
    return f"{every} {placing.class_text(wanted, matching, which)}", "is" if number == 1 else "are"


def _holders(placing: Placing, wanted: Wanted) -> str:
    """Who holds the devices: pods, including those of the gang that is being placed."""
    assert placing.survey is not None
    what_if, pod = placing.what_if, placing.pod
    names = {claim for tally in wanted.found.of(Obstacle.IN_USE) for claim in tally.claims}
    own = {name for name in names if is_in_flight(what_if, name)}
    others = sorted(names - own)
    if len(others) > _HOLDERS_LOOKED_AT_MAX:
        others = [holder.claim for holder in placing.survey.holders(wanted)]
    found = [possessor(what_if, claim) for name in others if (claim := find_claim(what_if, name)) is not None]
    # Replicas of the pod come last: they have as much right to the devices. Who is done comes first.
    found.sort(
        key=lambda each: (
            not each.done,
            are_siblings(pod, each.running),
            *importance(each, 1, pod.metadata.namespace),
        )
    )
    more = len(names) - len(own) - len(others)
    text = (by_deployment(what_if, found) if not more else "") or holders_text(found, more)
    text += _done(found)
    forgotten = holders.forgotten_by(what_if, [each for each in found if each.kinds])
    text += f" ({forgotten.text})" if forgotten is not None else ""
    text += kinship(placing.what_if, placing.pod, [user for each in found for user in each.running])
    group = what_if.get(PodGroup, group_name(pod), pod.metadata.namespace)
    return text + priorities_text(pod, (group.spec.preemption_policy or "") if group is not None else "", found)


def _done(found: Sequence[Possessor]) -> str:
    """A note on holders whose work is over; empty if there are none."""
    pods = [user for each in found for user in each.done]
    if not pods:
        return ""
    whose = (
        "whose"
        if len(pods) == len(found)
        else f"of which {named('pod', map(full_name, pods))} {'is' if len(pods) == 1 else 'are'} done:"
    )
    return f", {whose} {done_text(pods)}"


def _meant_to_share(placing: Placing, wanted: Wanted, candidates: list[Candidate]) -> str:
    """For claims from a template with a sharing configuration: each pod still gets its own device."""
    place = place_of_claim(placing.what_if, placing.pod, wanted.claim)
    strategy = holders.sharing_strategy(wanted.claim)
    if not strategy or place is None or place.kind != "ResourceClaimTemplate":
        return ""
    candidates += holders.shared_claim(placing.what_if, placing.pod, wanted)
    return (
        f"; {place.spoken} configures {strategy}, but each pod with a template gets its own claim and therefore its own device: only "
        "pods that name the same ResourceClaim share one"
    )


def _largest(placing: Placing, wanted: Wanted) -> NodeInfo | None:
    """A node that would fit if it were empty."""
    found = wanted.found.nodes
    return placing.what_if.cluster.nodes.get(max(found, key=lambda name: found[name].in_class, default=""))


# --- each alone, but not together ---


def _together(placing: Placing) -> Diagnosis:
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
    texts = []
    for text, names in sorted(held.items(), key=lambda item: (item[0] not in free, item[0])):
        claims = [find_claim(placing.what_if, name) for name in names]
        who = [possessor(placing.what_if, claim) for claim in claims if claim is not None]
        texts.append(f"{text} by {holders_text(who)}")
    return f" (in use there: {listed(texts)})" if texts else ""


def _on_others(placing: Placing, node: str, attribute: str) -> str:
    """The same for the other nodes that come as close, if they are few."""
    assert placing.survey is not None
    others = [info for info in placing.nearest if info.name != node]
    texts: dict[str, list[str]] = {}
    for info in others if len(others) <= _OTHERS_MAX else ():
        found = [(each.request, VALUES.fullmatch(each.together)) for each in placing.survey.on_node(info)]
        shown = [f"{each['values']} for request {request}" for request, each in found if each is not None]
        if shown:
            held = _in_use_there(placing, info.name, attribute, " ".join(shown))
            texts.setdefault(f"{joined(shown)}{held}", []).append(info.name)
    return "".join(f"; on {named('node', names)}, {text}" for text, names in texts.items())


def _apart(placing: Placing, claims: Sequence[api.ResourceClaim]) -> list[Candidate]:
    candidates: list[Candidate] = []
    for claim in claims:
        place = place_of_claim(placing.what_if, placing.pod, claim)
        if place is None:
            continue
        classes = [each.class_name for each in placing.wanted if each.claim is claim]
        known = [placing.what_if.get(api.DeviceClass, name) for name in dict.fromkeys(classes)]
        candidates += requests.other_attribute(placing.what_if, place, claim, known)
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
    return f" (on {named('node', others)} in use by {named('pod', who)})" if who else ""


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
