"""ResourceSlice: handwritten rules for the slice as a whole; devices are in `device`."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.features import FeatureGates
from allot.core.model.core_v1 import NodeSelector
from allot.core.model.resource_v1 import (
    COUNTERS_PER_SET_MAX,
    SLICE_COUNTER_SETS_MAX,
    SLICE_DEVICES_MAX,
    SLICE_DEVICES_WITH_FEATURES_MAX,
    CounterSet,
    Device,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from allot.core.validation import formats
from allot.core.validation.device import DeviceRules, check_counters, check_device, has_list_attribute
from allot.core.validation.fields import Findings, GoValue, child, go_json, index, invalid, key, required
from allot.core.validation.item_text import item_text
from allot.core.validation.lists import check_set
from allot.core.validation.names import check_driver_name, check_fully_qualified_name, check_label, check_pool_name
from allot.core.validation.node_selectors import check_node_selector
from allot.core.validation.object_meta import IMMUTABLE_TEXT, check_object_meta, check_object_meta_update
from allot.core.validation.skip_operations import check_skip_node_operations

_ONE_SELECTION = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_TRUE_OR_UNSET = "must be either unset or set to true"
_MISSING_PARTITION_TYPE = (
    "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"
)
_PARTITION_TYPE_NOT_STRING = "must be a string value because `partitionTypeAttribute` names this attribute"


def check_create(slice_: ResourceSlice, gates: FeatureGates) -> Findings:
    """A new slice."""
    return check_object_meta(slice_.metadata, namespaced=False) + _check_spec(slice_.spec, None, gates)


def check_update(new: ResourceSlice, old: ResourceSlice, gates: FeatureGates) -> Findings:
    """A changed slice: driver, pool and node are immutable."""
    found = check_object_meta_update(new.metadata, old.metadata)
    return found + _check_spec(new.spec, old.spec, gates)


def _check_spec(spec: ResourceSliceSpec, old: ResourceSliceSpec | None, gates: FeatureGates) -> Findings:
    path = "spec"
    found = check_driver_name(spec.driver, child(path, "driver"))
    found += _check_pool(spec.pool, child(path, "pool"))
    if old is not None:
        found += _check_immutable(spec, old, path)
    found += _check_node_selection(spec, path)
    if spec.shared_counters is not None and spec.devices is not None:
        found.append(invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
    found += _check_devices(spec, old, child(path, "devices"), gates)
    found += check_set(
        spec.shared_counters or (), child(path, "sharedCounters"), _check_counter_set, lambda counters: counters.name,
        maximum=SLICE_COUNTER_SETS_MAX, covered=True,
    )  # fmt: skip
    if spec.partition_type_attribute is not None:
        found += _check_partition_type(spec, spec.partition_type_attribute, path)
    return found + check_skip_node_operations(spec.skip_node_operations, child(path, "skipNodeOperations"))


def _check_immutable(spec: ResourceSliceSpec, old: ResourceSliceSpec, path: str) -> Findings:
    found: Findings = []
    if spec.pool.name != old.pool.name:
        found.append(invalid(child(path, "pool", "name"), spec.pool.name, IMMUTABLE_TEXT))
    if spec.driver != old.driver:
        found.append(invalid(child(path, "driver"), spec.driver, IMMUTABLE_TEXT))
    if spec.node_name != old.node_name:
        # A pointer, so that Go prints it as JSON.
        shown = GoValue(go_json(spec.node_name))
        found.append(invalid(child(path, "nodeName"), shown, IMMUTABLE_TEXT))
    return found


def _check_pool(pool: ResourcePool, path: str) -> Findings:
    found = check_pool_name(pool.name, child(path, "name"))
    if pool.resource_slice_count <= 0:
        where = child(path, "resourceSliceCount")
        found.append(invalid(where, pool.resource_slice_count, "must be greater than zero"))
    if pool.generation < 0:
        found.append(invalid(child(path, "generation"), pool.generation, "must be greater than or equal to zero"))
    return found


def _check_node_selection(spec: ResourceSliceSpec, path: str) -> Findings:
    """The slice belongs to a node, to selected nodes, to all nodes, or each device selects its own."""
    found: Findings = []
    chosen = []
    if spec.node_name == "":
        where = child(path, "nodeName")
        found.append(invalid(where, spec.node_name, "must be either unset or set to a non-empty string"))
    elif spec.node_name is not None:
        chosen.append("`nodeName`")
        found += check_node_name(spec.node_name, child(path, "nodeName"))
    if spec.node_selector is not None:
        chosen.append("`nodeSelector`")
        found += _check_selector(spec.node_selector, child(path, "nodeSelector"))
    for name, value in (("allNodes", spec.all_nodes), ("perDeviceNodeSelection", spec.per_device_node_selection)):
        if value:
            chosen.append(f"`{name}`")
        elif value is not None:
            found.append(invalid(child(path, name), value, _TRUE_OR_UNSET))
    if not chosen:
        found.append(required(path, _ONE_SELECTION))
    elif len(chosen) > 1:
        shown = "{" + ", ".join(chosen) + "}"
        found.append(invalid(path, shown, f"{_ONE_SELECTION}, but multiple fields are set"))
    return found


def check_node_name(name: str, path: str) -> Findings:
    """A node's name."""
    return [invalid(path, name, message) for message in formats.dns_subdomain(name)]


