"""How long the autoscaler takes to decide, in processor time, warm. Asserts nothing.

    .venv/bin/python benchmarks/autoscaler.py [--quick] [--profile]

2,000 nodes with 8 GPUs each, all of them in use; 1,000 pods of 120 shapes that wait (selectors, counts, prioritized lists, requests); 30 pools
with 1 to 8 GPUs of several models. Then scale-down: 500 nodes of which each holds one pod that fits elsewhere.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from allot.core.advice.snapshot import Snapshot
from allot.core.advice.what_if import WhatIfCluster
from allot.core.autoscaling.expanders import Expander
from allot.core.autoscaling.pools import MILLION, Pool, Standing, price_text
from allot.core.autoscaling.scale_down import Candidate, plan_scale_down
from allot.core.autoscaling.scale_up import plan_scale_up
from allot.core.autoscaling.templates import Template
from allot.core.autoscaling.trying import Memory
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import APIStruct, ObjectMeta, OwnerReference
from allot.core.quantity import Quantity

DRIVER = "gpu.nvidia.com"
QUICK = "--quick" in sys.argv
PROFILE = "--profile" in sys.argv
NODES = 200 if QUICK else 2000
PODS = 100 if QUICK else 1000
CANDIDATES = 50 if QUICK else 500
MODELS = (("a100-40", "40Gi"), ("a100-80", "80Gi"), ("h100", "80Gi"), ("l4", "24Gi"), ("b200", "180Gi"))
RUNS = 5
T = TypeVar("T")


def device(number: int, model: str, memory: str) -> api.Device:
    """A GPU."""
    texts = {
        "productName": model,
        "type": "gpu",
        "uuid": f"GPU-{number}",
        "resource.kubernetes.io/pcieRoot": f"pci{number // 2}",
    }
    return api.Device(
        name=f"gpu-{number}",
        attributes={name: api.DeviceAttribute(string=text) for name, text in texts.items()},
        capacity={"memory": api.DeviceCapacity(value=Quantity.parse(memory))},
    )


def node(name: str, gpus: int, model: int, cpus: int) -> Template:
    """A node with GPUs, of a kind."""
    amounts = {"cpu": str(cpus), "memory": f"{cpus * 8}Gi", "pods": "110"}
    slices: tuple[api.ResourceSlice, ...] = ()
    if gpus:
        pool = api.ResourcePool(name=name, generation=1, resource_slice_count=1)
        devices = tuple(device(number, *MODELS[model]) for number in range(gpus))
        spec = api.ResourceSliceSpec(driver=DRIVER, pool=pool, node_name=name, devices=devices)
        slices = (api.ResourceSlice(metadata=ObjectMeta(name=f"slice-{name}"), spec=spec),)
    return Template(
        node=core_v1.Node(
            metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}),
            status=core_v1.NodeStatus(allocatable={key: Quantity.parse(text) for key, text in amounts.items()}),
        ),
        slices=slices,
        source="benchmark",
    )


def request(shape: int) -> api.DeviceRequest:
    """What a shape asks for: one to eight GPUs of a model, or of a size, or the first of two."""
    count = (1, 1, 2, 4, 8)[shape % 5]
    model, memory = MODELS[shape // 5 % 5]
    by_model = f'device.attributes["{DRIVER}"].productName == "{model}"'
    by_size = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{memory}")) >= 0'
    selector = api.DeviceSelector(cel=api.CELDeviceSelector(expression=by_model if shape % 2 else by_size))
    if shape % 7 == 0:
        alternatives = tuple(
            api.DeviceSubRequest(
                name=f"way-{way}",
                device_class_name="gpu",
                allocation_mode=api.EXACT_COUNT,
                count=max(count - way, 1),
                selectors=(selector,),
            )
            for way in range(2)
        )
        return api.DeviceRequest(name="gpu", first_available=alternatives)
    exactly = api.ExactDeviceRequest(
        device_class_name="gpu", allocation_mode=api.EXACT_COUNT, count=count, selectors=(selector,)
    )
    return api.DeviceRequest(name="gpu", exactly=exactly)


def pod(name: str, shape: int, node_name: str = "", devices: tuple[str, ...] = ()) -> Iterator[APIStruct]:
    """A pod of a shape with its claim."""
    requests = {"cpu": Quantity.parse(f"{(shape % 24 + 1) * 100}m"), "memory": Quantity.parse(f"{shape % 9 + 1}Gi")}
    container = core_v1.Container(name="c", resources=core_v1.ResourceRequirements(requests=requests))
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="rs", controller=True)
    yield core_v1.Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", owner_references=(owner,)),
        spec=core_v1.PodSpec(
            containers=(container,),
            node_name=node_name,
            priority=shape % 3,
            resource_claims=(core_v1.PodResourceClaim(name="gpu", resource_claim_template_name="t"),),
        ),
        status=core_v1.PodStatus(
            phase="Running" if node_name else "Pending",
            resource_claim_statuses=(core_v1.PodResourceClaimStatus(name="gpu", resource_claim_name=name),),
        ),
    )
    status = api.ResourceClaimStatus()
    if devices:
        results = tuple(
            api.DeviceRequestAllocationResult(request="gpu", driver=DRIVER, pool=node_name, device=each)
            for each in devices
        )
        field = core_v1.NodeSelectorRequirement(key="metadata.name", operator="In", values=(node_name,))
        term = core_v1.NodeSelectorTerm(match_fields=(field,))
        status = api.ResourceClaimStatus(
            allocation=api.AllocationResult(
                devices=api.DeviceAllocationResult(results=results),
                node_selector=core_v1.NodeSelector(node_selector_terms=(term,)),
            ),
            reserved_for=(api.ResourceClaimConsumerReference(resource="pods", name=name, uid=f"uid-{name}"),),
        )
    made_for = OwnerReference(api_version="v1", kind="Pod", name=name, uid=f"uid-{name}", controller=True)
    yield api.ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"claim-{name}", owner_references=(made_for,)),
        spec=api.ResourceClaimSpec(devices=api.DeviceClaim(requests=(request(shape),))),
        status=status,
    )


def objects(pending: int, per_node: Callable[[int], int]) -> Iterator[APIStruct]:
    """The cluster. per_node: how many GPUs of a node are held, by one pod."""
    yield api.DeviceClass(metadata=ObjectMeta(name="gpu"), spec=api.DeviceClassSpec())
    for number in range(NODES):
        made = node(f"node-{number:04d}", 8, number % 5, 96)
        yield made.node
        yield from made.slices
        held = per_node(number)
        if held:
            shape = {1: 1, 8: 9}[held] // 5 * 5 + {1: 0, 8: 4}[held]
            # Of its own model, so that it could be there.
            shape = number % 5 * 5 + {1: 1, 8: 4}[held]
            yield from pod(
                f"runs-{number}", shape, made.node.metadata.name, tuple(f"gpu-{each}" for each in range(held))
            )
    for number in range(pending):
        yield from pod(f"waits-{number:04d}", number % 120)


def pools() -> list[Pool]:
    """Thirty: six sizes of five models."""
    found = []
    for model in range(5):
        for index, gpus in enumerate((1, 2, 4, 8, 8, 0)):
            cpus = (12, 24, 48, 96, 192, 16)[index]
            price = (model + 2) * gpus * MILLION + cpus * MILLION // 20 - index * MILLION // 10
            template = node(f"t-{model}-{index}", gpus, model, cpus)
            found.append(Pool(name=f"pool-{model}-{index}", template=template, price=price, max_size=1000))
    return found


def measured(name: str, act: Callable[[], T]) -> T:
    """The least of several runs, the first of which warms up."""
    answer = act()
    times = []
    for _ in range(RUNS):
        gc.collect()
        began = time.process_time()
        answer = act()
        times.append(time.process_time() - began)
    print(f"{name:50} {min(times):8.3f} s   (median {sorted(times)[RUNS // 2]:.3f} s)")
    if PROFILE:
        profile = cProfile.Profile()
        profile.runcall(act)
        pstats.Stats(profile).sort_stats("cumulative").print_stats(35)
    return answer


def ranked(offers: list[Pool]) -> list[Pool]:
    """The same, each a priority of its own of a ComputeClass; the dearest comes first."""
    order = sorted(offers, key=lambda pool: -pool.price)
    return [
        replace(pool, standing=Standing(compute_class="c", rank=index, index=index, text=f"priority {index + 1}"))
        for index, pool in enumerate(order)
    ]


def scale_up(*, with_class: bool) -> None:
    """1,000 pods that wait."""
    what_if = WhatIfCluster(Snapshot(tuple(objects(PODS, lambda _number: 8)), 1000.0))
    offers = ranked(pools()) if with_class else pools()
    expander = Expander(("price",), {each.name: each for each in offers})
    memory = Memory()
    plan = measured(
        f"scale-up: {PODS} pods, {NODES} nodes, {len(offers)} {'priorities' if with_class else 'pools'}",
        lambda: plan_scale_up(what_if.machine, offers, expander, seconds=1000.0, memory=memory),
    )
    helped = sum(each.is_helped for each in plan.expectations)
    nodes = sum(each.count for each in plan.purchases)
    gap = plan.cost / plan.bound - 1 if plan.bound else 0.0
    print(
        f"  {helped} pods helped by {nodes} nodes of {len(plan.purchases)} pools; {price_text(plan.cost)} per hour, at least "
        f"{price_text(plan.bound)} (gap {gap:.1%}); {plan.questions} questions to the scheduler"
    )


def scale_down() -> None:
    """500 nodes with a pod each that fits elsewhere."""
    what_if = WhatIfCluster(Snapshot(tuple(objects(0, lambda number: 1 if number < 2 * CANDIDATES else 8)), 1000.0))
    offer = Pool(name="pool", template=node("t", 8, 0, 96), price=MILLION, size=NODES, max_size=NODES)
    candidates = [Candidate(f"node-{number:04d}", "pool") for number in range(CANDIDATES)]
    slices = what_if.all(api.ResourceSlice)
    plan = measured(
        f"scale-down: {CANDIDATES} candidates of {NODES} nodes",
        lambda: plan_scale_down(what_if.machine, candidates, [offer], slices, seconds=1000.0),
    )
    moves = sum(len(each.moves) for each in plan.removals)
    print(f"  {len(plan.removals)} nodes can go, {moves} pods move; {len(plan.kept)} stay")


if __name__ == "__main__":
    scale_up(with_class=False)
    scale_up(with_class=True)
    scale_down()
