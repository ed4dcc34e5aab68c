"""Causes that lie with devices: none are there, none will do, they are taken, or they cannot be had together."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.explain.causes.placing import POOL, SELECTING, Placing
from allot.core.advice.explain.devices import Wanted, device_id, is_in_flight
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, place_of_claim
from allot.core.advice.explain.remedies import drivers, holders, nodes, requests, selectors
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.rewrites import Rewrite, rewrites, unknown_driver
from allot.core.advice.explain.wording import count, listed, named
from allot.core.advice.lint.expressions import read_expression
from allot.core.allocation.devices import DeviceEntry
from allot.core.explain import Obstacle, RequestReason, numbered
from allot.core.model import resource_v1 as api
from allot.core.scheduling import NodeInfo

# What stands in the way of devices that the selectors accept.
_ON_DEVICES = {
    Obstacle.TAINT: Reason.TAINT,
    Obstacle.FEATURE: Reason.FEATURE,
    Obstacle.COUNTER: Reason.COUNTERS,
    Obstacle.COMPATIBILITY_GROUP: Reason.COUNTERS,
    Obstacle.CAPACITY: Reason.CAPACITY,
    Obstacle.IN_USE: Reason.IN_USE,
}
_NODES_TRIED_MAX = 16
_SENTENCES_MAX = 3
_ENOUGH = 10**9


def device_cause(placing: Placing) -> Diagnosis:
    """Why the devices cannot be had on the nodes that come closest."""
    if not placing.wanted:
        texts = [check.text for check in placing.checks[placing.nearest[0].name]]
        return Diagnosis(reason=Reason.NO_DEVICES, text="; ".join(texts))
    if placing.failure.status is not None:
        for wanted in placing.wanted:
            if wanted.found.count(Obstacle.SELECTOR_ERROR):
                return _selector_fails(placing, wanted)
    failing = [wanted for wanted in placing.wanted if not _is_met(wanted)]
    for wanted in failing:
        if wanted.leaf.parent is None:
            return _request_cause(placing, wanted)
        alternatives = [each for each in placing.wanted if each.leaf.parent == wanted.leaf.parent]
        if all(each in failing for each in alternatives):
            return _no_alternative(placing, alternatives)
    return _together(placing)


def _is_met(wanted: Wanted) -> bool:
    """Whether some node has enough for the request, looked at alone."""
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
    text = f'none of the {len(parts)} alternatives of request "{request}" can be had ({"; ".join(parts)})'
    candidates = tuple(candidate for cause in causes for candidate in cause.candidates)
    return Diagnosis(reason=Reason.NO_DEVICES, text=text, candidates=candidates)


def _request_cause(placing: Placing, wanted: Wanted) -> Diagnosis:
    """Why one request cannot be met, looked at alone."""
    found = wanted.found
    if not found.published:
        return _nothing_published(placing, wanted)
    if not found.in_class:
        return _nothing_in_class(placing, wanted)
    most = max((each.in_class - each.count(*SELECTING, *POOL) for each in found.nodes.values()), default=0)
    enough = most >= wanted.leaf.count and not wanted.leaf.all_devices
    if found.count(*POOL) and not enough:
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
    expected = expected_drivers(what_if.get(api.DeviceClass, wanted.class_name))
    driver = named("driver", expected) if expected else "the driver of the devices"
    ignored = [
        each
        for each in slices
        if each.spec.devices and (each.spec.shared_counters or each.spec.per_device_node_selection)
    ]
    candidates: list[Candidate] = []
    if not slices:
        text = f"no driver has published any devices (there are no ResourceSlices): {driver} does not run on any node"
    elif not any(slice_.spec.devices for slice_ in slices):
        publishers = sorted({each.spec.driver for each in slices})
        text = f"the ResourceSlices of {named('driver', publishers)} have no devices in them"
    elif ignored and "DRAPartitionableDevices" not in what_if.gates:
        text = "its devices draw on shared counters, and feature gate DRAPartitionableDevices is off"
        candidates += drivers.gates(what_if)
    else:
        names = sorted({slice_.spec.node_name for slice_ in slices if slice_.spec.devices and slice_.spec.node_name})
        text = f"all published devices are for {named('node', names)}, which the cluster does not have"
        candidates += drivers.renamed_nodes(what_if)
    number = "all devices" if wanted.leaf.all_devices else count(wanted.leaf.count, "device")
    text += f', and request "{wanted.leaf.full_name}" needs {number} of class {wanted.class_name}'
    advice = (f"install {driver} on the nodes that have the hardware", "add a node that has the devices")
    return Diagnosis(reason=Reason.NO_DRIVER, text=text, candidates=tuple(candidates), advice=advice)


def expected_drivers(class_: api.DeviceClass | None) -> list[str]:
    """The drivers whose devices a class selects, as far as it says."""
    found: list[str] = []
    for selector in class_.spec.selectors if class_ is not None else ():
        reading = read_expression(selector.cel.expression) if selector.cel is not None else None
        found += reading.drivers if reading is not None else ()
    return found


def _nothing_in_class(placing: Placing, wanted: Wanted) -> Diagnosis:
    class_ = placing.what_if.get(api.DeviceClass, wanted.class_name)
    problem, candidates = _class_selectors(placing, class_, ())
    if problem:
        text = f"DeviceClass {wanted.class_name} {problem}"
    else:
        tallies = wanted.found.of(Obstacle.NOT_IN_CLASS)
        why = "; ".join(numbered(tally.count, tally.reason.text) for tally in tallies[:_SENTENCES_MAX])
        published = count(wanted.found.published, "device")
        text = f"none of the {published} in the cluster is in DeviceClass {wanted.class_name}: {why}"
    candidates += selectors.other_class(placing.what_if, placing.pod, wanted)
    expected = expected_drivers(class_)
    missing = [driver for driver in expected if driver not in placing.published.drivers]
    advice = (f"install {named('driver', missing)} on the nodes that have the hardware",) if missing else ()
    return Diagnosis(reason=Reason.NOT_IN_CLASS, text=text, candidates=tuple(candidates), advice=advice)


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
        text = f'the selector of request "{wanted.leaf.full_name}" {problem}, so that {what} it'
    else:
        text = f'{what} the selectors of request "{wanted.leaf.full_name}": {seen}'
    details = (seen,) if problem else ()
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
        where = f'the selector of request "{wanted.leaf.full_name}"'
        problem, candidates = _own_selectors(placing, wanted, devices)
    tally = tallies[0]
    said = tally.reason.text.partition(" an error: ")[2] or tally.reason.text
    where += f" {problem}" if problem else " fails"
    number = count(tally.count, "device")
    text = (
        f"{where}: it fails on {number} ({listed(tally.devices)}) with the error {said!r}, and an error on one device keeps "
        "all of the node's from being used"
    )
    return Diagnosis(reason=Reason.SELECTOR_ERROR, text=text, candidates=tuple(candidates))


# --- too few, or taken ---


def _pool(placing: Placing, wanted: Wanted) -> Diagnosis:
    tally = wanted.found.of(*POOL)[0]
    id_ = device_id(tally.reason.device)
    pool = drivers.Pool.find(placing.what_if, id_.driver, id_.pool)
    lost = f"so that its {count(tally.count, 'device')} cannot be used"
    if tally.reason.obstacle is Obstacle.POOL_INVALID:
        return Diagnosis(reason=Reason.POOL_INVALID, text=f"{tally.reason.text.removeprefix('are in ')}, {lost}")
    return Diagnosis(
        reason=Reason.POOL_INCOMPLETE,
        text=f"{pool.sentence()}, {lost}",
        candidates=tuple(pool.candidates()),
        advice=("the driver's log on the node says why it has not published the rest",),
    )


def _too_few(placing: Placing, wanted: Wanted, most: int) -> Diagnosis:
    found = wanted.found
    selecting = found.count(*SELECTING)
    best = max(found.nodes, key=lambda name: found.nodes[name].in_class - found.nodes[name].count(*SELECTING, *POOL))
    what = f"devices of class {wanted.class_name}" + (" that satisfy its selectors" if selecting else "")
    text = (
        f'request "{wanted.leaf.full_name}" needs {wanted.leaf.count} {what} on one node, but no node has more than {most} '
        f"(node {best})"
    )
    problem, candidates = _own_selectors(placing, wanted) if selecting else ("", [])
    if problem:
        text = f'the selector of request "{wanted.leaf.full_name}" {problem}: {text}'
    place = place_of_claim(placing.what_if, placing.pod, wanted.claim)
    if place is not None:
        candidates += requests.lower_count(place, wanted, {most, found.most_free()[1]})
    return Diagnosis(reason=Reason.TOO_FEW, text=text, candidates=tuple(candidates))


def _taken(placing: Placing, wanted: Wanted) -> Diagnosis:
    """Enough devices would do, but something stands in the way of too many of them: what counts for most."""
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
    return _obstacle_cause(placing, wanted, max(there, key=weight))


def _obstacle_cause(placing: Placing, wanted: Wanted, obstacle: Obstacle) -> Diagnosis:
    what_if, found = placing.what_if, wanted.found
    place = place_of_claim(what_if, placing.pod, wanted.claim)
    tally = found.of(obstacle)[0]
    subject, verb = _subject(wanted, obstacle)
    candidates: list[Candidate] = []
    if obstacle is Obstacle.IN_USE:
        text = f"{subject} {verb} in use by {_holders(placing, wanted)}"
        text += _meant_to_share(placing, wanted, candidates)
    elif obstacle is Obstacle.TAINT:
        rules = drivers.taint_rules(what_if, wanted)
        has = "has" if verb == "is" else "have"
        text = f"{subject} {has} taint {tally.reason.actual}, which the request does not tolerate"
        text += f" (set by {named('DeviceTaintRule', [rule.metadata.name for rule in rules])})" if rules else ""
        candidates += drivers.device_taint(what_if, place, wanted)
    elif obstacle is Obstacle.FEATURE:
        text = f"{subject} cannot be used: {numbered(tally.count, tally.reason.text)}"
        candidates += drivers.gates(what_if)
    else:
        claims = sorted({claim for each in found.of(obstacle) for claim in each.claims})
        text = f"{subject} cannot be had: {numbered(tally.count, tally.reason.text)}"
        text += f" (the rest is held by {named('claim', claims)})" if claims else ""
        if place is not None:
            candidates += requests.less_capacity(place, wanted)
    candidates += holders.freed(what_if, placing.pod, wanted)
    node, free = found.most_free()
    if free:
        text += f"; node {node} has {free} free, the most of all"
    if wanted.leaf.all_devices:
        text = (
            f'request "{wanted.leaf.full_name}" asks for all devices of class {wanted.class_name} on a node, but {text}'
        )
    elif wanted.leaf.count > 1:
        text += f", and {wanted.leaf.count} are needed on one node"
    if place is not None:
        candidates += (
            requests.not_all(place, wanted) if wanted.leaf.all_devices else requests.lower_count(place, wanted, {free})
        )
    if found.count(Obstacle.SELECTOR):
        problem, more = _own_selectors(placing, wanted)
        candidates += more
        if problem:
            text += f'; and the selector of request "{wanted.leaf.full_name}" {problem}'
    candidates += nodes.another_node(what_if, _largest(placing, wanted))
    return Diagnosis(reason=_ON_DEVICES[obstacle], text=text, candidates=tuple(candidates))


def _subject(wanted: Wanted, obstacle: Obstacle) -> tuple[str, str]:
    """`all 8 devices of class x`, and the verb for it."""
    found = wanted.found
    number = found.count(obstacle)
    accepted = found.in_class - found.count(*SELECTING, *POOL)
    if accepted == 1:
        every = "the only device"
    elif number == accepted:
        every = "both devices" if accepted == 2 else f"all {accepted} devices"
    else:
        every = f"{number} of {accepted} devices"
    matching = " that satisfy its selectors" if found.count(*SELECTING) else ""
    return f"{every} of class {wanted.class_name}{matching}", "is" if number == 1 else "are"


def _holders(placing: Placing, wanted: Wanted) -> str:
    """Who has the devices: claims with their pods, and those of the gang that is being placed."""
    assert placing.survey is not None
    claims = {claim for tally in wanted.found.of(Obstacle.IN_USE) for claim in tally.claims}
    own = {claim for claim in claims if is_in_flight(placing.what_if, claim)}
    texts = [
        f"claim {holder.claim} ({named('pod', holder.pods) if holder.pods else 'which no pod uses'})"
        for holder in placing.survey.holders(wanted)
    ]
    more = len(claims) - len(own) - len(texts[:2])
    shown = texts[:2] + ([f"{count(more, 'more claim')}"] if more > 0 else [])
    if own:
        shown.append(f"{len(own)} of the gang's own pods")
    return " and ".join(shown)


def _meant_to_share(placing: Placing, wanted: Wanted, candidates: list[Candidate]) -> str:
    """For claims from a template that is configured to share devices: each pod gets a device of its own all the same."""
    place = place_of_claim(placing.what_if, placing.pod, wanted.claim)
    strategy = holders.sharing_strategy(wanted.claim)
    if not strategy or place is None or place.kind != "ResourceClaimTemplate":
        return ""
    candidates += holders.shared_claim(placing.what_if, placing.pod, wanted)
    return (
        f"; {place.spoken} configures {strategy}, but from a template each pod gets a claim, and with it a device, of its own: "
        "only pods that name the same ResourceClaim share"
    )


def _largest(placing: Placing, wanted: Wanted) -> NodeInfo | None:
    """A node that would do if it were empty."""
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
    if together:
        text = f"on node {info.name} there are devices for each request, but not together: {_clash(together)}"
        constrained = any(claim.spec.devices.constraints for claim in claims.values())
        reason = Reason.CONSTRAINT if constrained else Reason.TOGETHER
        return Diagnosis(reason=reason, text=text, candidates=tuple(candidates))
    status = placing.failure.status
    text = "; ".join(status.reasons) if status is not None else _split(placing, info)
    return Diagnosis(reason=Reason.TOGETHER, text=text, candidates=tuple(candidates))


def _clash(reasons: Sequence[RequestReason]) -> str:
    """What keeps requests apart, in a sentence for each that differs."""
    texts: dict[str, list[RequestReason]] = {}
    for reason in reasons:
        texts.setdefault(reason.together, []).append(reason)
    return "; ".join(
        f"for {named('request', [each.request for each in same])} {same[0].free} "
        f"{'device is' if same[0].free == 1 else 'devices are'} free, {text}"
        for text, same in texts.items()
    )


def _apart(placing: Placing, claims: Sequence[api.ResourceClaim]) -> list[Candidate]:
    candidates: list[Candidate] = []
    for claim in claims:
        place = place_of_claim(placing.what_if, placing.pod, claim)
        if place is None:
            continue
        candidates += requests.fewer_constraints(place, claim)
        for wanted in placing.wanted:
            if wanted.claim is claim:
                candidates += requests.lower_count(place, wanted, range(1, wanted.leaf.count))
    for wanted in placing.wanted:
        candidates += holders.freed(placing.what_if, placing.pod, wanted)
    return candidates


def _split(placing: Placing, info: NodeInfo) -> str:
    """Requests that can each be met, but on different nodes."""
    parts = []
    for wanted in placing.wanted:
        names = [name for name, found in wanted.found.nodes.items() if found.free >= max(wanted.leaf.count, 1)]
        where = f"only on {named('node', names)}" if names else "nowhere"
        parts.append(f'request "{wanted.leaf.full_name}" of class {wanted.class_name} can be met {where}')
    texts = [check.text for check in placing.checks[info.name]]
    return (
        f"no node can meet all of its requests: {'; '.join(parts)}" if len(parts) > 1 else "; ".join([*parts, *texts])
    )
