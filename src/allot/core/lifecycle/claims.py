"""Releases claims: removes the reservations of finished pods, deallocates devices, and deletes claims that are no longer needed.

A claim is released when its last consumer goes away, not because it has none: one that was allocated but never reserved stays
allocated. A claim created for a pod is deleted with that pod, in two writes: first the deletion, after which it cannot be
reserved, then the removal of its finalizer. Kubernetes clears the status before that, a third write without any effect. Handles
every state that a crash between two writes can leave.
"""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from allot.core.features import FeatureGates
from allot.core.lifecycle.actions import Action, Answers, Delete, LookUp, RemoveFinalizer, Resource, Update, resource_of
from allot.core.lifecycle.claim_owners import is_done, is_group, is_pod, key_of, owning_pod
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import FINALIZER, ResourceClaim, ResourceClaimConsumerReference
from allot.core.model.scheduling_v1 import PodGroup

_CLAIMS = resource_of(ResourceClaim)


class Consumers(Protocol):
    """Known users of claims. Keys are `namespace/name`."""

    def pod(self, key: str) -> Pod | None:
        """A pod, if it is known."""

    def pod_group(self, key: str) -> PodGroup | None:
        """A PodGroup, if it is known."""

    def is_deleted(self, uid: str) -> bool:
        """Whether a pod or PodGroup is known to have been deleted."""


def reconcile_claim(claim: ResourceClaim, view: Consumers, answers: Answers, gates: FeatureGates) -> tuple[Action, ...]:
    """What to write to a claim. Looks up consumers that may only be too new for the caches."""
    remaining: list[ResourceClaimConsumerReference] = []
    questions: list[Action] = []
    for consumer in claim.status.reserved_for:
        question = _question(consumer, claim.metadata.namespace, view, gates)
        if question is None:
            if _is_gone(consumer, claim.metadata.namespace, view, gates):
                continue
        elif question not in answers:
            questions.append(question)
        else:
            found = answers[question]
            if found is None or found.metadata.uid != consumer.uid:
                continue
        remaining.append(consumer)
    if questions:
        return tuple(questions)
    if not remaining and _is_owner_done(claim, view):
        return _discard(claim)
    if len(remaining) < len(claim.status.reserved_for):
        return _release(claim, tuple(remaining))
    if not remaining and claim.metadata.deletion_timestamp is not None and FINALIZER in claim.metadata.finalizers:
        return _release(claim, ()) if claim.status.allocation is not None else (_unprotect(claim),)
    return ()


# --- consumers ---


def _question(
    consumer: ResourceClaimConsumerReference, namespace: str, view: Consumers, gates: FeatureGates
) -> LookUp | None:
    """The lookup needed before a consumer counts as gone: it is in no cache and its deletion was not seen."""
    kind: Resource
    if is_pod(consumer):
        kind, known = resource_of(Pod), view.pod(key_of(namespace, consumer.name)) is not None
    elif is_group(consumer) and "DRAWorkloadResourceClaims" in gates:
        kind, known = resource_of(PodGroup), view.pod_group(key_of(namespace, consumer.name)) is not None
    else:
        return None
    if known or view.is_deleted(consumer.uid):
        return None
    return LookUp(resource=kind, name=consumer.name, namespace=namespace)


def _is_gone(consumer: ResourceClaimConsumerReference, namespace: str, view: Consumers, gates: FeatureGates) -> bool:
    """Whether a consumer is known not to need the claim anymore. One of an unknown kind is left alone."""
    key = key_of(namespace, consumer.name)
    if is_pod(consumer):
        pod = view.pod(key)
        return view.is_deleted(consumer.uid) or pod is None or pod.metadata.uid != consumer.uid or is_done(pod)
    if is_group(consumer) and "DRAWorkloadResourceClaims" in gates:
        # Only with the group itself: its pods may finish and new ones may follow.
        group = view.pod_group(key)
        return view.is_deleted(consumer.uid) or group is None or group.metadata.uid != consumer.uid
    return False


def _is_owner_done(claim: ResourceClaim, view: Consumers) -> bool:
    """Whether the claim was created for a pod that will never use it. An unknown pod may be too new."""
    owner = owning_pod(claim)
    if owner is None:
        return False
    if view.is_deleted(owner.uid):
        return True
    pod = view.pod(key_of(claim.metadata.namespace, owner.name))
    return pod is not None and (pod.metadata.uid != owner.uid or is_done(pod))


# --- writes ---


def _discard(claim: ResourceClaim) -> tuple[Action, ...]:
    """Delete a claim that will not be used anymore."""
    metadata = claim.metadata
    is_protected = FINALIZER in metadata.finalizers
    delete = Delete(
        resource=_CLAIMS,
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )
    if metadata.deletion_timestamp is None:
        if len(metadata.finalizers) > (1 if is_protected else 0):
            # Another finalizer keeps the object; the devices need not wait for that.
            release = _release(claim, ()) if claim.status.reserved_for or claim.status.allocation is not None else ()
            return (*release, replace(delete, resource_version=""))
        return (delete, _unprotect(claim, follows=True)) if is_protected else (delete,)
    if not is_protected:
        return ()
    return _release(claim, ()) if len(metadata.finalizers) > 1 else (_unprotect(claim),)


def _release(claim: ResourceClaim, remaining: tuple[ResourceClaimConsumerReference, ...]) -> tuple[Action, ...]:
    """Keep only these consumers; without any, deallocate and remove the finalizer.

    Without the finalizer, the allocation is not the scheduler's, and not ours to remove.
    """
    is_free = not remaining and FINALIZER in claim.metadata.finalizers
    allocation = None if is_free else claim.status.allocation
    status = replace(claim.status, reserved_for=remaining, allocation=allocation)
    write = Update(resource=_CLAIMS, object=replace(claim, status=status), subresource="status")
    return (write, _unprotect(claim, follows=True)) if is_free else (write,)


def _unprotect(claim: ResourceClaim, *, follows: bool = False) -> RemoveFinalizer:
    return RemoveFinalizer(resource=_CLAIMS, object=claim, finalizer=FINALIZER, follows=follows)
