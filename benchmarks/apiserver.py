"""Measures the API server: durable writes over HTTP and in process, large lists, many watchers, memory, start-up.

    python benchmarks/apiserver.py [--quick]

The server runs in a separate process for HTTP, so that clients do not share its core; everything else is measured in this
process. Numbers depend on the machine: compare runs on the same one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pod_writes
import uvloop

from allot.apiserver.access.certificates import ADMIN
from allot.apiserver.assembly import Running, Settings, running
from allot.apiserver.request import ApiRequest, User
from allot.process.interpreter import tune
from allot.store.port import Store
from allot.store.sqlite import SqliteStore

CLIENTS = 16
WATCHERS = 200
ADMIN_USER = User("admin", groups=("system:masters",))
QUICK = "--quick" in sys.argv

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "train-", "labels": {"app": "train", "team": "vision"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/train:1.2",
                "command": ["python", "train.py", "--epochs", "3"],
                "env": [{"name": "MODE", "value": "fast"}],
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "claims": [{"name": "gpu"}]},
            }
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}],
    },
}
CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"generateName": "claim-"},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
}
MAP: dict[str, Any] = {"metadata": {"generateName": "map-"}, "data": {"key": "x" * 800}}
KINDS = {
    "pods": ("", "v1", "pods", POD),
    "claims": ("resource.k8s.io", "v1", "resourceclaims", CLAIM),
    "config maps": ("", "v1", "configmaps", MAP),
}


def settings(folder: Path) -> Settings:
    """A server on a free port."""
    return Settings(directory=folder / "pki", port=0)


async def rate(count: int, work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """Calls per second by all clients together, and microseconds of this process per call."""

    async def client() -> None:
        for _ in range(count // CLIENTS):
            await work()

    began, used = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(client())
    return count / (time.perf_counter() - began), (time.process_time() - used) / count * 1e6


def report(what: str, value: str) -> None:
    """One line."""
    print(f"{what:<58} {value}", flush=True)


# --- in process ---


async def in_process(folder: Path) -> None:
    """Writes without HTTP, lists, memory."""
    began = time.perf_counter()
    store: Store = SqliteStore(folder / "state.db")
    async with running(settings(folder), store) as live:
        report("start-up to ready, empty", f"{(time.perf_counter() - began) * 1000:.0f} ms")
        await asyncio.sleep(0.3)
        for name, (group, version, plural, body) in KINDS.items():
            request = ApiRequest(
                user=ADMIN_USER,
                verb="create",
                group=group,
                version=version,
                resource=plural,
                namespace="default",
                body=body,
            )
            await rate(160, lambda request=request: live.server.handle(request))  # type: ignore[misc]
            per_second, used = await rate(
                1600 if QUICK else 8000,
                lambda request=request: live.server.handle(request),  # type: ignore[misc]
            )
            report(f"in process, durable creates of {name}", f"{per_second:,.0f}/s ({used:.0f} µs of processor each)")
        await updates(live)
        await listing(live)
    began = time.perf_counter()
    async with running(settings(folder), SqliteStore(folder / "state.db")):
        report("start-up to ready, with these objects", f"{(time.perf_counter() - began) * 1000:.0f} ms")


async def updates(live: Running) -> None:
    """Status patches of many pods."""
    store = live.server.context.store
    page = await store.list("/registry/pods/default/", limit=CLIENTS)
    names = [entry.object["metadata"]["name"] for entry in page.entries]
    counter = iter(range(10**9))

    async def patch() -> None:
        number = next(counter)
        body = {"status": {"message": f"step {number}"}}
        await live.server.handle(
            ApiRequest(
                user=ADMIN_USER,
                verb="patch",
                group="",
                version="v1",
                resource="pods",
                namespace="default",
                name=names[number % CLIENTS],
                subresource="status",
                body=body,
                content_type="application/merge-patch+json",
            )
        )

    per_second, used = await rate(1600 if QUICK else 4000, patch)
    report("in process, durable status patches of pods", f"{per_second:,.0f}/s ({used:.0f} µs of processor each)")


async def listing(live: Running) -> None:
    """A list of 10,000 pods as bytes."""
    from allot.apiserver.request import ApiList
    from allot.apiserver.serving.negotiation import Format
    from allot.apiserver.serving.responses import Encoder

    request = ApiRequest(user=ADMIN_USER, verb="list", group="", version="v1", resource="pods", namespace="default")
    served = live.server.context.registry.find("", "v1", "pods")
    assert served is not None
    encoder = Encoder(Format(), live.server.context.clock)
    for attempt in ("first", "again"):
        began = time.perf_counter()
        answer = await live.server.handle(request)
        assert isinstance(answer, ApiList)
        body = b"".join(await encoder.list(answer, served))
        took = (time.perf_counter() - began) * 1000
        report(f"list of {len(answer.entries):,} pods ({attempt}), {len(body) / 2**20:.1f} MiB", f"{took:.0f} ms")


# --- over HTTP ---


def serve(folder: Path, ready: Any, stop: Any) -> None:
    """A server in a separate process."""

    async def run() -> None:
        async with running(settings(folder), SqliteStore(folder / "state.db")) as live:
            live.access.certificates.client("admin", ADMIN)
            ready.put(live.url)
            while not stop.is_set():
                await asyncio.sleep(0.2)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        ready.put((usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime))

    tune()
    uvloop.run(run())


def session(folder: Path) -> aiohttp.ClientSession:
    """An administrator's session."""
    pki = folder / "pki"
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=0))


