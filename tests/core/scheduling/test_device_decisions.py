"""Decisions about pods with claims, from the cluster to the text that users read."""

from __future__ import annotations

from allot.core.model import core_v1
from allot.core.model.meta import ObjectMeta
from allot.core.quantity import Quantity
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.decide import decide
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import Deallocate, Decision, Refusal, Unit
from allot.core.scheduling.status import Verdict

from .device_world import (
    allocation,
    claim,
    container,
    device_class,
    either,
    exactly,
    gates,
    gpus,
    pod,
    pod_group,
    slice_of,
    world,
)

NOT_HELPFUL = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."


def cluster_of(claims: Claims, *names: str, cpu: str = "8") -> Cluster:
    cluster = Cluster(claims)
    claims.listen(cluster.device_changes.add)
    for name in names:
        amounts = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse("8Gi"), "pods": Quantity.parse("10")}
        cluster.put_node(core_v1.Node(metadata=ObjectMeta(name=name), status=core_v1.NodeStatus(allocatable=amounts)))
    return cluster


def one(cluster: Cluster, asked: core_v1.Pod) -> Decision:
    return decide(cluster, Unit(pods=(asked,)))


def refused(cluster: Cluster, asked: core_v1.Pod) -> Refusal:
    decision = one(cluster, asked)
    assert decision.placements == ()
    return decision.refusals[0]


def test_pods_get_devices_until_there_are_none_and_the_refusal_says_who_has_them() -> None:
    claims = world("n1", "n2", devices=1)
    cluster = cluster_of(claims, "n1", "n2")
    for name in ("a", "b", "c"):
        claims.put_claim(claim(f"claim-{name}", exactly("gpu")))
    for name in ("a", "b"):
        (placement,) = one(cluster, pod(name, f"claim-{name}")).placements
        cluster.assume(placement)
    refusal = refused(cluster, pod("c", "claim-c"))
    assert refusal.message == f"0/2 nodes are available: 2 cannot allocate all claims. {NOT_HELPFUL}"
    assert refusal.plugins == {"DynamicResources"}
    assert refusal.explanation in {
        "request gpu of claim ns/claim-c needs 1 device of class gpu: "
        f"node n1 has 1, which is in use by claim ns/claim-{holder}"
        for holder in ("a", "b")
    }


def test_a_claim_that_is_missing_is_told_without_looking_at_nodes() -> None:
    cluster = cluster_of(world("n1", "n2"), "n1", "n2")
    refusal = refused(cluster, pod("p", "c"))
    assert refusal.message == f'0/2 nodes are available: could not find ResourceClaim "ns/c". {NOT_HELPFUL}'


def test_a_class_that_is_missing_is_told_without_looking_at_nodes() -> None:
    claims = world("n1", "n2")
    claims.put_claim(claim("c", exactly("r0", 1, "none")))
    refusal = refused(cluster_of(claims, "n1", "n2"), pod("p", "c"))
    assert refusal.message.startswith("0/2 nodes are available: request r0: device class none does not exist. ")


def test_a_claim_that_is_allocated_where_there_is_no_room_is_given_up() -> None:
    claims = world("n1", "n2")
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0")}))
    cluster = cluster_of(claims, "n1", "n2", cpu="4")
    (placement,) = one(cluster, pod("other", node_selector={}, containers=(container("a", cpu="3"),))).placements
    occupied = placement.node
    cluster.assume(placement)
    claims.put_claim(claim("c", version=2, status={"allocation": allocation("gpu-0", node=occupied)}))
    refusal = refused(cluster, pod("p", "c", containers=(container("a", cpu="2"),)))
    assert refusal.message.startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 resourceclaim not available on the node. "
        "deallocation of ResourceClaim completed, preemption: 0/2 nodes are available: "
    )
    (step,) = refusal.clean_ups
    assert isinstance(step, Deallocate)


def test_a_selector_that_fails_fails_the_attempt() -> None:
    claims = world("n1", "n2")
    claims.put_claim(claim("c", exactly("r", 1, "gpu", 'device.attributes["gpu.example.com"].model == "x"')))
    refusal = refused(cluster_of(claims, "n1", "n2"), pod("p", "c"))
    assert refusal.verdict is Verdict.ERROR
    assert refusal.message.startswith(
        'running "DynamicResources" filter plugin: claim ns/c: selector #0 on device gpu.example.com/n'
    )


def test_the_node_with_the_preferred_alternative_is_chosen() -> None:
    claims = Claims()
    claims.put_class(
        device_class("big", selectors=[{"cel": {"expression": 'device.attributes["gpu.example.com"].big'}}])
    )
    claims.put_class(device_class("any"))
    for name, big in (("n1", False), ("n2", True), ("n3", False)):
        claims.put_slice(slice_of(name, gpus(2, attributes={"big": {"bool": big}})))
    cluster = cluster_of(claims, "n1", "n2", "n3")
    for number in range(2):
        claims.put_claim(claim(f"c{number}", either("r", ("one", "big", 1), ("other", "any", 1))))
        (placement,) = one(cluster, pod(f"p{number}", f"c{number}")).placements
        cluster.assume(placement)
        assert placement.node == "n2"


def test_a_decision_after_another_looks_at_the_one_node_that_changed() -> None:
    names = [f"n{number}" for number in range(40)]
    claims = world(*names, devices=4)
    cluster = cluster_of(claims, *names)
    evaluated = []
    for number in range(6):
        claims.put_claim(claim(f"c{number}", owner=f"p{number}"))
        decision = one(cluster, pod(f"p{number}", templates={"gpu": f"c{number}"}))
        cluster.assume(decision.placements[0])
        evaluated.append(decision.nodes_evaluated)
    assert evaluated[0] == 40
    assert max(evaluated[1:]) <= 1


def test_pods_that_share_a_claim_follow_it_to_its_node() -> None:
    claims = world("n1", "n2")
    claims.put_claim(claim("c"))
    cluster = cluster_of(claims, "n1", "n2")
    (first,) = one(cluster, pod("p", "c")).placements
    cluster.assume(first)
    waiting = refused(cluster, pod("q", "c"))
    assert "resource claim ns/c is in the process of being allocated" in waiting.message
    claims.wrote(claim("c", version=2, status={"allocation": allocation("gpu-0", node=first.node)}))
    for name in ("q", "r"):
        (placement,) = one(cluster, pod(name, "c")).placements
        assert placement.node == first.node
        cluster.assume(placement)


def test_a_group_that_cannot_use_its_claim_where_it_is_gives_it_up() -> None:
    claims = world("n1", "n2", enabled=gates("DRAWorkloadResourceClaims", "GenericWorkload"))
    group = pod_group("g", {"name": "c", "resourceClaimName": "c"})
    claims.put_pod_group(group)
    reserved = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}]
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0", node="gone"), "reservedFor": reserved}))
    cluster = cluster_of(claims, "n1", "n2")
    cluster.put_group(group)
    member = core_v1.PodSchedulingGroup(pod_group_name="g")
    pods = tuple(pod(f"p{number}", "c", scheduling_group=member) for number in range(2))
    decision = decide(cluster, Unit(pods=pods, group=group))
    assert decision.placements == ()
    assert [type(step) for refusal in decision.refusals for step in refusal.clean_ups] == [Deallocate]
    assert decision.group is not None
    assert decision.group.message.endswith(", deallocation of PodGroup ResourceClaim completed")
