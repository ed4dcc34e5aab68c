"""make bench: how fast the core is on this machine. Prints a table; nothing here is asserted.

Times are processor time of this process, which other load disturbs least. Step counts are printed beside times because they do not depend on the machine.
"""

from __future__ import annotations

import gc
import platform
import resource
import sys
import time
from collections.abc import Callable

from clusters import DRIVER, claim, cluster, request, slice_of

from allot.core.allocation import ALL_FEATURES, Inventory, Unallocatable, allocate, claim_id, place
from allot.core.cel.selector import EnvironmentOptions, compile_selector
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node
from allot.core.model.meta import ObjectMeta

S1 = f'device.driver == "{DRIVER}"'
S2 = (
    f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].productName == "NVIDIA H100" && '
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("16Gi")) >= 0'
)
S3 = (
    f'device.attributes["{DRIVER}"].cudaComputeCapability.isGreaterThan(semver("8.5.0")) && '
    f'device.attributes["{DRIVER}"].?model.orValue("") != "t4"'
)
SELECTOR = f'device.attributes["{DRIVER}"].model == "h100"'
MATCH = api.DeviceConstraint(match_attribute="resource.kubernetes.io/pcieRoot")


def row(name: str, value: str, note: str = "") -> None:
    """One line of the table."""
    print(f"| {name:<58} | {value:>18} | {note:<46} |", flush=True)


def best_of(times: int, work: Callable[[], int]) -> float:
    """Units of work per second, the best of several runs."""
    best = 0.0
    for _ in range(times):
        start = time.process_time()
        done = work()
        best = max(best, done / (time.process_time() - start))
    return best


def cel() -> None:
    """Selectors: one evaluation at a time, and a whole cluster through the class table."""
    inventory, _ = cluster(2000, 10, selectors=True)
    views = [entry.view for slice_ in inventory._slices.values() for entry in slice_.devices][:2000]
    for name, expression in (("S1 driver", S1), ("S2 attribute and capacity", S2), ("S3 semver and optional", S3)):
        start = time.process_time()
        compiled = compile_selector(expression, EnvironmentOptions())
        compile_us = (time.process_time() - start) * 1e6
        matches = compiled.matches

        def evaluate(matches: Callable[..., bool] = matches) -> int:
            for view in views:
                matches(view)
            return len(views)

        rate = best_of(5, evaluate)
        row(f"CEL {name}: evaluations/s", f"{rate:,.0f}", f"{1e9 / rate:.0f} ns each; compiled in {compile_us:.0f} us")
    plan = inventory.plan(claim(0, (request("r", selectors=(S2,)),)).spec)
    signature = plan.requests[0].leaves[0].signature
    assert signature is not None
    start = time.process_time()
    inventory.index(signature)
    elapsed = time.process_time() - start
    row("CEL class table: first look at 20,000 devices, devices/s", f"{20_000 / elapsed:,.0f}", "judged and indexed")
    again = best_of(3, lambda: sum(len(s.judge(signature) or s.devices) for s in inventory._slices.values()))
    row("CEL class table: afterwards, devices/s", f"{again:,.0f}", "until a slice changes")


def placement(nodes: int, devices: int, kind: str, claims_max: int = 20_000) -> None:
    """Claims placed one after another until the cluster is full or enough have been placed."""
    inventory, by_name = cluster(nodes, devices, selectors=kind == "selectors")
    constraints: tuple[api.DeviceConstraint, ...] = ()
    requests: tuple[api.DeviceRequest, ...] = (request("gpu"),)
    room = nodes * devices
    if kind == "selectors":
        requests = (request("gpu", selectors=(SELECTOR,)),)
        room //= 4
    elif kind == "match":
        requests = tuple(request(f"gpu-{number}") for number in range(5))
        constraints = (MATCH,)
        room = nodes
    count = min(claims_max, room)
    claims = [claim(number, requests, constraints) for number in range(count)]
    place(inventory, claims[:1], by_name)  # what is computed once per signature is not what is measured
    gc.collect()
    gc.freeze()
    placed = steps = 0
    start = time.process_time()
    for one in claims:
        found = place(inventory, [one], by_name)
        if found is None:
            break
        placed += 1
        steps += found[1].steps
        inventory.hold(claim_id(one), found[1].results[0])
    elapsed = time.process_time() - start
    what = {"plain": "one device", "selectors": "one device, selectors", "match": "five matched requests"}[kind]
    row(
        f"{nodes:,} x {devices} devices, {what}: claims/s",
        f"{placed / elapsed:,.0f}",
        f"{placed:,} claims, {steps / max(placed, 1):.1f} steps each",
    )


def infeasible() -> None:
    """Claims that cannot be met, answered with reasons."""
    cases = (
        ("32 devices of 31", 31, (request("r", 32),), ()),
        ("12 requests on 11 devices", 11, tuple(request(f"r{n}") for n in range(12)), ()),
        ("32 requests on 31 devices", 31, tuple(request(f"r{n}") for n in range(32)), ()),
        ("9 matched of groups of 8", 64, (request("r", 9),), (MATCH,)),
        ("4 any, 1 that nothing matches", 20, (*(request(f"r{n}") for n in range(4)), _nothing()), ()),
        ("8 of 20, 1 that nothing matches", 20, (request("r", 8), _nothing()), ()),
    )
    for name, devices, requests, constraints in cases:
        inventory = Inventory(ALL_FEATURES)
        inventory.put_class(api.DeviceClass(metadata=ObjectMeta(name="gpu")))
        inventory.put_slice(slice_of("node", devices, "h100"))
        node = Node(metadata=ObjectMeta(name="node"))
        start = time.process_time()
        answer = allocate(inventory, node, [claim(0, requests, constraints)])
        elapsed = time.process_time() - start
        assert isinstance(answer, Unallocatable), answer
        row(f"infeasible: {name}, ms", f"{elapsed * 1e3:.2f}", f"{answer.steps} steps, first attempt, with reasons")


def _nothing() -> api.DeviceRequest:
    return request("none", selectors=(f'device.attributes["{DRIVER}"].model == "t4"',))


def memory() -> None:
    """What a large cluster takes, including the free device index."""
    before = _resident_mib()
    inventory, by_name = cluster(5000, 8, selectors=True)
    place(inventory, [claim(0, (request("gpu", selectors=(SELECTOR,)),))], by_name)
    for name in by_name:
        inventory.view(by_name[name])
    row("memory for 5,000 x 8 devices, MiB", f"{_resident_mib() - before:,.0f}", "resident, with a view of every node")


def _resident_mib() -> float:
    with open("/proc/self/statm") as statm:  # noqa: PTH123
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    """The whole table."""
    print(f"Python {platform.python_version()} on {platform.machine()}\n")
    row("what", "figure", "how")
    print(f"|{'-' * 60}|{'-' * 20}|{'-' * 48}|")
    if sys.platform == "linux":
        memory()
    cel()
    for nodes, devices in ((100, 10), (500, 10), (5000, 8)):
        for kind in ("plain", "selectors", "match"):
            placement(nodes, devices, kind)
    infeasible()


if __name__ == "__main__":
    main()
