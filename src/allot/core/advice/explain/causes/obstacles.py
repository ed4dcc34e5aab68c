"""Causes in what keeps the pod from devices that its selectors accept: they are too few, in use, tainted, used up, or in a pool that is not complete."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.explain.causes import driver_pods, shut_out, states
from allot.core.advice.explain.causes.combining import combination_cause
from allot.core.advice.explain.causes.kinship import kin_advice, kinship, pods_text, related_text
from allot.core.advice.explain.causes.one_each import one_each
from allot.core.advice.explain.causes.partitioned import partitioned
from allot.core.advice.explain.causes.placing import POOL, SELECTING, Placing, users_on
from allot.core.advice.explain.causes.selectors import own_selectors
from allot.core.advice.explain.causes.silent import silent
from allot.core.advice.explain.causes.used_up import accepted_count, numbered_devices, used_up_text, with_node
from allot.core.advice.explain.causes.vendors import drivers_by_node, is_of_others
from allot.core.advice.explain.devices import (
    Wanted,
    device_id,
    find_claim,
    is_in_flight,
    nodes_of,
)
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, place_of_claim
from allot.core.advice.explain.holding import (
    Possessor,
    are_siblings,
    comes_back,
    done_text,
    importance,
    possessor,
    priorities_text,
)
from allot.core.advice.explain.remedies import drivers, holders, nodes, requests, selectors
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import count, joined, named
from allot.core.advice.what_if import full_name
from allot.core.allocation.devices import DeviceID
from allot.core.allocation.reasons import FRACTIONS
from allot.core.explain import Obstacle, numbered
from allot.core.lifecycle.claim_owners import group_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import NodeInfo

# What excludes devices that the selectors accept.
ON_DEVICES = {
    Obstacle.TAINT: Reason.TAINT,
    Obstacle.FEATURE: Reason.FEATURE,
    Obstacle.COUNTER: Reason.COUNTERS,
    Obstacle.COMPATIBILITY_GROUP: Reason.COUNTERS,
    Obstacle.CAPACITY: Reason.CAPACITY,
    Obstacle.IN_USE: Reason.IN_USE,
}
# Of more than this many, only the longest holders are named.
_HOLDERS_LOOKED_AT_MAX = 200
_NAMED_MAX = 3
_ENOUGH = 10**9


def would_do_with_pool(placing: Placing, wanted: Wanted) -> bool:
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


def pool_cause(placing: Placing, wanted: Wanted) -> Diagnosis:
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
    complaint = _not_publishing(placing, pool.driver, homes)
    text = f"{pool.sentence()}, {lost}" + (f"; {complaint.text}" if complaint is not None else "")
    log = ("the driver's log on the node says why it has not published the rest",) if complaint is None else ()
    pods = driver_pods.plugins(placing.what_if, pool.driver, homes[0]) if homes else []
    plugin = f"pod {full_name(pods[0])}" if len(pods) == 1 else ""
    candidates = (*pool.candidates(complaint.advice if complaint is not None else "", plugin), *freed)
    return Diagnosis(reason=Reason.POOL_INCOMPLETE, text=text, candidates=candidates, advice=log)


def _not_publishing(placing: Placing, driver: str, homes: Sequence[str]) -> driver_pods.FailingPod | None:
    """What is wrong with the pod that publishes a pool: the plugin on its node, or, for devices of no node, a controller."""
    found = driver_pods.complaint(placing.what_if, driver, homes[0]) if homes else None
    failing = driver_pods.failing(placing.what_if, driver, homes[0] if homes else "", controllers=not homes)
    return found or next(iter(failing), None)


def too_few(placing: Placing, wanted: Wanted, most: int) -> Diagnosis:
    found = wanted.found
    selecting = found.count(*SELECTING)
    best = max(found.nodes, key=lambda name: found.nodes[name].in_class - found.nodes[name].count(*SELECTING, *POOL))
    what = f"devices of class {wanted.class_name}" + (" that satisfy its selectors" if selecting else "")
    text = (
        f"{placing.request_text(wanted)} needs {wanted.leaf.count} {what} on one node, but no node has more than {most} "
        f"(node {best})"
    )
    problem, candidates = own_selectors(placing, wanted) if selecting else ("", [])
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
    split = not selecting and place is not None and accepted_count(wanted) >= wanted.leaf.count
    advice = (f"spread the work over {pods} pods with {most} devices each",) if split and most > 1 else ()
    return Diagnosis(reason=Reason.TOO_FEW, text=text, candidates=tuple(candidates), advice=advice)


def all_taken(placing: Placing, wanted: Wanted) -> Diagnosis:
    """Enough devices fit, but too many of them are excluded: the main obstacle."""
    found = wanted.found

    def weight(obstacle: Obstacle) -> int:
        alone = any(
            each.free + each.count(obstacle) >= (each.in_class if wanted.leaf.all_devices else wanted.leaf.count)
            for each in found.nodes.values()
            if each.in_class
        )
        return found.count(obstacle) + (_ENOUGH if alone else 0)

    there = [obstacle for obstacle in ON_DEVICES if found.count(obstacle)]
    if not there:
        return combination_cause(placing)
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
    single = one_each(placing, wanted) if obstacle is Obstacle.IN_USE else None
    if obstacle is Obstacle.IN_USE:
        text = _in_use(placing, wanted) + (single.text if single is not None else "")
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
        text = f"{subject} cannot be used: {numbered_devices(wanted, tally)}"
        if drivers.UNDECLARED in tally.reason.text:
            names = [name for name, there in found.nodes.items() if there.count(obstacle)]
            do = "does" if len(names) == 1 else "do"
            text = text.replace(drivers.UNDECLARED, f"{named('node', names)} {do} not declare")
            candidates += drivers.declared(what_if, tally, names)
        candidates += drivers.gates(what_if)
    else:
        text = used_up_text(placing, wanted, obstacle, subject, verb)
        if place is not None:
            candidates += requests.less_capacity(what_if, place, wanted)
        if obstacle is Obstacle.CAPACITY:
            candidates += holders.with_amount(what_if, placing.pod, wanted)
        if FRACTIONS in text:
            candidates += drivers.gate(what_if, FRACTIONS)
    if obstacle is not Obstacle.TAINT and found.count(Obstacle.TAINT):
        candidates += drivers.device_taint(what_if, placing.pod, place, wanted, hurry=_outranks(placing, wanted))
    divided = partitioned(placing, wanted)
    text = f"{divided.text}; {text}" if divided is not None else text
    candidates += divided.candidates if divided is not None else ()
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
        text += (
            _fall_short(placing, wanted)
            if obstacle is Obstacle.IN_USE and excluded is None and divided is None and not near
            else ""
        )
        problem, more = own_selectors(placing, wanted)
        candidates += more
        if problem:
            text += f"; and the selector of {placing.request_text(wanted)} {problem}"
    if single is not None and single.advice:
        return Diagnosis(reason=Reason.IN_USE, text=text, candidates=tuple(candidates), advice=single.advice)
    candidates += nodes.another_node(what_if, _largest(placing, wanted))
    advice = kin_advice(what_if, placing.pod, text)
    return Diagnosis(reason=ON_DEVICES[obstacle], text=text, candidates=tuple(candidates), advice=advice)


def _tainted(placing: Placing, wanted: Wanted, subject: str) -> str:
    """Which devices have which taints; of many, their number and the first taint. subject: with its verb."""
    tallies = wanted.found.of(Obstacle.TAINT)
    number = wanted.found.count(Obstacle.TAINT)
    rest = ", which the request does not tolerate"
    if number > _NAMED_MAX or accepted_count(wanted) == 1 or placing.resource_of(wanted):
        taints = [
            f"{tally.reason.actual} ({tally.count})" if len(tallies) > 1 else tally.reason.actual for tally in tallies
        ]
        return f"{subject} {named('taint', taints)}{rest}"
    taken = wanted.found.count(Obstacle.IN_USE) == accepted_count(wanted) - number
    which = f"the only {'one' if number == 1 else 'ones'} of class {wanted.class_name} {'that is' if number == 1 else 'that are'} not in use"
    of = which if taken else f"of class {wanted.class_name}"
    texts = []
    for tally in tallies:
        names = [with_node(placing, device) for device in tally.devices]
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
    there = f"of the {found.in_class} of node {node}, {free} {'is' if free == 1 else 'are'} free and the rest in use by {pods_text(placing.what_if, users)}"
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
        for each in (*driver_pods.left_out_with_devices(placing.what_if, driver), *silent(placing.what_if, driver))
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
    text = f"{nodes_text} {'publishes' if len(bare) == 1 else 'publish'} no devices of class {wanted.class_name} ({driver_pods.of_all(bare)})"
    if like is None:
        return text, []
    patches = nodes.slices_like(placing.what_if, like, first.node)
    return text, [Candidate(rank=Rank.NODE, text=first.advice, patches=tuple(patches))]


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


def _subject(placing: Placing, wanted: Wanted, obstacle: Obstacle, *, fewer: int = 0) -> tuple[str, str]:
    """`all 8 devices of class x`, and the verb for it. fewer: how many of them do not count."""
    found = wanted.found
    number = found.count(obstacle) - fewer
    accepted = accepted_count(wanted)
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
    text = related_text(what_if, pod, found, more)
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
