"""Network interfaces: from the kernel's `/sys` and `/proc`, or from a machine profile."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from allot.devices.cpu.topology import local_cpus
from allot.devices.profiles.machines import Machine
from allot.devices.sysfs import PciPlace, children, pci_place, read_int, read_line

# ARPHRD numbers of the kernel (if_arp.h), as `ip link` names them.
_ENCAPSULATIONS: Mapping[int, str] = {
    1: "ether", 32: "infiniband", 768: "ipip", 769: "tunnel6", 772: "loopback", 776: "sit", 778: "gre", 65534: "none",
}  # fmt: skip
_SIOCGIFADDR = 0x8915
_SIOCGIFNETMASK = 0x891B
_ROUTE_UP = 0x1
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "dra.net")


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface. speed_mbps: 0 if not known; numa_node: -1 if not reported."""

    name: str
    hardware_address: str = ""
    mtu: int = 0
    speed_mbps: int = 0
    state: str = ""
    # `device` for a card, or the kernel's type: bridge, vlan, veth.
    type: str = "device"
    encapsulation: str = ""
    alias: str = ""
    place: PciPlace = PciPlace()
    numa_node: int = -1
    pci_vendor: str = ""
    pci_device: str = ""
    pci_subsystem: str = ""
    sriov_vfs: int = 0
    is_virtual: bool = False
    rdma_name: str = ""
    rdma_files: tuple[str, ...] = ()
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    is_simulated: bool = False
    # The CPUs near a simulated interface, in the kernel's format.
    local_cpus: str = ""


class Interfaces(Protocol):
    """A source of interfaces."""

    def read(self) -> tuple[Interface, ...]:
        """The interfaces for claims."""


class KernelInterfaces:
    """The interfaces of this machine, without loopback, those of default routes, and those of pods."""

    def __init__(
        self, sys_root: Path, proc_root: Path, read_ipv4: Callable[[str], tuple[str, ...]] | None = None
    ) -> None:
        self._sys_root = sys_root
        self._proc_root = proc_root
        self._read_ipv4 = read_ipv4 or ask_ipv4

    def read(self) -> tuple[Interface, ...]:
        """The kernel's interfaces."""
        uplinks = default_route_interfaces(
            read_line(self._proc_root / "net" / "route"), read_line(self._proc_root / "net" / "ipv6_route")
        )
        addresses = parse_ipv6_addresses(read_line(self._proc_root / "net" / "if_inet6"))
        found = []
        for folder in children(self._sys_root / "class" / "net"):
            name = folder.name
            if name == "lo" or name in uplinks or not (folder / "address").exists():
                continue
            interface = self._interface(folder, self._read_ipv4(name), addresses.get(name, ()))
            # One end of a pod's own network.
            if interface.type != "veth":
                found.append(interface)
        return tuple(found)

    def _interface(self, folder: Path, ipv4: tuple[str, ...], ipv6: tuple[str, ...]) -> Interface:
        device = folder / "device"
        place = pci_place(device) if device.exists() else PciPlace()
        function = self._sys_root / "bus" / "pci" / "devices" / place.address if place.address else device
        rdma = [each.name for each in children(device / "infiniband")]
        return Interface(
            name=folder.name,
            hardware_address=read_line(folder / "address"),
            mtu=read_int(folder / "mtu", 0),
            speed_mbps=max(read_int(folder / "speed", 0), 0),
            state=read_line(folder / "operstate"),
            type=_device_type(folder),
            encapsulation=_ENCAPSULATIONS.get(read_int(folder / "type", -1), ""),
            alias=read_line(folder / "ifalias"),
            place=place,
            numa_node=read_int(function / "numa_node", read_int(device / "numa_node", -1)),
            pci_vendor=read_line(function / "vendor"),
            pci_device=read_line(function / "device"),
            pci_subsystem=read_line(function / "subsystem_device"),
            sriov_vfs=read_int(function / "sriov_totalvfs", 0),
            is_virtual="virtual" in folder.resolve().parts,
            rdma_name=rdma[0] if rdma else "",
            rdma_files=_rdma_files(device),
            ipv4=ipv4,
            ipv6=ipv6,
        )


