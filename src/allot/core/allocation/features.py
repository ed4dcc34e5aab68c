"""The optional features of the allocator, each with its own switch.

A disabled feature is not silently ignored: what needs it is refused or left out, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from allot.core.features import FeatureGates


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The allocator's features under upstream's names (in snake case)."""

    admin_access: bool = False
    prioritized_list: bool = False
    partitionable_devices: bool = False
    device_taints: bool = False
    device_binding_and_status: bool = False
    consumable_capacity: bool = False
    fractional_capacity_range: bool = False
    list_type_attributes: bool = False
    optional_node_operations: bool = False
    derived_attributes: bool = False
    compatibility_groups: bool = False

    @staticmethod
    def from_names(names: Iterable[str]) -> Features:
        """Features by name (`ConsumableCapacity`); an unknown name raises UnknownFeature."""
        fields = {}
        for name in names:
            if name not in _FIELD_BY_NAME:
                raise UnknownFeature(
                    f"unknown allocator feature {name!r}: expected some of {', '.join(sorted(_FIELD_BY_NAME))}"
                )
            fields[_FIELD_BY_NAME[name]] = True
        return Features(**fields)

    @staticmethod
    def from_gates(gates: FeatureGates) -> Features:
        """The features that these feature gates switch on."""
        return Features(
            admin_access="DRAAdminAccess" in gates,
            prioritized_list="DRAPrioritizedList" in gates,
            partitionable_devices="DRAPartitionableDevices" in gates,
            device_taints="DRADeviceTaints" in gates,
            # Binding conditions are reported in status.devices: one is useless without the other.
            device_binding_and_status="DRADeviceBindingConditions" in gates and "DRAResourceClaimDeviceStatus" in gates,
            consumable_capacity="DRAConsumableCapacity" in gates,
            fractional_capacity_range="DRAFractionalCapacityRange" in gates,
            list_type_attributes="DRAListTypeAttributes" in gates,
            optional_node_operations="DRAOptionalNodeOperations" in gates,
            derived_attributes="DRADerivedAttributes" in gates,
            compatibility_groups="DRADeviceCompatibilityGroups" in gates,
        )

    def names(self) -> tuple[str, ...]:
        """Names of the features that are on, sorted."""
        return tuple(sorted(name for name, field in _FIELD_BY_NAME.items() if getattr(self, field)))


class UnknownFeature(ValueError):
    """A feature name that does not exist."""


_FIELD_BY_NAME = {
    "".join(part.capitalize() for part in field.split("_")): field for field in Features.__struct_fields__
}

ALL_FEATURES = Features(**dict.fromkeys(Features.__struct_fields__, True))
