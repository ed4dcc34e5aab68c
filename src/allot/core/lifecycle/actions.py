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
    """The target of an action: a kind as an API resource. type: its struct, if core has one."""

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
    """Record an event about an object."""

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
    # The event on success; a server-generated name is appended to the note.
    on_success: Emit | None = None
    # The event on refusal; the error is appended to the note.
    on_failure: Emit | None = None
    # Whether an existing object of that name is acceptable.
    may_exist: bool = False


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """Replace an object or its status, if its resourceVersion has not changed since it was read, or since the preceding action,
    which wrote the same object (follows).

    Only for kinds that core knows completely, or whole JSON values: fields that the object lacks are removed.
    """

    resource: Resource
    object: APIStruct | JSON
    subresource: str = ""
    # The events on success and refusal.
    on_success: Emit | None = None
    on_failure: Emit | None = None
    follows: bool = False


class RemoveFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a finalizer from an object, if it has not changed since it was read, or since the preceding action (follows)."""

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
    # The events on success and refusal.
    on_success: Emit | None = None
    on_failure: Emit | None = None


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """Server-side apply: own exactly these fields. With a uid, only on exactly that object."""

    resource: Resource
    name: str
    # The members other than apiVersion, kind and metadata.
    fields: JSON
    manager: str
    namespace: str = ""
    uid: str = ""
    subresource: str = ""
    force: bool = True


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete an object, only if it has the given uid and resourceVersion, if any. Not an error if it is already gone."""

    resource: Resource
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    # Background, Foreground or Orphan; empty: the server's default.
    propagation_policy: str = ""
    grace_period_seconds: int | None = None
    # The events on success and refusal.
    on_success: Emit | None = None
    on_failure: Emit | None = None


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """Independent writes, executed concurrently; all are tried, then the first failure counts.

    slow_start: one of them first, then two, then four and so on until one fails, so that a quota that refuses one pod does not
    get hundreds of requests.
    """

    writes: tuple[Create | Delete | Patch, ...]
    slow_start: bool = False


class LookUp(msgspec.Struct, frozen=True, kw_only=True):
    """Read an object from the server, because the cache may lag: the reconciler is called again immediately with the answer. All
    other actions of the same sequence are dropped, so it comes alone or with other lookups.

    Without a name: all objects of the namespace, or of the cluster.
    """

    resource: Resource
    name: str = ""
    namespace: str = ""
    subresource: str = ""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the server to decide something, such as whether a user may do what a SubjectAccessReview says: the reconciler is called
    again immediately with the status of the answer. Otherwise as LookUp."""

    resource: Resource
    # The question, as JSON: reconcilers find the answer by it.
    spec: bytes


class RequeueAfter(msgspec.Struct, frozen=True, kw_only=True):
    """Reconcile again after a time, even if nothing changes."""

    seconds: float


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """The goal cannot be reached now: reconcile again with backoff."""

    message: str


Write = Create | Update | RemoveFinalizer | Patch | Apply | Delete
Question = LookUp | Review
Action = Write | Together | Emit | Question | RequeueAfter | Retry

# The server's answer to each LookUp: the object (a struct if core has one), or None if it does not exist; for a LookUp without
# a name, a tuple of objects. To each Review: its status.
Answers = Mapping[Question, Any]

FOREGROUND = "Foreground"
ORPHAN = "Orphan"
NORMAL = "Normal"
WARNING = "Warning"
