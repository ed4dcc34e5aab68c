"""Device plugins on sockets: what they offer, who gets it, and what happens when they or the agent go."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from allot.core.features import DEFAULT_GATES
from allot.core.lifecycle.plugin_devices import NodeAmounts, Refused
from allot.core.model.pods_v1 import RunnablePod, decode_runnable
from allot.node.deviceplugins import device_plugins
from allot.node.deviceplugins.device_plugins import DevicePlugins
from allot.node.deviceplugins.registration import socket_beneath
from allot.node.dra.registration import Registry
from allot.node.pod_resources import Allocatable, PodResources
from allot.node.state_file import CheckpointCorrupt
from allot.process.clock import Clock, ManualClock, SystemClock
from allot.process.metrics import render
from allot.wire import device_plugin_v1beta1_pb2 as wire
from allot.wire import pod_resources_v1_pb2
from node.deviceplugins.plugin import RESOURCE, PluginOnSocket
from node.dra.plugin import DriverOnSockets
from node.dra.test_pod_resources import ask
from waiting import until


class Here:
    """A folder of an agent, with the plugins that use it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "device-plugins"
        self.active: set[str] | None = None
        self.metrics = CollectorRegistry()
        self.plugins: list[PluginOnSocket] = []

    def agent(self, clock: Clock | None = None, **more: Any) -> DevicePlugins:
        """An agent that does not run yet."""
        self.metrics = CollectorRegistry()
        return DevicePlugins(
            self.root,
            clock or SystemClock(),
            active_pods=lambda: None if self.active is None else frozenset(self.active),
            metrics=self.metrics,
            **more,
        )

    @asynccontextmanager
    async def running(self, clock: Clock | None = None, **more: Any) -> AsyncIterator[DevicePlugins]:
        """An agent that runs, and is killed in the end."""
        agent = self.agent(clock, **more)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(agent.run())
            try:
                await until(lambda: (self.folder / "kubelet.sock").exists())
                yield agent
            finally:
                task.cancel()

    async def plugin(self, *, registers: bool = True, **more: Any) -> PluginOnSocket:
        """A plugin that runs until the end of the test."""
        plugin = await PluginOnSocket(self.folder, **more).start()
        self.plugins.append(plugin)
        if registers:
            await plugin.register()
        return plugin


@pytest.fixture
async def here() -> AsyncIterator[Here]:
    # Sockets have at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="plug") as root:
        made = Here(Path(root))
        try:
            yield made
        finally:
            for plugin in made.plugins:
                await plugin.stop()


