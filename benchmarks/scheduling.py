"""How fast decisions are, without API server, queue or writes: processor time and work done. Asserts nothing.

    .venv/bin/python benchmarks/scheduling.py [--quick] [--profile] [part of a row's name...]

Each pod is decided and then assumed, as the scheduler does; making the objects is not measured. The clusters are those of
Kubernetes' scheduler benchmark: 10 devices per node with 13 attributes each, pods with one claim made from a template.
Every row is measured on 500 and on 5,000 nodes: the second must not be twice as slow.
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
from allot.core.model.meta import ObjectMeta, OwnerReference
from allot.core.model.scheduling_v1 import (
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from allot.core.quantity import Quantity
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.decide import decide
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import ClaimStep, Unit
from allot.core.scheduling.settings import DEFAULT_SETTINGS

DRIVER = "test-driver.cdi.k8s.io"
DEVICES = 10
SELECTOR = (
    f'device.attributes["{DRIVER}"].driverVersion.major() >= 1'
    f' && device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("1Mi"))'
)
QUICK = "--quick" in sys.argv
PROFILE = "--profile" in sys.argv


# --- objects ---


def device(number: int, roots: int) -> api.Device:
    """A device as the upstream benchmark has it."""
    root = number % roots
    texts = {
        "driver": "xe",
        "family": "Arc Pro B-Series",
        "health": "Healthy",
        "model": "B60",
        "type": "gpu",
        "pciAddress": f"0000:0{number}:00.0",
        "resource.kubernetes.io/pciBusID": f"0000:0{number}:00.0",
        "pciId": "0xe211",
        "pciRoot": f"0{root}",
        "resource.k8s.io/pciRoot": f"{root}",
        "resource.kubernetes.io/pciRoot": f"pci0000:0{root}",
    }
    attributes = {name: api.DeviceAttribute(string=text) for name, text in texts.items()}
    attributes["driverVersion"] = api.DeviceAttribute(version="1.2.3")
    attributes["sriov"] = api.DeviceAttribute(bool_=True)
    capacity = {"memory": "24480Mi", "millicores": "1k"}
    return api.Device(
        name=f"basic-device-{number}",
        attributes=attributes,
        capacity={name: api.DeviceCapacity(value=Quantity.parse(text)) for name, text in capacity.items()},
    )


def node(number: int) -> core_v1.Node:
    """A node with room for 110 pods."""
    name = f"scheduler-perf-dra-{number}"
    labels = {"node-with-dra": "true", "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{number % 3}"}
    amounts = {"pods": "110", "cpu": "4", "memory": "32Gi"}
    allocatable = {resource: Quantity.parse(text) for resource, text in amounts.items()}
    return core_v1.Node(
        metadata=ObjectMeta(name=name, labels=labels), status=core_v1.NodeStatus(allocatable=allocatable)
    )


def device_slice(number: int) -> api.ResourceSlice:
    """The devices of a node."""
    return api.ResourceSlice(
        metadata=ObjectMeta(name=f"resourceslice-{number}"),
        spec=api.ResourceSliceSpec(
            driver=DRIVER,
            pool=api.ResourcePool(name=f"resourceslice-{number}", generation=1, resource_slice_count=1),
            node_name=f"scheduler-perf-dra-{number}",
            devices=tuple(device(index, 2) for index in range(DEVICES)),
        ),
    )


def selector(expression: str) -> api.DeviceSelector:
    """A CEL selector."""
    return api.DeviceSelector(cel=api.CELDeviceSelector(expression=expression))


def request(name: str, *selectors: str) -> api.DeviceRequest:
    """One device."""
    return api.DeviceRequest(
        name=name,
        exactly=api.ExactDeviceRequest(
            device_class_name="test-class",
            allocation_mode=api.EXACT_COUNT,
            count=1,
            selectors=tuple(selector(expression) for expression in selectors),
        ),
    )


ONE = api.DeviceClaim(requests=(request("req-0"),))
SELECTED = api.DeviceClaim(requests=(request("req-0", SELECTOR),))
EITHER = api.DeviceClaim(
    requests=(
        api.DeviceRequest(
            name="req-0",
            first_available=tuple(
                api.DeviceSubRequest(
                    name=name, device_class_name=device_class, allocation_mode=api.EXACT_COUNT, count=1
                )
                for name, device_class in (("sub-0", "no-devices-class"), ("sub-1", "test-class"))
            ),
        ),
    )
)
MATCHED = api.DeviceClaim(
    requests=tuple(request(f"req-{number}") for number in range(5)),
    constraints=(
        api.DeviceConstraint(
            requests=tuple(f"req-{number}" for number in range(5)), match_attribute="resource.kubernetes.io/pciRoot"
        ),
    ),
)


def plain_pod(number: int) -> core_v1.Pod:
    """A pod without claims that asks for a little cpu."""
    amounts = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("100Mi")}
    container = core_v1.Container(name="pause", image="pause", resources=core_v1.ResourceRequirements(requests=amounts))
    return core_v1.Pod(
        metadata=ObjectMeta(name=f"test-{number}", namespace="test", uid=f"pod-{number}", labels={"app": "test"}),
        spec=core_v1.PodSpec(containers=(container,)),
    )


def claim_pod(number: int) -> core_v1.Pod:
    """A pod whose claim was made from a template."""
    entry = core_v1.PodResourceClaim(name="resource", resource_claim_template_name="test-claim-template")
    made = core_v1.PodResourceClaimStatus(name="resource", resource_claim_name=f"claim-{number}")
    return core_v1.Pod(
        metadata=ObjectMeta(name=f"test-dra-{number}", namespace="test", uid=f"pod-{number}"),
        spec=core_v1.PodSpec(containers=(core_v1.Container(name="pause", image="pause"),), resource_claims=(entry,)),
        status=core_v1.PodStatus(resource_claim_statuses=(made,)),
    )


def sharing_pod(number: int, sharers: int) -> core_v1.Pod:
    """A pod that names a claim."""
    entry = core_v1.PodResourceClaim(name="resource", resource_claim_name=f"claim-{number // sharers}")
    return core_v1.Pod(
        metadata=ObjectMeta(name=f"test-dra-{number}", namespace="test", uid=f"pod-{number}"),
        spec=core_v1.PodSpec(containers=(core_v1.Container(name="pause", image="pause"),), resource_claims=(entry,)),
    )


def extended_pod(number: int, classes: int) -> core_v1.Pod:
    """A pod with an extended resource that a device class stands behind."""
    amounts = {f"example.com/gpu-{number % classes}": Quantity.parse("1")}
    resources = core_v1.ResourceRequirements(requests=amounts, limits=amounts)
    return core_v1.Pod(
        metadata=ObjectMeta(name=f"test-dra-{number}", namespace="test", uid=f"pod-{number}"),
        spec=core_v1.PodSpec(containers=(core_v1.Container(name="pause", image="pause", resources=resources),)),
    )


def claim(number: int, devices: api.DeviceClaim) -> api.ResourceClaim:
    """The claim of a pod."""
    pod = f"test-dra-{number}"
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod, uid=f"pod-{number}", controller=True)
    return api.ResourceClaim(
        metadata=ObjectMeta(
            name=f"claim-{number}",
            namespace="test",
            uid=f"claim-{number}",
            resource_version="1",
            owner_references=(owner,),
        ),
        spec=api.ResourceClaimSpec(devices=devices),
    )


def shared_claim(number: int, devices: api.DeviceClaim) -> api.ResourceClaim:
    """A claim that pods name."""
    return structs.replace(
        claim(number, devices),
        metadata=ObjectMeta(name=f"claim-{number}", namespace="test", uid=f"claim-{number}", resource_version="1"),
    )


def a_cluster(nodes: int, classes: int = 0) -> tuple[Cluster, Claims]:
    """Nodes with devices."""
    cluster = Cluster()
    claims = Claims(changed=cluster.device_changes.add)
    cluster.devices = claims
    own = (selector(f'device.driver == "{DRIVER}"'),)
    none = (selector('device.driver == "no-such-driver.cdi.k8s.io"'),)
    for name, selectors in (("test-class", own), ("no-devices-class", none)):
        claims.put_class(api.DeviceClass(metadata=ObjectMeta(name=name), spec=api.DeviceClassSpec(selectors=selectors)))
    for number in range(classes):
        spec = api.DeviceClassSpec(selectors=own, extended_resource_name=f"example.com/gpu-{number}")
        claims.put_class(api.DeviceClass(metadata=ObjectMeta(name=f"test-class-{number}"), spec=spec))
    for number in range(nodes):
        cluster.put_node(node(number))
        claims.put_slice(device_slice(number))
    return cluster, claims


# --- rows ---


class Row(NamedTuple):
    """What is measured."""

    name: str
    devices: api.DeviceClaim | None
    pods: int
    # How many of the devices are taken before.
    taken: float = 0.0
    service: bool = False
    # How many device classes stand behind extended resources of their own.
    classes: int = 0
    # How many pods share a claim.
    sharers: int = 0
    # Whether each pod has a label of its own.
    named: bool = False
    # How many pods are decided together.
    gang: int = 1


ROWS = (
    Row("pods without claims", None, 5000),
    Row("pods of a service", None, 500, service=True),
    Row("pods of a stateful set", None, 500, service=True, named=True),
    Row("templates, empty", ONE, 2500),
    Row("templates, half full", ONE, 2500, 0.5),
    Row("templates, full: no room", ONE, 500, 1.0),
    Row("selector, empty", SELECTED, 2500),
    Row("match, empty", MATCHED, 500),
    Row("first available, empty", EITHER, 500),
    Row("claims shared by 5 pods", ONE, 2500, sharers=5),
    Row("extended resources, 25 classes", None, 2500, classes=25),
    Row("gangs of 3, without claims", None, 3000, gang=3),
    Row("gangs of 5, with templates", ONE, 2500, gang=5),
)


def filled(row: Row, nodes: int) -> Cluster:
    """The cluster of a row before the measured pods come."""
    cluster, claims = a_cluster(nodes, row.classes)
    if row.service:
        cluster.spread_selectors.put(
            core_v1.Service(
                metadata=ObjectMeta(name="s", namespace="test"), spec=core_v1.ServiceSpec(selector={"app": "test"})
            )
        )
    if row.devices is not None:
        before = int(nodes * DEVICES * row.taken)
        for number in range(before):
            claims.put_claim(claim(10**6 + number, row.devices))
            run(cluster, claim_pod(10**6 + number))
        for number in range(row.pods):
            claims.put_claim(claim(number, row.devices) if not row.sharers else shared_claim(number, row.devices))
    return cluster


def gang(count: int, name: str) -> PodGroup:
    """A group of pods that need each other."""
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=count))
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace="test", uid=name), spec=PodGroupSpec(scheduling_policy=policy)
    )


def confirm(cluster: Cluster, step: ClaimStep) -> None:
    """As if it had been written: until then others that share the claim have to wait."""
    if step.allocation is not None and isinstance(cluster.devices, Claims):
        status = structs.replace(step.claim.status, allocation=step.allocation)
        metadata = structs.replace(step.claim.metadata, resource_version="2")
        cluster.devices.put_claim(structs.replace(step.claim, metadata=metadata, status=status))


def run(cluster: Cluster, *pods: core_v1.Pod) -> tuple[int, int, int]:
    """Decide and assume: pods placed, nodes evaluated, search steps."""
    group = gang(len(pods), pods[0].metadata.name) if len(pods) > 1 else None
    decision = decide(cluster, Unit(pods=pods, group=group), DEFAULT_SETTINGS)
    for placement in decision.placements:
        cluster.assume(placement)
        if placement.claims and placement.pod.spec.resource_claims[0].resource_claim_name:
            confirm(cluster, placement.claims[0])
    return len(decision.placements), decision.nodes_evaluated, decision.search_steps


def pod_of(row: Row, number: int) -> core_v1.Pod:
    """The pod of a row with this number."""
    if row.classes:
        return extended_pod(number, row.classes)
    if row.sharers:
        return sharing_pod(number, row.sharers)
    pod = plain_pod(number) if row.devices is None else claim_pod(number)
    if row.named:
        labels = {**pod.metadata.labels, "statefulset.kubernetes.io/pod-name": pod.metadata.name}
        pod = structs.replace(pod, metadata=structs.replace(pod.metadata, labels=labels))
    return pod


def measure(row: Row, nodes: int) -> tuple[float, float, float, int]:
    """Microseconds, nodes and steps per pod, and how many pods were placed."""
    cluster = filled(row, nodes)
    count = row.pods // 5 if QUICK else row.pods
    pods = [pod_of(row, number) for number in range(count)]
    gc.collect()
    gc.freeze()
    warm_up = max(1, row.classes) * row.gang
    units = [pods[start : start + row.gang] for start in range(0, count, row.gang)]
    first = [run(cluster, *unit) for unit in units[: warm_up // row.gang]]
    profile = cProfile.Profile() if PROFILE else None
    if profile is not None:
        profile.enable()
    started = time.process_time()
    results = [run(cluster, *unit) for unit in units[len(first) :]]
    seconds = time.process_time() - started
    if profile is not None:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(14)
    gc.unfreeze()
    decided = len(results) * row.gang
    return (
        seconds / decided * 10**6,
        sum(result[1] for result in results) / decided,
        sum(result[2] for result in results) / decided,
        sum(result[0] for result in results) + sum(result[0] for result in first),
    )


def main() -> None:
    """Print the table."""
    print("| pods | nodes | decisions/s | µs each | nodes evaluated each | search steps each | placed |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    wanted = [name for name in sys.argv[1:] if not name.startswith("--")]
    for row in ROWS:
        if wanted and not any(name in row.name for name in wanted):
            continue
        for nodes in (500, 5000):
            micros, evaluated, steps, placed = measure(row, nodes)
            print(
                f"| {row.name} | {nodes} | {10**6 / micros:,.0f} | {micros:.0f} | {evaluated:.1f} | {steps:.1f} |"
                f" {placed} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
