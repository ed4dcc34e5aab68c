"""What tests of drivers look at of a device that is published."""

from __future__ import annotations

import msgspec

from allot.core.model.resource_v1 import Device


def values(device: Device) -> dict[str, object]:
    """Attributes and capacities without their types."""
    encoded = {name: msgspec.to_builtins(each) for name, each in device.attributes.items()}
    attributes = {name: next(iter(each.values())) for name, each in encoded.items()}
    return {**attributes, **{name: str(each.value) for name, each in device.capacity.items()}}
