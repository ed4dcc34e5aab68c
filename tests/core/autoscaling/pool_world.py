"""Short ways to say what a test about pools is about: pools of nodes with GPUs, pods that want some, the cluster there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from allot.core.advice.snapshot import Snapshot
from allot.core.advice.what_if import WhatIfCluster
from allot.core.autoscaling.expanders import Expander
from allot.core.autoscaling.pools import MILLION, Limits, Pool
from allot.core.autoscaling.scale_up import ScaleUp, Upcoming, plan_scale_up
from allot.core.autoscaling.templates import Template
from allot.core.model import core_v1
from allot.core.model.meta import APIStruct, ObjectMeta, OwnerReference
from allot.core.model.scheduling_v1 import GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec
from allot.core.quantity import Quantity
from core.scheduling.device_world import NAMESPACE, claim, device_class, exactly, gpus, slice_of

CLASS = device_class()
BIG = 'device.attributes["gpu.example.com"].model == "big"'


def node_of(name: str, cpu: str = "8", labels: dict[str, str] | None = None) -> core_v1.Node:
    """A node with room for 20 pods."""
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "20"}
    return core_v1.Node(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", labels={"kubernetes.io/hostname": name, **(labels or {})}),
        status=core_v1.NodeStatus(allocatable={key: Quantity.parse(text) for key, text in amounts.items()}),
    )


def template(count: int = 1, model: str = "small", cpu: str = "8", labels: dict[str, str] | None = None) -> Template:
    """A node with so many GPUs of a model."""
    devices = gpus(count, attributes={"model": {"string": model}})
    slices = (slice_of("t", devices),) if count else ()
    return Template(node=node_of("t", cpu, labels), slices=slices, source="a test")


def pool(name: str, price: int, *, most: int = 10, size: int = 0, closed: str = "", **of_template: Any) -> Pool:
    """A pool whose nodes cost so much."""
    return Pool(
        name=name,
        template=template(**of_template),
        price=price * MILLION,
        max_size=most,
        size=size,
        closed=closed,
    )


def pod(
    name: str, devices: int = 0, *selectors: str, cpu: str = "100m", priority: int = 0, node: str = "", **spec: Any
) -> tuple[APIStruct, ...]:
    """A pod that wants so many GPUs, with the claim that was made for it."""
    requests = {"cpu": Quantity.parse(cpu)}
    container = core_v1.Container(name="c", resources=core_v1.ResourceRequirements(requests=requests))
    entries = (core_v1.PodResourceClaim(name="gpu", resource_claim_template_name="t"),) if devices else ()
    statuses = (core_v1.PodResourceClaimStatus(name="gpu", resource_claim_name=f"{name}-gpu"),) if devices else ()
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="uid-rs", controller=True)
    made = core_v1.Pod(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}", owner_references=(owner,)),
        spec=core_v1.PodSpec(
            containers=(container,), resource_claims=entries, priority=priority, node_name=node, **spec
        ),
        status=core_v1.PodStatus(resource_claim_statuses=statuses, phase="Running" if node else "Pending"),
    )
    if not devices:
        return (made,)
    return made, claim(f"{name}-gpu", exactly("r", devices, "gpu", *selectors), owner=name)


def gang(name: str, count: int, devices: int = 0, *selectors: str) -> tuple[APIStruct, ...]:
    """Pods of which all or none run."""
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=count))
    group = PodGroup(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}"),
        spec=PodGroupSpec(scheduling_policy=policy),
    )
    found: list[APIStruct] = [group]
    for number in range(count):
        made, *claims = pod(f"{name}-{number}", devices, *selectors)
        assert isinstance(made, core_v1.Pod)
        member = core_v1.PodSchedulingGroup(pod_group_name=name)
        found += [replace(made, spec=replace(made.spec, scheduling_group=member)), *claims]
    return tuple(found)


def live(name: str, of: Template) -> tuple[APIStruct, ...]:
    """A node of a template, there."""
    made = of.named(name)
    return made.node, *made.slices


def cluster_of(*objects: Sequence[APIStruct]) -> WhatIfCluster:
    """The cluster with these objects."""
    return WhatIfCluster(Snapshot((CLASS, *(each for some in objects for each in some)), 1000.0))


def scale_up(
    what_if: WhatIfCluster,
    *pools: Pool,
    expander: Sequence[str] = ("price",),
    limits: Limits | None = None,
    upcoming: Sequence[Upcoming] = (),
    dice: dict[str, float] | None = None,
) -> ScaleUp:
    """What the autoscaler would buy."""
    chosen = Expander(expander, {each.name: each for each in pools}, dice)
    return plan_scale_up(what_if.machine, pools, chosen, seconds=what_if.now, limits=limits, upcoming=upcoming)


def bought(plan: ScaleUp) -> dict[str, int]:
    """How many nodes of which pools."""
    return {each.pool: each.count for each in plan.purchases}
