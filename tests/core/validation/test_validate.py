"""The entry points: what a server gets back for creates, updates and status writes."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.features import ALL_GATES, DEFAULT_GATES
from allot.core.model.codec import decode_object
from allot.core.model.meta import ObjectMeta
from allot.core.model.scheduling_v1 import PriorityClass
from allot.core.validation.validate import (
    DecodeError,
    PriorityRefused,
    check_object,
    invalid_message,
    prepare_create,
    prepare_update,
    validate_create,
    validate_update,
)

from .builders import (
    LATER,
    NOW,
    body,
    claim,
    create_errors,
    device_slice,
    exactly,
    pod,
    pod_group,
    store,
    stored,
    taint_rule,
    texts,
    update,
    write_status,
)

ALLOCATION = {
    "devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}]}
}
REPORT = {"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
CONSUMER = {"resource": "pods", "name": "p", "uid": "u"}


def test_all_errors_of_an_object_come_at_once() -> None:
    value = claim(exactly("A", count=-1), exactly("b", allocationMode="Some"))
    assert {error.field for error in create_errors(value)} == {
        "spec.devices.requests[0].name",
        "spec.devices.requests[0].exactly.count",
        "spec.devices.requests[1].exactly.allocationMode",
    }


def test_one_error_makes_a_message_and_several_make_a_list() -> None:
    prepared = prepare_create(claim(exactly("A")), gates=DEFAULT_GATES, now=NOW)
    errors = validate_create(prepared, gates=DEFAULT_GATES)
    assert invalid_message(prepared, errors).startswith(
        'ResourceClaim.resource.k8s.io "train" is invalid: spec.devices.requests[0].name: Invalid value: "A": '
    )
    assert invalid_message(prepared, errors * 2 + create_errors(claim(exactly(count=-1)))).count(" is invalid: [") == 1


def test_a_manifest_without_namespace_is_fine_for_tools_but_not_for_a_server() -> None:
    value = claim()
    del value["metadata"]["namespace"]
    assert check_object(value, gates=DEFAULT_GATES) == ()
    assert texts(create_errors(value)) == ["metadata.namespace: Required value"]


def test_a_generated_name_needs_no_name() -> None:
    value = claim()
    value["metadata"] = {"generateName": "train-", "namespace": "team-a"}
    assert create_errors(value) == ()


def test_without_the_beta_gate_handwritten_errors_remain() -> None:
    value = claim(*(exactly(f"r{number}") for number in range(2)), exactly("r0"))
    with_beta = texts(create_errors(value))
    without = texts(create_errors(value, DEFAULT_GATES.changed(disable=["DeclarativeValidationBeta"])))
    assert with_beta[0].startswith('spec.devices.requests[2]: Duplicate value: {"name":"r0"')
    assert without == ['spec.devices.requests[2]: Duplicate value: "r0"']


def test_declarative_errors_of_v1beta1_have_its_paths() -> None:
    flat = {"name": "a", "deviceClassName": "c", "tolerations": [{"key": "-", "operator": "Exists"}]}
    assert [error.field for error in create_errors(claim(flat, version="v1beta1"))] == [
        "spec.devices.requests[0].tolerations[0].key"
    ]
    device = {"name": "d", "basic": {"bindingConditions": list("abcde"), "bindingFailureConditions": ["f"]}}
    assert [error.field for error in create_errors(device_slice(device, version="v1beta1"))] == [
        "spec.devices[0].basic.bindingConditions"
    ]


def test_a_duplicate_request_of_v1beta1_is_printed_flat() -> None:
    flat = {"name": "a", "deviceClassName": "c"}
    shown = '{"name":"a","deviceClassName":"c","allocationMode":"ExactCount","count":1}'
    errors = create_errors(claim(flat, flat, version="v1beta1"))
    assert texts(errors) == [f"spec.devices.requests[1]: Duplicate value: {shown}"]


def test_v1beta2_equals_v1() -> None:
    assert create_errors(claim(exactly("A"), version="v1beta2")) == create_errors(claim(exactly("A")))
    prepared = prepare_create(claim(version="v1beta2"), gates=DEFAULT_GATES, now=NOW)
    assert prepared.stored["apiVersion"] == "resource.k8s.io/v1"
    assert prepared.warnings == (
        "resource.k8s.io/v1beta2 ResourceClaim is deprecated in v1.36+, unavailable in v1.39+",
    )


def test_unknown_fields_are_dropped_with_a_warning() -> None:
    value = claim()
    value["spec"]["extra"] = 1
    prepared = prepare_create(value, gates=DEFAULT_GATES, now=NOW)
    assert prepared.warnings == ('unknown field "spec.extra"',)
    assert "extra" not in prepared.stored["spec"]


# --- claims ---


def test_a_claim_spec_cannot_change_but_may_be_spelled_differently() -> None:
    old = store(claim(exactly(capacity={"requests": {"mem": "1Gi"}})))
    same = claim(exactly(capacity={"requests": {"mem": "1073741824"}}, selectors=[], count=1))
    same["metadata"]["resourceVersion"] = "7"
    assert update(same, old)[1] == ()
    changed = claim(exactly(count=2))
    assert texts(update(changed, old)[1]) == ["spec: Invalid value: null: field is immutable"]


def test_an_update_keeps_the_status_and_a_status_write_keeps_the_rest() -> None:
    old = store(claim())
    prepared, errors = write_status(
        {"allocation": ALLOCATION}, old, metadata={**body(old)["metadata"], "labels": {"a": "b"}}
    )
    assert errors == ()
    assert "labels" not in prepared.stored["metadata"]
    allocated = stored(prepared)
    changed, errors = update(body(allocated, status={}), allocated)
    assert errors == ()
    assert changed.stored["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"


def test_an_update_may_leave_the_namespace_to_the_path() -> None:
    old = store(claim())
    sent = body(old)
    sent["metadata"] = {name: value for name, value in sent["metadata"].items() if name != "namespace"}
    assert update(sent, old)[1] == ()
    sent["metadata"]["namespace"] = "other"
    assert texts(update(sent, old)[1]) == ['metadata.namespace: Invalid value: "other": field is immutable']


def test_an_allocation_may_be_set_and_cleared_but_not_changed() -> None:
    allocated = stored(write_status({"allocation": ALLOCATION}, store(claim()))[0])
    other = {"devices": {"results": [{**ALLOCATION["devices"]["results"][0], "device": "gpu-1"}]}}
    assert texts(write_status({"allocation": other}, allocated)[1]) == [
        "status.allocation: Invalid value: null: field cannot be modified once set"
    ]
    assert write_status({}, allocated)[1] == ()


def test_device_reports_go_with_their_devices_but_foreign_ones_are_refused() -> None:
    allocated = stored(write_status({"allocation": ALLOCATION}, store(claim()))[0])
    reported = stored(write_status({"allocation": ALLOCATION, "devices": [REPORT]}, allocated)[0])
    cleared, errors = write_status({"devices": [REPORT]}, reported)
    assert errors == ()
    assert cleared.stored["status"] == {}
    foreign = write_status({"allocation": ALLOCATION, "devices": [{**REPORT, "device": "gpu-9"}]}, allocated)[1]
    assert [error.field for error in foreign] == ["status.devices[0]"]


def test_a_claim_being_deleted_takes_no_new_consumers() -> None:
    allocated = stored(write_status({"allocation": ALLOCATION}, store(claim()))[0])
    deleting = body(allocated)
    deleting["metadata"] = {**deleting["metadata"], "deletionTimestamp": NOW, "finalizers": ["a.example.com/b"]}
    old = decode_object(deleting)
    errors = write_status({"allocation": ALLOCATION, "reservedFor": [CONSUMER]}, old)[1]
    detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
    assert texts(errors) == [f"status.reservedFor: Forbidden: {detail}"]


def test_admin_access_needs_the_label_on_the_namespace() -> None:
    prepared = prepare_create(claim(exactly(adminAccess=True)), gates=DEFAULT_GATES, now=NOW)
    assert validate_create(prepared, gates=DEFAULT_GATES) == ()
    assert (
        validate_create(prepared, gates=DEFAULT_GATES, namespace_labels={"resource.kubernetes.io/admin-access": "true"})
        == ()
    )
    refused = validate_create(
        prepared, gates=DEFAULT_GATES, namespace_labels={"resource.kubernetes.io/admin-access": "True"}
    )
    assert [error.field for error in refused] == ["spec.devices.requests[0].adminAccess"]


# --- generations, times, versions ---


def test_a_slice_counts_the_changes_of_its_spec() -> None:
    old = store(device_slice({"name": "d"}))
    assert old.object.metadata.generation == 1  # type: ignore[attr-defined]
    assert update(body(old), old)[0].object.metadata.generation == 1
    changed = device_slice({"name": "e"})
    assert update(changed, old)[0].object.metadata.generation == 2
    # A field of a gate that is off is dropped, and counts all the same.
    gated = device_slice({"name": "d"}, skipNodeOperations=["*"])
    prepared, errors = update(gated, old)
    assert errors == ()
    assert prepared.object.metadata.generation == 2
    assert "skipNodeOperations" not in prepared.stored["spec"]


def test_a_changed_effect_of_a_taint_rule_starts_anew() -> None:
    old = store(taint_rule("NoSchedule"))
    sent = body(old)
    sent["spec"] = {**sent["spec"], "taint": {**sent["spec"]["taint"], "effect": "NoExecute"}}
    prepared, errors = update(sent, old)
    assert errors == ()
    assert prepared.object.spec.taint.time_added == LATER
    assert prepared.object.metadata.generation == 2
    sent["spec"]["taint"]["timeAdded"] = "2020-01-01T00:00:00Z"
    assert update(sent, old)[0].object.spec.taint.time_added == "2020-01-01T00:00:00Z"


def test_an_update_without_resource_version_depends_on_kind_and_version() -> None:
    for value, allowed in (
        (claim(), True),
        (device_slice(), True),
        (taint_rule(), False),
        (taint_rule(version="v1beta2"), True),
    ):
        old = store(value)
        prepared = prepare_update(value, old, gates=DEFAULT_GATES, now=LATER)
        errors = validate_update(prepared, old, gates=DEFAULT_GATES)
        refusal = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        assert texts(errors) == ([] if allowed else [refusal])
        assert prepared.object.metadata.resource_version == ("7" if allowed else "")


def test_a_pool_status_is_written_once() -> None:
    value = {
        "apiVersion": "resource.k8s.io/v1alpha3",
        "kind": "ResourcePoolStatusRequest",
        "metadata": {"name": "r"},
        "spec": {"driver": "gpu.example.com"},
        "status": {"poolCount": 5},
    }
    old = store(value)
    assert "status" not in body(old), "a status cannot be brought along"
    prepared, errors = write_status({"poolCount": 0}, old)
    assert errors == ()
    answered = stored(prepared)
    for again in ({"poolCount": 1}, None):
        changed = write_status(again, answered)[1]
        assert [(error.field, error.type) for error in changed] == [("status", "FieldValueInvalid")]
    assert write_status({"poolCount": 0}, answered)[1] == ()


# --- ratcheting ---


def test_a_stored_selector_is_not_compiled_again() -> None:
    value: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "c", "resourceVersion": "7"},
        "spec": {"selectors": [{"cel": {"expression": "no longer valid ("}}]},
    }
    old = decode_object(value)
    labelled = {**value, "metadata": {**value["metadata"], "labels": {"a": "b"}}}
    assert update(labelled, old)[1] == ()


def test_unchanged_taints_and_capacities_of_a_device_are_not_looked_at_again() -> None:
    device = {
        "name": "d",
        "taints": [{"key": "-", "effect": "Odd", "timeAdded": NOW}],
        "capacity": {"a-b": {"value": "1"}},
    }
    value = device_slice(device)
    value["metadata"]["resourceVersion"] = "7"
    old = decode_object(value)
    grown = device_slice(device, {"name": "e"})
    assert [error.field for error in update(grown, old)[1]] == ["spec.devices[0].taints[0].effect"]
    renewed = device_slice({**device, "capacity": {"a-b": {"value": "2"}}})
    assert "spec.devices[0].capacity" in [error.field for error in update(renewed, old)[1]]


# --- expressions ---


def selecting(expression: str) -> dict[str, Any]:
    return claim(exactly(selectors=[{"cel": {"expression": expression}}]))


def test_an_expression_that_is_too_long_is_not_compiled() -> None:
    path = "spec.devices.requests[0].exactly.selectors[0].cel.expression"
    assert texts(create_errors(selecting("(" * 10241))) == [f"{path}: Too long: may not be more than 10240 bytes"]


def test_an_expression_sees_only_what_the_gates_allow() -> None:
    expression = "device.allowMultipleAllocations"
    assert create_errors(selecting(expression)) == ()
    off = DEFAULT_GATES.changed(disable=["DRAConsumableCapacity"])
    assert "undefined field" in create_errors(selecting(expression), off)[0].message


def test_derived_attributes_of_a_claim_share_one_budget() -> None:
    costly = "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, a == b))) ? 'x' : 'y'"
    names = [f"example.com/a{number}" for number in range(9)]
    derived = [{"name": name, "expression": costly} for name in names]
    value = claim(exactly(derivedAttributes=derived), constraints=[{"matchAttribute": name} for name in names])
    single = claim(exactly(derivedAttributes=derived[:1]), constraints=[{"matchAttribute": names[0]}])
    assert create_errors(single, ALL_GATES) == ()
    assert texts(create_errors(value, ALL_GATES)) == [
        "spec.devices: Forbidden: too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit"
    ]


# --- gates ---


def test_fields_of_a_gate_that_is_off_are_kept_when_the_old_object_uses_them() -> None:
    off = DEFAULT_GATES.changed(disable=["DRADeviceTaints"])
    tainted = {"name": "d", "taints": [{"key": "k", "effect": "None"}]}
    assert "taints" not in body(store(device_slice(tainted), off))["spec"]["devices"][0]
    old = store(device_slice(tainted))
    both = update(device_slice(tainted, {"name": "e", "taints": [{"key": "l", "effect": "None"}]}), old, off)[0]
    assert [len(device["taints"]) for device in both.stored["spec"]["devices"]] == [1, 1]


def test_shares_survive_in_a_status_when_the_spec_uses_capacity() -> None:
    off = DEFAULT_GATES.changed(disable=["DRAConsumableCapacity"])
    share = {"shareID": "8a4c6f0e-2d0b-4f0a-9c3d-5f6e7a8b9c0d"}
    allocation = {"devices": {"results": [{**ALLOCATION["devices"]["results"][0], **share}]}}
    plain = store(claim())
    dropped = write_status({"allocation": allocation}, plain, off)[0]
    assert "shareID" not in dropped.stored["status"]["allocation"]["devices"]["results"][0]
    using = store(claim(exactly(capacity={"requests": {"mem": "1Gi"}})))
    kept = write_status({"allocation": allocation}, using, off)[0]
    assert kept.stored["status"]["allocation"]["devices"]["results"][0]["shareID"] == share["shareID"]


def test_templates_of_a_workload_lose_gated_fields_at_every_level() -> None:
    leaf = {"name": "leaf", "schedulingPolicy": {"basic": {}}, "preemptionPolicy": "Never"}
    tree = {"name": "tree", "schedulingPolicy": {"basic": {}}, "podGroupTemplates": [leaf], "preemptionPolicy": "Never"}
    value = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team-a"},
        "spec": {"compositePodGroupTemplates": [tree]},
    }
    gates = ALL_GATES.changed(disable=["PodGroupPreemptionPolicy"])
    assert "preemptionPolicy" not in str(body(store(value, gates)))
    assert "preemptionPolicy" in str(body(store(value, ALL_GATES)))


# --- pods and groups ---


def test_what_is_not_modelled_of_a_pod_is_kept() -> None:
    value = pod(volumes=[{"name": "v", "emptyDir": {}}])
    value["status"] = {"hostIP": "1.2.3.4", "phase": "Running"}
    old = store(value)
    assert body(old)["status"] == {"phase": "Pending"}
    written = stored(write_status({"phase": "Running", "hostIP": "1.2.3.4"}, old)[0])
    assert body(written)["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]
    prepared, errors = update(body(written, status={"hostIP": "9.9.9.9"}), written)
    assert errors == ()
    assert prepared.stored["status"] == {"phase": "Running", "hostIP": "1.2.3.4"}


def test_a_pod_spec_may_only_change_its_images() -> None:
    old = store(pod(volumes=[{"name": "v", "emptyDir": {}}]))
    sent = body(old)
    image = {**sent["spec"], "containers": [{**sent["spec"]["containers"][0], "image": "i:2"}]}
    assert update({**sent, "spec": image}, old)[1] == ()
    for changed in ({"volumes": []}, {"resourceClaims": [{"name": "a", "resourceClaimName": "x"}]}):
        errors = update({**sent, "spec": {**sent["spec"], **changed}}, old)[1]
        assert [(error.field, error.type) for error in errors] == [("spec", "FieldValueForbidden")]


def test_limits_become_requests() -> None:
    limited = pod(containers=[{"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": "1"}}}])
    assert body(store(limited))["spec"]["containers"][0]["resources"]["requests"] == {"example.com/gpu": "1"}


def test_mirror_pods_cannot_have_claims() -> None:
    value = pod(resourceClaims=[{"name": "a", "resourceClaimName": "x"}])
    value["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert texts(create_errors(value)) == ["[]: Forbidden: static pods do not support resource claims"]


def test_a_pod_group_gets_the_priority_of_its_class() -> None:
    high = {"high": PriorityClass(metadata=ObjectMeta(name="high"), value=9, global_default=True)}
    for spec in ({"priorityClassName": "high"}, {}):
        prepared = prepare_create(pod_group(**spec), gates=ALL_GATES, now=NOW, priority_classes=high)
        assert (prepared.object.spec.priority_class_name, prepared.object.spec.priority) == ("high", 9)
    with pytest.raises(PriorityRefused, match="no PriorityClass with name low was found"):
        prepare_create(pod_group(priorityClassName="low"), gates=ALL_GATES, now=NOW, priority_classes=high)
    with pytest.raises(PriorityRefused, match=r"\(3\) must match the priority computed \(9\)"):
        prepare_create(pod_group(priority=3), gates=ALL_GATES, now=NOW, priority_classes=high)


def test_the_kind_of_an_object_cannot_change() -> None:
    with pytest.raises(DecodeError, match="expected a ResourceClaim like the stored object, got a Pod"):
        prepare_update(pod(), store(claim()), gates=DEFAULT_GATES, now=NOW)
