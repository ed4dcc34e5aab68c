"""The way out of the pod network, where slirp4netns is installed, and names that are not the cluster's."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from pathlib import Path
from typing import cast

import pytest

from allot.core.network import dns_messages as dns
from allot.network.relays import bound
from allot.network.resolvers import ask_machine
from allot.network.service_client import ServiceNetwork
from allot.network.way_out import find_way_out
from network.running import Pods, asked
from waiting import until


def own_address() -> str:
    """An address of this machine that is not its loopback's; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.99", 9))
        return str(probe.getsockname()[0])


@pytest.mark.slow
async def test_a_pod_reaches_the_world_outside_but_not_the_machines_loopback(pods: Pods) -> None:
    if not find_way_out():
        pytest.skip("slirp4netns is not installed")
    if not os.access("/dev/net/tun", os.W_OK):
        pytest.skip("/dev/net/tun is not for this user")
    try:
        outside = bound(own_address(), 0)
    except OSError as error:
        pytest.skip(f"this machine has no network: {error}")
    loopback = bound("127.0.0.1", 0)
    await pods.start("one", "sleep", "600")
    two = await pods.serve("two", 80)
    assert await asked(pods.network, two.ips[0], 80) == "two"

    async def comes_to(address: str, port: int) -> bool:
        connect = f"import socket; socket.create_connection(('{address}', {port}), 10)"
        return await pods.said("one", sys.executable, "-c", connect) == ""

    assert await comes_to(*outside.getsockname())
    assert await comes_to(two.ips[0], 80)
    for address in ("127.0.0.1", "10.0.2.2"):
        assert not await comes_to(address, loopback.getsockname()[1])
    outside.close()
    loopback.close()


class _Machine(asyncio.DatagramProtocol):
    """A name server that knows one address."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        # What somebody else sends first is not the answer.
        self.transport.sendto(b"\xff\xff" + data[2:], addr)
        question = dns.parse_question(data)
        found = dns.Record(dns.A, bytes((192, 0, 2, 7)), 60)
        self.transport.sendto(dns.answer(question, 0, (found,), is_ours=True, recurses=True, bytes_max=512), addr)


async def test_names_of_others_are_asked_of_the_machines_servers(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(_Machine, local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    file = tmp_path / "resolv.conf"
    file.write_text("nameserver 127.0.0.1\n")
    asked_for = dns.ask(77, dns.name_of("example.org"), dns.A)
    answer = await ask_machine(asked_for, file, port)
    assert struct.unpack_from(">H", answer)[0] == 77
    assert [each.data for each in dns.records_of(answer)] == [bytes((192, 0, 2, 7))]
    transport.close()
    file.write_text("")
    with pytest.raises(OSError, match="no name server"):
        await ask_machine(asked_for, file, port)


@pytest.mark.slow
async def test_pods_learn_names_of_others_only_where_somebody_asks_for_them(pods: Pods, tmp_path: Path) -> None:
    await pods.start("client", "sleep", "600")
    look = "import socket; print(socket.gethostbyname('example.org'))"
    without = ServiceNetwork(tmp_path / "network.sock", ("127.0.0.1", 1))
    without.start()
    await without.has("10.128.0.2")
    assert "gaierror" in await pods.said("client", sys.executable, "-c", look)
    await without.close()

    async def resolve(message: bytes) -> bytes:
        found = dns.Record(dns.A, bytes((192, 0, 2, 7)), 60)
        return dns.answer(dns.parse_question(message), 0, (found,), is_ours=False, recurses=True, bytes_max=512)

    asking = ServiceNetwork(tmp_path / "network.sock", ("127.0.0.1", 1), resolve)
    asking.start()

    async def is_found() -> bool:
        return (await pods.said("client", sys.executable, "-c", look)).strip() == "192.0.2.7"

    assert await until(is_found)
    await asking.close()
