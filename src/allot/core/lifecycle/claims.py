"""Releases claims: removes the reservations of finished pods, deallocates devices, and deletes claims that are no longer needed.

A claim is released when its last consumer goes, not because it has none: one that was allocated and never reserved stays
so. A claim that was made for a pod goes with that pod, in two writes: it is deleted first, after which no one can reserve
it, and vanishes with its finalizer. Kubernetes empties the status before that, which costs a third write and changes
nothing for anyone. Works on any state that a crash between two writes leaves behind.
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
    """What is known of those who use claims. Keys are `namespace/name`."""

    def pod(self, key: str) -> Pod | None:
        """A pod, if it is known."""

    def pod_group(self, key: str) -> PodGroup | None:
        """A PodGroup, if it is known."""

    def is_deleted(self, uid: str) -> bool:
        """Whether a pod or PodGroup is known to have been and to be no more."""


def reconcile_claim(claim: ResourceClaim, view: Consumers, answers: Answers, gates: FeatureGates) -> tuple[Action, ...]:
    """What to write to a claim. Asks the server about consumers that may only be too new for the caches."""
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
    """What must be asked before a consumer can be called gone: it is in no cache and was not seen going."""
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
    """Whether a consumer is known not to need the claim any more. One of an unknown kind is left alone."""
    key = key_of(namespace, consumer.name)
    if is_pod(consumer):
        pod = view.pod(key)
        return view.is_deleted(consumer.uid) or pod is None or pod.metadata.uid != consumer.uid or is_done(pod)
    if is_group(consumer) and "DRAWorkloadResourceClaims" in gates:
        # Only with the group itself: its pods may finish and new ones come.
        group = view.pod_group(key)
        return view.is_deleted(consumer.uid) or group is None or group.metadata.uid != consumer.uid
    return False


def _is_owner_done(claim: ResourceClaim, view: Consumers) -> bool:
    """Whether the claim was made for a pod that will never use it. A pod that is not known may be too new."""
    owner = owning_pod(claim)
    if owner is None:
        return False
    if view.is_deleted(owner.uid):
        return True
    pod = view.pod(key_of(claim.metadata.namespace, owner.name))
    return pod is not None and (pod.metadata.uid != owner.uid or is_done(pod))


# --- writes ---


def _discard(claim: ResourceClaim) -> tuple[Action, ...]:
    """Remove a claim that no one will use."""
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
            # Someone else keeps the object for a while; the devices need not wait for that.
            release = _release(claim, ()) if claim.status.reserved_for or claim.status.allocation is not None else ()
            return (*release, replace(delete, resource_version=""))
        return (delete, _unprotect(claim, follows=True)) if is_protected else (delete,)
    if not is_protected:
        return ()
    return _release(claim, ()) if len(metadata.finalizers) > 1 else (_unprotect(claim),)


def _release(claim: ResourceClaim, remaining: tuple[ResourceClaimConsumerReference, ...]) -> tuple[Action, ...]:
    """Leave only these consumers; without any, give the devices back and lift the protection.

    Without the finalizer the allocation is none of the scheduler's making, and not ours to take.
    """
    is_free = not remaining and FINALIZER in claim.metadata.finalizers
    allocation = None if is_free else claim.status.allocation
    status = replace(claim.status, reserved_for=remaining, allocation=allocation)
    write = Update(resource=_CLAIMS, object=replace(claim, status=status), subresource="status")
    return (write, _unprotect(claim, follows=True)) if is_free else (write,)


def _unprotect(claim: ResourceClaim, *, follows: bool = False) -> RemoveFinalizer:
    return RemoveFinalizer(resource=_CLAIMS, object=claim, finalizer=FINALIZER, follows=follows)
