"""Protects storage in use from deletion: volume claims, volumes and volume attributes classes keep a finalizer while they are in
use, and a volume claim's status says since when it is unused.

Volume claims, volumes and classes are JSON values: they are written back whole, including fields unknown to core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from allot.core.lifecycle.actions import Action, Answers, LookUp, RemoveFinalizer, Resource, Update
from allot.core.lifecycle.claim_owners import key_of
from allot.core.lifecycle.disruption import PODS, is_terminal
from allot.core.model.core_v1 import Pod
from allot.core.scheduling import claim_name

JSON = Mapping[str, Any]

CLAIMS = Resource(
    group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim", namespaced=True
)
VOLUMES = Resource(group="", version="v1", plural="persistentvolumes", kind="PersistentVolume", namespaced=False)
ATTRIBUTES_CLASSES = Resource(
    group="storage.k8s.io",
    version="v1",
    plural="volumeattributesclasses",
    kind="VolumeAttributesClass",
    namespaced=False,
)
CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"
ATTRIBUTES_CLASS_FINALIZER = "kubernetes.io/vac-protection"
_UNUSED = "Unused"


def is_protected(object_: JSON, finalizer: str) -> bool:
    """Whether it is being deleted and the finalizer keeps it."""
    metadata = object_["metadata"]
    return bool(metadata.get("deletionTimestamp")) and finalizer in (metadata.get("finalizers") or ())


def lacks_protection(object_: JSON, finalizer: str) -> bool:
    """Whether it should have the finalizer but does not: it predates the admission plugin that sets it."""
    metadata = object_["metadata"]
    return not metadata.get("deletionTimestamp") and finalizer not in (metadata.get("finalizers") or ())


# --- volume claims ---


def claim_keys(pod: Pod) -> Iterator[str]:
    """Keys of the volume claims that a pod names, including those of its ephemeral volumes."""
    for volume in pod.spec.volumes:
        name = claim_name(pod, volume)
        if name is not None:
            yield key_of(pod.metadata.namespace, name)


def reconcile_claim(claim: JSON, named_by: Iterable[Pod], now: str) -> tuple[Action, ...]:
    """For a volume claim that is not being deleted: its finalizer, and since when no pod uses it. named_by: pods that name it."""
    if lacks_protection(claim, CLAIM_FINALIZER):
        return (_protect(CLAIMS, claim, CLAIM_FINALIZER),)
    if claim["metadata"].get("deletionTimestamp") or (claim.get("status") or {}).get("phase") != "Bound":
        return ()
    is_used = any(not is_terminal(pod) and _names(pod, claim) for pod in named_by)
    conditions = [*((claim.get("status") or {}).get("conditions") or ())]
    at = next((index for index, one in enumerate(conditions) if one.get("type") == _UNUSED), len(conditions))
    status = "False" if is_used else "True"
    if at < len(conditions) and conditions[at].get("status") == status:
        return ()
    conditions[at : at + 1] = [
        {
            "type": _UNUSED,
            "status": status,
            "lastTransitionTime": now,
            "reason": "PodUsingPVC" if is_used else "NoPodsUsingPVC",
            "message": "A pod is currently referencing this PVC"
            if is_used
            else "No pods are currently referencing this PVC",
        }
    ]
    changed = {**claim, "status": {**(claim.get("status") or {}), "conditions": conditions}}
    return (Update(resource=CLAIMS, object=changed, subresource="status"),)


def release_claims(
    namespace: str, claims: Sequence[JSON], named_by: Mapping[str, Sequence[Pod]], answers: Answers
) -> tuple[Action, ...]:
    """Release the volume claims of a namespace that are being deleted and that no pod uses.

    named_by: cached pods by the claim's key. Pods not in the cache yet may still use a claim, so before one is released the
    server is asked for all pods of the namespace, once for all claims.
    """
    unused = [claim for claim in claims if is_protected(claim, CLAIM_FINALIZER)]
    unused = [claim for claim in unused if not _is_used(claim, named_by.get(_key(claim), ()))]
    if not unused:
        return ()
    question = LookUp(resource=PODS, namespace=namespace)
    if question not in answers:
        return (question,)
    present: dict[str, list[Pod]] = {}
    for pod in answers[question]:
        for key in claim_keys(pod):
            present.setdefault(key, []).append(pod)
    return tuple(
        RemoveFinalizer(resource=CLAIMS, object=claim, finalizer=CLAIM_FINALIZER)
        for claim in unused
        if not _is_used(claim, present.get(_key(claim), ()))
    )


def _key(object_: JSON) -> str:
    return key_of(object_["metadata"].get("namespace", ""), object_["metadata"]["name"])


def _is_used(claim: JSON, pods: Iterable[Pod]) -> bool:
    """Whether a node may have the claim's volume: unscheduled pods do not start once the claim is being deleted."""
    return any(pod.spec.node_name and _names(pod, claim, unless_shut_down=True) for pod in pods)


def _names(pod: Pod, claim: JSON, *, unless_shut_down: bool = False) -> bool:
    """Whether a pod uses exactly this claim: one of an ephemeral volume must have been created for the pod."""
    for volume in pod.spec.volumes:
        if claim_name(pod, volume) != claim["metadata"]["name"]:
            continue
        if volume.persistent_volume_claim is not None:
            return True
        if is_made_for(claim, pod) and not (unless_shut_down and _is_shut_down(pod)):
            return True
    return False


def is_made_for(claim: JSON, pod: Pod) -> bool:
    """Whether a claim was created for an ephemeral volume of exactly this pod."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == pod.metadata.uid for owner in owners)


def _is_shut_down(pod: Pod) -> bool:
    """Whether the node is done with the pod, or it was force-deleted; only its finalizers may still keep it."""
    return pod.metadata.deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds == 0


# --- volumes, attributes classes ---


def reconcile_volume(volume: JSON) -> tuple[Action, ...]:
    """A volume is kept as long as it is bound."""
    if lacks_protection(volume, VOLUME_FINALIZER):
        return (_protect(VOLUMES, volume, VOLUME_FINALIZER),)
    if is_protected(volume, VOLUME_FINALIZER) and (volume.get("status") or {}).get("phase") != "Bound":
        return (RemoveFinalizer(resource=VOLUMES, object=volume, finalizer=VOLUME_FINALIZER),)
    return ()


def class_names(object_: JSON) -> Iterator[str]:
    """The volume attributes classes that a volume has, or that a volume claim has or requests."""
    spec, status = object_.get("spec") or {}, object_.get("status") or {}
    names = (
        spec.get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    yield from sorted({name for name in names if name})


def reconcile_attributes_class(class_: JSON, users: Iterable[JSON]) -> tuple[Action, ...]:
    """A volume attributes class is kept as long as a volume or a volume claim names it."""
    if lacks_protection(class_, ATTRIBUTES_CLASS_FINALIZER):
        return (_protect(ATTRIBUTES_CLASSES, class_, ATTRIBUTES_CLASS_FINALIZER),)
    if is_protected(class_, ATTRIBUTES_CLASS_FINALIZER) and not any(True for _ in users):
        return (RemoveFinalizer(resource=ATTRIBUTES_CLASSES, object=class_, finalizer=ATTRIBUTES_CLASS_FINALIZER),)
    return ()


def _protect(resource: Resource, object_: JSON, finalizer: str) -> Update:
    metadata = object_["metadata"]
    finalizers = [*(metadata.get("finalizers") or ()), finalizer]
    return Update(resource=resource, object={**object_, "metadata": {**metadata, "finalizers": finalizers}})
