"""Parts of GPUs as KAI's users ask for them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from allot.core.lifecycle.actions import Create, Delete, Emit
from allot.core.model import core_v1
from allot.core.model.codec import decode_served
from allot.core.model.resource_v1 import DeviceClass, ResourceClaimTemplate, ResourceSlice
from allot.core.workloads.gpu_shares import CLAIM, BadShare, Share, reconcile_template, share_in, with_claim

CONTAINERS = [{"name": "side"}, {"name": "main"}]
WHOLE = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
SHARED = decode_served({"metadata": {"name": "g", "labels": {"allot.dev/gpu-shares": "memory"}}}, DeviceClass)


@pytest.mark.parametrize(
    ("annotations", "containers", "expected"),
    [
        ({}, CONTAINERS, None),
        ({"gpu-fraction": "0.25"}, CONTAINERS, Share(fraction=Fraction(1, 4))),
        ({"gpu-memory": "2000", "gpu-fraction-num-devices": "2"}, CONTAINERS, Share(memory_mib=2000, devices=2)),
        (
            {"gpu-fraction": ".5".rjust(3, "0"), "gpu-fraction-container-name": "main"},
            CONTAINERS,
            Share(fraction=Fraction(1, 2), container="main"),
        ),
        ({"gpu-fraction": "1"}, CONTAINERS, "gpu-fraction is '1', expected a decimal number above 0 and below 1"),
        ({"gpu-fraction": "1e-1"}, CONTAINERS, "gpu-fraction is '1e-1', expected a decimal number"),
        ({"gpu-memory": "0"}, CONTAINERS, "gpu-memory is '0', expected a whole number above 0"),
        ({"gpu-memory": "9" * 30}, CONTAINERS, "expected a whole number above 0"),
        ({"gpu-memory": "1", "gpu-fraction": "0.5"}, CONTAINERS, "cannot request both GPU and GPU memory"),
        ({"gpu-fraction": "0.5"}, WHOLE, "cannot have both GPU fraction request and whole GPU resource request/limit"),
        ({"gpu-fraction-num-devices": "2"}, CONTAINERS, "needs gpu-fraction or gpu-memory"),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "x"}, CONTAINERS, "the pod has no such container"),
    ],
)
def test_what_annotations_ask_for(
    annotations: dict[str, str], containers: list[Any], expected: Share | str | None
) -> None:
    if isinstance(expected, str):
        with pytest.raises(BadShare) as raised:
            share_in(annotations, containers)
        assert expected in str(raised.value)
    else:
        assert share_in(annotations, containers) == expected


def pod(**annotations: str) -> core_v1.Pod:
    body: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    share = share_in(annotations, ())
    assert share is not None
    return decode_served(with_claim(body, share), core_v1.Pod)


def slices(*sizes: str, shared: bool = True) -> list[ResourceSlice]:
    devices = [
        {"name": f"g{number}", "allowMultipleAllocations": shared, "capacity": {"memory": {"value": size}}}
        for number, size in enumerate(sizes)
    ]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    body = {
        "metadata": {"name": "s"},
        "spec": {"driver": "d.example", "nodeName": "n", "pool": pool, "devices": devices},
    }
    return [decode_served(body, ResourceSlice)]


def request(share: core_v1.Pod, found: list[ResourceSlice]) -> dict[str, Any]:
    (create,) = reconcile_template(share, None, [SHARED], found)
    assert isinstance(create, Create)
    (made,) = create.object["spec"]["spec"]["devices"]["requests"]  # type: ignore[index]
    result: dict[str, Any] = made
    return result


def test_memory_is_an_amount_and_a_fraction_one_for_each_size() -> None:
    memory = request(pod(**{"gpu-memory": "2000"}), slices("40Gi"))
    assert memory["exactly"]["capacity"] == {"requests": {"memory": "2000Mi"}}
    third = request(pod(**{"gpu-fraction": "0.3"}), slices("10", "10"))
    assert third["exactly"]["capacity"] == {"requests": {"memory": "3"}}
    both = request(pod(**{"gpu-fraction": "0.5"}), slices("10", "20"))
    assert [each["capacity"]["requests"]["memory"] for each in both["firstAvailable"]] == ["5", "10"]


def test_a_template_is_made_anew_for_other_sizes_and_left_alone_otherwise() -> None:
    half = pod(**{"gpu-fraction": "0.5"})
    (create,) = reconcile_template(half, None, [SHARED], slices("10"))
    assert isinstance(create, Create)
    known = decode_served({"metadata": {**create.object["metadata"], "uid": "t"}}, ResourceClaimTemplate)  # type: ignore[index]
    assert reconcile_template(half, known, [SHARED], slices("10")) == ()
    drop, again = reconcile_template(half, known, [SHARED], slices("10", "20"))
    assert isinstance(drop, Delete) and drop.uid == "t" and isinstance(again, Create)


@pytest.mark.parametrize(
    ("classes", "found", "text"),
    [
        ([], slices("10"), "no DeviceClass has the label allot.dev/gpu-shares"),
        ([SHARED], slices("10", shared=False), "no device that several claims may share has a capacity memory"),
        ([SHARED], slices(*(str(size) for size in range(10, 20))), "have 10 sizes of memory: at most 8"),
    ],
)
def test_what_is_missing_is_named(classes: list[DeviceClass], found: list[ResourceSlice], text: str) -> None:
    told, _ = reconcile_template(pod(**{"gpu-fraction": "0.5"}), None, classes, found)
    assert isinstance(told, Emit) and text in told.note


def test_the_claim_goes_to_the_container_that_is_named() -> None:
    made = with_claim({"spec": {"containers": CONTAINERS}}, Share(memory_mib=1, container="main"))
    assert [each.get("resources") for each in made["spec"]["containers"]] == [None, {"claims": [{"name": CLAIM}]}]
