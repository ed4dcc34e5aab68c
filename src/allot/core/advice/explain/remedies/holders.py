"""Devices that others hold: who would have to release them, and claims that could be shared or recreated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.keepers import Keeper, idle_keeper
from allot.core.advice.explain.causes.kinship import deployment_of, made_by
from allot.core.advice.explain.causes.vendors import is_accelerator
from allot.core.advice.explain.devices import TAKEN, Wanted, device_id, find_claim, is_in_flight, users_of
from allot.core.advice.explain.diagnosis import (
    Candidate,
    ClaimPlace,
    Rank,
    claim_object,
    delete_of,
    patch_of,
    place_of_claim,
    pointer,
    request_path,
    template_object,
)
from allot.core.advice.explain.holding import (
    FITS_TOO,
    OVERDUE_MIN_S,
    Possessor,
    are_siblings,
    comes_back,
    controller_of,
    ends_by_itself,
    force_text,
    groups_text,
    importance,
    is_silent,
    is_stranded,
    overdue,
    possessor,
    recover_text,
    still_running,
)
from allot.core.advice.explain.moving import Successor, fits_again, makes_way, other_place
from allot.core.advice.explain.wording import duration, listed, named
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster, as_json, full_name
from allot.core.allocation.devices import DeviceEntry, DeviceID
from allot.core.explain import Obstacle
from allot.core.lifecycle.claim_owners import claim_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.apps_v1 import Deployment

_OPTIONS_MAX = 8
# For a counted capacity without a requested amount.
_SOME_AMOUNT = "1"
_NODES_MAX = 64
# Commands that end well-known sidecars.
_QUIT = {"istio-proxy": "pilot-agent request POST quitquitquit"}


# A claim and how many devices it has.
Held = tuple[Possessor, int]


# What a pod that goes loses: nothing in any order of scheduling, its place, or everything.
_MAKES_WAY, _MOVES, _LEAVES = range(3)


class _Option(NamedTuple):
    """Claims on a node that free enough devices if released. cost: how much that matters; goes_to: where their pods
    could go instead."""

    cost: tuple[int, ...]
    node: str
    chosen: tuple[Held, ...]
    # Not the least important ones: useful only if they fit elsewhere.
    if_movable: bool = False
    goes_to: tuple[str, ...] = ()
    # What its pod would use instead, if that leaves room in either order of scheduling.
    successor: Successor | None = None
    # Where its pod fits again beside the one that it makes room for, if that one comes first.
    again_on: str = ""


def freed(what_if: WhatIfCluster, pod: core_v1.Pod, *requests: Wanted) -> Iterator[Candidate]:
    """Others release devices that one of the requests could use: the least important ones, never of higher priority."""
    options: dict[tuple[str, ...], _Option] = {}
    for wanted in requests:
        for option in _options(what_if, pod, wanted):
            options.setdefault(tuple(full_name(each.claim) for each, _ in option.chosen), option)
    ranked = sorted(options.values(), key=lambda each: (each.cost, each.node))
    yield from (_let_go(what_if, pod, each) for each in ranked)


def _options(what_if: WhatIfCluster, pod: core_v1.Pod, wanted: Wanted) -> list[_Option]:
    """Whose claims could be released for a request."""
    # Counters and shares do not add up as devices do: any single holder may be enough.
    adds_up = all(tally.reason.obstacle is Obstacle.IN_USE for tally in wanted.found.of(*TAKEN))
    options: list[_Option] = []
    for node, claims in _held_by_node(what_if, wanted).items():
        found = wanted.found.nodes.get(node)
        free = found.free if found is not None else 0
        needed = found.in_class if wanted.leaf.all_devices and found is not None else wanted.leaf.count
        held = _who_may_go(what_if, pod, claims)
        enough = _enough(held, max(1, needed - free))
        sets = [enough] if enough else []
        # Nor does a number help where enough are free but do not go together: it matters which are.
        if not adds_up or free >= max(1, needed):
            sets += [[each] for each in held]
            sets += [held[:end] for end in range(2, len(held) + 1)][:_OPTIONS_MAX]
        options += [_option(pod, node, each) for each in sets if each]
        others = [each for each in held if [each] not in sets and each[1] >= max(1, needed - free)]
        options += [_option(pod, node, [each])._replace(if_movable=True) for each in others[:_OPTIONS_MAX]]
    if not adds_up:
        options = [each._replace(cost=_with_loss(what_if, wanted, each)) for each in options]
    distinct: dict[tuple[str, ...], _Option] = {}
    for option in sorted(options, key=lambda each: (each.if_movable, each.cost, each.node)):
        names = tuple(full_name(each.claim) for each, _ in option.chosen)
        if len(distinct) < _OPTIONS_MAX:
            distinct.setdefault(names, option)
    asked = [_movable(what_if, pod, each) for each in distinct.values()]
    if not adds_up:
        asked = [_beside(what_if, pod, each) for each in asked]
    return [each for each in asked if each.goes_to or each.successor or not each.if_movable]


def _movable(what_if: WhatIfCluster, waiting: core_v1.Pod, option: _Option) -> _Option:
    """An option costs less if the displaced pods fit elsewhere, and still less if they leave room even when they are scheduled first."""
    pods = [pod for who, _ in option.chosen for pod in who.pods]
    places = [other_place(what_if, pod, other_devices=True) for pod in pods] if len(pods) == 1 else []
    moves = bool(places) and all(places)
    successor = makes_way(what_if, pods[0], waiting) if len(pods) == 1 and controller_of(pods[0]) else None
    effort = _MAKES_WAY if successor is not None else _MOVES if moves else _LEAVES
    priority, loss, *rest = option.cost
    return option._replace(
        cost=(priority, loss, effort, *rest), goes_to=tuple(places) if moves else (), successor=successor
    )


def _beside(what_if: WhatIfCluster, waiting: core_v1.Pod, option: _Option) -> _Option:
    """An option with a part of a device costs less if its pod then fits again, with another part."""
    pods = [pod for who, _ in option.chosen for pod in who.running]
    if len(pods) != 1 or option.goes_to or option.successor:
        return option
    node = fits_again(what_if, pods[0], waiting)
    priority, loss, _, *rest = option.cost
    return option._replace(cost=(priority, loss, _MOVES, *rest), again_on=node) if node else option


def _with_loss(what_if: WhatIfCluster, wanted: Wanted, option: _Option) -> tuple[int, ...]:
    """The cost of an option, with whether others lose more of what devices are divided into than the request gets."""
    priority, _, *rest = option.cost
    inventory = what_if.claims.inventory
    devices = [device_id(tally.devices[0]) for tally in wanted.found.of(Obstacle.COUNTER)]
    gets = max((_drawn(entry) for id_ in devices for entry in inventory.devices_named(id_)), default=0)
    held = [DeviceID(each.driver, each.pool, each.device) for one in option.chosen for each in _results(one)]
    lose = sum(_drawn(entry) for id_ in held for entry in inventory.devices_named(id_))
    return priority, int(lose > gets > 0), *rest


def _drawn(entry: DeviceEntry) -> int:
    """How much a device draws on counters, in nano units."""
    return sum(counter.value.nano for each in entry.device.consumes_counters for counter in each.counters.values())


def _who_may_go(what_if: WhatIfCluster, pod: core_v1.Pod, claims: dict[str, int]) -> list[Held]:
    """Claims and their device counts, least important first; without the pod's own and its siblings', and without
    those of pods that are more important."""
    found = []
    for name, devices in claims.items():
        claim = find_claim(what_if, name)
        if claim is None or is_in_flight(what_if, name):
            continue
        who = possessor(what_if, claim)
        if who.running and not who.done and (are_siblings(pod, who.running) or any(map(comes_back, who.running))):
            continue
        if who.priority <= (pod.spec.priority or 0) and all(user.metadata.uid != pod.metadata.uid for user in who.pods):
            found.append((who, devices))
    return sorted(
        found,
        # A replica that nobody recreates is as important as the pod.
        key=lambda each: (
            each[0].priority,
            any(_is_replica(pod, other) for other in each[0].running),
            importance(each[0], each[1], pod.metadata.namespace),
        ),
    )


def _enough(held: Sequence[Held], lacking: int) -> list[Held]:
    """As few as possible of the least important claims; none if all together are not enough."""
    if sum(devices for _, devices in held) < lacking:
        return []
    chosen: list[Held] = []
    total = 0
    for each in held:
        if total >= lacking:
            break
        chosen.append(each)
        total += each[1]
    for each in list(reversed(chosen)):
        if total - each[1] >= lacking:
            chosen.remove(each)
            total -= each[1]
    return chosen


def _option(pod: core_v1.Pod, node: str, chosen: Sequence[Held]) -> _Option:
    foreign = sum(who.claim.metadata.namespace != pod.metadata.namespace for who, _ in chosen)
    priority = max(who.priority for who, _ in chosen)
    devices = sum(number for _, number in chosen)
    # With the devices that do not matter here: who has fewer loses less.
    everything = sum(len(_results(each)) for each in chosen)
    peers = sum(any(_is_peer(pod, each) for each in who.running) for who, _ in chosen)
    # Who holds only a network device loses less than who computes with a GPU.
    accelerators = sum(is_accelerator(result.driver) for each in chosen for result in _results(each))
    cost = (priority, 0, peers, len(chosen), devices, accelerators, foreign, everything, sum(map(_share, chosen)))
    return _Option(cost, node, tuple(chosen))


def _is_peer(pod: core_v1.Pod, other: core_v1.Pod) -> bool:
    """Whether two pods do the same work: the same images, with devices from the same templates."""
    return pod.metadata.namespace == other.metadata.namespace and _work(pod) == _work(other)


def _is_replica(pod: core_v1.Pod, other: core_v1.Pod) -> bool:
    """Whether two pods that no controller makes do the same work, and are called so: serve-0 and serve-1."""
    stems = {each.metadata.name.rpartition("-")[0] for each in (pod, other)}
    return _is_peer(pod, other) and len(stems) == 1 and "" not in stems


def _work(pod: core_v1.Pod) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    images = tuple(each.image for each in pod.spec.containers)
    return images, tuple(each.resource_claim_template_name for each in pod.spec.resource_claims)


def _results(held: Held) -> Sequence[api.DeviceRequestAllocationResult]:
    allocation = held[0].claim.status.allocation
    return allocation.devices.results if allocation is not None else ()


def _share(held: Held) -> int:
    """How much of shared capacities a claim holds, in nano units."""
    return sum(amount.nano for result in _results(held) for amount in result.consumed_capacity.values())


def _held_by_node(what_if: WhatIfCluster, wanted: Wanted) -> dict[str, dict[str, int]]:
    """By node: claims that hold devices there, and how many."""
    by_node: dict[str, dict[str, int]] = {}
    for tally in wanted.found.of(*TAKEN):
        for name, number in tally.claims.items():
            claim = find_claim(what_if, name)
            allocation = claim.status.allocation if claim is not None else None
            pools = {result.pool for result in allocation.devices.results} if allocation is not None else set()
            # Most drivers name a node's pool after the node.
            node = next((pool for pool in pools if pool in tally.nodes), next(iter(tally.nodes)))
            if node in by_node or len(by_node) < _NODES_MAX:
                by_node.setdefault(node, {})[name] = number
    return by_node


def _let_go(what_if: WhatIfCluster, waiting: core_v1.Pod, option: _Option) -> Candidate:
    patches: dict[str, Patch] = {}
    for who, _ in option.chosen:
        for pod in who.pods:
            patches[f"pod {full_name(pod)}"] = delete_of("Pod", pod.metadata.name, pod.metadata.namespace)
        for group in who.groups:
            patches[f"PodGroup {full_name(group)}"] = delete_of(
                "PodGroup", group.metadata.name, group.metadata.namespace
            )
        if not who.pods:
            metadata = who.claim.metadata
            patches[f"claim {full_name(who.claim)}"] = (
                _given_back(who.claim)
                if who.is_going
                else delete_of("ResourceClaim", metadata.name, metadata.namespace)
            )
    idle = all(who.is_idle for who, _ in option.chosen)
    # Network-attached devices are used on nodes other than the one considered.
    homes = sorted({pod.spec.node_name for who, _ in option.chosen for pod in who.pods})
    where = f" on {named('node', homes)}" if homes else ""
    unseen = [name for who, _ in option.chosen if not who.pods for name in who.unseen]
    waits = False
    gist = ""
    forgotten = None
    done = [pod for who, _ in option.chosen for pod in who.done] if all(who.done for who, _ in option.chosen) else []
    groups = [group for who, _ in option.chosen for group in who.groups]
    ended = bool(groups) and all(who.groups and not who.pods and not who.unseen for who, _ in option.chosen)
    if ended:
        text = f"delete {groups_text(groups)}"
    elif all(who.is_lost for who, _ in option.chosen):
        text = force_text([pod for who, _ in option.chosen for pod in who.stranded])
    elif all(who.ending and not who.running and not who.stranded for who, _ in option.chosen):
        text, waits = going(what_if, [pod for who, _ in option.chosen for pod in who.ending], where)
    elif (forgotten := forgotten_by(what_if, [who for who, _ in option.chosen])) is not None:
        text = f"{forgotten.advice}; or clear status.reservedFor and status.allocation of {listed(patches, 4)}, if its owner agrees"
    elif unseen:
        waits = True
        text = f"wait until {listed(unseen)} {'ends' if len(unseen) == 1 else 'end'}, and with it the use of {listed(patches, 4)}"
    elif idle and any(who.is_going and not who.pods for who, _ in option.chosen):
        text = (
            f"clear status.reservedFor and status.allocation of {listed(patches, 4)}, which no pod uses: the resource claim "
            "controller should have done so; check that the controller manager runs"
        )
    elif idle:
        over = all(who.finished for who, _ in option.chosen)
        why = f"which {'has' if len(patches) == 1 else 'have'} finished" if over else "which no pod uses now"
        text = f"delete {listed(patches, 4)}, {why}"
    elif done:
        text = _stopped(waiting, done, where)
    else:
        them = "it ends" if len(patches) == 1 else "they end"
        other = _elsewhere(waiting, option, homes)
        # Servers do not end.
        ends = "" if option.successor is not None and not _may_end(option) else f", or wait until {them}"
        text = f"delete {listed(patches, 4)}{where}{other}{ends}"
        scaled = _scaled(what_if, waiting, [pod for who, _ in option.chosen for pod in who.pods])
        if scaled and not other:
            gist = scaled
            text = f"{scaled}, so that, for example, {listed(patches, 4)}{where} {'leaves' if len(patches) == 1 else 'leave'}"
    unmissed = (
        all(who.is_idle or who.is_lost for who, _ in option.chosen) or forgotten is not None or bool(done) or ended
    )
    # No one needs these: they go before the pod asks for less.
    rank = Rank.FEWER - 1 if unmissed else Rank.OTHERS + min(len(patches) - 1, 1)
    return Candidate(rank=rank, text=text, patches=tuple(patches.values()), waits=waits, gist=gist)


def _may_end(option: _Option) -> bool:
    return all(ends_by_itself(pod) for who, _ in option.chosen for pod in who.pods)


def _elsewhere(waiting: core_v1.Pod, option: _Option, homes: Sequence[str]) -> str:
    """Where the pods of an option would fit as well; empty if nowhere."""
    if option.again_on:
        return f" (it then fits on node {option.again_on} again, beside {waiting.metadata.name})"
    successor = option.successor
    if successor is not None and successor.devices and [successor.node] == list(homes):
        return f" (its successor there then uses {named('device', successor.devices)})"
    places = (successor.node,) if successor is not None else option.goes_to
    return f" ({FITS_TOO} {named('node', places)})" if places else ""


def _scaled(what_if: WhatIfCluster, waiting: core_v1.Pod, pods: Sequence[core_v1.Pod]) -> str:
    """How another Deployment gives up pods: it would replace one that is only deleted. Empty for other pods."""
    names = {(pod.metadata.namespace, deployment_of(what_if, pod)) for pod in pods}
    namespace, name = next(iter(names), ("", ""))
    if (
        len(names) != 1
        or not name
        or (namespace, name) == (waiting.metadata.namespace, deployment_of(what_if, waiting))
    ):
        return ""
    deployment = what_if.get(Deployment, name, namespace)
    replicas = deployment.spec.replicas if deployment is not None else None
    left = f" (to {replicas - len(pods)} replicas)" if replicas is not None and replicas > len(pods) else ""
    number = "one" if len(pods) == 1 else str(len(pods))
    return f"scale Deployment {namespace}/{name} down by {number}{left}"


def _stopped(waiting: core_v1.Pod, pods: Sequence[core_v1.Pod], where: str) -> str:
    """How to end pods whose work is done: a Job would recreate one that is deleted. waiting: the pod that needs their devices."""
    names = named("pod", map(full_name, pods))
    running = dict.fromkeys(name for pod in pods for name in still_running(pod))
    makers = {maker.name for pod in pods if ends_by_itself(pod) and (maker := controller_of(pod)) is not None}
    other = named("Job", sorted(makers)) if makers else "the pod" if len(pods) == 1 else "the pods"
    delete = "" if are_siblings(waiting, pods) else f", or delete {other}"
    how = _QUIT.get(next(iter(running)), "") if len(running) == 1 and len(pods) == 1 else ""
    if how:
        first = pods[0].metadata
        how = f" (kubectl exec -n {first.namespace} {first.name} -c {next(iter(running))} -- {how})"
    return f"stop {named('container', running)}, which alone still {'runs' if len(running) == 1 else 'run'}, in {names}{where}{how}{delete}"


def forgotten_by(what_if: WhatIfCluster, found: Sequence[Possessor]) -> Keeper | None:
    """Claims that no pod uses, and whose users are objects of a component that does not run: no one else ends their use."""
    if not found or any(who.pods or not who.kinds for who in found):
        return None
    return idle_keeper(what_if, [kind for who in found for kind in who.kinds], "releases the claim")


def going(what_if: WhatIfCluster, pods: Sequence[core_v1.Pod], where: str = "") -> tuple[str, bool]:
    """What to do about terminating pods, and whether waiting is enough. where: their nodes."""
    names, one = named("pod", map(full_name, pods)), len(pods) == 1
    if all(is_silent(what_if, pod) for pod in pods):
        return recover_text(pods), False
    kept = dict.fromkeys(name for pod in pods for name in pod.metadata.finalizers)
    if kept:
        return (
            f"check {named('finalizer', kept)}, which {'keeps' if len(kept) == 1 else 'keep'} {names}{where}",
            False,
        )
    late = min(overdue(what_if, pod) for pod in pods)
    if late > OVERDUE_MIN_S:
        first = pods[0].metadata
        why = f"allot explain {first.name} -n {first.namespace}"
        return (
            f"find out why {names}{where}, which should have been gone {duration(late)} ago, {'hangs' if one else 'hang'}: {why}",
            False,
        )
    return (
        f"wait until {names}{where} {'is' if one else 'are'} gone, or force the deletion if {'it hangs' if one else 'they hang'}",
        True,
    )


def released(what_if: WhatIfCluster, pod: core_v1.Pod, claim: api.ResourceClaim) -> Iterator[Candidate]:
    """A claim allocated in the wrong place is released, or the pod gets another claim like it."""
    users = [user for user in users_of(what_if, claim) if user.metadata.uid != pod.metadata.uid]
    name = full_name(claim)
    if users:
        # Pods that name one claim are meant to share its devices: running where those are comes first.
        if are_siblings(pod, users):
            # Its workload makes all of them from one template, which can name no claim for each.
            yield from own_claims(what_if, pod, claim, Rank.OTHERS - 1)
        else:
            yield from second_claim(pod, claim, Rank.OTHERS - 1)
        stranded = all(is_stranded(what_if, user) for user in users)
        text = f"delete {named('pod', map(full_name, users))}, or wait until claim {name} is free"
        if stranded:
            text = force_text(users)
        elif all(user.metadata.deletion_timestamp and is_silent(what_if, user) for user in users):
            text = recover_text(users)
        yield Candidate(
            rank=Rank.NODE if stranded else Rank.ADMIN,
            text=text,
            patches=tuple(delete_of("Pod", user.metadata.name, user.metadata.namespace) for user in users),
        )
        return
    yield Candidate(
        rank=Rank.NODE,
        text=f"deallocate claim {name}, which no other pod uses, so that it gets other devices",
        patches=(_given_back(claim),),
    )


def _given_back(claim: api.ResourceClaim) -> Patch:
    """A claim without devices and users."""
    status = {"op": "remove", "path": "/status/allocation"}
    operations = [status, *([{"op": "remove", "path": "/status/reservedFor"}] if claim.status.reserved_for else [])]
    return patch_of("ResourceClaim", claim.metadata.name, *operations, namespace=claim.metadata.namespace)


def second_claim(pod: core_v1.Pod, claim: api.ResourceClaim, rank: int = Rank.CREATE) -> Iterator[Candidate]:
    """Another claim that asks for the same, for this pod."""
    namespace, name = claim.metadata.namespace, f"{claim.metadata.name}-2"
    spec = as_json(claim).get("spec", {})
    for index, entry in enumerate(pod.spec.resource_claims):
        if entry.resource_claim_name == claim.metadata.name:
            rename = {"op": "replace", "path": f"/spec/resourceClaims/{index}/resourceClaimName", "value": name}
            point = patch_of("Pod", pod.metadata.name, rename, namespace=namespace, recreate=True)
            yield Candidate(
                rank=rank,
                text=f"create a second claim, {namespace}/{name}, and use that one in the pod",
                patches=(Patch(action="create", object=claim_object(namespace, name, spec)), point),
            )


def own_claims(what_if: WhatIfCluster, pod: core_v1.Pod, claim: api.ResourceClaim, rank: int) -> Iterator[Candidate]:
    """A claim of its own, like the one that they share, for each pod of a workload."""
    namespace, name = claim.metadata.namespace, claim.metadata.name
    templates = [each for each in what_if.all(api.ResourceClaimTemplate) if each.metadata.namespace == namespace]
    same = next((each.metadata.name for each in templates if each.spec.spec == claim.spec), None)
    taken = {each.metadata.name for each in templates}
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    new = same or (name if name not in taken else next(each for each in numbered if each not in taken))
    spec = {"spec": as_json(claim).get("spec", {})}
    made = () if same else (Patch(action="create", object=template_object(namespace, new, spec)),)
    first = "" if same else f"create ResourceClaimTemplate {namespace}/{new} with the spec of claim {name}, and "
    for index, entry in enumerate(pod.spec.resource_claims):
        if entry.resource_claim_name == name:
            path = f"/spec/resourceClaims/{index}"
            value = {"name": entry.name, "resourceClaimTemplateName": new}
            operation = {"op": "replace", "path": path, "value": value}
            point = patch_of("Pod", pod.metadata.name, operation, namespace=namespace, recreate=True)
            yield Candidate(
                rank=rank,
                text=f"{first}set resourceClaimTemplateName: {new} instead of resourceClaimName: {name} in the pod",
                patches=(*made, point),
            )


# --- shares of a device ---


class Unlimited(NamedTuple):
    """A claim that holds all of a shared device's capacity because it names no amount. place: where it could."""

    claim: api.ResourceClaim
    place: ClaimPlace
    users: tuple[core_v1.Pod, ...]
    request: str
    capacity: str


