"""Ownership of claims: the claim behind an entry of a pod or PodGroup, its creator, its users, and which of them are done with
it.

Pure lookups; the reconcilers (`templates`, `claims`, `device_taint_evictions`) and their indexes build on them.
"""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.lifecycle.disruption import is_terminal
from allot.core.model.core_v1 import Pod, PodResourceClaim
from allot.core.model.meta import OwnerReference
from allot.core.model.resource_v1 import (
    POD_CLAIM_NAME_ANNOTATION,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from allot.core.model.scheduling_v1 import GROUP as SCHEDULING_GROUP
from allot.core.model.scheduling_v1 import PodGroup, PodGroupResourceClaim

PODS = "pods"
POD_GROUPS = "podgroups"


# --- pods and groups ---


def is_done(pod: Pod) -> bool:
    """Whether no container of a pod runs or ever will: it has ended, or was deleted before it had a node."""
    return is_terminal(pod) or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


def group_name(pod: Pod) -> str:
    """The PodGroup of a pod; empty if it has none."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def key_of(namespace: str, name: str) -> str:
    """The key of an object in a cache."""
    return f"{namespace}/{name}" if namespace else name


# --- the claim of an entry ---


def recorded_name(owner: Pod | PodGroup, entry: PodResourceClaim | PodGroupResourceClaim) -> str | None:
    """The name of the claim created for an entry with a template. None: none yet. Empty: none is needed."""
    for status in owner.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name or ""
    return None


def claim_name(owner: Pod | PodGroup, entry: PodResourceClaim | PodGroupResourceClaim) -> str:
    """The name of the claim behind an entry; empty if there is none (yet, or because none is needed)."""
    return entry.resource_claim_name or recorded_name(owner, entry) or ""


def claim_keys(owner: Pod | PodGroup) -> Iterator[str]:
    """The keys of all claims that a pod or group names or has recorded."""
    for entry in owner.spec.resource_claims:
        name = claim_name(owner, entry)
        if name:
            yield key_of(owner.metadata.namespace, name)


def template_keys(owner: Pod | PodGroup) -> Iterator[str]:
    """The keys of all templates that a pod or group names."""
    for entry in owner.spec.resource_claims:
        if entry.resource_claim_template_name:
            yield key_of(owner.metadata.namespace, entry.resource_claim_template_name)


def extended_claim_name(pod: Pod) -> str:
    """The claim that the scheduler created for a pod's extended resources; empty if none."""
    status = pod.status.extended_resource_claim_status
    return status.resource_claim_name if status is not None else ""


# --- the owner of a claim ---


def controller_of(claim: ResourceClaim) -> OwnerReference | None:
    """The owner that a claim was created for."""
    for owner in claim.metadata.owner_references:
        if owner.controller:
            return owner
    return None


def owning_pod(claim: ResourceClaim) -> OwnerReference | None:
    """The pod that a claim was created for."""
    owner = controller_of(claim)
    return owner if owner is not None and owner.kind == "Pod" and owner.api_version == "v1" else None


def owning_group(claim: ResourceClaim) -> OwnerReference | None:
    """The PodGroup that a claim was created for, in any API version."""
    owner = controller_of(claim)
    is_group = owner is not None and owner.kind == "PodGroup" and owner.api_version.startswith(f"{SCHEDULING_GROUP}/")
    return owner if is_group else None


def owner_uids(claim: ResourceClaim) -> Iterator[str]:
    """The uid of the pod or PodGroup that a claim was created for."""
    owner = owning_pod(claim) or owning_group(claim)
    if owner is not None:
        yield owner.uid


def entry_name(claim: ResourceClaim) -> str:
    """The entry that a claim was created for; empty if it was not created from a template."""
    return claim.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, "")


def is_made_for(owner: Pod | PodGroup, claim: ResourceClaim, *, accepts_group: bool) -> bool:
    """Whether a claim was created for this pod or group, or (if accepted) for the group of this pod, which knows the group by
    name only.
    """
    controller = controller_of(claim)
    if controller is None or claim.metadata.namespace != owner.metadata.namespace:
        return False
    if controller.uid == owner.metadata.uid:
        return True
    if not accepts_group or not isinstance(owner, Pod):
        return False
    group = owning_group(claim)
    return group is not None and group.name == group_name(owner) != ""


# --- consumers ---


def is_reserved_for(pod: Pod, claim: ResourceClaim, *, accepts_group: bool) -> bool:
    """Whether a pod may use a claim, by itself or as a member of its PodGroup."""
    group = group_name(pod) if accepts_group else ""
    for consumer in claim.status.reserved_for:
        if consumer.uid == pod.metadata.uid:
            return True
        if group and is_group(consumer) and consumer.name == group:
            return True
    return False


def is_pod(consumer: ResourceClaimConsumerReference) -> bool:
    """Whether a consumer is a pod."""
    return consumer.resource == PODS and not consumer.api_group


def is_group(consumer: ResourceClaimConsumerReference) -> bool:
    """Whether a consumer is a PodGroup."""
    return consumer.resource == POD_GROUPS and consumer.api_group == SCHEDULING_GROUP


def consumer_of(pod: Pod, group: PodGroup | None, entry: PodResourceClaim) -> ResourceClaimConsumerReference:
    """The consumer that reserves the claim of an entry: the pod, or its group if the group has the same entry."""
    if group is not None and shared_entry(group, entry) is not None:
        return ResourceClaimConsumerReference(
            api_group=SCHEDULING_GROUP, resource=POD_GROUPS, name=group.metadata.name, uid=group.metadata.uid
        )
    return ResourceClaimConsumerReference(resource=PODS, name=pod.metadata.name, uid=pod.metadata.uid)


def shared_entry(group: PodGroup, entry: PodResourceClaim) -> PodGroupResourceClaim | None:
    """The group's entry that corresponds to a pod's entry: same name, same claim or template."""
    for candidate in group.spec.resource_claims:
        if (
            candidate.name == entry.name
            and candidate.resource_claim_name == entry.resource_claim_name
            and candidate.resource_claim_template_name == entry.resource_claim_template_name
        ):
            return candidate
    return None
