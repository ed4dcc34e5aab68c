"""Resource slices: those of 1.30, which listed instances, and those that had `basic` and bare quantities."""

from __future__ import annotations

import re
from typing import Any

from allot.core.advice.convert.changes import shown
from allot.core.advice.convert.drivers import driver_named, identifier
from allot.core.advice.convert.objects import RESOURCE_V1, Object, at, mapping, members, text, without
from allot.core.advice.places import Path
from allot.core.model.convert import ConversionError, convert_to_hub

RULE = "slice"
DEVICES_MAX = 128
DEVICE_NAME_LENGTH_MAX = 63
_V1BETA1, _V1ALPHA3 = "resource.k8s.io/v1beta1", "resource.k8s.io/v1alpha3"
_VALUES = ("bool", "int", "string", "version")
_LISTS = {"intSlice": "ints", "stringSlice": "strings"}


def convert_slice(found: Object) -> None:
    """A ResourceSlice of any generation to v1."""
    if found.api_version != RESOURCE_V1:
        found.book.change(
            ("apiVersion",), found.api_version, RESOURCE_V1, "v1 is the version to use", rule="old-api-version"
        )
    value = found.present
    if "namedResources" in value or ("spec" not in value and "driverName" in value):
        _convert_instances(found)
        return
    devices = members(at(value, ("spec", "devices")))
    has_basic = any("basic" in mapping(device) for device in devices)
    version = _V1ALPHA3 if any(_has_bare_capacity(device) for device in devices) else _V1BETA1
    if has_basic:
        try:
            hub = convert_to_hub({**value, "apiVersion": version})
        except ConversionError as error:
            found.book.error(("spec",), str(error), rule=RULE)
            return
        for field in hub.unknown_fields:
            found.book.error(("spec",), f"{field} is unknown beside or in basic", rule=RULE)
        why = "a device has its attributes and capacity beside its name since v1beta2"
        found.book.change(("spec", "devices"), "basic", "without basic", why, rule=RULE)
        value = hub.value
    value = {**value, "apiVersion": RESOURCE_V1}
    if isinstance(value.get("spec"), dict):
        spec = {**value["spec"]}
        for name, empty in (("nodeName", ""), ("allNodes", False)):
            if spec.get(name) == empty and name in spec and found.api_version != RESOURCE_V1:
                found.book.change(
                    ("spec", name), {name: empty}, None, "empty means unset, which v1 leaves out", rule=RULE
                )
                del spec[name]
        if isinstance(spec.get("devices"), list):
            spec["devices"] = [
                _device(device, ("spec", "devices", index), found) for index, device in enumerate(spec["devices"])
            ]
        value["spec"] = spec
    found.value = value


def _has_bare_capacity(device: Any) -> bool:
    capacity = at(device, ("basic", "capacity"))
    return any(not isinstance(item, dict) for item in mapping(capacity).values())


def _device(device: Any, path: Path, found: Object) -> Any:
    """A device in the current form, except for capacities without `value` and mappings of 1.36."""
    if not isinstance(device, dict):
        return device
    capacity = mapping(device.get("capacity"))
    bare = {key: item for key, item in capacity.items() if isinstance(item, str | int) and not isinstance(item, bool)}
    if bare:
        wrapped = {key: {"value": item} if key in bare else item for key, item in capacity.items()}
        found.book.change((*path, "capacity"), bare, "value: ...", "a capacity has its quantity in value", rule=RULE)
        device = {**device, "capacity": wrapped}
    if "nodeAllocatableResourceMappings" in device:
        device = _with_allocatable(device, path, found)
    return device


def _with_allocatable(device: dict[str, Any], path: Path, found: Object) -> dict[str, Any]:
    given = device["nodeAllocatableResourceMappings"]
    resources: dict[str, Any] = {}
    for name, entry in mapping(given).items():
        key, multiplier = mapping(entry).get("capacityKey"), mapping(entry).get("allocationMultiplier")
        by_capacity = {"capacityKey": key, "capacityMultiplier": multiplier}
        fields = by_capacity if key is not None else {"deviceMultiplier": multiplier}
        resources[name] = {"mapping": {field: item for field, item in fields.items() if item is not None}}
    why = "renamed after 1.36"
    where = (*path, "nodeAllocatableResourceMappings")
    found.book.change(where, given, {"nodeAllocatableResources": resources}, why, rule=RULE)
    return {**without(device, "nodeAllocatableResourceMappings"), "nodeAllocatableResources": resources}