def _device_type(folder: Path) -> str:
    for line in read_line(folder / "uevent").splitlines():
        key, _, value = line.partition("=")
        if key == "DEVTYPE":
            return value
    # The kernel reports no type for a veth pair; each end links to the other, mostly in another namespace.
    peer = read_int(folder / "iflink", 0)
    if not (folder / "device").exists() and peer not in (0, read_int(folder / "ifindex", 0)):
        return "veth"
    return "device"


def _rdma_files(device: Path) -> tuple[str, ...]:
    """The device files that RDMA programs open; the connection manager is shared by all cards."""
    own = [
        f"/dev/infiniband/{each.name}"
        for folder in ("infiniband_verbs", "infiniband_mad")
        for each in children(device / folder)
        if each.name.startswith(("uverbs", "umad", "issm"))
    ]
    return (*own, "/dev/infiniband/rdma_cm") if own else ()


def default_route_interfaces(ipv4_routes: str, ipv6_routes: str) -> frozenset[str]:
    """Interfaces with a default route, from the kernel's tables: the node itself needs them."""
    found = set()
    for line in ipv4_routes.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 8 and fields[1] == fields[7] == "00000000" and int(fields[3], 16) & _ROUTE_UP:
            found.add(fields[0])
    for line in ipv6_routes.splitlines():
        fields = line.split()
        # The kernel keeps a rejecting default route on lo.
        if len(fields) >= 10 and fields[0] == "0" * 32 and fields[1] == "00" and fields[9] != "lo":
            found.add(fields[9])
    return frozenset(found)


def parse_ipv6_addresses(text: str) -> dict[str, tuple[str, ...]]:
    """Global addresses by interface, from `/proc/net/if_inet6`."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 6 and len(fields[0]) == 32:
            address = ipaddress.IPv6Address(bytes.fromhex(fields[0]))
            if not address.is_link_local:
                found[fields[5]] = (*found.get(fields[5], ()), f"{address}/{int(fields[2], 16)}")
    return found


def ask_ipv4(name: str) -> tuple[str, ...]:
    """The first IPv4 address of an interface; the kernel has no file for it."""
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            address = fcntl.ioctl(asking, _SIOCGIFADDR, request)[20:24]
            mask = fcntl.ioctl(asking, _SIOCGIFNETMASK, request)[20:24]
        except OSError:
            return ()
    return (f"{ipaddress.IPv4Address(address)}/{int.from_bytes(mask).bit_count()}",)


class SimulatedInterfaces:
    """The network cards of a machine profile. Addresses depend on the node's name, so that they stay the same."""

    def __init__(self, machine: Machine, node: str) -> None:
        self._interfaces = tuple(
            Interface(
                name=card.interface,
                hardware_address=_hardware_address(node, card.interface),
                mtu=card.mtu,
                speed_mbps=card.speed_gbps * 1000,
                state="up",
                encapsulation="infiniband" if card.interface.startswith("ib") else "ether",
                place=PciPlace(card.bus.pci_address, card.bus.pcie_root),
                numa_node=card.bus.numa_node,
                pci_vendor=card.vendor,
                pci_device=card.product,
                rdma_name=f"mlx5_{index}" if card.has_rdma else "",
                ipv4=(f"10.{33 + index}.0.{_host(node)}/32",),
                is_simulated=True,
                local_cpus=local_cpus(machine, card.bus.numa_node),
            )
            for index, card in enumerate(machine.network_cards)
        )

    def read(self) -> tuple[Interface, ...]:
        """All of them."""
        return self._interfaces


def _hardware_address(node: str, interface: str) -> str:
    # 02: a locally administered address.
    return ":".join(["02", *(f"{each:02x}" for each in uuid.uuid5(_NAMESPACE, f"{node}/{interface}").bytes[:5])])


def _host(node: str) -> int:
    return 2 + uuid.uuid5(_NAMESPACE, node).bytes[0] % 250