def without_amount(what_if: WhatIfCluster, wanted: Wanted) -> list[Unlimited]:
    """Claims that hold devices which the request could share, and that name no amount of what is short."""
    names = dict.fromkeys(name for tally in wanted.found.of(Obstacle.CAPACITY) for name in tally.claims)
    found = []
    for name in list(names)[:_OPTIONS_MAX]:
        claim = find_claim(what_if, name)
        if claim is None or claim.status.allocation is None:
            continue
        users = users_of(what_if, claim)
        place = place_of_claim(what_if, users[0] if users else None, claim)
        for result in claim.status.allocation.devices.results:
            leaf = next((each.exactly for each in claim.spec.devices.requests if each.name == result.request), None)
            asked = leaf.capacity.requests if leaf is not None and leaf.capacity is not None else {}
            unnamed = [each for each in result.consumed_capacity if each not in asked]
            entries = what_if.claims.inventory.devices_named(DeviceID(result.driver, result.pool, result.device))
            whole = [
                each
                for each in unnamed
                for entry in entries
                if each in entry.device.capacity
                and entry.device.capacity[each].value.nano == result.consumed_capacity[each].nano
            ]
            if place is not None and leaf is not None and whole:
                found.append(Unlimited(claim, place, tuple(users), result.request, whole[0]))
    return found


