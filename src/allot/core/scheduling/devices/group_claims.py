"""Claims of a PodGroup (DRAWorkloadResourceClaims): for whom they are reserved, and what pods of one group share.

A claim that a pod and its group both name in the same way is reserved for the group, once, however many pods use it.
`group_clean_ups` decides what is cleared away when a group finds no place.
"""

from __future__ import annotations

from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model import scheduling_v1 as scheduling
from allot.core.model.meta import OwnerReference

POD_GROUPS = "podgroups"
PODS = "pods"
_NOT_CREATED = "ResourceClaim not created yet"
_NOTHING_SET = "none of the supported fields are set"


class LookupFailure(Exception):
    """A claim that a pod or group needs cannot be used. The message is upstream's."""


def group_name(pod: core_v1.Pod) -> str | None:
    """The name of the PodGroup that a pod belongs to."""
    group = pod.spec.scheduling_group
    return group.pod_group_name if group is not None else None


def claim_name(pod: core_v1.Pod, entry: core_v1.PodResourceClaim) -> tuple[str | None, bool]:
    """The name of the claim behind an entry of pod.spec.resourceClaims, and whether its owner must be checked.

    No name: no claim is needed for the entry. LookupFailure if there is none yet, or there can be none.
    """
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name, False
    where = f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    if entry.resource_claim_template_name is None:
        raise LookupFailure(f'{where}, spec.resourceClaim "{entry.name}": {_NOTHING_SET}')
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name, True
    raise LookupFailure(f"{where}: {_NOT_CREATED}")


def group_claim_name(group: scheduling.PodGroup, entry: scheduling.PodGroupResourceClaim) -> tuple[str | None, bool]:
    """As `claim_name`, for an entry of podGroup.spec.resourceClaims."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name, False
    where = f"PodGroup {group.metadata.namespace}/{group.metadata.name}"
    if entry.resource_claim_template_name is None:
        raise LookupFailure(f"{where}, spec.resourceClaim {entry.name}: {_NOTHING_SET}")
    for status in group.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name, True
    raise LookupFailure(f"{where}: {_NOT_CREATED}")


def check_owner(pod: core_v1.Pod, claim: api.ResourceClaim, workload_claims: bool) -> None:
    """LookupFailure unless the claim was created for the pod, or for its group if that is allowed.

    A pod does not know the uid of its group, so kind and name must do.
    """
    controller = controller_of(claim)
    if controller is not None and controller.uid == pod.metadata.uid:
        return
    claimed = f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"
    wanted = f"{claimed} was not created for Pod {pod.metadata.namespace}/{pod.metadata.name}"
    group = group_name(pod) if workload_claims else None
    if group is None:
        raise LookupFailure(f"{wanted} (Pod is not owner)")
    if (
        controller is None
        or controller.name != group
        or controller.kind != "PodGroup"
        or not controller.api_version.startswith(f"{scheduling.GROUP}/")
    ):
        raise LookupFailure(f"{wanted} (neither Pod nor PodGroup {group} is the owner)")


def controller_of(claim: api.ResourceClaim) -> OwnerReference | None:
    """The owner that created the claim."""
    for owner in claim.metadata.owner_references:
        if owner.controller:
            return owner
    return None


def is_reserved_for(pod: core_v1.Pod, claim: api.ResourceClaim, workload_claims: bool) -> bool:
    """Whether the pod may use the claim without reserving it: it or its group already has."""
    uid = pod.metadata.uid
    group = group_name(pod) if workload_claims else None
    for consumer in claim.status.reserved_for:
        if consumer.uid == uid:
            return True
        if (
            group is not None
            and consumer.name == group
            and consumer.resource == POD_GROUPS
            and consumer.api_group == scheduling.GROUP
        ):
            return True
    return False


def consumer_of(
    pod: core_v1.Pod, entry: core_v1.PodResourceClaim | None, group: scheduling.PodGroup | None
) -> api.ResourceClaimConsumerReference:
    """The consumer for which the claim behind an entry of pod.spec.resourceClaims is reserved: the group if it has the same entry."""
    if group is not None and entry is not None:
        for shared in group.spec.resource_claims:
            if (
                shared.name == entry.name
                and shared.resource_claim_name == entry.resource_claim_name
                and shared.resource_claim_template_name == entry.resource_claim_template_name
            ):
                return api.ResourceClaimConsumerReference(
                    api_group=scheduling.GROUP,
                    resource=POD_GROUPS,
                    name=group.metadata.name,
                    uid=group.metadata.uid,
                )
    return api.ResourceClaimConsumerReference(resource=PODS, name=pod.metadata.name, uid=pod.metadata.uid)
