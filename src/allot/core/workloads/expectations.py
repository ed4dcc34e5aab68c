"""Writes of a controller that its cache does not show yet. A controller that acts on a cache without its own writes creates pods
twice.

Unlike client-go, which counts events, this remembers which objects are expected and looks for them in the cache: an event that
arrives before the response to the write, or never because the object was gone by the next list, cannot confuse it.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from allot.core.model.meta import ObjectMeta
from allot.core.workloads.whole import HasMetadata

# As in client-go: after this time, the cache is trusted.
EXPIRE_S = 300.0


class Cached(Protocol):
    """The current contents of a resource's cache."""

    def get(self, key: str) -> HasMetadata | None:
        """The object of a key."""

    def has_seen(self, version: str) -> bool:
        """Whether the cache includes everything up to a resourceVersion."""


class _Awaited(msgspec.Struct, frozen=True):
    uid: str
    # Of the write; empty if a deletion is expected.
    version: str
    since_s: float
    # Whether any state of the object suffices.
    is_new: bool = False


class Expectations:
    """Expected objects, by owner's uid and object's key."""

    def __init__(self) -> None:
        self._awaited: dict[str, dict[str, _Awaited]] = {}

    def created(self, owner: str, created: ObjectMeta, now_s: float) -> None:
        """Record an object created for an owner."""
        self._put(owner, created, _Awaited(created.uid, created.resource_version, now_s, is_new=True))

    def updated(self, owner: str, updated: ObjectMeta, now_s: float) -> None:
        """Record a change to an owner's object."""
        self._put(owner, updated, _Awaited(updated.uid, updated.resource_version, now_s))

    def deleted(self, owner: str, deleted: ObjectMeta, now_s: float) -> None:
        """Record an accepted deletion of an owner's object."""
        self._put(owner, deleted, _Awaited(deleted.uid, "", now_s))

    def are_met(self, owner: str, cached: Cached, now_s: float) -> bool:
        """Whether the cache shows all writes for an owner."""
        awaited = self._awaited.get(owner)
        if not awaited:
            return True
        for key, each in tuple(awaited.items()):
            if now_s - each.since_s > EXPIRE_S or _is_met(each, key, cached):
                del awaited[key]
            else:
                return False
        del self._awaited[owner]
        return True

    def forget(self, owner: str) -> None:
        """Forget a deleted owner."""
        self._awaited.pop(owner, None)

    def _put(self, owner: str, object_: ObjectMeta, awaited: _Awaited) -> None:
        self._awaited.setdefault(owner, {})[f"{object_.namespace}/{object_.name}"] = awaited


def _is_met(awaited: _Awaited, key: str, cached: Cached) -> bool:
    found = cached.get(key)
    is_there = found is not None and found.metadata.uid == awaited.uid
    if awaited.version:
        return (is_there and awaited.is_new) or cached.has_seen(awaited.version)
    return not is_there or (found is not None and found.metadata.deletion_timestamp is not None)
