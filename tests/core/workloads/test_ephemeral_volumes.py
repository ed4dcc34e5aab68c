"""Claims of ephemeral volumes, and folders as volumes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allot.core.lifecycle.actions import Create, Delete, Emit, LookUp, Retry, Update
from allot.core.model.codec import decode
from allot.core.model.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from allot.core.model.meta import ObjectMeta
from allot.core.workloads import folder_volumes
from allot.core.workloads.ephemeral_volumes import WHOLE_PODS, reconcile_pod
from allot.core.workloads.volume_binding import Stored
from core.workloads.storage_world import Object, claim, volume

WHOLE: Object = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
    "spec": {
        "volumes": [
            {"name": "x", "emptyDir": {}},
            {
                "name": "v",
                "ephemeral": {
                    "volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["X"]}}
                },
            },
        ]
    },
}
POD = decode(WHOLE, Pod).object
QUESTION = LookUp(resource=WHOLE_PODS, name="p", namespace="ns")


def test_a_pod_s_claim_is_made_once_and_belongs_to_it() -> None:
    assert reconcile_pod(POD, lambda _: None, {}) == (QUESTION,)
    (action,) = reconcile_pod(POD, lambda _: None, {QUESTION: WHOLE})
    assert isinstance(action, Create)
    made = msgspec.to_builtins(action.object)
    assert made["metadata"]["name"] == "p-v" and made["metadata"]["labels"] == {"a": "b"}
    assert made["spec"] == {"accessModes": ["X"]}
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", "u", True)
    assert reconcile_pod(POD, lambda _: made, {}) == ()


def test_a_claim_of_somebody_else_is_not_taken_and_nothing_is_made_for_a_pod_that_goes() -> None:
    (action,) = reconcile_pod(POD, lambda _: claim("p-v"), {})
    assert isinstance(action, Retry) and "was not created for pod ns/p (pod is not owner)" in action.message
    leaving = msgspec.structs.replace(
        POD, metadata=msgspec.structs.replace(POD.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    assert reconcile_pod(leaving, lambda _: None, {}) == ()
    assert reconcile_pod(POD, lambda _: None, {QUESTION: None}) == ()


CLASS = folder_volumes.storage_class()
NODE = Node(metadata=ObjectMeta(name="n1", labels={"kubernetes.io/hostname": "host-1"}))


def chosen(**spec: Any) -> Any:
    annotations = {"volume.kubernetes.io/selected-node": "n1"} if spec.pop("has_node", True) else {}
    value = claim(storage_class="standard", metadata={"annotations": annotations}, spec=spec)
    return Stored(value, decode(value, PersistentVolumeClaim).object)


def test_a_folder_is_of_the_node_that_was_chosen() -> None:
    create, told = folder_volumes.provision(chosen(), CLASS, NODE, "/data/volumes")
    assert isinstance(create, Create) and create.may_exist and isinstance(told, Emit)
    spec = msgspec.to_builtins(create.object)["spec"]
    assert spec["hostPath"] == {"path": "/data/volumes/pvc-uid-c", "type": "DirectoryOrCreate"}
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-1"]}]
    assert spec["claimRef"]["uid"] == "uid-c" and spec["capacity"] == {"storage": "1Gi"}
    assert told.note == "Successfully provisioned volume pvc-uid-c"


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (chosen(volumeMode="Block"), "volumeMode must be Filesystem"),
        (chosen(accessModes=["ReadOnlyMany"]), "access mode ReadOnlyMany is not supported"),
        (chosen(selector={"matchLabels": {"a": "b"}}), "claim.Spec.Selector is not supported"),
        (chosen(dataSource={"kind": "VolumeSnapshot", "name": "s"}), "dataSource is not supported"),
        (chosen(has_node=False), "the class needs volumeBindingMode WaitForFirstConsumer"),
    ],
)
def test_what_a_folder_cannot_be_is_said(wanted: Any, text: str) -> None:
    (told,) = folder_volumes.provision(wanted, CLASS, NODE, "/data")
    assert isinstance(told, Emit) and told.reason == "ProvisioningFailed" and told.note.endswith(text)


def test_a_node_that_is_gone_is_not_chosen_any_more() -> None:
    update, told = folder_volumes.provision(chosen(), CLASS, None, "/data")
    assert isinstance(update, Update) and isinstance(told, Emit)
    assert msgspec.to_builtins(update.object)["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("policy", "phase", "by", "goes"),
    [
        ("Delete", "Released", "allot.dev/folder", True),
        ("Delete", "Bound", "allot.dev/folder", False),
        ("Retain", "Released", "allot.dev/folder", False),
        ("Delete", "Released", "p.example.com", False),
    ],
)
def test_only_folders_that_nobody_claims_any_more_go(policy: str, phase: str, by: str, goes: bool) -> None:
    annotations = {"pv.kubernetes.io/provisioned-by": by}
    value = volume(phase=phase, metadata={"annotations": annotations}, spec={"persistentVolumeReclaimPolicy": policy})
    actions = folder_volumes.give_up(Stored(value, decode(value, PersistentVolume).object))
    assert [type(action) for action in actions] == ([Delete] if goes else [])


def test_a_folder_grows_first_as_a_volume_then_in_the_status_of_its_claim() -> None:
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    value = claim(size="2Gi", metadata=bound, spec={"volumeName": "v"}, status=status)
    wanted = Stored(value, decode(value, PersistentVolumeClaim).object)

    def held(size: str, by: str = "allot.dev/folder") -> Any:
        value = volume(size=size, metadata={"annotations": {"pv.kubernetes.io/provisioned-by": by}})
        return Stored(value, decode(value, PersistentVolume).object)

    (first,) = folder_volumes.grow(wanted, held("1Gi"))
    assert isinstance(first, Update) and first.object["spec"]["capacity"] == {"storage": "2Gi"}  # type: ignore[index]
    second, told = folder_volumes.grow(wanted, held("2Gi"))
    assert isinstance(second, Update) and second.subresource == "status"
    assert second.object["status"] == {"phase": "Bound", "capacity": {"storage": "2Gi"}}  # type: ignore[index]
    assert isinstance(told, Emit) and told.reason == "VolumeResizeSuccessful"
    done = {**value, "status": second.object["status"]}  # type: ignore[index]
    assert folder_volumes.grow(Stored(done, wanted.object), held("2Gi")) == ()
    assert folder_volumes.grow(wanted, held("1Gi", by="p.example.com")) == ()
