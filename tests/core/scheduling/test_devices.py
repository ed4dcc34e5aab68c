"""The question about devices: kube-scheduler's PreFilter, Filter, Score and PostFilter, in its words."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.features import FeatureGates
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import Deallocate, DeleteClaim
from allot.core.scheduling.status import Status, Verdict

from .device_world import (
    DRIVER,
    allocation,
    ask,
    claim,
    container,
    device_class,
    either,
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

UNRESOLVABLE = Verdict.UNRESOLVABLE
CANNOT = "cannot allocate all claims"
NOT_HERE = "resourceclaim not available on the node"


def refusal(text: str, verdict: Verdict = UNRESOLVABLE) -> Status:
    return Status(verdict=verdict, plugin="DynamicResources", reasons=(text,))


# --- claims that controllers allocate ---


@pytest.mark.parametrize(
    ("enabled", "more"),
    [((), ", which needs feature gate DRAControlPlaneController"), (("DRAControlPlaneController",), "")],
)
def test_a_claim_of_a_controller_is_never_given_devices_by_the_scheduler(enabled: tuple[str, ...], more: str) -> None:
    claims = world("n1", enabled=gates(*enabled))
    annotations = {"allot.dev/allocation-controller": "slots.example.com"}
    claims.put_claim(claim("c", exactly("r0", 1), annotations=annotations))
    claims.put_claim(claim("own", exactly("r0", 1)))
    asked = pod("p", "own", "c")
    text = f"resource claim ns/c: waiting for controller slots.example.com to allocate it{more}"
    assert claims.gate(asked) == claims.fit(asked, now=0.0) == refusal(text)
    assert list(claims.awaited(asked)) == (["c"] if enabled else [])
    status = {"allocation": allocation("gpu-0")}
    claims.put_claim(claim("c", exactly("r0", 1), annotations=annotations, version=2, status=status))
    assert (claims.gate(asked), claims.awaited(asked)) == (None, {})


# --- PreFilter ---


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (exactly("r0", 1, "none"), refusal("request r0: device class none does not exist")),
        (
            either("r0", ("a", "gpu", 1), ("b", "none", 1)),
            refusal("request r0/b: device class none does not exist"),
        ),
        (exactly("r0", 1, ""), refusal("request r0: unsupported request type", Verdict.ERROR)),
        ({"name": "r0"}, refusal("resource claim ns/c, request r0: unknown request type")),
    ],
)
def test_what_no_node_could_serve_is_refused_before_any_is_asked(request_: dict[str, Any], expected: Status) -> None:
    claims = world("n1")
    claims.put_claim(claim("c", request_))
    assert claims.fit(pod("p", "c")) == expected


def test_a_class_that_appears_makes_the_pod_schedulable() -> None:
    claims = world("n1")
    claims.put_claim(claim("c", exactly("r0", 1, "late")))
    assert isinstance(claims.fit(pod("p", "c")), Status)
    claims.put_class(device_class("late"))
    assert ask(claims, pod("p", "c")).exact(node("n1")) is None
    claims.delete_class("late")
    assert isinstance(claims.fit(pod("p", "c")), Status)


def test_a_claim_that_is_in_flight_for_another_pod_has_to_be_waited_for() -> None:
    claims = world("n1")
    claims.put_claim(claim("c"))
    placement = place(claims, pod("p", "c"), node("n1"))
    assert claims.fit(pod("q", "c")) == refusal("resource claim ns/c is in the process of being allocated")
    claims.forget(placement)
    assert ask(claims, pod("q", "c")).exact(node("n1")) is None


# --- Filter ---


def test_devices_that_are_used_up_are_not_counted_on() -> None:
    claims = world("n1", "n2", devices=1)
    claims.put_claim(claim("a"))
    claims.put_claim(claim("b"))
    place(claims, pod("p", "a"), node("n1"))
    fit = ask(claims, pod("q", "b"))
    assert fit.quick(node("n1")) == fit.exact(node("n1")) == refusal(CANNOT)
    assert fit.quick(node("n2")) is None
    assert fit.exact(node("n2")) is None


def test_a_node_without_devices_cannot_serve() -> None:
    claims = world("n1")
    claims.put_claim(claim("c"))
    assert ask(claims, pod("p", "c")).quick(node("n2")) == refusal(CANNOT)


def test_the_steps_carry_allocation_and_reservation() -> None:
    claims = world("n1")
    stored = claim("c")
    claims.put_claim(stored)
    (step,) = place(claims, pod("p", "c"), node("n1")).claims
    assert step.claim is stored
    assert step.allocation is not None
    assert [result.device for result in step.allocation.devices.results] == ["gpu-0"]
    assert step.consumer is not None
    assert (step.consumer.api_group, step.consumer.resource) == ("", "pods")
    assert (step.consumer.name, step.consumer.uid) == ("p", "uid-p")


def test_several_claims_are_allocated_together() -> None:
    claims = world("n1", devices=2)
    for name in ("a", "b", "c"):
        claims.put_claim(claim(name))
    placement = place(claims, pod("p", "a", "b"), node("n1"))
    devices = [step.allocation.devices.results[0].device for step in placement.claims if step.allocation is not None]
    assert devices == ["gpu-0", "gpu-1"]
    assert ask(claims, pod("q", "c")).exact(node("n1")) == refusal(CANNOT)


def test_a_claim_that_a_pod_names_twice_is_allocated_once() -> None:
    claims = world("n1", devices=1)
    claims.put_claim(claim("c"))
    entries = tuple(core_v1.PodResourceClaim(name=name, resource_claim_name="c") for name in ("one", "two"))
    asked = core_v1.Pod(metadata=pod("p").metadata, spec=core_v1.PodSpec(resource_claims=entries))
    assert len(place(claims, asked, node("n1")).claims) == 1


def test_an_allocated_claim_ties_the_pod_to_its_node() -> None:
    claims = world("n1", "n2")
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0")}))
    fit = ask(claims, pod("p", "c"))
    assert fit.nodes == {"n1"}
    assert fit.quick(node("n2")) == fit.exact(node("n2")) == refusal(NOT_HERE)
    assert fit.quick(node("n1")) is None
    assert fit.exact(node("n1")) is None
    (step,) = fit.steps(node("n1"))[0]
    assert step.allocation is None
    assert step.consumer is not None


def test_a_claim_that_is_reserved_for_the_pod_needs_no_step() -> None:
    claims = world("n1")
    reserved = [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0"), "reservedFor": reserved}))
    fit = ask(claims, pod("p", "c"))
    assert fit.exact(node("n1")) is None
    assert fit.steps(node("n1")) == ((), None, ())


def test_an_allocated_claim_may_be_used_where_its_labels_say_or_anywhere() -> None:
    claims = world("n1")
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    zone = {**allocation("gpu-0", node=None, pool="n1"), "nodeSelector": {"nodeSelectorTerms": terms}}
    claims.put_claim(claim("c", status={"allocation": zone}))
    fit = ask(claims, pod("p", "c"))
    assert fit.nodes is None
    assert fit.exact(node("n7", labels={"zone": "a"})) is None
    assert fit.exact(node("n8", labels={"zone": "b"})) == refusal(NOT_HERE)
    claims.put_claim(claim("c", version=2, status={"allocation": allocation("gpu-0", node=None, pool="n1")}))
    assert ask(claims, pod("p", "c")).exact(node("n8", labels={"zone": "b"})) is None


def test_whether_new_claims_fit_is_asked_before_whether_old_ones_are_there() -> None:
    claims = world("n1", "n2", devices=1)
    claims.put_claim(claim("old", status={"allocation": allocation("gpu-0")}))
    claims.put_claim(claim("new"))
    claims.put_claim(claim("other", status={"allocation": allocation("gpu-0", node="n2")}))
    fit = ask(claims, pod("p", "old", "new"))
    assert fit.quick(node("n2")) == fit.exact(node("n2")) == refusal(CANNOT)
    claims.delete_claim("ns", "other")
    fit = ask(claims, pod("p", "old", "new"))
    assert fit.quick(node("n2")) == fit.exact(node("n2")) == refusal(NOT_HERE)


def test_devices_that_need_a_feature_of_the_node_need_it_after_allocation_too() -> None:
    claims = world("n1")
    skipping = allocation("gpu-0", node=None, pool="n1", skipNodeOperations=["Prepare"])
    claims.put_claim(claim("c", status={"allocation": skipping}))
    fit = ask(claims, pod("p", "c"))
    assert fit.exact(node("n1")) == refusal(NOT_HERE)
    assert fit.exact(node("n2", features=("DRAOptionalNodeOperations",))) is None


def test_a_selector_that_cannot_be_evaluated_ends_the_attempt_and_names_selector_device_and_key() -> None:
    claims = world("n1", "n2")
    claims.put_claim(claim("c", exactly("r", 1, "gpu", 'device.attributes["gpu.example.com"].model == "x"')))
    fit = ask(claims, pod("p", "c"))
    for answer in (fit.quick(node("n2")), fit.exact(node("n2"))):
        assert answer is not None
        assert answer.verdict is Verdict.ERROR
        assert answer.reasons[0].startswith(
            "claim ns/c: selector #0 on device gpu.example.com/n2/gpu-0: CEL runtime error: no such key: model"
        )


def test_only_nodes_with_such_devices_fail_and_the_others_stay_cheap() -> None:
    claims = world("n1")
    claims.put_slice(slice_of("n2", gpus(1, attributes={"model": {"string": "x"}})))
    claims.put_claim(claim("c", exactly("r", 1, "gpu", 'device.attributes["gpu.example.com"].model == "x"')))
    claims.put_claim(claim("d", exactly("r", 1, "gpu", 'device.attributes["gpu.example.com"].model == "x"')))
    fit, other = ask(claims, pod("p", "c")), ask(claims, pod("q", "d"))
    assert fit.quick(node("n2")) is None
    answer = fit.quick(node("n1"))
    assert answer is not None
    assert answer.verdict is Verdict.ERROR
    assert fit.key != other.key, "errors name the claim"


def test_an_expression_that_does_not_compile_is_an_error_on_every_node() -> None:
    claims = world("n1")
    claims.put_claim(claim("c", exactly("r", 1, "gpu", "nonsense(")))
    answer = ask(claims, pod("p", "c")).quick(node("n1"))
    assert answer is not None
    assert answer.verdict is Verdict.ERROR
    assert "claim ns/c: selector #0: CEL compile error" in answer.reasons[0]


def test_more_devices_than_a_claim_can_have_are_an_error() -> None:
    claims = world("n1", devices=40)
    claims.put_claim(claim("c", exactly("r", 33)))
    answer = ask(claims, pod("p", "c")).quick(node("n1"))
    assert answer == refusal("claim ns/c: number of requested devices 33 exceeds the claim limit of 32", Verdict.ERROR)


def test_an_invalid_pool_is_told_only_where_it_matters() -> None:
    claims = world("n1")
    claims.put_slice(slice_of("n2", [*gpus(1), *gpus(1)]))
    claims.put_claim(claim("c"))
    claims.put_claim(claim("many", exactly("r", 3)))
    invalid = refusal("invalid resource pools were encountered")
    fit = ask(claims, pod("p", "c"))
    assert fit.exact(node("n2")) == invalid
    assert fit.exact(node("n1")) is None
    assert ask(claims, pod("q", "many")).quick(node("n2")) == invalid


@pytest.mark.parametrize("enabled", [gates(), gates("DRANodeAllocatableResources")])
def test_a_slice_whose_node_selector_makes_no_sense_ends_the_attempt(enabled: FeatureGates) -> None:
    claims = world("n1", enabled=enabled)
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}]
    claims.put_slice(slice_of(None, gpus(1), name="odd", nodeSelector={"nodeSelectorTerms": terms}))
    claims.put_claim(claim("c"))
    claims.put_claim(claim("many", exactly("r", 9)))
    claims.put_claim(claim("held", status={"allocation": allocation("gpu-0", node=None, pool="odd")}))
    for fit in (ask(claims, pod("p", "c")), ask(claims, pod("p", "c", "held")), ask(claims, pod("q", "many"))):
        answer = fit.exact(node("n1"))
        assert answer is not None
        assert answer.verdict is Verdict.ERROR
        assert "failed to parse node selector" in answer.reasons[0]
        assert fit.occupancy(node("n1")) == (0, 0)
        assert isinstance(fit.explanation([node("n1")]), str)
    assert ask(claims, pod("q", "many")).quick(node("n1")) is not None


def test_a_device_whose_node_selector_makes_no_sense_ends_the_attempt() -> None:
    claims = world()
    terms = [{"matchExpressions": [{"key": "", "operator": "In", "values": []}]}]
    odd = {"name": "gpu-0", "nodeSelector": {"nodeSelectorTerms": terms}}
    claims.put_slice(slice_of("n1", [odd], perDeviceNodeSelection=True))
    claims.put_claim(claim("c"))
    fit = ask(claims, pod("p", "c"))
    answer = fit.exact(node("n1"))
    assert answer is not None
    assert answer.verdict is Verdict.ERROR
    assert "failed to perform node selection for device gpu.example.com/n1/gpu-0" in answer.reasons[0]
    assert fit.occupancy(node("n1")) == (0, 0)


def test_an_allocation_whose_node_selector_makes_no_sense_ends_the_attempt() -> None:
    claims = world("n1")
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}]
    odd = {**allocation("gpu-0", node=None, pool="n1"), "nodeSelector": {"nodeSelectorTerms": terms}}
    claims.put_claim(claim("c", status={"allocation": odd}))
    fit = ask(claims, pod("p", "c"))
    for answer in (fit.quick(node("n1")), fit.exact(node("n1"))):
        assert answer is not None
        assert answer.verdict is Verdict.ERROR


def test_a_claim_without_requests_fits_everywhere() -> None:
    claims = world("n1")
    empty = claim("c")
    claims.put_claim(api.ResourceClaim(metadata=empty.metadata))
    (step,) = place(claims, pod("p", "c"), node("n2")).claims
    assert step.allocation == api.AllocationResult()
    constraint = api.DeviceConstraint(match_attribute="gpu.example.com/numa")
    spec = api.ResourceClaimSpec(devices=api.DeviceClaim(constraints=(constraint,)))
    claims.put_claim(api.ResourceClaim(metadata=claim("d").metadata, spec=spec))
    (step,) = place(claims, pod("q", "d"), node("n2")).claims
    assert step.allocation == api.AllocationResult()


def test_a_search_that_is_given_up_is_an_error_that_names_the_node() -> None:
    claims = Claims(steps_max=1)
    claims.put_class(device_class())
    claims.put_slice(slice_of("n1", gpus(2)))
    for name in ("a", "b"):
        claims.put_claim(claim(name))
    answer = ask(claims, pod("p", "a", "b")).exact(node("n1"))
    assert answer == refusal("node n1: timed out trying to allocate devices", Verdict.ERROR)


# --- binding conditions ---

CONDITIONS: dict[str, Any] = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
ALLOCATED_AT = {"allocationTimestamp": "2026-01-01T00:00:00Z"}
THEN = 1767225600.0


def reported(**conditions: str) -> list[dict[str, Any]]:
    found = [{"type": type_, "status": status, "reason": "R"} for type_, status in conditions.items()]
    return [{"driver": DRIVER, "pool": "n1", "device": "gpu-0", "conditions": found}]


@pytest.mark.parametrize(
    ("devices", "now", "usable"),
    [
        ([], THEN + 600, True),
        ([], THEN + 601, False),
        (reported(Ready="True"), THEN + 9999, True),
        (reported(Ready="False"), THEN + 601, False),
        (reported(Broken="True", Ready="False"), THEN, False),
    ],
)
def test_a_claim_whose_devices_failed_to_get_ready_is_available_nowhere(
    devices: list[dict[str, Any]], now: float, usable: bool
) -> None:
    claims = world("n1")
    allocated = {**allocation("gpu-0", **CONDITIONS), **ALLOCATED_AT}
    claims.put_claim(claim("c", status={"allocation": allocated, "devices": devices}))
    fit = ask(claims, pod("p", "c"), now)
    expected = None if usable else refusal(NOT_HERE)
    assert fit.quick(node("n1")) == fit.exact(node("n1")) == expected
    if not usable:
        (step,), text = fit.clean_ups({"n1": refusal(NOT_HERE)})
        assert isinstance(step, Deallocate)
        assert text == "deallocation of ResourceClaim completed"


# --- keys ---


def test_pods_from_one_template_ask_the_same_question() -> None:
    claims = world("n1")
    for name in ("a", "b"):
        claims.put_claim(claim(f"{name}-gpu", owner=name))
    claims.put_claim(claim("two", exactly("r", 2)))
    first, second = (ask(claims, pod(name, templates={"gpu": f"{name}-gpu"})) for name in ("a", "b"))
    assert first.key == second.key
    assert hash(first.key) == hash(second.key)
    assert not first.needs_exact
    assert ask(claims, pod("c", "two")).key != first.key


def test_pods_that_share_an_allocated_claim_ask_the_same_question() -> None:
    claims = world("n1", "n2")
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0")}))
    claims.put_claim(claim("d", status={"allocation": allocation("gpu-0", node="n2")}))
    assert ask(claims, pod("p", "c")).key == ask(claims, pod("q", "c")).key
    assert ask(claims, pod("p", "c")).key != ask(claims, pod("q", "d")).key


def test_a_changed_class_changes_the_question() -> None:
    claims = world("n1")
    claims.put_claim(claim("c"))
    before = ask(claims, pod("p", "c")).key
    claims.put_class(device_class("gpu", selectors=[{"cel": {"expression": "false"}}]))
    fit = ask(claims, pod("p", "c"))
    assert fit.key != before
    assert fit.quick(node("n1")) == refusal(CANNOT)


# --- Score ---


def test_the_first_alternative_ranks_highest() -> None:
    claims = Claims()
    claims.put_class(
        device_class("big", selectors=[{"cel": {"expression": 'device.attributes["gpu.example.com"].big'}}])
    )
    claims.put_class(device_class("any"))
    claims.put_slice(slice_of("n1", gpus(1, attributes={"big": {"bool": True}})))
    claims.put_slice(slice_of("n2", gpus(2, attributes={"big": {"bool": False}})))
    claims.put_claim(claim("c", either("r", ("one", "big", 1), ("other", "any", 2))))
    fit = ask(claims, pod("p", "c"))
    assert fit.needs_exact
    for name, rank in (("n1", 8), ("n2", 7)):
        assert fit.exact(node(name)) is None
        assert fit.rank(node(name)) == rank


def test_a_claim_without_alternatives_ranks_all_nodes_alike() -> None:
    claims = world("n1")
    claims.put_claim(claim("c"))
    fit = ask(claims, pod("p", "c"))
    assert fit.exact(node("n1")) is None
    assert fit.rank(node("n1")) == 0


def test_occupancy_counts_devices_that_could_serve() -> None:
    claims = world("n1", devices=4)
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0", "gpu-3")}))
    claims.put_claim(claim("d"))
    assert ask(claims, pod("p", "d")).occupancy(node("n1")) == (2, 4)


# --- PostFilter ---


def test_a_claim_that_nobody_else_uses_is_given_up_if_no_node_will_do() -> None:
    claims = world("n1", "n2")
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0")}))
    fit = ask(claims, pod("p", "c"))
    cpu = Status(verdict=Verdict.UNSCHEDULABLE, plugin="NodeResourcesFit", reasons=("Insufficient cpu",))
    (step,), text = fit.clean_ups({"n1": cpu, "n2": refusal(NOT_HERE)})
    assert step == Deallocate(claim=claims.claim("ns", "c"))  # type: ignore[arg-type]
    assert text == "deallocation of ResourceClaim completed"
    assert fit.clean_ups({"n1": cpu, "n2": cpu}) == ((), "")


@pytest.mark.parametrize(("user", "given_up"), [("p", True), ("other", False)])
def test_a_claim_that_others_use_is_not_given_up(user: str, given_up: bool) -> None:
    claims = world("n1")
    reserved = [{"resource": "pods", "name": user, "uid": f"uid-{user}"}]
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0"), "reservedFor": reserved}))
    steps, _ = ask(claims, pod("p", "c")).clean_ups({"n2": refusal(NOT_HERE)})
    assert bool(steps) is given_up


def test_a_claim_for_extended_resources_from_an_earlier_attempt_is_deleted_first() -> None:
    claims = world("n1")
    claims.put_class(device_class("gpu", extended="example.com/gpu"))
    left_over = claim(
        "p-extended-resources-x",
        annotations={"resource.kubernetes.io/extended-resource-claim": "true"},
        ownerReferences=[pod_owner("p")],
    )
    claims.put_claim(left_over)
    fit = ask(claims, pod("p", containers=(container("a", gpu="1"),)))
    expected = refusal("cannot schedule extended resource claim")
    assert fit.quick(node("n1")) == fit.exact(node("n1")) == expected
    assert fit.clean_ups({"n1": expected}) == (
        (DeleteClaim(claim=left_over),),
        "deletion of ResourceClaim completed",
    )


# --- our own words ---


def test_the_explanation_names_request_class_node_and_holders() -> None:
    claims = world("n1", "n2", devices=4)
    for number in range(4):
        claims.put_claim(claim(f"held-{number}", status={"allocation": allocation(f"gpu-{number}")}))
    claims.put_claim(claim("most", status={"allocation": allocation("gpu-0", "gpu-1", "gpu-2", node="n2")}))
    claims.put_claim(claim("c", exactly("gpu", 2)))
    fit = ask(claims, pod("p", "c"))
    assert fit.explanation([node("n1")]) == (
        "request gpu of claim ns/c needs 2 devices of class gpu: node n1 has 4, "
        "all in use by claims ns/held-0, ns/held-1 and 2 more"
    )
    assert fit.explanation([node("n1"), node("n2")]) == (
        "request gpu of claim ns/c needs 2 devices of class gpu: node n2 has 4, 3 of them in use by claim ns/most"
    )


def test_the_explanation_of_a_single_device() -> None:
    claims = world("n1", devices=1)
    claims.put_claim(claim("held", status={"allocation": allocation("gpu-0")}))
    claims.put_claim(claim("c"))
    assert ask(claims, pod("p", "c")).explanation([node("n1")]) == (
        "request r of claim ns/c needs 1 device of class gpu: node n1 has 1, which is in use by claim ns/held"
    )


def test_the_explanation_says_what_keeps_devices_away() -> None:
    claims = Claims()
    claims.put_class(device_class())
    claims.put_slice(slice_of("n1", gpus(2, taints=[{"key": "broken", "effect": "NoSchedule"}])))
    claims.put_claim(claim("c", exactly("gpu")))
    assert ask(claims, pod("p", "c")).explanation([node("n1")]) == (
        'node n1: request "gpu": 2 devices in class gpu: 2 have taint broken:NoSchedule that is not tolerated'
    )


def test_the_explanation_says_where_an_allocated_claim_can_be_used() -> None:
    claims = world("n1")
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0")}))
    assert ask(claims, pod("p", "c")).explanation([node("n2")]) == (
        "claim ns/c is allocated and can only be used on node n1"
    )


# --- surprises of kube-scheduler that are kept ---


def test_an_allocated_claim_may_be_used_although_its_device_is_tainted_or_gone() -> None:
    claims = world("n1")
    claims.put_slice(slice_of("n1", gpus(1, taints=[{"key": "broken", "effect": "NoExecute"}])))
    claims.put_claim(claim("tainted", status={"allocation": allocation("gpu-0")}))
    claims.put_claim(claim("gone", status={"allocation": allocation("gpu-7")}))
    assert ask(claims, pod("p", "tainted", "gone")).exact(node("n1")) is None


def test_with_node_resources_from_devices_no_answer_is_shared() -> None:
    claims = world("n1", enabled=gates("DRANodeAllocatableResources"))
    claims.put_claim(claim("c"))
    assert ask(claims, pod("p", "c")).key is None
