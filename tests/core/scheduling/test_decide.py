"""Decisions as users see them: messages, promised nodes, errors, devices."""

from __future__ import annotations

from allot.core.model.core_v1 import Pod
from allot.core.scheduling.plan import Deallocate
from allot.core.scheduling.status import Verdict

from .cluster_world import ask, cluster, cluster_with_devices, node, place, pod, refused
from .device_world import allocation, claim, device_class, either, exactly, gpus, slice_of
from .device_world import pod as claim_pod

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


def test_without_nodes_there_is_nothing_to_count() -> None:
    found = refused(cluster(), pod())
    assert (found.message, found.verdict) == ("no nodes available to schedule pods", Verdict.UNRESOLVABLE)


def test_reasons_are_counted_and_sorted_as_text() -> None:
    made = cluster(
        *(node(f"small-{number}", cpu="1") for number in range(10)),
        *(node(f"full-{number}", pods="0", cpu="1") for number in range(2)),
        node("cordoned", unschedulable=True),
    )
    found = refused(made, pod(cpu="2"))
    assert found.message == (
        "0/13 nodes are available: 1 node(s) were unschedulable, 12 Insufficient cpu, 2 Too many pods. "
        f"preemption: 0/13 nodes are available: 13 {NOT_HELPFUL}."
    )
    assert found.plugins == {"NodeResourcesFit", "NodeUnschedulable"}
    assert found.verdict is Verdict.UNSCHEDULABLE


def test_preemption_is_said_not_to_help_where_it_cannot() -> None:
    made = cluster(node("n1"), node("n2", cpu="1"), pod("there", on="n1", cpu="4"))
    assert refused(made, pod(cpu="2")).message == (
        "0/2 nodes are available: 2 Insufficient cpu. "
        f"preemption: 0/2 nodes are available: 1 {NO_VICTIMS}, 1 {NOT_HELPFUL}."
    )
    assert refused(made, pod(cpu="2", preemptionPolicy="Never")).message.endswith(
        " preemption: not eligible due to preemptionPolicy=Never."
    )


def test_the_node_that_comes_closest_is_explained() -> None:
    made = cluster(node("n1", cpu="1"), node("n2", cpu="1500m"))
    found = refused(made, pod(cpu="2"))
    assert found.explanation == "node n2 comes closest: it has 1500m of cpu free where the pod needs 2"
    full = cluster(node("n1", pods="1"), pod("there", on="n1"))
    assert refused(full, pod()).explanation == "node n1 has 1 pods and takes no more than 1"


# --- nodes that were promised ---


def waiting(name: str, promised: str, **more: object) -> Pod:
    return pod(name, status={"nominatedNodeName": promised}, **more)  # type: ignore[arg-type]


def test_a_pod_takes_the_node_that_it_was_promised() -> None:
    made = cluster(node("n1"), node("n2"), pod("there", on="n2", cpu="1"))
    assert place(made, waiting("p", "n2", cpu="1")) == "n2"


def test_a_promised_node_that_does_not_fit_any_more_is_given_up() -> None:
    made = cluster(node("n1"), node("n2"), pod("there", on="n2", cpu="4"))
    assert place(made, waiting("p", "n2", cpu="1")) == "n1"


def test_room_that_was_promised_is_kept_from_less_important_pods() -> None:
    made = cluster(node("n1"))
    promised = waiting("important", "n1", cpu="3", priority=10)
    made.put_pod(promised)
    assert refused(made, pod("other", cpu="2", priority=5)).message.startswith(
        "0/1 nodes are available: 1 Insufficient cpu."
    )
    assert ask(made, pod("small", cpu="1", priority=5)).placements
    assert ask(made, pod("greater", cpu="2", priority=20)).placements
    assert place(made, promised) == "n1"


def test_a_promise_ends_when_the_pod_gets_a_node_or_goes() -> None:
    made = cluster(node("n1"))
    made.put_pod(waiting("important", "n1", cpu="3", priority=10))
    made.delete_pod(waiting("important", "n1", cpu="3", priority=10))
    assert ask(made, pod("other", cpu="2")).placements
    assert not made.nominated


# --- devices ---


def test_devices_that_are_all_taken() -> None:
    made, claims = cluster_with_devices(node("n1"), node("n2"))
    claims.put_class(device_class())
    for number in range(2):
        claims.put_claim(claim(f"c{number}", exactly()))
    claims.put_slice(slice_of("n1", gpus(1)))
    assert place(made, claim_pod("p0", "c0")) == "n1"
    found = refused(made, claim_pod("p1", "c1"))
    assert found.message == (
        f"0/2 nodes are available: 2 cannot allocate all claims. preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."
    )
    assert found.plugins == {"DynamicResources"}
    assert "n1" in found.explanation and "ns/c0" in found.explanation


