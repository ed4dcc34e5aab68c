"""Scrapes the agents of all nodes every 15 seconds, new ones sooner: usage of nodes, pods and containers, and pods' own metrics.

Agents are contacted as for logs: with the server's own certificate, at addresses that `dialing` accepts. Nodes that share an endpoint
(simulated ones do) are scraped once. Answers are limited in time and size; a node that does not answer is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import msgspec

from allot.apiserver.errors import StatusError
from allot.apiserver.metricsapis.agent_endpoints import AgentEndpoints, Endpoint
from allot.apiserver.proxies.dialing import Dialler, Upstream
from allot.apiserver.server_context import ServerContext
from allot.core.metrics.exposition import Exposition, Sample, parse
from allot.core.metrics.pod_index import PodIndex
from allot.core.metrics.resource_usage import RESOLUTION_S, UsageBoard
from allot.core.metrics.series import SERIES_MAX, SeriesBoard
from allot.http1.answers import read_body, read_head
from allot.http1.heads import BadHead

_log = logging.getLogger("allot.apiserver")

_TIMEOUT_S = 10.0
_BYTES_MAX = 64 * 2**20
_AT_ONCE = 16
# The interval between scrapes of new agents, and how many there are: for longer than a cluster takes to start.
_PAUSE_S = 2.0
_TRIES_MAX = 15
_STEP = 500
# Larger texts are parsed outside the event loop.
_ASIDE_BYTES = 32 * 1024
_RESOURCE, _PODS = "/metrics/resource", "/metrics/pods"


class _Unanswered(Exception):
    """Why an agent did not answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    labels: Mapping[str, str] = {}


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Head(msgspec.Struct, frozen=True):
    """The parts of a pod that matter here."""

    metadata: _Metadata
    spec: _Spec = _Spec()


class Board:
    """The current metrics."""

    def __init__(self, resolution_s: float = RESOLUTION_S) -> None:
        self.resolution_s = resolution_s
        self.usage = UsageBoard(resolution_s)
        self.series = SeriesBoard()
        self.pods = PodIndex()
        # Labels by name.
        self.nodes: Mapping[str, Mapping[str, str]] = {}


class Scraper:
    """Keeps a board up to date: scrapes all agents in rounds, and new ones in between, so that they have metrics soon."""

    def __init__(self, context: ServerContext, dialler: Dialler, board: Board) -> None:
        self._context = context
        self._dialler = dialler
        self._board = board
        self._nodes = AgentEndpoints(context)
        # How often an agent was scraped since its set of nodes last changed.
        self._tries: dict[tuple[Endpoint, tuple[str, ...]], int] = {}
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        """Scrape until cancelled."""
        clock = self._context.clock
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.follow())
            next_round = clock.monotonic()
            while True:
                now = clock.monotonic()
                if now >= next_round:
                    await self.look()
                    next_round = now + self._board.resolution_s
                elif young := self._young():
                    await self._look(young)
                pause_s = min(_PAUSE_S, self._board.resolution_s)
                wait_s = max(next_round - clock.monotonic(), pause_s)
                await self._nodes.changed(clock, pause_s if self._young() else wait_s)

    async def look(self) -> None:
        """Scrape every agent once."""
        endpoints = self._nodes.endpoints()
        failures = await self._look(endpoints)
        present = [f"{host}:{port}" for host, port in endpoints]
        self._board.usage.keep(present)
        self._board.series.keep(present)
        self._tries = {each: self._tries[each] for each in endpoints.items() if each in self._tries}
        for name, why in failures.items():
            if self._told.get(name) != why:
                _log.warning("metrics of node %s: %s", name, why)
        self._told = failures

    def _young(self) -> Mapping[Endpoint, tuple[str, ...]]:
        """Agents that have not reported enough about a node yet. One that never does is scraped only in rounds."""
        return {
            endpoint: names
            for endpoint, names in self._nodes.endpoints().items()
            if self._tries.get((endpoint, names), 0) < _TRIES_MAX and not self._board.usage.knows(names)
        }

    async def _look(self, endpoints: Mapping[Endpoint, tuple[str, ...]]) -> dict[str, str]:
        """Scrape agents once; returns why some did not answer, by node name."""
        self._board.nodes = self._nodes.labels()
        if not endpoints:
            return {}
        self._board.pods = PodIndex(
            [
                (head.metadata.namespace, head.metadata.name, head.metadata.labels, head.spec.node_name)
                async for head in self._pods()
            ]
        )
        free = asyncio.Semaphore(_AT_ONCE)
        failures: dict[str, str] = {}

        async def ask(host: str, port: int, names: tuple[str, ...]) -> None:
            tried = ((host, port), names)
            self._tries[tried] = self._tries.get(tried, 0) + 1
            async with free:
                why = await self._ask(f"{host}:{port}", host, port, names)
            if why:
                failures[names[0]] = why

        async with asyncio.TaskGroup() as tasks:
            for (host, port), names in endpoints.items():
                tasks.create_task(ask(host, port, names))
        return failures

    async def _ask(self, key: str, host: str, port: int, names: Sequence[str]) -> str:
        """Scrape an agent; returns why it failed, or empty. An agent's data counts only for its nodes and their pods."""
        clock, of = self._context.clock, frozenset(names)
        try:
            told = await self._fetch(host, port, _RESOURCE)
            self._board.usage.put(key, names, self._own(told, of), clock.seconds())
            try:
                told = await self._fetch(host, port, _PODS)
            except _Unanswered as error:
                if error.status != 404:
                    raise
                return ""  # a kubelet
            left_out = self._board.series.put(key, tuple(self._own(told, of)), clock.seconds())
            if left_out:
                return f"{left_out} series of its pods are left out: expected at most {SERIES_MAX} of all nodes"
        except (_Unanswered, StatusError, OSError, TimeoutError) as error:
            return str(error) or type(error).__name__
        return ""

    def _own(self, told: Exposition, nodes: frozenset[str]) -> Iterator[Sample]:
        """The data about these nodes and the pods on them."""
        pods = self._board.pods
        for sample in told.samples:
            name = sample.labels.get("pod")
            if name is None or pods.node(sample.labels.get("namespace", ""), name) in nodes:
                yield sample

    async def _fetch(self, host: str, port: int, path: str) -> Exposition:
        upstream = Upstream(host=host, port=port, path=path, kubelet=True, tls=True)
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await self._dialler.connect(upstream)
            try:
                head = f"GET {path} HTTP/1.1\r\nHost: {upstream.place}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                status, body = await _read(reader)
            finally:
                writer.close()
        if status != 200:
            raise _Unanswered(f"{path}: status {status}: {body[:200].decode(errors='replace')}", status)
        text = body.decode(errors="replace")
        if len(body) < _ASIDE_BYTES:
            return parse(text, samples_max=SERIES_MAX)
        return await asyncio.to_thread(parse, text, samples_max=SERIES_MAX)

    async def _pods(self) -> AsyncIterator[_Head]:
        served = self._context.registry.find("", "v1", "pods")
        assert served is not None, "pods are served"
        entries = (await self._context.store.list(served.prefix(""))).entries
        for number, entry in enumerate(entries):
            if number % _STEP == 0:
                await asyncio.sleep(0)  # others get a turn
            yield msgspec.json.decode(entry.encoded, type=_Head)


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    try:
        status, headers = await read_head(reader)
        received = bytearray()
        async for piece in read_body(reader, headers):
            received += piece
            if len(received) > _BYTES_MAX:
                raise _Unanswered(f"more than {_BYTES_MAX} bytes")
    except (BadHead, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise _Unanswered(f"no HTTP: {error}") from error
    return status, bytes(received)
