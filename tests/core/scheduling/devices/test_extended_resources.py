"""Extended resources that devices serve: which class, which requests, who uses which device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.devices.extended_resources import ExtendedResources, names_of, requests_and_mappings
from allot.core.scheduling.status import Status, Verdict

from ..device_world import allocation, ask, claim, container, device_class, gpus, node, place, pod, slice_of

GPU, NIC = "example.com/gpu", "example.com/nic"


def mapping() -> ExtendedResources:
    resources = ExtendedResources()
    resources.put(device_class("gpu-class", extended=GPU))
    resources.put(device_class("nic-class", extended=NIC))
    return resources


def short(name: str) -> str:
    return name.replace("container-", "c").replace("-request-", "r")


def translate(asked: core_v1.Pod) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Requests with their counts, and the requests of each container."""
    resources = mapping()
    wanted = resources.wanted(asked)
    assert wanted is not None
    requests, mappings = requests_and_mappings(asked, wanted, names_of(wanted), resources.class_name)
    users: dict[str, list[str]] = {}
    for used in mappings:
        users.setdefault(used.container_name, []).append(short(used.request_name))
    assert all(request.exactly is not None for request in requests)
    return {short(r.name): r.exactly.count for r in requests if r.exactly is not None}, users


@pytest.mark.parametrize(
    ("init", "regular", "requests", "users"),
    [
        ([], [container("a", cpu="1", gpu="2")], {"c0r1": 2}, {"a": ["c0r1"]}),
        (
            [],
            [container("a", gpu="1"), container("b", gpu="2")],
            {"c0r0": 1, "c1r0": 2},
            {"a": ["c0r0"], "b": ["c1r0"]},
        ),
        ([container("i", gpu="1")], [container("a", gpu="2")], {"c1r0": 2}, {"a": ["c1r0"], "i": ["c1r0"]}),
        (
            [container("i", gpu="4")],
            [container("a", gpu="1"), container("b", gpu="2")],
            {"c0r0": 1, "c1r0": 1, "c2r0": 2},
            {"a": ["c1r0"], "b": ["c2r0"], "i": ["c1r0", "c2r0", "c0r0"]},
        ),
        (
            [container("i", gpu="2"), container("j", gpu="5")],
            [container("a", gpu="1")],
            {"c1r0": 4, "c2r0": 1},
            {"a": ["c2r0"], "i": ["c2r0", "c1r0"], "j": ["c2r0", "c1r0"]},
        ),
        (
            [container("side", "Always", gpu="1"), container("i", gpu="3")],
            [container("a", gpu="1")],
            {"c0r0": 1, "c1r0": 2, "c2r0": 1},
            {"side": ["c0r0"], "a": ["c2r0"], "i": ["c2r0", "c1r0"]},
        ),
        ([], [container("a", cpu="1", gpu="1", nic="2")], {"c0r1": 1, "c0r2": 2}, {"a": ["c0r1", "c0r2"]}),
    ],
)
def test_the_examples_that_were_verified_against_kubernetes(
    init: list[core_v1.Container],
    regular: list[core_v1.Container],
    requests: dict[str, int],
    users: dict[str, list[str]],
) -> None:
    found = translate(pod("p", init_containers=tuple(init), containers=tuple(regular)))
    assert found == (requests, users)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=4),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
)
def test_every_container_has_as_many_devices_as_it_asks_for(init: list[tuple[bool, int]], regular: list[int]) -> None:
    first = [container(f"i{n}", "Always" if stays else None, gpu=str(c)) for n, (stays, c) in enumerate(init)]
    then = [container(f"c{n}", gpu=str(count)) for n, count in enumerate(regular)]
    asked = pod("p", init_containers=tuple(first), containers=tuple(then))
    if mapping().wanted(asked) is None:
        assert not any(count for _, count in init)
        assert not any(regular)
        return
    requests, users = translate(asked)
    for found in (*first, *then):
        assert sum(requests[name] for name in users.get(found.name, [])) >= found.resources.requests[GPU].value()


def test_the_newest_class_of_a_name_stands_for_it_and_the_other_comes_back() -> None:
    resources = ExtendedResources()
    resources.put(device_class("old", extended=GPU, created="2026-01-01T00:00:00Z"))
    resources.put(device_class("new", extended=GPU, created="2026-01-02T00:00:00Z"))
    resources.put(device_class("middle", extended=GPU, created="2026-01-01T12:00:00Z"))
    assert resources.class_name(GPU) == "new"
    resources.put(device_class("new", extended=NIC, created="2026-01-02T00:00:00Z"))
    assert resources.class_name(GPU) == "middle"
    assert resources.class_name(NIC) == "new"
    resources.delete("middle")
    assert resources.class_name(GPU) == "old"
    resources.delete("old")
    assert resources.class_name(GPU) is None


def test_of_equally_old_classes_the_smaller_name_stands_for_it() -> None:
    resources = ExtendedResources()
    for name in ("b", "a", "c"):
        resources.put(device_class(name, extended=GPU, created="2026-01-01T00:00:00Z"))
    assert resources.class_name(GPU) == "a"


