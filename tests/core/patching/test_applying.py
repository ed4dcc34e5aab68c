"""Server-side apply: merging, ownership, conflicts, removal."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from allot.apiserver.kinds.schemas import builtin_schemas
from allot.core.patching import Applied, ApplyConflict, PatchError, apply, fields, track_update
from allot.core.patching.last_applied import LAST_APPLIED
from allot.core.schema import Schema

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-02T00:00:00Z"
Object = dict[str, Any]


def schema(group: str, version: str, kind: str) -> Schema:
    found = builtin_schemas().for_kind(group, version, kind)
    assert found is not None
    return found


DEPLOYMENT = schema("apps", "v1", "Deployment")
CONFIG_MAP = schema("", "v1", "ConfigMap")


def config_map(data: Object | None = None, **metadata: Any) -> Object:
    object_: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}}
    return object_ if data is None else {**object_, "data": data}


def deployment(**spec: Any) -> Object:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}, "spec": spec}


def containers(*items: Object) -> Object:
    return {"template": {"spec": {"containers": list(items)}}}


def apply_to(live: Object | None, config: Object, manager: str = "m", now: str = NOW, **more: Any) -> Applied:
    version, kind = config["apiVersion"], config["kind"]
    group, _, short = version.rpartition("/")
    options: Object = {"force": False, "schema": schema(group, short, kind), "api_version": version, "kind": kind}
    return apply(live, config, manager=manager, now=now, **{**options, **more})


def updated(live: Object, new: Object, manager: str, now: str = NOW) -> Object:
    """The new object as stored after an update by somebody."""
    group, _, short = new["apiVersion"].rpartition("/")
    found = schema(group, short, new["kind"])
    managed = track_update(live, new, manager=manager, schema=found, api_version=new["apiVersion"], now=now)
    return {**new, "metadata": {**new["metadata"], "managedFields": managed}}


def stored(object_: Object) -> Object:
    return {**object_, "metadata": {**object_["metadata"], "uid": "u"}}


def owned_by(result: Applied, manager: str) -> Any:
    found = [entry["fieldsV1"] for entry in result.managed_fields or () if entry["manager"] == manager]
    return found[0] if found else None


def names(result: Applied) -> list[str]:
    return [each["name"] for each in result.object["spec"]["template"]["spec"]["containers"]]


# --- what the object becomes ---


def test_an_apply_creates_an_object_that_the_manager_owns() -> None:
    result = apply_to(None, config_map({"a": "1"}, labels={"x": "y"}))
    assert result.managed_fields == [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}},
        }
    ]
    assert result.object["data"] == {"a": "1"}
    assert result.object["metadata"]["managedFields"] == result.managed_fields
    assert result.changed


def test_applying_the_same_again_changes_nothing() -> None:
    first = apply_to(None, config_map({"a": "1"}))
    again = apply_to(stored(first.object), config_map({"a": "1"}), now=LATER)
    assert again.object == stored(first.object)
    assert not again.changed


def test_fields_that_are_no_longer_stated_are_removed() -> None:
    first = apply_to(None, config_map({"a": "1", "b": "2"}, labels={"x": "y"}))
    second = apply_to(first.object, config_map({"a": "1"}), now=LATER)
    assert second.object["data"] == {"a": "1"}
    assert "labels" not in second.object["metadata"]
    assert owned_by(second, "m") == {"f:data": {"f:a": {}}}
    assert second.managed_fields is not None
    assert second.managed_fields[0]["time"] == LATER


def test_fields_that_somebody_else_owns_too_stay() -> None:
    first = apply_to(None, config_map({"a": "1", "b": "2"}))
    shared = apply_to(first.object, config_map({"b": "2"}), "other")
    second = apply_to(shared.object, config_map({"a": "1"}))
    assert second.object["data"] == {"a": "1", "b": "2"}
    assert owned_by(second, "other") == {"f:data": {"f:b": {}}}


def test_fields_that_nobody_stated_stay() -> None:
    live = apply_to(None, deployment(replicas=3, **containers({"name": "c", "image": "i"}))).object
    live = updated(live, {**live, "spec": {**live["spec"], "minReadySeconds": 5, "paused": True}}, "updater")
    second = apply_to(live, deployment(**containers({"name": "c", "image": "i"})))
    assert second.object["spec"]["minReadySeconds"] == 5
    assert "replicas" not in second.object["spec"]


def test_elements_of_a_list_are_merged_by_key_and_removed_by_key() -> None:
    one, two = {"name": "one", "image": "1"}, {"name": "two", "image": "2"}
    first = apply_to(None, deployment(**containers(one, two)))
    other = apply_to(first.object, deployment(**containers({"name": "side", "image": "s"})), "other")
    assert names(other) == ["one", "two", "side"]
    second = apply_to(other.object, deployment(**containers({"name": "two", "image": "3"})))
    assert names(second) == ["two", "side"]
    assert second.object["spec"]["template"]["spec"]["containers"][0]["image"] == "3"


def test_an_element_goes_with_its_owner_whatever_others_set_in_it() -> None:
    first = apply_to(None, deployment(**containers({"name": "c", "image": "1"}, {"name": "d", "image": "1"})))
    touched = copy.deepcopy(first.object)
    touched["spec"]["template"]["spec"]["containers"][1]["workingDir"] = "/w"
    live = updated(first.object, touched, "updater")
    second = apply_to(live, deployment(**containers({"name": "c", "image": "1"})))
    assert names(second) == ["c"]
    assert owned_by(second, "updater") is None


def test_sets_are_merged_and_atomic_lists_replaced() -> None:
    first = apply_to(None, config_map(finalizers=["e/a", "e/b"]))
    other = apply_to(first.object, config_map(finalizers=["e/c"]), "other")
    assert other.object["metadata"]["finalizers"] == ["e/a", "e/b", "e/c"]
    less = apply_to(other.object, config_map(finalizers=["e/b"]))
    assert less.object["metadata"]["finalizers"] == ["e/b", "e/c"]
    args = apply_to(None, deployment(**containers({"name": "c", "args": ["1", "2"]})))
    replaced = apply_to(args.object, deployment(**containers({"name": "c", "args": ["3"]})))
    assert replaced.object["spec"]["template"]["spec"]["containers"][0]["args"] == ["3"]


def test_ports_of_two_protocols_are_two_elements() -> None:
    ports = [{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]
    first = apply_to(None, deployment(**containers({"name": "c", "ports": ports})))
    second = apply_to(first.object, deployment(**containers({"name": "c", "ports": [{"containerPort": 53}]})))
    # The protocol is no longer stated: it goes, and comes back as a default.
    assert second.object["spec"]["template"]["spec"]["containers"][0]["ports"] == [{"containerPort": 53}]


def test_shared_elements_come_in_the_order_of_the_configuration() -> None:
    live = apply_to(None, deployment(**containers(*({"name": name} for name in "abc")))).object
    result = apply_to(live, deployment(**containers({"name": "c"}, {"name": "x"}, {"name": "a"})), "other")
    assert names(result) == ["b", "c", "x", "a"]


def test_empty_objects_are_owned() -> None:
    volumes = {"template": {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}}
    result = apply_to(None, deployment(**volumes))
    assert owned_by(result, "m")["f:spec"]["f:template"]["f:spec"]["f:volumes"] == {
        'k:{"name":"v"}': {".": {}, "f:emptyDir": {}, "f:name": {}}
    }


# --- conflicts ---


def test_a_field_of_somebody_else_is_a_conflict() -> None:
    live = apply_to(None, deployment(replicas=1)).object
    with pytest.raises(ApplyConflict) as caught:
        apply_to(live, deployment(replicas=2), "other")
    assert caught.value.code == 409
    assert caught.value.message == 'Apply failed with 1 conflict: conflict with "m": .spec.replicas'
    assert caught.value.causes == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "m"', "field": ".spec.replicas"}
    ]


def test_updaters_are_told_with_their_version_and_all_conflicts_together() -> None:
    live = apply_to(None, deployment(replicas=1, paused=True, **containers({"name": "c", "image": "1"}))).object
    live = updated(live, {**live, "spec": {**live["spec"], "replicas": 2}}, "kubectl-edit")
    with pytest.raises(ApplyConflict) as caught:
        apply_to(live, deployment(replicas=3, paused=False, **containers({"name": "c", "image": "2"})), "other")
    assert caught.value.message == (
        'Apply failed with 3 conflicts: conflicts with "kubectl-edit" using apps/v1:\n'
        "- .spec.replicas\n"
        'conflicts with "m":\n'
        "- .spec.paused\n"
        '- .spec.template.spec.containers[name="c"].image'
    )


def test_the_same_value_is_no_conflict_but_shared() -> None:
    live = apply_to(None, deployment(replicas=1)).object
    result = apply_to(live, deployment(replicas=1), "other", LATER)
    assert owned_by(result, "m") == owned_by(result, "other") == {"f:spec": {"f:replicas": {}}}
    assert not result.changed


def test_force_takes_the_field() -> None:
    live = apply_to(None, deployment(replicas=1, paused=True)).object
    result = apply_to(live, deployment(replicas=2), "other", force=True)
    assert result.object["spec"]["replicas"] == 2
    assert owned_by(result, "m") == {"f:spec": {"f:paused": {}}}
    assert owned_by(result, "other") == {"f:spec": {"f:replicas": {}}}


def test_subresources_have_owners_of_their_own() -> None:
    live = apply_to(None, deployment(replicas=1), reset=fields("status")).object
    config = {**deployment(), "status": {"replicas": 1}}
    result = apply_to(live, config, subresource="status", reset=fields("spec"))
    assert [(entry.get("subresource"), entry["fieldsV1"]) for entry in result.managed_fields or ()] == [
        (None, {"f:spec": {"f:replicas": {}}}),
        ("status", {"f:status": {"f:replicas": {}}}),
    ]
    with pytest.raises(ApplyConflict, match=r'conflict with "m" with subresource "status": .status.replicas'):
        apply_to(result.object, {**deployment(), "status": {"replicas": 2}}, "other", subresource="status")


# --- coming from elsewhere ---


def test_an_object_without_managers_belonged_to_somebody_before() -> None:
    live = stored(config_map({"a": "1", "b": "2"}))
    with pytest.raises(ApplyConflict, match=r'conflict with "before-first-apply" using v1: .data.a'):
        apply_to(live, config_map({"a": "2"}))
    result = apply_to(live, config_map({"a": "2"}), force=True)
    assert owned_by(result, "before-first-apply") == {"f:data": {".": {}, "f:b": {}}}


def client_side(data: Object, applied: Object) -> Object:
    text = msgspec.json.encode(config_map(applied)).decode()
    object_ = config_map(data, annotations={LAST_APPLIED: text})
    return updated({}, object_, "kubectl-client-side-apply")


def test_kubectl_takes_over_what_client_side_apply_set() -> None:
    live = stored(client_side({"a": "1", "b": "2"}, {"a": "1", "b": "2"}))
    result = apply_to(live, config_map({"a": "9", "b": "2"}), "kubectl")
    assert result.object["data"] == {"a": "9", "b": "2"}
    annotation = result.object["metadata"]["annotations"][LAST_APPLIED]
    assert msgspec.json.decode(annotation) == config_map({"a": "9", "b": "2"})
    with pytest.raises(ApplyConflict):
        apply_to(live, config_map({"a": "9"}), "other")


def test_kubectl_does_not_take_over_what_has_changed_since() -> None:
    live = stored(client_side({"a": "changed", "b": "2"}, {"a": "1", "b": "2"}))
    with pytest.raises(ApplyConflict, match=r"1 conflict.*: \.data\.a$"):
        apply_to(live, config_map({"a": "9", "b": "9"}), "kubectl")


def test_a_part_that_became_atomic_is_owned_as_a_whole() -> None:
    entry = {"manager": "m", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "time": NOW}
    owned = {"f:spec": {"f:selector": {"f:matchLabels": {"f:a": {}}}, "f:replicas": {}}}
    live = stored(deployment(replicas=1, selector={"matchLabels": {"a": "1"}}))
    live["metadata"]["managedFields"] = [{**entry, "fieldsV1": owned}]
    result = apply_to(live, deployment(paused=True), "other")
    assert owned_by(result, "m") == {"f:spec": {"f:selector": {}, "f:replicas": {}}}


def test_an_applier_has_one_entry_whatever_version_it_applies() -> None:
    entry = {"manager": "m", "operation": "Apply", "apiVersion": "v0", "fieldsType": "FieldsV1"}
    live = stored(config_map({"a": "1", "b": "2"}))
    live["metadata"]["managedFields"] = [{**entry, "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}}]

    def convert(object_: Object, api_version: str) -> tuple[Object, Schema] | None:
        return {**object_, "apiVersion": api_version}, CONFIG_MAP

    result = apply_to(live, config_map({"a": "1"}), convert=convert)
    assert result.object["data"] == {"a": "1"}
    assert result.object["apiVersion"] == "v1"
    assert [each["apiVersion"] for each in result.managed_fields or ()] == ["v1"]


# --- refusals ---


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret"),
        ({"apiVersion": "apps/v1"}, 400, "invalid object type: apps/v1, Kind=ConfigMap"),
        ({"metadata": {"name": "c", "managedFields": []}}, 400, "metadata.managedFields must be nil"),
        (
            {"dataa": {}},
            500,
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .dataa: field not declared in schema",
        ),
        ({"data": []}, 500, ".data: expected map, got &{[]}"),
        ({"data": {"a": 1}}, 500, ".data.a: expected string, got &value.valueUnstructured{Value:1}"),
        ({"immutable": "yes"}, 500, ".immutable: expected boolean, got &{yes}"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(change: Object, code: int, message: str) -> None:
    config = {**config_map(), **change}
    with pytest.raises(PatchError) as caught:
        apply(None, config, manager="m", force=False, schema=CONFIG_MAP, api_version="v1", kind="ConfigMap", now=NOW)
    assert caught.value.code == code
    assert message in caught.value.message


def test_elements_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(PatchError, match="omits all key fields"):
        apply_to(None, deployment(**containers({"image": "x"})))
    with pytest.raises(PatchError, match="duplicate entries for key"):
        apply_to(None, deployment(**containers({"name": "c"}, {"name": "c"})))


@pytest.mark.parametrize("config", [None, [], "x", 1])
def test_what_is_no_object_is_refused(config: Any) -> None:
    with pytest.raises(PatchError, match="error decoding patch"):
        apply(None, config, manager="m", force=False, schema=CONFIG_MAP, api_version="v1", kind="ConfigMap", now=NOW)
