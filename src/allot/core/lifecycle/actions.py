"""Actions of reconcilers, as data. `allot.controllers.action_executor` executes them.

Actions of one answer are executed in order, and the first failure ends the sequence: the reconciler is called again
later and decides again from the then current state. So every sequence must be safe to stop after any of its steps.
Writes that must not overwrite another writer are conditional on uid or resourceVersion; a failed condition is not an error, only a
reason to reconcile again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec

from allot.core.model.kinds import kind_of_type
from allot.core.model.meta import APIStruct

JSON = Mapping[str, Any]


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """What an action is about: a kind by its place in the API. type: its struct, if core has one."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[APIStruct] | None = None

    @property
    def api_version(self) -> str:
        """apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


@cache
def resource_of(type_: type[APIStruct]) -> Resource:
    """The resource of a kind that core knows."""
    kind = kind_of_type(type_)
    return Resource(
        group=kind.group,
        version=kind.hub_version,
        plural=kind.plural,
        kind=kind.name,
        namespaced=kind.namespaced,
        type=type_,
    )


class Emit(msgspec.Struct, frozen=True, kw_only=True):
    """Tell people something about an object."""

    regarding: APIStruct | JSON
    # Normal or Warning.
    type: str
    reason: str
    action: str
    note: str
    related: APIStruct | JSON | None = None


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """A new object, or (with a subresource) something about the object of that name."""

    resource: Resource
    object: APIStruct | JSON
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # Told when it is made; a name that the server made up is appended to the note.
    on_success: Emit | None = None
    # Told when the server refuses; the error is appended to the note.
    on_failure: Emit | None = None
    # Whether an object of that name is as good.
    may_exist: bool = False


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """Replace an object or its status, if it still is as it was seen (its resourceVersion says so), or as the action before,
    which wrote the same object, has left it (follows).

    Only for kinds that core knows completely, or whole JSON values: what the object does not have is gone.
    """

    resource: Resource
    object: APIStruct | JSON
    subresource: str = ""
    # Told when it is done, or refused.
    on_success: Emit | None = None
    on_failure: Emit | None = None
    follows: bool = False


class RemoveFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    """Take a finalizer from an object, if it still is as it was seen, or as the action before has left it (follows)."""

    resource: Resource
    object: APIStruct | JSON
    finalizer: str
    follows: bool = False


class PatchType(StrEnum):
    """How a patch is written."""

    JSON = "json"
    MERGE = "merge"
    STRATEGIC = "strategic"


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Change parts of an object. A guard, if one is needed, is in the patch (metadata.uid, metadata.resourceVersion)."""

    resource: Resource
    name: str
    patch: Any
    type: PatchType = PatchType.MERGE
    namespace: str = ""
    subresource: str = ""
    manager: str = ""
    # Told when it is done, or refused.
    on_success: Emit | None = None
    on_failure: Emit | None = None


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """Server-side apply: own exactly these fields. With a uid, only of that very object."""

    resource: Resource
    name: str
    # The members beside apiVersion, kind and metadata.
    fields: JSON
    manager: str
    namespace: str = ""
    uid: str = ""
    subresource: str = ""
    force: bool = True


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete an object, only if it has that uid and resourceVersion where given. One that is gone already is fine."""

    resource: Resource
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    # Background, Foreground or Orphan; empty: what the server does by default.
    propagation_policy: str = ""
    grace_period_seconds: int | None = None
    # Told when it is deleted, or refused.
    on_success: Emit | None = None
    on_failure: Emit | None = None


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """Writes that do not depend on each other, carried out at the same time; all are tried, then the first failure counts.

    slow_start: one of them first, then two, then four and so on until one fails, so that a quota which refuses one pod is not
    asked for hundreds.
    """

    writes: tuple[Create | Delete | Patch, ...]
    slow_start: bool = False


class LookUp(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the server itself about an object, because the cache may lag behind: the reconciler is asked again with the
    answer at once. All other actions of the same sequence are dropped, so it comes alone or with its like.

    Without a name: about all objects of the namespace, or of the cluster.
    """

    resource: Resource
    name: str = ""
    namespace: str = ""
    subresource: str = ""


class RequeueAfter(msgspec.Struct, frozen=True, kw_only=True):
    """Ask again then, also if nothing changes."""

    seconds: float


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted cannot be done now: ask again, later after each failure."""

    message: str


Write = Create | Update | RemoveFinalizer | Patch | Apply | Delete
Action = Write | Together | Emit | LookUp | RequeueAfter | Retry

# What the server said to each LookUp: the object (a struct if core has one), or None if there is none; of a LookUp without
# a name, a tuple of objects.
Answers = Mapping[LookUp, Any]

FOREGROUND = "Foreground"
ORPHAN = "Orphan"
NORMAL = "Normal"
WARNING = "Warning"
