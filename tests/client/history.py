"""A small API server for one resource that can do what real ones and their networks do: break watches, forget history, go
away and come back, lose everything. It speaks real HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from client.peer import status_answer

PATH = "/api/v1/configmaps"


class HistoryServer:
    """configmaps, kept in memory with their history."""

    def __init__(self, *, has_watch_list: bool = True) -> None:
        self.has_watch_list = has_watch_list
        self.revision = self.compacted = 1_000_000
        self._losses = 0
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.port = 0
        self.lists = 0
        self.watches = 0
        # What the next watches say instead of changes.
        self.errors: list[dict[str, Any]] = []
        self._changed = asyncio.Event()
        self._open: list[asyncio.Transport] = []
        self._runner: web.AppRunner | None = None
        self._uids = 0
        self._is_stopping = False

    # --- life ---

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get(PATH, self._get)
        self._is_stopping = False
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        assert self._runner is not None
        for site in tuple(self._runner.sites):
            await site.stop()
        # Connections that are being accepted get known to the runner first; it would forget to close them.
        await asyncio.sleep(0.002)
        self.cut()
        self._is_stopping = True
        self._wake()
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # --- the world ---

    def put(self, name: str) -> None:
        self.revision += 1
        old = self.objects.get(name)
        if old is None:
            self._uids += 1
        uid = old["metadata"]["uid"] if old else f"uid-{self._uids}-{id(self)}"
        metadata = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(self.revision)}
        self.objects[name] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self._note("MODIFIED" if old else "ADDED", self.objects[name])

    def delete(self, name: str) -> None:
        old = self.objects.pop(name, None)
        if old is None:
            return
        self.revision += 1
        self._note("DELETED", {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.revision)}})

    def cut(self) -> None:
        """Break all connections of watches, perhaps in the middle of an event."""
        for transport in self._open:
            transport.abort()
        self._open.clear()

    def compact(self) -> None:
        """Forget history; watches that are behind are told."""
        self.compacted = self.revision
        self.history.clear()
        self.cut()

    def lose_everything(self) -> None:
        """As a server whose store was replaced by an older one: nothing there, revisions lower than all of before."""
        self.objects.clear()
        self.history.clear()
        self._losses += 1
        self.revision = self.compacted = 1_000_000 - 1000 * self._losses
        self.cut()

    def _note(self, type_: str, object_: dict[str, Any]) -> None:
        self.history.append((self.revision, type_, object_))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- answers ---

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request)
        self.lists += 1
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMapList",
            "metadata": {"resourceVersion": str(self.revision)},
            "items": list(self.objects.values()),
        }
        return web.json_response(body)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        streams = "sendInitialEvents" in request.query
        if streams and not self.has_watch_list:
            return status_answer(422, "Invalid", "sendInitialEvents is forbidden for watch")
        after = self.revision if streams else int(request.query["resourceVersion"])
        if after > self.revision:
            return status_answer(504, "Timeout", "Too large resource version")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        assert request.transport is not None
        self._open.append(request.transport)
        self.watches += 1
        try:
            if streams:
                await self._send_initial(response)
            await self._send_changes(response, after)
        except ConnectionError:
            pass
        return response

    async def _send_initial(self, response: web.StreamResponse) -> None:
        revision = self.revision
        for object_ in tuple(self.objects.values()):
            await _send(response, "ADDED", object_)
        marks = {"resourceVersion": str(revision), "annotations": {"k8s.io/initial-events-end": "true"}}
        await _send(response, "BOOKMARK", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": marks})

    async def _send_changes(self, response: web.StreamResponse, after: int) -> None:
        while not self._is_stopping:
            if self.errors:
                await _send(response, "ERROR", self.errors.pop(0))
                return
            if after < self.compacted:
                gone = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired", "message": "too old"}
                await _send(response, "ERROR", gone)
                return
            changed = self._changed
            for revision, type_, object_ in tuple(self.history):
                if revision > after:
                    await _send(response, type_, object_)
                    after = revision
            if self.revision <= after:
                await changed.wait()


async def _send(response: web.StreamResponse, type_: str, object_: dict[str, Any]) -> None:
    await response.write(json.dumps({"type": type_, "object": object_}).encode() + b"\n")
