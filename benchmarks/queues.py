"""How fast pods of many queues are decided: processor time of a machine, without API server or writes. Asserts nothing.

    .venv/bin/python benchmarks/queues.py [--quick] [--profile] [part of a row's name...]

5,000 pods that wait in 200 queues of 20 departments, on nodes with 8 GPUs: with room for all, with room for half, and with everything held
by queues that have to give half of it back; the same with claims for devices. Every pod that is evicted comes back and waits. A row ends
when nothing is left to do. The interpreter is set as in a scheduler.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
import time
from typing import NamedTuple

from msgspec import structs

from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode
from allot.core.model.meta import APIStruct
from allot.core.model.team_queues import KaiQueue
from allot.core.scheduling import Bound, Machine, ObjectChange, Settings
from allot.process.interpreter import tune

QUICK = "--quick" in sys.argv
PROFILE = "--profile" in sys.argv
PODS = 500 if QUICK else 5_000
QUEUES = 40 if QUICK else 200
DEPARTMENTS = QUEUES // 10
EACH = 8
GPU = "nvidia.com/gpu"
DRIVER = "gpu.example.com"


class Row(NamedTuple):
    """What is measured. gpus: how many there are; held: half of the queues hold all of them before."""

    name: str
    gpus: int
    held: bool = False
    claims: bool = False


ROWS = (
    Row("room for all", PODS),
    Row("room for half", PODS // 2),
    Row("reclaim", PODS, held=True),
    Row("claims, room for all", PODS, claims=True),
    Row("claims, reclaim", PODS, held=True, claims=True),
)


def a_queue(name: str, parent: str, quota: int) -> KaiQueue:
    """A queue that deserves so many GPUs and may have all."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    gpu = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
    spec = {"parentQueue": parent, "resources": {"gpu": gpu, "cpu": free, "memory": free}}
    return decode({"metadata": {"name": name}, "spec": spec}, KaiQueue).object


def a_node(number: int, row: Row) -> list[APIStruct]:
    """A node, and its devices if they are claimed."""
    name = f"node-{number:04}"
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", **({} if row.claims else {GPU: str(EACH)})}
    body = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": {"allocatable": amounts}}
    found: list[APIStruct] = [decode(body, core_v1.Node).object]
    if row.claims:
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"gpu-{index}"} for index in range(EACH)]
        spec = {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices}
        found.append(decode({"metadata": {"name": name}, "spec": spec}, api.ResourceSlice).object)
    return found


