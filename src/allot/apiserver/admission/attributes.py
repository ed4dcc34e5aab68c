"""What an admission plugin sees: the request, the object before and after, and what it may look up.

Objects are JSON values in the storage version of their kind, and shared. A plugin that wants
another object puts a new one into `object`; it never changes the existing one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from allot.apiserver.errors import StatusError, forbidden
from allot.apiserver.request import Attributes, User
from allot.apiserver.resources import Resource

Object = dict[str, Any]


class Operation(StrEnum):
    """What is being done."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class Lookup(Protocol):
    """The server's own reads, from memory, without authorization. Objects are in their storage version."""

    async def get(self, plural: str, group: str, namespace: str, name: str) -> Object | None:
        """One object; None if it does not exist."""

    async def list(self, plural: str, group: str, namespace: str = "") -> list[Object]:
        """All objects of a kind, of one namespace if one is given, ordered by name. Do not change it."""

    def known_list(self, plural: str, group: str, namespace: str = "") -> Sequence[Object] | None:
        """The result of `list`, if known without waiting."""

    def stamp_of(self, kinds: Collection[tuple[str, str]]) -> Callable[[], Hashable] | None:
        """A function to call repeatedly: while its result stays the same, so do lists of these kinds, each plural and group. None if
        that is not known without waiting."""


class StatusWriter(Protocol):
    """The server's own writes."""

    async def update_status(self, plural: str, group: str, namespace: str, name: str, object_: Object) -> Object:
        """Store an object with a changed status if it is still at its resourceVersion; StatusError 409 or 404."""


class AuthorizerDecision(Protocol):
    """An authorizer's answer."""

    @property
    def allowed(self) -> bool:
        """Whether it may be done."""

    @property
    def reason(self) -> str:
        """Why, or why not."""


class Authorize(Protocol):
    """Asks an authorizer."""

    def __call__(self, attributes: Attributes, /) -> AuthorizerDecision:
        """The answer."""


class Rounds:
    """Reinvocation: plugins are called again if a later one has changed the object, at most once and only on request
    (`reinvocationPolicy: IfNeeded`). One per plugin."""

    def __init__(self) -> None:
        self._invoked: dict[str, None] = {}
        self._again: dict[str, None] = {}
        self._last: Object | None = None

    def begin(self, admission: Admission) -> None:
        """Start a round: changes by others since the last one count."""
        if admission.is_second_round and admission.object != self._last:
            self._ask_again()

    def skips(self, admission: Admission, key: str) -> bool:
        """Whether a plugin is skipped in this round."""
        return admission.is_second_round and key not in self._again

    def invoked(self, admission: Admission, key: str, before: Object | None, *, if_needed: bool) -> None:
        """A plugin was called."""
        if admission.object != before:
            self._ask_again()
            admission.wants_second_round = True
        if if_needed:
            self._invoked[key] = None

    def end(self, admission: Admission) -> None:
        """End a round."""
        self._last = admission.object

    def _ask_again(self) -> None:
        self._again |= self._invoked
        self._invoked = {}


class Admission:
    """One request as it passes through the plugins."""

    __slots__ = (
        "_rounds",
        "audit_annotations",
        "dry_run",
        "is_second_round",
        "name",
        "namespace",
        "object",
        "old",
        "operation",
        "options",
        "resource",
        "subresource",
        "user",
        "version",
        "wants_second_round",
        "warnings",
    )

    def __init__(
        self,
        *,
        user: User,
        operation: Operation,
        resource: Resource,
        version: str = "",
        subresource: str = "",
        namespace: str = "",
        name: str = "",
        object_: Object | None = None,
        old: Object | None = None,
        options: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> None:
        self.user = user
        self.operation = operation
        self.resource = resource
        # The requested version; objects are in the storage version.
        self.version = version or resource.version
        self.subresource = subresource
        self.namespace = namespace
        self.name = name
        self.object = object_
        self.old = old
        self.options = options or {}
        self.dry_run = dry_run
        self.warnings: list[str] = []
        self.audit_annotations: dict[str, str] = {}
        # Mutating plugins run again if a plugin that triggers reinvocation has changed the object.
        self.wants_second_round = False
        self.is_second_round = False
        self._rounds: dict[str, Rounds] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Group and plural."""
        return self.resource.group, self.resource.plural

    def rounds_of(self, plugin: str) -> Rounds:
        """What a plugin remembers from one round to the next."""
        if self._rounds is None:
            self._rounds = {}
        return self._rounds.setdefault(plugin, Rounds())

    @property
    def shown_name(self) -> str:
        """The name for messages; a generated one is not known yet."""
        if self.name:
            return self.name
        meta = (self.object or {}).get("metadata") or {}
        return meta.get("name") or meta.get("generateName") or "Unknown"

    def forbidden(self, why: str) -> StatusError:
        """403 about this request's object."""
        return forbidden(self.resource.group, self.resource.plural, self.shown_name, why)
