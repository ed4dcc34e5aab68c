"""Controller references: which objects an owner has, adopts and releases.

An object belongs to the owner in its one ownerReference with `controller: true`. Objects that match the owner's selector and have
no controller are adopted; its objects that no longer match are released. Both are patches guarded by the object's uid, and before
an adoption the server is asked whether the owner still exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from allot.core.lifecycle.actions import Action, Answers, LookUp, Patch, PatchType, Resource, Retry
from allot.core.model.meta import LabelSelector, ObjectMeta, OwnerReference
from allot.core.selectors import Requirements, SelectorError, label_requirements
from allot.core.workloads.whole import HasMetadata

T = TypeVar("T", bound=HasMetadata)

# The cache index by controller, shared by all users.
BY_CONTROLLER = "controller"


def controller_reference(metadata: ObjectMeta) -> OwnerReference | None:
    """The owner that controls an object."""
    for owner in metadata.owner_references:
        if owner.controller:
            return owner
    return None


def orphans_of(namespace: str) -> str:
    """The index key for objects of a namespace without a controller."""
    return f"orphans/{namespace}"


def controller_keys(object_: HasMetadata) -> tuple[str, ...]:
    """The uid of an object's controller, or the key for orphans; a cache index."""
    metadata = object_.metadata
    owner = controller_reference(metadata) if metadata.owner_references else None
    return (orphans_of(metadata.namespace),) if owner is None else (owner.uid,)


def is_controlled_by(object_: HasMetadata, uid: str) -> bool:
    """Whether an object belongs to the owner with that uid."""
    owner = controller_reference(object_.metadata)
    return owner is not None and owner.uid == uid


def reference_to(resource: Resource, owner: ObjectMeta) -> dict[str, Any]:
    """An object's reference to its controlling owner."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selector_of(selector: LabelSelector | None) -> Requirements | None:
    """The selector of a workload; None if it selects nothing, or everything: controllers act on neither."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return None
    try:
        return label_requirements(selector)
    except SelectorError:
        return None


class Claimed(msgspec.Struct, Generic[T], frozen=True):
    """Objects as an owner sees them: its own, those to adopt, and those to release."""

    own: tuple[T, ...]
    adopted: tuple[T, ...]
    released: tuple[T, ...]

    @property
    def members(self) -> tuple[T, ...]:
        """The owner's objects once everything is done."""
        return self.own + self.adopted


def claim(owner: ObjectMeta, selects: Callable[[T], bool], candidates: Iterable[T]) -> Claimed[T]:
    """Separate an owner's objects from others. candidates: all it controls, and the orphans in its namespace."""
    own: list[T] = []
    adopted: list[T] = []
    released: list[T] = []
    is_deleting = owner.deletion_timestamp is not None
    for each in candidates:
        controller = controller_reference(each.metadata)
        if controller is not None:
            if controller.uid != owner.uid:
                continue
            if selects(each):
                own.append(each)
            elif not is_deleting:
                released.append(each)
        elif not is_deleting and each.metadata.deletion_timestamp is None and selects(each):
            adopted.append(each)
    return Claimed(tuple(own), tuple(adopted), tuple(released))


def take_over(
    resource: Resource, owner: ObjectMeta, dependents: Resource, claimed: Claimed[T], answers: Answers, *finalizers: str
) -> tuple[Sequence[Action], bool]:
    """The actions that make the members the owner's, and whether they must be done before anything else (a question to the
    server, or an owner that has changed). finalizers: set on adoption, removed on release.
    """
    if claimed.adopted:
        question = LookUp(
            resource=msgspec.structs.replace(resource, type=None), name=owner.name, namespace=owner.namespace
        )
        if question not in answers:
            return (question,), True
        why = _why_gone(answers[question], owner, resource)
        if why:
            return (Retry(message=f"cannot adopt {dependents.plural}: {why}"),), True
    adoptions = [_adoption(resource, owner, dependents, each.metadata, finalizers) for each in claimed.adopted]
    releases = [_release(owner, dependents, each.metadata, finalizers) for each in claimed.released]
    return (*adoptions, *releases), False


def _why_gone(found: Any, owner: ObjectMeta, resource: Resource) -> str:
    if found is None:
        return f"{resource.kind} {owner.namespace}/{owner.name} is gone"
    metadata = found["metadata"]
    if metadata.get("uid") != owner.uid:
        return f"{resource.kind} {owner.namespace}/{owner.name} is another one, with uid {metadata.get('uid')}"
    if metadata.get("deletionTimestamp"):
        return f"{owner.namespace}/{owner.name} has just been deleted at {metadata['deletionTimestamp']}"
    return ""


def _adoption(
    resource: Resource, owner: ObjectMeta, dependents: Resource, adopted: ObjectMeta, finalizers: Sequence[str]
) -> Patch:
    metadata: dict[str, Any] = {"uid": adopted.uid, "ownerReferences": [reference_to(resource, owner)]}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return _patch(dependents, adopted, metadata)


def _release(owner: ObjectMeta, dependents: Resource, released: ObjectMeta, finalizers: Sequence[str]) -> Patch:
    metadata: dict[str, Any] = {
        "uid": released.uid,
        "ownerReferences": [{"$patch": "delete", "uid": owner.uid}],
    }
    if finalizers:
        metadata["$deleteFromPrimitiveList/finalizers"] = list(finalizers)
    return _patch(dependents, released, metadata)


def _patch(dependents: Resource, object_: ObjectMeta, metadata: dict[str, Any]) -> Patch:
    return Patch(
        resource=dependents,
        name=object_.name,
        namespace=object_.namespace,
        patch={"metadata": metadata},
        type=PatchType.STRATEGIC,
    )
