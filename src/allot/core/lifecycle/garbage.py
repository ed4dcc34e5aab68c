"""Owners of objects, and what happens when owners are deleted: the decisions of the garbage collector.

The graph observes every change of every object (`OwnerGraph.observe`) and returns which ones to check; `decide` then says what to
do with one, and `garbage_actions` how. An owner counts as gone only if its deletion was seen or the server was asked (`Verify`),
never because a cache lacks it. Objects without owners and dependents cost one dictionary entry.

Kubernetes keeps placeholders for owners that it has not seen; here the dependents themselves are checked again, which needs no
second kind of node.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from allot.core.lifecycle.actions import Resource
from allot.core.model.meta import ObjectMeta, OwnerReference

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
# How many owners known to be absent are remembered; uids are never reused.
ABSENT_MAX = 10_000
# Objects that come and go often and own nothing.
IGNORED = frozenset((("", "events"), ("events.k8s.io", "events")))

Object = Mapping[str, Any]


class Tracked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the garbage collector knows of an object."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    version: str
    owners: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    is_deleting: bool = False

    @property
    def deletes_dependents(self) -> bool:
        """Whether it is deleted after its dependents (foreground deletion)."""
        return self.is_deleting and FOREGROUND in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        """Whether it is deleted after its dependents have been orphaned."""
        return self.is_deleting and ORPHAN in self.finalizers


def tracked(resource: Resource, object_: Object) -> Tracked:
    """From an object or its metadata."""
    metadata = object_["metadata"]
    owners = metadata.get("ownerReferences")
    finalizers = metadata.get("finalizers")
    return Tracked(
        resource=resource,
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        version=metadata.get("resourceVersion", ""),
        owners=msgspec.convert(owners, tuple[OwnerReference, ...]) if owners else (),
        finalizers=tuple(finalizers) if finalizers else (),
        is_deleting="deletionTimestamp" in metadata,
    )


def tracked_metadata(resource: Resource, metadata: ObjectMeta) -> Tracked:
    """From decoded metadata."""
    return Tracked(
        resource=resource,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        owners=metadata.owner_references,
        finalizers=metadata.finalizers,
        is_deleting=metadata.deletion_timestamp is not None,
    )


class OwnerState(Enum):
    """The state of an owner according to the server."""

    ABSENT = "absent"
    PRESENT = "present"
    # It exists, and waits for its dependents to be deleted first.
    WAITING = "waiting"


# --- what to do with an object ---


class Verify(msgspec.Struct, frozen=True):
    """Look up these owners on the server, in the namespace of the dependent, and decide again."""

    owners: tuple[tuple[OwnerReference, Resource], ...]


class Unresolved(msgspec.Struct, frozen=True):
    """The kind of an owner is not known (yet): check again later."""

    owner: OwnerReference


class RemoveFinalizer(msgspec.Struct, frozen=True):
    """The object no longer has to wait for its dependents."""

    target: Tracked
    finalizer: str


class OrphanDependents(msgspec.Struct, frozen=True):
    """Remove the object from the owners of these, then remove its orphan finalizer."""

    target: Tracked
    dependents: tuple[Tracked, ...]


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """No owner is left. unblock: first make its references non-blocking, because they form a cycle."""

    target: Tracked
    propagation: str
    unblock: bool = False


class DropOwners(msgspec.Struct, frozen=True):
    """Some owners remain, but not these."""

    target: Tracked
    uids: tuple[str, ...]


Decision = Verify | Unresolved | RemoveFinalizer | OrphanDependents | Delete | DropOwners | None
Kinds = Mapping[tuple[str, str], Resource]
_Coordinates = tuple[str, str, str, str, str]


class Noticed(msgspec.Struct, frozen=True):
    """uids to check after a change: now, and after a delay in which their owners may still appear."""

    now: tuple[str, ...] = ()
    later: tuple[str, ...] = ()


NOTHING = Noticed()


class OwnerGraph:
    """All objects by uid, and dependents by the uid of their owners. kinds: what is served, by group and kind."""

    def __init__(self, kinds: Kinds | None = None) -> None:
        self.kinds: Kinds = kinds or {}
        self._objects: dict[str, Tracked] = {}
        # By the owner's uid: its dependents in the order in which they were seen, and whether they block its deletion.
        self._dependents: dict[str, dict[str, bool]] = {}
        # How many block: an owner with ten thousand dependents must not check all of them each time one is deleted.
        self._blocking: dict[str, int] = {}
        self._absent: dict[_Coordinates, None] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, uid: str) -> Tracked | None:
        """An object that exists."""
        return self._objects.get(uid)

    def dependents(self, uid: str) -> tuple[Tracked, ...]:
        """The dependents of an owner."""
        return tuple(self._objects[one] for one in self._dependents.get(uid, ()) if one in self._objects)

    def is_blocked(self, uid: str) -> bool:
        """Whether a dependent must be deleted before an object."""
        return uid in self._blocking

    # --- changes ---

    def observe(self, new: Tracked) -> Noticed:
        """Record a new or changed object."""
        old = self._objects.get(new.uid)
        self._objects[new.uid] = new
        if old is None:
            if not (new.owners or new.is_deleting):
                return NOTHING
        elif old.owners == new.owners and old.is_deleting == new.is_deleting and old.finalizers == new.finalizers:
            return NOTHING
        now: dict[str, None] = {}
        later: dict[str, None] = {}
        before = () if old is None else old.owners
        if before != new.owners:
            self._relink(new, before, now, later)
        if self._starts(old, new, "orphans_dependents"):
            now[new.uid] = None
        elif self._starts(old, new, "deletes_dependents"):
            now.update(dict.fromkeys(self._dependents.get(new.uid, ())))
            now[new.uid] = None
        return Noticed(tuple(now), tuple(later))

    def forget(self, gone: Tracked) -> Noticed:
        """Record a deleted object."""
        known = self._objects.get(gone.uid)
        if known is None:
            return NOTHING
        del self._objects[gone.uid]
        now: dict[str, None] = {}
        for owner in known.owners:
            self._unlink(owner.uid, gone.uid)
            self._notice_unblocked(owner.uid, now)
        waiting = self._dependents.get(gone.uid)
        if waiting:
            self.remember_absent(_coordinates_of(known))
            now.update(dict.fromkeys(waiting))
        return Noticed(tuple(now)) if now else NOTHING

    def remember_absent(self, coordinates: _Coordinates) -> None:
        """Record that this object does not exist and never will with that uid."""
        self._absent[coordinates] = None
        if len(self._absent) > ABSENT_MAX:
            del self._absent[next(iter(self._absent))]

    def _relink(
        self, new: Tracked, before: tuple[OwnerReference, ...], now: dict[str, None], later: dict[str, None]
    ) -> None:
        present = {owner.uid: owner for owner in new.owners}
        known = dict.fromkeys(owner.uid for owner in before)
        for uid in known:
            self._unlink(uid, new.uid)
        for uid, owner in present.items():
            self._link(uid, new.uid, blocks=owner.block_owner_deletion is True)
            if uid in known:
                continue
            above = self._objects.get(uid)
            if above is None:
                later[new.uid] = None
            elif above.deletes_dependents or not _is_at(above, owner, new.namespace):
                now[new.uid] = None
        for owner in before:
            self._notice_unblocked(owner.uid, now)

    def _link(self, owner: str, dependent: str, *, blocks: bool) -> None:
        self._dependents.setdefault(owner, {})[dependent] = blocks
        if blocks:
            self._blocking[owner] = self._blocking.get(owner, 0) + 1

    def _unlink(self, owner: str, dependent: str) -> None:
        found = self._dependents.get(owner)
        blocked = found.pop(dependent, None) if found is not None else None
        if blocked:
            self._blocking[owner] -= 1
            if not self._blocking[owner]:
                del self._blocking[owner]
        if found is not None and not found:
            del self._dependents[owner]

    def _notice_unblocked(self, owner: str, now: dict[str, None]) -> None:
        above = self._objects.get(owner)
        if above is not None and above.deletes_dependents and not self.is_blocked(owner):
            now[owner] = None

    @staticmethod
    def _starts(old: Tracked | None, new: Tracked, what: str) -> bool:
        return bool(getattr(new, what)) and not (old is not None and getattr(old, what))

    # --- owners ---

    def state_of(self, owner: OwnerReference, kind: Resource, namespace: str) -> OwnerState | None:
        """The known state of an owner; None if the server must be asked."""
        found = self._objects.get(owner.uid)
        if found is not None and _is_at(found, owner, namespace):
            return OwnerState.WAITING if found.deletes_dependents else OwnerState.PRESENT
        return OwnerState.ABSENT if coordinates(owner, kind, namespace) in self._absent else None

    def misplaced(self, target: Tracked) -> tuple[OwnerReference, ...]:
        """References to objects of another namespace, which are invalid."""
        found: list[OwnerReference] = []
        for owner in target.owners:
            above = self._objects.get(owner.uid)
            if above is not None and above.namespace and above.namespace != target.namespace:
                found.append(owner)
        return tuple(found)


def group_of(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def coordinates(owner: OwnerReference, kind: Resource, namespace: str) -> _Coordinates:
    """The target of a reference from a namespace."""
    return owner.uid, kind.group, kind.kind, namespace if kind.namespaced else "", owner.name


def _coordinates_of(object_: Tracked) -> _Coordinates:
    kind = object_.resource
    return object_.uid, kind.group, kind.kind, object_.namespace, object_.name


def _is_at(found: Tracked, owner: OwnerReference, namespace: str) -> bool:
    """Whether an object matches the coordinates of a reference to it."""
    kind = found.resource
    return (
        found.name == owner.name
        and kind.kind == owner.kind
        and kind.group == group_of(owner.api_version)
        and found.namespace in ("", namespace)
    )


def decide(graph: OwnerGraph, uid: str, asked: Mapping[str, OwnerState] | None = None) -> Decision:
    """What to do with an object. asked: the server's answers about owners, by uid."""
    target = graph.get(uid)
    if target is None:
        return None
    if target.orphans_dependents:
        return OrphanDependents(target, graph.dependents(uid))
    if target.deletes_dependents:
        # Its dependents were queued when it started to wait, or when they appeared.
        return None if graph.is_blocked(uid) else RemoveFinalizer(target, FOREGROUND)
    if target.is_deleting or not target.owners:
        return None
    return _judge(graph, target, asked or {})