# --- 1.30 ---


def _convert_instances(found: Object) -> None:
    value = found.present
    for key, item in value.items():
        if key not in ("apiVersion", "kind", "metadata", "nodeName", "driverName", "namedResources"):
            found.book.error((key,), f"{key}: {shown(item)} is not a field of a ResourceSlice of 1.30", rule=RULE)
    for key in ("driverName", "nodeName"):
        if not isinstance(value.get(key), str | None):
            found.book.error((key,), f"{key} is {shown(value[key])}: expected a string", rule=RULE)
    driver, node = text(value.get("driverName")), text(value.get("nodeName"))
    names: set[str] = set()
    devices = [
        _instance(mapping(instance), ("namedResources", "instances", index), driver, names, found)
        for index, instance in enumerate(members(at(value, ("namedResources", "instances"))))
    ]
    parts = [devices[start : start + DEVICES_MAX] for start in range(0, len(devices), DEVICES_MAX)] or [[]]
    pool = {"name": node or driver, "generation": 1, "resourceSliceCount": len(parts)}
    place = {"nodeName": node} if node else {"allNodes": True}
    made = [
        {
            "apiVersion": RESOURCE_V1,
            "kind": "ResourceSlice",
            "metadata": _metadata(mapping(value.get("metadata")), index),
            "spec": {"driver": driver, **place, "pool": pool, "devices": part},
        }
        for index, part in enumerate(parts)
    ]
    why = "instances of named resources became devices in a pool"
    found.book.change(("namedResources",), f"{len(devices)} instances", f"{len(devices)} devices", why, rule=RULE)
    found.needs += made[:-1]
    found.value = made[-1]


def _metadata(metadata: dict[str, Any], index: int) -> dict[str, Any]:
    return metadata if index == 0 else {**metadata, "name": f"{text(metadata.get('name'))}-{index}"}


def _instance(instance: dict[str, Any], path: Path, driver: str, names: set[str], found: Object) -> dict[str, Any]:
    given = text(instance.get("name"))
    name = device_name(given, names)
    names.add(name)
    if name != given:
        found.book.change((*path, "name"), given, name, "a device's name is a DNS label", rule=RULE)
    attributes: dict[str, Any] = {}
    capacity: dict[str, Any] = {}
    for index, attribute in enumerate(map(mapping, members(instance.get("attributes")))):
        where = (*path, "attributes", index)
        written = text(attribute.get("name"))
        key = driver_named(driver).attribute_named(written) or identifier(written)
        kinds = [kind for kind in attribute if kind != "name"]
        if len(kinds) != 1 or key in attributes or key in capacity:
            found.book.error(where, f"{shown(attribute)}: expected one value, and each attribute once", rule=RULE)
        elif kinds[0] == "quantity":
            capacity[key] = {"value": attribute["quantity"]}
        elif kinds[0] in _VALUES:
            attributes[key] = {kinds[0]: attribute[kinds[0]]}
        elif kinds[0] in _LISTS:
            list_name = _LISTS[kinds[0]]
            attributes[key] = {list_name: mapping(attribute[kinds[0]]).get(list_name)}
        else:
            found.book.error(where, f"{shown(attribute)}: {kinds[0]} is not a type of attribute", rule=RULE)
        if key != written:
            found.book.change((*where, "name"), written, key, "an attribute's name is an identifier", rule=RULE)
    device: dict[str, Any] = {"name": name}
    if attributes:
        device["attributes"] = attributes
    if capacity:
        device["capacity"] = capacity
    return device


def device_name(given: str, taken: set[str]) -> str:
    """A DNS label from a DNS subdomain, unique among the taken ones."""
    name = re.sub(r"[^a-z0-9-]", "-", given.lower()).strip("-")[:DEVICE_NAME_LENGTH_MAX].strip("-") or "device"
    number, result = 1, name
    while result in taken:
        suffix = f"-{number}"
        result = name[: DEVICE_NAME_LENGTH_MAX - len(suffix)] + suffix
        number += 1
    return result
