"""Objects of dumps and servers, read for advice."""

from __future__ import annotations

import msgspec
import pytest

from allot.core.advice.snapshot import KINDS, NotInSnapshots, Snapshot, read_object, snapshot_kind
from allot.core.model import core_v1, observed_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import DecodeError


def test_an_object_gets_its_defaults_and_a_namespace_and_loses_its_field_managers() -> None:
    pod = read_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "managedFields": [{"manager": "kubectl"}]},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]},
        }
    )
    assert isinstance(pod, core_v1.Pod)
    assert (pod.metadata.namespace, pod.metadata.managed_fields) == ("default", ())
    assert pod.spec.scheduler_name == "default-scheduler"
    assert str(pod.spec.containers[0].resources.requests["cpu"]) == "2"


def test_older_versions_are_converted() -> None:
    claim = read_object(
        {
            "apiVersion": "resource.k8s.io/v1beta1",
            "kind": "ResourceClaim",
            "metadata": {"name": "c", "namespace": "ml"},
            "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}},
        }
    )
    assert isinstance(claim, api.ResourceClaim)
    exactly = claim.spec.devices.requests[0].exactly
    assert exactly is not None
    assert (exactly.device_class_name, exactly.allocation_mode, exactly.count) == ("gpu", "ExactCount", 1)


@pytest.mark.parametrize(
    "value",
    [
        {
            "apiVersion": "v1",
            "involvedObject": {"kind": "Pod", "name": "p"},
            "message": "m",
            "lastTimestamp": "2027-01-15T08:00:00Z",
        },
        {
            "apiVersion": "events.k8s.io/v1",
            "regarding": {"kind": "Pod", "name": "p"},
            "note": "m",
            "deprecatedLastTimestamp": "2027-01-15T08:00:00Z",
        },
    ],
)
def test_events_of_both_groups_are_the_same(value: dict[str, object]) -> None:
    event = read_object({"kind": "Event", "metadata": {"name": "e"}, "reason": "r", **value})
    assert isinstance(event, observed_v1.Event)
    assert (event.involved_object.name, event.message, event.seen_at) == ("p", "m", "2027-01-15T08:00:00Z")


@pytest.mark.parametrize(
    "value",
    [
        {"apiVersion": "v1", "kind": "ServiceAccount"},
        {"apiVersion": "example.com/v1", "kind": "Pod"},
        {"kind": "Pod"},
        {"apiVersion": 7, "kind": []},
        {},
    ],
)
def test_other_kinds_are_not_in_snapshots(value: dict[str, object]) -> None:
    with pytest.raises(NotInSnapshots):
        read_object(value)


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_of_secrets_and_config_maps_only_the_names_of_keys_are_kept(kind: str) -> None:
    value = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": "x"},
        "data": {"b": "cGFzcw=="},
        "stringData": {"a": "pass"},
    }
    found = read_object(value)
    assert isinstance(found, observed_v1.Secret | observed_v1.ConfigMap)
    assert found.keys == ("a", "b")
    assert b"pass" not in msgspec.json.encode(found)
    assert b"cGFzcw" not in msgspec.json.encode(found)
    assert snapshot_kind(type(found)) not in KINDS


def test_a_bad_object_is_refused_by_field() -> None:
    with pytest.raises(DecodeError, match=r"spec\.containers"):
        read_object({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": 7}})


def test_objects_are_found_by_type_and_name() -> None:
    value = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    snapshot = Snapshot((read_object(value),))
    found = snapshot.find(core_v1.Node, "n")
    assert found is not None
    assert snapshot.of(core_v1.Node) == [found]
    assert snapshot.find(core_v1.Node, "m") is None
    assert snapshot.of(core_v1.Pod) == []


def test_every_kind_is_listed_once_and_secrets_never() -> None:
    names = [(kind.group, kind.name) for kind in KINDS]
    assert len(names) == len(set(names))
    assert {name for _, name in names}.isdisjoint({"Secret", "ConfigMap"})
    assert all(snapshot_kind(kind.type) is kind for kind in KINDS)
