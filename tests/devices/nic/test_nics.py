"""Which interfaces there are, what is published about them, and which parameters make sense."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allot.core.lifecycle.slice_publishing import Pool, check_pools
from allot.devices.command import UsageError
from allot.devices.nic.command import main, make_driver
from allot.devices.nic.config import KINDS, NetworkConfig, ParametersError, check_config
from allot.devices.nic.driver import conditions
from allot.devices.nic.interfaces import (
    Interface,
    KernelInterfaces,
    SimulatedInterfaces,
    ask_ipv4,
    default_route_interfaces,
    parse_ipv6_addresses,
)
from allot.devices.nic.inventory import DRIVER_NAME, declared, device_name, edits, network_data
from allot.devices.profiles.machines import find_machine, machine_names
from allot.driver import Device
from allot.driver.configuration import decode_parameters

ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
rdma0\t0000210A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0"""
INET6 = """fe800000000000000000000000000001 03 40 20 80 rdma0
20010db8000000000000000000000001 03 40 00 80 rdma0"""


def tree(root: Path) -> KernelInterfaces:
    """An uplink, a card with RDMA on its own root, a bridge, a VLAN with a strange name, and an end of a pod's network."""
    cards = {"eth0": ("pci0000:00", "0000:00:03.0", 0), "rdma0": ("pci0000:c8", "0000:cd:00.0", 1)}
    (root / "sys" / "class" / "net").mkdir(parents=True)
    (root / "sys" / "bus" / "pci" / "devices").mkdir(parents=True)
    for name, (bus, address, node) in cards.items():
        function = root / "sys" / "devices" / bus / address
        folder = function / "net" / name
        write(function, {"numa_node": node, "vendor": "0x15b3", "device": "0x1021", "sriov_totalvfs": 16})
        write(folder, {"address": "02:00:00:00:00:01", "mtu": 8896, "speed": 400000, "operstate": "up", "type": 1})
        (folder / "device").symlink_to(function)
        (root / "sys" / "bus" / "pci" / "devices" / address).symlink_to(function)
        (root / "sys" / "class" / "net" / name).symlink_to(folder)
        if name == "rdma0":
            (function / "infiniband" / "mlx5_0").mkdir(parents=True)
            (function / "infiniband_verbs" / "uverbs0").mkdir(parents=True)
    for name, uevent in (("br0", "DEVTYPE=bridge"), ("Eth0.100", "DEVTYPE=vlan"), ("lo", "")):
        folder = root / "sys" / "devices" / "virtual" / "net" / name
        write(folder, {"address": "02:00:00:00:00:02", "mtu": 1500, "speed": -1, "operstate": "down", "uevent": uevent})
        (root / "sys" / "class" / "net" / name).symlink_to(folder)
    pod = root / "sys" / "devices" / "virtual" / "net" / "veth1"
    write(pod, {"address": "02:00:00:00:00:03", "ifindex": 9, "iflink": 2, "uevent": "INTERFACE=veth1"})
    (root / "sys" / "class" / "net" / "veth1").symlink_to(pod)
    # Not an interface: bonding leaves a file here.
    (root / "sys" / "class" / "net" / "bonding_masters").write_text("\n")
    write(root / "proc" / "net", {"route": ROUTES, "if_inet6": INET6})
    return KernelInterfaces(
        root / "sys", root / "proc", lambda name: ("10.33.0.2/32",) if name == "rdma0" else ()
    )  # fmt: skip


