"""ResourceClaim status: handwritten rules for allocation, consumers and device reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allot.core.model.resource_v1 import (
    ALLOCATION_CONFIG_MAX,
    ALLOCATION_RESULTS_MAX,
    RESERVED_FOR_MAX,
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    NetworkDeviceData,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from allot.core.validation import formats
from allot.core.validation.binding_conditions import check_binding_conditions
from allot.core.validation.claim import (
    RequestNames,
    admin_access_findings,
    check_request_reference,
    check_request_references,
    request_names,
)
from allot.core.validation.configuration import check_configuration, check_raw_json
from allot.core.validation.fields import (
    Findings,
    GoValue,
    byte_length,
    child,
    forbidden,
    go_json,
    index,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from allot.core.validation.item_text import item_text
from allot.core.validation.lists import check_list, check_set
from allot.core.validation.names import check_driver_name, check_label, check_pool_name, check_share_id
from allot.core.validation.node_selectors import check_node_selector
from allot.core.validation.object_meta import IMMUTABLE_TEXT, check_conditions, check_object_meta_update
from allot.core.validation.rules_resource import (
    CONFIG_SOURCES,
    HARDWARE_ADDRESS_LENGTH_MAX,
    INTERFACE_NAME_LENGTH_MAX,
    IPS_MAX,
)
from allot.core.validation.skip_operations import check_skip_node_operations
from allot.core.validation.taints import check_toleration

DEVICE_CONDITIONS_MAX = 8
DEVICE_DATA_LENGTH_MAX = 10 * 1024

_MUST_BE_ALLOCATED = "must be an allocated device in the claim"

# driver, pool, device, shareID
DeviceKey = tuple[str, str, str, str]


def device_key(device: AllocatedDeviceStatus | DeviceRequestAllocationResult) -> DeviceKey:
    """What identifies an allocated device or one share of it."""
    return device.driver, device.pool, device.device, device.share_id or ""


def check_status_update(new: ResourceClaim, old: ResourceClaim) -> Findings:
    """A write to the status subresource."""
    found = check_object_meta_update(new.metadata, old.metadata)
    status, path = new.status, "status"
    found += check_set(
        status.reserved_for, child(path, "reservedFor"), _check_consumer, lambda consumer: consumer.uid,
        maximum=RESERVED_FOR_MAX, covered=True,
    )  # fmt: skip
    results = status.allocation.devices.results if status.allocation is not None else ()
    allocated = frozenset(device_key(result) for result in results)

    def check_device(device: AllocatedDeviceStatus, where: str) -> Findings:
        return _check_device(device, where, allocated)

    found += check_set(status.devices, child(path, "devices"), check_device, device_key, covered=True)
    found += _check_reservations(new, old, child(path, "reservedFor"))
    return found + _check_allocation(status, old.status, child(path, "allocation"), request_names(new.spec.devices))


def check_status_admin_access(
    new: ResourceClaimStatus, old: ResourceClaimStatus, namespace_labels: Mapping[str, str]
) -> Findings:
    """Whether the namespace permits admin access, unless it was granted before."""
    if old.allocation is not None and any(result.admin_access for result in old.allocation.devices.results):
        return []
    results = new.allocation.devices.results if new.allocation is not None else ()
    for position, result in enumerate(results):
        if result.admin_access:
            return admin_access_findings(f"status.allocation.devices.results[{position}].adminAccess", namespace_labels)
    return []


def _check_consumer(consumer: ResourceClaimConsumerReference, path: str) -> Findings:
    return [required(child(path, name)) for name in ("resource", "name", "uid") if not getattr(consumer, name)]


def _check_reservations(new: ResourceClaim, old: ResourceClaim, path: str) -> Findings:
    if not new.status.reserved_for:
        return []
    if new.status.allocation is None:
        return [forbidden(path, "may not be specified when `allocated` is not set")]
    added = set(new.status.reserved_for) - set(old.status.reserved_for)
    if new.metadata.deletion_timestamp is not None and added:
        detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        return [forbidden(path, detail)]
    return []


def _check_allocation(
    status: ResourceClaimStatus, old: ResourceClaimStatus, path: str, names: RequestNames
) -> Findings:
    if status.allocation is None:
        return []
    if old.allocation is None:
        return _check_new_allocation(status.allocation, path, names)
    # An allocation never changes and, since rules became stricter over time, is never checked again.
    if status.allocation == old.allocation:
        return []
    text = GoValue(go_json(item_text(status.allocation)))
    return [invalid(path, text, IMMUTABLE_TEXT, origin="update", covered=True)]


def _check_new_allocation(allocation: AllocationResult, path: str, names: RequestNames) -> Findings:
    def check_result(result: DeviceRequestAllocationResult, where: str) -> Findings:
        return _check_result(result, where, names)

    def check_entry(entry: DeviceAllocationConfiguration, where: str) -> Findings:
        found = _check_source(entry.source, child(where, "source"))
        found += check_request_references(entry.requests, child(where, "requests"), names)
        return found + check_configuration(entry.opaque, where)

    devices = allocation.devices
    results_path, config_path = child(path, "devices", "results"), child(path, "devices", "config")
    found = check_list(devices.results, results_path, check_result, maximum=ALLOCATION_RESULTS_MAX, size_covered=True)
    found += check_list(devices.config, config_path, check_entry, maximum=ALLOCATION_CONFIG_MAX, size_covered=True)
    if allocation.node_selector is not None:
        found += check_node_selector(allocation.node_selector, child(path, "nodeSelector"))
    return found


def _check_result(result: DeviceRequestAllocationResult, path: str, names: RequestNames) -> Findings:
    found = check_request_reference(result.request, child(path, "request"), names)
    found += check_driver_name(result.driver, child(path, "driver"), covered=True)
    found += check_pool_name(result.pool, child(path, "pool"), covered=True)
    found += check_label(result.device, child(path, "device"))
    found += check_binding_conditions(result.binding_conditions, result.binding_failure_conditions, path)
    for position, toleration in enumerate(result.tolerations):
        found += check_toleration(toleration, index(child(path, "tolerations"), position))
    if result.share_id is not None:
        found += check_share_id(result.share_id, child(path, "shareID"))
    return found + check_skip_node_operations(result.skip_node_operations, child(path, "skipNodeOperations"))


def _check_source(source: str, path: str) -> Findings:
    if not source:
        return [required(path, covered=True)]
    return [] if source in CONFIG_SOURCES else [not_supported(path, source, CONFIG_SOURCES, covered=True)]


def _check_device(device: AllocatedDeviceStatus, path: str, allocated: frozenset[DeviceKey]) -> Findings:
    found = check_driver_name(device.driver, child(path, "driver"))
    found += check_pool_name(device.pool, child(path, "pool"))
    found += check_label(device.device, child(path, "device"))
    if device.share_id is not None:
        found += check_share_id(device.share_id, child(path, "shareID"))
    if device_key(device) not in allocated:
        shown = dict(zip(("Driver", "Pool", "Device", "ShareID"), device_key(device), strict=True))
        found.append(invalid(path, shown, _MUST_BE_ALLOCATED))
    conditions_path = child(path, "conditions")
    if len(device.conditions) > DEVICE_CONDITIONS_MAX:
        found.append(too_many(conditions_path, len(device.conditions), DEVICE_CONDITIONS_MAX))
    found += check_conditions(device.conditions, conditions_path)
    if device.data is not None:
        found += check_raw_json(device.data, child(path, "data"), DEVICE_DATA_LENGTH_MAX)
    if device.network_data is not None:
        found += _check_network(device.network_data, child(path, "networkData"))
    return found


def _check_network(network: NetworkDeviceData, path: str) -> Findings:
    found: Findings = []
    if byte_length(network.interface_name) > INTERFACE_NAME_LENGTH_MAX:
        where = child(path, "interfaceName")
        found.append(too_long(where, INTERFACE_NAME_LENGTH_MAX, origin="maxBytes", covered=True))
    if byte_length(network.hardware_address) > HARDWARE_ADDRESS_LENGTH_MAX:
        where = child(path, "hardwareAddress")
        found.append(too_long(where, HARDWARE_ADDRESS_LENGTH_MAX, origin="maxBytes", covered=True))

    def check_address(address: str, where: str) -> Findings:
        return [invalid(where, address, message) for message in formats.interface_address(address)]

    addresses: Sequence[str] = network.ips
    found += check_set(
        addresses, child(path, "ips"), check_address, lambda address: address, maximum=IPS_MAX, covered=True
    )
    return found
