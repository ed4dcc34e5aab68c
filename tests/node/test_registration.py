"""The Node object and its lease against a real API server in memory."""

from __future__ import annotations

from pathlib import Path

from allot.apiserver.assembly import Settings, running
from allot.client.api import PatchType
from allot.controlplane.clients import client_of
from allot.controlplane.users import ADMINISTRATOR
from allot.core.lifecycle.plugin_devices import Ledger
from allot.node.deviceplugins.checkpoint import encode
from allot.node.deviceplugins.device_plugins import DevicePlugins
from allot.node.machine import read_machine
from allot.node.registration import LEASE_DURATION_S, NodeOptions, Registration
from allot.node.runtimes.port import RuntimeStatus
from allot.process.clock import SystemClock
from allot.store.memory import MemoryStore

RUNTIME = RuntimeStatus(name="process", version="1")


class Skipping(SystemClock):
    """A clock of which parts can be skipped."""

    __slots__ = ("skipped",)

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped


async def test_a_node_that_was_taken_for_dead_says_that_it_is_ready_once_its_lease_is_renewed(tmp_path: Path) -> None:
    clock = Skipping()
    async with running(Settings(directory=tmp_path, port=0), MemoryStore()) as server:
        client = client_of(server, ADMINISTRATOR)
        nodes = client.resource("", "v1", "nodes", namespaced=False)
        options = NodeOptions(name="n1", address="127.0.0.1", version="v1.37.0")
        registration = Registration(client, clock, options, read_machine(tmp_path), lambda: 0)

        async def ready() -> str:
            conditions = (await nodes.get("n1"))["status"]["conditions"]
            return str(next(each["status"] for each in conditions if each["type"] == "Ready"))

        await registration.register(RUNTIME)
        assert await registration.renew()
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        await nodes.patch("n1", {"status": {"conditions": [unknown]}}, PatchType.STRATEGIC, subresource="status")

        assert await registration.renew()
        await registration.refresh(RUNTIME)
        assert await ready() == "Unknown", "the lease was in time: nothing to say"
        clock.skipped += LEASE_DURATION_S + 1
        assert await registration.renew()
        await registration.refresh(RUNTIME)
        assert await ready() == "True"


async def test_devices_that_an_earlier_agent_offered_are_gone_and_those_of_plugins_are_told(tmp_path: Path) -> None:
    clock = SystemClock()
    async with running(Settings(directory=tmp_path / "plane", port=0), MemoryStore()) as server:
        client = client_of(server, ADMINISTRATOR)
        nodes = client.resource("", "v1", "nodes", namespaced=False)
        options = NodeOptions(name="n1", address="127.0.0.1", version="v1.37.0")

        async def cards() -> dict[str, tuple[str, str]]:
            status = (await nodes.get("n1"))["status"]
            return {
                name: (amount, status["allocatable"][name])
                for name, amount in status["capacity"].items()
                if "/" in name
            }

        def registration() -> Registration:
            plugins = DevicePlugins(tmp_path / "root", clock, active_pods=lambda: None)
            return Registration(client, clock, options, read_machine(tmp_path), lambda: 0, plugins)

        await registration().register(RUNTIME)
        assert await cards() == {}
        given = {"capacity": {"v.example/old": "4"}, "allocatable": {"v.example/old": "4"}}
        await nodes.patch("n1", {"status": given}, PatchType.STRATEGIC, subresource="status")
        # Without a checkpoint the machine is another one: nobody offers these yet.
        await registration().register(RUNTIME)
        assert await cards() == {"v.example/old": ("0", "0")}
        await nodes.patch("n1", {"status": given}, PatchType.STRATEGIC, subresource="status")
        folder = tmp_path / "root" / "device-plugins"
        (folder / "kubelet_internal_checkpoint").write_bytes(encode(Ledger(), ["v.example/gpu"]))
        # With one, an administrator's amounts stay, and the plugin's are 0 until it registers again.
        await registration().register(RUNTIME)
        assert await cards() == {"v.example/old": ("4", "4"), "v.example/gpu": ("0", "0")}