def a_pod(name: str, queue: str, age: int, row: Row) -> list[APIStruct]:
    """A pod that asks for one GPU, after its claim if it has one."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "labels": {"kai.scheduler/queue": queue},
        "creationTimestamp": f"2026-01-01T{age // 3600 % 24:02}:{age // 60 % 60:02}:{age % 60:02}Z",
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}],
    }
    requests = {"cpu": "1", "memory": "1Gi", **({} if row.claims else {GPU: "1"})}
    spec = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
        "priority": 50,
        "schedulerName": "s",
    }
    if not row.claims:
        return [decode({"metadata": metadata, "spec": spec}, core_v1.Pod).object]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    claim = {
        "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    return [decode(claim, api.ResourceClaim).object, decode({"metadata": metadata, "spec": spec}, core_v1.Pod).object]


class World:
    """A machine, and an API server that does what it says at once."""

    def __init__(self) -> None:
        self.machine = Machine({"s": Settings()}.get)
        self.now = 0.0
        self.claims: dict[str, api.ResourceClaim] = {}
        self.placed = self.evicted = self.decisions = 0

    def put(self, found: APIStruct, old: APIStruct | None = None) -> None:
        """An object is there."""
        if isinstance(found, api.ResourceClaim):
            self.claims[found.metadata.name] = found
        self.machine.apply(ObjectChange(old, found), self.now)

    def rest(self) -> None:
        """Until nothing is left to do, pauses included."""
        machine = self.machine
        while True:
            decision = machine.next(self.now, 10**9 + self.now)
            if decision is None:
                due = machine.next_at()
                if due is None or due > self.now + 60:
                    return
                self.now = max(self.now, due)
                continue
            self.decisions += 1
            for placement in decision.placements:
                self.placed += 1
                for step in placement.claims:
                    status = api.ResourceClaimStatus(
                        allocation=step.allocation or step.claim.status.allocation,
                        reserved_for=(step.consumer,) if step.consumer is not None else (),
                    )
                    self.put(structs.replace(step.claim, status=status), step.claim)
                spec = structs.replace(placement.pod.spec, node_name=placement.node)
                machine.settled(placement, Bound(placement.node), self.now)
                self.put(structs.replace(placement.pod, spec=spec), placement.pod)
            for victim in decision.victims:
                self._evict(victim.pod)

    def _evict(self, pod: core_v1.Pod) -> None:
        self.evicted += 1
        self.machine.apply(ObjectChange(pod, None), self.now)
        for reference in pod.spec.resource_claims:
            held = self.claims[reference.resource_claim_name or ""]
            self.put(structs.replace(held, status=api.ResourceClaimStatus()), held)
        metadata = structs.replace(
            pod.metadata,
            uid=f"{pod.metadata.uid}+",
            creation_timestamp=f"2026-01-02{(pod.metadata.creation_timestamp or '')[10:]}",
        )
        spec = structs.replace(pod.spec, node_name="")
        status = structs.replace(pod.status, nominated_node_name="")
        self.put(structs.replace(pod, spec=spec, metadata=metadata, status=status))


def measure(row: Row) -> tuple[float, float, World]:
    """Seconds of bringing the pods and of deciding them."""
    world = World()
    if row.claims:
        world.put(decode({"metadata": {"name": "gpu"}, "spec": {}}, api.DeviceClass).object)
    for number in range(row.gpus // EACH):
        for found in a_node(number, row):
            world.put(found)
    names = [f"queue-{number:03}" for number in range(QUEUES)]
    for number in range(DEPARTMENTS):
        world.put(a_queue(f"department-{number:02}", "", row.gpus // DEPARTMENTS))
    for number, name in enumerate(names):
        world.put(a_queue(name, f"department-{number % DEPARTMENTS:02}", row.gpus // QUEUES))
    if row.held:
        for number in range(row.gpus):
            for found in a_pod(f"held-{number:05}", names[number % (QUEUES // 2)], number, row):
                world.put(found)
        world.rest()
        names = names[QUEUES // 2 :]
    pods = [
        found
        for number in range(PODS)
        for found in a_pod(f"pod-{number:05}", names[number % len(names)], PODS + number, row)
    ]
    world.placed = world.evicted = world.decisions = 0
    gc.collect()
    gc.freeze()
    began = time.process_time()
    for found in pods:
        world.put(found)
    brought = time.process_time()
    world.rest()
    ended = time.process_time()
    gc.unfreeze()
    return brought - began, ended - brought, world


def main() -> None:
    """Measure and print."""
    tune()
    wanted = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    print(f"{PODS} pods that wait in {QUEUES} queues of {DEPARTMENTS} departments")
    print(f"{'row':<24}{'ms per pod':>12}{'of it coming':>14}{'placed':>8}{'evicted':>9}{'decisions':>11}")
    for row in ROWS:
        if wanted and not any(part in row.name for part in wanted):
            continue
        profile = cProfile.Profile()
        if PROFILE:
            profile.enable()
        coming, deciding, world = measure(row)
        if PROFILE:
            profile.disable()
            pstats.Stats(profile).sort_stats("cumulative" if "--cumulative" in sys.argv else "tottime").print_stats(40)
        each = 1000 / PODS
        print(
            f"{row.name:<24}{(coming + deciding) * each:>12.3f}{coming * each:>14.3f}"
            f"{world.placed:>8}{world.evicted:>9}{world.decisions:>11}",
            flush=True,
        )


if __name__ == "__main__":
    main()