def pod(name: str = "p", count: int = 1, resource: str = RESOURCE, **more: Any) -> RunnablePod:
    container = {"name": "main", "image": "x", "resources": {"limits": {resource: str(count)}}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return decode_runnable({"metadata": metadata, "spec": {"containers": [container], **more}})


def held(agent: DevicePlugins, made: RunnablePod, resource: str = RESOURCE) -> tuple[str, ...]:
    found = agent.holdings(made, made.spec.containers[0]).get(resource)
    return found.ids if found is not None else ()


async def offers(agent: DevicePlugins, capacity: int, allocatable: int, resource: str = RESOURCE) -> None:
    def has() -> bool:
        found = agent.amounts()
        return (found.capacity.get(resource), found.allocatable.get(resource)) == (capacity, allocatable)

    await until(has, f"{allocatable} of {capacity} {resource}")


async def test_devices_are_offered_given_to_containers_and_told_to_monitors(here: Here) -> None:
    async with here.running() as agent:
        assert agent.is_new_node
        plugin = await here.plugin(devices={"d0": "Healthy", "d1": "Healthy", "d2": "Broken"}, registers=False)
        plugin.numa["d0"] = (0, 1)
        await plugin.register()
        await offers(agent, 3, 2)
        made = pod()
        await agent.allocate(made)
        assert held(agent, made) == ("d0",)
        assert plugin.asked("Allocate") == [("d0",)]
        edits = await agent.edits(made, made.spec.containers[0])
        assert edits.environment == {"GPU": "d0", "GPU_MODE": "plugin"}
        assert [(each.host_path, each.container_path, each.read_only) for each in edits.mounts] == [
            (str(here.folder / "files"), "/opt/gpu", True)
        ]
        assert [(each.host_path, each.container_path, each.permissions) for each in edits.devices] == [
            ("/dev/null", "/dev/gpu", "rw")
        ]
        assert edits.annotations == {f"{RESOURCE}-devices": "d0"}
        # Asked once per pod, whatever its containers do.
        await agent.allocate(made)
        assert plugin.asked("Allocate") == [("d0",)] and not plugin.asked("PreStartContainer")

        path = here.root / "kubelet.sock"
        service = PodResources(lambda: [made], _NoClaims(), SystemClock(), allocatable=Allocatable(), plugins=agent)
        async with service.serving(path):
            wires = pod_resources_v1_pb2
            listed = await ask(path, "List", wires.ListPodResourcesRequest(), wires.ListPodResourcesResponse)
            there = await ask(
                path, "GetAllocatableResources", wires.AllocatableResourcesRequest(), wires.AllocatableResourcesResponse
            )
            request = wires.GetPodResourcesRequest(pod_name="p", pod_namespace="default")
            got = await ask(path, "Get", request, wires.GetPodResourcesResponse)
        assert got.pod_resources == listed.pod_resources[0]
        assert _told(listed.pod_resources[0].containers[0].devices) == [
            (RESOURCE, ["d0"], [0]),
            (RESOURCE, ["d0"], [1]),
        ]
        assert _told(there.devices) == [(RESOURCE, ["d0"], [0]), (RESOURCE, ["d0"], [1]), (RESOURCE, ["d1"], [])]
        text = render(here.metrics).decode()
        assert f'kubelet_device_plugin_registration_total{{resource_name="{RESOURCE}"}} 1.0' in text
        assert f'kubelet_device_plugin_alloc_duration_seconds_count{{resource_name="{RESOURCE}"}} 1.0' in text


class _NoClaims:
    def claims_of_container(self, _pod: Any, _container: Any) -> tuple[()]:
        return ()


def _told(devices: Any) -> list[tuple[str, list[str], list[int]]]:
    return [(each.resource_name, list(each.device_ids), [node.ID for node in each.topology.nodes]) for each in devices]


async def test_pods_do_not_share_devices_even_at_the_same_time(here: Here) -> None:
    async with here.running() as agent:
        plugin = await here.plugin(devices=[f"d{number}" for number in range(6)])
        await offers(agent, 6, 6)

        async def slowly(method: str, _ids: Any) -> None:
            if method == "Allocate":
                await asyncio.sleep(0.01)

        plugin.around = slowly
        pods = [pod(f"p{number}", 2) for number in range(4)]
        results = await asyncio.gather(*(agent.allocate(each) for each in pods), return_exceptions=True)
        (failure,) = [each for each in results if each is not None]
        assert str(failure) == f"requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 0"
        given = [id_ for each in pods for id_ in held(agent, each)]
        assert sorted(given) == sorted(set(given)) and len(given) == 6
        # What a pod has used, the next one gets.
        await agent.release(pods[0].metadata.uid)
        await agent.allocate(pods[-1])
        assert held(agent, pods[-1]) == ("d0", "d1")
        assert agent.held() == {RESOURCE: 6}


async def test_holders_survive_a_killed_agent_and_deleted_pods_do_not(here: Here) -> None:
    kept, gone, new = pod("kept"), pod("gone"), pod("new", 2)
    async with here.running() as agent:
        await here.plugin(devices=("d0", "d1", "d2"))
        await offers(agent, 3, 3)
        await agent.allocate(kept)
        await agent.allocate(gone)
        before = await agent.edits(kept, kept.spec.containers[0])
    await here.plugins[0].stop()
    async with here.running() as agent:
        # Nothing until the plugin is back; what runs goes on, and starts again.
        assert not agent.is_new_node
        assert agent.amounts() == NodeAmounts(capacity={RESOURCE: 0}, allocatable={RESOURCE: 0})
        assert held(agent, kept) == ("d0",)
        assert await agent.edits(kept, kept.spec.containers[0]) == before
        with pytest.raises(Refused, match="no healthy devices present; cannot allocate unhealthy devices"):
            await agent.allocate(new)
        (status,) = agent.health(kept)["main"]
        assert status == {"name": RESOURCE, "resources": [{"resourceID": "d0", "health": "Unknown"}]}
        await here.plugin(devices=("d0", "d1", "d2"))
        await offers(agent, 3, 3)
        with pytest.raises(Refused, match="Requested: 2, Available: 1"):
            await agent.allocate(new)
        here.active = {kept.metadata.uid, new.metadata.uid}
        await agent.allocate(new)
        assert held(agent, new) == ("d1", "d2") and held(agent, gone) == ()


async def test_a_damaged_checkpoint_stops_the_agent(here: Here) -> None:
    here.folder.mkdir(parents=True)
    (here.folder / "kubelet_internal_checkpoint").write_text("{")
    with pytest.raises(CheckpointCorrupt):
        here.agent()


async def test_an_allocation_that_cannot_be_recorded_is_refused(here: Here) -> None:
    async with here.running() as agent:
        await here.plugin()
        await offers(agent, 2, 2)
        # Nothing can be written under this name.
        await until(lambda: (here.folder / "kubelet_internal_checkpoint").exists())
        (here.folder / "kubelet_internal_checkpoint.new").mkdir()
        with pytest.raises(Refused, match="failed to write checkpoint file"):
            await agent.allocate(pod())
        assert agent.held() == {}


async def test_a_plugin_that_ends_takes_its_devices_with_it_and_later_its_resource(here: Here) -> None:
    clock = ManualClock()
    async with here.running(clock) as agent:
        plugin = await here.plugin()
        await offers(agent, 2, 2)
        made = pod()
        await agent.allocate(made)
        changes = agent.changes()
        await plugin.stop()
        await offers(agent, 2, 0)
        await asyncio.wait_for(anext(changes), 10)
        with pytest.raises(Refused, match="no healthy devices present"):
            await agent.allocate(pod("q"))
        clock.advance(299)
        await offers(agent, 2, 0)
        clock.advance(2)
        # 0 and not absent: the resource is the node's, not the cluster's.
        await offers(agent, 0, 0)
        assert held(agent, made) == ("d0",)
        with pytest.raises(Refused, match="cannot allocate unregistered device"):
            await agent.allocate(pod("q"))
        # Another plugin comes back with it.
        await here.plugin(socket="again.sock")
        await offers(agent, 2, 2)
        await agent.allocate(pod("q"))
    # Forgotten also on disk: it was gone when the agent ended.
    async with here.running() as agent:
        assert agent.amounts().capacity == {RESOURCE: 0}


async def test_health_reaches_pods_and_the_node(here: Here) -> None:
    async with here.running() as agent:
        plugin = await here.plugin()
        await offers(agent, 2, 2)
        made = pod()
        await agent.allocate(made)
        changes = agent.health_changes()
        waiting = asyncio.ensure_future(anext(changes))
        await plugin.tell(d1="Unhealthy")
        await offers(agent, 2, 1)
        await plugin.tell(d0="Unhealthy")
        assert await asyncio.wait_for(waiting, 10) == made.metadata.uid
        assert agent.health(made)["main"] == [
            {"name": RESOURCE, "resources": [{"resourceID": "d0", "health": "Unhealthy"}]}
        ]
        assert agent.health(pod("other")) == {}
        with pytest.raises(Refused, match="no healthy devices present"):
            await agent.allocate(made)
    assert here.agent(gates=DEFAULT_GATES.changed(disable=["ResourceHealthStatus"])).health(made) == {}


async def test_plugins_are_asked_for_preferences_and_before_each_start(here: Here) -> None:
    async with here.running() as agent:
        plugin = await here.plugin(
            devices=("d0", "d1", "d2", "d3"), pre_start=True, preferred=lambda _: ["d3", "nonsense"]
        )
        await offers(agent, 4, 4)
        made = pod(count=2)
        await agent.allocate(made)
        assert held(agent, made) == ("d3", "d0")
        assert plugin.asked("GetPreferredAllocation") == [("d0", "d1", "d2", "d3")]
        for _ in range(2):
            await agent.edits(made, made.spec.containers[0])
        assert plugin.asked("PreStartContainer") == [("d3", "d0")] * 2

        async def fails(method: str, _ids: Any) -> str | None:
            return "no" if method != "Allocate" else None

        plugin.around = fails
        with pytest.raises(
            Refused, match=r"^device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = no$"
        ):
            await agent.edits(made, made.spec.containers[0])
        with pytest.raises(
            Refused, match=r"^device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown"
        ):
            await agent.allocate(pod("q"))
        # With all of them, there is nothing to prefer but its answer is awaited; with none, it is not asked.
        assert held(agent, pod("q")) == ()


async def test_answers_of_a_plugin_that_make_no_sense_refuse_the_pod_and_nothing_else(here: Here) -> None:
    async with here.running(allocate_s=0.2) as agent:
        plugin = await here.plugin()
        await offers(agent, 2, 2)
        answers: dict[str, Any] = {
            "rpc error: code = Unknown desc = broken": "broken",
            "no containers return in allocation response": wire.AllocateResponse().SerializeToString() or b"\x12\x00",
            "failed to unmarshal the received message": b"\xff\xff",
            "invalid allocation response of device plugin vendor.example/gpu: mount of": wire.AllocateResponse(
                container_responses=[
                    wire.ContainerAllocateResponse(mounts=[wire.Mount(host_path="../x", container_path="/x")])
                ]
            ),
        }
        for text, answer in answers.items():

            async def answers_so(method: str, _ids: Any, answer: Any = answer) -> Any:
                return answer if method == "Allocate" else None

            plugin.around = answers_so
            with pytest.raises(Refused, match=text):
                await agent.allocate(pod())
            assert agent.held() == {}

        async def never(_method: str, _ids: Any) -> None:
            await asyncio.Event().wait()

        plugin.around = never
        with pytest.raises(Refused, match="code = DeadlineExceeded desc = context deadline exceeded"):
            await agent.allocate(pod())
        plugin.around = None
        await agent.allocate(pod())


async def test_of_two_plugins_for_a_resource_the_newer_counts_until_it_ends(here: Here) -> None:
    async with here.running() as agent:
        old = await here.plugin(devices=("d0",))
        await offers(agent, 1, 1)
        new = await here.plugin(devices=("d0", "d1"), socket="new.sock")
        await offers(agent, 2, 2)
        # What the old one says no longer counts.
        await old.tell(d0="Unhealthy")
        await agent.allocate(pod(count=2))
        assert (old.asked("Allocate"), new.asked("Allocate")) == ([], [("d0", "d1")])
        await new.stop()
        await offers(agent, 1, 0)
        await old.tell(d0="Healthy")
        await offers(agent, 1, 1)
        await old.stop()
        await offers(agent, 1, 0)


async def test_a_plugin_that_starts_again_at_its_socket_takes_its_own_place(here: Here) -> None:
    async with here.running() as agent:
        plugin = await here.plugin()
        with pytest.raises(grpc.aio.AioRpcError, match="device plugin already connected"):
            await plugin.register()
        await offers(agent, 2, 2)
        for _ in range(3):
            await plugin.stop()
            await plugin.start()
            await plugin.register()
            await offers(agent, 2, 2)


async def test_registrations_that_lead_elsewhere_or_make_no_sense_are_refused(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allot.node.deviceplugins.endpoints.DIAL_TIMEOUT_S", 0.1)
    async with here.running() as agent:
        plugin = await here.plugin(registers=False)

        async def refused(text: str, **more: Any) -> None:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await plugin.register(**more)
            assert caught.value.code() == grpc.StatusCode.UNKNOWN
            assert text in str(caught.value.details())

        await refused('is not supported by kubelet. Supported version is ["v1beta1"]', version="v1alpha1")
        outside = here.root / "outside"
        outside.mkdir()
        (here.folder / "link").symlink_to(outside)
        elsewhere = await PluginOnSocket(outside).start()
        here.plugins.append(elsewhere)
        for endpoint in (
            "../outside/plugin.sock",
            str(elsewhere.path),
            "link/plugin.sock",
            "",
            ".",
            "kubelet.sock",
            "./kubelet.sock",
        ):
            await refused("expected the name of", endpoint=endpoint)
        await refused("No such file", endpoint="absent.sock")
        await refused("is not a socket", endpoint="link")
        await refused("failed to dial device plugin", endpoint="x" * 5000)
        (here.folder / "plain").touch()
        await refused("is not a socket", endpoint="plain")
        plugin.resource = "cpu"
        await refused('the ResourceName "cpu" is invalid')
        plugin.resource = "v.example/" + "x" * 100_000
        await refused("is invalid")
        plugin.resource = RESOURCE

        async def fails(_method: str, _ids: Any) -> str:
            return "not today"

        plugin.around = fails
        await refused("failed to get device plugin options: rpc error: code = Unknown desc = not today")
        plugin.around = None
        monkeypatch.setattr(device_plugins, "ENDPOINTS_MAX", 0)
        await refused("this node has 0 device plugins already")
        monkeypatch.undo()
        assert agent.amounts() == NodeAmounts()
        await plugin.register()
        await offers(agent, 2, 2)
        # A folder within is as good, and several resources may share a socket.
        below = await here.plugin(resource="v.example/nic", socket="sub/nic.sock")
        below.resource = "v.example/fast"
        await below.register()
        await offers(agent, 2, 2, "v.example/fast")
        await offers(agent, 2, 2, "v.example/nic")


async def test_a_dead_socket_is_refused(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allot.node.deviceplugins.endpoints.DIAL_TIMEOUT_S", 0.1)
    async with here.running():
        plugin = PluginOnSocket(here.folder, socket="dead.sock")
        await _leave_socket(plugin.path)
        with pytest.raises(grpc.aio.AioRpcError, match="failed to dial device plugin: context deadline exceeded"):
            await plugin.register()


async def _leave_socket(path: Path) -> None:
    """The socket of a process that is gone."""
    server = await asyncio.start_unix_server(lambda _reader, _writer: None, str(path))
    kept = path.with_name("kept")
    os.link(path, kept)
    server.close()
    await server.wait_closed()
    if not path.exists():
        os.link(kept, path)


async def test_lists_too_large_or_without_sense_do_no_harm(here: Here) -> None:
    async with here.running() as agent:
        plugin = await here.plugin(devices={"": "Healthy", "x" * 5000: "Healthy", "d0": "Healthy"})
        await offers(agent, 1, 1)
        plugin.devices = {f"{number:060}": "Healthy" for number in range(20_000)}
        await plugin.tell()
        await offers(agent, 20_000, 20_000)
        plugin.devices = {f"{number:060}": "Healthy" for number in range(100_000)}
        await plugin.tell()
        # More than a message may have: the connection ends, and says why in the log.
        await offers(agent, 20_000, 0)

        async def garbage(method: str, _ids: Any) -> bytes | None:
            return b"\xff" if method == "ListAndWatch" else None

        again = await here.plugin(socket="again.sock", registers=False)
        again.around = garbage
        await again.register()
        await until(lambda: again.lists)
        await offers(agent, 20_000, 0)


async def test_sockets_of_an_earlier_run_are_removed_and_files_are_not(here: Here) -> None:
    here.folder.mkdir(parents=True)
    await _leave_socket(here.folder / "old.sock")
    (here.folder / "notes").touch()
    async with here.running():
        found = {each.name for each in here.folder.iterdir()}
        assert found == {"kubelet.sock", "notes"}
        assert (here.folder / "kubelet.sock").stat().st_mode & 0o777 == 0o600
    assert not (here.folder / "kubelet.sock").exists()


async def test_a_folder_with_a_long_path_is_told_and_the_agent_goes_on(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    agent = DevicePlugins(here.root / ("x" * 100), SystemClock(), active_pods=lambda: None)
    await agent.run()
    assert "device plugins cannot register on this node" in caplog.text


async def test_plugins_in_the_folder_of_all_plugins_are_found(here: Here) -> None:
    async with here.running() as agent:
        plugin = await here.plugin(registers=False)
        shown = DriverOnSockets(here.root, RESOURCE.replace("/", "-"), versions=("v1beta1",), endpoint=plugin.path)
        shown.type, shown.name = "DevicePlugin", RESOURCE
        registry = Registry(
            here.root / "plugins_registry", {"DevicePlugin": agent}, SystemClock(), period_s=0.01, pause_first_s=0.01
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(registry.run())
            await shown.start_registration()
            await offers(agent, 2, 2)
            await shown.stop()
            await offers(agent, 2, 0)
            shown.versions = ("v1alpha1",)
            await shown.start_registration()
            await until(lambda: any("is not among plugin supported versions" in text for _, text in shown.statuses))
            await shown.stop()
            running.cancel()


def test_names_of_sockets(tmp_path: Path) -> None:
    assert socket_beneath(tmp_path, "a/b.sock") == tmp_path / "a" / "b.sock"
    for bad in ("..", "a/../../b", "\0", "/", "//x"):
        with pytest.raises(Refused):
            socket_beneath(tmp_path, bad)
