"""Health: a stream that begins with everything and never falls silent."""

from __future__ import annotations

import asyncio
from typing import Any

from allot.driver.conformance.bench import NODE, Bench, Skipped, expect
from allot.driver.conformance.kit import Checks
from allot.driver.conformance.kubelet import KubeletError
from allot.driver.service import HEALTH_V1, HEALTH_V1ALPHA1

CHECKS = Checks("health")
check = CHECKS.check
_FIRST_S = 10.0
# Waiting longer for a second report is pointless.
_WAIT_MAX_S = 30.0


@check("a driver without health says so, one with health lists its versions")
async def _(bench: Bench) -> None:
    listed = [version for version in bench.kubelet.info.versions if "DRAResourceHealth" in version]
    if bench.driver.reports_health:
        expect(HEALTH_V1 in listed, f"versions {listed}, expected {HEALTH_V1}")
        return
    expect(not listed, f"lists {listed}, but reports no health")
    try:
        await _first(bench, HEALTH_V1)
    except KubeletError as error:
        expect("UNIMPLEMENTED" in str(error), f"answers {error}, expected Unimplemented")
        return
    expect(False, "sends reports, but does not list the service")


@check("the first report has the devices that are published")
async def _(bench: Bench) -> None:
    _needs_health(bench)
    report = await _first(bench, HEALTH_V1)
    told = {(each.device.pool_name, each.device.device_name) for each in report.devices}
    published = {(each.pool, each.device.name) for each in await bench.devices()}
    expect(bool(told) or not published, "the report is empty")
    expect(published <= told, f"not in the report: {sorted(published - told)[:3]}")


@check("reports have a time, a timeout and short messages")
async def _(bench: Bench) -> None:
    _needs_health(bench)
    for each in (await _first(bench, HEALTH_V1)).devices:
        expect(each.last_updated_time > 0, f"{each.device.device_name}: no time")
        expect(each.health_check_timeout_seconds > 0, f"{each.device.device_name}: no timeout")
        expect(len(each.message.encode()) <= 1024, f"{each.device.device_name}: message too long")
        expect(each.device.pool_name != "", f"{each.device.device_name}: no pool; expected {NODE} or another one")


@check("v1alpha1 reports the same")
async def _(bench: Bench) -> None:
    _needs_health(bench)
    if HEALTH_V1ALPHA1 not in bench.kubelet.info.versions:
        raise Skipped("the driver does not serve v1alpha1")
    newer, older = await _first(bench, HEALTH_V1), await _first(bench, HEALTH_V1ALPHA1)
    expect(len(newer.devices) == len(older.devices), f"v1 {len(newer.devices)}, v1alpha1 {len(older.devices)} devices")


@check("it reports again within the timeout although nothing changes")
async def _(bench: Bench) -> None:
    _needs_health(bench)
    timeout = min(bench.driver.health_timeout_s, _WAIT_MAX_S)
    async with bench.kubelet.health() as reports:
        try:
            async with asyncio.timeout(_FIRST_S + timeout):
                await anext(reports)
                await anext(reports)
        except TimeoutError:
            expect(False, f"no second report within {timeout:g} s")


@check("several streams at once are served")
async def _(bench: Bench) -> None:
    _needs_health(bench)
    reports = await asyncio.gather(*(_first(bench, HEALTH_V1) for _ in range(3)))
    expect(len({len(report.devices) for report in reports}) == 1, "the streams differ")


def _needs_health(bench: Bench) -> None:
    if not bench.driver.reports_health:
        raise Skipped("the driver does not report health")


async def _first(bench: Bench, version: str) -> Any:
    async with bench.kubelet.health(version) as reports:
        try:
            async with asyncio.timeout(_FIRST_S):
                return await anext(reports)
        except TimeoutError:
            raise KubeletError(f"no report within {_FIRST_S:g} s") from None
