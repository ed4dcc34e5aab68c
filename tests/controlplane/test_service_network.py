"""What Services say about where they are served, on a real API server: with a pod network, and without one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allot.apiserver.assembly import Settings
from allot.client.api import PatchType
from allot.controlplane.plane import ControlPlane, control_plane
from allot.controlplane.service_network import _bound_or_instead, start_services
from allot.network.namespace import NetworkRefused
from allot.network.relays import bound
from allot.network.service_client import ServiceNetwork
from allot.store.memory import MemoryStore
from network.running import running_network
from nobody import become_nobody
from waiting import until

WEB = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 8000}]},
}


async def events_of(plane: ControlPlane, reason: str) -> list[str]:
    events = plane.client().resource("events.k8s.io", "v1", "events", namespaced=True)
    return [each["note"] for each in (await events.list("default")).items if each["reason"] == reason]


async def test_without_a_pod_network_a_load_balancer_says_why_it_waits(tmp_path: Path) -> None:
    async with control_plane(Settings(directory=tmp_path, port=0), MemoryStore()) as plane:
        start_services(plane, None, "namespaces: operation not permitted")
        services = plane.client().resource("", "v1", "services", namespaced=True)
        await services.create(WEB)
        told = await until(lambda: events_of(plane, "NoPodNetwork"))
        expected = (
            "this machine allows no pod network (namespaces: operation not permitted): this Service is not served"
        )
        assert told == [expected]
        assert not (await services.get("web", "default"))["status"]["loadBalancer"]


@pytest.mark.slow
async def test_an_address_comes_with_the_type_and_goes_with_it(tmp_path: Path) -> None:
    try:
        async with (
            control_plane(Settings(directory=tmp_path, port=0), MemoryStore()) as plane,
            running_network(tmp_path),
        ):
            network = ServiceNetwork(tmp_path / "network.sock", ("127.0.0.1", plane.server.port))
            start_services(plane, network)
            try:
                await _try_types(plane)
            finally:
                await network.close()
    except NetworkRefused as error:
        pytest.skip(str(error))


async def _try_types(plane: ControlPlane) -> None:
    services = plane.client().resource("", "v1", "services", namespaced=True)
    await services.create(WEB)

    async def addresses() -> list[str]:
        found: dict[str, Any] = await services.get("web", "default")
        return [each["ip"] for each in found["status"]["loadBalancer"].get("ingress") or ()]

    (address,) = await until(addresses)
    assert address.startswith("127.")
    # It is listened on, though nobody is behind it: who connects is turned away.
    with socket.create_connection((address, 8000), 30) as connection, pytest.raises(ConnectionResetError):
        connection.recv(1)
    await services.patch("web", {"spec": {"type": "ClusterIP"}}, PatchType.MERGE, "default")

    async def is_gone() -> bool:
        return not await addresses()

    assert await until(is_gone)

    def is_refused() -> bool:
        try:
            socket.create_connection((address, 8000), 30).close()
        except ConnectionRefusedError:
            return True
        return False

    assert await until(is_refused)


def test_a_port_that_is_in_use_is_replaced_and_told() -> None:
    taken = bound("127.64.77.7", 0)
    port = taken.getsockname()[1]
    made, why = _bound_or_instead("127.64.77.7", ("TCP", port))
    assert made.getsockname()[1] != port
    assert why == "it is in use on this machine"
    made.close()
    taken.close()


@pytest.mark.slow
def test_a_port_below_1024_is_replaced_for_who_may_not_have_it() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 80:
        pytest.skip("everybody may have port 80 here")
    code = (
        "from allot.controlplane.service_network import _bound_or_instead\n"
        "made, why = _bound_or_instead('127.64.77.8', ('TCP', 80))\nprint(made.getsockname()[1], why)"
    )
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=become_nobody,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": source},
        cwd="/",
    )
    assert done.stdout.strip() == "8080 this user may not listen on ports below 1024", done.stderr
