"""A running controller: devices of the cluster, attached to nodes where claims hold them, with a real API server."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from allot.client.api import Client
from allot.controlplane.plane import ControlPlane
from allot.driver import (
    AllocatedDevice,
    AttachError,
    Attachment,
    Claim,
    Condition,
    ConfigKind,
    Controller,
    ControllerOptions,
    DeviceStatus,
    Driver,
    DriverFailed,
    Edits,
    Pool,
    Prepared,
    RunningController,
    device,
    nodes_with,
    running_controller,
)
from allot.driver.conformance.kubelet import ClaimRef
from driver.cluster import NODE, cluster, make_claim, release, started
from waiting import until

NAME = "rack.example.com"
POOL = "rack-1"
CONDITIONS: dict[str, Any] = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["AttachFailed"]}


class RackConfig(msgspec.Struct):
    """Parameters."""

    lanes: int = 4


class Rack(Controller):
    """Does what the test tells it to do."""

    name = NAME
    configs = (ConfigKind("rack.example.com/v1", "RackConfig", RackConfig),)
    rescan_s = 0.0

    def __init__(self, *attached: Attachment) -> None:
        self.hardware = set(attached)
        self.log: list[str] = []
        self.faults: dict[str, Exception] = {}
        self.is_deaf = False
        self.gate = threading.Event()
        self.gate.set()

    def pools(self) -> list[Pool]:
        devices = tuple(device(f"a-{number}") for number in range(3))
        return [Pool(name=POOL, devices=devices, node_selector=nodes_with({"rack": "r1"}))]

    def attached(self) -> list[Attachment]:
        if self.is_deaf:
            raise OSError("the switch does not answer")
        return sorted(self.hardware)

    def attach(self, device: AllocatedDevice, node: str) -> dict[str, int]:
        self.log.append(f"attach {device.name} {node}")
        self.gate.wait()
        if f"attach {device.name}" in self.faults:
            raise self.faults[f"attach {device.name}"]
        self.hardware.add(Attachment(POOL, device.name, node))
        return {"lanes": device.config(RackConfig, RackConfig()).lanes}

    def detach(self, attachment: Attachment) -> None:
        self.log.append(f"detach {attachment.device} {attachment.node}")
        if f"detach {attachment.device}" in self.faults:
            raise self.faults[f"detach {attachment.device}"]
        self.hardware.discard(attachment)


class RackNode(Driver):
    """The same driver on the node."""

    name = NAME
    has_controller = True

    def prepare(self, claim: Claim) -> list[Prepared]:
        return [Prepared(each, Edits(env={"LANES": str(each.data["lanes"])})) for each in claim.devices]


@pytest_asyncio.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with cluster(tmp_path) as plane:
        yield plane


@pytest.fixture
def client(plane: ControlPlane) -> Client:
    return plane.client()


async def claim_for(client: Client, name: str, **more: Any) -> ClaimRef:
    return await make_claim(client, NAME, [], also=[(POOL, name)], **{**CONDITIONS, **more})


async def conditions(client: Client, claim: ClaimRef) -> dict[str, tuple[str, str]]:
    """Status and message of each condition of the claim's only device."""
    claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
    devices = (await claims.get(claim.name, "default"))["status"].get("devices") or [{}]
    return {each["type"]: (each["status"], each["message"]) for each in devices[0].get("conditions", ())}


async def is_set(client: Client, claim: ClaimRef, condition: str) -> bool:
    return (await conditions(client, claim)).get(condition, ("",))[0] == "True"


async def published(client: Client) -> dict[str, Any]:
    """The devices of the only slice, as soon as there is one."""
    slices = client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)

    async def find() -> Any:
        return (await slices.list()).items

    (found,) = await until(find, "the slice")
    return {each["name"]: each for each in found["spec"]["devices"]}


