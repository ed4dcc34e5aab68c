"""Who owns which fields after creates, updates and patches."""

from __future__ import annotations

import copy
from typing import Any

from allot.apiserver.kinds.schemas import builtin_schemas
from allot.core.patching import fields, track_update, without_new_times
from allot.core.schema import Schema

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-02T00:00:00Z"
STATUS, SPEC = fields("status"), fields("spec")
Object = dict[str, Any]


def schema(group: str, version: str, kind: str) -> Schema:
    found = builtin_schemas().for_kind(group, version, kind)
    assert found is not None
    return found


POD = schema("", "v1", "Pod")
DEPLOYMENT = schema("apps", "v1", "Deployment")


def pod(**more: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"a": "1"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        **more,
    }


def track(live: Object | None, new: Object, manager: str = "m", now: str = NOW, **more: Any) -> Any:
    return track_update(live, new, manager=manager, schema=POD, api_version="v1", now=now, **more)


def owned_by(managed_fields: Any, manager: str) -> Any:
    found = [entry["fieldsV1"] for entry in managed_fields or () if entry["manager"] == manager]
    return found[0] if found else None


def stored(object_: Object, managed_fields: Any) -> Object:
    return {**object_, "metadata": {**object_["metadata"], "managedFields": managed_fields}}


# --- create ---


def test_the_creator_owns_everything_but_what_the_server_sets() -> None:
    assert track(None, pod()) == [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:image": {}, "f:name": {}}}},
            },
        }
    ]


def test_what_a_recorded_claim_owns() -> None:
    """The claim of a pod in the transcripts, as kube-controller-manager created it."""
    claim = {
        "metadata": {
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            "generateName": "pod1-gpu-",
            "name": "pod1-gpu-x",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "pod1", "uid": "c9155f72-a74e"}],
        },
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
    }
    managed = track_update(
        None,
        claim,
        manager="kube-controller-manager",
        schema=schema("resource.k8s.io", "v1", "ResourceClaim"),
        api_version="resource.k8s.io/v1",
        now=NOW,
        reset=STATUS,
    )
    assert owned_by(managed, "kube-controller-manager") == {
        "f:metadata": {
            "f:annotations": {".": {}, "f:resource.kubernetes.io/pod-claim-name": {}},
            "f:generateName": {},
            "f:ownerReferences": {".": {}, 'k:{"uid":"c9155f72-a74e"}': {}},
        },
        "f:spec": {"f:devices": {"f:requests": {}}},
    }


def test_structs_that_are_always_there_are_not_owned_as_such() -> None:
    deployment = {
        "spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "selector": {"matchLabels": {"a": "1"}},
            "template": {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "c", "resources": {}}]}},
        }
    }
    managed = track_update(None, deployment, manager="m", schema=DEPLOYMENT, api_version="apps/v1", now=NOW)
    assert owned_by(managed, "m")["f:spec"] == {
        "f:selector": {},
        "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
        "f:template": {
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}, "f:resources": {}}}},
        },
    }


def test_fields_that_cannot_be_written_this_way_are_not_owned() -> None:
    assert "f:status" not in owned_by(track(None, pod(status={"phase": "Running"}), reset=STATUS), "m")