def used_by(process: int) -> float:
    """Seconds of processor that another process has used; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def over_http(folder: Path, url: str, server: int) -> None:
    """Writes, lists and watches by HTTPS. server: the process."""
    async with session(folder) as client:
        for name, (group, version, plural, body) in KINDS.items():
            root = f"/apis/{group}/{version}" if group else f"/api/{version}"
            data = msgspec.json.encode(body)
            address = f"{url}{root}/namespaces/default/{plural}"

            async def post(address: str = address, data: bytes = data) -> None:
                async with client.post(address, data=data, headers={"Content-Type": "application/json"}) as response:
                    assert response.status == 201, await response.text()
                    await response.read()

            await rate(160, post)
            count, began = 1600 if QUICK else 8000, used_by(server)
            per_second, _ = await rate(count, post)
            used = (used_by(server) - began) / count * 1e6
            shown = f"{per_second:,.0f}/s ({used:.0f} µs of the server's processor each)"
            report(f"HTTPS, {CLIENTS} clients, durable creates of {name}", shown)
        began = time.perf_counter()
        async with client.get(f"{url}/api/v1/namespaces/default/pods") as response:
            listed = await response.read()
        report(f"HTTPS, list of pods, {len(listed) / 2**20:.1f} MiB", f"{(time.perf_counter() - began) * 1000:.0f} ms")
        await watching(client, url)


async def watching(client: aiohttp.ClientSession, url: str) -> None:
    """How long after a write its watchers know."""
    writes, every_s = (100, 0.01) if QUICK else (500, 0.01)
    address = f"{url}/api/v1/namespaces/kube-public/configmaps"
    async with client.get(address) as response:
        version = msgspec.json.decode(await response.read())["metadata"]["resourceVersion"]
    sent: dict[str, float] = {}
    delays: list[float] = []

    async def follow() -> None:
        async with client.get(f"{address}?watch=true&resourceVersion={version}") as response:
            seen = 0
            async for line in response.content:
                name = line.split(b'"name":"', 1)[1].split(b'"', 1)[0].decode()
                delays.append(time.perf_counter() - sent[name])
                seen += 1
                if seen == writes:
                    return

    async with asyncio.TaskGroup() as tasks:
        for _ in range(WATCHERS):
            tasks.create_task(follow())
        await asyncio.sleep(2)
        for number in range(writes):
            name = f"w{number}"
            sent[name] = time.perf_counter()
            data = msgspec.json.encode({"metadata": {"name": name}})
            async with client.post(address, data=data, headers={"Content-Type": "application/json"}) as response:
                assert response.status == 201, await response.text()
            await asyncio.sleep(max(0.0, every_s - (time.perf_counter() - sent[name])))
    delays.sort()
    middle, late = delays[len(delays) // 2] * 1000, delays[int(len(delays) * 0.99)] * 1000
    report(f"{WATCHERS} watchers, {1 / every_s:.0f} writes/s: delay p50, p99", f"{middle:.1f} ms, {late:.1f} ms")


def main() -> None:
    """All of it."""
    tune()
    with tempfile.TemporaryDirectory() as name:
        uvloop.run(in_process(Path(name)))
    with tempfile.TemporaryDirectory() as name:
        pod_writes.report(uvloop.run(pod_writes.measure(Path(name), 1000 if QUICK else 4000)))
    with tempfile.TemporaryDirectory() as name:
        context = multiprocessing.get_context("spawn")
        ready, stop = context.Queue(), context.Event()
        server = context.Process(target=serve, args=(Path(name), ready, stop))
        server.start()
        try:
            uvloop.run(over_http(Path(name), ready.get(timeout=30), server.pid or 0))
        finally:
            stop.set()
            memory, used = ready.get(timeout=30)
            server.join(30)
        report("the server's memory and processor time in all", f"{memory:,.0f} MiB, {used:.1f} s")


if __name__ == "__main__":
    main()
