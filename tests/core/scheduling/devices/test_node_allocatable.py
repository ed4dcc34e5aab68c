"""Devices that stand for node resources: what they account for, and whether that fits."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model import core_v1
from allot.core.quantity import Quantity
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.status import Status, Verdict

from ..device_world import allocation, ask, claim, container, device_class, gates, gpus, node, place, pod, slice_of

GATES = gates("DRANodeAllocatableResources", "DRAConsumableCapacity")


def world(resources: dict[str, Any], count: int = 2, **device: Any) -> Claims:
    claims = Claims(GATES)
    claims.put_class(device_class())
    claims.put_slice(slice_of("n1", gpus(count, nodeAllocatableResources=resources, **device)))
    return claims


def user(name: str, *claims: str, **spec: Any) -> core_v1.Pod:
    """A pod whose one container uses its claims."""
    used = tuple(core_v1.ContainerResourceClaim(name=found) for found in claims)
    one = container("a", cpu="1")
    resources = core_v1.ResourceRequirements(requests=one.resources.requests, claims=used)
    return pod(name, *claims, containers=(core_v1.Container(name="a", resources=resources),), **spec)


def amounts(statuses: tuple[core_v1.NodeAllocatableResourceClaimStatus, ...]) -> list[Any]:
    return [
        (
            status.resource_claim_name,
            status.containers,
            {found.name: str(found.quantity) for found in status.mapping},
            {found.name: (_text(found.per_pod), _text(found.per_container)) for found in status.overhead},
        )
        for status in statuses
    ]


def _text(amount: Quantity | None) -> str | None:
    return str(amount) if amount is not None else None


def test_a_device_stands_for_so_much_of_a_resource_and_costs_some() -> None:
    claims = world(
        {
            "cpu": {"mapping": {"deviceMultiplier": "2"}},
            "memory": {"overhead": {"perPod": "100Mi", "perContainer": "10Mi"}},
        }
    )
    claims.put_claim(
        claim("c", {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}})
    )
    placement = place(claims, user("p", "c"), node("n1", cpu="8", memory="1Gi"))
    assert amounts(placement.node_allocatable) == [
        ("c", ("a",), {"cpu": "4"}, {"memory": ("200Mi", "20Mi")}),
    ]


def test_a_share_stands_for_what_it_takes_of_the_device() -> None:
    claims = world(
        {"memory": {"mapping": {"capacityKey": "mem", "capacityMultiplier": "1.5"}}},
        1,
        allowMultipleAllocations=True,
        capacity={"mem": {"value": "8Gi"}},
    )
    request = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {"mem": "2Gi"}},
    }
    claims.put_claim(claim("c", {"name": "r", "exactly": request}))
    placement = place(claims, user("p", "c"), node("n1", cpu="8", memory="4Gi"))
    assert amounts(placement.node_allocatable) == [("c", ("a",), {"memory": "3Gi"}, {})]


def test_a_mapping_without_consumed_capacity_is_an_error() -> None:
    claims = world({"cpu": {"mapping": {"capacityKey": "mem"}}})
    claims.put_claim(claim("c"))
    answer = ask(claims, user("p", "c")).exact(node("n1", cpu="8"))
    assert answer is not None
    assert answer.verdict is Verdict.ERROR
    assert answer.reasons == (
        "claim ns/c, device gpu-0: ConsumedCapacity is nil, but Capacity key 'mem' is set in "
        "NodeAllocatableResources for resource cpu",
    )


@pytest.mark.parametrize(
    ("cpu", "verdict"),
    [("3", None), ("2", Verdict.UNRESOLVABLE)],
)
def test_pod_and_devices_must_fit_on_the_node_together(cpu: str, verdict: Verdict | None) -> None:
    claims = world({"cpu": {"mapping": {"deviceMultiplier": "2"}}})
    claims.put_claim(claim("c"))
    answer = ask(claims, user("p", "c")).exact(node("n1", cpu=cpu))
    assert (answer.verdict if answer is not None else None) == verdict
    if answer is not None:
        assert answer.reasons == ("Insufficient cpu",)


def test_what_other_pods_use_could_be_given_up_for_it() -> None:
    claims = world(
        {"cpu": {"mapping": {"deviceMultiplier": "2"}}, "hugepages-2Mi": {"mapping": {"deviceMultiplier": "2Mi"}}}
    )
    claims.put_claim(claim("c"))
    busy = node("n1", cpu="4", **{"hugepages-2Mi": "2Mi"})
    busy.cpu = 1500
    busy.scalars["hugepages-2Mi"] = 1
    answer = ask(claims, user("p", "c")).exact(busy)
    assert answer == Status(
        verdict=Verdict.UNSCHEDULABLE,
        plugin="DynamicResources",
        reasons=("Insufficient cpu", "Insufficient hugepages-2Mi"),
    )


def test_a_claim_with_a_mapped_device_cannot_be_shared() -> None:
    claims = world({"cpu": {"mapping": {"deviceMultiplier": "1"}}})
    other = [{"resource": "pods", "name": "q", "uid": "uid-q"}]
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0"), "reservedFor": other}))
    answer = ask(claims, user("p", "c")).exact(node("n1", cpu="8"))
    assert answer is not None
    assert answer.verdict is Verdict.UNRESOLVABLE
    assert answer.reasons == ("node allocatable resource claim c has a mapped device and cannot be shared across pods",)
    assert ask(claims, user("q", "c")).exact(node("n1", cpu="8")) is None


def test_overhead_alone_can_be_shared() -> None:
    claims = world({"cpu": {"overhead": {"perPod": "1"}}})
    other = [{"resource": "pods", "name": "q", "uid": "uid-q"}]
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0"), "reservedFor": other}))
    placement = place(claims, user("p", "c"), node("n1", cpu="8"))
    assert amounts(placement.node_allocatable) == [("c", ("a",), {}, {"cpu": ("1", None)})]


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (
            {"requests": {"cpu": "2"}},
            "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA requests",
        ),
        (
            {"limits": {"hugepages-2Mi": "2Mi"}},
            "pod level limit for hugepages-2Mi is insufficient to cover the aggregated container and "
            "node-allocatable DRA limits",
        ),
        (
            {"limits": {"memory": "1Gi"}},
            "pod level limit for memory is insufficient to cover the limit and DRA overhead for container a",
        ),
    ],
)
def test_what_the_whole_pod_may_have_must_cover_its_devices(level: dict[str, dict[str, str]], text: str) -> None:
    claims = world(
        {
            "cpu": {"mapping": {"deviceMultiplier": "2"}},
            "hugepages-2Mi": {"mapping": {"deviceMultiplier": "4Mi"}},
            "memory": {"overhead": {"perPod": "512Mi"}},
        }
    )
    claims.put_claim(claim("c"))
    whole = core_v1.ResourceRequirements(
        **{kind: {name: Quantity.parse(value) for name, value in found.items()} for kind, found in level.items()}
    )
    asked = user("p", "c", resources=whole)
    (one,) = asked.spec.containers
    limited = core_v1.ResourceRequirements(
        requests=one.resources.requests, limits={"memory": Quantity.parse("768Mi")}, claims=one.resources.claims
    )
    spec = core_v1.PodSpec(
        resource_claims=asked.spec.resource_claims,
        resources=whole,
        containers=(core_v1.Container(name="a", resources=limited),),
    )
    asked = core_v1.Pod(metadata=asked.metadata, spec=spec)
    answer = ask(claims, asked).exact(node("n1", cpu="8", memory="8Gi", **{"hugepages-2Mi": "8Mi"}))
    assert answer is not None
    assert (answer.verdict, answer.reasons) == (Verdict.UNRESOLVABLE, (text,))


def test_without_the_gate_nothing_is_accounted_for() -> None:
    claims = Claims()
    claims.put_class(device_class())
    claims.put_slice(slice_of("n1", gpus(1, nodeAllocatableResources={"cpu": {"mapping": {"deviceMultiplier": "99"}}})))
    claims.put_claim(claim("c"))
    assert place(claims, user("p", "c"), node("n1", cpu="2")).node_allocatable == ()
