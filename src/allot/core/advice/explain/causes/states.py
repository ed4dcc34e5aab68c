"""Devices that a class or a selector excludes for a state that can change, such as `rdma: false` or an old driver; what a device is,
such as its product, stays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from allot.core.advice.explain.causes import driver_pods
from allot.core.advice.explain.causes.placing import Placing, is_wish
from allot.core.advice.explain.devices import Wanted, device_id, expected_drivers
from allot.core.advice.explain.diagnosis import Candidate, Rank, patch_of, pointer
from allot.core.advice.explain.wording import named
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.explain import Obstacle, numbered
from allot.core.model import resource_v1 as api
from allot.core.quantity import Quantity, QuantityError

_VALUE = re.compile(r"have (?P<name>\S+) (?P<actual>\S+), need (?P<needed>.+)")
_UNREAD = "0"
# What lets a driver read the values that it publishes as 0.
_READING = {"gpu.intel.com": " (its chart: kubeletPlugin.privileged=true, or xpumdEnabled=true)"}
_BOOLEANS = {"true": False, "false": True}
# Versions of software: those of hardware, such as cudaComputeCapability, do not change.
_SOFTWARE = ("driver", "firmware", "software")


class Excluded(NamedTuple):
    """Devices of some nodes that would do with another value of an attribute. why: phrased to follow their number."""

    driver: str
    nodes: tuple[str, ...]
    number: int
    attribute: str
    actual: str
    why: str
    is_class: bool
    needed: str = ""

    @property
    def is_unread(self) -> bool:
        """Whether the driver could not read the value: no device has 0 of a capacity."""
        return self.actual == _UNREAD


def excluded(placing: Placing, wanted: Wanted) -> Excluded | None:
    """Devices that no one has and that a state excludes, on nodes where they would be enough; None if there are none."""
    what_if = placing.what_if
    drivers = expected_drivers(what_if.get(api.DeviceClass, wanted.class_name))
    held = {
        (result.driver, result.pool, result.device)
        for claim in what_if.all(api.ResourceClaim)
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    }
    found = _everywhere(placing, wanted).found
    for tally in found.of(Obstacle.NOT_IN_CLASS, Obstacle.SELECTOR):
        value = _VALUE.fullmatch(tally.reason.text)
        id_ = device_id(tally.reason.device)
        if value is None or (drivers and id_.driver not in drivers) or not _is_state(value["name"], value["actual"]):
            continue
        # Most drivers name a node's pool after the node.
        taken = {each.pool for each in map(device_id, tally.devices) if (each.driver, each.pool, each.device) in held}
        if taken and value["actual"] != _UNREAD:
            # These work as they are, and someone may move.
            continue
        key = (tally.reason.obstacle, tally.reason.text)
        counts = {
            name: sum(number for *what, number in found.nodes[name].obstacles if tuple(what) == key)
            for name in tally.nodes
            if name not in taken and not any(map(is_wish, placing.checks[name]))
        }
        nodes = tuple(name for name, number in counts.items() if number >= max(1, wanted.leaf.count))
        if nodes:
            number = sum(counts[name] for name in nodes)
            is_class = tally.reason.obstacle is Obstacle.NOT_IN_CLASS
            why, needed = tally.reason.text, value["needed"]
            return Excluded(id_.driver, nodes, number, value["name"], value["actual"], why, is_class, needed)
    return None


def _everywhere(placing: Placing, wanted: Wanted) -> Wanted:
    """A request with what all nodes have for it, also those without devices of its class."""
    there = placing.survey.wanted if placing.survey is not None else []
    return next(
        (
            each
            for each in there
            if each.claim_name == wanted.claim_name and each.leaf.full_name == wanted.leaf.full_name
        ),
        wanted,
    )


def _is_state(name: str, actual: str) -> bool:
    return actual in (*_BOOLEANS, _UNREAD) or any(word in name.lower() for word in _SOFTWARE)


def excluded_text(found: Excluded | None, wanted: Wanted) -> str:
    """What is said of such devices beside those in use; empty if there are none."""
    if found is None:
        return ""
    by = f"not in class {wanted.class_name}" if found.is_class else "excluded by its selectors"
    verb = "is" if found.number == 1 else "are"
    why = numbered(found.number, found.why).partition(" ")[2]
    they = "it" if found.number == 1 else "they"
    return f"; {found.number} on {named('node', found.nodes)} {verb} free, but {by}: {they} {why}"


def changed(what_if: WhatIfCluster, found: Excluded | None) -> Iterator[Candidate]:
    """The driver of a node publishes another value of the attribute."""
    if found is not None and found.is_unread:
        yield from _read(what_if, found)
        return
    for node in found.nodes if found is not None else ():
        assert found is not None
        slices = [each for each in what_if.all(api.ResourceSlice) if each.spec.driver == found.driver]
        value = _wanted_value(slices, found)
        patches = [_with_value(each, found.attribute, value) for each in slices if each.spec.node_name == node]
        if value is not None and patches:
            yield Candidate(rank=Rank.NODE, text=_text(what_if, found, node, value), patches=tuple(patches))


def _read(what_if: WhatIfCluster, found: Excluded) -> Iterator[Candidate]:
    """The driver reads a capacity that it publishes as 0."""
    slices = [
        each
        for each in what_if.all(api.ResourceSlice)
        if each.spec.driver == found.driver and each.spec.node_name in found.nodes
    ]
    try:
        Quantity.parse(found.needed)
    except QuantityError:
        return
    patches = [_with_value(each, found.attribute, {"value": found.needed}, "capacity") for each in slices]
    pods = [full_name(pod) for node in found.nodes for pod in driver_pods.plugins(what_if, found.driver, node)]
    log = f", see the log of {named('pod', pods[:1])}" if pods else ""
    text = (
        f"let driver {found.driver} read the {found.attribute} of its devices, which it publishes as 0 on {named('node', found.nodes)}"
        f"{_READING.get(found.driver, ' (does it have the rights on the host?)')}{log}"
    )
    yield Candidate(rank=Rank.RELAX, text=text, patches=tuple(each for each in patches if each.patch))


def unread_text(found: Excluded | None) -> str:
    """What a value of 0 means, phrased to follow it; empty if it is another one."""
    if found is None or not found.is_unread:
        return ""
    return f"; 0 means that driver {found.driver} could not read it"


def _text(what_if: WhatIfCluster, found: Excluded, node: str, value: dict[str, Any]) -> str:
    if "version" in value:
        newest = value["version"]
        return (
            f"update the driver on node {node} to {found.attribute} {newest}, as on other nodes: it has {found.actual}"
        )
    short = found.driver.replace(".", "")
    pods = [
        full_name(pod)
        for pod in driver_pods.plugins(what_if, found.driver, node)
        if short in pod.metadata.name or found.driver in pod.metadata.name
    ]
    restart = f"restart pod {pods[0]}" if pods else f"restart driver {found.driver}"
    state = "true" if value["bool"] else "false"
    return (
        f"find out why the devices of node {node} have {found.attribute} {found.actual} (kernel modules or settings of the host?), and "
        f"{restart} there, so that it publishes {found.attribute} {state}"
    )


def _wanted_value(slices: Sequence[api.ResourceSlice], found: Excluded) -> dict[str, Any] | None:
    """The other boolean, or the newest version that other devices of the driver have."""
    if found.actual in _BOOLEANS:
        return {"bool": _BOOLEANS[found.actual]}
    there = [
        value.version
        for each in slices
        for device in each.spec.devices or ()
        for name, value in device.attributes.items()
        if name.rpartition("/")[2] == found.attribute and value.version is not None and value.version != found.actual
    ]
    newest = max(there, key=lambda text: [int(part) for part in re.findall(r"\d+", text)], default=None)
    return {"version": newest} if newest is not None else None


def _with_value(
    slice_: api.ResourceSlice, attribute: str, value: dict[str, Any] | None, member: str = "attributes"
) -> Any:
    operations = [
        {"op": "replace", "path": f"/spec/devices/{index}/{member}/{pointer(name)}", "value": value}
        for index, device in enumerate(slice_.spec.devices or ())
        for name in getattr(device, member)
        if name.rpartition("/")[2] == attribute
    ]
    return patch_of("ResourceSlice", slice_.metadata.name, *operations)
