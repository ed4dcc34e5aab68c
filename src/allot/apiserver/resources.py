"""What the API server knows about a kind: one row of a table, and how its objects are treated.

A row says what discovery, routing and printing need. A Strategy says what happens to an object on its way in; most kinds
get the generic one made from their schema, some have a module of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from allot.core.validation.fields import FieldError

Object = dict[str, Any]


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`. priority 0 is always shown, above only with -o wide."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class Subresource(msgspec.Struct, frozen=True):
    """status, scale, binding, eviction, token, log, exec, ... Its kind can be another than the resource's."""

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
    # Fields besides metadata.name and metadata.namespace that fieldSelector may use -> how to read them.
    selectable_fields: Mapping[str, Callable[[Object], str]] = {}

    @property
    def api_version(self) -> str:
        """group/version as objects carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_resource(self) -> str:
        """The folder of keys under /registry; kube-apiserver's names differ from plurals for a few kinds."""
        return self.plural


class Refused(Exception):
    """An object that cannot be accepted at all, before validation (bad types, unknown version): 400."""


class Strategy(Protocol):
    """What happens to objects of a kind on their way in. Objects are JSON values in the storage version."""

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
