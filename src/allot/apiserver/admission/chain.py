"""The chain of admission plugins: those that change the object first, then those that only judge it.

A request passes `mutate` before its object is prepared and validated, and `judge` around the write to the store: what was
charged for an object (quota) is given back if the write fails.

    object_ = await chain.mutate(admission)
    ... prepare, validate ...
    async with chain.judge(admission):
        entry = await store.create(...)

`admit` does both for callers without a write of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeVar

from allot.apiserver.admission.attributes import Admission, Object, Operation
from allot.apiserver.request import ApiRequest
from allot.apiserver.resources import Resource

# What undoes the effect of a plugin. It is called with whether the object was stored.
Settle = Callable[[bool], Awaitable[None]]


class Plugin(Protocol):
    """Something that looks at requests. `handles` depends on nothing but its arguments; its answers are kept."""

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Whether such requests concern the plugin."""


class MutatingPlugin(Plugin, Protocol):
    """May put another object into the admission, or raise StatusError."""

    async def mutate(self, admission: Admission) -> None:
        """Fill in."""


class ValidatingPlugin(Plugin, Protocol):
    """Raises StatusError to refuse."""

    async def validate(self, admission: Admission) -> Settle | None:
        """Judge. If something has to be done after the write, the answer is what."""


_Key = tuple[str, str, str, str, Operation]
_Chosen = TypeVar("_Chosen", bound=Plugin)


class AdmissionChain:
    """All plugins in their order."""

    def __init__(self, mutating: Iterable[MutatingPlugin], validating: Iterable[ValidatingPlugin]) -> None:
        self._mutating = tuple(mutating)
        self._validating = tuple(validating)
        self._mutating_for: dict[_Key, tuple[MutatingPlugin, ...]] = {}
        self._validating_for: dict[_Key, tuple[ValidatingPlugin, ...]] = {}

    async def mutate(self, admission: Admission) -> Object | None:
        """The object as the mutating plugins leave it."""
        for plugin in _chosen(self._mutating_for, self._mutating, admission):
            await plugin.mutate(admission)
        return admission.object

    @asynccontextmanager
    async def judge(self, admission: Admission) -> AsyncIterator[None]:
        """Raises StatusError if a plugin refuses; else the body runs, and plugins hear whether it succeeded."""
        plugins = _chosen(self._validating_for, self._validating, admission)
        if not plugins:
            yield
            return
        settling: list[Settle] = []
        stored = False
        try:
            for plugin in plugins:
                settle = await plugin.validate(admission)
                if settle is not None:
                    settling.append(settle)
            yield
            stored = True
        finally:
            if settling:
                await _settle_all(settling, stored)

    async def admit(
        self,
        request: ApiRequest,
        operation: Operation,
        resource: Resource,
        object_: Object | None,
        old: Object | None,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> tuple[Object | None, tuple[str, ...]]:
        """The object and warnings after all plugins; charges are kept."""
        admission = admission_of(request, operation, resource, object_, old, subresource=subresource, dry_run=dry_run)
        await self.mutate(admission)
        async with self.judge(admission):
            pass
        return admission.object, tuple(admission.warnings)


def admission_of(
    request: ApiRequest,
    operation: Operation,
    resource: Resource,
    object_: Object | None,
    old: Object | None,
    *,
    subresource: str = "",
    dry_run: bool = False,
    options: dict[str, Any] | None = None,
) -> Admission:
    """The admission of a request."""
    return Admission(
        user=request.user,
        operation=operation,
        resource=resource,
        version=request.version,
        subresource=subresource or request.subresource,
        namespace=request.namespace,
        name=request.name,
        object_=object_,
        old=old,
        options=options,
        dry_run=dry_run,
    )


def _chosen(
    chosen: dict[_Key, tuple[_Chosen, ...]], plugins: tuple[_Chosen, ...], admission: Admission
) -> tuple[_Chosen, ...]:
    resource = admission.resource
    key = (resource.group, resource.version, resource.plural, admission.subresource, admission.operation)
    found = chosen.get(key)
    if found is None:
        asked = (resource, admission.subresource, admission.operation)
        found = chosen[key] = tuple(plugin for plugin in plugins if plugin.handles(*asked))
    return found


async def _settle_all(settling: list[Settle], stored: bool) -> None:
    """Every one is called, also if another fails."""
    async with AsyncExitStack() as stack:
        for settle in settling:
            stack.push_async_callback(settle, stored)
