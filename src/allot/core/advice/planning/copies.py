"""Copies of a manifest: pods and claims that differ from those of other copies only in their names.

Claims from templates are created as the resource claim controller does: for the pod, or once for the group if the group has the
same entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import APIStruct, ObjectMeta, OwnerReference
from allot.core.model.scheduling_v1 import GROUP as SCHEDULING_GROUP
from allot.core.model.scheduling_v1 import PodGroup, PodGroupResourceClaimStatus
from allot.core.scheduling import DIALECTS, Dialect, ForeignGroup

Name = tuple[str, str]  # namespace, name
# A PodGroup of one of the dialects, which share only their metadata.
ForeignObject = Any


class NoTemplate(LookupError):
    """A pod names a missing template."""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy: new pods and their claims."""

    pods: tuple[core_v1.Pod, ...]
    claims: tuple[api.ResourceClaim, ...]
    group: PodGroup | None = None
    # The API object of the group, if it belongs to another scheduler.
    foreign: ForeignObject | None = None

    @property
    def objects(self) -> tuple[APIStruct, ...]:
        """Everything except the pods."""
        group = self.foreign or self.group
        return self.claims if group is None else (*self.claims, group)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What to copy."""

    name: str
    # The pods of a copy. Pods with the same template are one object.
    members: tuple[core_v1.Pod, ...]
    group: PodGroup | None = None
    # The API object of the group, if it belongs to another scheduler.
    foreign: ForeignObject | None = None
    templates: Mapping[Name, api.ResourceClaimTemplate] = {}
    # Claims that each copy has for itself.
    own_claims: Mapping[Name, api.ResourceClaim] = {}
    # Created once for all copies: shared claims, classes.
    context: tuple[APIStruct, ...] = ()
    notes: tuple[str, ...] = ()

    def copy(self, number: int) -> Copy:
        """The copy with that number. NoTemplate if its claims cannot be created."""
        return _Copying(self, number).copied()

    def original(self) -> Copy:
        """The manifest itself, under its own names. NoTemplate if its claims cannot be created."""
        return _Copying(self, None).copied()


def dialect_for(group: ForeignObject) -> Dialect:
    """The dialect of a group's object."""
    return next(dialect for dialect in DIALECTS if dialect.type is type(group))


def as_group(group: ForeignObject) -> PodGroup:
    """A group of another scheduler in the form for decisions; of a group in parts, which are decided together, the first."""
    return parts_of(group)[0]


def parts_of(group: ForeignObject) -> list[ForeignGroup]:
    """The parts with pods of another scheduler's group; the group itself if it has no parts."""
    return [each for each in dialect_for(group).read(group) if isinstance(each, ForeignGroup)]


class _Copying:
    """Creates one copy. number: None for the original."""

    def __init__(self, manifest: Manifest, number: int | None) -> None:
        self._manifest = manifest
        self._number = number
        self._claims: dict[str, api.ResourceClaim] = {}
        self._foreign = manifest.foreign
        self._group = self._renamed_group(manifest.group) if manifest.group is not None else None
        if manifest.foreign is not None:
            metadata = manifest.foreign.metadata
            renamed = _metadata(metadata.namespace, self._renamed(metadata.name), metadata)
            self._foreign = replace(manifest.foreign, metadata=renamed)
            self._group = as_group(self._foreign)
        self._shared = {} if self._group is None else {entry.name: entry for entry in self._group.spec.resource_claims}

    def copied(self) -> Copy:
        pods = tuple(self._pod(member, place) for place, member in enumerate(self._manifest.members))
        group = self._group
        if group is not None and self._shared:
            made = tuple(
                PodGroupResourceClaimStatus(name=name, resource_claim_name=self._name_of_shared(name))
                for name, entry in self._shared.items()
                if entry.resource_claim_template_name is not None
            )
            group = replace(group, status=replace(group.status, resource_claim_statuses=made))
        return Copy(pods=pods, claims=tuple(self._claims.values()), group=group, foreign=self._foreign)

    def _renamed_group(self, group: PodGroup) -> PodGroup:
        name = self._renamed(group.metadata.name)
        return replace(group, metadata=_metadata(group.metadata.namespace, name, group.metadata))

    def _renamed(self, name: str, *place: int) -> str:
        return name if self._number is None else "-".join((name, str(self._number), *map(str, place)))

    def _name_of_shared(self, entry: str) -> str:
        assert self._group is not None
        return f"{self._group.metadata.name}-{entry}"

    def _pod(self, member: core_v1.Pod, place: int) -> core_v1.Pod:
        name = self._renamed(member.metadata.name, place)
        metadata = _metadata(member.metadata.namespace, name, member.metadata)
        entries: list[core_v1.PodResourceClaim] = []
        statuses: list[core_v1.PodResourceClaimStatus] = []
        for entry in member.spec.resource_claims:
            if entry.resource_claim_template_name is None:
                entries.append(self._with_own_claim(metadata.namespace, entry))
                continue
            name = self._made_from_template(metadata, entry)
            entries.append(entry)
            statuses.append(core_v1.PodResourceClaimStatus(name=entry.name, resource_claim_name=name))
        spec = replace(member.spec, resource_claims=tuple(entries))
        if self._group is not None and self._foreign is not None:
            metadata = dialect_for(self._foreign).named(metadata, self._group.metadata.name)
        elif self._group is not None:
            spec = replace(spec, scheduling_group=core_v1.PodSchedulingGroup(pod_group_name=self._group.metadata.name))
        status = core_v1.PodStatus(resource_claim_statuses=tuple(statuses))
        return replace(member, metadata=metadata, spec=spec, status=status)

    def _with_own_claim(self, namespace: str, entry: core_v1.PodResourceClaim) -> core_v1.PodResourceClaim:
        claim = self._manifest.own_claims.get((namespace, entry.resource_claim_name or ""))
        if claim is None:
            return entry
        name = self._renamed(claim.metadata.name)
        if name not in self._claims:
            metadata = _metadata(namespace, name, claim.metadata)
            self._claims[name] = replace(claim, metadata=metadata, status=api.ResourceClaimStatus())
        return replace(entry, resource_claim_name=name)

    def _made_from_template(self, pod: ObjectMeta, entry: core_v1.PodResourceClaim) -> str:
        template = entry.resource_claim_template_name or ""
        shared = self._shared.get(entry.name)
        if shared is not None and shared.resource_claim_template_name == template and self._group is not None:
            name = self._name_of_shared(entry.name)
            owner = _owner(f"{SCHEDULING_GROUP}/v1beta1", "PodGroup", self._group.metadata)
        else:
            name = f"{pod.name}-{entry.name}"
            owner = _owner("v1", "Pod", pod)
        if name not in self._claims:
            made_from = self._manifest.templates.get((pod.namespace, template))
            if made_from is None:
                raise NoTemplate(
                    f"ResourceClaimTemplate {pod.namespace}/{template} is neither in the manifest nor in the cluster"
                )
            metadata = replace(_metadata(pod.namespace, name), owner_references=(owner,))
            self._claims[name] = api.ResourceClaim(metadata=metadata, spec=made_from.spec.spec)
        return name


def _metadata(namespace: str, name: str, like: ObjectMeta | None = None) -> ObjectMeta:
    """Metadata for a new object, with a uid that no cluster can have."""
    return replace(like or ObjectMeta(), namespace=namespace, name=name, uid=f"plan:{namespace}/{name}")


def _owner(api_version: str, kind: str, metadata: ObjectMeta) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name=metadata.name, uid=metadata.uid, controller=True)
