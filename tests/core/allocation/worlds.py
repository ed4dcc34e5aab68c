"""Small random worlds for the laws of allocation, and a judge that knows the rules but not the allocator.

A world is a scenario (JSON). The judge checks an answer, and finds out by trying everything whether there is one.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import strategies as st

DRIVER = "d.example.com"
Chosen = list[tuple[int, int, str]]  # claim, request, device


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """One node, up to six devices of all sorts, one or two claims."""
    kind = draw(st.sampled_from(["plain", "partitions", "shares", "mixed"]))
    devices = [_device(draw, number, kind) for number in range(draw(st.integers(1, 6)))]
    counted = any("consumesCounters" in device for device in devices)
    slices = [_slice("devices", {"devices": devices}, 1 + counted)]
    if counted:
        amounts = {"mem": {"value": str(draw(st.integers(1, 6)))}}
        slices.append(_slice("counters", {"sharedCounters": [{"name": "set", "counters": amounts}]}, 2))
    return {
        "name": "world",
        "features": "all",
        "node": {"metadata": {"name": "node"}},
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "slices": slices,
        "allocated": draw(_holders(devices)),
        "claims": [_claim(draw, number) for number in range(draw(st.integers(1, 2)))],
    }


def _slice(name: str, content: dict[str, Any], count: int) -> dict[str, Any]:
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": count}
    return {"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": pool, "nodeName": "node", **content}}


def _device(draw: st.DrawFn, number: int, kind: str) -> dict[str, Any]:
    device: dict[str, Any] = {"name": f"d{number}", "attributes": {}}
    for attribute, values in (("numa", 2), ("slot", 3)):
        if draw(st.integers(0, 5)):
            device["attributes"][attribute] = {"int": draw(st.integers(0, values))}
    if kind in ("partitions", "mixed") and draw(st.booleans()):
        amount = str(draw(st.integers(1, 4)))
        device["consumesCounters"] = [{"counterSet": "set", "counters": {"mem": {"value": amount}}}]
    if kind in ("shares", "mixed") and draw(st.booleans()):
        device["allowMultipleAllocations"] = True
        device["capacity"] = {"mem": {"value": str(draw(st.integers(1, 6)))}}
    if not draw(st.integers(0, 5)):
        device["taints"] = [{"key": "bad", "effect": "NoSchedule"}]
    return device


@st.composite
def _holders(draw: st.DrawFn, devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    held = []
    for number, device in enumerate(devices):
        if draw(st.integers(0, 4)):
            continue
        result: dict[str, Any] = {"request": "r", "driver": DRIVER, "pool": "pool", "device": device["name"]}
        if device.get("allowMultipleAllocations"):
            result |= {"shareID": f"share-{number}", "consumedCapacity": {"mem": "1"}}
        allocation = {"devices": {"results": [result]}}
        held.append({"metadata": {"name": f"old-{number}", "namespace": "ns"}, "status": {"allocation": allocation}})
    return held


def _claim(draw: st.DrawFn, number: int) -> dict[str, Any]:
    requests = []
    for index in range(draw(st.integers(1, 3))):
        exactly: dict[str, Any] = {"deviceClassName": "any", "allocationMode": "ExactCount"}
        exactly["count"] = draw(st.integers(1, 2))
        if not draw(st.integers(0, 3)):
            exactly["tolerations"] = [{"operator": "Exists"}]
        if not draw(st.integers(0, 2)):
            exactly["capacity"] = {"requests": {"mem": str(draw(st.integers(1, 4)))}}
        requests.append({"name": f"r{index}", "exactly": exactly})
    constraints = []
    for rule in ("matchAttribute", "distinctAttribute"):
        if not draw(st.integers(0, 2)):
            covered = draw(st.lists(st.sampled_from([r["name"] for r in requests]), unique=True, max_size=2))
            constraints.append({rule: f"{DRIVER}/{draw(st.sampled_from(['numa', 'slot']))}", "requests": covered})
    spec = {"devices": {"requests": requests, "constraints": constraints}}
    return {"metadata": {"name": f"c{number}", "namespace": "ns"}, "spec": spec}


# --- the judge ---


def devices_of(world: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Devices by name."""
    return {device["name"]: device for slice_ in world["slices"] for device in slice_["spec"].get("devices", [])}


def chosen_by(results: list[Any]) -> Chosen:
    """What an answer chose."""
    return [
        (claim, int(result["request"][1:]), result["device"])
        for claim, allocation in enumerate(results)
        for result in allocation["devices"].get("results", [])
    ]


