"""Claims as the scheduler sees them: looking them up, and what counts before the API says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from allot.core.allocation import ClaimID, DeviceID
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import ObjectMeta
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.devices.device_fit import Devices
from allot.core.scheduling.status import Status, Verdict

from ..device_world import (
    DRIVER,
    allocation,
    ask,
    claim,
    container,
    device_class,
    exactly,
    gates,
    gpus,
    node,
    place,
    pod,
    pod_owner,
    slice_of,
    world,
)


def in_group(found: core_v1.Pod, group: str) -> core_v1.Pod:
    spec = core_v1.PodSpec(
        resource_claims=found.spec.resource_claims,
        scheduling_group=core_v1.PodSchedulingGroup(pod_group_name=group),
    )
    return core_v1.Pod(metadata=found.metadata, spec=spec, status=found.status)


def held(claims: Claims, device: str, pool: str = "n1") -> list[str]:
    state = claims.inventory.ledger.find(DeviceID(DRIVER, pool, device))
    return [str(holder) for holder in state.claims] if state is not None else []


# --- lookup ---


def test_claims_are_what_the_decision_expects_of_devices() -> None:
    devices: Devices = Claims()
    assert devices.fit(pod()) is None


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (pod("p", "c"), 'could not find ResourceClaim "ns/c"'),
        (pod("p", templates={"gpu": "c"}), 'could not find ResourceClaim "ns/c"'),
        (pod("p", "going"), 'resourceclaim "going" is being deleted'),
        (
            pod("p", templates={"gpu": "other"}),
            "ResourceClaim ns/other was not created for Pod ns/p (Pod is not owner)",
        ),
        (
            core_v1.Pod(
                metadata=pod("p").metadata,
                spec=core_v1.PodSpec(
                    resource_claims=(core_v1.PodResourceClaim(name="gpu", resource_claim_template_name="t"),)
                ),
            ),
            'pod "ns/p": ResourceClaim not created yet',
        ),
        (
            core_v1.Pod(
                metadata=pod("p").metadata,
                spec=core_v1.PodSpec(resource_claims=(core_v1.PodResourceClaim(name="gpu"),)),
            ),
            'pod "ns/p", spec.resourceClaim "gpu": none of the supported fields are set',
        ),
    ],
)
def test_a_pod_whose_claims_cannot_be_used_is_gated_and_refused_in_the_same_words(
    asked: core_v1.Pod, text: str
) -> None:
    claims = world("n1")
    claims.put_claim(claim("going", deletionTimestamp="2026-01-01T00:00:00Z"))
    claims.put_claim(claim("other", owner="q"))
    expected = Status(verdict=Verdict.UNRESOLVABLE, plugin="DynamicResources", reasons=(text,))
    assert claims.gate(asked) == expected
    assert claims.fit(asked) == expected


def test_a_claim_that_has_all_the_users_it_can_have_holds_back_any_other_pod() -> None:
    claims = world("n1")
    users = tuple(
        api.ResourceClaimConsumerReference(resource="pods", name=f"u{number}", uid=f"u{number}")
        for number in range(api.RESERVED_FOR_MAX)
    )
    full = claim("c")
    claims.put_claim(replace(full, status=api.ResourceClaimStatus(reserved_for=users)))
    text = 'resourceclaim "c" is reserved for 256 consumers, which is the limit'
    expected = Status(verdict=Verdict.UNRESOLVABLE, plugin="DynamicResources", reasons=(text,))
    assert claims.gate(pod("p", "c")) == expected
    assert claims.fit(pod("p", "c")) == expected
    user = pod("u7", "c")
    assert claims.gate(replace(user, metadata=replace(user.metadata, uid="u7"))) is None


def test_a_claim_that_is_not_needed_is_left_out() -> None:
    claims = world("n1")
    assert claims.fit(pod("p", templates={"gpu": None})) is None
    assert claims.gate(pod("p", templates={"gpu": None})) is None


def test_a_claim_of_the_pods_group_is_accepted_if_groups_can_have_claims() -> None:
    asked = in_group(pod("p", templates={"gpu": "c"}), "g")
    owner = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "name": "g",
        "uid": "whatever",
        "controller": True,
    }
    with_groups, without_groups = world("n1", enabled=gates("DRAWorkloadResourceClaims")), world("n1")
    for claims in (with_groups, without_groups):
        claims.put_claim(claim("c", ownerReferences=[owner]))
    assert with_groups.gate(asked) is None
    refused = without_groups.gate(asked)
    assert refused is not None
    assert refused.reasons == ("ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)",)
    with_groups.put_claim(claim("c", version=2, ownerReferences=[{**owner, "name": "h"}]))
    refused = with_groups.gate(asked)
    assert refused is not None
    assert refused.reasons == (
        "ResourceClaim ns/c was not created for Pod ns/p (neither Pod nor PodGroup g is the owner)",
    )


# --- what counts before the API says so ---


def test_a_decision_holds_devices_until_it_is_taken_back() -> None:
    claims = world("n1")
    claims.put_claim(claim("c"))
    placement = place(claims, pod("p", "c"), node("n1"))
    assert held(claims, "gpu-0") == ["ns/c"]
    assert claims.in_flight("ns", "c")
    claims.forget(placement)
    assert held(claims, "gpu-0") == []
    assert not claims.in_flight("ns", "c")


def test_what_was_written_counts_until_an_informer_has_something_as_new() -> None:
    claims = world("n1")
    claims.put_claim(claim("c", version=9))
    place(claims, pod("p", "c"), node("n1"))
    written = claim("c", version=10, status={"allocation": allocation("gpu-0")})
    claims.wrote(written)
    assert not claims.in_flight("ns", "c")
    claims.put_claim(claim("c", version=9, labels={"seen": "late"}))
    assert claims.claim("ns", "c") is written
    assert held(claims, "gpu-0") == ["ns/c"]
    # 100 is newer than 10 although it is not so as text the other way round.
    claims.put_claim(claim("c", version=100))
    assert held(claims, "gpu-0") == []


def test_what_an_informer_has_already_is_not_replaced_by_an_older_answer_to_a_write() -> None:
    claims = world("n1")
    claims.put_claim(claim("c", version=7))
    claims.wrote(claim("c", version=6, status={"allocation": allocation("gpu-0")}))
    assert held(claims, "gpu-0") == []


def test_a_new_claim_of_the_same_name_starts_with_nothing() -> None:
    claims = world("n1")
    claims.put_claim(claim("c"))
    place(claims, pod("p", "c"), node("n1"))
    claims.put_claim(claim("c", uid="another", version=2))
    assert held(claims, "gpu-0") == []


def test_a_deleted_claim_gives_its_devices_back_and_leaves_nothing() -> None:
    claims = world("n1")
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-1")}))
    assert held(claims, "gpu-1") == ["ns/c"]
    claims.delete_claim("ns", "c")
    claims.delete_claim("ns", "c")
    assert held(claims, "gpu-1") == []
    assert claims.claim("ns", "c") is None
    assert list(claims.claims()) == []


def test_forgetting_keeps_an_allocation_that_was_written() -> None:
    claims = world("n1")
    claims.put_claim(claim("c"))
    placement = place(claims, pod("p", "c"), node("n1"))
    claims.wrote(claim("c", version=2, status={"allocation": allocation("gpu-0")}))
    claims.forget(placement)
    assert held(claims, "gpu-0") == ["ns/c"]


def test_without_pods_the_devices_that_only_they_use_are_free() -> None:
    claims = world("n1", devices=1)
    alone = {"resource": "pods", "name": "p", "uid": "uid-p"}
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0"), "reservedFor": [alone]}))
    claims.put_claim(claim("wanted"))
    fit = ask(claims, pod("q", "wanted"))
    assert fit.exact(node("n1")) is not None
    with claims.without([pod("p", "c")]):
        assert ask(claims, pod("q", "wanted")).exact(node("n1")) is None
    assert held(claims, "gpu-0") == ["ns/c"]
    other = {"resource": "pods", "name": "o", "uid": "uid-o"}
    claims.put_claim(claim("c", version=2, status={"allocation": allocation("gpu-0"), "reservedFor": [alone, other]}))
    with claims.without([pod("p", "c")]):
        assert ask(claims, pod("q", "wanted")).exact(node("n1")) is not None


def test_a_claim_is_of_use_to_pods_that_are_about_to_reserve_it() -> None:
    """A decision that is being written counts like a reservation: its devices are not free without the others."""
    claims = world("n1", devices=1)
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0")}))
    place(claims, pod("p", "c"), node("n1"))
    with claims.without([pod("q", "c")]):
        assert held(claims, "gpu-0") == ["ns/c"]
    with claims.without([pod("p", "c"), pod("q", "c")]):
        assert held(claims, "gpu-0") == []


# --- which nodes changed ---


def changes(act: Callable[[Claims], None], *before: Callable[[Claims], None]) -> list[str | None]:
    claims = world("n1", "n2")
    for step in before:
        step(claims)
    found: list[str | None] = []
    claims.listen(found.append)
    act(claims)
    return found


def test_only_the_node_whose_device_is_taken_or_freed_is_told() -> None:
    allocated = claim("c", version=2, status={"allocation": allocation("gpu-0")})
    assert changes(lambda claims: claims.put_claim(allocated)) == ["n1"]
    assert changes(lambda claims: claims.delete_claim("ns", "c"), lambda claims: claims.put_claim(allocated)) == ["n1"]
    assert changes(lambda claims: claims.put_claim(claim("c"))) == []


def test_all_nodes_are_told_of_devices_that_many_can_use_once_that_makes_a_difference() -> None:
    network = slice_of(None, gpus(3), name="network", allNodes=True)
    assert changes(lambda claims: claims.put_slice(network)) == [None]

    def taken(device: str) -> api.ResourceClaim:
        return claim(f"holder-{device}", status={"allocation": allocation(device, node=None, pool="network")})

    claims = world("n1", "n2")
    claims.put_slice(network)
    told: list[str | None] = []
    claims.listen(told.append)
    claims.put_claim(taken("gpu-0"))
    assert told == [], "nobody has asked for such devices"
    claims.put_claim(claim("c"))
    ask(claims, pod("p", "c"))
    claims.delete_claim("ns", "holder-gpu-0")
    assert told == [], "there were enough before and there are enough now"
    for number in range(3):
        claims.put_claim(taken(f"gpu-{number}"))
    assert set(told) == {None}


def test_a_device_of_one_node_in_a_slice_of_many_concerns_that_node() -> None:
    mixed = slice_of(None, [{"name": "gpu-0", "nodeName": "n2"}], name="mixed", perDeviceNodeSelection=True)
    taken = claim("c", status={"allocation": allocation("gpu-0", node=None, pool="mixed")})
    assert changes(lambda claims: claims.put_claim(taken), lambda claims: claims.put_slice(mixed)) == ["n2"]


def test_a_taint_rule_concerns_the_nodes_of_its_devices() -> None:
    rule = api.DeviceTaintRule(
        metadata=ObjectMeta(name="r"),
        spec=api.DeviceTaintRuleSpec(
            device_selector=api.DeviceTaintSelector(pool="n2"),
            taint=api.DeviceTaint(key="k", effect=api.EFFECT_NO_SCHEDULE),
        ),
    )
    assert set(changes(lambda claims: claims.put_taint_rule(rule))) == {"n2"}
    assert set(changes(lambda claims: claims.delete_taint_rule("r"), lambda c: c.put_taint_rule(rule))) == {"n2"}


# --- extended resources ---


def test_the_stand_in_for_a_claim_that_is_to_be_made_ends_with_the_claim() -> None:
    claims = world("n1")
    claims.put_class(device_class("gpu", extended="example.com/gpu", created="2026-01-01T00:00:00Z"))
    asked = extended_pod()
    placement = place(claims, asked, node("n1"))
    assert held(claims, "gpu-0") == ["ns/<extended-resources>uid-p"]
    made = claim(
        "p-extended-resources-x",
        exactly(),
        annotations={api.EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
        ownerReferences=[pod_owner("p")],
    )
    claims.wrote(made)
    assert claims.special_claim_of(asked) is made
    assert held(claims, "gpu-0") == ["ns/<extended-resources>uid-p"]
    allocated = claim(
        "p-extended-resources-x",
        exactly(),
        version=2,
        annotations={api.EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
        ownerReferences=[pod_owner("p")],
        status={"allocation": allocation("gpu-0")},
    )
    claims.wrote(allocated)
    assert held(claims, "gpu-0") == ["ns/p-extended-resources-x"]
    claims.forget(placement)
    assert held(claims, "gpu-0") == ["ns/p-extended-resources-x"]
    assert claims.claims_of(asked) == (ClaimID("ns", "p-extended-resources-x"),)
    claims.delete_claim("ns", "p-extended-resources-x")
    assert held(claims, "gpu-0") == []
    assert claims.special_claim_of(asked) is None


def extended_pod() -> core_v1.Pod:
    return pod("p", containers=(container("a", gpu="1"),))
