"""The SDK for drivers: declare devices, prepare and unprepare them; everything else is done here.

Works under allot's node agent and under the kubelet alike. Knows: ResourceSlices, the plugin protocol, CDI files. Does not
know: any particular hardware.

A driver is a subclass of `Driver`, given to `run`. What it needs is exported here; `docs/guides/write-a-driver.md` tells how.
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
from allot.driver.configuration import ConfigKind
from allot.driver.declare import Version, amount, counter_set, device, quantity
from allot.driver.driver import DeviceHealth, Driver, Health, Node
from allot.driver.plugin import DriverFailed, Options, Plugin, running
from allot.driver.run import run

__all__ = [
    "AllocatedDevice",
    "CapacityRequestPolicy",
    "CapacityRequestPolicyRange",
    "Claim",
    "Condition",
    "ConfigKind",
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
    "Plugin",
    "Pool",
    "Preparation",
    "PrepareError",
    "Prepared",
    "PreparedClaim",
    "Quantity",
    "Version",
    "amount",
    "counter_set",
    "device",
    "quantity",
    "run",
    "running",
]