def _check_selector(selector: NodeSelector, path: str) -> Findings:
    found = check_node_selector(selector, path)
    if len(selector.node_selector_terms) != 1:
        # One term only, so that the selectors of several slices can be merged in an allocation.
        shown = GoValue(go_json(item_text(selector.node_selector_terms)))
        where = child(path, "nodeSelectorTerms")
        found.append(invalid(where, shown, "must have exactly one node selector term"))
    return found


def _check_devices(spec: ResourceSliceSpec, old: ResourceSliceSpec | None, path: str, gates: FeatureGates) -> Findings:
    devices: Sequence[Device] = spec.devices or ()
    demanding = any(device.taints or device.consumes_counters or has_list_attribute(device) for device in devices)
    maximum = SLICE_DEVICES_WITH_FEATURES_MAX if demanding else SLICE_DEVICES_MAX
    before: dict[str, Device] = {}
    for device in (old.devices if old is not None else None) or ():
        before.setdefault(device.name, device)
    rules = DeviceRules(bool(spec.per_device_node_selection), "DRAFractionalCapacityRange" in gates)

    def check(device: Device, where: str) -> Findings:
        return check_device(device, before.get(device.name), where, rules)

    return check_set(devices, path, check, lambda device: device.name, maximum=maximum)


def _check_counter_set(counters: CounterSet, path: str) -> Findings:
    found: Findings = []
    if not counters.name:
        found.append(required(child(path, "name"), covered=True))
    else:
        found += check_label(counters.name, child(path, "name"), covered=True)
    return found + check_counters(counters.counters, child(path, "counters"), COUNTERS_PER_SET_MAX)


def _check_partition_type(spec: ResourceSliceSpec, name: str, path: str) -> Findings:
    devices: Sequence[Device] = spec.devices or ()
    if not any(device.consumes_counters for device in devices):
        detail = "may only be set on a slice which declares devices that consume counters"
        return [invalid(child(path, "partitionTypeAttribute"), name, detail)]
    if check_fully_qualified_name(name, path):
        # A declarative rule reports the malformed name, which no device can have; one error is enough.
        return []
    found: Findings = []
    bare = name.removeprefix(f"{spec.driver}/")
    for position, device in enumerate(devices):
        if not device.consumes_counters:
            continue
        where = key(child(index(child(path, "devices"), position), "attributes"), name)
        attribute = device.attributes.get(name, device.attributes.get(bare))
        if attribute is None:
            found.append(required(where, _MISSING_PARTITION_TYPE))
        elif attribute.string is None:
            found.append(invalid(where, GoValue(go_json(item_text(attribute))), _PARTITION_TYPE_NOT_STRING))
    return found