def test_a_key_that_is_left_out_counts_with_its_default() -> None:
    object_ = pod(spec={"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]})
    ports = owned_by(track(None, object_), "m")["f:spec"]["f:containers"]['k:{"name":"c"}']["f:ports"]
    assert ports == {".": {}, 'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}


def test_elements_with_the_same_key_are_owned_as_one() -> None:
    object_ = pod(spec={"containers": [{"name": "c", "env": [{"name": "A"}, {"name": "A", "value": "2"}]}]})
    env = owned_by(track(None, object_), "m")["f:spec"]["f:containers"]['k:{"name":"c"}']["f:env"]
    assert env == {".": {}, 'k:{"name":"A"}': {}}


def test_equal_objects_share_their_sets_of_fields() -> None:
    one, other = track(None, pod(), reset=STATUS), track(None, copy.deepcopy(pod()), reset=STATUS)
    assert one[0]["fieldsV1"] is other[0]["fieldsV1"]


def test_a_writer_without_a_name_is_unknown() -> None:
    assert track(None, pod(), manager="")[0]["manager"] == "unknown"


# --- update ---


def test_a_changed_field_changes_its_owner_and_nothing_else_does() -> None:
    live = stored(pod(), track(None, pod()))
    new = copy.deepcopy(live)
    new["spec"]["containers"][0]["image"] = "j"
    new["metadata"]["labels"]["b"] = "2"
    managed = track(live, new, "other", LATER)
    assert owned_by(managed, "other") == {
        "f:metadata": {"f:labels": {"f:b": {}}},
        "f:spec": {"f:containers": {'k:{"name":"c"}': {"f:image": {}}}},
    }
    assert owned_by(managed, "m") == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}}},
    }
    assert [entry["time"] for entry in managed] == [NOW, LATER]


def test_a_write_that_changes_nothing_changes_no_owner_and_no_time() -> None:
    live = stored(pod(), track(None, pod()))
    managed = track(live, copy.deepcopy(live), "other", LATER)
    assert managed == live["metadata"]["managedFields"]
    assert managed[0] is live["metadata"]["managedFields"][0]


def test_the_same_writer_adds_to_its_entry() -> None:
    live = stored(pod(), track(None, pod()))
    new = copy.deepcopy(live)
    new["metadata"]["labels"]["b"] = "2"
    managed = track(live, new, "m", LATER)
    assert len(managed) == 1
    assert managed[0]["time"] == LATER
    assert owned_by(managed, "m")["f:metadata"]["f:labels"] == {".": {}, "f:a": {}, "f:b": {}}


def test_removed_fields_belong_to_nobody() -> None:
    live = stored(pod(), track(None, pod()))
    new = copy.deepcopy(live)
    del new["metadata"]["labels"]
    managed = track(live, new, "other", LATER)
    assert "f:metadata" not in owned_by(managed, "m")
    assert owned_by(managed, "other") is None


def test_a_manager_without_fields_goes() -> None:
    live = stored(pod(), track(None, pod()))
    new = {**copy.deepcopy(live), "spec": {"containers": [{"name": "z", "image": "z"}]}}
    del new["metadata"]["labels"]
    assert owned_by(track(live, new, "other"), "m") is None


