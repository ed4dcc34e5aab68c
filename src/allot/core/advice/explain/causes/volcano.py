"""Volcano's groups that it has not let in. Their pods are created only then, so that nothing can be tried: the cause comes from the group,
its queue and what others of that queue use."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from allot.core.advice.explain.causes.keepers import idle_scheduler
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import listed, one_line
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model.core_v1 import Node
from allot.core.model.foreign_groups import VolcanoPodGroup
from allot.core.model.team_queues import VolcanoQueue
from allot.core.quantity import Quantity
from allot.core.workloads.ownership import controller_reference

_DEFAULT_QUEUE = "default"
_CLOSED = ("Closed", "Closing")
_PENDING, _LET_IN, _RUNNING = "Pending", "Inqueue", "Running"
_DEPTH_MAX = 10
_SCHEDULER = "volcano"


class _Excess(NamedTuple):
    """More than a queue, or one above it, may have. Amounts are in billionths."""

    queue: VolcanoQueue
    resource: str
    bound: Quantity
    used: int
    asked: Quantity


def not_let_in(what_if: WhatIfCluster, group: VolcanoPodGroup) -> Diagnosis:
    """Why a group without pods waits."""
    name = group.spec.queue or _DEFAULT_QUEUE
    queue = what_if.get(VolcanoQueue, name)
    queues = what_if.all(VolcanoQueue)
    if queue is None and queues:
        known = sorted(each.metadata.name for each in queues)
        meant = nearest(name, known)
        hint = f" (did you mean {meant}?)" if meant is not None else f" (there is {listed(known)})"
        fixes = (_requeued(group, meant),) if meant is not None else ()
        text = f"Volcano's queue {name} does not exist{hint}"
        return Diagnosis(reason=Reason.QUEUE_CLOSED, text=text, advice=(*fixes, f"create Queue {name}"))
    if queue is not None and queue.status.state in _CLOSED:
        text = f"Volcano's queue {name} is {queue.status.state.lower()}"
        return Diagnosis(reason=Reason.QUEUE_CLOSED, text=text, advice=(f"open Queue {name}",))
    over = next(_excesses(what_if, group, queue), None) if queue is not None else None
    if over is not None:
        return _over(what_if, group, over)
    return _beyond_nodes(what_if, group) or _idle(what_if) or _as_told(group)


def outside(what_if: WhatIfCluster, queues: Collection[str]) -> list[VolcanoPodGroup]:
    """Groups that wait to be let into one of these queues, by name."""
    return sorted(
        (
            each
            for each in what_if.all(VolcanoPodGroup)
            if each.status.phase == _PENDING and (each.spec.queue or _DEFAULT_QUEUE) in queues
        ),
        key=full_name,
    )


def _path(what_if: WhatIfCluster, queue: VolcanoQueue) -> list[VolcanoQueue]:
    """A queue and those above it."""
    found = [queue]
    while found[-1].spec.parent and len(found) < _DEPTH_MAX:
        above = what_if.get(VolcanoQueue, found[-1].spec.parent)
        if above is None:
            break
        found.append(above)
    return found


def _excesses(what_if: WhatIfCluster, group: VolcanoPodGroup, queue: VolcanoQueue) -> Iterator[_Excess]:
    for level in _path(what_if, queue):
        for resource, bound in sorted(level.spec.capability.items()):
            asked = group.spec.min_resources.get(resource)
            if asked is None or not asked.nano:
                continue
            used = _used(what_if, group, level, resource)
            if used + asked.nano > bound.nano:
                yield _Excess(level, resource, bound, used, asked)


def _used(what_if: WhatIfCluster, group: VolcanoPodGroup, queue: VolcanoQueue, resource: str) -> int:
    """What a queue has given away: to running pods, and to groups that were let in and have none yet."""
    others = _groups(what_if, group, queue)
    let_in = sum(_asked(each, resource) for each in others if each.status.phase == _LET_IN)
    allocated = queue.status.allocated.get(resource)
    running = sum(_asked(each, resource) for each in others if each.status.phase == _RUNNING)
    return let_in + (allocated.nano if allocated is not None else running)


def _asked(group: VolcanoPodGroup, resource: str) -> int:
    found = group.spec.min_resources.get(resource)
    return found.nano if found is not None else 0


def _groups(what_if: WhatIfCluster, group: VolcanoPodGroup, queue: VolcanoQueue) -> list[VolcanoPodGroup]:
    """Other groups of a queue and of those below it, by name."""
    found = []
    for each in what_if.all(VolcanoPodGroup):
        own = what_if.get(VolcanoQueue, each.spec.queue or _DEFAULT_QUEUE)
        if each is not group and own is not None and any(level is queue for level in _path(what_if, own)):
            found.append(each)
    return sorted(found, key=full_name)


def owner_of(group: VolcanoPodGroup) -> str:
    """`Job sim/wing`: what a group was made for, or the group itself."""
    maker = controller_reference(group.metadata)
    namespace = group.metadata.namespace
    return f"{maker.kind} {namespace}/{maker.name}" if maker is not None else f"PodGroup {full_name(group)}"


def _over(what_if: WhatIfCluster, group: VolcanoPodGroup, over: _Excess) -> Diagnosis:
    name, resource, asked = over.queue.metadata.name, over.resource, over.asked
    own = group.spec.queue or _DEFAULT_QUEUE
    users = [
        owner_of(each)
        for each in _groups(what_if, group, over.queue)
        if each.status.phase in (_RUNNING, _LET_IN) and _asked(each, resource)
    ]
    by = f" by {listed(users)}" if users else ""
    above = f" above queue {own}" if name != own else ""
    text = (
        f"Volcano's queue {name}{above} has capability {over.bound} of {resource}, of which {_text(over.used, over.bound)} are in use{by}, and the group "
        f"needs {asked} (minResources); its pods are created when that fits"
    )
    ends = f", or wait until {users[0] if len(users) == 1 else 'others of the queue'} {'ends' if len(users) == 1 else 'end'}"
    raised = f"raise spec.capability of {resource} in Queue {name} to {_text(over.used + asked.nano, over.bound)}"
    fits = asked.nano <= over.bound.nano
    advice = [raised + (ends if fits and over.used else "")]
    for other in sorted(what_if.all(VolcanoQueue), key=lambda each: each.metadata.name):
        if _has_room(what_if, group, other, resource):
            free = other.spec.capability[resource].nano - _used(what_if, group, other, resource)
            note = f", where {_text(free, over.bound)} of {resource} are free" if free else ""
            advice.append(f"{_requeued(group, other.metadata.name)}{note}")
            break
    fewer = group.spec.min_member * max(over.bound.nano - over.used, 0) // asked.nano
    if 0 < fewer < group.spec.min_member:
        advice.append(f"lower minAvailable of {owner_of(group)} to {fewer}")
    return Diagnosis(reason=Reason.QUEUE_LIMIT, text=text, advice=tuple(advice))


def _has_room(what_if: WhatIfCluster, group: VolcanoPodGroup, queue: VolcanoQueue, resource: str) -> bool:
    """Whether an open queue that is meant for such groups, as it says how much it may have, would take one."""
    return (
        resource in queue.spec.capability
        and queue.status.state not in _CLOSED
        and not any(each.spec.parent == queue.metadata.name for each in what_if.all(VolcanoQueue))
        and next(_excesses(what_if, group, queue), None) is None
    )


def _requeued(group: VolcanoPodGroup, queue: str) -> str:
    maker = controller_reference(group.metadata)
    if maker is None:
        return f"set spec.queue: {queue} in PodGroup {full_name(group)}"
    return f"recreate {owner_of(group)} with spec.queue: {queue}"


def _text(amount: int, like: Quantity) -> str:
    return str(Quantity.from_nano(amount, like.format))


def _beyond_nodes(what_if: WhatIfCluster, group: VolcanoPodGroup) -> Diagnosis | None:
    """More than all nodes together have."""
    totals: dict[str, int] = {}
    for node in what_if.all(Node):
        for resource, amount in node.status.allocatable.items():
            totals[resource] = totals.get(resource, 0) + amount.nano
    for resource, asked in sorted(group.spec.min_resources.items()):
        if 0 < totals.get(resource, 0) < asked.nano:
            has = _text(totals[resource], asked)
            text = f"the group needs {asked} {resource} (minResources), and all nodes together have {has}"
            return Diagnosis(
                reason=Reason.RESOURCES,
                text=text,
                advice=(f"add nodes with {resource}, or let {owner_of(group)} ask for less",),
            )
    return None


def _idle(what_if: WhatIfCluster) -> Diagnosis | None:
    """Volcano's scheduler does not run, so nobody lets groups in."""
    idle = idle_scheduler(what_if, _SCHEDULER)
    if idle is None:
        return None
    text = f"Volcano's scheduler does not run, and its pods are created only when that lets it in: {idle.text}"
    return Diagnosis(reason=Reason.COMPONENT_DOWN, text=text, advice=(idle.advice,))


def _as_told(group: VolcanoPodGroup) -> Diagnosis:
    """What Volcano itself says."""
    said = [each for each in group.status.conditions if each.type == "Unschedulable" and each.status == "True"]
    queue = group.spec.queue or _DEFAULT_QUEUE
    if said and said[-1].message:
        text = f"Volcano has not let it in from queue {queue}, and creates its pods only then: {one_line(said[-1].message)}"
        return Diagnosis(
            reason=Reason.QUEUE_LIMIT,
            text=text,
            advice=(f"wait until others end, or see queue {queue}: allot explain queue/{queue}",),
        )
    text = f"Volcano has not let it in from queue {queue}, and creates its pods only then"
    return Diagnosis(
        reason=Reason.NOT_OBSERVED, text=text, advice=("check that Volcano's scheduler and controllers run",)
    )
