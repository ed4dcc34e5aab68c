"""How fast `allot apiserver` is as a command, seen from outside: durable writes, lists, watches, memory, start-up. Asserts nothing.

    .venv/bin/python benchmarks/apiserver_command.py [--memory] [--objects 100000] [--writes 6000]

The server runs in a separate process, so that it has a core to itself; the client does as little as possible for a request.
Objects are kept in SQLite on a real disk unless --memory is given. Beside wall time, which everything else on the machine
disturbs, stands the processor time of the server alone. `apiserver.py` measures what is behind HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvloop
import yaml

CLIENTS = 16
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def row(name: str, value: str, note: str = "") -> None:
    """One line of the table."""
    print(f"| {name:<44} | {value:>14} | {note:<64} |", flush=True)


# --- objects ---


def pod(name: str, namespace: str = "default") -> dict[str, Any]:
    """A pod as a job's controller makes it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "training", "tier": "worker"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/training:v1",
                    "args": ["--steps", "1000"],
                    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "claims": [{"name": "gpu"}]},
                }
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        },
    }


def claim(name: str, namespace: str = "default") -> dict[str, Any]:
    """A claim for one device."""
    request = {
        "name": "gpu",
        "exactly": {
            "deviceClassName": "gpu.example.com",
            "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
        },
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": [request]}},
    }


class Kind(NamedTuple):
    """What is written."""

    plural: str
    group: str
    version: str
    make: Callable[[str], dict[str, Any]]

    @property
    def path(self) -> str:
        start = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{start}/namespaces/default/{self.plural}"


PODS = Kind("pods", "", "v1", pod)
CLAIMS = Kind("resourceclaims", "resource.k8s.io", "v1", claim)


# --- a server in a separate process ---


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], kubeconfig: Path) -> None:
        self._process = process
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
        self.port = int(port)
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.context = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as file:
            file.write(base64.b64decode(user["client-certificate-data"]))
            file.write(base64.b64decode(user["client-key-data"]))
            file.flush()
            self.context.load_cert_chain(file.name)

    def processor_s(self) -> float:
        """Processor time that it has used so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """Memory that it uses now."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def server_process(folder: Path, *, memory: bool) -> Iterator[Server]:
    """Start a server and wait until it is ready."""
    kubeconfig, log = folder / "kubeconfig", folder / "server.log"
    command = [sys.executable, "-m", "allot", "apiserver", "--port", "0", "--data-dir", str(folder / "data")]
    command += ["--kubeconfig", str(kubeconfig), *(["--memory"] if memory else [])]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        while b"ready: " not in log.read_bytes():
            if process.poll() is not None:
                raise RuntimeError(f"the server did not start: {log.read_text()}")
            time.sleep(0.005)
        yield Server(process, kubeconfig)
    finally:
        process.terminate()
        process.wait()


class Connection:
    """One keep-alive connection; as little work as possible, so that the server is what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Server) -> None:
        self._reader = reader
        self._writer = writer
        self._host = f"{server.host}:{server.port}"

    async def request(self, method: str, path: str, body: bytes = b"", accept: str = "application/json") -> bytes:
        """The body of the answer, which must be a success."""
        await self.send(method, path, body, accept)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
        data = await self._reader.readexactly(length)
        if not lines[0].startswith("http/1.1 2"):
            raise RuntimeError(f"{method} {path}: {lines[0]} {data[:500]!r}")
        return data

    async def send(self, method: str, path: str, body: bytes = b"", accept: str = "application/json") -> None:
        """A request whose answer is read elsewhere."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: {accept}\r\nUser-Agent: bench\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def lines(self) -> AsyncIterator[bytes]:
        """The events of a watch: one chunk each."""
        await self._reader.readuntil(b"\r\n\r\n")
        while size := int(await self._reader.readline(), 16):
            chunk = await self._reader.readexactly(size + 2)
            for line in chunk[:-2].split(b"\n"):
                if line:
                    yield line

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connections(server: Server, count: int) -> AsyncIterator[list[Connection]]:
    """Open connections."""
    opened = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(server.host, server.port, ssl=server.context, limit=2**24)
        opened.append(Connection(reader, writer, server))
    try:
        yield opened
    finally:
        for each in opened:
            each.close()


# --- writes ---


async def shared_out(count: int, workers: list[Callable[[int], Awaitable[None]]]) -> float:
    """Seconds that it takes the workers to do the numbers below count."""
    numbers = iter(range(count))

    async def work(do: Callable[[int], Awaitable[None]]) -> None:
        for number in numbers:
            await do(number)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for each in workers:
            tasks.create_task(work(each))
    return time.perf_counter() - began


async def http_writes(server: Server, kind: Kind, count: int, label: str) -> None:
    """Creates, then updates of the same objects."""
    bodies = [msgspec.json.encode(kind.make(f"{label}-{number}")) for number in range(count)]
    stored: dict[int, bytes] = {}
    async with connections(server, CLIENTS) as clients:

        def creating(client: Connection) -> Callable[[int], Awaitable[None]]:
            async def create(number: int) -> None:
                stored[number] = await client.request("POST", kind.path, bodies[number])

            return create

        def updating(client: Connection) -> Callable[[int], Awaitable[None]]:
            async def update(number: int) -> None:
                await client.request("PUT", f"{kind.path}/{label}-{number}", changed[number])

            return update

        before = server.processor_s()
        wall_s = await shared_out(count, [creating(client) for client in clients])
        writes_row(f"HTTPS, {CLIENTS} clients, creates of {kind.plural}", count, wall_s, server.processor_s() - before)
        changed = [labelled(stored[number]) for number in range(count)]
        before = server.processor_s()
        wall_s = await shared_out(count, [updating(client) for client in clients])
        writes_row(f"HTTPS, {CLIENTS} clients, updates of {kind.plural}", count, wall_s, server.processor_s() - before)