def with_amount(what_if: WhatIfCluster, pod: core_v1.Pod, wanted: Wanted) -> Iterator[Candidate]:
    """Such a claim names as much as the request does, and its pods are recreated."""
    asked = wanted.leaf.request.capacity.requests if wanted.leaf.request.capacity is not None else {}
    for each in without_amount(what_if, wanted):
        if not each.users:
            continue
        amount = str(asked[each.capacity]) if each.capacity in asked else _SOME_AMOUNT
        places = {each.place.spoken: (each.place, each.claim.spec, each.request)}
        if each.capacity not in asked:
            # The pod's own request does not name it either.
            own = place_of_claim(what_if, pod, wanted.claim)
            places |= {own.spoken: (own, wanted.claim.spec, wanted.leaf.full_name)} if own is not None else {}
        patches = [_with_capacity(*place, each.capacity, amount) for place in places.values()]
        pods = named("pod", map(full_name, each.users))
        text = f"set capacity.requests {each.capacity} (such as {amount}) in {listed(places)}, and recreate {pods}"
        gone = (delete_of("Pod", user.metadata.name, user.metadata.namespace) for user in each.users)
        yield Candidate(rank=Rank.NODE + 3, text=text, patches=(*patches, *gone))


def _with_capacity(place: ClaimPlace, spec: api.ResourceClaimSpec, request: str, capacity: str, amount: str) -> Patch:
    """A request that names an amount of one more capacity."""
    path = f"{request_path(spec, request)}/capacity"
    name, _, alternative = request.partition("/")
    found = next(each for each in spec.devices.requests if each.name == name)
    leaf = found.exactly or next((each for each in found.first_available if each.name == alternative), None)
    if leaf is not None and leaf.capacity is not None:
        return place.patch({"op": "add", "path": f"{path}/requests/{pointer(capacity)}", "value": amount})
    return place.patch({"op": "add", "path": path, "value": {"requests": {capacity: amount}}})


