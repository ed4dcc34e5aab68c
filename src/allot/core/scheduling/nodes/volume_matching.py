"""Whether a volume matches a volume claim: for the scheduler, which chooses for a node, and for the volume binder."""

from __future__ import annotations

from allot.core.model import core_v1
from allot.core.selectors import SelectorError, label_requirements

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


def claim_key(claim: core_v1.PersistentVolumeClaim) -> str:
    """Namespace and name."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def is_bound(claim: core_v1.PersistentVolumeClaim) -> bool:
    """Whether claim and volume have found each other."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def class_name(claim: core_v1.PersistentVolumeClaim) -> str:
    """The storage class that a claim wants; empty for volumes without one."""
    old = claim.metadata.annotations.get(OLD_CLASS)
    return old if old is not None else claim.spec.storage_class_name or ""


def class_of(volume: core_v1.PersistentVolume) -> str:
    """The storage class of a volume."""
    old = volume.metadata.annotations.get(OLD_CLASS)
    return old if old is not None else volume.spec.storage_class_name


def size(claim: core_v1.PersistentVolumeClaim) -> int:
    """What a claim asks for, in nano units."""
    amount = claim.spec.resources.requests.get("storage")
    return amount.nano if amount is not None else 0


def capacity(volume: core_v1.PersistentVolume) -> int:
    """What a volume has, in nano units."""
    amount = volume.spec.capacity.get("storage")
    return amount.nano if amount is not None else 0


def is_held_for(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    """Whether a volume names this very claim, or its name from before it existed."""
    holder = volume.spec.claim_ref
    if holder is None or (holder.namespace, holder.name) != (claim.metadata.namespace, claim.metadata.name):
        return False
    return not holder.uid or holder.uid == claim.metadata.uid


def have_same_mode(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    """Whether both mean a file system, or both a device."""
    return (volume.spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")


def allows_access(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    """Whether a volume can be used in all the ways that a claim asks for."""
    return set(claim.spec.access_modes) <= set(volume.spec.access_modes)


def mismatch(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> str:
    """Why a claim cannot have the volume that it names, in the words of events; empty if it can."""
    attributes = volume.spec.volume_attributes_class_name or ""
    checks = (
        (volume.metadata.deletion_timestamp is None, f'the volume is marked for deletion "{volume.metadata.name}"'),
        (capacity(volume) >= size(claim), "requested PV is too small"),
        (class_of(volume) == class_name(claim), "storageClassName does not match"),
        (attributes == (claim.spec.volume_attributes_class_name or ""), "volumeAttributesClassName does not match"),
        (have_same_mode(volume, claim), "incompatible volumeMode"),
        (allows_access(volume, claim), "incompatible accessMode"),
    )
    return next((text for holds, text in checks if not holds), "")


def suits(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    """Whether a volume could be bound to a claim, wherever it is. One that is held for the claim need only be large enough."""
    if volume.metadata.deletion_timestamp is not None or capacity(volume) < size(claim):
        return False
    attributes = volume.spec.volume_attributes_class_name or ""
    if not have_same_mode(volume, claim) or attributes != (claim.spec.volume_attributes_class_name or ""):
        return False
    if volume.spec.claim_ref is not None:
        return is_held_for(volume, claim)
    # A volume from a file has no phase.
    is_free = volume.status.phase in ("", "Available")
    if not is_free or class_of(volume) != class_name(claim) or not allows_access(volume, claim):
        return False
    if claim.spec.selector is None:
        return True
    try:
        wanted = label_requirements(claim.spec.selector)
    except SelectorError:
        return False
    return wanted is not None and wanted.matches(volume.metadata.labels)
