"""Snapshots of a live cluster: once, or again after every change.

Reading needs only permission to list, and to watch for the second. A kind that the server does not have is left out. A kind that may
not be listed is read only in the namespace of the connection, or else left out: both with a note, and recorded in the snapshot. Only
a user who may list nothing relevant is refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from allot.client.api import Client
from allot.client.connection import Connection
from allot.client.discovery import Discovery
from allot.client.errors import ApiError, Forbidden, Unauthorized, Unreachable
from allot.client.http import HttpTransport
from allot.client.informer import Change, Informer
from allot.client.transport import JSON, REQUEST_TIMEOUT_S, Response, Transport
from allot.core.advice.snapshot import KINDS, Snapshot, SnapshotKind, device_api_of, read_object, snapshot_kind
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError
from allot.core.model.meta import APIStruct
from allot.core.model.resource_v1 import DeviceTaintRule
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.process.supervise import supervise
from allot.reading.errors import Denied, NotReached
from allot.reading.listener import Listener

_LISTS_AT_ONCE = 4
# A user is waiting: report an unreachable server soon.
TRIES_MAX = 3
# Changes come in bursts; a view that updates more often is unreadable.
_PAUSE_S = 0.5
_CLIENT_LOG = logging.getLogger("allot.client")


# --- once ---


async def fetch_snapshot(connection: Connection, listener: Listener, kinds: Sequence[SnapshotKind] = KINDS) -> Snapshot:
    """The current objects of these kinds. Denied, NotReached."""
    taken_at, values, unread = await _fetch(connection, listener, kinds)
    return Snapshot(tuple(_objects(values, listener)), taken_at, unread, device_api_of(values))


async def fetch_values(
    connection: Connection, listener: Listener, kinds: Sequence[SnapshotKind] = KINDS
) -> tuple[float, list[dict[str, Any]]]:
    """The time, and all objects of these kinds as the server sends them. Denied, NotReached."""
    taken_at, values, _ = await _fetch(connection, listener, kinds)
    return taken_at, values


async def _fetch(
    connection: Connection, listener: Listener, kinds: Sequence[SnapshotKind]
) -> tuple[float, list[dict[str, Any]], Mapping[type[APIStruct], str]]:
    """The time, all objects, and what could not be read."""
    clock = SystemClock()
    transport = HttpTransport(
        connection, clock, SystemIds(), environ=os.environ, user_agent="allot-snapshot", tries_max=TRIES_MAX
    )
    client = Client(transport)
    try:
        await client.discovery()
        taken_at = clock.seconds()
        values: list[dict[str, Any]] = []
        hidden = _Hidden(connection.namespace, kinds, listener)
        for found in await _all_lists(client, kinds, hidden):
            if isinstance(found, Exception):
                raise found
            values += found
        hidden.tell()
        return taken_at, values, hidden.unread
    except (Unreachable, Unauthorized) as error:
        raise NotReached(connection.server, error) from None
    except ApiError as error:
        raise Denied(f"API server {connection.server}: {error}") from None
    finally:
        await client.close()


class _Hidden:
    """Kinds that may not be listed; reported together, because for some users these are most kinds."""

    def __init__(self, namespace: str, kinds: Sequence[SnapshotKind], listener: Listener) -> None:
        self.listener = listener
        self.namespace = namespace
        self._required = [kind for kind in kinds if kind.required]
        self._refusals: dict[type[APIStruct], Forbidden] = {}
        self.unread: dict[type[APIStruct], str] = {}

    def add(self, kind: SnapshotKind, error: Forbidden, namespace: str = "") -> None:
        """A kind that may not be listed, or only in a namespace."""
        self._refusals[kind.type] = error
        self.unread[kind.type] = namespace

    def tell(self) -> None:
        """Report what could not be read. Denied if that is everything relevant."""
        if self._required and all(self.unread.get(kind.type) == "" for kind in self._required):
            first = self._required[0]
            needed = ", ".join(kind.plural for kind in self._required)
            raise Denied(
                f"{first.plural}: {self._refusals[first.type].message}",
                f"you need permission to list {needed}, at least in a namespace",
            )
        elsewhere = sorted(snapshot_kind(type_).plural for type_, namespace in self.unread.items() if namespace)
        everywhere = sorted(snapshot_kind(type_).plural for type_, namespace in self.unread.items() if not namespace)
        if elsewhere:
            self.listener.note(f"only those of namespace {self.namespace} may be listed: {', '.join(elsewhere)}")
        if everywhere:
            self.listener.note(f"left out, as they may not be listed: {', '.join(everywhere)}")


async def _all_lists(
    client: Client, kinds: Sequence[SnapshotKind], hidden: _Hidden
) -> list[list[dict[str, Any]] | Exception]:
    """The objects of each kind, a few kinds at once. A failure does not cancel the others: their connections would be
    left half open."""
    turns = asyncio.Semaphore(_LISTS_AT_ONCE)
    with hidden.listener.progress("reading the cluster", len(kinds)) as advance:

        async def read(kind: SnapshotKind) -> list[dict[str, Any]] | Exception:
            async with turns:
                try:
                    return await _list(client, kind, hidden)
                except (ApiError, Denied) as error:
                    return error
                finally:
                    advance()

        async with asyncio.TaskGroup() as tasks:
            lists = [tasks.create_task(read(kind)) for kind in kinds]
    return [task.result() for task in lists]


async def _list(client: Client, kind: SnapshotKind, hidden: _Hidden) -> list[dict[str, Any]]:
    """All objects of a kind, with the apiVersion and kind that members of lists do not carry."""
    discovery = await client.discovery()
    served = _served_version(discovery, kind)
    if not served:
        if kind.required:
            hidden.listener.note(f"the server has no {kind.plural}")
        return []
    resource = client.resource(kind.group, served, kind.plural, namespaced=kind.namespaced)
    head = {"apiVersion": kind.api_version(served), "kind": kind.name}
    try:
        return [{**head, **item} for item in (await resource.list()).items]
    except Forbidden as error:
        if kind.namespaced:
            try:
                items = (await resource.list(hidden.namespace)).items
            except Forbidden:
                pass
            else:
                hidden.add(kind, error, hidden.namespace)
                return [{**head, **item} for item in items]
        hidden.add(kind, error)
        return []


def _objects(values: list[dict[str, Any]], listener: Listener) -> Iterator[APIStruct]:
    for value in values:
        try:
            yield read_object(value)
        except (DecodeError, ConversionError) as error:
            listener.note(f"{_named(value)}: left out: {error}")


def _named(value: Mapping[str, Any]) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{value.get('kind', '')} {name}"


# --- repeatedly ---


class Troubles(logging.Handler):
    """Collects watch failures of all informers, instead of each logging into the view."""

    def __init__(self, heard: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._heard = heard
        self.since = ""

    @property
    def text(self) -> str:
        """A message; empty without failures."""
        if not self.since:
            return ""
        return f"perhaps out of date: the server went away at {self.since}, and no change was seen since"

    def emit(self, record: logging.LogRecord) -> None:
        """For `logging`."""
        if not self.since:
            self.since = time.strftime("%H:%M:%S", time.localtime(record.created))
            self._heard()


async def watch_snapshots(connection: Connection, listener: Listener) -> AsyncIterator[tuple[Snapshot, str]]:
    """The current cluster, and again after each change; with a message if it may be out of date. Denied, NotReached."""
    changed = asyncio.Event()
    with hearing_troubles(changed.set) as troubles:
        try:
            async for snapshot, is_fresh in _snapshots(connection, changed, listener):
                if is_fresh:
                    troubles.since = ""
                yield snapshot, troubles.text
        except ApiError as error:
            raise NotReached(connection.server, error) from None


@contextmanager
def hearing_troubles(heard: Callable[[], None]) -> Iterator[Troubles]:
    """Redirect the informers' log to the yielded handler only. heard: called when there is something new."""
    troubles = Troubles(heard)
    _CLIENT_LOG.addHandler(troubles)
    propagates, _CLIENT_LOG.propagate = _CLIENT_LOG.propagate, False
    try:
        yield troubles
    finally:
        _CLIENT_LOG.propagate = propagates
        _CLIENT_LOG.removeHandler(troubles)


