"""Short ways to say what a test is about: devices, nodes, claims as scenario JSON."""

from __future__ import annotations

from typing import Any

DRIVER = "gpu.example.com"


def device(name: str, *, memory: str = "", counters: dict[str, str] | None = None, **attributes: Any) -> dict[str, Any]:
    """A device with attributes by name; `counters` are what it draws from the set "set"."""
    found: dict[str, Any] = {"name": name, "attributes": {}}
    for attribute, value in attributes.items():
        kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
        found["attributes"][attribute] = {kind: value}
    if memory:
        found["capacity"] = {"memory": {"value": memory}}
    if counters:
        amounts = {name: {"value": amount} for name, amount in counters.items()}
        found["consumesCounters"] = [{"counterSet": "set", "counters": amounts}]
    return found


def world(
    devices: list[dict[str, Any]],
    *claims: dict[str, Any],
    selectors: tuple[str, ...] = (),
    counters: dict[str, str] | None = None,
    in_use: dict[str, str] | None = None,
) -> dict[str, Any]:
    """One node "node" with these devices in one pool, a class "gpu", and devices in use by claims (device -> claim)."""
    count = 2 if counters else 1
    slices = [_slice("devices", count, {"devices": devices})]
    if counters:
        amounts = {name: {"value": amount} for name, amount in counters.items()}
        slices.append(_slice("counters", count, {"sharedCounters": [{"name": "set", "counters": amounts}]}))
    return {
        "name": "world",
        "features": "all",
        "node": {"metadata": {"name": "node"}},
        "classes": [{"metadata": {"name": "gpu"}, "spec": {"selectors": [_cel(s) for s in selectors]}}],
        "slices": slices,
        "claims": list(claims),
        "allocated": [_holder(name, claim) for name, claim in (in_use or {}).items()],
    }


def _slice(name: str, count: int, content: dict[str, Any]) -> dict[str, Any]:
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": count}
    return {"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": pool, "nodeName": "node", **content}}


def _holder(device_name: str, claim: str) -> dict[str, Any]:
    namespace, _, name = claim.partition("/")
    result = {"request": "r", "driver": DRIVER, "pool": "pool", "device": device_name}
    return {
        "metadata": {"namespace": namespace, "name": name},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def _cel(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


def request(name: str, count: int = 1, *selectors: str, **more: Any) -> dict[str, Any]:
    """A request for devices of class "gpu"."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **more}
    return {"name": name, "exactly": exactly | ({"selectors": [_cel(s) for s in selectors]} if selectors else {})}


def claim(*requests: dict[str, Any], name: str = "claim", **more: Any) -> dict[str, Any]:
    """A claim in namespace "ns"."""
    return {"metadata": {"namespace": "ns", "name": name}, "spec": {"devices": {"requests": list(requests), **more}}}


def same(attribute: str, *requests: str) -> dict[str, Any]:
    """A matchAttribute constraint on an attribute of the driver."""
    return {"matchAttribute": f"{DRIVER}/{attribute}", "requests": list(requests)}


def different(attribute: str, *requests: str) -> dict[str, Any]:
    """A distinctAttribute constraint on an attribute of the driver."""
    return {"distinctAttribute": f"{DRIVER}/{attribute}", "requests": list(requests)}