def broken_rules(world: dict[str, Any], chosen: Chosen, *, whole: bool = True) -> list[str]:
    """Rules that a choice breaks; none if it is valid."""
    devices = devices_of(world)
    broken = []
    held = [r for claim in world["allocated"] for r in claim["status"]["allocation"]["devices"]["results"]]
    users: dict[str, int] = {result["device"]: 1 for result in held if "shareID" not in result}
    shares: dict[str, int] = {}
    for result in held:
        if "shareID" in result:
            shares[result["device"]] = shares.get(result["device"], 0) + 1
    shared_before = set(shares)
    for claim, request, name in chosen:
        device = devices[name]
        exactly = world["claims"][claim]["spec"]["devices"]["requests"][request]["exactly"]
        wanted = exactly.get("capacity", {}).get("requests", {}).get("mem")
        if device.get("taints") and not exactly.get("tolerations"):
            broken.append(f"{name} is tainted")
        if wanted and "capacity" not in device:
            broken.append(f"{name} has no capacity")
        if device.get("allowMultipleAllocations"):
            if name in users:
                broken.append(f"{name} is held exclusively")
            amount = int(wanted) if wanted else int(device["capacity"]["mem"]["value"])
            shares[name] = shares.get(name, 0) + amount
            if shares[name] > int(device["capacity"]["mem"]["value"]):
                broken.append(f"{name} is over capacity")
        else:
            users[name] = users.get(name, 0) + 1
            if users[name] > 1:
                broken.append(f"{name} is used twice")
    broken += _counters(world, devices, {name for _, _, name in chosen}, set(users) | shared_before)
    broken += _requests(world, chosen, whole)
    broken += _constraints(world, devices, chosen)
    return broken


def _counters(
    world: dict[str, Any], devices: dict[str, dict[str, Any]], new: set[str], all_users: set[str]
) -> list[str]:
    published = [set_ for slice_ in world["slices"] for set_ in slice_["spec"].get("sharedCounters", [])]
    if not published:
        return []
    total = int(published[0]["counters"]["mem"]["value"])
    drawn = sum(_drawn(devices[name]) for name in new | all_users if name in devices)
    # What others have overcommitted is not the answer's fault, but nothing more may be drawn then.
    already = sum(
        _drawn(devices[r["device"]])
        for claim in world["allocated"]
        for r in claim["status"]["allocation"]["devices"]["results"]
    )
    held = {r["device"] for claim in world["allocated"] for r in claim["status"]["allocation"]["devices"]["results"]}
    draws_more = any(_drawn(devices[name]) for name in new - held)
    return ["counters are exceeded"] if draws_more and (drawn > total or already > total) else []


def _drawn(device: dict[str, Any]) -> int:
    return sum(int(c["counters"]["mem"]["value"]) for c in device.get("consumesCounters", []))


def _requests(world: dict[str, Any], chosen: Chosen, whole: bool) -> list[str]:
    broken = []
    for position, claim in enumerate(world["claims"]):
        for number, request in enumerate(claim["spec"]["devices"]["requests"]):
            got = [name for c, r, name in chosen if (c, r) == (position, number)]
            if len(set(got)) != len(got):
                broken.append(f"request {number} got a device twice")
            if whole and len(got) != request["exactly"]["count"]:
                broken.append(f"request {number} got {len(got)} devices")
    return broken


def _constraints(world: dict[str, Any], devices: dict[str, dict[str, Any]], chosen: Chosen) -> list[str]:
    broken = []
    for position, claim in enumerate(world["claims"]):
        requests = claim["spec"]["devices"]["requests"]
        for constraint in claim["spec"]["devices"]["constraints"]:
            attribute = (constraint.get("matchAttribute") or constraint["distinctAttribute"]).split("/")[1]
            covered = constraint["requests"] or [request["name"] for request in requests]
            values = [
                devices[name]["attributes"].get(attribute, {}).get("int")
                for c, r, name in chosen
                if c == position and requests[r]["name"] in covered
            ]
            if None in values:
                broken.append(f"a device lacks {attribute}")
            elif "matchAttribute" in constraint and len(set(values)) > 1:
                broken.append(f"{attribute} differs")
            elif "distinctAttribute" in constraint and len(set(values)) != len(values):
                broken.append(f"{attribute} repeats")
    return broken


def has_answer(world: dict[str, Any]) -> bool:
    """Whether any choice is valid: tries them all, request by request."""
    places = [
        (claim, number, request["exactly"]["count"])
        for claim, spec in enumerate(world["claims"])
        for number, request in enumerate(spec["spec"]["devices"]["requests"])
    ]
    names = sorted(devices_of(world))

    def extend(position: int, chosen: Chosen) -> bool:
        if position == len(places):
            return not broken_rules(world, chosen)
        claim, request, count = places[position]
        for combination in combinations(names, count):
            more = chosen + [(claim, request, name) for name in combination]
            if not broken_rules(world, more, whole=False) and extend(position + 1, more):
                return True
        return False

    return extend(0, [])