async def _snapshots(
    connection: Connection, changed: asyncio.Event, listener: Listener
) -> AsyncIterator[tuple[Snapshot, bool]]:
    """The known cluster, and again when changed is set; with whether an object has changed."""
    clock = SystemClock()
    is_fresh = True

    def note(_change: object) -> None:
        nonlocal is_fresh
        is_fresh = True
        changed.set()

    # Required kinds, and taint rules.
    wanted = [kind for kind in KINDS if kind.required or kind.type is DeviceTaintRule]
    async with watching(connection, listener, wanted, note, user_agent="allot-top") as watched:
        while True:
            changed.clear()
            fresh, is_fresh = is_fresh, False
            yield Snapshot(tuple(watched.objects()), clock.seconds(), watched.unread), fresh
            await changed.wait()
            await clock.sleep(_PAUSE_S)


# --- change by change ---


class Watched:
    """The objects of some kinds, kept up to date."""

    def __init__(self, client: Client, unread: Mapping[type[APIStruct], str]) -> None:
        self.client = client
        # Kinds that may not be watched, or only in one namespace; see Snapshot.
        self.unread = unread
        self._informers: dict[type[APIStruct], Informer[APIStruct]] = {}

    def objects(self) -> Iterator[APIStruct]:
        """All objects."""
        return (found for informer in self._informers.values() for found in informer.cache)

    def watches(self, kind: SnapshotKind) -> bool:
        """Whether a kind is watched."""
        return kind.type in self._informers

    def add(self, kind: SnapshotKind, informer: Informer[APIStruct]) -> None:
        """Also watch this kind from now on."""
        self._informers[kind.type] = informer


