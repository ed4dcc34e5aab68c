"""What the API server knows about a kind: one row of a table, and its strategy.

A row has what discovery, routing and printing need. A Strategy defines how objects are prepared and validated; most kinds
get the generic one from their schema, some have their own module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from allot.core.access.attributes import User
from allot.core.validation.fields import FieldError

if TYPE_CHECKING:
    from allot.apiserver.request import ApiRequest
    from allot.apiserver.server_context import ServerContext

Object = dict[str, Any]


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`. priority 0 is always shown, above only with -o wide."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class Subresource(msgspec.Struct, frozen=True):
    """status, scale, binding, eviction, token, log, exec, ... Its kind can differ from the resource's."""

    name: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    kind: str = ""


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A kind in one of its versions."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    # The version in which objects are stored; handlers convert.
    storage_version: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    subresources: Mapping[str, Subresource] = {}
    # Fields besides metadata.name and metadata.namespace that fieldSelector may use -> how to read them. They read
    # objects in the storage version, those of custom resources in the version of the row.
    selectable_fields: Mapping[str, Callable[[Object], str]] = {}
    # The folder of keys under /registry. The plural unless given; kube-apiserver's names differ for a few kinds, and
    # custom resources are in <group>/<plural>.
    storage_resource: str = ""
    # The group in which objects are stored, if different (events.k8s.io events are core events).
    storage_group: str | None = None
    # False for kinds that are never stored (reviews, bindings).
    stored: bool = True
    # Whether an update may leave out metadata.resourceVersion, whether PUT creates missing objects, and whether
    # DELETE answers with the object instead of a Status.
    unconditional_update: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False
    # Whether dependents are kept by a deletion that does not specify what happens to them.
    orphans_dependents: bool = False
    # A warning for every client of this version.
    warning: str = ""

    def __post_init__(self) -> None:
        if not self.storage_resource:
            msgspec.structs.force_setattr(self, "storage_resource", self.plural)

    @property
    def api_version(self) -> str:
        """group/version, as in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_api_version(self) -> str:
        """group/version, as in stored objects."""
        group = self.group if self.storage_group is None else self.storage_group
        return f"{group}/{self.storage_version}" if group else self.storage_version

    @property
    def list_kind(self) -> str:
        """The kind of its lists."""
        return f"{self.kind}List"


class Refused(Exception):
    """An object that cannot be accepted at all, before validation (bad types, unknown version): 400."""


class FastPath(Protocol):
    """Accepts common updates that are certainly valid, so that they need not be decoded, prepared and validated."""

    def accepts(self, object_: Object, old: Object, subresource: str) -> bool:
        """Whether an update qualifies. It is in the storage version and shares unchanged parts with the stored object."""

    def stored(self, object_: Object, old: Object, subresource: str) -> Object | None:
        """An accepted update, with its new managedFields, as stored; None if it needs the full path after all."""


# Field errors of what this sender may not write although it may write the kind. Arguments: the server's context, the request, the
# object, the stored one, the subresource. May raise StatusError.
WriteCheck = Callable[["ServerContext", "ApiRequest", Object, Object | None, str], Awaitable[tuple[FieldError, ...]]]


class Strategy(Protocol):
    """How incoming objects of a kind are processed, in this order: `read`, admission that changes the object,
    `prepare_*`, `validate_*`, `write_check`, admission that refuses. `read` takes an object in the version of the row that the
    strategy was made for; everything else takes JSON values in the storage version. Arguments are not changed, results may
    share parts with them. Raises nothing but Refused, and uses nothing but its arguments and caches: large objects come from
    another thread. What is said here about writes and deletions holds for most kinds."""

    # write_check has what a sender needs besides permission to write.
    fast_path: FastPath | None = None
    write_check: WriteCheck | None = None

    def read(self, object_: Object) -> Object:
        """An object as a client wrote it, with defaults, in the storage version."""

    def current(self, stored: Object) -> Object:
        """A stored object in the current storage version. Called only where a webhook converts objects."""
        return stored

    def with_requester(self, object_: Object, user: User) -> Object:  # noqa: ARG002
        """A new object with its creator's details, if the kind has any."""
        return object_

    def prepare_create(self, object_: Object) -> Object:
        """Defaults, fields that the server owns (status, generation), gated fields dropped."""

    def prepare_update(self, object_: Object, old: Object, subresource: str) -> Object:
        """The same for an update of the object or one of its subresources: what may not change there stays as it was."""

    def validate_create(self, object_: Object) -> tuple[FieldError, ...]:
        """All field errors."""

    def validate_update(self, object_: Object, old: Object, subresource: str) -> tuple[FieldError, ...]:
        """All field errors."""

    def warnings(self, object_: Object) -> tuple[str, ...]:
        """What the writer should know."""

    def dropped(self, given: Object, kept: Object, old: Object | None, subresource: str) -> tuple[str, ...]:  # noqa: ARG002
        """What the writer should know about fields that preparing dropped because their feature gate is off. kept: the object
        as prepared."""
        return ()

    def grace_s(self, object_: Object, asked: int | None) -> int:  # noqa: ARG002
        """How long the object may take to end when it is deleted. asked: what the client requests, or None."""
        return 0

    def prepare_delete(self, marked: Object, old: Object, asked: int | None, now: int) -> Object:  # noqa: ARG002
        """An object being deleted, for the first time or again, as stored until it is gone. now: in seconds."""
        return marked

    def is_held(self, object_: Object) -> bool:  # noqa: ARG002
        """Whether something besides metadata.finalizers holds back the deletion of the object."""
        return False
