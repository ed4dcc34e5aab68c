"""Unpreparing: always possible, whatever was there, and nothing is left."""

from __future__ import annotations

from allot.driver.conformance.bench import Bench, expect
from allot.driver.conformance.kit import Checks
from allot.driver.conformance.kubelet import ClaimRef

CHECKS = Checks("unprepare")
check = CHECKS.check
ROUNDS = 10


@check("the claim's CDI files are removed")
async def _(bench: Bench) -> None:
    before = bench.cdi_files()
    claim = await bench.claim(await bench.independent(1))
    await bench.prepared(claim)
    await bench.unprepared(claim)
    expect(bench.cdi_files() == before, f"left behind: {sorted(bench.cdi_files() - before)}")


@check("it can be repeated")
async def _(bench: Bench) -> None:
    claim = await bench.claim(await bench.independent(1))
    await bench.prepared(claim)
    await bench.unprepared(claim)
    await bench.unprepared(claim)


@check("a claim that was never prepared is unprepared")
async def _(bench: Bench) -> None:
    await bench.unprepared(await bench.claim(await bench.independent(1)))


@check("an unknown claim is unprepared")
async def _(bench: Bench) -> None:
    await bench.unprepared(ClaimRef("default", "unknown", "00000000-0000-4000-8000-000000000001"))


@check("names that are not valid have no effect")
async def _(bench: Bench) -> None:
    for uid in ("../../../escape", "a" * 5000, "\u00e9"):
        await bench.kubelet.unprepare([ClaimRef("..", "../x", uid)])
    expect(bench.running.is_running, "the driver ended")


@check("a claim whose object is gone is unprepared")
async def _(bench: Bench) -> None:
    before = bench.cdi_files()
    claim = await bench.claim(await bench.independent(1))
    await bench.prepared(claim)
    await bench.delete(claim)
    await bench.unprepared(claim)
    expect(bench.cdi_files() == before, f"left behind: {sorted(bench.cdi_files() - before)}")


@check("several claims in one call")
async def _(bench: Bench) -> None:
    claims = [await bench.claim([device]) for device in await bench.independent(2)]
    await bench.kubelet.prepare(claims)
    errors = [error for error in (await bench.kubelet.unprepare(claims)).values() if error]
    expect(not errors, errors[0] if errors else "")


@check("afterwards the claim can be prepared again")
async def _(bench: Bench) -> None:
    claim = await bench.claim(await bench.independent(1))
    first = await bench.prepared(claim)
    await bench.unprepared(claim)
    second = await bench.prepared(claim)
    names = [[device.device for device in entry.devices] for entry in (first, second)]
    expect(names[0] == names[1], f"first {names[0]}, then {names[1]}")


@check("ten rounds leave no file and no device behind")
async def _(bench: Bench) -> None:
    files, devices = _files(bench), len(await bench.devices())
    for _ in range(ROUNDS):
        claim = await bench.claim(await bench.independent(1))
        await bench.prepared(claim)
        await bench.unprepared(claim)
        await bench.delete(claim)
    expect(_files(bench) == files, f"left behind: {sorted(_files(bench) - files)}")
    now = len(await bench.devices())
    expect(now == devices, f"{devices} devices before, {now} after")


def _files(bench: Bench) -> set[str]:
    return {str(path) for folder in (bench.data, bench.cdi) for path in folder.rglob("*") if path.is_file()}
