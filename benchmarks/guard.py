"""The latency and memory of the guard on a large cluster.

    python benchmarks/guard.py [--quick]

`allot guard` as a separate process on an API server in memory with claims that hold a device each. Reviews of new allocations
come over TLS from a third process at a steady rate, and what is admitted is stored at that rate, so that the guard hears of it as in a
cluster; a fifth asks for a device that is taken. Two times: as the client
sees them, and inside the guard, without the way there and back.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvloop

from allot.apiserver.assembly import Running, Settings, running
from allot.controlplane.clients import client_of
from allot.controlplane.users import ADMINISTRATOR
from allot.store.memory import MemoryStore

QUICK = "--quick" in sys.argv
CLAIMS = 2_000 if QUICK else 50_000
PER_SECOND = 500
SECONDS = 3 if QUICK else 20
CONNECTIONS = 25
KEY = "/registry/resourceclaims/default"
DRIVER = "gpu.example.com"
CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
}


def claim(name: str, device: str = "") -> dict[str, Any]:
    """A claim that holds a device, or none."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    result = {"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": device}
    consumer = {"resource": "pods", "name": name, "uid": f"pod-{name}"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]} if device else {}
    return {**CLAIM, "metadata": metadata, "status": status}


def review(name: str, device: str, version: int) -> bytes:
    """What an API server asks."""
    old, new = claim(name), claim(name, device)
    for each in (old, new):
        each["metadata"]["resourceVersion"] = str(version)
    request = {
        "uid": f"review-{name}",
        "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
        "subResource": "status",
        "operation": "UPDATE",
        "name": name,
        "namespace": "default",
        "userInfo": {"username": "system:kube-scheduler"},
        "object": new,
        "oldObject": old,
        "dryRun": False,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def memory_mib(pid: int) -> float:
    """What is resident of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None, "every process has that"
    return int(found[1]) / 1024


def processor_s(pid: int) -> float:
    """What a process has used of the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def line(process: asyncio.subprocess.Process, start: str) -> str:
    """The rest of the next line that starts so."""
    assert process.stderr is not None, "it was asked for"
    while text := (await process.stderr.readline()).decode():
        if text.startswith(start):
            return text.removeprefix(start).strip()
    raise RuntimeError(f"the guard ended before it said {start!r}")


# --- the client ---


class Caller:
    """A connection that is kept."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        self._place = host, port, context
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> bytes:
        """The answer to a review."""
        host, port, context = self._place
        if self._streams is None:
            self._streams = await asyncio.open_connection(host, port, ssl=context)
        reader, writer = self._streams
        writer.write(b"POST /validate HTTP/1.1\r\nHost: guard\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert found is not None, head
        return await reader.readexactly(int(found[1]))


async def call(url: str, folder: Path) -> None:
    """Reviews at a steady rate; prints how long they took."""
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 443
    bodies = (folder / "reviews").read_bytes().splitlines()
    idle: asyncio.LifoQueue[Caller] = asyncio.LifoQueue()
    for _ in range(CONNECTIONS):
        caller = Caller(host, port, context)
        await caller.post(bodies[0].replace(b'"dryRun":false', b'"dryRun":true'))
        idle.put_nowait(caller)
    took: dict[bool, list[float]] = {True: [], False: []}
    begin = time.perf_counter() + 0.5

    async def ask(number: int) -> None:
        await asyncio.sleep(begin + number / PER_SECOND - time.perf_counter())
        started = time.perf_counter()
        caller = await idle.get()
        answer = msgspec.json.decode(await caller.post(bodies[number]))
        took[answer["response"]["allowed"]].append(time.perf_counter() - started)
        idle.put_nowait(caller)

    await asyncio.gather(*(ask(number) for number in range(len(bodies))))
    for is_allowed, times in took.items():
        told = "  ".join(f"p{p:g} {sorted(times)[int(len(times) * p / 100)] * 1e3:.2f} ms" for p in (50, 90, 99, 99.9))
        print(f"{'admitted' if is_allowed else 'refused'}: {len(times)}  {told}")


# --- the server ---


def is_taken(number: int) -> bool:
    """Whether a review asks for what another claim has."""
    return number % 5 == 0


async def prepare(store: MemoryStore, folder: Path) -> list[int]:
    """Claims that hold a device, and others that will ask for one; the versions of those."""
    for number in range(CLAIMS):
        await store.create(f"{KEY}/c{number}", claim(f"c{number}", f"gpu-{number}"))
    versions = [(await store.create(f"{KEY}/n{i}", claim(f"n{i}"))).revision for i in range(PER_SECOND * SECONDS)]
    bodies = [
        review(f"n{i}", f"gpu-{i % CLAIMS}" if is_taken(i) else f"new-{i}", version)
        for i, version in enumerate(versions)
    ]
    (folder / "reviews").write_bytes(b"\n".join(bodies))
    return versions


async def write(store: MemoryStore, versions: list[int]) -> None:
    """Store what is admitted, at the rate at which it is."""
    begin = time.perf_counter() + 1.5
    for number, version in enumerate(versions):
        if not is_taken(number):
            await asyncio.sleep(begin + number / PER_SECOND - time.perf_counter())
            await store.update(f"{KEY}/n{number}", claim(f"n{number}", f"new-{number}"), version)


def inside(metrics: str) -> str:
    """How many of the answers were made within which time, by decision."""
    told = []
    for decision in ("allowed", "refused"):
        rows = re.findall(rf'review_duration_seconds_bucket{{decision="{decision}",le="([^"]+)"}} (\S+)', metrics)
        total = float(rows[-1][1])
        shares = (f"{float(bound) * 1000:g} ms {float(n) / total:.2%}" for bound, n in rows if bound != "+Inf")
        told.append(f"{decision}: {', '.join(shares)}")
    return "\n  ".join(told)


async def measure(server: Running, store: MemoryStore, folder: Path, versions: list[int]) -> None:
    """One process of the guard."""
    kubeconfig = folder / "kubeconfig"
    server.access.write_admin_kubeconfig(kubeconfig, server.url)
    command = ["-m", "allot", "guard", "--install", "--kubeconfig", str(kubeconfig), "--webhook-port=0", "--port=0"]
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
    try:
        health = await line(process, "health and metrics: ")
        url = (await line(process, "deciding at ")).rpartition(":")[0]
        known = CLAIMS + len(versions)
        print(f"decides after {time.perf_counter() - started:.1f} s; {known} claims: {memory_mib(process.pid):.0f} MiB")
        configurations = client_of(server, ADMINISTRATOR).resource(
            "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
        )
        found = (await configurations.get("allot-guard"))["webhooks"][0]["clientConfig"]
        (folder / "ca.pem").write_bytes(base64.b64decode(found["caBundle"]))
        before = processor_s(process.pid)
        client = await asyncio.create_subprocess_exec(
            sys.executable, __file__, *sys.argv[1:], "--call", url, str(folder)
        )
        await asyncio.gather(client.wait(), write(store, versions))
        used = (processor_s(process.pid) - before) / len(versions)
        print(f"{PER_SECOND}/s for {SECONDS} s; processor of the guard: {used * 1e3:.3f} ms a review, watch included")
        with await asyncio.to_thread(urllib.request.urlopen, f"{health}/metrics") as response:
            print(f"inside the guard\n  {inside(response.read().decode())}\nthen {memory_mib(process.pid):.0f} MiB")
    finally:
        process.terminate()
        await process.wait()


async def main() -> None:
    """Make the claims, then measure."""
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name), MemoryStore()
        versions = await prepare(store, folder)
        async with running(Settings(directory=folder / "pki", port=0), store) as server:
            await measure(server, store, folder, versions)


if __name__ == "__main__":
    if "--call" in sys.argv:
        uvloop.run(call(sys.argv[-2], Path(sys.argv[-1])))
    else:
        uvloop.run(main())
