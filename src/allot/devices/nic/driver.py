"""The driver: publishes interfaces, gives claims an interface or a part of its bandwidth, and reports it in the claim's status.

It does not set addresses or routes: it checks them, passes them to containers and the claim's status, and if a runtime can move an
interface (CDI 1.1) it requests that. On a real interface the condition NetworkReady is False while something requested is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from allot.devices.nic.config import KINDS, NetworkConfig, ParametersError, check_config
from allot.devices.nic.interfaces import Interface, Interfaces
from allot.devices.nic.inventory import BANDWIDTH, DRIVER_NAME, declared, device_name, edits, network_data
from allot.devices.nic.simulated_sysfs import sysfs_mount
from allot.driver import (
    AllocatedDevice,
    Claim,
    Condition,
    Device,
    DeviceHealth,
    DeviceStatus,
    Driver,
    Health,
    Prepared,
    PrepareError,
)


class NicDriver(Driver):
    """Interfaces of one machine. shares_bandwidth and moves_interfaces exclude each other: a moved interface is not shared. sysfs: where to
    write simulated interfaces for containers' `/sys/class/net`; not all runtimes can mount there."""

    name = DRIVER_NAME
    configs = KINDS
    cdi_class = "net"
    rescan_s = 10.0

    def __init__(
        self,
        interfaces: Interfaces,
        *,
        shares_bandwidth: bool = False,
        moves_interfaces: bool = False,
        sysfs: Path | None = None,
    ) -> None:
        assert not (shares_bandwidth and moves_interfaces)
        self._interfaces = interfaces
        self._shares_bandwidth = shares_bandwidth
        self._moves_interfaces = moves_interfaces
        self._sysfs = sysfs
        # All interfaces ever seen, so that a missing one is reported as unhealthy.
        self._seen: dict[str, Interface] = {}

    def _read(self) -> dict[str, Interface]:
        found = {device_name(each): each for each in self._interfaces.read()}
        self._seen |= found
        if self._moves_interfaces:
            # An interface in a container is no longer on the host but still exists.
            held = {device.name for claim in self.node.prepared() for device in claim.devices}
            found |= {name: each for name, each in self._seen.items() if name in held and name not in found}
        return found

    def devices(self) -> Iterable[Device]:
        """All interfaces that claims may have."""
        return [declared(each, self._shares_bandwidth) for each in self._read().values()]

    def health(self) -> Iterable[DeviceHealth]:
        """An interface is healthy while it exists."""
        present = self._read()
        for name, interface in self._seen.items():
            if name in present:
                yield DeviceHealth(name=name)
            else:
                message = f"interface {interface.name} is gone"
                yield DeviceHealth(name=name, health=Health.UNHEALTHY, message=message)

    def prepare(self, claim: Claim) -> Iterable[Prepared]:
        """Check the request, and report to containers and the claim."""
        present = self._read()
        prepared = []
        names: set[str] = set()
        for device in claim.devices:
            where = f"claim {claim.namespace}/{claim.name}, device {device.name}"
            config = device.config(NetworkConfig, NetworkConfig())
            try:
                check_config(config)
            except ParametersError as error:
                raise PrepareError(f"{where}: {error}") from None
            interface = present.get(device.name)
            if interface is None:
                raise PrepareError(f"{where}: the interface is gone")
            network = network_data(interface, config)
            if config.interface.name and network.interface_name in names:
                raise PrepareError(f"{where}: interface.name {network.interface_name!r} is given to two devices")
            names.add(network.interface_name)
            moves = self._moves_interfaces and not interface.is_simulated and not device.admin_access
            status = DeviceStatus(conditions=conditions(interface, config, moves), network=network)
            given = edits(interface, config, _share_bps(device), moves)
            if self._sysfs is not None and interface.is_simulated:
                shown = sysfs_mount(self._sysfs, interface, network.interface_name)
                given = msgspec.structs.replace(given, mounts=(*given.mounts, shown))
            prepared.append(Prepared(device, given, status=status, network=network))
        return prepared


def _share_bps(device: AllocatedDevice) -> int | None:
    consumed = device.consumed_capacity.get(BANDWIDTH)
    return consumed.value() if consumed is not None else None


def conditions(interface: Interface, config: NetworkConfig, moves: bool) -> tuple[Condition, ...]:
    """The conditions of an interface in its claim's status."""
    left_out = _left_out(interface, config, moves)
    if interface.is_simulated:
        network = Condition(
            type="NetworkReady", status="True", reason="Simulated", message="there is no real interface"
        )
    elif left_out:
        message = f"not done by this driver: {', '.join(left_out)}"
        network = Condition(type="NetworkReady", status="False", reason="NotConfigured", message=message)
    elif interface.state == "down":
        network = Condition(type="NetworkReady", status="False", reason="LinkDown", message="the link is down")
    else:
        network = Condition(type="NetworkReady", status="True", reason="NetworkReady")
    ready = (Condition(type="Ready", status="True", reason="DevicePrepared"), network)
    if not interface.rdma_name:
        return ready
    message = f"RDMA device {interface.rdma_name}"
    return (*ready, Condition(type="RDMALinkReady", status="True", reason="RDMALinkReady", message=message))


def _left_out(interface: Interface, config: NetworkConfig, moves: bool) -> list[str]:
    """Requested settings that a runtime does not apply."""
    wanted = config.interface
    asked = {
        "interface.name": bool(wanted.name) and wanted.name != interface.name and not moves,
        "interface.addresses": bool(set(wanted.addresses) - {*interface.ipv4, *interface.ipv6}),
        "interface.dhcp": bool(wanted.dhcp),
        "interface.mtu": wanted.mtu not in (None, interface.mtu),
        "interface.hardwareAddr": wanted.hardware_addr not in (None, interface.hardware_address),
        "interface.gsoMaxSize": wanted.gso_max_size is not None,
        "interface.groMaxSize": wanted.gro_max_size is not None,
        "interface.gsoIPv4MaxSize": wanted.gso_ipv4_max_size is not None,
        "interface.groIPv4MaxSize": wanted.gro_ipv4_max_size is not None,
        "interface.disableEbpfPrograms": bool(wanted.disable_ebpf_programs),
        "routes": bool(config.routes),
        "rules": bool(config.rules),
        "neighbors": bool(config.neighbors),
        "ethtool": config.ethtool is not None,
    }
    return [field for field, is_asked in asked.items() if is_asked]
