"""Directories of a node as volumes, for the storage class of `allot up`."""

from __future__ import annotations

from allot.core.lifecycle.actions import NORMAL, WARNING, Action, Create, Delete, Emit, Update
from allot.core.model.core_v1 import Node, PersistentVolumeClaim
from allot.core.quantity import Quantity
from allot.core.scheduling import HOSTNAME, SELECTED_NODE, volume_matching
from allot.core.workloads.storage_protection import CLAIMS, VOLUMES
from allot.core.workloads.volume_binding import JSON, PROVISIONED_BY, PROVISIONER, Claim, Object, Volume

FOLDER_PROVISIONER = "allot.dev/folder"
CLASS_NAME = "standard"
PREFIX = "pvc-"
_ONE_NODE = ("ReadWriteOnce", "ReadWriteOncePod")


def storage_class() -> Object:
    """The default class: directories, created when the first pod that wants one has a node, and removed with their claim."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS_NAME, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": FOLDER_PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }


def is_ours(claim: PersistentVolumeClaim) -> bool:
    """Whether a claim waits for a directory."""
    return claim.metadata.annotations.get(PROVISIONER) == FOLDER_PROVISIONER and not claim.spec.volume_name


def volume_name(claim: PersistentVolumeClaim) -> str:
    """The name of the volume for a claim, and of its directory."""
    return f"{PREFIX}{claim.metadata.uid}"


def provision(claim: Claim, class_: JSON, node: Node | None, folder: str) -> tuple[Action, ...]:
    """Create a volume for a claim whose node was chosen. node: that node, if known. folder: the parent of all directories."""
    chosen = claim.object.metadata.annotations.get(SELECTED_NODE)
    problem = _problem(claim, chosen)
    if problem:
        text = f'failed to provision volume with StorageClass "{class_["metadata"]["name"]}": {problem}'
        return (_say(claim, WARNING, "ProvisioningFailed", text),)
    if node is None:
        # Let the scheduler choose again.
        annotations = {
            key: value for key, value in claim.value["metadata"]["annotations"].items() if key != SELECTED_NODE
        }
        changed = {**claim.value, "metadata": {**claim.value["metadata"], "annotations": annotations}}
        text = f'failed to get target node: node "{chosen}" not found'
        return (Update(resource=CLAIMS, object=changed), _say(claim, WARNING, "ProvisioningFailed", text))
    made = _volume(claim, class_, node, folder)
    name = made["metadata"]["name"]
    return (
        Create(resource=VOLUMES, object=made, may_exist=True),
        _say(claim, NORMAL, "ProvisioningSucceeded", f"Successfully provisioned volume {name}"),
    )


def grow(claim: Claim, volume: Volume) -> tuple[Action, ...]:
    """Report the directory as large as its claim wants: directories have no fixed size. The volume comes first."""
    metadata = volume.object.metadata
    if metadata.annotations.get(PROVISIONED_BY) != FOLDER_PROVISIONER or not volume_matching.is_bound(claim.object):
        return ()
    wanted = claim.value["spec"]["resources"]["requests"]["storage"]
    if volume_matching.capacity(volume.object) < volume_matching.size(claim.object):
        spec = {**volume.value["spec"], "capacity": {**volume.value["spec"]["capacity"], "storage": wanted}}
        return (Update(resource=VOLUMES, object={**volume.value, "spec": spec}),)
    status = claim.value.get("status") or {}
    told = (status.get("capacity") or {}).get("storage")
    if told is None or Quantity.parse(told).nano >= volume_matching.size(claim.object):
        return ()
    changed = {**claim.value, "status": {**status, "capacity": {**status["capacity"], "storage": wanted}}}
    return (
        Update(resource=CLAIMS, object=changed, subresource="status"),
        Emit(
            regarding=claim.value,
            type=NORMAL,
            reason="VolumeResizeSuccessful",
            action="Resizing",
            note="Resize volume succeeded",
        ),
    )


def give_up(volume: Volume) -> tuple[Action, ...]:
    """Delete a released volume, if that is its policy."""
    metadata = volume.object.metadata
    is_deleted = volume.value["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
    if metadata.annotations.get(PROVISIONED_BY) != FOLDER_PROVISIONER or not is_deleted:
        return ()
    if volume.object.status.phase != "Released" or metadata.deletion_timestamp is not None:
        return ()
    return (Delete(resource=VOLUMES, name=metadata.name, uid=metadata.uid),)


def _problem(claim: Claim, chosen: str | None) -> str:
    """Why no directory can be created for a claim; empty if one can."""
    spec = claim.value["spec"]
    many = [mode for mode in spec.get("accessModes") or () if mode not in _ONE_NODE]
    checks = (
        (chosen is None, "a directory belongs to one node: the class needs volumeBindingMode WaitForFirstConsumer"),
        (spec.get("volumeMode") == "Block", "a directory is not a block device: volumeMode must be Filesystem"),
        (bool(spec.get("selector")), "claim.Spec.Selector is not supported"),
        (
            bool(spec.get("dataSource") or spec.get("dataSourceRef")),
            "a directory starts empty: dataSource is not supported",
        ),
        (bool(many), f"a directory belongs to one node: access mode {''.join(many[:1])} is not supported"),
    )
    return next((text for holds, text in checks if holds), "")


def _volume(claim: Claim, class_: JSON, node: Node, folder: str) -> Object:
    """A volume that is a directory on one node, created by the node's agent on first use."""
    spec, metadata = claim.value["spec"], claim.object.metadata
    name, hostname = volume_name(claim.object), node.metadata.labels.get(HOSTNAME, node.metadata.name)
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [hostname]}]}
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: FOLDER_PROVISIONER}},
        "spec": {
            "accessModes": spec.get("accessModes") or [],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": reference,
            "hostPath": {"path": f"{folder}/{name}", "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "persistentVolumeReclaimPolicy": class_.get("reclaimPolicy") or "Delete",
            "storageClassName": class_["metadata"]["name"],
            "volumeMode": "Filesystem",
        },
    }


def _say(claim: Claim, type_: str, reason: str, note: str) -> Emit:
    return Emit(regarding=claim.value, type=type_, reason=reason, action="Provisioning", note=note)
