"""The dashboard of a large cluster in a real browser: the first page, updates, and what the server needs. Asserts nothing.

    python benchmarks/dashboard_pages.py [--quick] [--profile]

5,000 nodes with 8 devices each and 10,000 pods, half of which have a claim with two devices (--quick: a tenth). An API server with these
objects, the dashboard and Chromium are separate processes, as they are for display. --profile: where the server's time goes in the
rows of the first page and in an update, without a browser.
"""

from __future__ import annotations

import asyncio
import cProfile
import multiprocessing
import os
import pstats
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from allot.apiserver.assembly import Settings, running
from allot.client.kubeconfig import connection_from_environment
from allot.core.advice.snapshot import KINDS, Snapshot, read_object
from allot.dashboard.links import read_link
from allot.dashboard.model import Model
from allot.process.interpreter import settle, tune
from allot.reading.listener import Notes
from allot.reading.live import watching
from allot.store.memory import MemoryStore
from dashboard import scene  # type: ignore[import-not-found]
from dashboard.browser import Browser, Page, chromium, find_chromium  # type: ignore[import-not-found]

QUICK = "--quick" in sys.argv
NODES = 500 if QUICK else 5_000
DEVICES = 8
PODS = NODES * 2
CLAIMS = PODS // 2
VISITS, ROUNDS = 4, 5
SIZES = (100, min(1000, CLAIMS))
# The tile that counts claims without devices.
PENDING = "document.querySelector('.tiles li:nth-child(6) strong')"
PLURALS = {kind.name: kind.plural for kind in reversed(KINDS)}
Object = dict[str, Any]


# --- the cluster ---


def claim(number: int, *, held: bool) -> Object:
    """On one node each, so that a change of it is a change of a node; two devices, or none yet."""
    node, pair = number % NODES, number // NODES
    devices = (f"gpu-{pair * 2}", f"gpu-{pair * 2 + 1}") if held else ()
    found: Object = scene.claim(
        f"team-{number % 7}", f"train-{number}", count=2, on=f"node-{node}" if held else "", devices=devices
    )
    return found


def objects() -> Iterator[Object]:
    """All of it."""
    yield scene.device_class(scene.DRIVER)
    for number in range(NODES):
        yield scene.node(number)
        devices = [scene.device(number, each) for each in range(DEVICES)]
        yield scene.slice_(f"node-{number}", devices, nodeName=f"node-{number}")
    for number in range(PODS):
        namespace, name = f"team-{number % 7}", f"train-{number}"
        if number < CLAIMS:
            yield claim(number, held=True)
            yield scene.pod(namespace, name, on=f"node-{number % NODES}")
        else:
            yield scene.pod(namespace, name, claims=(), on=f"node-{number % NODES}")


def serve(folder: Path, told: Any, asked: Any) -> None:
    """An API server; takes (how many, held) and changes so many claims, until it is told None."""

    async def run() -> None:
        store = MemoryStore()
        async with running(Settings(directory=folder / "pki", port=0), store) as live:
            registry = live.server.context.registry
            for each in objects():
                group, _, version = each["apiVersion"].rpartition("/")
                row = registry.find(group, version, PLURALS[each["kind"]])
                assert row is not None
                metadata = each["metadata"]
                await store.create(row.key(metadata.get("namespace", ""), metadata["name"]), each)
            row = registry.find("resource.k8s.io", "v1", "resourceclaims")
            assert row is not None
            live.access.write_admin_kubeconfig(folder / "kubeconfig", live.url)
            told.put(live.url)
            while (order := await asyncio.to_thread(asked.get)) is not None:
                count, held = order
                for number in range(count):
                    new = claim(number, held=held)
                    key = row.key(new["metadata"]["namespace"], new["metadata"]["name"])
                    entry = await store.get(key)
                    assert entry is not None
                    await store.update(key, new, entry.revision)
                told.put("done")

    tune()
    uvloop.run(run())


@contextmanager
def api_server(folder: Path) -> Iterator[Callable[[int, bool], None]]:
    """Runs until the block ends; changes claims."""
    context = multiprocessing.get_context("spawn")
    told, asked = context.Queue(), context.Queue()
    process = context.Process(target=serve, args=(folder, told, asked))
    process.start()

    def change(count: int, held: bool) -> None:
        asked.put((count, held))
        told.get(timeout=60)

    try:
        told.get(timeout=120)
        yield change
    finally:
        asked.put(None)
        process.join(30)


# --- processes ---


