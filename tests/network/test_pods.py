"""Addresses of pods on one machine: real namespaces, real programs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from allot.core.network.ranges import BLOCKS, DNS_ADDRESS, GATEWAY, is_of_pod
from allot.network.client import NetworkFailure
from allot.network.relays import bound, connected
from allot.node.runtimes.port import RuntimeFailure
from allot.node.runtimes.process import ProcessRuntime
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from network.running import PATH, Pods, Running, answer, asked
from nobody import NOBODY, become_nobody

pytestmark = pytest.mark.slow
_PROGRAM = Path(__file__).with_name("network_trial.py")


@pytest.mark.parametrize("who", ["us", "nobody"])
def test_two_pods_listen_on_the_same_port(who: str) -> None:
    if who == "nobody" and os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    # Not in pytest's folder, which other users cannot pass through.
    folder = Path(tempfile.mkdtemp(prefix="allot-network-", dir="/var/tmp"))
    if who == "nobody":
        os.chown(folder, NOBODY, NOBODY)
    paths = os.pathsep.join((str(_PROGRAM.parents[2] / "src"), str(_PROGRAM.parents[1])))
    try:
        done = subprocess.run(
            [sys.executable, str(_PROGRAM), str(folder)],
            capture_output=True,
            timeout=110,
            check=False,
            preexec_fn=become_nobody if who == "nobody" else None,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": paths},
            cwd="/",
        )
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        came = msgspec.json.decode(done.stdout, type=dict[str, str])
    finally:
        shutil.rmtree(folder)
    if "refused" in came:
        pytest.skip(came["refused"])
    assert (came["one"], came["two"], came["from one to two"], came["from within"]) == ("one", "two", "two", "one")
    assert len(set(came["addresses"].split())) == 2


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        GATEWAY,
        DNS_ADDRESS,
        "10.96.0.1",
        "10.128.255.255",
        "10.128.77.7",
        BLOCKS[0],
        "::1",
        "x",
        "192.0.2.1",
    ],
)
async def test_only_pods_are_dialled(running: Running, address: str) -> None:
    with pytest.raises(NetworkFailure, match="no pod has the address"):
        await running.client.dial(address, 80)
    if not is_of_pod(address):
        listening = bound("127.0.0.1", 0)
        with pytest.raises(NetworkFailure, match="no pod has the address"):
            await running.client.forward("x", listening, address, 80)


async def test_the_machine_is_not_reached_from_a_pod(pods: Pods) -> None:
    listening = bound("127.0.0.1", 0)
    own, port = "127.0.0.1", listening.getsockname()[1]
    await pods.start("one", "sleep", "600")
    for address in (own, GATEWAY):
        connect = f"import socket; socket.create_connection(('{address}', {port}), 5)"
        assert "ConnectionRefusedError" in await pods.said("one", sys.executable, "-c", connect)
    listening.close()


async def test_a_pod_has_no_rights_over_its_network(pods: Pods) -> None:
    await pods.start("one", "sleep", "600")
    raw = "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"
    assert "PermissionError" in await pods.said("one", sys.executable, "-c", raw)
    change = "from allot.network.netlink import Netlink; Netlink().set_up('lo')"
    source = str(Path(__file__).parents[2] / "src")
    assert "ermitted" in await pods.said(
        "one", sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {change}"
    )


async def test_a_pod_on_the_machines_network_keeps_it(pods: Pods) -> None:
    sandbox = await pods.start("host", "sleep", "600", host_network=True)
    assert sandbox.ips == ("127.0.0.1",)
    seen = (await pods.said("host", "readlink", "/proc/self/ns/net")).strip()
    assert seen == str(Path("/proc/self/ns/net").readlink())


async def test_pods_keep_their_addresses_when_the_inner_process_is_killed(running: Running, pods: Pods) -> None:
    one = await pods.serve("one", 8080)
    assert await asked(pods.network, one.ips[0], 8080) == "one"
    listening = bound("127.0.0.1", 0)
    port = listening.getsockname()[1]
    await pods.network.forward("hostPort", listening, one.ips[0], 8080)
    await running.kill()
    await running.start()
    assert await asked(pods.network, one.ips[0], 8080) == "one"
    two = await pods.serve("two", 8080)
    assert two.ips != one.ips
    # What was asked for before lasts.
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(30):
        assert await reader.read() == b"one"
    writer.close()
    await pods.network.forget("hostPort")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_an_agent_goes_on_with_pods_unless_their_network_is_gone(
    pods: Pods, running: Running, tmp_path: Path
) -> None:
    one = await pods.serve("one", 80)

    async def found(network: object) -> bool:
        runtime = ProcessRuntime(
            tmp_path / "runtime", SystemClock(), SystemIds(), environment={"PATH": PATH}, network=network
        )
        await runtime.open()
        sandboxes, _ = await runtime.list()
        await runtime.close()
        return next(each.ready for each in sandboxes if each.id == one.id)

    assert await found(running.client)
    assert not await found(None)


async def test_an_address_goes_with_its_pod(pods: Pods) -> None:
    one = await pods.serve("one", 80)
    assert await pods.network.has(one.ips[0])
    await pods.runtime.stop_sandbox(one.id)
    async with asyncio.timeout(60):
        while await pods.network.has(one.ips[0]):
            await asyncio.sleep(0.05)
    with pytest.raises(NetworkFailure, match="no pod has the address"):
        await pods.network.dial(one.ips[0], 80)


async def test_visitors_of_placeholders_are_handed_to_whose_block_it_is(running: Running) -> None:
    block = await running.client.take_block()
    assert block in BLOCKS
    visits: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    def visited(connection: object, address: str, port: int) -> None:
        visits.put_nowait((address, port))
        connection.close()

    running.client.visited = visited
    running.client.open_doors([8000])
    address = block.removesuffix("0.0") + "3.7"
    assert await asked(running.client, address, 8000) == ""
    assert await visits.get() == (address, 8000)
    with pytest.raises(NetworkFailure, match="refused"):
        await running.client.dial(address, 8001)
    assert await answer_of_other_block(running) == "refused"


async def answer_of_other_block(running: Running) -> str:
    try:
        return await answer(await running.client.dial(BLOCKS[-1].removesuffix("0.0") + "1.1", 8000))
    except NetworkFailure as error:
        assert "no pod has the address" in str(error)
        return "refused"


async def test_a_host_port_leads_to_the_pod_until_it_ends(pods: Pods) -> None:
    free = bound("127.0.0.1", 0)
    port = free.getsockname()[1]
    free.close()
    one = await pods.serve("one", 80, host_port=port)
    assert await asked(pods.network, one.ips[0], 80) == "one"
    assert await answer(await connected("127.0.0.1", port)) == "one"
    with pytest.raises(RuntimeFailure, match=f"host port {port}/TCP at 127.0.0.1: address already in use"):
        await pods.serve("two", 80, host_port=port)
    await pods.runtime.stop_sandbox(one.id)
    with pytest.raises(ConnectionRefusedError):
        await connected("127.0.0.1", port)


async def test_a_machine_that_allows_no_namespaces_is_told_with_its_reason(tmp_path: Path) -> None:
    """Asked of the kernel: in a user namespace that allows no network namespaces in it."""
    if os.geteuid() != 0:
        pytest.skip("only root can make the limits of others")
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom allot.network.namespace import ClusterNetwork, NetworkRefused\n"
        "from allot.process.namespaces import USERS, become_owner_of_users\n"
        "become_owner_of_users()\n"
        "Path('/proc/sys/user/max_net_namespaces').write_text('0')\n"
        "try:\n    asyncio.run(ClusterNetwork.make(Path(sys.argv[1])))\n"
        "except NetworkRefused as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "socket")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "namespaces: new namespace: user.max_*_namespaces allows no more", done.stderr


async def test_a_node_without_a_pod_network_says_why(tmp_path: Path) -> None:
    runtime = ProcessRuntime(
        tmp_path, SystemClock(), SystemIds(), environment={"PATH": PATH}, no_network="namespaces: not permitted"
    )
    await runtime.open()
    status = await runtime.status()
    await runtime.close()
    if status.isolation is None or not status.isolation.is_on:
        pytest.skip("this machine allows no sandbox")
    assert status.network is not None
    assert (status.network.is_on, status.network.reason) == (False, "NoPodNetwork")
    assert "namespaces: not permitted" in status.network.message