# --- templates that were meant to share ---


def sharing_strategy(claim: api.ResourceClaim) -> str:
    """The sharing strategy in the configuration of a claim; empty if it has none."""
    for config in claim.spec.devices.config:
        parameters = (
            config.opaque.parameters.value() if config.opaque is not None and config.opaque.parameters else None
        )
        sharing = parameters.get("sharing") if isinstance(parameters, dict) else None
        if isinstance(sharing, dict) and isinstance(sharing.get("strategy"), str):
            return str(sharing["strategy"])
    return ""


def shared_claim(what_if: WhatIfCluster, pod: core_v1.Pod, wanted: Wanted) -> Iterator[Candidate]:
    """One claim for all pods that have claims from the same template."""
    place = place_of_claim(what_if, pod, wanted.claim)
    if place is None or place.kind != "ResourceClaimTemplate":
        return
    namespace, name = place.namespace, place.name
    index = next(i for i, entry in enumerate(pod.spec.resource_claims) if entry.resource_claim_template_name == name)
    path = f"/spec/resourceClaims/{index}"
    operations = (
        {"op": "remove", "path": f"{path}/resourceClaimTemplateName"},
        {"op": "add", "path": f"{path}/resourceClaimName", "value": name},
    )
    others = [
        other
        for tally in wanted.found.of(*TAKEN)
        for held in tally.claims
        if (claim := find_claim(what_if, held)) is not None
        for other in users_of(what_if, claim)
        if any(claim_name(other, entry) == claim.metadata.name for entry in other.spec.resource_claims)
        and any(entry.resource_claim_template_name == name for entry in other.spec.resource_claims)
    ]
    if not others:
        return
    other = others[0]
    maker = made_by(what_if, other)
    create, use = (
        f"create ResourceClaim {namespace}/{name} with the template's spec",
        "set it as resourceClaimName in this pod",
    )
    text = f"{create}, and {use} and in {maker or f'pod {full_name(other)}, which must be recreated'}"
    if maker and maker == made_by(what_if, pod):
        text = f"{create}, {use}, and delete pod {full_name(other)}, so that its device is free for that claim"
    yield Candidate(
        rank=Rank.CREATE,
        text=text,
        patches=(
            Patch(action="create", object=claim_object(namespace, name, as_json(wanted.claim).get("spec", {}))),
            patch_of("Pod", pod.metadata.name, *operations, namespace=namespace, recreate=True),
            delete_of("Pod", other.metadata.name, other.metadata.namespace),
        ),
    )
