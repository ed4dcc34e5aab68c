"""Laws of gangs over time: schedulers that end between any two writes, one or two of them, and gangs of every dialect that are in each other's
way. No device is ever in two allocations; no gang holds too little for longer than its grace; a cluster left alone comes to rest, with every
gang running that there is room for."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from allot.core.allocation.result import on_node
from allot.core.features import ALLOT_GATES
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import (
    COSCHEDULING,
    KAI,
    VOLCANO,
    CoschedulingPodGroup,
    CoschedulingSpec,
    KaiPodGroup,
    KaiSpec,
    VolcanoPodGroup,
    VolcanoSpec,
)
from allot.core.model.meta import APIStruct, Condition, ObjectMeta
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.scheduling import Bound, Decision, Machine, NotBound, ObjectChange, Placement, Refusal, Settings, under
from allot.core.scheduling.groups.halves import STALE_AFTER_S
from allot.core.scheduling.plan import CleanUp, Deallocate
from core.scheduling.cluster_world import node, pod, pod_group
from core.scheduling.device_world import DRIVER, claim, device_class, exactly, gpus, slice_of
from core.scheduling.groups.test_trees import composite, leaf

# `make nightly` plays 200 seeds of each law.
RUNS = int(os.environ.get("ALLOT_RUNS", "12"))
SETTINGS = under(ALLOT_GATES, Settings())
DIALECTS = ("scheduling.k8s.io", "tree", COSCHEDULING, KAI, VOLCANO)
# What a scheduler may need to notice that time is up, and to do something about it.
SLACK_S = 15.0


class Scheduler:
    """A machine, what it has not seen yet, and what it is about to write."""

    def __init__(self, plane: Plane, name: str) -> None:
        self.plane = plane
        self.name = name
        self.machine = Machine({name: SETTINGS}.get, ALLOT_GATES)
        for dialect in (COSCHEDULING, KAI, VOLCANO):
            self.machine.serve(dialect)
        for object_ in plane.objects.values():
            self.machine.apply(ObjectChange(None, object_), plane.now)
        self.inbox: deque[ObjectChange] = deque()
        # Of each placement the writes that are left, in order.
        self.writes: list[Iterator[None]] = []

    def see(self) -> None:
        """What the watch brings."""
        self.machine.apply(self.inbox.popleft(), self.plane.now)

    def write(self) -> None:
        """One write of one placement."""
        position = self.plane.dice.randrange(len(self.writes))
        if next(self.writes[position], "done") == "done":
            del self.writes[position]

    def decide(self) -> bool:
        """Whether there was something to decide."""
        decision = self.machine.next(self.plane.now, self.plane.now)
        if decision is None:
            return False
        left = [len(decision.placements)]
        self.writes += [self._written(placement, decision, left) for placement in decision.placements]
        for refusal in decision.refusals:
            self._report(refusal)
        return True

    def _written(self, placement: Placement, decision: Decision, left: list[int]) -> Iterator[None]:
        """As the scheduler does it: claims, then the binding; when all are bound, the condition of the group."""
        failure = ""
        for step in placement.claims:
            failure = failure or self.plane.allocate(step.claim, step.allocation, placement.pod)
            yield
        bound = "" if failure else self.plane.bind(placement.pod, placement.node)
        outcome = Bound(bound) if bound else NotBound(message=failure or "gone", is_conflict=True)
        self.machine.settled(placement, outcome, self.plane.now)
        left[0] -= 1
        yield
        for told in (decision.group, *decision.groups_below) if not left[0] else ():
            if told is not None and told.status == "True" and self.machine.has_minimum(told.group):
                self.plane.mark_scheduled(told.group)
                yield

    def _report(self, refusal: Refusal) -> None:
        for victim in refusal.victims:
            self.plane.evict(victim.pod)
        for clean_up in refusal.clean_ups:
            self.plane.clean_up(clean_up)


class Plane:
    """An API with small controllers, and schedulers that end at any moment."""

    def __init__(self, dice: random.Random, schedulers: int) -> None:
        self.dice = dice
        self.now = 0.0
        self.objects: dict[tuple[type[APIStruct], str], Any] = {}
        self.names = tuple(f"scheduler-{number}" for number in range(schedulers))
        self.running: list[Scheduler] = []
        self._serial = 0
        # By gang: its pods, how many of them it needs, and how long it may have fewer.
        self.gangs: dict[str, tuple[list[str], int, float]] = {}
        self.half_since: dict[str, float] = {}
        self.evictions = 0
        self.changed_at = 0.0
        self.put(device_class())
        for number in range(dice.choice((1, 2, 2))):
            self.put(node(f"n{number}"))
            self.put(slice_of(f"n{number}", gpus(dice.choice((2, 3)))))
        for number in range(dice.choice((2, 2, 3))):
            self._make_gang(f"g{number}", dice.choice(DIALECTS), self.names[number % schedulers])
        self.running = [Scheduler(self, name) for name in self.names]

    def _make_gang(self, name: str, dialect: str, scheduler: str) -> None:
        size, grace = self.dice.choice((2, 3)), STALE_AFTER_S
        metadata = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}")
        spec: dict[str, Any] = {"metadata": {}}
        if dialect == COSCHEDULING:
            wait = self.dice.choice((20, 40))
            grace = float(wait)
            self.put(
                CoschedulingPodGroup(
                    metadata=metadata, spec=CoschedulingSpec(min_member=size, schedule_timeout_seconds=wait)
                )
            )
            spec = {"labels": {"scheduling.x-k8s.io/pod-group": name}}
        elif dialect == VOLCANO:
            self.put(VolcanoPodGroup(metadata=metadata, spec=VolcanoSpec(min_member=size)))
            spec = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": name}}}
        elif dialect == KAI:
            self.put(KaiPodGroup(metadata=metadata, spec=KaiSpec(min_member=size)))
            spec = {"metadata": {"annotations": {"pod-group-name": name}}}
        elif dialect == "tree":
            self.put(composite(name, 2))
            for part in ("a", "b"):
                self.put(leaf(f"{name}-{part}", 1 if part == "a" else size - 1, name))
        else:
            self.put(pod_group(name, size))
            spec = {"group": name}
        pods = [f"{name}-p{number}" for number in range(size)]
        self.gangs[name] = (pods, size, grace)
        for number, each in enumerate(pods):
            if dialect == "tree":
                spec = {"group": f"{name}-{'a' if number == 0 else 'b'}"}
            self.make_pod(each, scheduler, spec)

    def make_pod(self, name: str, scheduler: str, spec: dict[str, Any]) -> None:
        self._serial += 1
        self.put(replace(claim(name, exactly()), metadata=ObjectMeta(name=name, namespace="ns", uid=f"{self._serial}")))
        more = {"schedulerName": scheduler, "resourceClaims": [{"name": "r", "resourceClaimName": name}], **spec}
        metadata = {**more.pop("metadata", {}), "uid": f"uid-{name}-{self._serial}"}
        self.put(pod(name, cpu="10m", metadata=metadata, **more))

    def make_rival(self) -> None:
        """A lone pod that is quicker than whoever completes a gang."""
        name = f"rival-{len(self.all(Pod))}"
        if self.free() > 0 and self.get(Pod, name) is None:
            self.make_pod(name, self.dice.choice(self.names), {"priority": 0})
            created = self.get(Pod, name)
            held = self.holders()
            free = [
                (each.spec.node_name, device.name)
                for each in self.all(api.ResourceSlice)
                for device in each.spec.devices
                if (each.spec.node_name, device.name) not in held
            ]
            pool, device = self.dice.choice(free)
            result = api.DeviceRequestAllocationResult(request="r", driver=DRIVER, pool=pool, device=device)
            allocation = api.AllocationResult(
                devices=api.DeviceAllocationResult(results=(result,)), node_selector=on_node(pool)
            )
            assert not self.allocate(self.get(api.ResourceClaim, name), allocation, created)
            self.bind(created, pool)

    # --- the API ---

    def get(self, kind: type[APIStruct], name: str) -> Any:
        return self.objects.get((kind, name))

    def put(self, object_: Any) -> None:
        self._serial += 1
        key = (type(object_), object_.metadata.name)
        metadata = replace(object_.metadata, resource_version=str(self._serial))
        self._tell(key, replace(object_, metadata=metadata))

    def _tell(self, key: tuple[type[APIStruct], str], new: Any) -> None:
        old = self.objects.pop(key, None)
        if new is not None:
            self.objects[key] = new
        self.changed_at = self.now
        for each in self.running:
            each.inbox.append(ObjectChange(old, new))

    def all(self, kind: type[APIStruct]) -> list[Any]:
        return [found for (type_, _), found in self.objects.items() if type_ is kind]

    def holders(self) -> dict[tuple[str, str], list[str]]:
        held: dict[tuple[str, str], list[str]] = {}
        for each in self.all(api.ResourceClaim):
            for result in each.status.allocation.devices.results if each.status.allocation is not None else ():
                held.setdefault((result.pool, result.device), []).append(each.metadata.name)
        return held

    def allocate(self, seen: api.ResourceClaim, allocation: api.AllocationResult | None, user: Pod) -> str:
        """Why it cannot be written; empty if it was."""
        known = self.get(api.ResourceClaim, seen.metadata.name)
        if known is None or known.metadata.resource_version != seen.metadata.resource_version:
            return "the claim has changed"
        held = self.holders()
        for result in allocation.devices.results if allocation is not None else ():
            if (result.pool, result.device) in held:
                return "the device is held by another claim"
        consumer = api.ResourceClaimConsumerReference(resource="pods", name=user.metadata.name, uid=user.metadata.uid)
        status = replace(known.status, reserved_for=(consumer,))
        self.put(replace(known, status=status if allocation is None else replace(status, allocation=allocation)))
        return ""

    def bind(self, bound: Pod, node_name: str) -> str:
        """The node that the pod has; empty if it is gone."""
        known = self.get(Pod, bound.metadata.name)
        if known is None or known.metadata.uid != bound.metadata.uid:
            return ""
        if not known.spec.node_name:
            self.put(replace(known, spec=replace(known.spec, node_name=node_name)))
        return known.spec.node_name or node_name

    def mark_scheduled(self, group: Any) -> None:
        known = self.get(type(group), group.metadata.name)
        if isinstance(known, PodGroup | CompositePodGroup):
            condition = Condition(type="PodGroupInitiallyScheduled", status="True")
            self.put(replace(known, status=replace(known.status, conditions=(condition,))))

    def evict(self, victim: Pod) -> None:
        """The pod goes, the claim controller frees its devices, and whoever made it makes it again."""
        name = victim.metadata.name
        known = self.get(Pod, name)
        if known is None or known.metadata.uid != victim.metadata.uid:
            return
        self.evictions += 1
        self._tell((Pod, name), None)
        used = self.get(api.ResourceClaim, name)
        if used is not None:
            self.put(replace(used, status=api.ResourceClaimStatus()))
        self._serial += 1
        fresh = replace(known.metadata, uid=f"uid-{name}-{self._serial}")
        self.put(replace(known, metadata=fresh, spec=replace(known.spec, node_name="")))

    def clean_up(self, wanted: CleanUp) -> None:
        known = self.get(api.ResourceClaim, wanted.claim.metadata.name)
        assert isinstance(wanted, Deallocate), wanted
        if known is not None and known.metadata.resource_version == wanted.claim.metadata.resource_version:
            self.put(replace(known, status=api.ResourceClaimStatus()))

    def kill(self) -> None:
        """A scheduler ends in the midst of its writes; another one takes its place, and the grace of gangs begins anew."""
        position = self.dice.randrange(len(self.running))
        # Seen by nobody else: what it was about to write is lost.
        self.running[position] = Scheduler(self, self.running[position].name)
        self.half_since = dict.fromkeys(self.half_since, self.now)

    # --- time ---

    def step(self) -> bool:
        """One thing happens; whether there was anything."""
        able: list[Callable[[], object]] = []
        for each in self.running:
            able += [each.see] * bool(each.inbox) + [each.write] * 2 * bool(each.writes)
        if not able or self.dice.random() < 0.3:
            busy = [each for each in self.running if each.decide()]
            if not busy and not able:
                return False
        else:
            self.dice.choice(able)()
        self.check()
        return True

    def pass_time(self, until: float) -> None:
        """Nothing is left to do: the next thing that time brings."""
        times = [at for each in self.running if (at := each.machine.next_at()) is not None and at > self.now]
        self.now = min([*times, until])

    def bound(self, gang: str) -> int:
        pods = [self.get(Pod, name) for name in self.gangs[gang][0]]
        return sum(bool(each.spec.node_name) for each in pods if each is not None)

    def check(self) -> None:
        held = self.holders()
        assert all(len(claims) == 1 for claims in held.values()), held
        for gang, (_, size, grace) in self.gangs.items():
            if not 0 < self.bound(gang) < size:
                self.half_since.pop(gang, None)
                continue
            since = self.half_since.setdefault(gang, self.now)
            assert self.now - since <= grace + SLACK_S, (
                f"{gang} has {self.bound(gang)} of {size} since {since}, now {self.now}"
            )

    def run(self, until: float) -> None:
        for _ in range(20_000):
            if not self.step():
                if self.now >= until:
                    return
                self.pass_time(until)
        raise AssertionError("it does not come to rest")

    def free(self) -> int:
        return sum(len(each.spec.devices or ()) for each in self.all(api.ResourceSlice)) - len(self.holders())


def play(seed: str, schedulers: int) -> Plane:
    dice = random.Random(seed)
    plane = Plane(dice, schedulers)
    for _ in range(dice.randrange(120)):
        if not plane.step():
            plane.pass_time(plane.now + 5.0)
        if dice.random() < 0.15:
            plane.kill()
            if dice.random() < 0.5:
                plane.make_rival()
    return plane


@pytest.mark.slow
@pytest.mark.parametrize("schedulers", [1, 2], ids=["one scheduler", "two schedulers"])
def test_gangs_are_whole_or_hold_nothing_however_often_schedulers_end(schedulers: int) -> None:
    evictions = 0
    for seed in range(RUNS):
        try:
            plane = play(f"gangs {seed}", schedulers)
            plane.run(plane.now + 900.0)
            assert plane.changed_at <= plane.now - 300.0, "it does not come to rest"
            for gang, (_, size, _) in plane.gangs.items():
                assert plane.bound(gang) in (0, size), gang
                assert plane.bound(gang) or plane.free() < size, f"{gang} waits although it fits"
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        evictions += plane.evictions
    # Some of the gangs were left by half and gave back what they had.
    assert evictions