def memory(process: int) -> float:
    """MiB that a process has."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def used(process: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch_only(kubeconfig: Path, told: Any, asked: Any) -> None:
    """What the dashboard has of the cluster before it makes anything of it: the objects of all its kinds, kept up to date."""

    async def run() -> None:
        connection = connection_from_environment({}, kubeconfig=kubeconfig)
        async with watching(connection, Notes(), KINDS, lambda _change: None, user_agent="bench"):
            settle()
            told.put(memory(os.getpid()))
            await asyncio.to_thread(asked.get)

    tune()
    uvloop.run(run())


def memory_of_cache(kubeconfig: Path) -> float:
    """MiB of such a process."""
    context = multiprocessing.get_context("spawn")
    told, asked = context.Queue(), context.Queue()
    process = context.Process(target=watch_only, args=(kubeconfig, told, asked))
    process.start()
    try:
        found: float = told.get(timeout=120)
        return found
    finally:
        asked.put(None)
        process.join(30)


@contextmanager
def dashboard(folder: Path) -> Iterator[tuple[int, Callable[[], str]]]:
    """The command, as people start it: its process, and where to find the next link."""
    link = folder / "link"
    command = [
        sys.executable,
        "-m",
        "allot",
        "dashboard",
        "--kubeconfig",
        str(folder / "kubeconfig"),
        "--link-file",
        str(link),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while not read_link(link):
            assert process.poll() is None, "the dashboard has ended"
            time.sleep(0.02)
        yield process.pid, lambda: read_link(link)
    finally:
        process.terminate()
        process.wait()


# --- measuring ---


def report(what: str, values: list[float], unit: str) -> None:
    """The least and the most of some measurements."""
    shown = f"{min(values):.0f}" if max(values) - min(values) < 0.5 else f"{min(values):.0f} to {max(values):.0f}"
    print(f"{what:<58} {shown} {unit}", flush=True)


def busy(page: Page) -> float:
    """Milliseconds of processor time of the page's thread."""
    metrics = {each["name"]: each["value"] for each in page.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"]) * 1000


def first_pages(browser: Browser, server: int, link: Callable[[], str]) -> None:
    """Visitors, one after the other, each with an empty cache."""
    shown, worked, served = [], [], []
    for _ in range(VISITS):
        with browser.page() as page:
            page.send("Performance.enable", {"timeDomain": "threadTicks"})
            before = used(server)
            page.go(link())
            page.until("performance.getEntriesByName('shown').length", "the first page")
            shown.append(float(page.evaluate("performance.getEntriesByName('shown')[0].startTime")))
            worked.append(busy(page))
            served.append((used(server) - before) * 1000)
    report("first page, from the link to the last pixel", shown, "ms")
    report("  the browser's thread of the page", worked, "ms")
    report("  the server's processor time", served, "ms")


def updates(browser: Browser, server: int, link: Callable[[], str], change: Callable[[int, bool], None]) -> None:
    """So many claims at once: the dashboard stands still while they are written, and then has all of them."""
    with browser.page() as page:
        page.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.go(link())
        page.until("document.documentElement.dataset.revision", "the stream")
        for size in SIZES:
            took, worked, served = [], [], []
            for round_ in range(ROUNDS * 2):
                before, began = busy(page), used(server)
                os.kill(server, signal.SIGSTOP)
                change(size, bool(round_ % 2))
                os.kill(server, signal.SIGCONT)
                shown = "0" if round_ % 2 else f"{size:,}"
                page.until(f"{PENDING}.textContent === {shown!r}", "an update")
                page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
                took.append(float(page.evaluate("document.documentElement.dataset.update")))
                worked.append(busy(page) - before)
                served.append((used(server) - began) * 1000)
            report(f"update of {size:,} claims in the browser", took, "ms")
            report("  with drawing", worked, "ms")
            report("  the server's processor time", served, "ms")


def profile() -> None:
    """Without processes: the model, its rows, and 1,000 changes."""

    def key(each: Any) -> tuple[type, str, str]:
        return each.__class__, each.metadata.namespace, each.metadata.name

    known = {key(each): each for each in map(read_object, objects())}
    profiler = cProfile.Profile()

    def timed(what: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        profiler.enable()
        found = work()
        profiler.disable()
        print(f"{what:<58} {(time.process_time() - began) * 1000:.0f} ms of processor time")
        pstats.Stats(profiler).sort_stats("tottime").print_stats(12)
        profiler.clear()
        return found

    model = timed("the model", lambda: Model(Snapshot(tuple(known.values()), time.time())))
    timed("rows of nodes", lambda: model.tables["nodes"].all_rows())
    new = [read_object(claim(number, held=False)) for number in range(1000)]
    changes = [(known[key(each)], each) for each in new]

    def apply() -> None:
        model.apply(changes)
        model.refresh()

    timed("1,000 claims", apply)


def main() -> None:
    """All of it."""
    if "--profile" in sys.argv:
        profile()
        return
    assert find_chromium() is not None, "no Chromium: apt-get install chromium, or ALLOT_CHROMIUM=/path/to/it"
    print(
        f"{NODES:,} nodes, {NODES * DEVICES:,} devices, {PODS:,} pods, {CLAIMS:,} claims; load {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory() as name, api_server(Path(name)) as change:
        cache = memory_of_cache(Path(name) / "kubeconfig")
        with dashboard(Path(name)) as (server, link), chromium() as browser:
            report("start, processor time", [used(server) * 1000], "ms")
            report("objects of the cluster alone, in a process", [cache], "MiB")
            report("the dashboard, before the first visitor", [memory(server)], "MiB")
            first_pages(browser, server, link)
            updates(browser, server, link, change)
            report("the dashboard, at the end", [memory(server)], "MiB")
            report("beyond the objects", [memory(server) - cache], "MiB")


if __name__ == "__main__":
    main()