def _judge(graph: OwnerGraph, target: Tracked, asked: Mapping[str, OwnerState]) -> Decision:
    states: dict[str, OwnerState] = {}
    unknown: list[tuple[OwnerReference, Resource]] = []
    for owner in target.owners:
        kind = graph.kinds.get((group_of(owner.api_version), owner.kind))
        if kind is None:
            return Unresolved(owner)
        if kind.namespaced and not target.namespace:
            # A cluster-scoped object cannot have a namespaced owner: such a reference decides nothing.
            return None
        state = graph.state_of(owner, kind, target.namespace) or asked.get(owner.uid)
        if state is None:
            unknown.append((owner, kind))
        else:
            states[owner.uid] = state
    if unknown:
        return Verify(tuple(unknown))
    return _verdict(graph, target, states)


def _verdict(graph: OwnerGraph, target: Tracked, states: Mapping[str, OwnerState]) -> Decision:
    going = tuple(uid for uid, state in states.items() if state is not OwnerState.PRESENT)
    if len(going) < len(states):
        return DropOwners(target, going) if going else None
    dependents = graph.dependents(target.uid)
    if dependents and OwnerState.WAITING in states.values():
        circle = any(one.deletes_dependents for one in dependents)
        return Delete(target=target, propagation="Foreground", unblock=circle)
    if ORPHAN in target.finalizers:
        return Delete(target=target, propagation="Orphan")
    return Delete(target=target, propagation="Foreground" if FOREGROUND in target.finalizers else "Background")
