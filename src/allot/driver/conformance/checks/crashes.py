"""Crashes: the driver is killed before, in the middle of and after its work, and the machine is started again."""

from __future__ import annotations

import asyncio

from allot.driver.conformance.bench import Bench, Skipped, expect
from allot.driver.conformance.kit import Checks
from allot.driver.conformance.kubelet import KubeletError

CHECKS = Checks("crashes")
check = CHECKS.check
# When to kill the driver after a call is sent.
DELAYS_S = (0.0, 0.001, 0.002, 0.004, 0.008)


@check("killed after a claim was prepared, it gives the same answer")
async def _(bench: Bench) -> None:
    claim = await bench.claim(await bench.independent(1))
    before = await bench.prepared(claim)
    await bench.restart()
    after = await bench.prepared(claim)
    expect(before == after, f"before {before}, after {after}")


@check("killed after a claim was prepared, it can unprepare it")
async def _(bench: Bench) -> None:
    files = bench.cdi_files()
    claim = await bench.claim(await bench.independent(1))
    await bench.prepared(claim)
    await bench.restart()
    await bench.delete(claim)
    await bench.unprepared(claim)
    expect(bench.cdi_files() == files, f"left behind: {sorted(bench.cdi_files() - files)}")


@check("killed after a claim was prepared, it still guards the device")
async def _(bench: Bench) -> None:
    devices = await bench.independent(1)
    if any(device.device.allow_multiple_allocations for device in devices):
        raise Skipped("devices of this driver can be shared")
    first = await bench.claim(devices)
    await bench.prepared(first)
    await bench.restart()
    await bench.release(first)
    await bench.refused(await bench.claim(devices), "for a device that is prepared for another one")


@check("killed while it prepares, it can do it again")
async def _(bench: Bench) -> None:
    for delay in DELAYS_S:
        claim = await bench.claim(await bench.independent(1))
        await _killed_during(bench, bench.kubelet.prepare([claim]), delay)
        await bench.start()
        await bench.prepared(claim)
        await bench.unprepared(claim)
        await bench.delete(claim)


@check("killed while it prepares, it can undo it and leaves nothing")
async def _(bench: Bench) -> None:
    files = bench.cdi_files()
    for delay in DELAYS_S:
        claim = await bench.claim(await bench.independent(1))
        await _killed_during(bench, bench.kubelet.prepare([claim]), delay)
        await bench.start()
        await bench.delete(claim)
        await bench.unprepared(claim)
        expect(bench.cdi_files() == files, f"left behind: {sorted(bench.cdi_files() - files)}")


@check("killed while it unprepares, it can finish it and leaves nothing")
async def _(bench: Bench) -> None:
    files = bench.cdi_files()
    for delay in DELAYS_S:
        claim = await bench.claim(await bench.independent(1))
        await bench.prepared(claim)
        await _killed_during(bench, bench.kubelet.unprepare([claim]), delay)
        await bench.start()
        await bench.unprepared(claim)
        await bench.delete(claim)
        expect(bench.cdi_files() == files, f"left behind: {sorted(bench.cdi_files() - files)}")


@check("a CDI file that was lost is written again")
async def _(bench: Bench) -> None:
    before = bench.cdi_files()
    claim = await bench.claim(await bench.independent(1))
    await bench.prepared(claim)
    written = bench.cdi_files()
    for name in written - before:
        if "_metadata_" not in name:
            (bench.cdi / name).unlink()
    await bench.prepared(claim)
    expect(bench.cdi_files() == written, f"not written again: {sorted(written - bench.cdi_files())}")


@check("CDI files of claims that it does not know are removed at start")
async def _(bench: Bench) -> None:
    orphan = f"{bench.driver.cdi_kind.replace('/', '-')}_{'0' * 8}-0000-4000-8000-{'0' * 12}.json"
    (bench.cdi / orphan).write_text("{}")
    other = "other.example.com-claim_1.json"
    (bench.cdi / other).write_text("{}")
    await bench.restart()
    files = {path.name for path in bench.cdi.iterdir()}
    (bench.cdi / other).unlink()
    expect(orphan not in files, f"{orphan} is still there")
    expect(other in files, f"{other} belongs to another driver and was removed")


@check("after a reboot nothing is prepared, and everything can be prepared again")
async def _(bench: Bench) -> None:
    files = bench.cdi_files()
    claim = await bench.claim(await bench.independent(1))
    before = await bench.prepared(claim)
    await bench.kill()
    bench.boot_id_file.write_text(f"boot-after-{claim.uid}\n")
    await bench.start()
    expect(bench.cdi_files() == files, f"left from the boot before: {sorted(bench.cdi_files() - files)}")
    after = await bench.prepared(claim)
    names = [[device.device for device in entry.devices] for entry in (before, after)]
    expect(names[0] == names[1], f"before {names[0]}, after {names[1]}")


@check("a damaged checkpoint does not end it, and the claim can be unprepared")
async def _(bench: Bench) -> None:
    claim = await bench.claim(await bench.independent(1))
    await bench.prepared(claim)
    await bench.kill()
    for path in bench.data.rglob(f"*{claim.uid}*.json"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    await bench.start()
    await bench.unprepared(claim)
    await bench.prepared(claim)


async def _killed_during(bench: Bench, call: object, delay: float) -> None:
    assert asyncio.iscoroutine(call)
    task = asyncio.ensure_future(call)
    await asyncio.sleep(delay)
    await bench.kill()
    try:
        await task
    except (KubeletError, asyncio.CancelledError):
        pass
