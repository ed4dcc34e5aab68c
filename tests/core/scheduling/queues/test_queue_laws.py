"""Laws of queues on random clusters: limits hold at every moment, what is counted is what is taken, nothing oscillates, and at rest nobody
waits who has a right to room that is there."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import msgspec
import pytest

from allot.core.features import ALL_GATES
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode
from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import KAI, KaiPodGroup
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import Bound, Decision, Machine, ObjectChange, Settings
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.queueing.queue import group_key, group_name_of
from allot.core.scheduling.queues.amounts import ONE, UNLIMITED
from allot.core.scheduling.queues.in_force import InForce
from allot.core.scheduling.queues.jobs import Job, Task, asked, units_of
from allot.core.scheduling.queues.limits import excess
from allot.core.scheduling.queues.reclaim_rules import Reclaimer, may_try, objection
from allot.core.scheduling.queues.takeover import Takeovers

from ..cluster_world import node, pod_group
from ..device_world import DRIVER, claim, device_class, either, exactly, slice_of
from .test_machine_queues import GPU, kai_queue, team_pod

# `make nightly` plays 200 seeds of each law.
RUNS = int(os.environ.get("ALLOT_RUNS", "12"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(30 * RUNS)]

SECONDS = 1_000_000.0
LEAVES = ("a", "b", "c")


def _kind(name: str, **more: Any) -> dict[str, Any]:
    return {"attributes": {"kind": {"string": name}}, **more}


def _of_kind(name: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "{name}"'}}]


class World:
    """A machine with queues and devices of several kinds, and an API server that does what it says."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.machine = Machine({"s": Settings()}.get, ALL_GATES)
        self.machine.serve(KAI)
        self.now = 0.0
        self.pods: dict[str, Pod] = {}
        self.claims: dict[str, api.ResourceClaim] = {}
        self.groups: dict[str, PodGroup] = {}
        # Groups of KAI: what each of their parts needs.
        self.in_parts: dict[str, dict[str, int]] = {}
        self.evicted = 0
        self.numbers = iter(range(10_000))
        for name in ("whole", "shared", "half"):
            self._apply(None, device_class(f"{name}-gpu", selectors=_of_kind(name)))
        for number in range(dice.randint(1, 3)):
            self._add_node(f"n{number}")
        self._apply(None, kai_queue("top", quota=-1))
        self._apply(None, kai_queue("d", "top", quota=3, limit=dice.choice([-1, 5])))
        for name in LEAVES:
            parent = "d" if name != "c" else "top"
            quota, limit = dice.choice([0, 1, 2]), dice.choice([-1, 2, 3])
            self._apply(None, kai_queue(name, parent, quota=quota, limit=limit, priority=dice.choice([100, 100, 200])))

    def _add_node(self, name: str) -> None:
        self._apply(None, node(name, cpu="64", memory="64Gi", **{GPU: str(self.dice.randint(0, 2))}))
        capacity = {"memory": {"value": "8"}}
        counters = [{"counterSet": "board", "counters": {"slices": {"value": "1"}}}]
        devices = [
            *({"name": f"w{number}", **_kind("whole")} for number in range(self.dice.randint(1, 3))),
            {"name": "s0", **_kind("shared"), "allowMultipleAllocations": True, "capacity": capacity},
            *({"name": f"h{number}", **_kind("half"), "consumesCounters": counters} for number in range(2)),
        ]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
        shared = [{"name": "board", "counters": {"slices": {"value": "2"}}}]
        self._apply(None, slice_of(name, devices, pool=pool))
        self._apply(None, slice_of(name, [], name=f"{name}-counters", pool=pool, sharedCounters=shared))

    def _apply(self, old: Any, new: Any) -> None:
        self.machine.apply(ObjectChange(old, new), self.now)

    # --- events ---

    def happen(self) -> None:
        """Something that users do."""
        names = sorted(self.pods)
        what = self.dice.randint(0, 9)
        if what <= 1 and names:
            self._delete(self.dice.choice(names))
        elif what == 2:
            self._add_gang()
        elif what == 3:
            self._add_gang_in_parts()
        else:
            self._add(self.dice.choice(LEAVES), self._request())

    def _request(self) -> dict[str, Any] | int:
        every = {"deviceClassName": "whole-gpu", "allocationMode": "All"}
        share = {"requests": {"memory": str(self.dice.choice([2, 4, 8]))}}
        return self.dice.choice(
            [
                1,
                2,
                exactly(count=self.dice.randint(1, 2), class_name="whole-gpu"),
                {"name": "r", "exactly": every},
                either("r", ("two", "whole-gpu", 2), ("half", "half-gpu", 1)),
                exactly(class_name="shared-gpu", capacity=share),
                exactly(class_name="half-gpu"),
            ]
        )

    def _add(self, queue: str, request: dict[str, Any] | int, group: str = "", part: str = "") -> None:
        number = next(self.numbers)
        name = f"{queue}{number}"
        spec: dict[str, Any] = {"schedulingGroup": {"podGroupName": group}} if group and not part else {}
        count = request if isinstance(request, int) else 0
        if not isinstance(request, int):
            self.claims[name] = claim(name, request)
            self._apply(None, self.claims[name])
            spec["resourceClaims"] = [{"name": "d", "resourceClaimName": name}]
        priority = 50 if group else self.dice.choice([50, 50, 60, 100])
        made = team_pod(name, queue, count, priority=priority, age=number % 60, **spec)
        if part:
            labels = {**made.metadata.labels, "kai.scheduler/subgroup-name": part}
            metadata = msgspec.structs.replace(made.metadata, labels=labels, annotations={"pod-group-name": group})
            made = msgspec.structs.replace(made, metadata=metadata)
        self.pods[name] = made
        self._apply(None, made)

    def _add_gang_in_parts(self) -> None:
        """A leader and workers, all of which have to be there; workers beyond the minimum may come or not."""
        queue, name, least = self.dice.choice(LEAVES), f"k{next(self.numbers)}", self.dice.choice([1, 2])
        parts = [{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": least}]
        body = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"queue": queue, "subGroups": parts}}
        self.in_parts[name] = {"leader": 1, "worker": least}
        self._apply(None, decode(body, KaiPodGroup).object)
        self._add(queue, self.dice.choice([1, exactly(class_name="half-gpu")]), name, "leader")
        request = self.dice.choice([1, exactly(class_name="whole-gpu")])
        for _ in range(self.dice.randint(least, least + 1)):
            self._add(queue, request, name, "worker")

    def _add_gang(self) -> None:
        queue, name, least = self.dice.choice(LEAVES), f"g{next(self.numbers)}", self.dice.choice([2, 2, 3])
        self.groups[name] = pod_group(name, least, priority=50)
        self._apply(None, self.groups[name])
        request = self.dice.choice([1, exactly(class_name="whole-gpu"), exactly(class_name="half-gpu")])
        for _ in range(self.dice.randint(least, least + 1)):
            self._add(queue, request, name)

    def _delete(self, name: str) -> None:
        pod = self.pods.pop(name)
        self._apply(pod, None)
        held = self.claims.pop(name, None)
        if held is not None:
            self._apply(held, None)

    def _evict(self, pod: Pod) -> None:
        self.evicted += 1
        name = pod.metadata.name
        if name not in self.pods:
            return
        self._apply(self.pods[name], None)
        held = self.claims.get(name)
        if held is not None:
            self.claims[name] = msgspec.structs.replace(held, status=api.ResourceClaimStatus())
            self._apply(held, self.claims[name])
        metadata = msgspec.structs.replace(
            pod.metadata, uid=f"{pod.metadata.uid}+", creation_timestamp="2026-01-02T00:00:00Z", deletion_timestamp=None
        )
        spec = msgspec.structs.replace(pod.spec, node_name="")
        status = msgspec.structs.replace(pod.status, nominated_node_name="")
        self.pods[name] = msgspec.structs.replace(pod, spec=spec, metadata=metadata, status=status)
        self._apply(None, self.pods[name])

    # --- decisions ---

    def step(self) -> Decision | None:
        decision = self.machine.next(self.now, SECONDS + self.now)
        if decision is None:
            return None
        for placement in decision.placements:
            name = placement.pod.metadata.name
            for step in placement.claims:
                before = self.claims[step.claim.metadata.name]
                status = api.ResourceClaimStatus(
                    allocation=step.allocation or before.status.allocation,
                    reserved_for=(step.consumer,) if step.consumer is not None else before.status.reserved_for,
                )
                self.claims[step.claim.metadata.name] = msgspec.structs.replace(before, status=status)
                self._apply(before, self.claims[step.claim.metadata.name])
            before_pod = self.pods[name]
            spec = msgspec.structs.replace(before_pod.spec, node_name=placement.node)
            self.machine.settled(placement, Bound(placement.node), self.now)
            self.pods[name] = msgspec.structs.replace(before_pod, spec=spec)
            self._apply(before_pod, self.pods[name])
        for victim in decision.victims:
            self._evict(victim.pod)
        self.check()
        return decision

    def rest(self) -> int:
        for count in range(3_000):
            if self.step() is None:
                due = self.machine.next_at()
                if due is None or due > self.now + 60:
                    return count
                self.now = max(self.now, due)
        raise AssertionError("the cluster does not come to rest")

    # --- laws ---

    def taken(self, name: str) -> Fraction:
        """How many GPUs a pod has, counted by hand."""
        pod = self.pods[name]
        found = Fraction(0)
        for container in pod.spec.containers:
            amount = container.resources.requests.get(GPU)
            found += amount.value() if amount is not None else 0
        held = self.claims.get(name)
        allocation = held.status.allocation if held is not None else None
        for result in allocation.devices.results if allocation is not None else ():
            part = result.consumed_capacity.get("memory")
            found += (
                Fraction(part.nano, 8 * 10**9) if part is not None else Fraction(1, 2 if result.device[0] == "h" else 1)
            )
        return found

    def check(self) -> None:
        """What is counted is what is taken, and no queue has more than its limit."""
        held = {leaf: Fraction(0) for leaf in LEAVES}
        for name, pod in self.pods.items():
            if pod.spec.node_name:
                held[name[0]] += self.taken(name)
        everything = {**held, "d": held["a"] + held["b"], "top": sum(held.values(), Fraction(0))}
        for queue, amount in everything.items():
            known = self.machine.book.tree.get(queue)
            assert known is not None
            share = known.shares["gpu"]
            promised = self._promised(queue)
            assert share.allocated - promised == amount * ONE, f"queue {queue} counts {share.allocated}, not {amount}"
            assert share.limit == UNLIMITED or share.allocated <= share.limit, f"queue {queue} is above its limit"

    def _promised(self, queue: str) -> int:
        """What is kept for pods for whom others leave counts as held."""
        book = self.machine.book
        inside = {"top": LEAVES, "d": ("a", "b")}.get(queue, (queue,))
        return sum(
            charge.amounts.get("gpu", 0) + charge.extra.get("gpu", 0)
            for charge in book._pods.values()
            if charge.is_reserved and not charge.is_held and charge.queue in inside
        )


