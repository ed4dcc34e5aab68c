"""The HTTP server: static files, rows of tables, a stream of changes, answers to questions.

Every request is a read. The only POST exchanges a token for a cookie (`door`); without one, browsers get only the static files.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from allot import __version__
from allot.core.advice.snapshot import KINDS, SnapshotKind
from allot.core.advice.tree import Branch, claim_tree, device_tree, node_tree, pod_tree
from allot.core.advice.usage.published import published_pools
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.devices import DeviceID
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import ResourceClaim
from allot.dashboard.analysis import TooMany
from allot.dashboard.assets import Asset, read_assets
from allot.dashboard.door import SECURITY_HEADERS, Door
from allot.dashboard.following import BY_KIND, Followed, Unknown, wait_for_news
from allot.dashboard.questions import QUESTIONS
from allot.dashboard.views.graph import Graph
from allot.dashboard.views.nodes import in_order
from allot.dashboard.views.timeline import held_before, pod_marks
from allot.http1.heads import HttpError
from allot.http1.requests import Request, Response
from allot.reading.errors import ReadingError
from allot.yaml_values.writer import yaml_text

JSON = "application/json"
HEARTBEAT_S = 15.0
STREAMS_MAX = 128
_COMPRESSED_FROM = 16 * 1024
_FOUND_MAX = 40
_MARKS_MAX = 200
_NO_STORE = {"Cache-Control": "no-store"}
_MOMENT = "at"
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?", re.ASCII)


class Shown(Protocol):
    """What the pages show: `Followed`, or the `Player` of a recording."""

    async def at(self, moment: float | None) -> Followed:
        """The cluster at a moment. ReadingError."""

    def span(self, moment: float | None) -> dict[str, Any] | None:
        """Between which moments one can be chosen; None if there is only now."""


class Dashboard:
    """Answers requests. shown: a cluster, a dump or a recording; door: access control; notes: messages from reading it."""

    def __init__(self, shown: Shown, door: Door, *, notes: tuple[str, ...] = ()) -> None:
        self._shown = shown
        self._door = door
        self._notes = notes
        self._assets: Mapping[str, Asset] = read_assets()
        self._streams = 0
        self._pages: dict[str, Callable[[Followed, Request], Awaitable[Response]]] = {
            "/api/about": self._about,
            "/api/stream": self._stream,
            "/api/graph": self._graph,
            "/api/object": self._object,
            "/api/search": self._search,
            "/api/timeline": self._timeline,
            "/api/holdings": self._holdings,
            "/api/autoscaler": self._autoscaler,
        }

    async def answer(self, request: Request) -> Response:
        """For `http1.requests.serving`: adds security headers to every answer."""
        try:
            found = await self._answer(request)
        except HttpError as error:
            found = _json({"error": str(error)}, status=error.code)
        return msgspec.structs.replace(found, headers={**SECURITY_HEADERS, **found.headers})

    async def _answer(self, request: Request) -> Response:
        self._door.check(request)
        path = request.path
        if path == "/login":
            if request.method != "POST":
                raise HttpError(405, "a token is exchanged by POST")
            return Response(b"{}", JSON, headers={**_NO_STORE, "Set-Cookie": self._door.exchange(request)})
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, f"{request.method}: nothing can be written here")
        if path in self._assets:
            return _sent(self._assets[path], request)
        if not path.startswith("/api/"):
            raise HttpError(404, "unknown page")
        self._door.check_data(request)
        try:
            followed = await self._shown.at(_moment(request))
        except ReadingError as error:
            raise HttpError(500, error.message) from None
        if path in self._pages:
            return await self._pages[path](followed, request)
        if path.startswith("/api/rows/"):
            return await self._rows(followed, path.removeprefix("/api/rows/"))
        if path.startswith("/api/ask/"):
            return await self._ask(followed, path.removeprefix("/api/ask/"), request)
        raise HttpError(404, "unknown question")

    # --- rows and changes ---

    async def _about(self, followed: Followed, request: Request) -> Response:
        model = followed.model
        unread = sorted(kind.plural for kind in KINDS if kind.type in model.what_if.unread)
        return _json(
            {
                "title": followed.title,
                "origin": followed.origin,
                "live": followed.is_live,
                "takenAt": model.what_if.taken_at,
                "version": __version__,
                "notes": self._notes,
                "unread": unread,
                "kinds": sorted(BY_KIND),
                "span": self._shown.span(_moment(request)),
                **_now(followed),
            }
        )

    async def _rows(self, followed: Followed, name: str) -> Response:
        table = followed.model.tables.get(name)
        if table is None:
            raise HttpError(404, f"table {name[:50]!r}: expected one of {', '.join(followed.model.tables)}")
        body = b'{"revision":%d,"rows":%s}' % (followed.model.revision, table.all_rows())
        return await _packed(body)

    async def _stream(self, followed: Followed, request: Request) -> Response:
        names = [name for name in request.get("tables").split(",") if name]
        unknown = [name for name in names if name not in followed.model.tables]
        since = request.header("last-event-id") or request.get("since") or "0"
        if unknown or not (since.isascii() and since.isdigit() and len(since) < 16):
            raise HttpError(400, "expected tables that there are, and since as a revision")
        if self._streams >= STREAMS_MAX:
            raise HttpError(503, f"{STREAMS_MAX} pages are open already")
        return Response(
            self._changes(followed, names, int(since), lambda: self._door.has_session(request)),
            "text/event-stream",
            headers=_NO_STORE,
        )

    async def _changes(
        self, followed: Followed, names: list[str], since: int, is_in: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[bytes]:
        """is_in: whether the browser may see more. Sessions end while pages are open."""
        self._streams += 1
        try:
            model, told = followed.model, b""
            yield b"retry: 1000\n\n"
            while is_in():
                news = followed.next_news
                parts: list[bytes] = []
                reset: list[str] = []
                for name in names:
                    rows = model.tables[name].since(since)
                    if rows is None or since > model.revision:
                        reset.append(name)
                    elif rows:
                        parts.append(msgspec.json.encode(name) + b":" + rows)
                since = model.revision
                head = msgspec.json.encode({**_now(followed), "reset": reset})
                if parts or head != told:
                    told = head
                    yield b'id: %d\ndata: {"now":%s,"tables":{%s}}\n\n' % (since, head, b",".join(parts))
                else:
                    yield b": still here\n\n"
                await wait_for_news(news, HEARTBEAT_S)
        finally:
            self._streams -= 1

    # --- answers ---

    async def _ask(self, followed: Followed, name: str, request: Request) -> Response:
        if name not in QUESTIONS:
            raise HttpError(404, f"question {name[:50]!r}: expected one of {', '.join(QUESTIONS)}")
        arguments = {key: value for key, value in request.query if key not in ("fresh", _MOMENT)}
        analysis = followed.analysis
        known = analysis.known(name, arguments)
        try:
            found = known if known is not None and not request.flag("fresh") else await analysis.ask(name, arguments)
        except TooMany as error:
            raise HttpError(503, str(error)) from None
        fresh = b"true" if analysis.is_fresh(found) else b"false"
        return await _packed(b'{"fresh":%s,"at":%s,%s' % (fresh, msgspec.json.encode(found.at), found.data[1:]))

    async def _graph(self, followed: Followed, request: Request) -> Response:
        graph = Graph(followed.model.what_if, followed.model.named_by)
        kind, namespace, name = (request.get(key) for key in ("kind", "ns", "name"))
        found = False
        if kind == "Pod":
            found = graph.pod(namespace, name)
        elif kind == "ResourceClaim":
            found = graph.claim(namespace, name)
        elif kind == "Device":
            found = graph.device(_device_id(name))
        elif kind == "ResourceSlice":
            found = graph.slice(name)
        elif kind == "Node":
            found = graph.node(name)
        else:
            raise HttpError(400, f"kind {kind[:50]!r}: expected Pod, ResourceClaim, Device, ResourceSlice or Node")
        if not found:
            raise HttpError(404, f"{kind} {name[:300]}: not found")
        return _json(graph.value())

    async def _object(self, followed: Followed, request: Request) -> Response:
        name, namespace = request.get("name"), request.get("ns")
        if request.get("kind") == "Device":
            return _json({"tree": _device(followed.model.what_if, name)})
        kind = _kind(request)
        try:
            written = await followed.read(kind, namespace if kind.namespaced else "", name)
        except Unknown as error:
            raise HttpError(404, str(error)) from None
        except ValueError as error:
            raise HttpError(400, str(error)) from None
        return await _packed(
            msgspec.json.encode(
                {
                    "yaml": yaml_text(written),
                    "events": followed.model.events_about(kind.name, namespace, name),
                    "tree": msgspec.to_builtins(_tree(followed.model.what_if, kind, namespace, name)),
                }
            )
        )

    async def _search(self, followed: Followed, request: Request) -> Response:
        text = request.get("q").strip().lower()
        if not text:
            return _json({"found": []})
        model = followed.model
        kinds = (("Node", "nodes"), ("Pod", "pods"), ("ResourceClaim", "claims"), ("Gang", "gangs"))
        found = [(kind, key, "") for kind, table in kinds for key in model.tables[table] if text in key.lower()]
        found += [("Device", name, node) for name, node in model.device_names() if text in name.lower()]
        # Names that begin with the search text come first.
        found.sort(key=lambda each: (not each[1].rpartition("/")[2].lower().startswith(text), len(each[1]), each))
        rows = [{"kind": kind, "name": name, "node": node} for kind, name, node in found[:_FOUND_MAX]]
        return _json({"found": rows, "more": max(0, len(found) - _FOUND_MAX)})

    async def _timeline(self, followed: Followed, _request: Request) -> Response:
        what_if = followed.model.what_if
        samples = followed.timeline.samples(followed.clock.seconds() if followed.is_live else 0.0)
        past = [each for each in held_before(what_if.claims.claims()) if samples and each[0] < samples[0].at]
        return await _packed(
            msgspec.json.encode({"samples": samples, "past": past, "marks": pod_marks(what_if.all(Pod), _MARKS_MAX)})
        )

    async def _holdings(self, followed: Followed, request: Request) -> Response:
        """Who held which of the devices whose names or nodes have all of these words."""
        words = request.get("q").lower().split()
        nodes = dict(followed.model.device_parts())
        held = followed.holdings.devices()
        # Those first of which there is something to see.
        known = sorted({*nodes, *held}, key=lambda each: (each not in held, in_order(each)))
        named = ((device, f"{device} {nodes.get(device, '')}".lower()) for device in known)
        found = [device for device, text in named if all(word in text for word in words)]
        rows = [{**row, "node": nodes.get(row["device"], "")} for row in followed.holdings.rows(found)]
        return await _packed(msgspec.json.encode({"rows": rows, "more": max(0, len(found) - len(rows))}))

    async def _autoscaler(self, followed: Followed, _request: Request) -> Response:
        return _json({"status": await followed.autoscaler_status()})


def _now(followed: Followed) -> dict[str, Any]:
    model = followed.model
    return {
        "revision": model.revision,
        "decisive": model.decisive,
        "stale": followed.stale,
        "counts": model.counts(),
    }


def _moment(request: Request) -> float | None:
    """The moment of a recording that is asked for."""
    text = request.get(_MOMENT)
    if not text:
        return None
    if not _SECONDS.fullmatch(text):
        raise HttpError(400, f"{_MOMENT} is {text[:50]!r}: expected seconds since 1970")
    return float(text)


def _tree(what_if: WhatIfCluster, kind: SnapshotKind, namespace: str, name: str) -> Branch | None:
    if kind.type is Pod:
        pod = what_if.get(Pod, name, namespace)
        return pod_tree(what_if, pod) if pod is not None else None
    if kind.type is ResourceClaim:
        claim = what_if.claims.claim(namespace, name)
        return claim_tree(what_if, claim) if claim is not None else None
    if kind.name == "Node":
        return node_tree(what_if, name)
    return None


def _device(what_if: WhatIfCluster, name: str) -> Any:
    id_ = _device_id(name)
    for entry in what_if.claims.inventory.devices_named(id_):
        for pool in published_pools(what_if):
            if (pool.id.driver, pool.id.pool) == (id_.driver, id_.pool):
                tree = msgspec.to_builtins(device_tree(what_if, pool, entry))
                attributes = {key: msgspec.to_builtins(each) for key, each in entry.attributes.items()}
                capacity = {key: str(each.value) for key, each in entry.capacity.items()}
                return {**tree, "attributes": attributes, "capacity": capacity, "slice": entry.slice.metadata.name}
    raise HttpError(404, f"device {name[:300]}: not found")


def _kind(request: Request) -> SnapshotKind:
    name, group = request.get("kind"), request.get("group")
    if group:
        found = next((kind for kind in KINDS if (kind.name, kind.group) == (name, group)), None)
    else:
        found = BY_KIND.get(name)
    if found is None:
        raise HttpError(404, f"kind {name[:50]!r}: not among those that the dashboard reads")
    return found


def _device_id(name: str) -> DeviceID:
    driver, _, rest = name.partition("/")
    pool, _, device = rest.rpartition("/")
    return DeviceID(driver, pool, device)


def _json(value: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), JSON, status, _NO_STORE)


async def _packed(body: bytes) -> Response:
    """JSON, compressed if it is long: all browsers take that."""
    if len(body) < _COMPRESSED_FROM:
        return Response(body, JSON, headers=_NO_STORE)
    data = await asyncio.to_thread(gzip.compress, body, 1)
    return Response(data, JSON, headers={**_NO_STORE, "Content-Encoding": "gzip"})


def _sent(asset: Asset, request: Request) -> Response:
    headers = {"Cache-Control": "no-cache", "ETag": asset.tag, "Vary": "Accept-Encoding"}
    if request.header("if-none-match") == asset.tag:
        return Response(b"", asset.content_type, 304, headers)
    if "gzip" in request.header("accept-encoding"):
        return Response(asset.compressed, asset.content_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(asset.data, asset.content_type, headers=headers)
