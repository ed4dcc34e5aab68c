"""Builders of pods, claims and what a reconciler knows of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from allot.core.lifecycle.claim_owners import claim_keys, group_name, key_of, owner_uids
from allot.core.model.core_v1 import (
    Pod,
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGroup,
    PodSpec,
    PodStatus,
)
from allot.core.model.meta import ObjectMeta, OwnerReference
from allot.core.model.resource_v1 import (
    FINALIZER,
    POD_CLAIM_NAME_ANNOTATION,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DeviceToleration,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from allot.core.model.scheduling_v1 import (
    PodGroup,
    PodGroupResourceClaim,
    PodGroupResourceClaimStatus,
    PodGroupSpec,
    PodGroupStatus,
)

DELETED = "2026-01-01T00:00:00Z"


def entry(name: str, *, template: str | None = None, claim: str | None = None) -> PodResourceClaim:
    """An entry of a pod."""
    return PodResourceClaim(name=name, resource_claim_template_name=template, resource_claim_name=claim)


def pod(
    name: str = "p",
    *entries: PodResourceClaim,
    uid: str = "",
    phase: str = "Pending",
    node: str = "",
    deleted: bool = False,
    recorded: dict[str, str | None] | None = None,
    group: str = "",
    extended: str = "",
) -> Pod:
    """A pod in namespace ns."""
    statuses = tuple(
        PodResourceClaimStatus(name=key, resource_claim_name=value) for key, value in (recorded or {}).items()
    )
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="ns", uid=uid or f"uid-{name}", deletion_timestamp=DELETED if deleted else None
        ),
        spec=PodSpec(
            node_name=node,
            resource_claims=entries,
            scheduling_group=PodSchedulingGroup(pod_group_name=group) if group else None,
        ),
        status=PodStatus(
            phase=phase,
            resource_claim_statuses=statuses,
            extended_resource_claim_status=PodExtendedResourceClaimStatus(resource_claim_name=extended)
            if extended
            else None,
        ),
    )


def group(
    name: str = "g",
    *entries: PodGroupResourceClaim,
    deleted: bool = False,
    recorded: dict[str, str] | None = None,
    finalizers: tuple[str, ...] = (),
) -> PodGroup:
    """A PodGroup in namespace ns."""
    statuses = tuple(
        PodGroupResourceClaimStatus(name=key, resource_claim_name=value) for key, value in (recorded or {}).items()
    )
    return PodGroup(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            deletion_timestamp=DELETED if deleted else None,
            finalizers=finalizers,
        ),
        spec=PodGroupSpec(resource_claims=entries),
        status=PodGroupStatus(resource_claim_statuses=statuses),
    )


def group_entry(name: str, template: str) -> PodGroupResourceClaim:
    """An entry of a PodGroup."""
    return PodGroupResourceClaim(name=name, resource_claim_template_name=template)


def consumer(of: Pod | PodGroup) -> ResourceClaimConsumerReference:
    """A reservation for a pod or group."""
    if isinstance(of, Pod):
        return ResourceClaimConsumerReference(resource="pods", name=of.metadata.name, uid=of.metadata.uid)
    return ResourceClaimConsumerReference(
        api_group="scheduling.k8s.io", resource="podgroups", name=of.metadata.name, uid=of.metadata.uid
    )


def claim(
    name: str = "c",
    *consumers: ResourceClaimConsumerReference,
    owner: Pod | PodGroup | None = None,
    entry_name: str = "",
    allocated: bool = False,
    finalizers: tuple[str, ...] | None = None,
    deleted: bool = False,
    devices: Sequence[DeviceRequestAllocationResult] = (),
) -> ResourceClaim:
    """A claim in namespace ns; with an allocation it is protected unless said otherwise."""
    allocated = allocated or bool(devices)
    owners: tuple[OwnerReference, ...] = ()
    if owner is not None:
        kind = "Pod" if isinstance(owner, Pod) else "PodGroup"
        version = "v1" if isinstance(owner, Pod) else "scheduling.k8s.io/v1beta1"
        metadata = owner.metadata
        owners = (
            OwnerReference(api_version=version, kind=kind, name=metadata.name, uid=metadata.uid, controller=True),
        )
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            resource_version="7",
            finalizers=((FINALIZER,) if allocated else ()) if finalizers is None else finalizers,
            owner_references=owners,
            annotations={POD_CLAIM_NAME_ANNOTATION: entry_name} if entry_name else {},
            deletion_timestamp=DELETED if deleted else None,
        ),
        status=ResourceClaimStatus(
            allocation=AllocationResult(devices=DeviceAllocationResult(results=tuple(devices))) if allocated else None,
            reserved_for=consumers,
        ),
    )


def device(name: str = "gpu-0", *tolerations: DeviceToleration, pool: str = "node-1") -> DeviceRequestAllocationResult:
    """An allocated device."""
    return DeviceRequestAllocationResult(
        request="r", driver="gpu.example.com", pool=pool, device=name, tolerations=tolerations
    )


def template(name: str = "t", **metadata: Any) -> ResourceClaimTemplate:
    """A template in namespace ns."""
    return ResourceClaimTemplate(
        metadata=ObjectMeta(name=name, namespace="ns"),
        spec=ResourceClaimTemplateSpec(metadata=ObjectMeta(**metadata)),
    )


class World:
    """What is known (`claim_keys.View`), from a list of objects."""

    def __init__(
        self,
        *objects: Pod | PodGroup | ResourceClaim | ResourceClaimTemplate,
        deleted_uids: Iterable[str] = (),
    ) -> None:
        self.deleted_uids = set(deleted_uids)
        self.objects: dict[tuple[type, str], Any] = {}
        for object_ in objects:
            self.put(object_)

    def put(self, object_: Any) -> None:
        """Know an object, as it is now."""
        metadata = object_.metadata
        self.objects[type(object_), key_of(metadata.namespace, metadata.name)] = object_

    def _all(self, type_: type) -> list[Any]:
        return [object_ for (kind, _), object_ in self.objects.items() if kind is type_]

    def pod(self, key: str) -> Pod | None:
        found: Pod | None = self.objects.get((Pod, key))
        return found

    def pod_group(self, key: str) -> PodGroup | None:
        found: PodGroup | None = self.objects.get((PodGroup, key))
        return found

    def claim(self, key: str) -> ResourceClaim | None:
        found: ResourceClaim | None = self.objects.get((ResourceClaim, key))
        return found

    def template(self, key: str) -> ResourceClaimTemplate | None:
        found: ResourceClaimTemplate | None = self.objects.get((ResourceClaimTemplate, key))
        return found

    def claims_made_for(self, uid: str) -> Iterable[ResourceClaim]:
        return [one for one in self._all(ResourceClaim) if uid in owner_uids(one)]

    def is_deleted(self, uid: str) -> bool:
        return uid in self.deleted_uids

    def pods_using(self, claim_key: str) -> Iterable[Pod]:
        return [one for one in self._all(Pod) if claim_key in claim_keys(one)]

    def pod_groups_using(self, claim_key: str) -> Iterable[PodGroup]:
        return [one for one in self._all(PodGroup) if claim_key in claim_keys(one)]

    def members(self, group_key: str) -> Iterable[Pod]:
        return [one for one in self._all(Pod) if key_of("ns", group_name(one)) == group_key]


def with_version(claim_: ResourceClaim, version: str) -> ResourceClaim:
    """The same claim, written once more."""
    return replace(claim_, metadata=replace(claim_.metadata, resource_version=version))
