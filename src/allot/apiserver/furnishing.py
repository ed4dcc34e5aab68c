"""The standard objects of namespaces: a service account for pods and the certificates of this server.

The controllers create them too, but pods need them at once, and also where no controllers run. What admission refuses for one namespace
is tried again after a pause, and keeps no other namespace waiting.
"""

from __future__ import annotations

import asyncio
import logging

from allot.apiserver.bootstrap import ensure
from allot.apiserver.errors import StatusError
from allot.apiserver.server import ApiServer
from allot.core.lifecycle.accounts import account_object, root_ca_object
from allot.process.supervise import PAUSE_FIRST_S, PAUSE_MAX_S
from allot.store.port import Entry, Event, EventType

_log = logging.getLogger("allot.apiserver")


class Furnishing:
    """Follows namespaces. authority: the certificates by which clients know this server, as PEM."""

    def __init__(self, server: ApiServer, authority: str) -> None:
        self._server = server
        self._authority = authority
        served = server.context.registry.find("", "v1", "namespaces")
        assert served is not None, "namespaces are served"
        self._namespaces = served
        self._refused: set[str] = set()

    async def run(self) -> None:
        """Create the objects of namespaces as they appear."""
        store = self._server.context.store
        page = await store.list(self._namespaces.prefix(""))
        watch = store.watch(self._namespaces.prefix(""), page.revision)
        try:
            async with asyncio.TaskGroup() as retries:
                for entry in page.entries:
                    await self._furnish(entry, retries)
                async for change in watch:
                    if isinstance(change, Event) and change.type is not EventType.DELETED:
                        await self._furnish(change.entry, retries)
        finally:
            await watch.close()

    async def _furnish(self, namespace: Entry, retries: asyncio.TaskGroup) -> None:
        name = namespace.object["metadata"]["name"]
        if _is_active(namespace) and name not in self._refused and not await self._is_furnished(name):
            self._refused.add(name)
            retries.create_task(self._try_again(name))

    async def _try_again(self, name: str) -> None:
        pause, clock = PAUSE_FIRST_S, self._server.context.clock
        try:
            await clock.sleep(pause)
            while not await self._is_furnished(name):
                pause = min(pause * 2, PAUSE_MAX_S)
                await clock.sleep(pause)
        finally:
            self._refused.discard(name)

    async def _is_furnished(self, name: str) -> bool:
        """Create what is missing. Whether nothing is left to do."""
        is_complete = True
        for plural, object_ in (
            ("serviceaccounts", account_object(name)),
            ("configmaps", root_ca_object(name, self._authority)),
        ):
            try:
                await ensure(self._server, "", "v1", plural, object_)
            except StatusError as error:
                if not _is_active(await self._server.context.store.get(self._namespaces.key("", name))):
                    return True
                kind, object_name = plural[:-1], object_["metadata"]["name"]
                _log.warning("namespace %s: %s %s cannot be created, trying again: %s", name, kind, object_name, error)
                is_complete = False
        return is_complete


def _is_active(namespace: Entry | None) -> bool:
    """Whether a namespace is there and not about to go: nothing may be created in those."""
    return namespace is not None and not namespace.object["metadata"].get("deletionTimestamp")
