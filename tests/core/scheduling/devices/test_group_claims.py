"""Claims of pod groups: shared between pods of one attempt, reserved once, given up together."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model import core_v1
from allot.core.scheduling.devices.claim_fit import NOT_AVAILABLE
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import Deallocate, Unreserve
from allot.core.scheduling.status import Status, Verdict

from ..device_world import allocation, ask, claim, gates, node, place, pod, pod_group, world

GATES = gates("DRAWorkloadResourceClaims", "GenericWorkload")
SHARED = {"name": "c", "resourceClaimName": "c"}
GROUP_REFERENCE = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}


def member(name: str, *claims: str, group: str = "g") -> core_v1.Pod:
    return pod(name, *claims, scheduling_group=core_v1.PodSchedulingGroup(pod_group_name=group))


def grouped() -> Claims:
    claims = world("n1", "n2", enabled=GATES)
    claims.put_pod_group(pod_group("g", SHARED))
    return claims


def test_pods_of_a_group_share_what_was_decided_for_one_of_them() -> None:
    claims = grouped()
    claims.put_claim(claim("c"))
    first = place(claims, member("p", "c"), node("n1"))
    fit = ask(claims, member("q", "c"))
    assert fit.nodes == {"n1"}
    assert fit.quick(node("n2")) == NOT_AVAILABLE
    second = place(claims, member("q", "c"), node("n1"))
    assert second.claims[0].allocation == first.claims[0].allocation
    refused = claims.fit(member("r", "c", group="other"))
    assert isinstance(refused, Status)
    assert refused.reasons == ("resource claim ns/c is in the process of being allocated",)
    claims.forget(first)
    assert claims.in_flight("ns", "c"), "the second pod still counts on it"
    claims.forget(second)
    assert not claims.in_flight("ns", "c")


@pytest.mark.parametrize(
    ("entries", "reserved_for"),
    [
        ((SHARED,), ("scheduling.k8s.io", "podgroups", "g", "uid-g")),
        ((), ("", "pods", "p", "uid-p")),
        (({"name": "c", "resourceClaimName": "other"},), ("", "pods", "p", "uid-p")),
        (({"name": "other", "resourceClaimName": "c"},), ("", "pods", "p", "uid-p")),
    ],
)
def test_a_claim_that_the_group_names_in_the_same_way_is_reserved_for_the_group(
    entries: tuple[dict[str, str], ...], reserved_for: tuple[str, ...]
) -> None:
    claims = world("n1", enabled=GATES)
    claims.put_pod_group(pod_group("g", *entries))
    claims.put_claim(claim("c"))
    consumer = place(claims, member("p", "c"), node("n1")).claims[0].consumer
    assert consumer is not None
    assert (consumer.api_group, consumer.resource, consumer.name, consumer.uid) == reserved_for


def test_a_claim_that_is_reserved_for_the_group_needs_no_reservation_for_its_pods() -> None:
    claims = grouped()
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0"), "reservedFor": [GROUP_REFERENCE]}))
    assert place(claims, member("p", "c"), node("n1")).claims == ()
    assert len(place(claims, member("q", "c", group="other"), node("n1")).claims) == 1


def test_without_the_gate_groups_reserve_nothing() -> None:
    claims = world("n1")
    claims.put_pod_group(pod_group("g", SHARED))
    claims.put_claim(claim("c"))
    consumer = place(claims, member("p", "c"), node("n1")).claims[0].consumer
    assert consumer is not None
    assert consumer.resource == "pods"


# --- clean-ups ---


def clean_ups(claims: Claims, *pods: core_v1.Pod, scheduled: int = 0) -> tuple[Any, Status]:
    group = pod_group("g", SHARED)
    refused = [(found, claims.fit(found), {"n2": NOT_AVAILABLE}) for found in pods]
    return claims.group_clean_ups(group, refused, scheduled)


def test_each_pods_own_claims_are_given_up_first() -> None:
    claims = grouped()
    for name in ("p", "q"):
        claims.put_claim(claim(f"own-{name}", status={"allocation": allocation("gpu-0")}))
    steps, status = clean_ups(claims, member("p", "own-p"), member("q", "own-q"))
    assert [step.claim.metadata.name for step in steps] == ["own-p", "own-q"]
    assert status.reasons == ("deallocation and deletion of ResourceClaims completed",)
    assert status.verdict is Verdict.UNSCHEDULABLE


def test_then_a_claim_of_the_group_that_cannot_be_used() -> None:
    claims = grouped()
    reserved = {"allocation": allocation("gpu-0"), "reservedFor": [GROUP_REFERENCE]}
    claims.put_claim(claim("c", status=reserved))
    (step,), status = clean_ups(claims, member("p", "c"))
    assert isinstance(step, Deallocate)
    assert status.reasons == ("deallocation of PodGroup ResourceClaim completed",)
    assert status.verdict is Verdict.UNSCHEDULABLE


def test_then_the_groups_reservation() -> None:
    claims = grouped()
    both = [GROUP_REFERENCE, {"resource": "pods", "name": "x", "uid": "uid-x"}]
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0"), "reservedFor": both}))
    (step,), status = clean_ups(claims, member("p", "c"))
    assert isinstance(step, Unreserve)
    assert step.uid == "uid-g"
    assert status.reasons == ("ResourceClaim unreserved for PodGroup",)
    assert status.verdict is Verdict.UNRESOLVABLE


def test_a_group_of_which_pods_run_keeps_its_claims() -> None:
    claims = grouped()
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0"), "reservedFor": [GROUP_REFERENCE]}))
    assert clean_ups(claims, member("p", "c"), scheduled=1)[0] == ()
