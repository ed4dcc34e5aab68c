"""Controllers of optional kinds: they start as soon as the server has the kind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from allot.client.errors import ApiError
from allot.controllers.runner import Runnable, Services
from allot.core.lifecycle.actions import Resource

_log = logging.getLogger("allot.controllers")

_PAUSE_S = 5.0


class WhenServed:
    """A controller that waits until the server has all of these kinds."""

    def __init__(self, services: Services, kinds: Sequence[Resource], make: Callable[[Services], Runnable]) -> None:
        self._services = services
        self._kinds = tuple(kinds)
        self._make = make

    async def run(self) -> None:
        """Wait, then run."""
        while not await self._are_served():
            await self._services.clock.sleep(_PAUSE_S)
        await self._make(self._services).run()

    async def _are_served(self) -> bool:
        try:
            discovery = await self._services.client.discovery(refresh=True)
        except ApiError as error:
            _log.info("discovery failed: %s", error)
            return False
        return all(discovery.find_kind(kind.group, kind.version, kind.kind) is not None for kind in self._kinds)