@asynccontextmanager
async def watching(
    connection: Connection,
    listener: Listener,
    kinds: Sequence[SnapshotKind],
    tell: Callable[[Change[APIStruct]], None],
    *,
    user_agent: str,
    late_every_s: float | None = None,
) -> AsyncIterator[Watched]:
    """The objects of those kinds that the server has, once all of them are known; tell: called for every change.
    late_every_s: how often to look for kinds that the server did not have before. Nothing is ever written. Denied; ApiError."""
    clock, ids = SystemClock(), SystemIds()
    transport = HttpTransport(connection, clock, ids, environ=os.environ, user_agent=user_agent, tries_max=TRIES_MAX)
    client = Client(ReadOnly(transport))
    try:
        served, unread = await _watchable(client, connection.namespace, listener, kinds)
        watched = Watched(client, unread)

        def watch(kind: SnapshotKind, version: str) -> Informer[APIStruct]:
            resource = client.resource(kind.group, version, kind.plural, namespaced=kind.namespaced)
            head = {"apiVersion": kind.api_version(version), "kind": kind.name}
            informer = Informer(
                resource, lambda item: read_object({**head, **item}), clock, ids, namespace=unread.get(kind.type, "")
            )
            informer.add_handler(tell)
            watched.add(kind, informer)
            return informer

        informers = [watch(kind, version) for kind, version in served]
        running: list[asyncio.Task[None]] = []

        def start(informer: Informer[APIStruct]) -> None:
            running.append(asyncio.ensure_future(supervise("a watch", informer.run, clock)))

        for informer in informers:
            start(informer)
        if late_every_s is not None:
            late = _watch_late(client, clock, late_every_s, kinds, watched, lambda *found: start(watch(*found)))
            running.append(asyncio.ensure_future(late))
        try:
            for informer in informers:
                await informer.wait_synced()
            yield watched
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    finally:
        await client.close()


async def _watch_late(
    client: Client,
    clock: SystemClock,
    every_s: float,
    kinds: Sequence[SnapshotKind],
    watched: Watched,
    start: Callable[[SnapshotKind, str], object],
) -> None:
    """Watch kinds that are installed later, such as queues and groups."""
    while True:
        await clock.sleep(every_s)
        missing = [kind for kind in kinds if not watched.watches(kind) and kind.type not in watched.unread]
        try:
            discovery = await client.discovery(refresh=True)
            for kind in missing:
                version = _served_version(discovery, kind)
                if version and await _may_list(client, kind, version, ""):
                    start(kind, version)
        except ApiError as error:
            _CLIENT_LOG.warning("cannot check for new kinds: %s", error)


class ReadOnly:
    """A read-only transport: refuses writes before they are sent."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.stream = transport.stream
        self.close = transport.close

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> Response:
        """For Transport; PermissionError for anything but GET."""
        if method != "GET":
            raise PermissionError(f"{method} {path}: nothing is written here")
        return await self._transport.request(method, path, query, body, content_type, headers, timeout)


def _served_version(discovery: Discovery, kind: SnapshotKind) -> str:
    """The best version of a kind that the server has; empty if it has none."""
    versions = (each for each in kind.versions if discovery.find_kind(kind.group, each, kind.name) is not None)
    return next(versions, "")


async def _may_list(client: Client, kind: SnapshotKind, version: str, namespace: str) -> bool:
    try:
        await _list_one(client, kind, version, namespace)
    except Forbidden:
        return False
    return True


async def _list_one(client: Client, kind: SnapshotKind, version: str, namespace: str) -> None:
    """Forbidden if objects of the kind may not be listed."""
    resource = client.resource(kind.group, version, kind.plural, namespaced=kind.namespaced)
    await client.request("GET", resource.path(namespace), query={"limit": "1"})


async def _watchable(
    client: Client, namespace: str, listener: Listener, kinds: Sequence[SnapshotKind]
) -> tuple[list[tuple[SnapshotKind, str]], Mapping[type[APIStruct], str]]:
    """The kinds to watch, with the version that the server has; and what cannot be watched, or only in the namespace."""
    discovery = await client.discovery()
    found: list[tuple[SnapshotKind, str]] = []
    hidden = _Hidden(namespace, kinds, listener)
    for kind in kinds:
        version = _served_version(discovery, kind)
        if not version:
            continue
        try:
            await _list_one(client, kind, version, "")
        except Forbidden as error:
            if not kind.namespaced or not await _may_list(client, kind, version, namespace):
                hidden.add(kind, error)
                continue
            hidden.add(kind, error, namespace)
        found.append((kind, version))
    hidden.tell()
    return found, hidden.unread