def test_the_status_is_owned_apart() -> None:
    live = stored(pod(), track(None, pod(), "kubelet"))
    new = {**live, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    managed = track(live, new, "kubelet", LATER, subresource="status", reset=SPEC)
    assert [(entry["manager"], entry.get("subresource")) for entry in managed] == [
        ("kubelet", None),
        ("kubelet", "status"),
    ]
    assert managed[1]["fieldsV1"] == {
        "f:status": {
            "f:conditions": {".": {}, 'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}},
            "f:phase": {},
        }
    }


def test_an_object_that_nobody_manages_stays_so() -> None:
    new = pod()
    new["metadata"]["labels"] = {"b": "2"}
    assert track(pod(), new) is None


def test_managed_fields_can_be_reset_and_are_then_not_tracked() -> None:
    live = stored(pod(), track(None, pod()))
    for reset in ([], [{}]):
        assert track(live, stored(pod(), reset), "other") is None


def test_managed_fields_cannot_be_reset_through_a_subresource() -> None:
    live = stored(pod(), track(None, pod()))
    assert track(live, stored(pod(), [{}]), "other", subresource="status") == live["metadata"]["managedFields"]


def test_managed_fields_that_a_writer_sends_count_if_they_make_sense() -> None:
    live = stored(pod(), track(None, pod()))
    entry = {"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    sent = [{**entry, "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}]
    assert track(live, stored(pod(), sent), "other") == sent
    for nonsense in (
        [{"manager": "x"}],
        [{**entry, "fieldsV1": {"zzz": {}}}],
        "text",
        [1],
        [{**entry, "apiVersion": 1}],
    ):
        assert track(live, stored(pod(), nonsense), "other") == live["metadata"]["managedFields"]


def test_damaged_managed_fields_in_the_store_do_not_stop_a_write() -> None:
    for damaged in ([1], [{"manager": "x"}], [{"operation": "Apply", "apiVersion": "v1", "fieldsType": "Other"}]):
        live = stored(pod(), damaged)
        assert track(live, {**pod(), "spec": {}}, "other") is None


def test_the_oldest_updaters_become_one_when_there_are_more_than_ten() -> None:
    live = stored(pod(), track(None, pod(), "m0"))
    for number in range(1, 12):
        new = copy.deepcopy(live)
        new["metadata"]["labels"][f"l{number}"] = "x"
        managed = track(live, new, f"m{number}", f"2026-01-01T00:00:{number:02}Z")
        live = stored(new, managed)
    names = [entry["manager"] for entry in managed]
    assert len(names) == 10
    assert names == ["ancient-changes", *(f"m{number}" for number in range(3, 12))]
    assert owned_by(managed, "ancient-changes")["f:metadata"]["f:labels"] == {
        ".": {},
        "f:a": {},
        "f:l1": {},
        "f:l2": {},
    }


def test_entries_of_other_versions_are_compared_in_their_version() -> None:
    old = {"manager": "old", "operation": "Update", "apiVersion": "v0", "fieldsType": "FieldsV1"}
    live = stored(pod(), [{**old, "fieldsV1": {"f:top": {}, "f:kept": {}}}])
    flat = builtin_schemas().from_structural({"type": "object", "x-kubernetes-preserve-unknown-fields": True})

    def convert(object_: Object, api_version: str) -> tuple[Object, Schema] | None:
        if api_version != "v0":
            return None
        return {"metadata": object_["metadata"], "top": object_["metadata"]["labels"]["a"], "kept": 1}, flat

    new = copy.deepcopy(live)
    new["metadata"]["labels"]["a"] = "2"
    assert owned_by(track(live, new, "m", convert=convert), "old") == {"f:kept": {}}
    gone = stored(pod(), [{**old, "apiVersion": "v00", "fieldsV1": {"f:x": {}}}])
    del new["metadata"]["managedFields"]
    assert owned_by(track(gone, new, "m", convert=convert), "old") is None


def test_custom_resources_own_the_objects_that_they_are_made_of() -> None:
    custom = builtin_schemas().from_structural(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    )
    managed = track_update(
        None,
        {"apiVersion": "e/v1", "kind": "E", "metadata": {"name": "x", "labels": {"a": "1"}}, "spec": {"size": 1}},
        manager="m",
        schema=custom,
        api_version="e/v1",
        now=NOW,
    )
    assert owned_by(managed, "m") == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {".": {}, "f:size": {}},
    }


def test_times_alone_are_no_reason_to_store_an_object() -> None:
    live = stored(pod(), track(None, pod()))
    newer = [{**entry, "time": LATER} for entry in live["metadata"]["managedFields"]]
    assert without_new_times(live, newer) is live["metadata"]["managedFields"]
    other = [{**entry, "fieldsV1": {}} for entry in newer]
    assert without_new_times(live, other) == other
    assert without_new_times(live, None) is None


def test_free_form_values_may_become_objects_and_back() -> None:
    free = builtin_schemas().from_structural({"type": "object", "x-kubernetes-preserve-unknown-fields": True})

    def write(live: Object | None, value: Any, manager: str) -> Object:
        new = {"apiVersion": "e/v1", "kind": "E", "metadata": {"name": "x", "uid": "u"}, "free": value}
        managed = track_update(live, new, manager=manager, schema=free, api_version="e/v1", now=NOW)
        return stored(new, managed)

    live = write(None, {"a": {"b": 1}}, "one")
    live = write(live, "text", "two")
    assert [(each["manager"], each["fieldsV1"]) for each in live["metadata"]["managedFields"]] == [
        ("two", {"f:free": {}})
    ]
    live = write(live, {"c": 1}, "three")
    assert [(each["manager"], each["fieldsV1"]) for each in live["metadata"]["managedFields"]] == [
        ("three", {"f:free": {".": {}, "f:c": {}}})
    ]
