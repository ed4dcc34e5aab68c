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

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Protocol, TypeVar

from allot.apiserver.admission.attributes import Admission, Object, Operation
from allot.apiserver.request import ApiRequest
from allot.apiserver.resources import Resource

# What undoes the effect of a plugin. It is called with whether the object was stored.
Settle = Callable[[bool], Awaitable[None]]


class Plugin(Protocol):
    """Something that looks at requests. `handles` depends on nothing but its arguments; its answers are kept.

    A plugin may also have `idle(namespace) -> bool`: whether there is nothing that could make it do anything about a request
    in the namespace (no policies, no quotas, ...). It is asked at every request and then left out.
    """

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
_Idle = Callable[[str], bool]


class AdmissionChain:
    """All plugins in their order."""

    def __init__(self, mutating: Iterable[MutatingPlugin], validating: Iterable[ValidatingPlugin]) -> None:
        self._mutating = tuple(mutating)
        self._validating = tuple(validating)
        self._mutating_for: dict[_Key, tuple[tuple[MutatingPlugin, _Idle | None], ...]] = {}
        self._validating_for: dict[_Key, tuple[tuple[ValidatingPlugin, _Idle | None], ...]] = {}

    async def mutate(self, admission: Admission) -> Object | None:
        """The object as the mutating plugins leave it. All of them run once more if policies or webhooks changed it."""
        await self._round(admission)
        if admission.wants_second_round:
            admission.is_second_round = True
            await self._round(admission)
        return admission.object

    async def _round(self, admission: Admission) -> None:
        namespace = admission.namespace
        for plugin, idle in _chosen(self._mutating_for, self._mutating, admission):
            if idle is None or not idle(namespace):
                await plugin.mutate(admission)

    def judge(self, admission: Admission) -> AbstractAsyncContextManager[None]:
        """Raises StatusError if a plugin refuses; else the body runs, and plugins hear whether it succeeded."""
        namespace = admission.namespace
        chosen = _chosen(self._validating_for, self._validating, admission)
        return _Judgement(admission, [plugin for plugin, idle in chosen if idle is None or not idle(namespace)])

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


class _Judgement:
    """Around a write: asked before, settled after."""

    __slots__ = ("_admission", "_plugins", "_settling")

    def __init__(self, admission: Admission, plugins: list[ValidatingPlugin]) -> None:
        self._admission = admission
        self._plugins = plugins
        self._settling: list[Settle] = []

    async def __aenter__(self) -> None:
        try:
            for plugin in self._plugins:
                settle = await plugin.validate(self._admission)
                if settle is not None:
                    self._settling.append(settle)
        except BaseException:
            await _settle_all(self._settling, stored=False)
            raise

    async def __aexit__(
        self, type_: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._settling:
            await _settle_all(self._settling, stored=type_ is None)


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
    chosen: dict[_Key, tuple[tuple[_Chosen, _Idle | None], ...]], plugins: tuple[_Chosen, ...], admission: Admission
) -> tuple[tuple[_Chosen, _Idle | None], ...]:
    resource = admission.resource
    key = (resource.group, resource.version, resource.plural, admission.subresource, admission.operation)
    found = chosen.get(key)
    if found is None:
        asked = (resource, admission.subresource, admission.operation)
        found = chosen[key] = tuple(
            (plugin, getattr(plugin, "idle", None)) for plugin in plugins if plugin.handles(*asked)
        )
    return found


async def _settle_all(settling: list[Settle], *, stored: bool) -> None:
    """Every one is called, also if another fails."""
    if len(settling) == 1:
        await settling[0](stored)
        return
    async with AsyncExitStack() as stack:
        for settle in settling:
            stack.push_async_callback(settle, stored)
