"""Life of the process: clean ends, updates without a gap, endpoints for those who watch it."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

from allot.driver.conformance.bench import Bench, expect
from allot.driver.conformance.kit import Checks
from allot.driver.conformance.kubelet import find_sockets, registered
from allot.http1.exchanges import Place, connect

CHECKS = Checks("life")
check = CHECKS.check
_ANSWER_S = 10.0
_ANSWER_BYTES_MAX = 4 << 20
_PODS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")


@check("SIGTERM ends it with exit code 0, and its sockets are gone")
async def _(bench: Bench) -> None:
    code = await bench.stop()
    expect(code == 0, f"exit code {code}: {bench.running.last_words()}")
    left = [path.name for folder in (bench.registry, bench.data) for path in folder.glob("*.sock")]
    expect(not left, f"sockets left: {left}")


@check("after a clean end its slices stay")
async def _(bench: Bench) -> None:
    before = await bench.settled_slices()
    await bench.stop()
    after = await bench.slices()
    expect(len(after) == len(before), f"{len(before)} slices before, {len(after)} after")


@check("after a clean end a prepared claim stays prepared")
async def _(bench: Bench) -> None:
    claim = await bench.claim(await bench.independent(1))
    before = await bench.prepared(claim)
    files = bench.cdi_files()
    await bench.stop()
    expect(bench.cdi_files() == files, f"CDI files removed: {sorted(files - bench.cdi_files())}")
    await bench.start()
    expect(await bench.prepared(claim) == before, "another answer after the restart")


@check("two instances run side by side during an update, and claims change hands")
async def _(bench: Bench) -> None:
    await bench.stop()
    old, new = (bench.process("--pod-uid", pod) for pod in _PODS)
    try:
        await old.start()
        (first,) = await old.until_ready(bench.registry)
        claim = await bench.claim(await bench.independent(1))
        async with registered(first) as driver:
            before = (await driver.prepare([claim]))[claim.uid]
        expect(not before.error, before.error)
        await new.start()
        sockets = await new.until_ready(bench.registry, 2)
        expect(len(sockets) == 2, f"{len(sockets)} registration sockets")
        (second,) = [socket for socket in sockets if socket != first]
        async with registered(second) as driver:
            after = (await driver.prepare([claim]))[claim.uid]
            expect(after == before, f"the old one answers {before}, the new one {after}")
            expect(await old.stop() == 0, f"the old one failed to stop: {old.last_words()}")
            error = (await driver.unprepare([claim]))[claim.uid]
            expect(not error, error)
        expect(await find_sockets(bench.registry) == (second,), "the old one's socket is still there")
    finally:
        await old.kill()
        await new.kill()
        for path in bench.registry.glob("*.sock"):
            path.unlink()


@check("what one instance prepares the other sees at once")
async def _(bench: Bench) -> None:
    await bench.stop()
    old, new = (bench.process("--pod-uid", pod) for pod in _PODS)
    try:
        await old.start()
        (first,) = await old.until_ready(bench.registry)
        await new.start()
        (second,) = [socket for socket in await new.until_ready(bench.registry, 2) if socket != first]
        async with registered(first) as one, registered(second) as other:
            devices = await bench.independent(1)
            claim = await bench.claim(devices)
            expect(not (await one.prepare([claim]))[claim.uid].error, "the old one does not prepare")
            if not any(device.device.allow_multiple_allocations for device in devices):
                await bench.release(claim)
                rival = await bench.claim(devices)
                error = (await other.prepare([rival]))[rival.uid].error
                expect(bool(error), "the new one prepared a device that the old one holds")
            expect(not (await other.unprepare([claim]))[claim.uid], "the new one does not unprepare")
    finally:
        await old.kill()
        await new.kill()
        for path in bench.registry.glob("*.sock"):
            path.unlink()


@check("/healthz and /metrics answer")
async def _(bench: Bench) -> None:
    await bench.restart("--port", "0")
    words = bench.running.last_words()
    match = re.search(r"http://\S+", words)
    expect(match is not None, f"no address of /healthz in its log: {words!r}")
    assert match is not None
    status, text = await _answer(match[0], "/healthz")
    expect(status == 200, f"/healthz: {status} {text}")
    status, text = await _answer(match[0], "/metrics")
    expect(status == 200 and "# TYPE" in text, f"/metrics: {status}")
    await bench.restart()


async def _answer(url: str, path: str) -> tuple[int, str]:
    """The status and text at an address of the driver."""
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    async with asyncio.timeout(_ANSWER_S):
        exchange = await connect(Place(host, port))
        try:
            status = await exchange.ask(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            return status, (await exchange.whole(_ANSWER_BYTES_MAX)).decode()
        finally:
            exchange.close()
