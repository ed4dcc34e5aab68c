"""How fast the stores are on this machine: writes, lists, watches, memory, start-up. Prints a table; nothing here is asserted.

    .venv/bin/python benchmarks/store.py [memory] [sqlite] [etcd] [--etcd http://127.0.0.1:2379] [--objects 100000]

Wall time counts for what waits for the disk or the network; processor time (all threads of this process) is printed beside it, and
disturbed least by other load. The SQLite file is made in a temporary folder of the present directory, so that it is on a real disk.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from allot.store.etcd import EtcdStore
from allot.store.etcd_client import EtcdOptions
from allot.store.memory import MemoryStore
from allot.store.port import Entry, Event, Store, Watch
from allot.store.sqlite import SqliteStore

PADDING = "x" * 520


def pod(number: int) -> dict[str, Any]:
    """A pod of about 1 kB as JSON."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "default",
            "uid": f"6f1d0c1e-0000-4000-8000-{number:012}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "training", "tier": "worker", "index": str(number)},
        },
        "spec": {
            "containers": [{"name": "main", "image": "registry.example/training:v1", "args": ["--index", str(number)]}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
            "schedulerName": "default-scheduler",
            "priority": 0,
        },
        "status": {"phase": "Pending", "message": PADDING},
    }


def received(number: int) -> dict[str, Any]:
    """A pod as a server gets it: decoded from a body, no string shared with another."""
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pod(number)))
    return decoded


def key(number: int) -> str:
    return f"/registry/pods/default/pod-{number}"


def row(name: str, value: str, note: str = "") -> None:
    """One line of the table."""
    print(f"| {name:<44} | {value:>22} | {note:<50} |", flush=True)


def resident_mib() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


class Stopwatch:
    """Wall and processor seconds since it was made."""

    def __init__(self) -> None:
        gc.collect()
        self._wall = time.perf_counter()
        self._processor = time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.process_time() - self._processor


async def measured_writes(name: str, write: Callable[[int], Awaitable[Entry]], writers: int, count: int) -> list[Entry]:
    """Write numbers below count from several tasks."""
    numbers = iter(range(count))
    done: list[Entry] = []

    async def work() -> None:
        for number in numbers:
            done.append(await write(number))

    watch = Stopwatch()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(writers):
            tasks.create_task(work())
    wall_s, processor_s = watch.read()
    note = f"{processor_s / count * 1e6:.0f} us processor each, {wall_s:.2f} s in all"
    row(f"{name}, {writers} writer{'s' * (writers > 1)}", f"{count / wall_s:,.0f}/s", note)
    return done


