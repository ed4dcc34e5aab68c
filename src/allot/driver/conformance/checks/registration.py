"""Registration: the kubelet finds the driver, as often as it looks."""

from __future__ import annotations

from pathlib import Path

from allot.core.validation.names import check_driver_name
from allot.driver.conformance.bench import Bench, expect
from allot.driver.conformance.kit import Checks
from allot.driver.conformance.kubelet import check_info, find_sockets, get_info, notify, registered
from allot.driver.service import HEALTH_V1, HEALTH_V1ALPHA1, V1, V1BETA1

CHECKS = Checks("registration")
check = CHECKS.check
_KNOWN = (V1, V1BETA1, HEALTH_V1, HEALTH_V1ALPHA1)


@check("its name is a DNS name of at most 63 characters")
async def _(bench: Bench) -> None:
    problems = check_driver_name(bench.driver.name, "name")
    expect(not problems, f"{bench.driver.name!r}: {problems[0].error if problems else ''}")


@check("one registration socket appears")
async def _(bench: Bench) -> None:
    sockets = await find_sockets(bench.registry)
    expect(len(sockets) == 1, f"{len(sockets)} sockets in the registry folder")


@check("it reports its type and name within a second")
async def _(bench: Bench) -> None:
    (socket,) = await find_sockets(bench.registry)
    info = await get_info(socket)
    expect(not check_info(info), check_info(info))
    expect(info.name == bench.driver.name, f"registers as {info.name!r}, expected {bench.driver.name!r}")


@check("its endpoint is a socket with an absolute path")
async def _(bench: Bench) -> None:
    (socket,) = await find_sockets(bench.registry)
    endpoint = Path((await get_info(socket)).endpoint or socket)
    expect(endpoint.is_absolute(), f"endpoint {endpoint} is relative")
    expect(endpoint.is_socket(), f"endpoint {endpoint} is not a socket")


@check("it lists versions that the kubelet knows, v1 first")
async def _(bench: Bench) -> None:
    (socket,) = await find_sockets(bench.registry)
    versions = (await get_info(socket)).versions
    unknown = [version for version in versions if version not in _KNOWN]
    expect(not unknown, f"unknown versions {unknown}")
    expect(bool(versions) and versions[0] == V1, f"versions {list(versions)}, expected {V1} first")


@check("it can be registered again while it is registered")
async def _(bench: Bench) -> None:
    (socket,) = await find_sockets(bench.registry)
    async with registered(socket) as first, registered(socket) as second:
        await first.prepare([])
        await second.prepare([])


@check("it stays when the kubelet refuses it, and is registered later")
async def _(bench: Bench) -> None:
    (socket,) = await find_sockets(bench.registry)
    await notify(socket, False, "refused by the conformance kit")
    expect(bench.running.is_running, "the driver ended")
    async with registered(socket) as driver:
        await driver.prepare([])


@check("a call without claims is answered")
async def _(bench: Bench) -> None:
    expect(await bench.kubelet.prepare([]) == {}, "prepare without claims answers something")
    expect(await bench.kubelet.unprepare([]) == {}, "unprepare without claims answers something")


@check("bytes that are not a message are refused, and it keeps serving")
async def _(bench: Bench) -> None:
    code = await bench.kubelet.send_garbage()
    expect(code.name != "OK", "garbage was accepted")
    await bench.kubelet.prepare([])
