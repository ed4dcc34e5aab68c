"""The parts of API aggregation together: extension API servers, this server's own registrations, and whom extensions trust."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from allot.apiserver.access.certificates import Certificates
from allot.apiserver.aggregation.extension_server import Lookup
from allot.apiserver.aggregation.extensions import ExtensionServers
from allot.apiserver.aggregation.registrations import Registrations
from allot.apiserver.aggregation.trust import Trust
from allot.apiserver.metrics import Metrics
from allot.apiserver.proxies.dialing import Dialler
from allot.apiserver.registry import Registry
from allot.apiserver.server import ApiServer
from allot.process.clock import Clock
from allot.process.supervise import supervise
from allot.store.port import Event, Store


class Aggregation:
    """Follows the store with `load` and `apply_change`; writes once it has begun."""

    def __init__(
        self,
        lookup: Lookup,
        registry: Registry,
        dialler: Dialler,
        certificates: Certificates,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.extensions = ExtensionServers(lookup, dialler, certificates, metrics, clock)
        self._registrations = Registrations(registry)
        self._trust = Trust(certificates)
        self._clock = clock

    async def load(self, store: Store) -> None:
        """Read everything that it follows."""
        await self.extensions.load(store)
        await self._registrations.load(store)

    def apply_change(self, change: Event) -> None:
        """Notice a change."""
        self.extensions.apply_change(change)
        self._registrations.apply_change(change)

    async def begin(self, api: ApiServer) -> None:
        """Write what must be there before the server is ready."""
        await self._registrations.write(api)
        await self._trust.write(api)

    def followers(self, api: ApiServer) -> Iterator[Coroutine[Any, Any, None]]:
        """What runs from then on."""
        runs: dict[str, Callable[[ApiServer], Awaitable[None]]] = {
            "the care of extension API servers": self.extensions.run,
            "the registration of own groups": self._registrations.run,
            "the trust of extension API servers": self._trust.run,
        }
        for name, run in runs.items():
            yield supervise(name, partial(run, api), self._clock)