def labelled(encoded: bytes) -> bytes:
    """The same object with another label."""
    object_ = msgspec.json.decode(encoded)
    object_["metadata"]["labels"] = {**object_["metadata"].get("labels", {}), "changed": "yes"}
    return msgspec.json.encode(object_)


def writes_row(name: str, count: int, wall_s: float, processor_s: float) -> None:
    each_us = processor_s / count * 1e6
    row(
        name,
        f"{count / wall_s:,.0f}/s",
        f"server: {each_us:.0f} us processor each, {processor_s / wall_s:.0%} of a core",
    )


# --- reads and watches ---


async def http_lists(server: Server, expected: int) -> None:
    """A list of all pods, as JSON and as kubectl's table; the best of three."""
    async with connections(server, 1) as (client,):
        for name, accept in (("JSON", "application/json"), ("Table", TABLE)):
            times = []
            for _ in range(3):
                before, began = server.processor_s(), time.perf_counter()
                data = await client.request("GET", PODS.path, accept=accept)
                times.append((time.perf_counter() - began, server.processor_s() - before))
            decoded = msgspec.json.decode(data)
            found = len(decoded["items"] if name == "JSON" else decoded["rows"])
            wall_s, processor_s = min(times)
            note = f"{len(data) / 1e6:.1f} MB, server: {processor_s * 1e3:.0f} ms processor"
            row(f"HTTPS, list of {found:,} of {expected:,} pods, {name}", f"{wall_s * 1e3:.0f} ms", note)


async def http_watchers(server: Server, watchers: int, count: int) -> None:
    """100 writes/s, each to all watchers: how long after the write was sent every watcher has it."""
    late: list[float] = []
    asked: dict[str, float] = {}
    marker = b'"name":"watched-'

    async def follow(client: Connection) -> None:
        seen = 0
        async for line in client.lines():
            at = line.find(marker)
            if at < 0:
                continue
            name = line[at + 8 : line.index(b'"', at + 8)].decode()
            late.append(time.perf_counter() - asked[name])
            seen += 1
            if seen == count:
                return

    async with connections(server, watchers) as clients, connections(server, 1) as (writer,):
        newest = msgspec.json.decode(await writer.request("GET", PODS.path + "?limit=1"))["metadata"]["resourceVersion"]
        for client in clients:
            await client.send("GET", f"{PODS.path}?watch=true&resourceVersion={newest}")
        before = server.processor_s()
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(follow(client))
            await asyncio.sleep(0.5)
            began = time.perf_counter()
            for number in range(count):
                asked[f"watched-{number}"] = time.perf_counter()
                await writer.request("POST", PODS.path, msgspec.json.encode(pod(f"watched-{number}")))
                await asyncio.sleep(max(0.0, began + (number + 1) / 100 - time.perf_counter()))
            rate = count / (time.perf_counter() - began)
        used = server.processor_s() - before
    late.sort()
    assert len(late) == watchers * count
    p50, p99 = late[len(late) // 2] * 1e3, late[int(len(late) * 0.99)] * 1e3
    note = f"p50 {p50:.1f} ms, server: {used / len(late) * 1e6:.0f} us processor an event"
    row(f"HTTPS, {watchers} watchers of {rate:.0f} writes/s, p99", f"{p99:.1f} ms", note)


# --- everything ---


def start_up(folder: Path, what: str, *, memory: bool) -> None:
    """How long from the command to readiness."""
    began = time.perf_counter()
    with server_process(folder, memory=memory) as server:
        wall_s = time.perf_counter() - began
        row(f"start-up to ready, {what}", f"{wall_s:.2f} s", f"{server.processor_s():.2f} s processor")


async def fill(server: Server, objects: int, have: int) -> None:
    """Pods until there are so many."""
    async with connections(server, CLIENTS) as clients:

        def filling(client: Connection) -> Callable[[int], Awaitable[None]]:
            async def create(number: int) -> None:
                await client.request("POST", PODS.path, msgspec.json.encode(pod(f"fill-{have + number}")))

            return create

        await shared_out(objects - have, [filling(client) for client in clients])


def over_http(folder: Path, options: argparse.Namespace) -> None:
    """All that is measured from outside."""
    memory, count = options.memory, options.writes
    start_up(folder, "first start", memory=memory)
    start_up(folder, "second start", memory=memory)
    with server_process(folder, memory=memory) as server:
        # Once for what is made when first needed.
        uvloop.run(fill(server, 200, 0))
        uvloop.run(http_writes(server, PODS, count, "pod"))
        uvloop.run(http_writes(server, CLAIMS, count, "claim"))
        uvloop.run(fill(server, 10_000, count + 200))
        uvloop.run(http_lists(server, 10_000))
        uvloop.run(http_watchers(server, 200, 300))
        if options.objects:
            # What the measurements before have made: pods, claims, and what was watched.
            have, before = 10_000 + count + 300, server.resident_mib()
            uvloop.run(fill(server, options.objects, have))
            note = f"{before:,.0f} MiB with {have:,}"
            row(f"memory, {options.objects:,} objects", f"{server.resident_mib():,.0f} MiB", note)
    if options.objects and not memory:
        start_up(folder, f"{options.objects:,} objects", memory=memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true", help="keep objects in memory instead of SQLite")
    parser.add_argument("--objects", type=int, default=100_000, help="for the measurement of memory; 0 leaves it out")
    parser.add_argument("--writes", type=int, default=6_000, help="how many creates and updates; at most 9,000")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    with tempfile.TemporaryDirectory(dir=".", prefix="apiserver-bench-") as folder:
        over_http(Path(folder), options)
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
