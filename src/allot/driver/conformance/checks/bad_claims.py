"""Claims that cannot be prepared: an error in their own entry that says why, and no harm to others."""

from __future__ import annotations

from typing import Any

from allot.driver.conformance.bench import REQUEST, Bench, Skipped, expect
from allot.driver.conformance.kit import Checks
from allot.driver.conformance.kubelet import ClaimRef

CHECKS = Checks("bad claims")
check = CHECKS.check
_NO_SUCH_UID = "00000000-0000-4000-8000-000000000000"


@check("a claim that does not exist")
async def _(bench: Bench) -> None:
    error = await bench.refused(ClaimRef("default", "missing", _NO_SUCH_UID), "that does not exist")
    expect("missing" in error, f"the error does not name the claim: {error}")


@check("a claim that was replaced by another of its name")
async def _(bench: Bench) -> None:
    claim = await bench.claim(await bench.independent(1))
    await bench.refused(ClaimRef(claim.namespace, claim.name, _NO_SUCH_UID), "with the UID of another one")


@check("a claim that is not allocated")
async def _(bench: Bench) -> None:
    await bench.refused(await bench.claim((), is_allocated=False), "that is not allocated")


@check("a claim without a device of this driver")
async def _(bench: Bench) -> None:
    foreign = {"request": REQUEST, "driver": "other.example.com", "pool": "pool", "device": "foreign"}
    await bench.refused(await bench.claim((), more_results=[foreign]), "without a device of this driver")


@check("a claim for a device that does not exist")
async def _(bench: Bench) -> None:
    result = {"request": REQUEST, "driver": bench.driver.name, "pool": "no-such-pool", "device": "no-such-device"}
    error = await bench.refused(await bench.claim((), more_results=[result]), "for a device that does not exist")
    expect("no-such-device" in error, f"the error does not name the device: {error}")


@check("parameters of an unknown kind")
async def _(bench: Bench) -> None:
    parameters = {"apiVersion": "conformance.example.com/v1", "kind": "NoSuchKind"}
    error = await bench.refused(await _configured(bench, parameters), "with parameters of an unknown kind")
    expect("NoSuchKind" in error, f"the error does not name the kind: {error}")


@check("parameters with an unknown field")
async def _(bench: Bench) -> None:
    api_version, kind = _config_kind(bench)
    parameters = {"apiVersion": api_version, "kind": kind, "noSuchField": 1}
    error = await bench.refused(await _configured(bench, parameters), "with an unknown field")
    expect("noSuchField" in error, f"the error does not name the field: {error}")


@check("parameters that are no object")
async def _(bench: Bench) -> None:
    # The API server accepts only objects, but they may be empty.
    if ("", "") in bench.driver.configs:
        raise Skipped("the driver accepts parameters without a kind")
    await bench.refused(await _configured(bench, {}), "with parameters that say nothing")


@check("a bad claim does not spoil a good one in the same call")
async def _(bench: Bench) -> None:
    good = await bench.claim(await bench.independent(1))
    bad = ClaimRef("default", "missing", _NO_SUCH_UID)
    entries = await bench.kubelet.prepare([bad, good])
    expect(bool(entries[bad.uid].error), "the bad claim was prepared")
    expect(not entries[good.uid].error, f"the good claim failed: {entries[good.uid].error}")


@check("a refused claim leaves nothing behind")
async def _(bench: Bench) -> None:
    before = bench.cdi_files()
    claim = await _configured(bench, {"apiVersion": "conformance.example.com/v1", "kind": "NoSuchKind"})
    await bench.refused(claim, "with parameters of an unknown kind")
    await bench.unprepared(claim)
    expect(bench.cdi_files() == before, f"CDI files left: {sorted(bench.cdi_files() - before)}")


@check("after a refused claim its device can be prepared")
async def _(bench: Bench) -> None:
    devices = await bench.independent(1)
    parameters = {"apiVersion": "conformance.example.com/v1", "kind": "NoSuchKind"}
    bad = await bench.claim(devices, configs=[_config(bench, parameters)])
    await bench.refused(bad, "with parameters of an unknown kind")
    await bench.release(bad)
    await bench.prepared(await bench.claim(devices))


async def _configured(bench: Bench, parameters: dict[str, Any]) -> ClaimRef:
    return await bench.claim(await bench.independent(1), configs=[_config(bench, parameters)])


def _config(bench: Bench, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"source": "FromClaim", "opaque": {"driver": bench.driver.name, "parameters": parameters}}


def _config_kind(bench: Bench) -> tuple[str, str]:
    if not bench.driver.configs:
        raise Skipped("the driver takes no parameters")
    return bench.driver.configs[0]
