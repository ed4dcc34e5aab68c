"""Published interfaces, the containers' edits, and the claim's status. Attributes as in dranet."""

from __future__ import annotations

import base64
import re

from allot.devices.nic.config import NetworkConfig
from allot.devices.nic.interfaces import Interface
from allot.driver import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceNode,
    Edits,
    NetDevice,
    NetworkDeviceData,
    Quantity,
    amount,
    device,
    quantity,
)
from allot.driver.declare import AttributeValue

DRIVER_NAME = "dra.net"
BANDWIDTH = f"{DRIVER_NAME}/bandwidth"
_STRING_LENGTH_MAX = 64
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_STEP = Quantity.parse("1M")
_PREFIX = f"{DRIVER_NAME}/"


def device_name(interface: Interface) -> str:
    """A device's name: from its PCI address, or from the interface's name without one."""
    if interface.place.address:
        return "pci-" + interface.place.address.replace(":", "-").replace(".", "-")
    if _DNS_LABEL.fullmatch(interface.name):
        return interface.name
    encoded = base64.b32encode(interface.name.encode()).decode().rstrip("=").lower()
    return f"net-{encoded}"


def declared(interface: Interface, shares_bandwidth: bool) -> Device:
    """An interface as a device. shares_bandwidth: several claims may share its bandwidth."""
    capacity = {}
    if interface.speed_mbps:
        whole = quantity(f"{interface.speed_mbps}M")
        # The default is the whole bandwidth.
        policy = CapacityRequestPolicy(
            default=whole, valid_range=CapacityRequestPolicyRange(min=_STEP, max=whole, step=_STEP)
        )
        capacity[BANDWIDTH] = amount(whole, policy if shares_bandwidth else None)
    return device(
        device_name(interface),
        attributes=_attributes(interface),
        capacity=capacity,
        shared=shares_bandwidth and bool(capacity),
    )


def _attributes(interface: Interface) -> dict[str, AttributeValue]:
    texts = {
        "ifName": interface.name,
        "mac": interface.hardware_address,
        "state": interface.state,
        "type": interface.type,
        "encapsulation": interface.encapsulation,
        "alias": interface.alias,
        "pciAddress": interface.place.address,
        "pciVendor": interface.pci_vendor,
        "pciDevice": interface.pci_device,
        "pciSubsystem": interface.pci_subsystem,
        "ipv4": ",".join(interface.ipv4),
        "ipv6": ",".join(interface.ipv6),
    }
    attributes: dict[str, AttributeValue] = {
        # A text that is too long is left out: a truncated address would be wrong.
        f"{_PREFIX}{name}": text
        for name, text in texts.items()
        if 0 < len(text) <= _STRING_LENGTH_MAX
    }
    attributes |= {
        f"{_PREFIX}mtu": interface.mtu,
        f"{_PREFIX}rdma": bool(interface.rdma_name),
        f"{_PREFIX}virtual": interface.is_virtual,
        f"{_PREFIX}sriov": interface.sriov_vfs > 0,
    }
    if interface.sriov_vfs:
        attributes[f"{_PREFIX}sriovVfs"] = interface.sriov_vfs
    if interface.numa_node >= 0:
        attributes[f"{_PREFIX}numaNode"] = interface.numa_node
    if interface.place.root:
        attributes["resource.kubernetes.io/pcieRoot"] = interface.place.root
    return attributes


def network_data(interface: Interface, config: NetworkConfig) -> NetworkDeviceData:
    """The claim's status: the interface as the pod sees it."""
    return NetworkDeviceData(
        interface_name=config.interface.name or interface.name,
        ips=config.interface.addresses or (*interface.ipv4, *interface.ipv6),
        hardware_address=config.interface.hardware_addr or interface.hardware_address,
    )


def edits(interface: Interface, config: NetworkConfig, share_bps: int | None, moves: bool) -> Edits:
    """The container's edits. share_bps: its part of the bandwidth; moves: the interface itself moves into the container."""
    seen = network_data(interface, config)
    name = re.sub(r"[^A-Z0-9]", "_", device_name(interface).upper())
    env = {f"NET_DEVICE_{name}": seen.interface_name}
    if seen.ips:
        env[f"NET_DEVICE_{name}_IPS"] = ",".join(seen.ips)
    if share_bps is not None:
        env[f"NET_DEVICE_{name}_BANDWIDTH"] = str(share_bps)
    if interface.rdma_name:
        env[f"NET_DEVICE_{name}_RDMA"] = interface.rdma_name
    net_devices = (NetDevice(host_interface_name=interface.name, name=seen.interface_name),) if moves else ()
    nodes = tuple(DeviceNode(path=path, permissions="rw") for path in interface.rdma_files)
    return Edits(env=env, net_devices=net_devices, device_nodes=nodes)