def test_what_is_wrong_with_the_claim_is_said_once() -> None:
    made, claims = cluster_with_devices(node("n1"), node("n2"))
    found = refused(made, claim_pod("p", "c"))
    assert found.message == (
        '0/2 nodes are available: could not find ResourceClaim "ns/c". '
        f"preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."
    )
    claims.put_claim(claim("c", exactly("r0", class_name="gone")))
    assert refused(made, claim_pod("p", "c")).message.startswith(
        "0/2 nodes are available: request r0: device class gone does not exist. preemption: "
    )


def test_a_claim_that_is_allocated_goes_where_its_devices_are() -> None:
    made, claims = cluster_with_devices(node("n1", cpu="1"), node("n2"), node("n3"))
    claims.put_class(device_class())
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0", node="n2")}))
    assert place(made, claim_pod("p", "c")) == "n2"
    made.put_node(node("n2", cpu="0"))
    assert refused(made, pod_with("q", "c", "2")).message.startswith(
        "0/3 nodes are available: 1 resourceclaim not available on the node, 2 Insufficient cpu. preemption: "
    )


def pod_with(name: str, claimed: str, cpu: str) -> Pod:
    return pod(name, cpu=cpu, resourceClaims=[{"name": claimed, "resourceClaimName": claimed}])


def test_an_error_of_a_selector_fails_the_attempt_for_all_nodes() -> None:
    made, claims = cluster_with_devices(node("n1"), node("n2"))
    claims.put_class(device_class())
    claims.put_slice(slice_of("n1", gpus(1, attributes={"model": {"string": "x"}})))
    claims.put_slice(slice_of("n2", gpus(1)))
    claims.put_claim(claim("c", exactly("r", 1, "gpu", 'device.attributes["gpu.example.com"].model == "x"')))
    found = refused(made, claim_pod("p", "c"))
    assert found.verdict is Verdict.ERROR
    assert found.message.startswith('running "DynamicResources" filter plugin: claim ns/c: selector #0')
    assert found.plugins == {"DynamicResources"}


def test_the_better_alternative_wins_over_the_emptier_node() -> None:
    made, claims = cluster_with_devices(node("n1"), node("n2"), pod("there", on="n2", cpu="1"))
    claims.put_class(device_class("a", selectors=[{"cel": {"expression": 'device.driver == "none"'}}]))
    claims.put_class(device_class("gpu", selectors=[{"cel": {"expression": "true"}}]))
    big = {"cel": {"expression": 'device.attributes["gpu.example.com"].size == "big"'}}
    claims.put_class(device_class("big", selectors=[big]))
    claims.put_slice(slice_of("n1", gpus(1, attributes={"size": {"string": "small"}})))
    claims.put_slice(slice_of("n2", gpus(1, attributes={"size": {"string": "big"}})))
    claims.put_claim(claim("c", either("r", ("best", "big", 1), ("any", "gpu", 1))))
    assert place(made, claim_pod("p", "c")) == "n2"


def test_a_device_is_never_given_twice() -> None:
    made, claims = cluster_with_devices(*(node(f"n{number}") for number in range(3)))
    claims.put_class(device_class())
    for number in range(3):
        claims.put_slice(slice_of(f"n{number}", gpus(2)))
    taken = []
    for number in range(8):
        claims.put_claim(claim(f"c{number}", exactly()))
        decision = ask(made, claim_pod(f"p{number}", f"c{number}"))
        for placement in decision.placements:
            made.assume(placement)
            allocated = placement.claims[0].allocation
            assert allocated is not None
            taken += [(result.pool, result.device) for result in allocated.devices.results]
    assert len(taken) == len(set(taken)) == 6


def test_a_claim_whose_devices_failed_is_given_back() -> None:
    made, claims = cluster_with_devices(node("n1"))
    claims.put_class(device_class())
    claims.put_slice(slice_of("n1", gpus(1)))
    conditions = [{"type": "failed", "status": "True", "reason": "r", "message": "m"}]
    status = {
        "allocation": allocation("gpu-0", bindingConditions=["ready"], bindingFailureConditions=["failed"]),
        "devices": [{"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "conditions": conditions}],
    }
    claims.put_claim(claim("c", status=status))
    found = refused(made, claim_pod("p", "c"))
    assert [type(clean_up) for clean_up in found.clean_ups] == [Deallocate]
    assert found.message == (
        "0/1 nodes are available: 1 resourceclaim not available on the node. "
        f"deallocation of ResourceClaim completed, preemption: 0/1 nodes are available: 1 {NOT_HELPFUL}."
    )
