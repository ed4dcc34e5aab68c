"""All extension API servers: follows APIServices, keeps their conditions, and reads the servers' documents.

A server that is slow or broken costs its own tasks only: nothing that serves requests waits for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from allot.apiserver.access.certificates import Certificates
from allot.apiserver.aggregation.availability import checked
from allot.apiserver.aggregation.documents import Documents, Unreadable
from allot.apiserver.aggregation.extension_server import ExtensionServer, Lookup
from allot.apiserver.bootstrap import try_to_write
from allot.apiserver.metrics import Metrics
from allot.apiserver.proxies.dialing import Dialler
from allot.apiserver.server import ApiServer
from allot.core.customresources.conditions import with_condition
from allot.core.lifecycle.api_services import (
    AVAILABLE,
    BUILT_IN,
    GROUP,
    LOCAL,
    Priority,
    availability,
    builtin_priority,
    is_available,
    is_local,
)
from allot.core.network.routes import service_key_of
from allot.core.schema.merging import OwnPart
from allot.process.clock import Clock
from allot.process.supervise import supervise
from allot.process.waits import happens_within
from allot.store.port import Entry, Event, EventType, Store

Object = dict[str, Any]

PREFIX = f"/registry/{GROUP}/apiservices/"
_SERVICES, _SLICES = "/registry/services/specs/", "/registry/endpointslices/"
_FOLLOWED = (PREFIX, _SERVICES, _SLICES)
# As upstream: what cannot be watched is noticed after this time.
_RECHECK_S = 30.0
_REREAD_S = 60.0
_PAUSE_FIRST_S = 0.5
_SETTLE_S = 0.05
_log = logging.getLogger("allot.apiserver")


class ExtensionServers:
    """The servers by group and version. `load` before the first request, `apply_change` for every change, `run` until the end."""

    def __init__(
        self, lookup: Lookup, dialler: Dialler, certificates: Certificates, metrics: Metrics, clock: Clock
    ) -> None:
        self._lookup = lookup
        self._dialler = dialler
        self._certificates = certificates
        self._metrics = metrics
        self._clock = clock
        self._servers: dict[tuple[str, str], ExtensionServer] = {}
        self._by_name: dict[str, ExtensionServer] = {}
        self._documents: dict[str, Documents] = {}
        self._local: dict[str, Object] = {}
        # Changes whenever what discovery or OpenAPI say may change.
        self.generation = 0
        self._members_changed = asyncio.Event()

    # --- for requests ---

    def find(self, group: str, version: str) -> ExtensionServer | None:
        """The server of a group and version; None if they are this server's."""
        return self._servers.get((group, version)) if self._servers else None

    def priorities(self) -> Mapping[tuple[str, str], Priority]:
        """All groups and versions of other servers, and their places."""
        return {key: server.priority for key, server in self._servers.items()}

    def discovered(self, group: str, version: str) -> Object:
        """A version in the aggregated form."""
        found = self._documents[self._servers[group, version].name]
        if found.resources is None:
            return {"version": version, "freshness": "Stale"}
        return {"version": version, "resources": found.resources, "freshness": "Current"}

    def openapi_v3(self) -> Iterator[tuple[str, str]]:
        """Paths of documents, and hashes that change with them."""
        for server in self._servers.values():
            if digest := self._documents[server.name].openapi_v3_hash:
                yield server.path.removeprefix("/"), digest

    def openapi_v2(self) -> list[OwnPart]:
        """The servers' parts of the document, the most important ones first."""
        servers = sorted(self._servers.values(), key=lambda each: (-each.priority.group, each.name))
        return [self._documents[server.name].openapi_v2 for server in servers]

    # --- following the store ---

    async def load(self, store: Store) -> None:
        """Read all APIServices."""
        page = await store.list(PREFIX)
        present = {entry.key.removeprefix(PREFIX): entry for entry in page.entries}
        for name in [name for name in (*self._by_name, *self._local) if name not in present]:
            self._forget(name)
        for entry in present.values():
            self._take(entry)

    def apply_change(self, change: Event) -> None:
        """Notice a change of an APIService, or of what one leads to."""
        key = change.entry.key
        if not key.startswith(_FOLLOWED):
            return
        if key.startswith(PREFIX):
            if change.type is EventType.DELETED:
                self._forget(key.removeprefix(PREFIX))
            else:
                self._take(change.entry)
        elif self._servers:
            self._notice_service(key, change.entry)

    def _notice_service(self, key: str, entry: Entry) -> None:
        namespace = key.split("/")[-2]
        concerned = [each for each in self._servers.values() if each.reference.namespace == namespace]
        if not concerned:
            return
        names = service_key_of(entry.object) if key.startswith(_SLICES) else (key.removeprefix(_SERVICES),)
        changed = set(names)
        for server in concerned:
            if f"{namespace}/{server.reference.name}" in changed:
                server.changed.set()

    def _take(self, entry: Entry) -> None:
        object_, name = entry.object, entry.key.removeprefix(PREFIX)
        if is_local(object_) or _is_built_in(object_):
            if name in self._by_name:
                self._forget(name)
            self._local[name] = object_
            return
        self._local.pop(name, None)
        server = self._by_name.get(name)
        if server is None:
            server = self._by_name[name] = ExtensionServer(self._lookup, self._dialler, self._certificates)
            self._documents[name] = Documents(server)
            self._members_changed.set()
        server.configure(object_)
        # The name is made of both, so that no other has them.
        self._servers[server.group, server.version] = server
        self.generation += 1

    def _forget(self, name: str) -> None:
        self._local.pop(name, None)
        server = self._by_name.pop(name, None)
        self._metrics.forget_api_service(name)
        if server is not None:
            del self._servers[server.group, server.version], self._documents[name]
            self.generation += 1
            self._members_changed.set()

    # --- care ---

    async def run(self, api: ApiServer) -> None:
        """Keep conditions and documents."""
        async with asyncio.TaskGroup() as tasks:
            caring: dict[ExtensionServer, list[asyncio.Task[None]]] = {}
            keeping = tasks.create_task(self._keep_local(api))
            try:
                while True:
                    self._members_changed.clear()
                    present = {server: name for name, server in self._by_name.items()}
                    for server in [each for each in caring if each not in present]:
                        for task in caring.pop(server):
                            task.cancel()
                    for server, name in present.items():
                        if server not in caring:
                            caring[server] = [
                                tasks.create_task(
                                    self._supervised(f"the check of APIService {name}", self._check, server, api)
                                ),
                                tasks.create_task(
                                    self._supervised(f"the reading of APIService {name}", self._read, server, api)
                                ),
                            ]
                    await self._members_changed.wait()
            finally:
                for task in (keeping, *(each for several in caring.values() for each in several)):
                    task.cancel()

    async def _supervised(
        self,
        name: str,
        run: Callable[[ExtensionServer, ApiServer], Awaitable[None]],
        server: ExtensionServer,
        api: ApiServer,
    ) -> None:
        await supervise(name, partial(run, server, api), self._clock)

    async def _check(self, server: ExtensionServer, api: ApiServer) -> None:
        pause = _PAUSE_FIRST_S
        while True:
            server.changed.clear()
            condition = await checked(server)
            passed = condition["status"] == "True"
            self._metrics.api_service_available(server.name, is_available=passed)
            is_written = await self._write(api, server.object, condition)
            pause = _PAUSE_FIRST_S if passed or not is_written else min(pause * 2, _RECHECK_S)
            await happens_within(server.changed, _RECHECK_S if passed and is_written else pause)
            # Changes of a Service come in groups.
            await self._clock.sleep(_SETTLE_S)

    async def _read(self, server: ExtensionServer, _: ApiServer) -> None:
        documents = self._documents[server.name]
        failures = 0
        while True:
            server.outdated.clear()
            before = documents.told
            try:
                await documents.read_resources()
                await documents.read_openapi()
                failures = 0
            except Unreadable as error:
                _log.info("APIService %s: %s", server.name, error)
                failures += 1
            if before != documents.told:
                self.generation += 1
            # A server that is not available is asked when it is again.
            is_soon = failures and server.is_available
            pause = _PAUSE_FIRST_S * 2.0 ** min(failures, 10) if is_soon else _REREAD_S
            await happens_within(server.outdated, min(pause, _REREAD_S))

    async def _keep_local(self, api: ApiServer) -> None:
        """What this server serves is available, whatever others write."""
        while True:
            for object_ in tuple(self._local.values()):
                condition = LOCAL if is_local(object_) else BUILT_IN
                passed = condition["status"] == "True"
                self._metrics.api_service_available(object_["metadata"]["name"], is_available=passed)
                if is_available(object_) != passed:
                    await self._write(api, object_, condition)
            await self._clock.sleep(_RECHECK_S)

    async def _write(self, api: ApiServer, object_: Object, condition: Mapping[str, Any]) -> bool:
        """Store a condition unless it is there; returns whether that is done. Another writer may be faster."""
        before = availability(object_)
        wanted = {**condition, "type": AVAILABLE}
        if before is not None and all(before.get(name) == value for name, value in wanted.items()):
            return True
        name = object_["metadata"]["name"]
        changed = with_condition(object_, wanted, self._clock.now())
        if not await try_to_write(api, "update", GROUP, "apiservices", changed, "status"):
            return False
        if condition["status"] != "True" and (before is None or before.get("status") == "True"):
            self._metrics.api_service_lost(name, str(condition["reason"]))
        _log.info("APIService %s: %s: %s", name, condition["reason"], condition["message"])
        return True


def _is_built_in(object_: Object) -> bool:
    """Whether it is about a group that this server always serves itself: it could not even start without them."""
    spec = object_.get("spec") or {}
    return builtin_priority(str(spec.get("group") or ""), str(spec.get("version") or "")) is not None
