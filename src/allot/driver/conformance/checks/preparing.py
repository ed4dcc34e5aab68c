"""Preparing: one entry per claim, the same answer every time, devices that a container runtime can find."""

from __future__ import annotations

import asyncio
from typing import Any

from allot.client.api import PatchType
from allot.driver.conformance.bench import REQUEST, RESULTS_MAX, Bench, Skipped, expect
from allot.driver.conformance.kit import Checks
from allot.driver.conformance.kubelet import Entry, find_sockets, registered
from allot.driver.service import V1BETA1

CHECKS = Checks("prepare")
check = CHECKS.check
_VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
_SPEC_KEYS = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}


@check("a claim is prepared and names the device that it holds")
async def _(bench: Bench) -> None:
    devices = await bench.independent(1)
    entry = await bench.prepared(await bench.claim(devices))
    held = {(device.pool, device.device.name) for device in devices}
    for device in entry.devices:
        expect((device.pool, device.device) in held, f"answers device {device.pool}/{device.device}, not in the claim")
        expect(device.requests in ((), (REQUEST,)), f"answers requests {list(device.requests)}, expected {REQUEST!r}")


@check("every CDI name in the answer is in a spec file")
async def _(bench: Bench) -> None:
    entry = await bench.prepared(await bench.claim(await bench.independent(1)))
    known = _known_names(bench)
    for name in _cdi_names(entry):
        expect(name in known, f"{name}: no spec file has it")


@check("spec files say a version that has what they use")
async def _(bench: Bench) -> None:
    await bench.prepared(await bench.claim(await bench.independent(1)))
    for name, spec in bench.cdi_specs().items():
        expect(spec.get("cdiVersion") in _VERSIONS, f"{name}: cdiVersion {spec.get('cdiVersion')!r}")
        expect(set(spec) <= _SPEC_KEYS, f"{name}: unknown fields {sorted(set(spec) - _SPEC_KEYS)}")
        expect(bool(spec.get("devices")), f"{name}: no devices")
        for device in spec["devices"]:
            expect(bool(device.get("containerEdits")), f"{name}: device {device.get('name')!r} changes nothing")
            needs = "0.5.0" if device["name"][:1].isdigit() else "0.3.0"
            expect(spec["cdiVersion"] >= needs, f"{name}: device {device['name']!r} needs cdiVersion {needs}")


@check("no two claims share a CDI name of their own")
async def _(bench: Bench) -> None:
    first, second = await bench.independent(2)
    one = _cdi_names(await bench.prepared(await bench.claim([first])))
    two = _cdi_names(await bench.prepared(await bench.claim([second])))
    shared = {name for name in set(one) & set(two) if not name.endswith("=common")}
    expect(not shared or not one, f"both claims answer {sorted(shared)}")


@check("prepared again it gives the same answer")
async def _(bench: Bench) -> None:
    claim = await bench.claim(await bench.independent(1))
    first, second = await bench.prepared(claim), await bench.prepared(claim)
    expect(first == second, f"first {first}, then {second}")


@check("asked ten times at once it gives one answer")
async def _(bench: Bench) -> None:
    claim = await bench.claim(await bench.independent(1))
    answers = await asyncio.gather(*(bench.prepared(claim) for _ in range(10)))
    expect(all(answer == answers[0] for answer in answers), "answers differ")


@check("v1beta1 gives the same answer")
async def _(bench: Bench) -> None:
    claim = await bench.claim(await bench.independent(1))
    entry = await bench.prepared(claim)
    (socket,) = await find_sockets(bench.registry)
    async with registered(socket) as older:
        if V1BETA1 not in older.info.versions:
            raise Skipped("the driver does not serve v1beta1")
    async with registered(socket, V1BETA1) as older:
        answer = (await older.prepare([claim]))[claim.uid]
    expect(_cdi_names(answer) == _cdi_names(entry), f"v1 {_cdi_names(entry)}, v1beta1 {_cdi_names(answer)}")


@check("a claim can hold all devices that fit together")
async def _(bench: Bench) -> None:
    devices: tuple[Any, ...] = ()
    for count in range(1, RESULTS_MAX + 1):
        try:
            devices = await bench.independent(count)
        except Skipped:
            break
    if not devices:
        raise Skipped("the driver has no devices here")
    entry = await bench.prepared(await bench.claim(devices))
    told = [(device.pool, device.device, device.share_id) for device in entry.devices]
    expect(len(told) == len(set(told)), f"a device appears twice in the answer: {told}")


@check("an alternative is answered by the request's own name")
async def _(bench: Bench) -> None:
    entry = await bench.prepared(await bench.claim(await bench.independent(1), request=f"{REQUEST}/alternative"))
    for device in entry.devices:
        expect(all("/" not in request for request in device.requests), f"answers requests {list(device.requests)}")


@check("devices of other drivers in the claim are left alone")
async def _(bench: Bench) -> None:
    devices = await bench.independent(1)
    foreign = {"request": REQUEST, "driver": "other.example.com", "pool": devices[0].pool, "device": "foreign"}
    entry = await bench.prepared(await bench.claim(devices, more_results=[foreign]))
    expect(all(device.device != "foreign" for device in entry.devices), "answers the device of another driver")


@check("parameters for other drivers are ignored")
async def _(bench: Bench) -> None:
    opaque = {"driver": "other.example.com", "parameters": {"apiVersion": "other.example.com/v1", "kind": "Other"}}
    await bench.prepared(
        await bench.claim(await bench.independent(1), configs=[{"source": "FromClaim", "opaque": opaque}])
    )


@check("a claim with binding conditions is prepared like any other")
async def _(bench: Bench) -> None:
    fields = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    await bench.prepared(await bench.claim(await bench.independent(1), result_fields=fields))


@check("several claims in one call are all prepared")
async def _(bench: Bench) -> None:
    claims = [await bench.claim([device]) for device in await bench.independent(2)]
    entries = await bench.kubelet.prepare(claims)
    errors = [entry.error for entry in entries.values() if entry.error]
    expect(not errors, errors[0] if errors else "")


@check("a second claim for a device in use is refused, and prepared once it is free")
async def _(bench: Bench) -> None:
    devices = await bench.independent(1)
    if any(device.device.allow_multiple_allocations for device in devices):
        raise Skipped("devices of this driver can be shared")
    first = await bench.claim(devices)
    await bench.prepared(first)
    # The claim's allocation is gone, as after a forced deletion, but no one has unprepared it yet.
    await bench.release(first)
    second = await bench.claim(devices)
    error = await bench.refused(second, "for a device that is prepared for another one")
    expect(first.name in error or first.uid in error, f"the error does not name the holder: {error}")
    await bench.unprepared(first)
    await bench.prepared(second)


@check("admin access does not need the device to be free")
async def _(bench: Bench) -> None:
    devices = await bench.independent(1)
    await bench.prepared(await bench.claim(devices))
    namespaces = bench.client.resource("", "v1", "namespaces", namespaced=False)
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await namespaces.patch("default", label, PatchType.MERGE)
    await bench.prepared(await bench.claim(devices, result_fields={"adminAccess": True}))


def _known_names(bench: Bench) -> set[str]:
    return {
        f"{spec['kind']}={device['name']}" for spec in bench.cdi_specs().values() for device in spec.get("devices", ())
    }


def _cdi_names(entry: Entry) -> list[str]:
    return [name for device in entry.devices for name in device.cdi_ids]
