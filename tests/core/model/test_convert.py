"""Objects convert between API versions without loss, or are refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.model.codec import decode_object, encode
from allot.core.model.convert import ConversionError, convert_to_hub, from_hub, to_hub
from allot.core.model.kinds import KINDS, UnknownKind, kind_of

from .documents import api_documents

V1, V1BETA1, V1BETA2, V1ALPHA3 = (f"resource.k8s.io/{version}" for version in ("v1", "v1beta1", "v1beta2", "v1alpha3"))


def object_(kind: str, api_version: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **parts}


def claim(api_version: str, *requests: Any, **spec: Any) -> dict[str, Any]:
    return object_("ResourceClaim", api_version, spec={"devices": {"requests": list(requests)}, **spec})


def slice_(api_version: str, *devices: Any, **spec: Any) -> dict[str, Any]:
    return object_("ResourceSlice", api_version, spec={"driver": "d", **spec, "devices": list(devices)})


def requests_of(value: dict[str, Any]) -> Any:
    return value["spec"]["devices"]["requests"]


# --- every version ---


def test_every_example_returns_from_every_version_of_its_kind() -> None:
    for document in api_documents():
        hub = encode(decode_object(document).object)
        kind = kind_of(hub["apiVersion"], hub["kind"])
        for api_version in kind.api_versions:
            converted = from_hub(hub, api_version)
            assert converted["apiVersion"] == api_version
            assert decode_object(converted).object == decode_object(hub).object


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.versions[1:]], ids=lambda kind: kind.name)
def test_versions_other_than_v1beta1_differ_in_name_only(kind: Any) -> None:
    hub = object_(kind.name, kind.hub_api_version, spec={"anything": [1]})
    for api_version in kind.api_versions:
        if api_version != V1BETA1:
            assert from_hub(hub, api_version) == {**hub, "apiVersion": api_version}
            assert to_hub(from_hub(hub, api_version)) == hub


def test_a_kind_cannot_be_written_in_a_version_that_it_does_not_have() -> None:
    with pytest.raises(
        ConversionError, match=r"ResourceClaim cannot be written as 'resource\.k8s\.io/v1alpha3': expected"
    ):
        from_hub(claim(V1), V1ALPHA3)
    with pytest.raises(ConversionError, match=r"expected the hub version resource\.k8s\.io/v1"):
        from_hub(claim(V1BETA1), V1BETA2)


@pytest.mark.parametrize(
    "value", [{}, {"apiVersion": "v1"}, {"apiVersion": 1, "kind": "Pod"}, {"apiVersion": "v1", "kind": "X"}]
)
def test_an_unknown_kind_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(UnknownKind):
        to_hub(value)


# --- v1beta1 claims ---


def test_flat_requests_are_nested_under_exactly() -> None:
    flat = {"name": "a", "deviceClassName": "gpu", "count": 2, "selectors": [], "capacity": {"requests": {"m": "1"}}}
    converted = to_hub(claim(V1BETA1, flat))
    assert converted["apiVersion"] == V1
    assert requests_of(converted) == [
        {
            "name": "a",
            "exactly": {"deviceClassName": "gpu", "selectors": [], "count": 2, "capacity": {"requests": {"m": "1"}}},
        }
    ]


@pytest.mark.parametrize(
    ("flat", "has_exactly"),
    [
        ({}, False),
        ({"deviceClassName": ""}, False),
        ({"deviceClassName": "", "allocationMode": "", "count": 0, "adminAccess": None}, False),
        ({"deviceClassName": "gpu"}, True),
        ({"count": 2}, True),
        ({"allocationMode": "All"}, True),
        ({"selectors": []}, True),
        ({"tolerations": []}, True),
        ({"derivedAttributes": []}, True),
        ({"adminAccess": False}, True),
        ({"capacity": {}}, True),
        ({"count": False}, True),
    ],
)
def test_exactly_is_made_as_soon_as_one_flat_field_is_set(flat: dict[str, Any], has_exactly: bool) -> None:
    (request,) = requests_of(to_hub(claim(V1BETA1, {"name": "a", **flat})))
    assert ("exactly" in request) is has_exactly


def test_alternatives_are_copied_whether_or_not_flat_fields_are_set() -> None:
    alternatives = [{"name": "s", "deviceClassName": "gpu"}]
    (only, both) = requests_of(
        to_hub(
            claim(
                V1BETA1,
                {"name": "a", "deviceClassName": "", "firstAvailable": alternatives},
                {"name": "b", "deviceClassName": "gpu", "firstAvailable": alternatives},
            )
        )
    )
    assert only == {"name": "a", "firstAvailable": alternatives}
    assert both == {"name": "b", "exactly": {"deviceClassName": "gpu"}, "firstAvailable": alternatives}


def test_v1beta1_always_writes_the_class_name() -> None:
    hub = claim(
        V1, {"name": "a", "firstAvailable": [{"name": "s"}]}, {"name": "b", "exactly": {"deviceClassName": "gpu"}}
    )
    assert requests_of(from_hub(hub, V1BETA1)) == [
        {"name": "a", "deviceClassName": "", "firstAvailable": [{"name": "s"}]},
        {"name": "b", "deviceClassName": "gpu"},
    ]


def test_exactly_is_an_unknown_field_in_v1beta1() -> None:
    converted = convert_to_hub(claim(V1BETA1, {"name": "a", "exactly": {"deviceClassName": "gpu"}}))
    assert requests_of(converted.value) == [{"name": "a"}]
    assert converted.unknown_fields == ("spec.devices.requests[0].exactly",)


def test_templates_convert_as_claims_do() -> None:
    template = object_(
        "ResourceClaimTemplate", V1BETA1, spec={"spec": {"devices": {"requests": [{"name": "a", "count": 1}]}}}
    )
    hub = to_hub(template)
    assert hub["spec"]["spec"]["devices"]["requests"] == [{"name": "a", "exactly": {"count": 1}}]
    back = from_hub(hub, V1BETA1)
    assert back["spec"]["spec"]["devices"]["requests"] == [{"name": "a", "deviceClassName": "", "count": 1}]


# --- v1beta1 slices ---


def test_basic_devices_are_flattened() -> None:
    devices = ({"name": "a", "basic": {"attributes": {"m": {"int": 1}}, "capacity": {}, "taints": []}}, {"name": "b"})
    assert to_hub(slice_(V1BETA1, *devices))["spec"]["devices"] == [
        {"name": "a", "attributes": {"m": {"int": 1}}, "taints": []},
        {"name": "b"},
    ]


def test_v1beta1_always_writes_basic() -> None:
    hub = slice_(V1, {"name": "a", "nodeName": "n"}, {"name": "b"})
    assert from_hub(hub, V1BETA1)["spec"]["devices"] == [
        {"name": "a", "basic": {"nodeName": "n"}},
        {"name": "b", "basic": {}},
    ]


def test_an_empty_node_name_and_false_mean_unset_in_v1beta1() -> None:
    assert to_hub(slice_(V1BETA1, nodeName="", allNodes=False))["spec"] == {"driver": "d", "devices": []}
    kept = {"driver": "d", "nodeName": "n", "allNodes": True, "devices": []}
    assert to_hub(slice_(V1BETA1, nodeName="n", allNodes=True))["spec"] == kept


def test_flat_devices_in_v1beta1_end_up_with_nothing_but_their_name() -> None:
    flat = {"name": "a", "attributes": {"m": {"int": 1}}}
    converted = convert_to_hub(slice_(V1BETA1, flat, {"name": "b", "basic": {"name": "c", "x": 1}}))
    assert converted.value["spec"]["devices"] == [{"name": "a"}, {"name": "b"}]
    assert converted.unknown_fields == (
        "spec.devices[0].attributes",
        "spec.devices[1].basic.name",
        "spec.devices[1].basic.x",
    )


def test_basic_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(ConversionError, match=r"spec\.devices\[0\]\.basic: expected object"):
        to_hub(slice_(V1BETA1, {"name": "a", "basic": 5}))


# --- v1alpha3 of 1.31 to 1.33 ---


def test_plain_capacities_of_the_old_alpha_are_wrapped() -> None:
    old = slice_(V1ALPHA3, {"name": "a", "basic": {"capacity": {"memory": "1Gi", "cores": 4}}})
    assert to_hub(old)["spec"]["devices"] == [
        {"name": "a", "capacity": {"memory": {"value": "1Gi"}, "cores": {"value": 4}}}
    ]


def test_the_old_alpha_loses_what_only_driver_controllers_used_and_says_so() -> None:
    old = claim(V1ALPHA3, {"name": "a", "deviceClassName": "gpu", "adminAccess": False}, controller="c.example.com")
    old["status"] = {"allocation": {"controller": "c", "devices": {}}, "deallocationRequested": True}
    converted = convert_to_hub(old)
    assert requests_of(converted.value) == [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]
    assert converted.value["status"] == {"allocation": {"devices": {}}}
    assert [warning.partition(" was dropped: ")[0] for warning in converted.warnings] == [
        "spec.controller",
        "status.allocation.controller",
        "status.deallocationRequested",
    ]
    old_class = convert_to_hub(object_("DeviceClass", V1ALPHA3, spec={"suitableNodes": {"nodeSelectorTerms": []}}))
    assert old_class.value["spec"] == {}
    assert old_class.warnings[0].startswith("spec.suitableNodes was dropped")


@pytest.mark.parametrize("field", [{"deviceClassName": "gpu"}, {"selectors": [{"cel": {"expression": "true"}}]}])
def test_a_taint_rule_that_selects_by_class_or_expression_is_refused(field: dict[str, Any]) -> None:
    rule = object_("DeviceTaintRule", V1ALPHA3, spec={"deviceSelector": {"driver": "d", **field}})
    with pytest.raises(ConversionError, match=r"spec\.deviceSelector\.\w+ was removed in Kubernetes 1\.35"):
        to_hub(rule)
    with pytest.raises(ConversionError, match=r"^DeviceTaintRule x: "):
        decode_object(rule)


# --- laws ---

quantities = st.sampled_from(["1", "1Gi", "500m"])
requests = st.fixed_dictionaries(
    {"name": st.sampled_from("ab")},
    optional={
        "exactly": st.fixed_dictionaries(
            {"deviceClassName": st.sampled_from(["gpu", "nic"])},
            optional={
                "count": st.integers(1, 3),
                "allocationMode": st.sampled_from(["ExactCount", "All"]),
                "adminAccess": st.booleans(),
                "selectors": st.just([{"cel": {"expression": "true"}}]),
                "tolerations": st.just([{"key": "k", "operator": "Exists"}]),
                "capacity": st.fixed_dictionaries({"requests": st.dictionaries(st.just("m"), quantities)}),
            },
        ),
        "firstAvailable": st.just([{"name": "s", "deviceClassName": "gpu"}]),
    },
)
devices = st.fixed_dictionaries(
    {"name": st.sampled_from("ab")},
    optional={
        "attributes": st.dictionaries(st.sampled_from("xy"), st.just({"int": 1}), min_size=1),
        "capacity": st.dictionaries(st.sampled_from("xy"), st.fixed_dictionaries({"value": quantities}), min_size=1),
        "nodeName": st.just("n"),
        "allNodes": st.just(True),
        "taints": st.just([{"key": "k", "effect": "None"}]),
    },
)


@settings(max_examples=50)
@given(st.lists(requests, max_size=3))
def test_a_claim_returns_unchanged_from_v1beta1(found: list[dict[str, Any]]) -> None:
    hub = claim(V1, *found)
    before = copy.deepcopy(hub)
    assert to_hub(from_hub(hub, V1BETA1)) == hub == before


@settings(max_examples=50)
@given(st.lists(devices, max_size=3))
def test_a_slice_returns_unchanged_from_v1beta1(found: list[dict[str, Any]]) -> None:
    hub = slice_(V1, *found, nodeName="n")
    before = copy.deepcopy(hub)
    assert to_hub(from_hub(hub, V1BETA1)) == hub == before


@pytest.mark.parametrize("api_version", [V1BETA1, V1ALPHA3])
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"])
@pytest.mark.parametrize(
    "wrong", [5, "x", [5], {"devices": 5}, {"devices": [5]}, {"devices": {"requests": [5]}}, {"spec": 5}, None]
)
def test_values_of_a_wrong_type_are_left_for_the_decoder(api_version: str, kind: str, wrong: object) -> None:
    assert to_hub(object_(kind, api_version, spec=wrong, status=wrong))["spec"] == wrong
