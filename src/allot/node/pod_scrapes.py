"""Scrapes the Prometheus endpoints of pods on this node, by the usual annotations:

    prometheus.io/scrape: "true"
    prometheus.io/port: "8000"       default: the first port that a container names
    prometheus.io/path: "/metrics"
    prometheus.io/scheme: "http"     or https; the certificate is not verified

Connections use the runtime's port-forward, so they can only reach the pod itself, whatever address it has or
claims. Redirects are not followed. Time, size, number of samples and scrape frequency are limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from allot.core.metrics.declared_usage import METRICS
from allot.core.metrics.exposition import Exposition, Sample, parse
from allot.core.metrics.series import told_by_pod
from allot.http1.heads import BadHead, parse_answer_head
from allot.node.metric_problems import MetricProblems, Record
from allot.node.runtimes.port import Runtime, RuntimeFailure, Streams
from allot.node.tls_streams import TlsFailed, tls_exchange
from allot.process.clock import Clock

SCRAPE = "prometheus.io/scrape"
PORT = "prometheus.io/port"
PATH = "prometheus.io/path"
SCHEME = "prometheus.io/scheme"
TIMEOUT_S = 3.0
# For all pods together, so that the agent answers in time. Skipped pods come first next time.
ALL_S = 7.0
BYTES_MAX = 1024 * 1024
SAMPLES_MAX = 2_000
SAMPLES_OF_ALL_MAX = 100_000
AT_ONCE = 16
# More frequent requests get the cached result.
KEPT_S = 5.0
# A program may need a moment before it listens.
_LOOKS = 2
# The cluster's own pods, which may report for others (exporters).
_TRUSTED = "kube-system"

Object = Mapping[str, Any]


class ScrapeFailed(Exception):
    """Why a pod's endpoint has no metrics."""


class SandboxOf(Protocol):
    """Finds a pod's sandbox."""

    async def __call__(self, uid: str) -> str:
        """The id of its sandbox; empty if none is ready."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint of a pod."""

    uid: str
    namespace: str
    name: str
    port: int
    path: str
    is_tls: bool = False


def target_of(pod: Object) -> Target | None:
    """What to scrape of a pod; None if it is not annotated or not running. ScrapeFailed for invalid annotations."""
    metadata = pod["metadata"]
    annotations = metadata.get("annotations") or {}
    # Declared metrics replace those that the program would serve.
    if (
        METRICS in annotations
        or annotations.get(SCRAPE) != "true"
        or (pod.get("status") or {}).get("phase") != "Running"
    ):
        return None
    scheme = annotations.get(SCHEME, "http").lower()
    if scheme not in ("http", "https"):
        raise ScrapeFailed(f'annotation {SCHEME}: "{scheme[:20]}": expected http or https')
    port, path = annotations.get(PORT, ""), annotations.get(PATH, "/metrics")
    if not port:
        named = [each for one in pod["spec"].get("containers") or () for each in one.get("ports") or ()]
        port = str(named[0].get("containerPort", "")) if named else ""
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 2**16):
        raise ScrapeFailed(f'annotation {PORT}: "{port[:20]}": expected a port, 1 to 65535')
    if not path.startswith("/") or len(path) > 2048 or not path.isascii() or not path.isprintable() or " " in path:
        raise ScrapeFailed(f'annotation {PATH}: "{path[:80]}": expected a path that starts with /')
    return Target(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        port=int(port),
        path=path,
        is_tls=scheme == "https",
    )


