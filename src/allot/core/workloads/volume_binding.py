"""Binds volume claims to volumes: by class, size, access and labels, by name, or because one was provisioned for the other.

A binding is four writes: the volume names the claim, is Bound, the claim names the volume, is Bound. It can be interrupted after
any of them and is completed by the next pass. A volume without its claim is Released, and retained or deleted by its policy.
Claims and volumes are JSON values, which are written back whole, beside the structs used for comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from allot.core.lifecycle.actions import NORMAL, WARNING, Action, Answers, Emit, LookUp, Resource, Update
from allot.core.model.core_v1 import PersistentVolume, PersistentVolumeClaim
from allot.core.model.meta import APIStruct
from allot.core.model.storage_v1 import BINDING_WAIT
from allot.core.scheduling import BIND_COMPLETED, OLD_CLASS, SELECTED_NODE, volume_matching
from allot.core.workloads.storage_protection import CLAIMS, VOLUMES

JSON = Mapping[str, Any]
Object = dict[str, Any]
T = TypeVar("T", bound=APIStruct)

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_OLD_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
STORAGE_CLASSES = Resource(
    group="storage.k8s.io", version="v1", plural="storageclasses", kind="StorageClass", namespaced=False
)
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_IN_TREE = "kubernetes.io/"
_RELEASED = ("Released", "Failed")


class Stored(msgspec.Struct, Generic[T], frozen=True):
    """An object as JSON, and decoded."""

    value: Object
    object: T


Claim = Stored[PersistentVolumeClaim]
Volume = Stored[PersistentVolume]


class StorageView(Protocol):
    """Known storage objects."""

    def claim(self, key: str) -> Claim | None:
        """A claim by namespace and name."""

    def volume(self, name: str) -> Volume | None:
        """A volume."""

    def candidates(self, claim: PersistentVolumeClaim) -> Iterable[Volume]:
        """Volumes that name the claim, and free ones of its class."""

    def storage_class(self, name: str) -> JSON | None:
        """A storage class."""

    def storage_classes(self) -> Iterable[JSON]:
        """All of them."""

    def pods_without_node(self, key: str) -> Sequence[str]:
        """The pods that use a claim and wait for a node."""


# --- claims ---


def reconcile_claim(claim: Claim, view: StorageView) -> tuple[Action, ...]:
    """Bind a claim, request a volume for it, or report why it waits."""
    if BIND_COMPLETED in claim.object.metadata.annotations:
        return _bound_claim(claim, view)
    if claim.object.spec.volume_name:
        return _named_volume(claim, view)
    return _any_volume(claim, view)


def _bound_claim(claim: Claim, view: StorageView) -> tuple[Action, ...]:
    """A claim that was bound stays bound, or is lost."""
    name = claim.object.spec.volume_name
    if not name:
        text = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        return _lost(claim, "ClaimLost", text)
    volume = view.volume(name)
    if volume is None:
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return _lost(claim, "ClaimLost", text)
    holder = volume.object.spec.claim_ref
    if holder is None or holder.uid == claim.object.metadata.uid:
        return _bind(volume, claim)
    return _lost(claim, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")


def _named_volume(claim: Claim, view: StorageView) -> tuple[Action, ...]:
    """A claim that wants one specific volume."""
    name = claim.object.spec.volume_name
    volume = view.volume(name)
    if volume is None:
        return _pending(claim)
    if volume.object.spec.claim_ref is None:
        problem = volume_matching.mismatch(volume.object, claim.object)
        if problem:
            note = f'Cannot bind to requested volume "{name}": {problem}'
            return (*_pending(claim), _say(claim, WARNING, "VolumeMismatch", note))
        return _bind(volume, claim)
    if volume_matching.is_held_for(volume.object, claim.object):
        return _bind(volume, claim)
    note = f'volume "{name}" already bound to a different claim.'
    return (*_pending(claim), _say(claim, WARNING, "FailedBinding", note))


def _any_volume(claim: Claim, view: StorageView) -> tuple[Action, ...]:
    class_name = volume_matching.class_name(claim.object)
    storage_class = view.storage_class(class_name) if class_name else None
    waits = storage_class is not None and storage_class.get("volumeBindingMode") == BINDING_WAIT
    volume = _best(claim.object, view.candidates(claim.object), only_held=waits)
    if volume is not None:
        return _bind(volume, claim)
    if not _has_class(claim.object):
        default = default_class(view.storage_classes())
        if default:
            spec = {**claim.value["spec"], "storageClassName": default}
            return (Update(resource=CLAIMS, object={**claim.value, "spec": spec}),)
    if waits and SELECTED_NODE not in claim.object.metadata.annotations:
        return (*_pending(claim), _waiting(claim, view))
    if class_name:
        return _provision(claim, class_name, storage_class)
    note = "no persistent volumes available for this claim and no storage class is set"
    return (*_pending(claim), _say(claim, NORMAL, "FailedBinding", note))


def _best(claim: PersistentVolumeClaim, candidates: Iterable[Volume], *, only_held: bool) -> Volume | None:
    """The volume reserved for the claim; else, of those that fit, the one with the fewest access modes, then the smallest."""
    fitting = [volume for volume in candidates if volume_matching.suits(volume.object, claim)]
    held = [volume for volume in fitting if volume_matching.is_held_for(volume.object, claim)]
    if only_held or held:
        fitting = held

    def rank(volume: Volume) -> tuple[int, int, str]:
        found = volume.object
        return len(set(found.spec.access_modes)), volume_matching.capacity(found), found.metadata.name

    return min(fitting, key=rank, default=None)


def _has_class(claim: PersistentVolumeClaim) -> bool:
    return claim.spec.storage_class_name is not None or OLD_CLASS in claim.metadata.annotations


def default_class(classes: Iterable[JSON]) -> str:
    """The class of claims that name none: the newest of several, then the first by name. Empty if there is none."""
    found = [
        (str(one["metadata"].get("creationTimestamp") or ""), str(one["metadata"]["name"]))
        for one in classes
        if any((one["metadata"].get("annotations") or {}).get(mark) == "true" for mark in _DEFAULT_CLASS)
    ]
    newest = max((at for at, _ in found), default="")
    return min((name for at, name in found if at == newest), default="")


def _waiting(claim: Claim, view: StorageView) -> Emit:
    metadata = claim.object.metadata
    pods = view.pods_without_node(f"{metadata.namespace}/{metadata.name}")
    if not pods:
        note = "waiting for first consumer to be created before binding"
        return _say(claim, NORMAL, "WaitForFirstConsumer", note)
    named = f"pods {','.join(pods)}" if len(pods) > 1 else f"pod {pods[0]}"
    return _say(claim, NORMAL, "WaitForPodScheduled", f"waiting for {named} to be scheduled")


def _provision(claim: Claim, class_name: str, storage_class: JSON | None) -> tuple[Action, ...]:
    """Report which provisioner has to create a volume."""
    if storage_class is None:
        note = f'storageclass.storage.k8s.io "{class_name}" not found'
        return (_say(claim, WARNING, "ProvisioningFailed", note),)
    provisioner = storage_class.get("provisioner", "")
    if provisioner.startswith(_IN_TREE):
        return (_say(claim, WARNING, "ProvisioningFailed", f"no volume plugin matched name: {provisioner}"),)
    note = (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system "
        "administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
    )
    told = _say(claim, NORMAL, "ExternalProvisioning", note)
    if claim.object.metadata.annotations.get(PROVISIONER) == provisioner:
        return (told,)
    changed = _annotated(claim.value, {PROVISIONER: provisioner, _OLD_PROVISIONER: provisioner})
    return (Update(resource=CLAIMS, object=changed), told)


def _pending(claim: Claim) -> tuple[Action, ...]:
    return _claim_status(claim.value, "Pending", None)


def _lost(claim: Claim, reason: str, note: str) -> tuple[Action, ...]:
    if claim.object.status.phase == "Lost":
        return ()
    return (*_claim_status(claim.value, "Lost", None), _say(claim, WARNING, reason, note))


def _say(about: Stored[Any], type_: str, reason: str, note: str) -> Emit:
    return Emit(regarding=about.value, type=type_, reason=reason, action="Binding", note=note)


# --- bindings ---


def _bind(volume: Volume, claim: Claim) -> tuple[Action, ...]:
    """The missing ones of the four writes."""
    actions: list[Action] = []
    changed = _volume_for(volume, claim)
    if changed is not None:
        actions.append(Update(resource=VOLUMES, object=changed))
    actions += _volume_phase(changed or volume.value, "Bound", follows=changed is not None)
    named = _claim_for(claim, volume.object.metadata.name)
    if named is not None:
        actions.append(Update(resource=CLAIMS, object=named))
    actions += _claim_status(named or claim.value, "Bound", volume.value, follows=named is not None)
    return tuple(actions)


def _volume_for(volume: Volume, claim: Claim) -> Object | None:
    """The volume with the claim in it; None if it already is."""
    metadata, holder = claim.object.metadata, volume.object.spec.claim_ref
    is_held = volume_matching.is_held_for(volume.object, claim.object)
    if is_held and holder is not None and holder.uid:
        return None
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
    }
    changed = {**volume.value, "spec": {**volume.value["spec"], "claimRef": reference}}
    return changed if is_held else _annotated(changed, {volume_matching.BOUND_BY_CONTROLLER: "yes"})


def _claim_for(claim: Claim, volume: str) -> Object | None:
    """The claim with the volume in it; None if it already is."""
    annotations = claim.object.metadata.annotations
    is_named = claim.object.spec.volume_name == volume
    if is_named and BIND_COMPLETED in annotations:
        return None
    changed = {**claim.value, "spec": {**claim.value["spec"], "volumeName": volume}}
    more = {BIND_COMPLETED: "yes"}
    if not is_named:
        more[volume_matching.BOUND_BY_CONTROLLER] = "yes"
    return _annotated(changed, {key: value for key, value in more.items() if key not in annotations})


def _claim_status(claim: JSON, phase: str, volume: JSON | None, *, follows: bool = False) -> tuple[Action, ...]:
    """A claim's phase, and its volume's properties; nothing if they are current."""
    old: Object = claim.get("status") or {}
    new = {**old, "phase": phase}
    if volume is None:
        for member in ("accessModes", "capacity", "currentVolumeAttributesClassName"):
            new.pop(member, None)
    else:
        spec = volume.get("spec") or {}
        new["accessModes"] = spec.get("accessModes") or []
        if old.get("phase") != phase:
            # Later it may differ on purpose: the file system may be smaller than the device.
            new["capacity"] = spec.get("capacity") or {}
            if spec.get("volumeAttributesClassName"):
                new["currentVolumeAttributesClassName"] = spec["volumeAttributesClassName"]
    if new == old:
        return ()
    return (Update(resource=CLAIMS, object={**claim, "status": new}, subresource="status", follows=follows),)


def _volume_phase(volume: JSON, phase: str, *, follows: bool = False) -> tuple[Action, ...]:
    old: Object = volume.get("status") or {}
    if old.get("phase") == phase:
        return ()
    status = {key: value for key, value in old.items() if key not in ("message", "reason")} | {"phase": phase}
    return (Update(resource=VOLUMES, object={**volume, "status": status}, subresource="status", follows=follows),)


def _annotated(object_: Object, annotations: Mapping[str, str]) -> Object:
    metadata = object_["metadata"]
    return {**object_, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}}


# --- volumes ---


def reconcile_volume(volume: Volume, view: StorageView, answers: Answers) -> tuple[Action, ...]:
    """A volume's phase: available, bound, or released. Binding it is up to the claim (`claim_of`)."""
    holder = volume.object.spec.claim_ref
    if holder is None or not holder.uid:
        return _volume_phase(volume.value, "Available")
    claim = view.claim(f"{holder.namespace}/{holder.name}")
    if claim is None or claim.object.metadata.uid != holder.uid:
        if volume.object.status.phase not in _RELEASED:
            # The cache of claims may be stale, and data is at stake.
            question = LookUp(resource=CLAIMS, name=holder.name, namespace=holder.namespace)
            if question not in answers:
                return (question,)
            found = answers[question]
            if found is not None and found["metadata"]["uid"] == holder.uid:
                return ()
        return _release(volume)
    if not claim.object.spec.volume_name:
        return () if volume_matching.have_same_mode(volume.object, claim.object) else _modes_differ(volume, claim)
    if claim.object.spec.volume_name == volume.object.metadata.name:
        return _volume_phase(volume.value, "Bound")
    policy = volume.value["spec"].get("persistentVolumeReclaimPolicy")
    if PROVISIONED_BY in volume.object.metadata.annotations and policy == "Delete":
        return _release(volume)
    return _unbind(volume)


