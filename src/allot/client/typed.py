"""Access to the kinds of `core.model` by their types: decodes and encodes objects, and converts them if the server is used in a
version other than the types'.

Some types have only some of their kind's fields (Pod, Node). Writing such an object back whole would lose the rest, so `update`
takes an `Envelope` for them (`get_envelope`); patches work without one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from allot.client.errors import UnexpectedAnswer, error_from_answer
from allot.core.model.codec import (
    DecodeError,
    Envelope,
    decode_object,
    decode_served,
    encode,
    encode_envelope,
    without_managed_fields,
)
from allot.core.model.kinds import Kind
from allot.core.model.meta import APIStruct
from allot.core.model.schema import has_partial_parts

if TYPE_CHECKING:
    from allot.client.api import PatchType, ResourceClient

T = TypeVar("T", bound=APIStruct)


class TypedList(msgspec.Struct, Generic[T], frozen=True):
    """A list of decoded objects."""

    items: tuple[T, ...]
    resource_version: str


class TypedEvent(msgspec.Struct, Generic[T], frozen=True):
    """ADDED, MODIFIED or DELETED with the decoded object; BOOKMARK with its resourceVersion alone."""

    type: str
    object: T | None
    resource_version: str


class TypedResource(Generic[T]):
    """Access to one kind. The methods are those of dynamic access (`resource`), with structs instead of JSON values."""

    def __init__(self, resource: ResourceClient, type_: type[T], kind: Kind) -> None:
        self.resource = resource
        self._type = type_
        self._kind = kind
        # Whether the server is used in the type's version.
        self.is_hub = resource.api_version == kind.hub_api_version
        self._is_partial = has_partial_parts(type_)

    # --- reads ---

    async def get(self, name: str, namespace: str = "") -> T:
        """One object."""
        return self.decode(await self.resource.get(name, namespace))

    async def get_envelope(self, name: str, namespace: str = "") -> Envelope:
        """One object including the fields that its type lacks."""
        return self._envelope(await self.resource.get(name, namespace))

    async def list(self, namespace: str = "", *, label_selector: str = "", field_selector: str = "") -> TypedList[T]:
        """All objects as of one resourceVersion."""
        listed = await self.resource.list(namespace, label_selector=label_selector, field_selector=field_selector)
        return TypedList(tuple(self.decode(item) for item in listed.items), listed.resource_version)

    @asynccontextmanager
    async def watch(
        self,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
    ) -> AsyncIterator[AsyncIterator[TypedEvent[T]]]:
        """An open watch; ERROR events are raised."""
        async with self.resource.watch(
            namespace,
            resource_version=resource_version,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_seconds=timeout_seconds,
        ) as events:

            async def decoded() -> AsyncIterator[TypedEvent[T]]:
                async for event in events:
                    if event.type == "ERROR":
                        raise error_from_answer(0, event.object, f"watch of {self.resource.plural}")
                    object_ = None if event.type == "BOOKMARK" else self.decode(event.object)
                    version = event.object.get("metadata", {}).get("resourceVersion", "")
                    yield TypedEvent(event.type, object_, str(version))

            yield decoded()

    # --- writes ---

    async def create(self, object_: T, namespace: str = "", *, field_manager: str = "", dry_run: bool = False) -> T:
        """A new object."""
        value = self.encode(object_)
        return self.decode(await self.resource.create(value, namespace, field_manager=field_manager, dry_run=dry_run))

    async def update(
        self,
        object_: T | Envelope,
        namespace: str = "",
        *,
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> T:
        """Replace an object; a partly typed one needs its envelope."""
        answer = await self.resource.update(
            self._whole(object_), namespace, subresource=subresource, field_manager=field_manager, dry_run=dry_run
        )
        return self.decode(answer)

    async def update_status(
        self, object_: T | Envelope, namespace: str = "", *, field_manager: str = "", dry_run: bool = False
    ) -> T:
        """Replace an object's status; a partly typed one needs its envelope."""
        return await self.update(object_, namespace, subresource="status", field_manager=field_manager, dry_run=dry_run)

    async def patch(
        self,
        name: str,
        patch: Any,
        type_: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        """Change parts of an object; the patch is a JSON value."""
        answer = await self.resource.patch(
            name, patch, type_, namespace, subresource=subresource, field_manager=field_manager, force=force
        )
        return self.decode(answer)

    async def apply(
        self, object_: T, field_manager: str, namespace: str = "", *, force: bool = False, subresource: str = ""
    ) -> T:
        """Server-side apply: own exactly the fields that differ from their defaults."""
        value = self.encode(object_)
        return self.decode(
            await self.resource.apply(value, field_manager, namespace, force=force, subresource=subresource)
        )

    async def delete(
        self,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation_policy: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        """Delete an object, only if it has the given uid and resourceVersion, if any."""
        await self.resource.delete(
            name,
            namespace,
            uid=uid,
            resource_version=resource_version,
            propagation_policy=propagation_policy,
            grace_period_seconds=grace_period_seconds,
        )

    # --- decoding and encoding ---

    def decode(self, value: dict[str, Any]) -> T:
        """A struct from what the server sent."""
        if not self.is_hub:
            object_ = self._envelope(value).object
            assert isinstance(object_, self._type)
            return object_
        try:
            return decode_served(value, self._type)
        except DecodeError as error:
            raise UnexpectedAnswer(f"{self._kind.name} from the server: {error}") from error

    def decode_cached(self, value: dict[str, Any]) -> T:
        """The same without managedFields, for caches."""
        return self.decode(without_managed_fields(value))

    def encode(self, object_: T) -> dict[str, Any]:
        """What to send for a struct."""
        return encode(object_, self.resource.api_version)

    def _envelope(self, value: dict[str, Any]) -> Envelope:
        try:
            return decode_object(value)
        except ValueError as error:
            raise UnexpectedAnswer(f"{self._kind.name} from the server: {error}") from error

    def _whole(self, object_: T | Envelope) -> dict[str, Any]:
        if isinstance(object_, Envelope):
            return encode_envelope(object_, self.resource.api_version)
        if self._is_partial:
            raise TypeError(f"{self._kind.name} is only partly typed: update its envelope, or patch it")
        return self.encode(object_)
