"""ResourceSlices: legal, complete, owned by the node, kept, and cut where the API demands it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
from prometheus_client import CollectorRegistry

from allot.core.features import ALL_GATES
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.codec import encode
from allot.core.model.resource_v1 import (
    SLICE_DEVICES_MAX,
    SLICE_DEVICES_WITH_FEATURES_MAX,
    Device,
    DeviceTaint,
    ResourceSlice,
)
from allot.core.validation.validate import check_object
from allot.driver.conformance.bench import NODE, Bench, Skipped, expect, is_complete
from allot.driver.conformance.kit import Checks
from allot.driver.metrics import DriverMetrics
from allot.driver.publishing import SlicePublisher
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds

CHECKS = Checks("slices")
check = CHECKS.check
MANY = 300


@check("slices of its node appear")
async def _(bench: Bench) -> None:
    await bench.settled_slices()


@check("there is a device")
async def _(bench: Bench) -> None:
    if not await bench.devices():
        raise Skipped("the driver has no devices here; most checks need one")


@check("every slice is legal, the limits of the API included")
async def _(bench: Bench) -> None:
    for slice_ in await bench.settled_slices():
        errors = check_object(encode(slice_), gates=ALL_GATES)
        expect(not errors, f"slice {slice_.metadata.name}: {errors[0] if errors else ''}")


@check("every slice belongs to the node object")
async def _(bench: Bench) -> None:
    node = await bench.client.resource("", "v1", "nodes", namespaced=False).get(NODE)
    for slice_ in await bench.settled_slices():
        owners = [owner.uid for owner in slice_.metadata.owner_references if owner.controller]
        expect(owners == [node["metadata"]["uid"]], f"slice {slice_.metadata.name}: owners {owners}")


@check("the names of slices begin with their place in the pool")
async def _(bench: Bench) -> None:
    for slice_ in await bench.settled_slices():
        name = slice_.metadata.name
        expect(re.match(r"[0-9a-f]{5,}-", name) is not None, f"slice {name}: no hexadecimal index at the beginning")


@check("devices that consume counters find them in their pool")
async def _(bench: Bench) -> None:
    slices = await bench.settled_slices()
    known = {(each.spec.pool.name, counters.name) for each in slices for counters in each.spec.shared_counters or ()}
    for published in await bench.devices():
        for consumed in published.device.consumes_counters:
            key = (published.pool, consumed.counter_set)
            expect(key in known, f"device {published.device.name}: counter set {consumed.counter_set} is not published")


@check("a deleted slice is published again")
async def _(bench: Bench) -> None:
    before = await bench.settled_slices()
    await bench.slices_api.delete(before[0].metadata.name)

    async def restored() -> bool:
        now = await bench.slices()
        return len(now) == len(before) and is_complete(now)

    await bench.until(restored, "the slice to come back")


@check("all slices are published again when a starting kubelet clears them away")
async def _(bench: Bench) -> None:
    before = await bench.devices()
    await bench.slices_api.delete_collection(field_selector=f"spec.nodeName={NODE}")

    async def restored() -> bool:
        now = await bench.slices()
        return bool(now) and is_complete(now) and _names(now) == [each.device.name for each in before]

    await bench.until(restored, "all devices to come back")


@check("a changed ResourceSlice is restored")
async def _(bench: Bench) -> None:
    slices = [slice_ for slice_ in await bench.settled_slices() if slice_.spec.devices]
    if not slices:
        raise Skipped("no slice with devices")
    before = _names(await bench.slices())
    changed = msgspec.structs.replace(slices[0], spec=msgspec.structs.replace(slices[0].spec, devices=()))
    await bench.client.typed(ResourceSlice).update(changed)

    async def restored() -> bool:
        return _names(await bench.slices()) == before

    await bench.until(restored, "the devices to come back")


@check("an unneeded ResourceSlice of the driver is removed")
async def _(bench: Bench) -> None:
    before = (await bench.settled_slices())[0]
    stray = ResourceSlice(
        metadata=msgspec.structs.replace(before.metadata, name="stray", uid="", resource_version="", generate_name=""),
        spec=msgspec.structs.replace(
            before.spec, pool=msgspec.structs.replace(before.spec.pool, name="stray", resource_slice_count=1)
        ),
    )
    await bench.client.typed(ResourceSlice).create(stray)

    async def removed() -> bool:
        return all(slice_.metadata.name != "stray" for slice_ in await bench.slices())

    await bench.until(removed, "the stray slice to go")


@check("a restart leaves the slices as they are")
async def _(bench: Bench) -> None:
    before = await bench.settled_slices()
    await bench.restart()
    await asyncio.sleep(0.5)
    after = await bench.settled_slices()
    expect(_versions(before) == _versions(after), "slices were written although nothing had changed")


@check("300 devices like its own are split into ResourceSlices of at most 128")
async def _(bench: Bench) -> None:
    async with _published(bench, lambda device: device, MANY) as slices:
        devices = [device for slice_ in slices for device in slice_.spec.devices or ()]
        expect(len(devices) == MANY, f"{len(devices)} of {MANY} devices are published")
        largest = max(len(slice_.spec.devices or ()) for slice_ in slices)
        expect(largest <= SLICE_DEVICES_MAX, f"a slice has {largest} devices")
        expect(is_complete(slices), "the pool is not complete")


@check("300 tainted devices are split into ResourceSlices of at most 64")
async def _(bench: Bench) -> None:
    taint = DeviceTaint(key="example.com/conformance", effect="NoSchedule")
    tainted: Callable[[Device], Device] = lambda device: msgspec.structs.replace(device, taints=(taint,))  # noqa: E731
    async with _published(bench, tainted, MANY) as slices:
        sizes = [len(slice_.spec.devices or ()) for slice_ in slices]
        expect(sum(sizes) == MANY, f"{sum(sizes)} of {MANY} devices are published")
        expect(max(sizes) <= SLICE_DEVICES_WITH_FEATURES_MAX, f"a slice has {max(sizes)} devices")
        expect(all(each.taints[0].time_added for slice_ in slices for each in slice_.spec.devices or ()), "no times")


@check("devices with binding conditions are published with them")
async def _(bench: Bench) -> None:
    def conditional(device: Device) -> Device:
        return msgspec.structs.replace(
            device, binding_conditions=("Attached",), binding_failure_conditions=("Failed",), binds_to_node=True
        )

    async with _published(bench, conditional, 2) as slices:
        for slice_ in slices:
            for device in slice_.spec.devices or ():
                expect(device.binding_conditions == ("Attached",), f"device {device.name}: conditions were lost")


# --- devices like those of the driver, published for another node ---

_OTHER_NODE = "conformance-other"


@asynccontextmanager
async def _published(
    bench: Bench, change: Callable[[Device], Device], count: int
) -> AsyncIterator[tuple[ResourceSlice, ...]]:
    originals = await bench.devices()
    if not originals:
        raise Skipped("the driver has no devices here")
    copies = tuple(
        change(
            msgspec.structs.replace(
                originals[number % len(originals)].device, name=f"copy-{number}", consumes_counters=(), taints=()
            )
        )
        for number in range(count)
    )
    nodes = bench.client.resource("", "v1", "nodes", namespaced=False)
    await nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": _OTHER_NODE}})
    metrics = DriverMetrics(CollectorRegistry(), bench.driver.name)
    publisher = SlicePublisher(
        bench.client, bench.driver.name, _OTHER_NODE, metrics, SystemClock(), SystemIds(), repair_delay_s=0.2
    )
    task = asyncio.ensure_future(publisher.run())
    try:
        publisher.set((Pool(name=_OTHER_NODE, node_name=_OTHER_NODE, devices=copies),))
        expect(not publisher.problems, publisher.problems[0] if publisher.problems else "")
        async with asyncio.timeout(30):
            await publisher.synced.wait()
        listed = await bench.client.typed(ResourceSlice).list(field_selector=f"spec.nodeName={_OTHER_NODE}")
        yield tuple(sorted(listed.items, key=lambda slice_: slice_.metadata.name))
    finally:
        task.cancel()
        await asyncio.wait([task])
        await bench.slices_api.delete_collection(field_selector=f"spec.nodeName={_OTHER_NODE}")
        await nodes.delete(_OTHER_NODE)


def _names(slices: Sequence[ResourceSlice]) -> list[str]:
    return [device.name for slice_ in slices for device in slice_.spec.devices or ()]


def _versions(slices: Sequence[ResourceSlice]) -> list[tuple[str, str]]:
    return [(slice_.metadata.uid, slice_.metadata.resource_version) for slice_ in slices]