def claim_of(volume: PersistentVolume) -> str:
    """The key of the claim that a volume names; empty if it names none."""
    holder = volume.spec.claim_ref
    return f"{holder.namespace}/{holder.name}" if holder is not None else ""


def _release(volume: Volume) -> tuple[Action, ...]:
    """No claim uses it anymore. Provisioned volumes are deleted by their provisioner."""
    phase = () if volume.object.status.phase in _RELEASED else _volume_phase(volume.value, "Released")
    policy = volume.value["spec"].get("persistentVolumeReclaimPolicy") or "Retain"
    provisioner = volume.object.metadata.annotations.get(PROVISIONED_BY, "")
    if policy == "Retain" or volume.object.status.phase == "Failed":
        return phase
    if policy == "Delete" and (
        volume.object.spec.csi is not None or (not provisioner.startswith(_IN_TREE) and provisioner)
    ):
        return phase
    if policy == "Recycle":
        return _failed(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
    name = volume.object.metadata.name
    text = f'error getting deleter volume plugin for volume "{name}": no volume plugin matched'
    return _failed(volume, "VolumeFailedDelete", text)


def _failed(volume: Volume, reason: str, message: str) -> tuple[Action, ...]:
    status = {**(volume.value.get("status") or {}), "phase": "Failed", "message": message}
    changed = {**volume.value, "status": status}
    return (Update(resource=VOLUMES, object=changed, subresource="status"), _say(volume, WARNING, reason, message))


def _unbind(volume: Volume) -> tuple[Action, ...]:
    """The claim was bound elsewhere. A volume reserved by its creator stays reserved."""
    spec, metadata = dict(volume.value["spec"]), dict(volume.value["metadata"])
    annotations = dict(metadata.get("annotations") or {})
    if annotations.pop(volume_matching.BOUND_BY_CONTROLLER, None) is not None:
        del spec["claimRef"]
        metadata["annotations"] = annotations
    else:
        spec["claimRef"] = {key: value for key, value in spec["claimRef"].items() if key != "uid"}
    changed = {**volume.value, "metadata": metadata, "spec": spec}
    return (Update(resource=VOLUMES, object=changed), *_volume_phase(changed, "Available", follows=True))


def _modes_differ(volume: Volume, claim: Claim) -> tuple[Action, ...]:
    name, of_claim = volume.object.metadata.name, claim.object.metadata.name
    why = "due to incompatible volumeMode."
    return (
        _say(volume, WARNING, "VolumeMismatch", f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{of_claim}" {why}'),
        _say(claim, WARNING, "VolumeMismatch", f'Cannot bind PersistentVolume "{name}" to requested PersistentVolumeClaim {why}'),
    )  # fmt: skip
