"""Claims that drivers' controllers allocate: what v1alpha3 of Kubernetes 1.31 says of them survives in v1, and comes back."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model.classic import CONTROLLER, SUITABLE_NODES, controller_of, suitable_nodes
from allot.core.model.codec import decode_object
from allot.core.model.convert import from_hub, to_hub
from allot.core.model.resource_v1 import DeviceClass, ResourceClaim

V1, V1ALPHA3 = "resource.k8s.io/v1", "resource.k8s.io/v1alpha3"
NAME = "slots.example.com"
REQUEST = {"name": "slot", "deviceClassName": "slots", "count": 2}
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
ALLOCATION = {"devices": {"results": [{"request": "slot", "driver": NAME, "pool": "n1", "device": "slot-0"}]}}
USER = {"resource": "pods", "name": "p", "uid": "u"}


def classic(kind: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": V1ALPHA3, "kind": kind, "metadata": {"name": "x"}, "spec": spec, **more}


def claim(**status: Any) -> dict[str, Any]:
    spec = {"controller": NAME, "devices": {"requests": [REQUEST]}}
    return classic("ResourceClaim", spec, **({"status": status} if status else {}))


@pytest.mark.parametrize(
    "value",
    [
        claim(),
        claim(allocation={**ALLOCATION, "controller": NAME}, reservedFor=[USER]),
        claim(allocation={**ALLOCATION, "controller": NAME}, deallocationRequested=True),
        classic("ResourceClaimTemplate", {"spec": {"controller": NAME, "devices": {"requests": [REQUEST]}}}),
        classic("DeviceClass", {"suitableNodes": {"nodeSelectorTerms": [TERM]}}),
        classic("ResourceClaim", {"devices": {"requests": [REQUEST]}}),
        classic("ResourceSlice", {"devices": [{"name": "d", "basic": {"capacity": {"memory": "1Gi"}}}]}),
    ],
)
def test_an_object_comes_back_as_it_was(value: dict[str, Any]) -> None:
    hub = to_hub(value, keeps_classic=True)
    assert hub["apiVersion"] == V1
    assert from_hub(hub, V1ALPHA3, keeps_classic=True) == value


def test_v1_has_annotations_in_place_of_the_fields() -> None:
    hub = to_hub(claim(allocation={**ALLOCATION, "controller": NAME}), keeps_classic=True)
    assert hub["metadata"]["annotations"] == {CONTROLLER: NAME}
    assert hub["spec"] == {
        "devices": {"requests": [{"name": "slot", "exactly": {"deviceClassName": "slots", "count": 2}}]}
    }
    assert hub["status"] == {"allocation": ALLOCATION}
    decoded = decode_object(hub).object
    assert isinstance(decoded, ResourceClaim) and controller_of(decoded) == NAME


def test_deallocation_is_requested_while_nobody_uses_the_claim() -> None:
    hub = to_hub(claim(allocation=ALLOCATION), keeps_classic=True)
    assert from_hub(hub, V1ALPHA3, keeps_classic=True)["status"]["deallocationRequested"] is True


def test_files_of_old_still_lose_what_no_scheduler_would_heed() -> None:
    assert "annotations" not in to_hub(claim())["metadata"]


@pytest.mark.parametrize("text", ["{", "[]", '{"nodeSelectorTerms": 1}'])
def test_nodes_that_cannot_be_read_are_no_restriction_and_no_crash(text: str) -> None:
    value = {"apiVersion": V1, "kind": "DeviceClass", "metadata": {"name": "x", "annotations": {SUITABLE_NODES: text}}}
    decoded = decode_object(value).object
    assert isinstance(decoded, DeviceClass) and suitable_nodes(decoded) is None
    assert from_hub(value, V1ALPHA3, keeps_classic=True)["kind"] == "DeviceClass"


@pytest.mark.parametrize("spec", [{"controller": 3}, {"controller": ""}, {"controller": None}, None, []])
def test_what_is_no_name_is_left_out_and_no_crash(spec: Any) -> None:
    for kind in ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass"):
        value = {"apiVersion": V1ALPHA3, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
        assert "annotations" not in to_hub(value, keeps_classic=True)["metadata"]
