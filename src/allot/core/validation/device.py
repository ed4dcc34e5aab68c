"""Devices in a ResourceSlice: handwritten rules for one device."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.model.resource_v1 import (
    ATTRIBUTE_VALUE_LENGTH_MAX,
    ATTRIBUTE_VALUES_MAX,
    ATTRIBUTES_AND_CAPACITIES_MAX,
    CONSUMED_COUNTER_SETS_MAX,
    COUNTERS_PER_SET_MAX,
    TAINTS_MAX,
    Counter,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)
from allot.core.validation import formats
from allot.core.validation.binding_conditions import check_binding_conditions
from allot.core.validation.capacity import check_request_policy
from allot.core.validation.fields import (
    Findings,
    GoValue,
    byte_length,
    child,
    forbidden,
    go_json,
    index,
    invalid,
    required,
    too_long,
)
from allot.core.validation.item_text import item_text
from allot.core.validation.lists import check_list, check_map, check_set
from allot.core.validation.names import check_label, check_qualified_name
from allot.core.validation.node_allocatable import check_node_allocatable
from allot.core.validation.node_selectors import check_node_selector
from allot.core.validation.taints import check_taint

# Longest valid key: domain, slash, identifier.
_QUALIFIED_NAME_LENGTH_MAX = formats.DRIVER_NAME_LENGTH_MAX + 1 + formats.IDENTIFIER_LENGTH_MAX

_ONE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` "
    "is set to true in the ResourceSlice spec"
)
_NO_SELECTION = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` "
    "is set to true in the ResourceSlice spec"
)
_ONE_VALUE = "exactly one value must be specified"
_EMPTY_LIST = "must not be empty if specified"


class DeviceRules(msgspec.Struct, frozen=True):
    """What a device needs to know about its slice and the server."""

    per_device_node_selection: bool
    fractional_ranges: bool


def has_list_attribute(device: Device) -> bool:
    """Whether any attribute has a list value."""
    return any(
        attribute.ints is not None
        or attribute.bools is not None
        or attribute.strings is not None
        or attribute.versions is not None
        for attribute in device.attributes.values()
    )


def check_device(device: Device, old: Device | None, path: str, rules: DeviceRules) -> Findings:
    """One device; unchanged capacity and taints are not checked again."""
    found = check_label(device.name, child(path, "name"))
    found += _check_sizes(device, path)
    found += check_map(
        device.attributes, child(path, "attributes"), check_qualified_name, _check_attribute,
        key_length_max=_QUALIFIED_NAME_LENGTH_MAX,
    )  # fmt: skip
    if old is None or old.capacity != device.capacity:
        found += _check_capacity(device, child(path, "capacity"), rules)
    if old is None or old.taints != device.taints:

        def check_one(taint: DeviceTaint, where: str) -> Findings:
            return check_taint(taint, where)

        found += check_list(device.taints, child(path, "taints"), check_one, maximum=TAINTS_MAX)
    found += check_set(
        device.consumes_counters, child(path, "consumesCounters"), _check_consumption,
        lambda consumption: consumption.counter_set, maximum=CONSUMED_COUNTER_SETS_MAX, covered=True,
    )  # fmt: skip
    found += _check_node_selection(device, path, rules)
    found += check_binding_conditions(device.binding_conditions, device.binding_failure_conditions, path)
    where = child(path, "nodeAllocatableResources")
    return found + check_node_allocatable(device.node_allocatable_resources, device.capacity, where)


def _check_sizes(device: Device, path: str) -> Findings:
    found: Findings = []
    entries = len(device.attributes) + len(device.capacity)
    if entries > ATTRIBUTES_AND_CAPACITIES_MAX:
        detail = f"the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}"
        found.append(invalid(path, entries, detail))
    values = sum(_value_count(attribute) for attribute in device.attributes.values())
    if values > ATTRIBUTE_VALUES_MAX:
        detail = f"the total number of attribute values must not exceed {ATTRIBUTE_VALUES_MAX}"
        found.append(invalid(path, values, detail))
    return found


def _value_count(attribute: DeviceAttribute) -> int:
    lists = (attribute.ints, attribute.bools, attribute.strings, attribute.versions)
    return sum(len(values) for values in lists if values) or 1


def _check_attribute(attribute: DeviceAttribute, path: str) -> Findings:
    found: Findings = []
    if attribute.string is not None:
        found += _check_string(attribute.string, child(path, "string"))
    if attribute.version is not None:
        found += _check_version(attribute.version, child(path, "version"))
    for name in ("bools", "ints", "strings", "versions"):
        if getattr(attribute, name) == ():
            found.append(invalid(child(path, name), [], _EMPTY_LIST))
    for position, value in enumerate(attribute.strings or ()):
        found += _check_string(value, index(child(path, "strings"), position))
    for position, value in enumerate(attribute.versions or ()):
        found += _check_version(value, index(child(path, "versions"), position))
    chosen = [name for name in attribute.__struct_fields__ if getattr(attribute, name) is not None]
    if len(chosen) != 1:
        shown = GoValue(go_json(item_text(attribute))) if chosen else ""
        found.append(invalid(path, shown, _ONE_VALUE, origin="union", covered=True))
    return found


def _check_string(value: str, path: str) -> Findings:
    return [too_long(path, ATTRIBUTE_VALUE_LENGTH_MAX)] if byte_length(value) > ATTRIBUTE_VALUE_LENGTH_MAX else []


def _check_version(value: str, path: str) -> Findings:
    return [invalid(path, value, message) for message in formats.semver(value)] + _check_string(value, path)


def _check_capacity(device: Device, path: str, rules: DeviceRules) -> Findings:
    def check_entry(capacity: DeviceCapacity, where: str) -> Findings:
        if capacity.request_policy is None:
            return []
        policy_path = child(where, "requestPolicy")
        if not device.allow_multiple_allocations:
            return [forbidden(policy_path, "allowMultipleAllocations must be true")]
        return check_request_policy(
            capacity.value, capacity.request_policy, policy_path, fractional=rules.fractional_ranges
        )

    return check_map(
        device.capacity, path, check_qualified_name, check_entry, key_length_max=_QUALIFIED_NAME_LENGTH_MAX
    )


def _check_consumption(consumption: DeviceCounterConsumption, path: str) -> Findings:
    found: Findings = []
    if not consumption.counter_set:
        found.append(required(child(path, "counterSet"), covered=True))
    else:
        found += check_label(consumption.counter_set, child(path, "counterSet"), covered=True)
    return found + check_counters(consumption.counters, child(path, "counters"), COUNTERS_PER_SET_MAX)


def check_counters(counters: Mapping[str, Counter], path: str, maximum: int) -> Findings:
    """Named counters of a set or of a device; any amount is valid."""
    if not counters:
        return [required(path, covered=True)]

    def check_name(name: str, where: str) -> Findings:
        return check_label(name, where, covered=True)

    def check_value(counter: Counter, where: str) -> Findings:
        del counter, where
        return []

    return check_map(counters, path, check_name, check_value, key_length_max=formats.LABEL_LENGTH_MAX, maximum=maximum)


def _check_node_selection(device: Device, path: str, rules: DeviceRules) -> Findings:
    if not rules.per_device_node_selection:
        unset = device.node_name is None and device.node_selector is None and device.all_nodes is None
        return [] if unset else [invalid(path, None, _NO_SELECTION)]
    found: Findings = []
    chosen = []
    if device.node_name == "":
        found.append(invalid(child(path, "nodeName"), "", "must not be empty"))
    elif device.node_name is not None:
        chosen.append("`nodeName`")
        for message in formats.dns_subdomain(device.node_name):
            found.append(invalid(child(path, "nodeName"), device.node_name, message))
    if device.node_selector is not None:
        chosen.append("`nodeSelector`")
        found += check_node_selector(device.node_selector, child(path, "nodeSelector"))
    if device.all_nodes:
        chosen.append("`allNodes`")
    elif device.all_nodes is not None:
        found.append(invalid(child(path, "allNodes"), False, "must be either unset or set to true"))
    if not chosen:
        found.append(required(path, _ONE_SELECTION))
    elif len(chosen) > 1:
        found.append(invalid(path, "{" + ", ".join(chosen) + "}", _ONE_SELECTION))
    return found
