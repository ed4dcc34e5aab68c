"""The SDK for drivers: a driver declares devices, prepares and unprepares them; the SDK does everything else.

Works with allot's node agent and with the kubelet. Knows: ResourceSlices, the plugin protocol, CDI files. Does not
know: any particular hardware.

A driver is a subclass of `Driver`, passed to `run`; devices that must be attached to nodes need a `Controller`, passed to `run_controller`. Everything needed is exported here; see `docs/guides/write-a-driver.md`.
"""

from allot.core.cdi import DeviceNode, Hook, IntelRdt, Mount, NetDevice
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.meta import Condition
from allot.core.model.resource_v1 import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    NetworkDeviceData,
)
from allot.core.quantity import Quantity
from allot.driver.attaching import ControllerOptions, RunningController, running_controller
from allot.driver.cdi import Edits
from allot.driver.claims import (
    AllocatedDevice,
    Claim,
    DeviceStatus,
    Preparation,
    Prepared,
    PreparedClaim,
    PrepareError,
)
from allot.driver.classic import (
    Allocated,
    AllocateError,
    ClassicController,
    ClassicDevice,
    PendingClaim,
    running_classic_controller,
)
from allot.driver.configuration import ConfigKind
from allot.driver.controller import AttachError, Attachment, Cluster, Controller
from allot.driver.declare import Version, amount, counter_set, device, nodes_with, quantity
from allot.driver.driver import DeviceHealth, Driver, Health, Node
from allot.driver.plugin import DriverFailed, Options, Plugin, running
from allot.driver.run import run, run_classic_controller, run_controller

__all__ = [
    "AllocateError",
    "Allocated",
    "AllocatedDevice",
    "AttachError",
    "Attachment",
    "CapacityRequestPolicy",
    "CapacityRequestPolicyRange",
    "Claim",
    "ClassicController",
    "ClassicDevice",
    "Cluster",
    "Condition",
    "ConfigKind",
    "Controller",
    "ControllerOptions",
    "CounterSet",
    "Device",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceHealth",
    "DeviceNode",
    "DeviceStatus",
    "DeviceTaint",
    "Driver",
    "DriverFailed",
    "Edits",
    "Health",
    "Hook",
    "IntelRdt",
    "Mount",
    "NetDevice",
    "NetworkDeviceData",
    "Node",
    "Options",
    "PendingClaim",
    "Plugin",
    "Pool",
    "Preparation",
    "PrepareError",
    "Prepared",
    "PreparedClaim",
    "Quantity",
    "RunningController",
    "Version",
    "amount",
    "counter_set",
    "device",
    "nodes_with",
    "quantity",
    "run",
    "run_classic_controller",
    "run_controller",
    "running",
    "running_classic_controller",
    "running_controller",
]