@pytest.mark.parametrize("seed", range(RUNS))
def test_limits_hold_and_a_cluster_that_is_left_alone_comes_to_rest(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(18):
        world.happen()
        if world.dice.random() < 0.4:
            world.rest()
    world.rest()
    evicted = world.evicted
    world.now += 600
    world.rest()
    assert world.evicted == evicted, "nothing happens any more"
    world.check()
    _nothing_is_held_in_vain(world)
    _nobody_waits_in_vain(world)


def _nothing_is_held_in_vain(world: World) -> None:
    """No gang has something and less than its minimum: its time is over by now."""
    counts = dict.fromkeys(world.groups, 0)
    for pod in world.pods.values():
        if pod.spec.scheduling_group is not None and pod.spec.node_name:
            counts[pod.spec.scheduling_group.pod_group_name or ""] += 1
    for name, count in counts.items():
        assert count == 0 or count >= minimum_of(world.groups[name]), f"gang {name} holds {count} pods"
    for name, parts in world.in_parts.items():
        bound = [
            pod.metadata.labels["kai.scheduler/subgroup-name"]
            for pod in world.pods.values()
            if pod.spec.node_name and pod.metadata.annotations.get("pod-group-name") == name
        ]
        assert not bound or all(bound.count(part) >= least for part, least in parts.items()), f"gang {name}: {bound}"


def _nobody_waits_in_vain(world: World) -> None:
    machine = world.machine
    waiting = machine.queue.waiting_pods()
    for unit in machine.waiting():
        key = f"ns/{unit.pods[0].metadata.name}"
        if unit.group is not None:
            key = group_key(group_name_of(unit.group))
        elif unit.tree is not None:
            key = group_key(unit.tree.key)
        outcome = machine.ask(key, SECONDS + world.now)
        assert outcome is None or not machine.has_enough(outcome), f"{key} could be placed"
    book, cluster = machine.book, machine.cluster
    jobs = book.jobs(waiting)
    takeovers = Takeovers(cluster, book.tree, jobs, lambda _: Settings(), SECONDS + world.now, InForce(cluster))
    for job in jobs.values():
        if job.is_ready() and job.to_start():
            _has_no_right(takeovers, job, jobs, world)


def _losses(job: Job) -> list[tuple[Task, ...]]:
    """What a job could lose: less, and more, and all of it."""
    found: list[tuple[Task, ...]] = []
    gone: tuple[Task, ...] = ()
    nodes = {task: task.node for task in job.tasks}
    while job.active():
        gone = (*gone, *job.to_lose())
        found.append(gone)
        for task in gone:
            task.node = ""
    for task, node_name in nodes.items():
        task.node = node_name
    return found


def _has_no_right(takeovers: Takeovers, job: Job, jobs: dict[str, Job], world: World) -> None:
    """Nothing of up to two others that the rules allow to be taken makes room for a job."""
    tree, cost_of = world.machine.book.tree, world.machine.book.cost_of
    queue = tree.get(job.queue)
    assert queue is not None
    tasks = job.to_start()
    reclaimer = Reclaimer(queue=queue, request=asked(tasks), is_preemptible=job.is_preemptible)
    if may_try(reclaimer) or excess(queue, asked(tasks), is_preemptible=job.is_preemptible) is not None:
        return
    others = [other for other in jobs.values() if other.queue != job.queue and other.is_preemptible]

    def is_allowed(gone: Sequence[Task]) -> bool:
        losses: dict[str, list[dict[str, int]]] = {}
        for other in dict.fromkeys(task.job for task in gone):
            mine = [task for task in gone if task.job is other]
            losses.setdefault(other.queue, []).extend(units_of(other, mine))
        return not objection(reclaimer, losses, tree.all(), Fraction(1))

    chosen = [
        losses for count in (1, 2) for few in combinations(others, count) for losses in product(*map(_losses, few))
    ]
    for losses in chosen:
        gone = [task for loss in losses for task in loss]
        if not is_allowed(gone):
            continue
        with takeovers._try(job, tasks, gone, is_first=False) as tried:
            pass
        # What differs from the least that a pod asks for, or from what one that moves had before, may be more than its right.
        is_plain = tried is not None and all(
            cost_of(placement) == task.amounts for task, placement in (*tried.placed, *tried.moved)
        )
        assert tried is None or not is_plain or not is_allowed(tried.gone), (
            f"{job.key} has a right to what {[task.name for task in gone]} hold"
        )
