"""Histories of a cluster for laws about the machine: an API that is changed, watches that lag behind it by kind, and writes that
succeed, fail, come too late, or are done by half.

All choices are made by `choose`, so that a history can be drawn by Hypothesis or by a seed.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from allot.core.advice.snapshot import Snapshot
from allot.core.features import DEFAULT_GATES
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.model.scheduling_v1 import GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec
from allot.core.quantity import Quantity
from allot.core.scheduling import Bound, Decision, Machine, NotBound, ObjectChange, Placement, Refusal, Settings

T = TypeVar("T")
Choose = Callable[[Sequence[Any]], Any]
Key = tuple[type[APIStruct], str]

DRIVER = "gpu.example.com"
GATES = DEFAULT_GATES.changed(["GenericWorkload"])
SETTINGS = Settings(preempts=False)
KINDS: tuple[type[APIStruct], ...] = (Node, api.DeviceClass, api.ResourceSlice, api.ResourceClaim, PodGroup, Pod)
NODES = ("n0", "n1", "n2")
PODS = ("p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7")
CLAIMS = ("c0", "c1", "c2")
GROUPS = ("g0", "g1")
WISHES = (
    *("none",) * 4,
    *("claim",) * 5,
    *("gang",) * 3,
    *("gang with claim", "port", "zone", "apart", "together", "spread", "gate", "toleration", "other scheduler"),
)


class History:
    """An API, and a machine that watches it."""

    def __init__(self, choose: Choose, settings: Settings = SETTINGS) -> None:
        self._choose = choose
        self.preempts = settings.preempts
        self.machine = Machine({"default-scheduler": settings}.get, GATES)
        self.objects: dict[Key, Any] = {}
        self._known: dict[Key, Any] = {}
        self._outbox: dict[type[APIStruct], deque[tuple[str, Any]]] = {kind: deque() for kind in KINDS}
        self._flights: list[Placement] = []
        self._reports: list[Refusal] = []
        self._serial = 0
        self.now = 0.0
        self.told: list[str] = []
        # Something to begin with.
        for _ in range(2):
            self.make_node()
            self.make_slice()
        self.make_class()

    # --- the API ---

    def snapshot(self) -> Snapshot:
        return Snapshot(tuple(self.objects.values()), 0.0)

    def get(self, kind: type[T], name: str) -> T | None:
        return self.objects.get((kind, name))  # type: ignore[arg-type]

    def put(self, object_: Any) -> None:
        self._serial += 1
        metadata = replace(object_.metadata, resource_version=str(self._serial))
        changed = replace(object_, metadata=metadata)
        self.objects[type(object_), object_.metadata.name] = changed
        self._outbox[type(object_)].append((object_.metadata.name, changed))

    def delete(self, kind: type[APIStruct], name: str) -> None:
        if self.objects.pop((kind, name), None) is not None:
            self._outbox[kind].append((name, None))

    def _new(self, name: str, **more: Any) -> ObjectMeta:
        self._serial += 1
        return ObjectMeta(name=name, uid=f"{name}-{self._serial}", **more)

    # --- what users, drivers and controllers do ---

    def make_node(self) -> None:
        name = self._choose(NODES)
        known = self.get(Node, name)
        labels = {"kubernetes.io/hostname": name, "zone": self._choose(("a", "b"))}
        amounts = {"cpu": self._choose(("1", "2", "3")), "pods": self._choose(("10", "10", "1"))}
        metadata = self._new(name) if known is None else known.metadata
        spec = core_v1.NodeSpec(
            unschedulable=self._choose((False,) * 7 + (True,)),
            taints=self._choose(((),) * 7 + ((core_v1.Taint(key="t", effect="NoSchedule"),),)),
        )
        allocatable = {resource: Quantity.parse(amount) for resource, amount in amounts.items()}
        self.put(
            Node(
                metadata=replace(metadata, labels=labels),
                spec=spec,
                status=core_v1.NodeStatus(allocatable=allocatable),
            )
        )

    def delete_node(self) -> None:
        self.delete(Node, self._choose(NODES))

    def make_slice(self) -> None:
        node = self._choose(NODES)
        known = self.get(api.ResourceSlice, node)
        count = self._choose((1, 1, 2, 0))
        spec = api.ResourceSliceSpec(
            driver=DRIVER,
            pool=api.ResourcePool(name=node, generation=1, resource_slice_count=1),
            node_name=node,
            devices=tuple(api.Device(name=f"gpu-{number}") for number in range(count)),
        )
        self.put(api.ResourceSlice(metadata=self._new(node) if known is None else known.metadata, spec=spec))

    def delete_slice(self) -> None:
        self.delete(api.ResourceSlice, self._choose(NODES))

    def make_class(self) -> None:
        if self.get(api.DeviceClass, "gpu") is None:
            self.put(api.DeviceClass(metadata=self._new("gpu")))

    def delete_class(self) -> None:
        self.delete(api.DeviceClass, "gpu")

    def make_claim(self) -> None:
        name = self._choose(CLAIMS)
        if self.get(api.ResourceClaim, name) is not None:
            return
        exactly = api.ExactDeviceRequest(
            device_class_name="gpu", allocation_mode=api.EXACT_COUNT, count=self._choose((1, 1, 2))
        )
        devices = api.DeviceClaim(requests=(api.DeviceRequest(name="gpu", exactly=exactly),))
        metadata = replace(self._new(name), namespace="ns")
        self.put(api.ResourceClaim(metadata=metadata, spec=api.ResourceClaimSpec(devices=devices)))

    def delete_claim(self) -> None:
        self.delete(api.ResourceClaim, self._choose(CLAIMS))

    def make_group(self) -> None:
        name = self._choose(GROUPS)
        known = self.get(PodGroup, name)
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=self._choose((1, 2, 2, 3))))
        metadata = replace(self._new(name), namespace="ns") if known is None else known.metadata
        self.put(PodGroup(metadata=metadata, spec=PodGroupSpec(scheduling_policy=policy)))

    def delete_group(self) -> None:
        self.delete(PodGroup, self._choose(GROUPS))

    def make_pod(self) -> None:
        name = self._choose(PODS)
        if self.get(Pod, name) is not None:
            return
        wish = self._choose(WISHES)
        claim = self._choose(CLAIMS) if wish in ("claim", "gang with claim") else None
        group = self._choose(GROUPS) if wish in ("gang", "gang with claim") else None
        ports = (core_v1.ContainerPort(container_port=1, host_port=80),) if wish == "port" else ()
        requests = {"cpu": Quantity.parse(self._choose(("1", "1", "2", "0")))}
        container = core_v1.Container(name="c", ports=ports, resources=core_v1.ResourceRequirements(requests=requests))
        spec = core_v1.PodSpec(
            containers=(container,),
            priority=0 if group else self._choose((0, 0, 0, 5)),
            # A group's pods have one scheduler; of a snapshot nobody can tell which schedulers are one process.
            scheduler_name="other" if wish == "other scheduler" else "default-scheduler",
            node_selector={"zone": "a"} if wish == "zone" else {},
            affinity={"apart": _apart(), "together": _together()}.get(wish),
            topology_spread_constraints=(_spread(),) if wish == "spread" else (),
            scheduling_gates=(core_v1.PodSchedulingGate(name="g"),) if wish == "gate" else (),
            tolerations=(core_v1.Toleration(key="t", operator="Exists"),) if wish == "toleration" else (),
            resource_claims=(core_v1.PodResourceClaim(name="gpu", resource_claim_name=claim),) if claim else (),
            scheduling_group=core_v1.PodSchedulingGroup(pod_group_name=group) if group else None,
        )
        metadata = replace(self._new(name), namespace="ns", labels={"app": self._choose(("x", "y"))})
        self.put(Pod(metadata=metadata, spec=spec))

    def open_gates(self) -> None:
        pod = self.get(Pod, self._choose(PODS))
        if pod is not None and pod.spec.scheduling_gates:
            self.put(replace(pod, spec=replace(pod.spec, scheduling_gates=())))

    def relabel_pod(self) -> None:
        pod = self.get(Pod, self._choose(PODS))
        if pod is not None:
            self.put(replace(pod, metadata=replace(pod.metadata, labels={"app": self._choose(("x", "y", "z"))})))

    def terminate_pod(self) -> None:
        """It is being deleted, and still there."""
        pod = self.get(Pod, self._choose(PODS))
        if pod is not None:
            self.put(replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))

    def finish_pod(self) -> None:
        pod = self.get(Pod, self._choose(PODS))
        if pod is not None and pod.spec.node_name:
            self.put(replace(pod, status=replace(pod.status, phase="Succeeded")))
            self._release(pod)

    def delete_pod(self) -> None:
        pod = self.get(Pod, self._choose(PODS))
        if pod is not None:
            self.delete(Pod, pod.metadata.name)
            self._release(pod)

    def _release(self, pod: Pod) -> None:
        """As the claim controller does once a pod is done."""
        for name in CLAIMS:
            claim = self.get(api.ResourceClaim, name)
            if claim is None or all(user.uid != pod.metadata.uid for user in claim.status.reserved_for):
                continue
            left = tuple(user for user in claim.status.reserved_for if user.uid != pod.metadata.uid)
            allocation = claim.status.allocation if left else None
            self.put(replace(claim, status=replace(claim.status, reserved_for=left, allocation=allocation)))

    def break_something(self) -> None:
        getattr(self, self._choose(BREAKS))()

    # --- watches ---

    def deliver(self) -> None:
        waiting = [kind for kind in KINDS if self._outbox[kind]]
        if waiting:
            self._deliver_one(self._choose(waiting))

    def _deliver_one(self, kind: type[APIStruct]) -> None:
        name, new = self._outbox[kind].popleft()
        old = self._known.pop((kind, name), None)
        if new is not None:
            self._known[kind, name] = new
        if old is None and new is None:
            return
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            self.machine.apply(ObjectChange(old, None), self.now)
            old = None
        self.machine.apply(ObjectChange(old, new), self.now)

    def deliver_again(self) -> None:
        """A watch that starts anew tells what is known already."""
        if self._known:
            key = self._choose(sorted(self._known, key=lambda each: (each[0].__name__, each[1])))
            self.machine.apply(ObjectChange(self._known[key], self._known[key]), self.now)

    def deliver_all(self) -> None:
        for kind in KINDS:
            while self._outbox[kind]:
                self._deliver_one(kind)

    # --- the scheduler ---

    def wait(self) -> None:
        self.now += self._choose((0.01, 1.5, 12.0))

    def decide(self) -> Decision | None:
        decision = self.machine.next(self.now, 0.0)
        if decision is not None:
            self._flights += decision.placements
            self._reports += [refusal for refusal in decision.refusals if refusal.nominated_node or refusal.victims]
            self.told.append(text_of(decision))
        return decision

    def settle(self) -> None:
        if self._flights:
            placement = self._flights.pop(self._choose(range(len(self._flights))))
            self._settle(placement, self._choose(("written", "written", "conflict", "failed", "failed", "half")))

    def report(self) -> None:
        """The scheduler asks victims to go and says where the pod is to go, or cannot."""
        if self._reports:
            self._report(self._reports.pop(0), self._choose(("done", "done", "failed")))

    def _report(self, refusal: Refusal, outcome: str) -> None:
        if outcome == "failed":
            self.machine.retry(refusal.pod, self.now)
            return
        for victim in refusal.victims:
            found = self.get(Pod, victim.pod.metadata.name)
            if found is not None and found.metadata.uid == victim.pod.metadata.uid:
                self.delete(Pod, found.metadata.name)
                self._release(found)
        pod = self.get(Pod, refusal.pod.metadata.name)
        if pod is not None and pod.metadata.uid == refusal.pod.metadata.uid and not pod.spec.node_name:
            self.put(replace(pod, status=replace(pod.status, nominated_node_name=refusal.nominated_node)))

    def settle_all(self) -> None:
        while self._flights:
            self._settle(self._flights.pop(0), "written")
        while self._reports:
            self._report(self._reports.pop(0), "done")

    def _settle(self, placement: Placement, outcome: str) -> None:
        if outcome in ("conflict", "failed"):
            self._not_bound(placement, is_conflict=outcome == "conflict")
            return
        for step in placement.claims:
            claim = self.get(api.ResourceClaim, step.claim.metadata.name)
            if claim is None or claim.metadata.uid != step.claim.metadata.uid:
                self._not_bound(placement)
                return
            status = claim.status
            if step.allocation is not None:
                if status.allocation is not None and status.allocation != step.allocation:
                    self._not_bound(placement, is_conflict=True)
                    return
                status = replace(status, allocation=step.allocation)
            elif status.allocation is None:
                self._not_bound(placement, is_conflict=True)
                return
            if step.consumer is not None and step.consumer not in status.reserved_for:
                status = replace(status, reserved_for=(*status.reserved_for, step.consumer))
            self.put(replace(claim, status=status))
            self.machine.claims.wrote(self.objects[api.ResourceClaim, claim.metadata.name])
        pod = self.get(Pod, placement.pod.metadata.name)
        if outcome == "half" or pod is None or pod.metadata.uid != placement.pod.metadata.uid:
            self._not_bound(placement)
            if pod is None or pod.metadata.uid != placement.pod.metadata.uid:
                # The claim controller finds a reservation for a pod that is gone.
                self._release(placement.pod)
            return
        if pod.metadata.deletion_timestamp is not None:
            self._not_bound(placement)
            return
        if not pod.spec.node_name:
            self.put(replace(pod, spec=replace(pod.spec, node_name=placement.node)))
            pod = self.objects[Pod, pod.metadata.name]
        self.machine.settled(placement, Bound(pod.spec.node_name), self.now)

    def _not_bound(self, placement: Placement, *, is_conflict: bool = False) -> None:
        self.machine.settled(placement, NotBound(is_conflict=is_conflict), self.now)

    # --- the law's own ---

    def step(self) -> None:
        """Something happens."""
        getattr(self, self._choose(STEPS))()

    def calm_down(self) -> Iterator[Decision]:
        """Nothing more happens: all is delivered and written. Each decision until nothing is left to try, before it is
        written; time goes on, but not as far as units are tried without an event."""
        self.settle_all()
        self.deliver_all()
        for _ in range(12):
            self.now += 11.0
            while (decision := self.decide()) is not None:
                yield decision
                self.settle_all()
                self.deliver_all()

    def holders(self) -> dict[tuple[str, str], list[str]]:
        """Who holds which device."""
        held: dict[tuple[str, str], list[str]] = {}
        for name in CLAIMS:
            claim = self.get(api.ResourceClaim, name)
            allocation = claim.status.allocation if claim is not None else None
            for result in allocation.devices.results if allocation is not None else ():
                held.setdefault((result.pool, result.device), []).append(name)
        return held


STEPS = (
    *("make_node", "make_slice", "make_class", "make_group", "open_gates", "relabel_pod"),
    *("make_claim",) * 3,
    "break_something",
    *("make_pod",) * 8,
    *("terminate_pod", "finish_pod", "finish_pod", "delete_pod", "delete_pod", "delete_pod"),
    *("deliver",) * 6,
    *("deliver_all",) * 6,
    *("deliver_again", "wait", "wait"),
    *("decide",) * 12,
    *("settle",) * 6,
    *("report",) * 2,
)
BREAKS = ("delete_node", "delete_slice", "delete_class", "delete_claim", "delete_group")


def _selector(value: str) -> core_v1.LabelSelector:
    return core_v1.LabelSelector(match_labels={"app": value})


def _term(value: str) -> core_v1.PodAffinityTerm:
    return core_v1.PodAffinityTerm(label_selector=_selector(value), topology_key="zone")


def _apart() -> core_v1.Affinity:
    return core_v1.Affinity(
        pod_anti_affinity=core_v1.PodAntiAffinity(required_during_scheduling_ignored_during_execution=(_term("x"),))
    )


def _together() -> core_v1.Affinity:
    return core_v1.Affinity(
        pod_affinity=core_v1.PodAffinity(required_during_scheduling_ignored_during_execution=(_term("y"),))
    )


def _spread() -> core_v1.TopologySpreadConstraint:
    return core_v1.TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=_selector("x")
    )


def text_of(decision: Decision) -> str:
    """A decision in words."""
    placed = [
        (placement.pod.metadata.name, placement.node, [devices_of(step.allocation) for step in placement.claims])
        for placement in decision.placements
    ]
    refused = [(refusal.pod.metadata.name, refusal.message, sorted(refusal.plugins)) for refusal in decision.refusals]
    return f"{placed} {refused}"


def devices_of(allocation: api.AllocationResult | None) -> list[str]:
    """The devices of an allocation."""
    results = allocation.devices.results if allocation is not None else ()
    return [f"{result.pool}/{result.device}" for result in results]


def main(seeds: range, steps: int) -> None:
    """What a machine decides in the histories of these seeds."""
    for seed in seeds:
        history = History(random.Random(seed).choice, Settings(preempts=seed % 2 == 0))
        for _ in range(steps):
            history.step()
        for _ in history.calm_down():
            pass
        for line in history.told:
            sys.stdout.write(f"{seed} {line}\n")


if __name__ == "__main__":
    main(range(int(sys.argv[1])), int(sys.argv[2]))
