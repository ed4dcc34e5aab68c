"""A digest never says anything else than the whole view of a device."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.allocation import Inventory
from allot.core.allocation.devices import DeviceEntry, DeviceID, DeviceState
from allot.core.allocation.signature import REJECTED, USABLE, Signature
from allot.core.cel.selector import EvaluationError, compile_selector
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode

DRIVER = "gpu.example.com"
OWN, OTHER = f'device.attributes["{DRIVER}"]', 'device.attributes["other.com"]'
EXPRESSIONS = (
    f"{OWN}.size > 1",
    f'{OWN}.name == "a"',
    f"{OWN}.flag",
    f'{OWN}.release.compareTo(semver("1.0.0")) > 0',
    f'{OTHER}.name == "a"',
    f'{OTHER}.?name.orValue("") == "a"',
    f'"name" in {OWN}',
    "device.attributes[device.driver].size == 1",
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("1Gi")) >= 0',
    f'device.capacity["{DRIVER}"].memory.isInteger()',
    'device.driver == "gpu.example.com"',
    "device.allowMultipleAllocations",
    f"size({OWN}) > 1",
    '"other.com" in device.attributes',
    f'{OWN}.exists(name, name == "flag")',
)
VALUES = st.one_of(
    st.builds(lambda value: {"int": value}, st.integers(0, 2)),
    st.builds(lambda value: {"string": value}, st.sampled_from("ab")),
    st.builds(lambda value: {"bool": value}, st.booleans()),
    st.builds(lambda value: {"version": value}, st.sampled_from(["1.2.3", "0.1.0", "none"])),
    st.builds(lambda value: {"ints": value}, st.lists(st.integers(0, 2), min_size=1, max_size=2)),
)
NAMES = st.sampled_from(["size", "name", "flag", "release", "other.com/name", f"{DRIVER}/name", f"{DRIVER}/size"])
CAPACITIES = st.dictionaries(
    st.sampled_from(["memory", f"{DRIVER}/memory"]), st.sampled_from(["1Gi", "1024Mi", "1.5", "2Gi"]), max_size=2
)
DEVICES = st.builds(
    lambda attributes, capacity, shared: {
        "name": "d",
        "attributes": attributes,
        "capacity": {name: {"value": value} for name, value in capacity.items()},
        **({"allowMultipleAllocations": True} if shared else {}),
    },
    st.dictionaries(NAMES, VALUES, max_size=5),
    CAPACITIES,
    st.booleans(),
)


def entry(value: dict[str, Any]) -> DeviceEntry:
    device = decode(value, api.Device).object
    slice_ = api.ResourceSlice(spec=api.ResourceSliceSpec(driver=DRIVER, devices=(device,)))
    shareable = bool(device.allow_multiple_allocations)
    return DeviceEntry(slice_, device, DeviceState(DeviceID(DRIVER, "p", "d")), (), shareable)


def signature(expression: str) -> Signature:
    selectors = (api.DeviceSelector(cel=api.CELDeviceSelector(expression=expression)),)
    return Signature(0, api.DeviceClass(), selectors, {}, (), False, Inventory().features)


def closely(expression: str, device: DeviceEntry) -> bool | None:
    try:
        return compile_selector(expression).matches(device.view)
    except EvaluationError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("expression", EXPRESSIONS)
@settings(max_examples=20)
@given(devices=st.lists(DEVICES, min_size=1, max_size=8))
def test_every_device_gets_the_verdict_of_a_close_look(expression: str, devices: list[dict[str, Any]]) -> None:
    one = signature(expression)
    for device in map(entry, devices):
        expected = closely(expression, device)
        verdict = one.verdict(device)
        if expected is None:
            assert verdict not in (REJECTED, USABLE)
            with pytest.raises(EvaluationError):
                one.failing_rule(device)
        else:
            assert verdict == (USABLE if expected else REJECTED)
            assert (one.failing_rule(device) is None) == expected


def test_devices_that_differ_in_what_is_not_read_look_the_same() -> None:
    one = signature(f"{OWN}.size > 1")
    first, second = (
        entry({"name": "d", "attributes": {"size": {"int": 2}, "uuid": {"string": uuid}}}) for uuid in "ab"
    )
    assert one.digest(first) == one.digest(second)
    assert one.digest(first) is not None


def test_a_device_with_an_unreadable_version_is_looked_at_closely() -> None:
    assert signature(f"{OWN}.size > 1").digest(entry({"name": "d", "attributes": {"v": {"version": "none"}}})) is None