async def test_devices_are_published_for_the_nodes_that_could_have_them(client: Client) -> None:
    async with running_controller(Rack(), client):
        devices = await published(client)
    assert list(devices) == ["a-0", "a-1", "a-2"]
    assert devices["a-0"] == {"name": "a-0", "bindsToNode": True, **CONDITIONS}
    slices = client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
    (found,) = (await slices.list()).items
    (term,) = found["spec"]["nodeSelector"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
    assert "ownerReferences" not in found["metadata"]


async def test_a_device_is_attached_while_a_claim_holds_it(client: Client) -> None:
    rack = Rack()
    value = {"apiVersion": "rack.example.com/v1", "kind": "RackConfig", "lanes": 8}
    config = {"source": "FromClaim", "opaque": {"driver": NAME, "parameters": value}}
    async with running_controller(rack, client):
        claim = await claim_for(client, "a-1", configs=[config])
        await until(lambda: is_set(client, claim, "Attached"), "the attachment")
        claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        (status,) = (await claims.get(claim.name, "default"))["status"]["devices"]
        assert (status["data"], status["device"]) == ({"lanes": 8}, "a-1")
        assert status["conditions"][0]["message"] == f"attached to node {NODE}"
        await release(client, claim)
        await until(lambda: not rack.hardware, "the end of the attachment")
    assert rack.log == [f"attach a-1 {NODE}", f"detach a-1 {NODE}"]


async def test_a_device_that_cannot_be_attached_is_offered_to_nobody_for_a_while(client: Client) -> None:
    class Patient(Rack):
        retry_s = 0.5

    rack = Patient()
    rack.faults["attach a-0"] = AttachError("no carrier on port 4")
    async with running_controller(rack, client):
        claim = await claim_for(client, "a-0")
        await until(lambda: is_set(client, claim, "AttachFailed"), "the failure")
        assert (await conditions(client, claim))["Attached"] == ("False", "no carrier on port 4")
        taints = (await published(client))["a-0"].get("taints")
        # The taint was there before the failure was told; it may have gone again on a slow machine.
        assert taints is None or [each["key"] for each in taints] == ["rack.example.com/attach-failed"]
        await release(client, claim)

        async def is_offered() -> bool:
            return "taints" not in (await published(client))["a-0"]

        await until(is_offered, "the end of the taint")
        rack.faults.clear()
        again = await claim_for(client, "a-0")
        await until(lambda: is_set(client, again, "Attached"), "the attachment")
    assert rack.log == [f"attach a-0 {NODE}"] * 2


async def test_the_taint_is_there_when_the_failure_is_told(client: Client) -> None:
    rack = Rack()
    rack.faults["attach a-0"] = RuntimeError("wires crossed")
    async with running_controller(rack, client):
        claim = await claim_for(client, "a-0")
        await until(lambda: is_set(client, claim, "AttachFailed"), "the failure")
        (taint,) = (await published(client))["a-0"]["taints"]
        assert (taint["key"], taint["effect"]) == ("rack.example.com/attach-failed", "NoSchedule")
        text = "attach failed in the controller: RuntimeError: wires crossed"
        assert (await conditions(client, claim))["AttachFailed"] == ("True", text)


@pytest.mark.parametrize("fault", ["claim", "parameters"])
async def test_what_is_not_the_devices_fault_does_not_taint_it(client: Client, fault: str) -> None:
    rack = Rack()
    configs = []
    if fault == "claim":
        rack.faults["attach a-0"] = AttachError("the node has no free port", blames_device=False)
    else:
        value = {"apiVersion": "rack.example.com/v1", "kind": "RackConfig", "lens": 8}
        configs = [{"source": "FromClaim", "opaque": {"driver": NAME, "parameters": value}}]
    async with running_controller(rack, client):
        claim = await claim_for(client, "a-0", configs=configs)
        await until(lambda: is_set(client, claim, "AttachFailed"), "the failure")
        assert "taints" not in (await published(client))["a-0"]
        _, message = (await conditions(client, claim))["AttachFailed"]
        assert "no free port" in message or "lens" in message


@pytest.mark.parametrize(("data", "told"), [({"port": object()}, "not a JSON value"), ("x" * 20_000, "20002 bytes")])
async def test_what_cannot_be_told_of_an_attachment_fails_it(client: Client, data: Any, told: str) -> None:
    class Talkative(Rack):
        def attach(self, device: AllocatedDevice, node: str) -> Any:
            super().attach(device, node)
            return data

    rack = Talkative()
    async with running_controller(rack, client) as runs:
        claim = await claim_for(client, "a-0")
        await until(lambda: is_set(client, claim, "AttachFailed"), "the failure")
        assert told in (await conditions(client, claim))["AttachFailed"][1]
        runs.changed()
        await until(lambda: not rack.hardware, "the end of an attachment that nobody uses")


async def test_a_new_instance_goes_on_where_the_last_one_died(client: Client) -> None:
    left_over, untold = Attachment(POOL, "a-0", "n7"), Attachment(POOL, "a-1", NODE)
    rack = Rack(left_over, untold)
    claim = await claim_for(client, "a-1")
    async with running_controller(rack, client):
        await until(lambda: is_set(client, claim, "Attached"), "the attachment")
        await until(lambda: left_over not in rack.hardware, "the end of what nobody holds")
    assert sorted(rack.log) == [f"attach a-1 {NODE}", "detach a-0 n7"]
    rack.log.clear()
    async with running_controller(rack, client) as runs:
        await runs.ready.wait()
        other = await claim_for(client, "a-2")
        await until(lambda: is_set(client, other, "Attached"), "another attachment")
    assert rack.log == [f"attach a-2 {NODE}"]


async def test_nothing_is_detached_before_claims_and_hardware_have_been_read(client: Client) -> None:
    rack = Rack(Attachment(POOL, "a-0", NODE))
    rack.is_deaf = True
    claim = await claim_for(client, "a-1")
    async with running_controller(rack, client):
        await published(client)
        assert (rack.log, await conditions(client, claim)) == ([], {})
        rack.is_deaf = False
        await until(lambda: is_set(client, claim, "Attached"), "the attachment")
        await until(lambda: f"detach a-0 {NODE}" in rack.log, "the end of what nobody holds")


async def test_an_attachment_that_takes_too_long_has_failed_and_is_undone(client: Client) -> None:
    class Hasty(Rack):
        attach_timeout_s = 0.1

    rack = Hasty()
    rack.gate.clear()
    try:
        async with running_controller(rack, client):
            claim = await claim_for(client, "a-0")
            await until(lambda: is_set(client, claim, "AttachFailed"), "the failure")
            assert (await conditions(client, claim))["AttachFailed"][
                1
            ] == f"was not attached to node {NODE} within 0.1 s"
            rack.gate.set()
            await until(lambda: len(rack.log) > 1 and not rack.hardware, "the end of the late attachment")
    finally:
        rack.gate.set()
    assert rack.log == [f"attach a-0 {NODE}", f"detach a-0 {NODE}"]


async def test_a_device_that_stays_where_it_was_fails_the_next_claim(client: Client) -> None:
    rack = Rack(Attachment(POOL, "a-0", "n7"))
    rack.faults["detach a-0"] = AttachError("the link is busy")
    async with running_controller(rack, client):
        claim = await claim_for(client, "a-0")
        await until(lambda: is_set(client, claim, "AttachFailed"), "the failure")
        assert (await conditions(client, claim))["AttachFailed"][1] == "is still attached to node n7"
        rack.faults.clear()
        await until(lambda: not rack.hardware, "the end of the attachment")


async def test_what_came_loose_is_attached_again(client: Client) -> None:
    rack = Rack()
    async with running_controller(rack, client) as runs:
        claim = await claim_for(client, "a-0")
        await until(lambda: is_set(client, claim, "Attached"), "the attachment")
        rack.hardware.clear()
        runs.changed()
        await until(lambda: rack.hardware, "the second attachment")
    assert rack.log == [f"attach a-0 {NODE}"] * 2


async def test_of_two_instances_one_works(client: Client) -> None:
    racks = Rack(), Rack()
    first = ControllerOptions(lease_namespace="default", identity="one")
    second = ControllerOptions(lease_namespace="default", identity="two")
    async with running_controller(racks[0], client, first) as leads:
        await leads.ready.wait()
        async with running_controller(racks[1], client, second) as stands_by:
            claim = await claim_for(client, "a-0")
            await until(lambda: is_set(client, claim, "Attached"), "the attachment")
            assert not stands_by.ready.is_set()
    assert [rack.log for rack in racks] == [[f"attach a-0 {NODE}"], []]


async def test_a_claim_without_a_node_is_told_why_it_waits_for_ever(client: Client) -> None:
    claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
    claim = await claim_for(client, "a-0")
    await release(client, claim)
    made = await claims.get(claim.name, "default")
    result = {"request": "gpu", "driver": NAME, "pool": POOL, "device": "a-0", **CONDITIONS}
    await claims.update_status({**made, "status": {"allocation": {"devices": {"results": [result]}}}}, "default")
    rack = Rack()
    async with running_controller(rack, client):
        await until(lambda: is_set(client, claim, "AttachFailed"), "the failure")
        assert "names no node" in (await conditions(client, claim))["AttachFailed"][1]
    assert rack.log == []


async def test_a_pool_on_a_node_is_refused(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(Rack):
        def pools(self) -> list[Pool]:
            return [Pool(name=POOL, node_name=NODE)]

    async with running_controller(Wrong(), client) as runs:
        await until(lambda: "failed to list its pools" in caplog.text, "the message")
        assert not runs.ready.is_set()
    assert f"pool {POOL!r} is on node {NODE!r}" in caplog.text


async def test_a_controller_without_a_name_does_not_start(client: Client) -> None:
    with pytest.raises(DriverFailed, match="controller of driver ''"):
        RunningController(Controller(), client, ControllerOptions(), None, None)  # type: ignore[arg-type]


async def devices_of(client: Client, claim: ClaimRef) -> dict[str, dict[str, Any]]:
    claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
    devices = (await claims.get(claim.name, "default"))["status"].get("devices") or ()
    return {each["device"]: each for each in devices}


async def test_all_devices_of_a_claim_are_told_of(client: Client) -> None:
    rack = Rack()
    async with running_controller(rack, client):
        names = [f"a-{number}" for number in range(3)]
        claim = await make_claim(client, NAME, [], also=[(POOL, name) for name in names], **CONDITIONS)

        async def are_attached() -> bool:
            found = await devices_of(client, claim)
            return [each["conditions"][0]["status"] for each in found.values()] == ["True"] * 3

        await until(are_attached, "all attachments")
        assert [each["data"] for each in (await devices_of(client, claim)).values()] == [{"lanes": 4}] * 3
        await release(client, claim)
        await until(lambda: not rack.hardware, "the end of the attachments")
    assert sorted(rack.log) == sorted(f"{what} {name} {NODE}" for what in ("attach", "detach") for name in names)


async def test_a_shared_device_stays_while_any_claim_of_the_node_holds_it(client: Client) -> None:
    class Shared(Rack):
        def pools(self) -> list[Pool]:
            return [Pool(name=POOL, devices=(device("a-0", shared=True, capacity={"bandwidth": 100}),), all_nodes=True)]

    rack = Shared()
    shares = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
    async with running_controller(rack, client):
        first, second = [await claim_for(client, "a-0", shareID=share) for share in shares]
        for claim in (first, second):
            await until(lambda claim=claim: is_set(client, claim, "Attached"), "the attachment")  # type: ignore[misc]
        await release(client, first)
        # Something that comes after it in the same queue.
        third = await claim_for(client, "a-0", shareID=shares[0])
        await until(lambda: is_set(client, third, "Attached"), "the third claim")
        assert rack.hardware == {Attachment(POOL, "a-0", NODE)}
        for claim in (second, third):
            await release(client, claim)
        await until(lambda: not rack.hardware, "the end of the attachment")
    assert rack.log == [f"attach a-0 {NODE}", f"detach a-0 {NODE}"]


async def test_what_controller_and_node_tell_stands_side_by_side(client: Client, tmp_path: Path) -> None:
    class Telling(RackNode):
        def prepare(self, claim: Claim) -> list[Prepared]:
            ready = Condition(type="Ready", status="True", reason="Ready")
            return [Prepared(each, status=DeviceStatus(conditions=(ready,))) for each in claim.devices]

    async with running_controller(Rack(), client), started(Telling(), client, tmp_path) as (_, kubelet):
        claim = await claim_for(client, "a-0")
        await until(lambda: is_set(client, claim, "Attached"), "the attachment")
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
        await until(lambda: is_set(client, claim, "Ready"), "what the node tells")
        assert sorted(await conditions(client, claim)) == ["Attached", "Ready"]
        assert (await devices_of(client, claim))["a-0"]["data"] == {"lanes": 4}


async def test_the_node_prepares_what_was_attached_and_nothing_else(client: Client, tmp_path: Path) -> None:
    async with started(RackNode(), client, tmp_path) as (_, kubelet):
        claim = await claim_for(client, "a-0")
        assert "its controller has not attached it yet" in (await kubelet.prepare([claim]))[claim.uid].error
        async with running_controller(Rack(), client):
            await until(lambda: is_set(client, claim, "Attached"), "the attachment")
        entry = (await kubelet.prepare([claim]))[claim.uid]
        assert entry.error == ""
        (spec,) = [msgspec.json.decode(path.read_bytes()) for path in (tmp_path / "cdi").glob("*.json")]
        assert spec["devices"][0]["containerEdits"] == {"env": ["LANES=4"]}
        assert (await kubelet.unprepare([claim]))[claim.uid] == ""
        unattached = await claim_for(client, "a-1", bindingConditions=[], bindingFailureConditions=[])
        assert "without binding conditions" in (await kubelet.prepare([unattached]))[unattached.uid].error
    slices = client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
    assert {each["spec"]["pool"]["name"] for each in (await slices.list()).items} == {POOL}