class PodScrapes:
    """Scrapes pods."""

    def __init__(self, runtime: Runtime, sandbox_of: SandboxOf, clock: Clock, record: Record) -> None:
        """record: takes problems with a pod's endpoint."""
        self._problems = MetricProblems(record, _LOOKS)
        self._runtime = runtime
        self._sandbox_of = sandbox_of
        self._clock = clock
        self._lock = asyncio.Lock()
        self._kept: tuple[float, Exposition] | None = None
        self._asked_at: dict[str, float] = {}

    async def scrape(self, pods: Sequence[Object]) -> Exposition:
        """The metrics of all annotated pods; those that fail twice are recorded."""
        async with self._lock:
            now = self._clock.monotonic()
            if self._kept is not None and now - self._kept[0] < KEPT_S:
                return self._kept[1]
            found = await self._scrape(pods)
            self._kept = (self._clock.monotonic(), found)
            return found

    async def _scrape(self, pods: Sequence[Object]) -> Exposition:
        failures: dict[str, str] = {}
        targets: list[Target] = []
        by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
        for pod in pods:
            try:
                target = target_of(pod)
            except ScrapeFailed as error:
                failures[pod["metadata"]["uid"]] = str(error)
                continue
            if target is not None:
                targets.append(target)
        targets.sort(key=lambda each: self._asked_at.get(each.uid, 0.0))
        limit = min(SAMPLES_MAX, SAMPLES_OF_ALL_MAX // max(len(targets), 1))
        found = await self._ask_all(targets, limit, failures)
        self._asked_at = {each.uid: self._asked_at[each.uid] for each in targets if each.uid in self._asked_at}
        self._problems.update({uid: (by_uid[uid], why) for uid, why in failures.items()})
        return Exposition(tuple(sample for each in targets for sample in found.get(each.uid, ())))

    async def _ask_all(
        self, targets: Sequence[Target], limit: int, failures: dict[str, str]
    ) -> Mapping[str, Sequence[Sample]]:
        """Metrics of pods, by uid. limit: samples per pod."""
        found: dict[str, Sequence[Sample]] = {}
        waiting = iter(targets)

        async def ask_in_turn() -> None:
            for target in waiting:
                self._asked_at[target.uid] = self._clock.monotonic()
                try:
                    text = await self._fetch(target)
                except (ScrapeFailed, TlsFailed, RuntimeFailure, OSError, TimeoutError) as error:
                    failures[target.uid] = str(error) or type(error).__name__
                    continue
                told = parse(text, samples_max=limit)
                trusted = target.namespace == _TRUSTED
                found[target.uid] = tuple(told_by_pod(told, target.namespace, target.name, trusted=trusted))
                if told.left_out:
                    failures[target.uid] = f"{told.left_out} lines are left out: invalid samples, or more than {limit}"

        try:
            async with asyncio.timeout(ALL_S), asyncio.TaskGroup() as tasks:
                for _ in range(min(AT_ONCE, len(targets))):
                    tasks.create_task(ask_in_turn())
        except TimeoutError:
            for target in targets:
                if target.uid not in found:
                    failures.setdefault(target.uid, f"no time: all pods together take longer than {ALL_S:g} s")
        return found

    async def _fetch(self, target: Target) -> str:
        sandbox = await self._sandbox_of(target.uid)
        if not sandbox:
            raise ScrapeFailed("it has no sandbox")
        async with asyncio.timeout(TIMEOUT_S):
            streams = await self._runtime.connect(sandbox, target.port)
            try:
                # HTTP/1.0: the response ends with the connection, and is not chunked.
                head = f"GET {target.path} HTTP/1.0\r\nHost: {target.name}\r\nAccept: text/plain\r\n\r\n"
                if target.is_tls:
                    answer = await tls_exchange(streams, head.encode(), BYTES_MAX)
                else:
                    await streams.write(head.encode())
                    answer = await _received(streams)
            finally:
                await streams.close()
        return _body(answer)


async def _received(streams: Streams) -> bytes:
    received = bytearray()
    async for kind, data in streams.output():
        if kind == 1:
            received += data
        if len(received) > BYTES_MAX:
            raise ScrapeFailed(f"more than {BYTES_MAX} bytes")
    return bytes(received)


def _body(answer: bytes) -> str:
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        raise ScrapeFailed("no answer")
    try:
        status, _ = parse_answer_head(head)
    except BadHead as error:
        raise ScrapeFailed(f"no HTTP: {error}") from error
    if status != 200:
        raise ScrapeFailed(f"answers with status {status}")
    return body.decode(errors="replace")