def write(folder: Path, files: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")


def attributes(device: Device) -> dict[str, Any]:
    return {
        name: next(each for each in (value.int_, value.bool_, value.string) if each is not None)
        for name, value in device.attributes.items()
    }


def test_interfaces_are_read_without_the_nodes_own_and_those_of_pods(tmp_path: Path) -> None:
    found = {each.name: each for each in tree(tmp_path).read()}
    assert list(found) == ["Eth0.100", "br0", "rdma0"]
    card = found["rdma0"]
    assert (card.place.address, card.place.root, card.numa_node) == ("0000:cd:00.0", "pci0000:c8", 1)
    assert (card.rdma_name, card.rdma_files) == ("mlx5_0", ("/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"))
    assert card.ipv6 == ("2001:db8::1/64",)
    assert (found["br0"].type, found["br0"].is_virtual, found["br0"].speed_mbps) == ("bridge", True, 0)


def test_a_card_is_as_dranet_publishes_it(tmp_path: Path) -> None:
    card = next(each for each in tree(tmp_path).read() if each.name == "rdma0")
    device = declared(card, shares_bandwidth=False)
    assert device.name == "pci-0000-cd-00-0"
    assert attributes(device) == {
        "dra.net/ifName": "rdma0",
        "dra.net/mac": "02:00:00:00:00:01",
        "dra.net/state": "up",
        "dra.net/type": "device",
        "dra.net/encapsulation": "ether",
        "dra.net/pciAddress": "0000:cd:00.0",
        "dra.net/pciVendor": "0x15b3",
        "dra.net/pciDevice": "0x1021",
        "dra.net/ipv4": "10.33.0.2/32",
        "dra.net/ipv6": "2001:db8::1/64",
        "dra.net/mtu": 8896,
        "dra.net/rdma": True,
        "dra.net/virtual": False,
        "dra.net/sriov": True,
        "dra.net/sriovVfs": 16,
        "dra.net/numaNode": 1,
        "resource.kubernetes.io/pcieRoot": "pci0000:c8",
    }
    assert str(device.capacity["dra.net/bandwidth"].value) == "400G"
    assert device.allow_multiple_allocations is None
    assert declared(card, shares_bandwidth=True).allow_multiple_allocations


def test_names_that_are_no_labels_are_encoded() -> None:
    assert device_name(Interface(name="br0")) == "br0"
    assert device_name(Interface(name="Eth0.100")) == "net-iv2gqmbogeyda"


@pytest.mark.parametrize("is_shared", [False, True])
def test_slices_are_legal(tmp_path: Path, is_shared: bool) -> None:
    pools = [tree(tmp_path).read()]
    pools += [SimulatedInterfaces(find_machine(name), "n1").read() for name in machine_names()]
    for interfaces in pools:
        devices = tuple(declared(each, is_shared) for each in interfaces)
        assert check_pools(DRIVER_NAME, [Pool(name="n1", node_name="n1", devices=devices)]) == ()


def test_simulated_cards_are_where_the_gpus_are() -> None:
    found = {device_name(each): each for each in SimulatedInterfaces(find_machine("a3-ultragpu-8g"), "n1").read()}
    assert len(found) == 8
    first, seventh = found["pci-0000-91-00-0"], found["pci-0000-cd-00-0"]
    assert (first.name, first.place.root, first.numa_node) == ("gpu0rdma0", "pci0000:8c", 0)
    assert (seventh.place.root, seventh.numa_node) == ("pci0000:c8", 1)
    assert len({each.hardware_address for each in found.values()}) == 8
    again = SimulatedInterfaces(find_machine("a3-ultragpu-8g"), "n1").read()
    assert tuple(found.values()) == again, "the same node has the same addresses"


def test_default_routes_are_found() -> None:
    assert default_route_interfaces(ROUTES, "") == {"eth0"}
    zero = "0" * 32
    six = f"{zero} 00 {zero} 00 {zero} 00000400 1 0 00000003 eth1\n{zero} 00 {zero} 00 {zero} ffffffff 1 0 200200 lo"
    assert default_route_interfaces("", six) == {"eth1"}
    assert parse_ipv6_addresses("junk") == {}


def test_the_kernel_tells_the_address_of_loopback() -> None:
    assert ask_ipv4("lo") in (("127.0.0.1/8",), ())
    assert ask_ipv4("no-such-interface") == ()


# --- what a claim gets ---


def test_a_container_is_told_its_interface(tmp_path: Path) -> None:
    card = next(each for each in tree(tmp_path).read() if each.name == "rdma0")
    config = msgspec.convert({"interface": {"name": "net1", "addresses": ["10.0.0.5/24"]}}, NetworkConfig)
    data = network_data(card, config)
    assert (data.interface_name, data.ips, data.hardware_address) == ("net1", ("10.0.0.5/24",), "02:00:00:00:00:01")
    given = edits(card, config, 10_000_000_000, moves=True)
    assert given.env == {
        "NET_DEVICE_PCI_0000_CD_00_0": "net1",
        "NET_DEVICE_PCI_0000_CD_00_0_IPS": "10.0.0.5/24",
        "NET_DEVICE_PCI_0000_CD_00_0_BANDWIDTH": "10000000000",
        "NET_DEVICE_PCI_0000_CD_00_0_RDMA": "mlx5_0",
    }
    assert [(each.host_interface_name, each.name) for each in given.net_devices] == [("rdma0", "net1")]
    assert [each.path for each in given.device_nodes] == ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"]
    assert edits(card, NetworkConfig(), None, moves=False).net_devices == ()


def test_what_is_not_done_is_told(tmp_path: Path) -> None:
    card = next(each for each in tree(tmp_path).read() if each.name == "rdma0")
    told = {each.type: (each.status, each.reason) for each in conditions(card, NetworkConfig(), False)}
    assert told == {
        "Ready": ("True", "DevicePrepared"),
        "NetworkReady": ("True", "NetworkReady"),
        "RDMALinkReady": ("True", "RDMALinkReady"),
    }
    config = msgspec.convert({"interface": {"name": "net1", "mtu": 1500}, "ethtool": {}}, NetworkConfig)
    network = conditions(card, config, moves=True)[1]
    assert (network.status, network.message) == ("False", "not done by this driver: interface.mtu, ethtool")
    down = conditions(msgspec.structs.replace(card, state="down", rdma_name=""), NetworkConfig(), False)
    assert [(each.type, each.reason) for each in down] == [("Ready", "DevicePrepared"), ("NetworkReady", "LinkDown")]


def test_sound_parameters_are_taken() -> None:
    text = {
        "interface": {"name": "net1", "addresses": ["10.0.0.5/24", "2001:db8::5/64"], "mtu": 9000},
        "routes": [{"destination": "0.0.0.0/0", "gateway": "10.0.0.1"}, {"destination": "10.1.0.0/16", "scope": 253}],
        "rules": [{"priority": 100, "source": "10.0.0.5/32", "table": 100}],
        "neighbors": [{"destination": "10.0.0.1", "hardwareAddr": "02:00:00:00:00:09"}],
        "ethtool": {"features": {"tcp-segmentation-offload": True}, "privateFlags": {}},
    }
    check_config(decode_parameters(msgspec.json.encode(text), KINDS))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"interface": {"name": "a-name-that-is-too-long"}}, "interface.name: 'a-name-that-is-too-long', expected at"),
        ({"interface": {"name": "a/b"}}, "interface.name: 'a/b', expected at most 15 characters without / : or"),
        ({"interface": {"addresses": ["10.0.0.1"]}}, "interface.addresses[0]: '10.0.0.1', expected an address with a"),
        ({"interface": {"addresses": ["x/8"]}}, "interface.addresses[0]: 'x/8', expected an address with a prefix"),
        ({"interface": {"addresses": ["1.2.3.4/8"], "dhcp": True}}, "interface.dhcp: true, expected no addresses"),
        ({"interface": {"mtu": 1}}, "interface.mtu: 1, expected 68 to 65535"),
        ({"interface": {"hardwareAddr": "z"}}, "interface.hardwareAddr: 'z', expected six bytes"),
        ({"interface": {"gsoIPv4MaxSize": 0}}, "interface.gsoIPv4MaxSize: 0, expected more than 0"),
        ({"routes": [{"destination": "10.0.0.0/8"}]}, "routes[0].gateway: expected an address, since the scope is 0"),
        ({"routes": [{"destination": "10.0.0.0/8", "gateway": "x"}]}, "routes[0].gateway: 'x', expected an IP address"),
        ({"routes": [{"destination": "10.0.0.0/8", "scope": 9}]}, "routes[0].scope: 9, expected 0 (universe) or 253"),
        ({"rules": [{"source": "x"}]}, "rules[0].source: 'x', expected an address with a prefix"),
        ({"rules": [{"table": -1}]}, "rules[0].table: -1, expected 0 to 4294967295"),
        ({"neighbors": [{"destination": "x", "hardwareAddr": "y"}]}, "neighbors[0].destination: 'x', expected an IP"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(value: dict[str, Any], text: str) -> None:
    with pytest.raises(ParametersError) as caught:
        check_config(decode_parameters(msgspec.json.encode(value), KINDS))
    assert str(caught.value).startswith(text)


# --- the command ---


def test_options_are_read_and_the_rest_is_left_for_the_sdk(capsys: pytest.CaptureFixture[str]) -> None:
    _, rest = make_driver(["--profile", "a3-ultragpu-8g", "--node-name", "n1", "--share-bandwidth"])
    assert rest == ["--node-name", "n1"]
    with pytest.raises(UsageError, match="machine 'pdp11'"):
        make_driver(["--profile", "pdp11"])
    with pytest.raises(SystemExit) as ended:
        main(["--share-bandwidth", "--move-interfaces"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: --share-bandwidth and --move-interfaces exclude each other")


def test_classes_are_printed_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["classes"])
    printed = [json.loads(line)["metadata"]["name"] for line in capsys.readouterr().out.splitlines()]
    assert printed == ["dra.net", "mrdma.google.com"]
