"""A running driver, met as the kubelet meets it: real sockets, a real API server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from allot.client.api import Client
from allot.controlplane.plane import ControlPlane
from allot.driver import (
    Claim,
    Condition,
    ConfigKind,
    Device,
    DeviceHealth,
    DeviceStatus,
    DeviceTaint,
    Driver,
    DriverFailed,
    Edits,
    Health,
    NetworkDeviceData,
    Pool,
    Preparation,
    Prepared,
    PreparedClaim,
    PrepareError,
    device,
    running,
)
from allot.driver.conformance.kubelet import ClaimRef, KubeletError, registered
from allot.driver.service import HEALTH_V1ALPHA1, V1BETA1
from allot.store.memory import MemoryStore
from apiserver.live import live_server
from client.conftest import http_transport
from driver.cluster import NODE, cluster, make_claim, options, release, started
from waiting import WAIT_S, until

NAME = "gpu.example.com"


class GpuConfig(msgspec.Struct):
    """Parameters."""

    mode: str = "normal"


class Gpu(Driver):
    """Does what the test tells it to do."""

    name = NAME
    configs = (ConfigKind("gpu.example.com/v1", "GpuConfig", GpuConfig),)
    health_timeout_s = 0.6

    def __init__(self) -> None:
        self.log: list[str] = []
        self.prepared_by: dict[str, str] = {}
        self.failure: BaseException | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.count = 4
        self.taints: tuple[DeviceTaint, ...] = ()
        self.ill: dict[str, str] = {}

    def devices(self) -> list[Device]:
        return [
            device(f"gpu-{number}", attributes={"index": number}, taints=self.taints) for number in range(self.count)
        ]

    def prepare(self, claim: Claim) -> Any:
        self.log.append(f"prepare {claim.name}")
        claim.save({"begun": True})
        self.gate.wait()
        if self.failure is not None:
            raise self.failure
        devices = tuple(
            Prepared(each, Edits(env={"GPU": each.name, "MODE": each.config(GpuConfig, GpuConfig()).mode}))
            for each in claim.devices
        )
        return Preparation(devices, {"done": [each.name for each in claim.devices]})

    def unprepare(self, claim: PreparedClaim) -> None:
        self.log.append(f"unprepare {claim.name} {msgspec.json.encode(claim.state).decode()}")

    def rebooted(self, claims: tuple[PreparedClaim, ...]) -> None:
        self.log.append(f"rebooted {len(claims)}")

    def health(self) -> list[DeviceHealth]:
        return [
            DeviceHealth(
                name=f"gpu-{number}",
                health=Health.UNHEALTHY if f"gpu-{number}" in self.ill else Health.HEALTHY,
                message=self.ill.get(f"gpu-{number}", ""),
            )
            for number in range(self.count)
        ]


@pytest_asyncio.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with cluster(tmp_path) as plane:
        yield plane


@pytest.fixture
def client(plane: ControlPlane) -> Client:
    return plane.client()


def specs(tmp_path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(path.read_bytes()) for path in sorted((tmp_path / "cdi").glob("*.json"))]


async def test_a_claim_is_prepared_with_its_parameters_and_unprepared(client: Client, tmp_path: Path) -> None:
    gpu = Gpu()
    value = {"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig", "mode": "fast"}
    config = {"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": NAME, "parameters": value}}
    async with started(gpu, client, tmp_path) as (plugin, kubelet):
        claim = await make_claim(client, NAME, ["gpu-0"], configs=[config])
        entry = (await kubelet.prepare([claim]))[claim.uid]
        assert entry.error == ""
        (prepared,) = entry.devices
        assert prepared.cdi_ids == (f"k8s.gpu.example.com/claim={claim.uid}-gpu-0",)
        (spec,) = specs(tmp_path)
        assert spec["devices"][0]["containerEdits"] == {"env": ["GPU=gpu-0", "MODE=fast"]}
        assert [each.uid for each in plugin.prepared()] == [claim.uid]
        assert (await kubelet.unprepare([claim]))[claim.uid] == ""
        assert (specs(tmp_path), plugin.prepared()) == ([], ())
    assert gpu.log == [f"prepare {claim.name}", f'unprepare {claim.name} {{"done":["gpu-0"]}}']


async def test_a_claim_is_prepared_once_however_often_it_is_asked_for(client: Client, tmp_path: Path) -> None:
    gpu = Gpu()
    async with started(gpu, client, tmp_path) as (_, kubelet):
        claim = await make_claim(client, NAME, ["gpu-0"])
        answers = await asyncio.gather(*(kubelet.prepare([claim]) for _ in range(5)))
        answers.append(await kubelet.prepare([claim]))
        assert all(answer == answers[0] for answer in answers)
    assert gpu.log == [f"prepare {claim.name}"]


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (PrepareError("the fan is loose"), "the fan is loose"),
        (ZeroDivisionError("oops"), "prepare failed in the driver: ZeroDivisionError: oops"),
        (PermissionError(13, "Permission denied", "/dev/gpu"), "Permission denied"),
    ],
)
async def test_a_failure_of_the_driver_is_that_claims_alone(
    client: Client, tmp_path: Path, failure: Exception, text: str
) -> None:
    gpu = Gpu()
    async with started(gpu, client, tmp_path) as (_, kubelet):
        good, bad = await make_claim(client, NAME, ["gpu-0"]), await make_claim(client, NAME, ["gpu-1"])
        await kubelet.prepare([good])
        gpu.failure = failure
        entries = await kubelet.prepare([good, bad])
        assert entries[good.uid].error == ""
        assert text in entries[bad.uid].error and f"ResourceClaim default/{bad.name}" in entries[bad.uid].error
        gpu.failure = None
        assert (await kubelet.prepare([bad]))[bad.uid].error == ""


async def test_what_was_saved_before_a_failure_is_there_to_undo(client: Client, tmp_path: Path) -> None:
    gpu = Gpu()
    gpu.failure = PrepareError("no")
    async with started(gpu, client, tmp_path) as (_, kubelet):
        claim = await make_claim(client, NAME, ["gpu-0"])
        await kubelet.prepare([claim])
        await kubelet.unprepare([claim])
    assert gpu.log[-1] == f'unprepare {claim.name} {{"begun":true}}'


async def test_a_slow_driver_is_answered_for_in_time_and_asked_again(client: Client, tmp_path: Path) -> None:
    gpu = Gpu()
    gpu.gate.clear()
    async with started(gpu, client, tmp_path) as (_, kubelet):
        slow, other = await make_claim(client, NAME, ["gpu-0"]), await make_claim(client, NAME, ["gpu-1"])
        first = (await kubelet.prepare([slow], timeout_s=1.0))[slow.uid]
        assert "prepare did not finish in time" in first.error
        second = (await kubelet.prepare([other], timeout_s=1.0))[other.uid]
        assert f"busy with ResourceClaim default/{slow.name}" in second.error
        gpu.gate.set()
        entries = await kubelet.prepare([slow, other])
        assert [entry.error for entry in entries.values()] == ["", ""]
    assert gpu.log == [f"prepare {slow.name}", f"prepare {other.name}"]


async def test_a_claim_that_was_allocated_anew_is_set_up_anew(client: Client, tmp_path: Path) -> None:
    gpu = Gpu()
    async with started(gpu, client, tmp_path) as (_, kubelet):
        claim = await make_claim(client, NAME, ["gpu-0"])
        await kubelet.prepare([claim])
        await release(client, claim)
        claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        result = {"request": "gpu", "driver": NAME, "pool": NODE, "device": "gpu-3"}
        made = await claims.get(claim.name, "default")
        await claims.update_status({**made, "status": {"allocation": {"devices": {"results": [result]}}}}, "default")
        (prepared,) = (await kubelet.prepare([claim]))[claim.uid].devices
        assert prepared.device == "gpu-3"
    assert [line.split()[0] for line in gpu.log] == ["prepare", "unprepare", "prepare"]


async def test_what_is_prepared_is_answered_while_the_api_server_is_gone(tmp_path: Path) -> None:
    gpu = Gpu()
    async with cluster(tmp_path) as plane:
        client = plane.client()
        claim = await make_claim(client, NAME, ["gpu-0"])
        async with started(gpu, client, tmp_path) as (plugin, kubelet):
            before = await kubelet.prepare([claim])

            async def unreachable(_namespace: str, _name: str) -> Any:
                from allot.client.errors import Unreachable

                raise Unreachable("connection refused")

            plugin.preparer._fetch = unreachable  # type: ignore[assignment]
            assert await kubelet.prepare([claim]) == before
            new = await make_claim(client, NAME, ["gpu-1"])
            assert "connection refused" in (await kubelet.prepare([new]))[new.uid].error


async def test_shares_are_told_in_v1_and_left_out_in_v1beta1(client: Client, tmp_path: Path) -> None:
    class Shared(Gpu):
        def devices(self) -> list[Device]:
            return [device("gpu-0", shared=True, capacity={"memory": "8Gi"})]

    share = "11111111-1111-4111-8111-111111111111"
    async with started(Shared(), client, tmp_path) as (_, kubelet):
        claim = await make_claim(client, NAME, ["gpu-0"], shareID=share, consumedCapacity={"memory": "1Gi"})
        (prepared,) = (await kubelet.prepare([claim]))[claim.uid].devices
        assert (prepared.share_id, prepared.cdi_ids) == (
            share,
            (f"k8s.gpu.example.com/claim={claim.uid}-gpu-0-{share}",),
        )
    async with started(Shared(), client, tmp_path, versions=(V1BETA1,)) as (_, older):
        assert older.version == V1BETA1
        assert (await older.prepare([claim]))[claim.uid].devices[0].share_id == ""


async def test_devices_that_change_are_published_when_the_driver_says_so(client: Client, tmp_path: Path) -> None:
    gpu = Gpu()
    slices = client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)

    async def published() -> list[Any]:
        return [each for slice_ in (await slices.list()).items for each in slice_["spec"].get("devices", ())]

    async with started(gpu, client, tmp_path) as (plugin, _):
        await plugin.publisher.synced.wait()
        gpu.count, gpu.taints = 2, (DeviceTaint(key="gpu.example.com/broken", effect="NoSchedule"),)
        await asyncio.to_thread(gpu.node.changed)

        async def told() -> bool:
            devices = await published()
            return len(devices) == 2 and all(each.get("taints") for each in devices)

        await until(told)


async def test_devices_that_the_api_would_refuse_are_not_published_but_told(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Gpu):
        def devices(self) -> list[Device]:
            return [device("GPU_0")]

    async with started(Wrong(), client, tmp_path) as (plugin, _):
        assert "device 'GPU_0'" in plugin.publisher.problems[0]
        slices = client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
        assert (await slices.list()).items == ()
    assert "not published" in caplog.text


async def test_health_is_told_at_once_and_again(client: Client, tmp_path: Path) -> None:
    gpu = Gpu()
    async with started(gpu, client, tmp_path) as (_, kubelet), kubelet.health() as reports:
        first = await anext(reports)
        assert [each.health for each in first.devices] == [1, 1, 1, 1]
        gpu.ill["gpu-2"] = "XID 79"
        gpu.node.changed()
        while not (ill := [each for each in (await anext(reports)).devices if each.health == 2]):
            pass
        assert (ill[0].device.device_name, ill[0].device.pool_name, ill[0].message) == ("gpu-2", NODE, "XID 79")
        async with asyncio.timeout(WAIT_S):
            await anext(reports)


async def test_a_driver_without_health_says_so(client: Client, tmp_path: Path) -> None:
    class Silent(Driver):
        name = NAME

        def devices(self) -> list[Device]:
            return []

    async with started(Silent(), client, tmp_path) as (_, kubelet):
        assert all("Health" not in version for version in kubelet.info.versions)
        with pytest.raises(KubeletError, match="UNIMPLEMENTED"):
            async with kubelet.health(HEALTH_V1ALPHA1) as reports:
                await anext(reports)


async def test_the_status_of_devices_is_written_and_kept_beside_that_of_others(client: Client, tmp_path: Path) -> None:
    class Nic(Gpu):
        def prepare(self, claim: Claim) -> list[Prepared]:
            network = NetworkDeviceData(interface_name="eth1", ips=("10.0.0.2/24",))
            ready = Condition(type="Ready", status="True", reason="Attached")
            claim.set_status(claim.devices[0], DeviceStatus(data={"cable": "looked for"}))
            return [Prepared(each, status=DeviceStatus(conditions=(ready,), network=network)) for each in claim.devices]

    nic = Nic()
    claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
    async with started(nic, client, tmp_path) as (_, kubelet):
        claim = await make_claim(client, NAME, ["gpu-0", "gpu-1"])
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""

        async def told() -> bool:
            return len((await claims.get(claim.name, "default"))["status"].get("devices", ())) == 2

        await until(told)
        nic.node.set_status(nic.node.prepared()[0], "gpu-1", DeviceStatus(data={"link": "up"}))

        async def changed() -> bool:
            devices = (await claims.get(claim.name, "default"))["status"]["devices"]
            return [each.get("data") for each in devices] == [None, {"link": "up"}]

        await until(changed)
        status = (await claims.get(claim.name, "default"))["status"]
        assert status["devices"][0]["networkData"] == {"interfaceName": "eth1", "ips": ["10.0.0.2/24"]}
        assert status["devices"][0]["conditions"][0]["reason"] == "Attached"
        assert len(status["allocation"]["devices"]["results"]) == 2


async def test_containers_find_a_file_that_describes_their_devices(client: Client, tmp_path: Path) -> None:
    class Described(Gpu):
        has_device_metadata = True

    gpu = Described()
    async with started(gpu, client, tmp_path) as (_, kubelet):
        annotations = {"resource.kubernetes.io/pod-claim-name": "my-gpu"}
        claim = await make_claim(client, NAME, ["gpu-0", "gpu-1"], request="gpu/big", annotations=annotations)
        first, second = (await kubelet.prepare([claim]))[claim.uid].devices
        assert first.cdi_ids[-1] == f"gpu.example.com/metadata={claim.uid}_gpu"
        assert len(second.cdi_ids) == 1
        spec = next(each for each in specs(tmp_path) if each["kind"] == "gpu.example.com/metadata")
        (mount,) = spec["devices"][0]["containerEdits"]["mounts"]
        place = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/my-gpu/gpu"
        assert mount["containerPath"] == f"{place}/gpu.example.com-metadata.json"
        newest, older = Path(mount["hostPath"]).read_text().splitlines()
        value = msgspec.json.decode(newest)
        assert value["apiVersion"] == "metadata.resource.k8s.io/v1beta1"
        assert msgspec.json.decode(older)["apiVersion"] == "metadata.resource.k8s.io/v1alpha1"
        assert value["metadata"]["generation"] == 1
        assert value["requests"][0]["name"] == "gpu/big"
        assert [each["attributes"] for each in value["requests"][0]["devices"]] == [
            {"index": {"int": 0}},
            {"index": {"int": 1}},
        ]
        network = NetworkDeviceData(interface_name="eth1")
        gpu.node.update_metadata(gpu.node.prepared()[0], "gpu-1", network=network)
        value = msgspec.json.decode(Path(mount["hostPath"]).read_text().splitlines()[0])
        assert value["metadata"]["generation"] == 2
        assert value["requests"][0]["devices"][1]["networkData"] == {"interfaceName": "eth1"}
        await kubelet.unprepare([claim])
        assert not Path(mount["hostPath"]).exists() and specs(tmp_path) == []


async def test_a_reboot_is_told_to_the_driver(client: Client, tmp_path: Path) -> None:
    gpu, boot = Gpu(), tmp_path / "boot"
    boot.write_text("one")
    claim = await make_claim(client, NAME, ["gpu-0"])
    async with started(gpu, client, tmp_path, boot_id_file=boot) as (_, kubelet):
        await kubelet.prepare([claim])
    boot.write_text("two")
    async with started(gpu, client, tmp_path, boot_id_file=boot) as (plugin, _):
        assert plugin.prepared() == () and specs(tmp_path) == []
    assert gpu.log[-1] == "rebooted 1"


async def test_while_a_record_is_unreadable_nothing_new_is_prepared(client: Client, tmp_path: Path) -> None:
    gpu = Gpu()
    lost, new = await make_claim(client, NAME, ["gpu-0"]), await make_claim(client, NAME, ["gpu-1"])
    async with started(gpu, client, tmp_path) as (_, kubelet):
        await kubelet.prepare([lost])
    for path in (tmp_path / "k").rglob(f"{lost.uid}.json"):
        path.write_bytes(b"{")
    async with started(gpu, client, tmp_path) as (_, kubelet):
        assert "the free devices are unknown" in (await kubelet.prepare([new]))[new.uid].error
        assert (await kubelet.unprepare([lost]))[lost.uid] == ""
        assert (await kubelet.prepare([new]))[new.uid].error == ""


async def test_claims_side_by_side_if_the_driver_can(client: Client, tmp_path: Path) -> None:
    class Parallel(Gpu):
        serialize = False

        async def prepare(self, claim: Claim) -> list[Prepared]:  # type: ignore[override]
            self.log.append(claim.name)
            async with asyncio.timeout(WAIT_S):
                while len(self.log) < 3:
                    await asyncio.sleep(0.01)
            return [Prepared(each) for each in claim.devices]

    async with started(Parallel(), client, tmp_path) as (_, kubelet):
        claims = [await make_claim(client, NAME, [f"gpu-{number}"]) for number in range(3)]
        entries = await kubelet.prepare(claims)
        assert [entry.error for entry in entries.values()] == ["", "", ""]


async def test_a_driver_that_answers_nonsense_fails_its_claims_only(client: Client, tmp_path: Path) -> None:
    class Nonsense(Gpu):
        answer: Any = None

        def prepare(self, claim: Claim) -> Any:
            foreign = msgspec.structs.replace(claim.devices[0], name="gpu-3")
            return {
                "number": 7,
                "text": ["x"],
                "foreign": [Prepared(foreign)],
                "twice": [Prepared(claim.devices[0])] * 2,
            }[self.answer]

    gpu = Nonsense()
    async with started(gpu, client, tmp_path) as (_, kubelet):
        claim = await make_claim(client, NAME, ["gpu-0"])
        errors = {}
        for gpu.answer in ("number", "text", "foreign", "twice"):
            errors[gpu.answer] = (await kubelet.prepare([claim]))[claim.uid].error
        assert "prepare returned int" in errors["number"]
        assert "prepare returned str among devices" in errors["text"]
        assert "prepared device gpu-3, which the claim does not hold" in errors["foreign"]
        assert "prepared device gpu-0 twice" in errors["twice"]


async def test_every_container_gets_what_the_driver_gives_to_all(client: Client, tmp_path: Path) -> None:
    class Generous(Gpu):
        def edits_for_all(self) -> Edits:
            return Edits(env={"DRIVER": NAME})

    async with started(Generous(), client, tmp_path) as (_, kubelet):
        claim = await make_claim(client, NAME, ["gpu-0"])
        (prepared,) = (await kubelet.prepare([claim]))[claim.uid].devices
        own, common = prepared.cdi_ids
        assert own.endswith("-gpu-0"), "the kubelet tells devices apart by their first name"
        assert common == "k8s.gpu.example.com/claim=common"


async def test_health_and_metrics_are_served(client: Client, tmp_path: Path) -> None:
    async with started(Gpu(), client, tmp_path, port=0) as (plugin, kubelet):
        await kubelet.prepare([ClaimRef("default", "missing", "no-such-uid")])
        async with aiohttp.ClientSession(plugin.address) as session:
            async with session.get("/healthz") as answer:
                assert (answer.status, await answer.text()) == (200, "ok")
            async with session.get("/metrics") as answer:
                text = await answer.text()
        assert 'allot_driver_devices{driver_name="gpu.example.com"} 4.0' in text
        assert (
            'allot_driver_operation_duration_seconds_count{driver_name="gpu.example.com",is_error="true",operation="prepare"} 1.0'
            in text
        )


async def test_healthz_fails_when_a_socket_is_gone(client: Client, tmp_path: Path) -> None:
    async with started(Gpu(), client, tmp_path, port=0) as (plugin, _):
        plugin.service_path.unlink()
        async with aiohttp.ClientSession(plugin.address) as session, session.get("/healthz") as answer:
            assert answer.status == 503


async def test_a_driver_is_ready_while_the_kubelet_knows_it_and_the_server_its_devices(tmp_path: Path) -> None:
    async with AsyncExitStack() as ends, AsyncExitStack() as server_ends:
        server = await server_ends.enter_async_context(live_server(tmp_path / "server", MemoryStore()))
        client = Client(http_transport(server))
        ends.push_async_callback(client.close)
        nodes = client.resource("", "v1", "nodes", namespaced=False)
        await nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        plugin = await ends.enter_async_context(running(Gpu(), client, options(tmp_path, port=0)))
        session = await ends.enter_async_context(aiohttp.ClientSession(plugin.address))

        async def told(path: str = "/readyz") -> str:
            async with session.get(path) as answer:
                text = await answer.text()
            assert (answer.status == 200) == (text == "ok")
            return text

        async def is_ready() -> bool:
            return await told() == "ok"

        async def is_cut_off() -> bool:
            return (await told()).startswith("the API server is not reached: ")

        assert await told() == "the kubelet has not registered the driver"
        await ends.enter_async_context(registered(plugin.registration_path, timeout_s=WAIT_S))
        await until(is_ready, "it is ready")
        await server_ends.aclose()
        await until(is_cut_off, "it is no longer ready")
        assert await told("/healthz") == "ok", "it lives"


@pytest.mark.parametrize("which", ["service_path", "registration_path"])
async def test_a_driver_that_nobody_can_reach_any_more_ends(client: Client, tmp_path: Path, which: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with running(Gpu(), client, options(tmp_path, listening_check_s=0.02)) as plugin:
            getattr(plugin, which).unlink()
            async with asyncio.timeout(WAIT_S):
                await asyncio.Event().wait()
    assert caught.group_contains(DriverFailed, match=r"no process listens on .*\.sock$")


async def test_a_bad_name_or_folder_is_told_before_anything_starts(client: Client, tmp_path: Path) -> None:
    class Misnamed(Gpu):
        name = "Not A Name"

    with pytest.raises(DriverFailed, match="driver 'Not A Name'"):
        async with running(Misnamed(), client, options(tmp_path)):
            pass
    (tmp_path / "k").write_text("")
    with pytest.raises(DriverFailed, match="not a directory"):
        async with running(Gpu(), client, options(tmp_path)):
            pass


async def test_what_is_asked_for_last_is_what_is_so_in_the_end(client: Client, tmp_path: Path) -> None:
    gpu = Gpu()
    gpu.gate.clear()
    async with started(gpu, client, tmp_path) as (plugin, kubelet):
        claim = await make_claim(client, NAME, ["gpu-0"])
        await kubelet.prepare([claim], timeout_s=0.5)
        await kubelet.unprepare([claim], timeout_s=0.5)
        last = asyncio.ensure_future(kubelet.prepare([claim]))
        await asyncio.sleep(0.1)
        gpu.gate.set()
        assert (await last)[claim.uid].error == ""
        assert [each.is_completed for each in plugin.prepared()] == [True]
    assert [line.split()[0] for line in gpu.log] == ["prepare", "unprepare", "prepare"]


async def test_devices_of_one_name_in_two_pools_are_two_devices(client: Client, tmp_path: Path) -> None:
    class Twice(Gpu):
        def devices(self) -> Any:
            return [Pool(name=name, devices=(device("gpu-0"),)) for name in (NODE, "other")]

        def prepare(self, claim: Claim) -> list[Prepared]:
            return [Prepared(each, Edits(env={"POOL": each.pool})) for each in claim.devices]

    async with started(Twice(), client, tmp_path) as (_, kubelet):
        claim = await make_claim(client, NAME, ["gpu-0"], also=[("other", "gpu-0")])
        entry = (await kubelet.prepare([claim]))[claim.uid]
        assert entry.error == ""
        assert len({name for each in entry.devices for name in each.cdi_ids}) == 2
        (spec,) = specs(tmp_path)
        assert [each["containerEdits"]["env"] for each in spec["devices"]] == [["POOL=n1"], ["POOL=other"]]


async def test_a_node_that_does_not_exist_yet_is_waited_for(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = client.resource("", "v1", "nodes", namespaced=False)
    await nodes.delete(NODE)
    async with started(Gpu(), client, tmp_path) as (plugin, _):

        async def told() -> bool:
            return "node 'n1' does not exist yet" in caplog.text

        await until(told)
        await nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        async with asyncio.timeout(WAIT_S):
            await plugin.publisher.synced.wait()
