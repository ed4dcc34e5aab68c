"""List items as error messages print them: JSON with the fields in the order of the type.

Knows which fields the API prints although they are empty. Does not know rules.
"""

from __future__ import annotations

from typing import Any

import msgspec

from allot.core.model.meta import RawJSON
from allot.core.quantity import Quantity

# Fields without `omitempty`, by type name; printed even when empty. Only types that occur in lists with unique items.
_ALWAYS: dict[str, tuple[str, ...]] = {
    "DeviceRequest": ("name",),
    "DeviceSubRequest": ("name", "device_class_name"),
    "ExactDeviceRequest": ("device_class_name",),
    "ResourceClaimConsumerReference": ("resource", "name", "uid"),
    "AllocatedDeviceStatus": ("driver", "pool", "device", "conditions"),
    "CounterSet": ("name",),
    "DeviceCounterConsumption": ("counter_set",),
    "PodGroupTemplate": ("name", "scheduling_policy", "scheduling_constraints"),
    "CompositePodGroupTemplate": ("name", "scheduling_policy"),
    "PodGroupResourceClaim": ("name",),
    "PodGroupResourceClaimStatus": ("name",),
    "Counter": ("value",),
}


def item_text(item: Any) -> Any:
    """The item as a JSON value, ready to be printed."""
    match item:
        case msgspec.Struct():
            return _struct_text(item)
        case tuple() | list():
            return [item_text(entry) for entry in item]
        case dict():
            return {name: item_text(item[name]) for name in sorted(item)}
        case Quantity():
            return str(item)
        case RawJSON():
            return item.value()
        case _:
            return item


def _struct_text(item: msgspec.Struct) -> dict[str, Any]:
    always = _ALWAYS.get(type(item).__name__, ())
    text = {}
    for field in msgspec.structs.fields(item):
        value = getattr(item, field.name)
        if field.name in always or value != field.default:
            printed = item_text(value)
            # An absent list is null in Go.
            text[field.encode_name] = None if printed == [] else printed
    return text