async def writes(store: Store, count: int) -> None:
    """Creates and updates, from one task and from 16."""
    await measured_writes("creates", lambda n: store.create(f"/registry/single/{n}", pod(n)), 1, count // 10)
    created = await measured_writes("creates", lambda n: store.create(key(n), pod(n)), 16, count)
    by_number = {int(entry.key.rpartition("-")[2]): entry.revision for entry in created}
    await measured_writes("updates", lambda n: store.update(key(n), pod(n), by_number[n]), 16, count)


async def lists(store: Store, expected: int) -> None:
    """All of them, and in pages of 500, as entries and as JSON."""
    for name, limit in (("list", 0), ("list in pages of 500", 500)):
        watch = Stopwatch()
        page = await store.list("/registry/pods/", limit=limit)
        entries = list(page.entries)
        while page.continue_key:
            page = await store.list(
                "/registry/pods/", limit=limit, continue_key=page.continue_key, revision=page.revision
            )
            entries += page.entries
        text = b",".join([entry.encoded for entry in entries])
        wall_s, processor_s = watch.read()
        assert len(entries) == expected
        row(
            f"{name}, {expected:,} objects",
            f"{wall_s * 1e3:.1f} ms",
            f"{len(text) / 1e6:.1f} MB of JSON, {processor_s * 1e3:.0f} ms processor",
        )


async def fan_out(store: Store, watchers: int, count: int) -> None:
    """100 writes/s, each to all watchers; how long after the write was asked for the last watcher has it."""
    start = await store.revision()
    asked: dict[int, float] = {}
    late: list[float] = []

    async def follow(watch: Watch) -> None:
        seen = 0
        async for item in watch:
            if isinstance(item, Event):
                late.append(time.perf_counter() - asked[int(item.entry.key.rpartition("-")[2])])
                seen += 1
                if seen == count:
                    break
        await watch.close()

    stopwatch = Stopwatch()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(watchers):
            tasks.create_task(follow(store.watch("/registry/watched/", start)))
        for number in range(count):
            asked[number] = time.perf_counter()
            await store.create(f"/registry/watched/pod-{number}", pod(number))
            await asyncio.sleep(max(0.0, asked[0] + (number + 1) / 100 - time.perf_counter()))
    wall_s, processor_s = stopwatch.read()
    late.sort()
    p50, p99 = late[len(late) // 2] * 1e3, late[int(len(late) * 0.99)] * 1e3
    row(
        f"{watchers} watchers of {count / wall_s:.0f} writes/s, p99",
        f"{p99:.2f} ms",
        f"p50 {p50:.2f} ms, {processor_s / len(late) * 1e6:.1f} us processor an event",
    )


async def at_size(make: Callable[[], Store], objects: int, *, durable: bool) -> None:
    """Memory with many objects; start-up with them."""
    gc.collect()
    before = resident_mib()
    store = make()
    await store.open()
    for first in range(0, objects, 1000):
        numbers = range(first, min(first + 1000, objects))
        await asyncio.gather(*(store.create(key(number), received(number)) for number in numbers))
    gc.collect()
    row(f"memory, {objects:,} objects written", f"{resident_mib() - before:,.0f} MiB")
    await lists(store, objects)
    await store.close()
    if durable:
        del store
        gc.collect()
        watch = Stopwatch()
        store = make()
        await store.open()
        wall_s, processor_s = watch.read()
        row(f"start-up, {objects:,} objects", f"{wall_s:.2f} s", f"{processor_s:.2f} s processor")
        page = await store.list("/registry/pods/")
        watch = Stopwatch()
        spread = sum(len(entry.object) for entry in page.entries)
        wall_s, _ = watch.read()
        row(
            f"decode {objects:,} objects",
            f"{wall_s:.2f} s",
            f"{spread:,} fields; {resident_mib():,.0f} MiB resident afterwards",
        )
        await store.close()


async def run(name: str, etcd: str, objects: int) -> None:
    """All measurements of one store."""
    with tempfile.TemporaryDirectory(dir=".", prefix="store-bench-") as folder:
        prefix = f"/bench-{time.time_ns()}"

        def make(part: str) -> Store:
            if name == "sqlite":
                return SqliteStore(Path(folder) / f"{part}.db")
            if name == "etcd":
                return EtcdStore(EtcdOptions(servers=(etcd,), prefix=prefix + part))
            return MemoryStore()

        row(f"-- {name}", "")
        count = 5_000 if name == "etcd" else 20_000
        store = make("speed")
        await store.open()
        await writes(store, count)
        await fan_out(store, 200, 300)
        await store.close()
        store = make("list")
        await store.open()
        await asyncio.gather(*(store.create(key(number), pod(number)) for number in range(10_000)))
        await lists(store, 10_000)
        await store.close()
        del store
        if name != "etcd":
            await at_size(lambda: make("size"), objects, durable=name == "sqlite")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", metavar="store", help="memory, sqlite, etcd; default: the first two")
    parser.add_argument("--etcd", default="http://127.0.0.1:2379")
    parser.add_argument("--objects", type=int, default=100_000)
    options = parser.parse_args()
    options.stores = options.stores or ["memory", "sqlite"]
    if unknown := set(options.stores) - {"memory", "sqlite", "etcd"}:
        parser.error(f"no such store: {', '.join(sorted(unknown))}")
    if len(options.stores) > 1:
        # Each in a separate process: memory that one has freed would hide what the next one takes.
        for name in options.stores:
            arguments = [name, "--etcd", options.etcd, "--objects", str(options.objects)]
            subprocess.run([sys.executable, __file__, *arguments], check=True)
        return
    print(f"Python {sys.version.split()[0]}, uvloop; an object has {len(str(pod(1)))} characters\n")
    uvloop.run(run(options.stores[0], options.etcd, options.objects))


if __name__ == "__main__":
    main()
