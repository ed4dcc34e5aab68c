"""Structs are written in the shape of an API server, with what the types do not name put back."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model.codec import (
    decode,
    encode,
)
from allot.core.model.resource_v1 import (
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceClassSpec,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourcePoolStatusRequest,
    ResourceSliceSpec,
)
from allot.core.model.scheduling_v1 import PodGroup, Workload

from .documents import claim


@pytest.mark.parametrize(
    ("object_", "expected"),
    [
        (
            ResourceClaim(),
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {}}
            | {"spec": {"devices": {"requests": None}}, "status": {}},
        ),
        (
            ResourceClaimTemplate(),
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {}}
            | {"spec": {"metadata": {}, "spec": {"devices": {"requests": None}}}},
        ),
        (DeviceClass(), {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {}, "spec": {}}),
        (
            DeviceTaintRule(),
            {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {}}
            | {"spec": {"taint": {"key": "", "effect": ""}}, "status": {}},
        ),
        (
            ResourcePoolStatusRequest(),
            {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest", "metadata": {}}
            | {"spec": {"driver": ""}},
        ),
        (
            Workload(),
            {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload", "metadata": {}}
            | {"spec": {"podGroupTemplates": None}},
        ),
        (
            PodGroup(),
            {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {}}
            | {"spec": {"schedulingPolicy": {}}, "status": {}},
        ),
    ],
)
def test_empty_fields_are_written_where_an_api_server_writes_them(object_: Any, expected: dict[str, Any]) -> None:
    assert encode(object_) == expected


def test_a_capacity_is_written_with_its_value_and_policy_even_when_empty() -> None:
    value = {"value": "0", "requestPolicy": {"default": None}}
    assert encode(decode({"requestPolicy": {}}, DeviceCapacity).object) == value


def test_conditions_of_a_device_are_null_when_there_are_none() -> None:
    value = {"status": {"devices": [{"driver": "d", "pool": "p", "device": "x", "conditions": []}]}}
    written = encode(decode(value, ResourceClaim).object)
    assert written["status"]["devices"][0]["conditions"] is None


def test_optional_values_are_written_even_when_they_are_zero_or_empty() -> None:
    value = {"int": 0, "bool": False, "string": ""}
    assert encode(decode(value, DeviceAttribute).object) == value
    assert encode(DeviceClassSpec(extended_resource_name="")) == {"extendedResourceName": ""}


def test_empty_lists_come_back_omitted() -> None:
    value = {"driver": "d", "devices": [], "sharedCounters": [], "skipNodeOperations": []}
    assert "devices" not in encode(decode(value, ResourceSliceSpec).object)


def test_quantities_are_written_in_canonical_form() -> None:
    written = encode(decode(claim(capacity={"requests": {"memory": "1024Mi"}}), ResourceClaim).object)
    exactly = written["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly["capacity"] == {"requests": {"memory": "1Gi"}}


def test_raw_parameters_come_back_as_they_went_in() -> None:
    parameters = {"b": [1, 2.5, None, {"ü": "x"}], "a": 10**25, "n": None}
    value = {"spec": {"config": [{"opaque": {"driver": "d", "parameters": parameters}}]}}
    written = encode(decode(value, DeviceClass).object)
    assert written["spec"]["config"][0]["opaque"]["parameters"] == parameters
