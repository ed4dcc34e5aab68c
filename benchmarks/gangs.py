"""How fast a large gang is decided: processor time of one decision, without API server, queue or writes. Asserts nothing.

    .venv/bin/python benchmarks/gangs.py [--quick] [--profile] [part of a row's name...]

A gang of 1,000 equal pods with a claim each, on 5,000 nodes with 8 devices, in blocks of 500 nodes: placed anywhere, in one block, with a proof
that it cannot be, and with victims. Making the objects is not measured.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
import time
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import ObjectMeta
from allot.core.model.scheduling_v1 import SchedulingConstraints, TopologyConstraint
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.decide import decide
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import Decision, Unit
from allot.core.scheduling.settings import Settings

sys.path.insert(0, str(Path(__file__).parent))

from scheduling import DRIVER, ONE, claim, claim_pod, device, gang, node, selector

QUICK = "--quick" in sys.argv
PROFILE = "--profile" in sys.argv
NODES = 500 if QUICK else 5_000
PODS = 100 if QUICK else 1_000
BLOCK = NODES // 10
DEVICES = 8
LABEL = "example.com/block"
HIGH = 100


class Row(NamedTuple):
    """What is measured. each: devices per pod; free: nodes on which nothing is held; victims: of lower priority."""

    name: str
    each: int
    free: int
    in_block: bool = False
    victims: bool = False


ROWS = (
    Row("placed", 1, NODES),
    Row("placed in one block", 1, NODES, in_block=True),
    Row("proof that it cannot be", DEVICES, PODS - 1),
    Row("proof that no block takes it", DEVICES, NODES, in_block=True),
    Row("placed with victims", DEVICES, PODS - 10, victims=True),
)


def devices_of(number: int) -> api.ResourceSlice:
    """The devices of a node."""
    name = f"scheduler-perf-dra-{number}"
    return api.ResourceSlice(
        metadata=ObjectMeta(name=name),
        spec=api.ResourceSliceSpec(
            driver=DRIVER,
            pool=api.ResourcePool(name=name, generation=1, resource_slice_count=1),
            node_name=name,
            devices=tuple(device(index, 2) for index in range(DEVICES)),
        ),
    )


def holder(number: int, row: Row) -> tuple[core_v1.Pod, api.ResourceClaim]:
    """A pod that has one device of a node."""
    name = f"scheduler-perf-dra-{number}"
    pod = claim_pod(10**6 + number)
    spec = structs.replace(pod.spec, node_name=name, priority=0 if row.victims else HIGH)
    results = (api.DeviceRequestAllocationResult(request="req-0", driver=DRIVER, pool=name, device="basic-device-0"),)
    field = core_v1.NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,))
    where = core_v1.NodeSelector(node_selector_terms=(core_v1.NodeSelectorTerm(match_fields=(field,)),))
    allocation = api.AllocationResult(devices=api.DeviceAllocationResult(results=results), node_selector=where)
    consumer = api.ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
    made = claim(10**6 + number, ONE)
    status = api.ResourceClaimStatus(allocation=allocation, reserved_for=(consumer,))
    return structs.replace(pod, spec=spec), structs.replace(made, status=status)


def a_cluster(row: Row) -> Cluster:
    """The cluster of a row."""
    cluster = Cluster()
    claims = Claims(changed=cluster.device_changes.add)
    cluster.devices = claims
    own = (selector(f'device.driver == "{DRIVER}"'),)
    claims.put_class(api.DeviceClass(metadata=ObjectMeta(name="test-class"), spec=api.DeviceClassSpec(selectors=own)))
    for number in range(NODES):
        made = node(number)
        labels = {**made.metadata.labels, LABEL: f"b{number // BLOCK}"}
        cluster.put_node(structs.replace(made, metadata=structs.replace(made.metadata, labels=labels)))
        claims.put_slice(devices_of(number))
        if number >= row.free:
            pod, held = holder(number, row)
            claims.put_claim(held)
            cluster.put_pod(pod)
    return cluster


def a_gang(row: Row, cluster: Cluster) -> Unit:
    """The gang of a row, with its claims."""
    assert isinstance(cluster.devices, Claims)
    exactly = structs.replace(ONE.requests[0].exactly, count=row.each)  # type: ignore[type-var]
    wanted = structs.replace(ONE, requests=(structs.replace(ONE.requests[0], exactly=exactly),))
    pods = []
    for number in range(PODS):
        cluster.devices.put_claim(claim(number, wanted))
        pod = claim_pod(number)
        pods.append(structs.replace(pod, spec=structs.replace(pod.spec, priority=HIGH)))
    group = gang(PODS, "gang")
    spec = structs.replace(group.spec, priority=HIGH)
    if row.in_block:
        spec = structs.replace(
            spec, scheduling_constraints=SchedulingConstraints(topology=(TopologyConstraint(key=LABEL),))
        )
    return Unit(pods=tuple(pods), group=structs.replace(group, spec=spec))


def measure(row: Row) -> tuple[float, float, Decision]:
    """Seconds of the first decision, and of one when nodes are known from before."""
    cluster = a_cluster(row)
    unit = a_gang(row, cluster)
    settings = Settings(topology_placements=True)
    gc.collect()
    gc.freeze()
    times = []
    for _ in range(2):
        began = time.process_time()
        decision = decide(cluster, unit, settings)
        times.append(time.process_time() - began)
    gc.unfreeze()
    return times[0], times[1], decision


def main() -> None:
    """Measure and print."""
    wanted = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    print(f"{PODS} pods, {NODES} nodes with {DEVICES} devices, blocks of {BLOCK} nodes")
    print(f"{'row':<32}{'first s':>9}{'again s':>9}{'placed':>8}{'victims':>9}  said")
    for row in ROWS:
        if wanted and not any(part in row.name for part in wanted):
            continue
        profile = cProfile.Profile()
        if PROFILE:
            profile.enable()
        first, again, decision = measure(row)
        if PROFILE:
            profile.disable()
            pstats.Stats(profile).sort_stats("cumulative").print_stats(35)
        victims = sum(len(refusal.victims) for refusal in decision.refusals)
        said = decision.group.explanation if decision.group is not None else ""
        print(f"{row.name:<32}{first:>9.3f}{again:>9.3f}{len(decision.placements):>8}{victims:>9}  {said[:90]}")


if __name__ == "__main__":
    main()
