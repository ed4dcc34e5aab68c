"""Kinds of other schedulers that the server did not have when the scheduler started: they are read as soon as they are defined.

A pod that names a group of such a kind is held until the server has been asked again: otherwise the first pods of a gang whose
kind was defined a moment ago would be placed one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from allot.client.api import Client
from allot.client.errors import ApiError
from allot.client.informer import Change
from allot.core.model.core_v1 import Pod
from allot.core.scheduling.groups.dialects import DIALECTS
from allot.process.clock import Clock
from allot.process.waits import happens_within
from allot.scheduler.sources import Handler, Sources

_log = logging.getLogger("allot.scheduler")

# Pods with old labels must not make the scheduler ask all the time.
_ASKED_S = 1.0


class LateKinds:
    """Looks for them regularly, and at once for a pod that names one."""

    def __init__(
        self, client: Client, sources: Sources, serve: Callable[[str], None], clock: Clock, every_s: float
    ) -> None:
        """serve: called with the API group of a kind whose objects pods name as their groups."""
        self._client = client
        self._sources = sources
        self._serve = serve
        self._clock = clock
        self._every_s = every_s
        # By key of a pod: what has happened to it since.
        self._held: dict[str, list[Change[Any]]] = {}
        self._is_named = asyncio.Event()

    def hold(self, change: Change[Any]) -> bool:
        """Keep a change for later if it is one of a pod that names a group of a kind that the server may have by now."""
        if not isinstance(pod := change.object, Pod):
            return False
        held = self._held.get(change.key)
        if held is None:
            # What the server had at startup is known since the first look.
            if change.old is not None or change.is_initial or pod.spec.node_name or not self._names_missing(pod):
                return False
            held = self._held[change.key] = []
            self._is_named.set()
        held.append(change)
        return True

    def _names_missing(self, pod: Pod) -> bool:
        groups = self._sources.missing_groups
        return bool(groups) and any(each.name_in(pod) for each in DIALECTS if each.api_group in groups)

    def _release(self, key: str, handler: Handler) -> None:
        held = self._held[key]
        while held:
            handler(held.pop(0))
        del self._held[key]

    async def run(self, handler: Handler) -> None:
        """Until the server has all of them. handler: for their objects, and for what was held."""
        while self._sources.missing or self._held:
            await happens_within(self._is_named, self._every_s)
            self._is_named.clear()
            named = tuple(self._held)
            try:
                discovery = await self._client.discovery(refresh=True)
            except ApiError as error:
                level = logging.WARNING if named else logging.INFO
                _log.log(level, "discovery failed: %s; %d pods that name groups wait for it", error, len(named))
            else:
                self._sources.connect_custom(discovery, handler, self._serve)
                for key in named:
                    self._release(key, handler)
            if named:
                await self._clock.sleep(_ASKED_S)
            if self._held:
                self._is_named.set()
