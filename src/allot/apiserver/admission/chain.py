"""The chain of admission plugins: mutating ones first, then validating ones.

A request passes `mutate` before its object is prepared and validated, and `judge` around the write to the store: what was
charged for an object (quota) is given back if the write fails.

    object_ = await chain.mutate(admission)
    ... prepare, validate ...
    async with chain.judge(admission):
        entry = await store.create(...)

`admit` does both for callers that do not write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cached_property
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from allot.apiserver.admission.attributes import Admission, Lookup, Object, Operation
from allot.apiserver.request import ApiRequest
from allot.apiserver.resources import Resource

# Settles a plugin's effect after the write. It is called with whether the object was stored.
Settle = Callable[[bool], Awaitable[None]]


class Plugin(Protocol):
    """An admission plugin. `handles` depends only on its arguments; its results are cached."""

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Whether the plugin handles such requests."""


@runtime_checkable
class Idling(Protocol):
    """A plugin that may have nothing to do: no policies, no quotas."""

    # The kinds, each plural and group, whose objects alone decide that: results are cached until one of them changes.
    idle_by: Collection[tuple[str, str]]

    def idle(self, namespace: str) -> bool:
        """Whether the plugin has nothing to do for requests in the namespace. If so, it is skipped."""


class MutatingPlugin(Plugin, Protocol):
    """May replace the object of the admission, or raise StatusError."""

    async def mutate(self, admission: Admission) -> None:
        """Fill in."""


class ValidatingPlugin(Plugin, Protocol):
    """Raises StatusError to refuse."""

    async def validate(self, admission: Admission) -> Settle | None:
        """Judge. Returns what to do after the write, if anything."""


_Key = tuple[str, str, str, str, Operation]
_Chosen = TypeVar("_Chosen", bound=Plugin)
_Idle = Callable[[str], bool]
_QUIET_MAX = 2_000


class _Selection(Generic[_Chosen]):
    """The plugins that handle one kind of request."""

    __slots__ = ("_all", "_always", "_quiet", "_stamp")

    def __init__(self, plugins: Iterable[_Chosen]) -> None:
        self._all: tuple[tuple[_Chosen, _Idle | None], ...] = tuple(
            (plugin, plugin.idle if isinstance(plugin, Idling) else None) for plugin in plugins
        )
        self._always = tuple(plugin for plugin, idle in self._all if idle is None)
        # Namespaces in which all others were idle at this stamp: nearly all, on nearly every request.
        self._quiet: set[str] = set()
        self._stamp: Hashable = None

    def busy(self, namespace: str, stamp: Hashable) -> tuple[_Chosen, ...]:
        """The plugins that are not idle. stamp: stays the same while no plugin becomes idle or busy; None if that
        is not known."""
        if stamp != self._stamp:
            self._stamp = stamp
            self._quiet.clear()
        elif namespace in self._quiet:
            return self._always
        found = tuple(plugin for plugin, idle in self._all if idle is None or not idle(namespace))
        if stamp is not None and len(found) == len(self._always):
            if len(self._quiet) >= _QUIET_MAX:
                self._quiet.clear()
            self._quiet.add(namespace)
        return found


class AdmissionChain:
    """All plugins in their order."""

    def __init__(
        self, mutating: Iterable[MutatingPlugin], validating: Iterable[ValidatingPlugin], lookup: Lookup
    ) -> None:
        self._mutating = tuple(mutating)
        self._validating = tuple(validating)
        self._mutating_for: dict[_Key, _Selection[MutatingPlugin]] = {}
        self._validating_for: dict[_Key, _Selection[ValidatingPlugin]] = {}
        self._lookup = lookup

    @cached_property
    def _stamp(self) -> Callable[[], Hashable] | None:
        """The stamp of the kinds that idling depends on. Created on the first request: before that, the server does not know its kinds."""
        plugins: tuple[Plugin, ...] = (*self._mutating, *self._validating)
        idling = [plugin for plugin in plugins if isinstance(plugin, Idling)]
        return self._lookup.stamp_of({kind for plugin in idling for kind in plugin.idle_by})

    async def mutate(self, admission: Admission) -> Object | None:
        """The object as the mutating plugins leave it. All of them run again if policies or webhooks changed it."""
        for plugin in self._busy(self._mutating_for, self._mutating, admission):
            await plugin.mutate(admission)
        if admission.wants_second_round:
            admission.is_second_round = True
            for plugin in self._busy(self._mutating_for, self._mutating, admission):
                await plugin.mutate(admission)
        return admission.object

    def judge(self, admission: Admission) -> AbstractAsyncContextManager[None]:
        """Raises StatusError if a plugin refuses; otherwise the body runs, and plugins learn whether it succeeded."""
        return _Judgement(admission, self._busy(self._validating_for, self._validating, admission))

    def _busy(
        self, selections: dict[_Key, _Selection[_Chosen]], plugins: tuple[_Chosen, ...], admission: Admission
    ) -> tuple[_Chosen, ...]:
        """The plugins that a request must pass."""
        resource = admission.resource
        key = (resource.group, resource.version, resource.plural, admission.subresource, admission.operation)
        selection = selections.get(key)
        if selection is None:
            asked = (resource, admission.subresource, admission.operation)
            selection = selections[key] = _Selection(plugin for plugin in plugins if plugin.handles(*asked))
        return selection.busy(admission.namespace, self._stamp() if self._stamp is not None else None)

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
    """Wraps a write: plugins judge before it and settle after it."""

    __slots__ = ("_admission", "_plugins", "_settling")

    def __init__(self, admission: Admission, plugins: tuple[ValidatingPlugin, ...]) -> None:
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


async def _settle_all(settling: list[Settle], *, stored: bool) -> None:
    """Call all of them, even if one fails."""
    if len(settling) == 1:
        await settling[0](stored)
        return
    async with AsyncExitStack() as stack:
        for settle in settling:
            stack.push_async_callback(settle, stored)
