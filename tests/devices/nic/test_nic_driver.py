"""The driver under a real API server and the kubelet's protocol: published, prepared, told in the claim, unprepared."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from allot.core.model.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from allot.devices.nic.classes import device_classes
from allot.devices.nic.driver import NicDriver
from allot.devices.nic.interfaces import SimulatedInterfaces
from allot.devices.profiles.machines import find_machine
from allot.driver import Health
from devices.nic.test_nics import tree
from driver.cluster import cluster, make_claim, release, started
from waiting import until

pytestmark = pytest.mark.slow
FIRST = "pci-0000-91-00-0"


def config(**parameters: Any) -> dict[str, Any]:
    return {"source": "FromClaim", "opaque": {"driver": "dra.net", "parameters": parameters}}


async def test_shares_of_a_card_are_prepared_and_told_in_the_claim(tmp_path: Path) -> None:
    interfaces = SimulatedInterfaces(find_machine("a3-ultragpu-8g"), "n1")
    driver = NicDriver(interfaces, shares_bandwidth=True)
    async with cluster(tmp_path) as plane, started(driver, plane.client(), tmp_path) as (plugin, kubelet):
        client = plane.client()
        for device_class in device_classes():
            await client.typed(DeviceClass).create(device_class)
        await plugin.publisher.synced.wait()
        slices = (await client.typed(ResourceSlice).list()).items
        assert sum(len(each.spec.devices or ()) for each in slices) == 8

        claims = []
        for number, bandwidth in enumerate(("100G", "300G")):
            share = f"00000000-0000-4000-8000-{number:012}"
            fields = {"shareID": share, "consumedCapacity": {"dra.net/bandwidth": bandwidth}}
            wanted = [config(interface={"name": f"net{number}"})]
            claims.append(await make_claim(client, "dra.net", [FIRST], configs=wanted, **fields))
        entries = await kubelet.prepare(claims)
        assert [entries[claim.uid].error for claim in claims] == ["", ""]
        spec = next(path for path in (tmp_path / "cdi").glob("*.json") if claims[0].uid in path.name).read_text()
        assert "NET_DEVICE_PCI_0000_91_00_0_BANDWIDTH=100000000000" in spec
        assert "NET_DEVICE_PCI_0000_91_00_0=net0" in spec

        async def told() -> bool:
            claim = await client.typed(ResourceClaim).get(claims[0].name, "default")
            return bool(claim.status.devices)

        await until(told)
        (status,) = (await client.typed(ResourceClaim).get(claims[0].name, "default")).status.devices
        assert status.network_data is not None
        assert status.network_data.interface_name == "net0"
        assert status.network_data.ips == interfaces.read()[0].ipv4
        assert {each.type for each in status.conditions} == {"Ready", "NetworkReady", "RDMALinkReady"}

        for claim in claims:
            assert (await kubelet.unprepare([claim]))[claim.uid] == ""
        assert list((tmp_path / "cdi").glob("*")) == []


async def test_parameters_that_make_no_sense_are_told_on_the_pod(tmp_path: Path) -> None:
    driver = NicDriver(tree(tmp_path / "tree"))
    async with cluster(tmp_path) as plane, started(driver, plane.client(), tmp_path) as (_, kubelet):
        for given, text in (
            (config(interface={"mtu": 3}), "device br0: interface.mtu: 3, expected 68 to 65535"),
            (config(interface={"colour": "red"}), 'unknown field "interface.colour"'),
            (config(apiVersion="a/v1", kind="X"), "kind 'X' of apiVersion 'a/v1'"),
        ):
            claim = await make_claim(plane.client(), "dra.net", ["br0"], configs=[given])
            assert text in (await kubelet.prepare([claim]))[claim.uid].error
            assert (await kubelet.unprepare([claim]))[claim.uid] == ""
            await release(plane.client(), claim)
        both = await make_claim(
            plane.client(), "dra.net", ["br0", "pci-0000-cd-00-0"], configs=[config(interface={"name": "net1"})]
        )
        error = (await kubelet.prepare([both]))[both.uid].error
        assert "interface.name 'net1' is given to two devices" in error


async def test_an_interface_that_moved_stays_published_and_one_that_vanished_does_not(tmp_path: Path) -> None:
    driver = NicDriver(tree(tmp_path / "tree"), moves_interfaces=True)
    net = tmp_path / "tree" / "sys" / "class" / "net"
    async with cluster(tmp_path) as plane, started(driver, plane.client(), tmp_path) as (plugin, kubelet):
        await plugin.publisher.synced.wait()
        claim = await make_claim(plane.client(), "dra.net", ["pci-0000-cd-00-0"])
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
        assert any('"netDevices"' in path.read_text() for path in (tmp_path / "cdi").glob("*.json"))
        (net / "rdma0").unlink()
        shutil.rmtree((net / "br0").resolve())
        (net / "br0").unlink()
        plugin.changed()

        async def names() -> list[str]:
            slices = (await plane.client().typed(ResourceSlice).list()).items
            return sorted(device.name for each in slices for device in each.spec.devices or ())

        async def is_gone() -> bool:
            return await names() == ["net-iv2gqmbogeyda", "pci-0000-cd-00-0"]

        await until(is_gone)
        states = {each.name: (each.health, each.message) for each in driver.health()}
        assert states["br0"] == (Health.UNHEALTHY, "interface br0 is gone")
        assert states["pci-0000-cd-00-0"][0] is Health.HEALTHY