def test_every_class_has_an_implicit_name() -> None:
    resources = ExtendedResources()
    resources.put(device_class("gpu-class"))
    name = "deviceclass.resource.kubernetes.io/gpu-class"
    assert resources.class_name(name) == "gpu-class"
    resources.delete("gpu-class")
    assert resources.class_name(name) is None


def test_a_pod_that_wants_none_of_it_has_no_question() -> None:
    claims = extended_world()
    assert claims.fit(pod("p", containers=(container("a", cpu="1", gpu="0"),))) is None
    assert claims.fit(pod("p", containers=(container("a", cpu="1"),))) is None


# --- per node ---


def extended_world() -> Claims:
    claims = Claims()
    claims.put_class(device_class("gpu-class", extended=GPU))
    claims.put_slice(slice_of("n1", gpus(2)))
    return claims


def test_a_node_serves_with_devices_unless_its_device_plugin_does() -> None:
    claims = extended_world()
    asked = pod("p", containers=(container("a", gpu="2"),))
    placement = place(claims, asked, node("n1"))
    assert placement.extended is not None
    new = placement.extended.claim
    assert new.metadata.name == "<extended-resources>"
    assert new.metadata.generate_name == "p-extended-resources-"
    assert new.metadata.namespace == "ns"
    assert new.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    (owner,) = new.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Pod", "p", "uid-p", True)
    (request,) = new.spec.devices.requests
    assert request.exactly == api.ExactDeviceRequest(
        device_class_name="gpu-class", allocation_mode="ExactCount", count=2
    )
    assert len(placement.extended.allocation.devices.results) == 2
    claims.forget(placement)
    by_plugin = place(claims, asked, node("n2", gpu="8"))
    assert by_plugin.extended is None
    assert by_plugin.claims == ()


def test_a_node_whose_device_plugin_lost_its_devices_serves_with_devices() -> None:
    claims = extended_world()
    placement = place(claims, pod("p", containers=(container("a", gpu="1"),)), node("n1", gpu="0"))
    assert placement.extended is not None


def test_a_node_with_too_few_devices_does_not_serve() -> None:
    fit = ask(extended_world(), pod("p", containers=(container("a", gpu="3"),)))
    expected = Status(verdict=Verdict.UNRESOLVABLE, plugin="DynamicResources", reasons=("cannot allocate all claims",))
    assert fit.quick(node("n1")) == fit.exact(node("n1")) == expected
    assert fit.explanation([node("n1")]) == (
        "request container-0-request-0 for the pod's extended resources needs 3 devices of class gpu-class: node n1 has 2"
    )


def test_a_resource_that_nobody_offers_does_not_fit() -> None:
    claims = extended_world()
    asked = pod("p", containers=(container("a", gpu="1", **{"example.com/other": "1"}),))
    expected = Status(verdict=Verdict.UNRESOLVABLE, plugin="DynamicResources", reasons=("cannot fit resource",))
    assert ask(claims, asked).quick(node("n1")) == expected
    assert ask(claims, asked).quick(node("n1", **{"example.com/other": "1"})) is None


def test_claims_and_extended_resources_share_the_devices_of_a_node() -> None:
    claims = extended_world()
    claims.put_claim(
        claim(
            "c", {"name": "r", "exactly": {"deviceClassName": "gpu-class", "allocationMode": "ExactCount", "count": 1}}
        )
    )
    placement = place(claims, pod("p", "c", containers=(container("a", gpu="1"),)), node("n1"))
    assert placement.extended is not None
    (step,) = placement.claims
    assert step.allocation is not None
    used = [*step.allocation.devices.results, *placement.extended.allocation.devices.results]
    assert [result.device for result in used] == ["gpu-0", "gpu-1"]


def test_equal_pods_ask_the_same_question_until_classes_change() -> None:
    claims = extended_world()
    first, second = (ask(claims, pod(name, containers=(container("a", gpu="1"),))) for name in ("p", "q"))
    assert first.key == second.key
    claims.put_class(device_class("other", extended=NIC))
    assert ask(claims, pod("r", containers=(container("a", gpu="1"),))).key != first.key


def test_totals_count_devices_behind_a_resource() -> None:
    claims = extended_world()
    claims.put_claim(claim("c", status={"allocation": allocation("gpu-0")}))
    assert claims.backs(GPU)
    assert not claims.backs("example.com/other")
    assert claims.totals(GPU, node("n1")) == (2, 1)
    assert claims.totals("example.com/other", node("n1")) == (0, 0)


def test_shares_of_one_device_for_several_pods_have_ids_of_their_own() -> None:
    claims = Claims()
    claims.put_class(device_class("gpu-class", extended=GPU))
    capacity = {"mem": {"value": "8Gi", "requestPolicy": {"default": "1Gi", "validValues": ["1Gi"]}}}
    claims.put_slice(slice_of("n1", gpus(1, allowMultipleAllocations=True, capacity=capacity)))
    shares = set()
    for name in ("p", "q"):
        placement = place(claims, pod(name, containers=(container("a", gpu="1"),)), node("n1"))
        assert placement.extended is not None
        (result,) = placement.extended.allocation.devices.results
        assert result.share_id
        shares.add(result.share_id)
    assert len(shares) == 2
