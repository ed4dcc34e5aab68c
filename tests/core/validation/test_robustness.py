"""Bad input of any shape gives DecodeError, UnknownKind or field errors, never another exception."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.features import ALL_GATES, DEFAULT_GATES
from allot.core.model.codec import Envelope, decode_object
from allot.core.validation.validate import (
    DecodeError,
    UnknownKind,
    check_object,
    invalid_message,
    prepare_create,
    prepare_status_update,
    prepare_update,
    validate_create,
    validate_status_update,
    validate_update,
)

NOW = "2026-08-01T12:00:00Z"

REQUEST = {
    "deviceClassName": "gpu",
    "selectors": [{"cel": {"expression": "device.driver == 'd'"}}],
    "derivedAttributes": [{"name": "example.com/numa", "expression": "device.driver"}],
    "allocationMode": "ExactCount",
    "count": 1,
    "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}],
    "capacity": {"requests": {"mem": "1Gi"}},
}

CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "team-a", "labels": {"a": "b"}, "finalizers": ["x.example.com/y"]},
    "spec": {
        "devices": {
            "requests": [
                {"name": "a", "exactly": REQUEST},
                {"name": "b", "firstAvailable": [{"name": "x", **REQUEST}]},
            ],
            "constraints": [{"requests": ["a"], "matchAttribute": "example.com/numa"}],
            "config": [{"requests": ["a"], "opaque": {"driver": "d.example.com", "parameters": {"a": 1}}}],
        }
    },
    "status": {
        "allocation": {
            "devices": {"results": [{"request": "a", "driver": "d.example.com", "pool": "p", "device": "x"}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In"}]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        "devices": [{"driver": "d.example.com", "pool": "p", "device": "x", "conditions": [{"type": "Ready"}]}],
    },
}

DEVICE = {
    "attributes": {"a": {"int": 1}, "b.example.com/c": {"version": "1.2.3"}, "l": {"ints": [1]}},
    "capacity": {"m": {"value": "10", "requestPolicy": {"default": "2", "validRange": {"min": "2", "step": "2"}}}},
    "taints": [{"key": "k", "effect": "NoExecute"}],
    "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
    "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]},
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["b"],
    "allowMultipleAllocations": True,
    "nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "m", "capacityMultiplier": "1"}}},
}


def slice_of(api_version: str, device: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{api_version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [{"name": "d", **device}],
            "sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}],
        },
    }


OBJECTS: list[dict[str, Any]] = [
    CLAIM,
    {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "n"},
        "spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [{"name": "a", **REQUEST}]}}},
    },
    slice_of("v1", DEVICE),
    slice_of("v1beta1", {"basic": DEVICE}),
    slice_of("v1alpha3", {"basic": {**DEVICE, "capacity": {"m": "10"}}}),
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "c"},
        "spec": {
            "config": [{"opaque": {"driver": "d.example.com", "parameters": {}}}],
            "extendedResourceName": "e.com/x",
        },
    },
    {
        "apiVersion": "resource.k8s.io/v1alpha3",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": "d", "selectors": []}, "taint": {"key": "k", "effect": "None"}},
        "status": {"conditions": [{"type": "T", "lastTransitionTime": NOW}]},
    },
    {
        "apiVersion": "resource.k8s.io/v1alpha3",
        "kind": "ResourcePoolStatusRequest",
        "metadata": {"name": "r"},
        "spec": {"driver": "d", "limit": 3},
        "status": {"poolCount": 1, "pools": [{"driver": "d", "shareableSummary": {"capacity": [{"total": "1"}]}}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"a.com/b": "1"}, "claims": [{"name": "a"}]}}
            ],
            "resourceClaims": [{"name": "a", "resourceClaimName": "x"}],
            "schedulingGroup": {"podGroupName": "g"},
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
        "status": {
            "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "x"}],
            "containerStatuses": [{"name": "c", "allocatedResourcesStatus": [{"name": "claim:a", "resources": []}]}],
        },
    },
    {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "n"},
        "spec": {
            "compositePodGroupTemplates": [
                {"name": "a", "schedulingPolicy": {"gang": {"minGroupCount": 1}}, "podGroupTemplates": [{"name": "b"}]}
            ]
        },
    },
    {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "n"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "resourceClaims": [{"name": "a"}], "priority": 1},
        "status": {"resourceClaimStatuses": [{"name": "a"}]},
    },
]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        [
            "",
            "a/b/c",
            "1e999999",
            "-1",
            "\ud800",
            "x" * 300,
            "1.5Gi",
            NOW,
            "0x",
            "device.",
            "[1].all(x, x",
            "(" * 400,
            "'" * 3,
            "1 / 0 == 1",
            "\x00<&>",
            "9" * 5000,
        ]
    ),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for name, item in value.items():
            found += places(item, (*path, name))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            found += places(item, (*path, position))
    return found


def replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    changed = copy.copy(value)
    changed[path[0]] = replaced(value[path[0]], path[1:], junk)
    return changed


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    value: Any = copy.deepcopy(draw(st.sampled_from(OBJECTS)))
    for _ in range(draw(st.integers(min_value=1, max_value=3))):
        where = draw(st.sampled_from(places(value)))
        value = replaced(value, where, draw(JUNK))
        if not isinstance(value, dict):
            return value
    return value


def stored(index: int) -> Envelope:
    value = copy.deepcopy(OBJECTS[index])
    value["metadata"]["resourceVersion"] = "1"
    value.get("spec", {}).get("deviceSelector", {}).pop("selectors", None)
    return decode_object(value)


STORED = [stored(position) for position in range(len(OBJECTS))]


@pytest.mark.slow
@settings(max_examples=600)
@given(value=mutated(), all_gates=st.booleans())
def test_a_mutated_object_is_read_and_checked_or_refused_but_never_crashes(value: Any, all_gates: bool) -> None:
    gates = ALL_GATES if all_gates else DEFAULT_GATES
    before = copy.deepcopy(value)
    try:
        prepared = prepare_create(value, gates=gates, now=NOW)
    except (DecodeError, UnknownKind) as error:
        assert str(error)
        return
    errors = validate_create(prepared, gates=gates, namespace_labels={})
    assert prepared.stored["kind"] == prepared.envelope.kind.name
    if errors:
        assert invalid_message(prepared, errors)
    for old in STORED:
        if old.kind is prepared.envelope.kind:
            updated = prepare_update(value, old, gates=gates, now=NOW)
            validate_update(updated, old, gates=gates)
            written = prepare_status_update(value, old, gates=gates, now=NOW)
            validate_status_update(written, old, gates=gates, namespace_labels={})
            assert updated.stored and written.stored
    assert repr(value) == repr(before), "the input was changed"


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, {"apiVersion": 1, "kind": []}, {"kind": "Pod"}, [{}] * 1000])
def test_what_is_no_object_is_a_decode_error(value: Any) -> None:
    with pytest.raises((DecodeError, UnknownKind)):
        check_object(value, gates=DEFAULT_GATES)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownKind, match=r"DeviceClass.*ResourceSlice"):
        check_object({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}, gates=DEFAULT_GATES)


def test_deep_nesting_is_a_decode_error() -> None:
    nested: Any = {}
    for _ in range(100_000):
        nested = {"a": nested}
    value = {**CLAIM, "spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": nested}}]}}}
    with pytest.raises(DecodeError):
        check_object(value, gates=DEFAULT_GATES)


def test_nested_workload_templates_are_bounded() -> None:
    template: dict[str, Any] = {"name": "x", "schedulingPolicy": {"basic": {}}}
    for _ in range(40):
        template = {"name": "x", "schedulingPolicy": {"basic": {}}, "compositePodGroupTemplates": [template]}
    value = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "n"},
        "spec": {"compositePodGroupTemplates": [template]},
    }
    errors = check_object(value, gates=ALL_GATES)
    assert any("maximum template hierarchy depth is 4" in error.message for error in errors)


def test_a_huge_list_gets_one_error_and_not_one_per_item() -> None:
    value = slice_of("v1", {})
    del value["spec"]["sharedCounters"]
    value["spec"]["devices"] = [{"name": f"D_{number}"} for number in range(5000)]
    errors = check_object(value, gates=DEFAULT_GATES)
    assert [error.message for error in errors] == ["Too many: 5000: must have at most 128 items"]


def test_what_repeats_itself_in_messages_is_cut() -> None:
    value = copy.deepcopy(OBJECTS[8])
    value["spec"]["resourceClaims"] = [{"name": f"c{number}"} for number in range(2000)]
    value["spec"]["containers"][0]["resources"]["claims"] = [{"name": "x", "request": f"r{n}"} for n in range(2000)]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    value["metadata"]["ownerReferences"] = [owner] * 2000
    errors = check_object(value, gates=DEFAULT_GATES)
    assert sum(len(error.message) for error in errors) < 10_000_000
    long = slice_of("v1", {})
    long["spec"]["driver"] = "X" * 1_000_000
    long["spec"]["pool"]["name"] = "/" * 100_000
    assert sum(len(error.message) for error in check_object(long, gates=DEFAULT_GATES)) < 1_000_000


def test_long_texts_are_checked_in_linear_time() -> None:
    text = "a" * 200_000 + "!"
    value = {**CLAIM, "metadata": {"name": text, "namespace": text, "labels": {text: text}}}
    errors = check_object(value, gates=DEFAULT_GATES)
    assert {error.field for error in errors} == {"metadata.name", "metadata.namespace", "metadata.labels"}
