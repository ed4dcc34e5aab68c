"""The server for names: whom it answers, and that it ends."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from allot.core.network import dns_messages as dns
from allot.core.network.names import Directory
from allot.core.network.routes import routes_of
from allot.network.name_server import PORT, NameServer
from waiting import WAIT_S

ADDRESS = f"127.{os.getpid() % 250 + 1}.53.54"
SERVICE = {"metadata": {"namespace": "default", "name": "web"}, "spec": {"clusterIP": "10.96.0.7"}}
ASKED = dns.ask(7, dns.name_of("web.default.svc.cluster.local"), dns.A)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="port 53 is root's")


async def nobody(_message: bytes) -> bytes:
    raise OSError


async def ask(source: str) -> bytes:
    """The answer to a client at an address, over TCP; empty if it gets none."""
    reader, writer = await asyncio.open_connection(ADDRESS, PORT, local_addr=(source, 0))
    try:
        writer.write(len(ASKED).to_bytes(2) + ASKED)
        return (await reader.read())[2:] if source != "127.0.0.1" else await _one(reader)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def _one(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(2)))


async def test_who_is_no_client_gets_no_answer_and_the_end_frees_the_port() -> None:
    directory = Directory()
    directory.update("default", "web", routes_of(SERVICE, []))
    for _ in range(2):
        server = NameServer(directory, nobody, address=ADDRESS, is_client=lambda each: each == "127.0.0.1")
        server.start()
        try:
            async with asyncio.timeout(WAIT_S):
                assert [each.data for each in dns.records_of(await ask("127.0.0.1"))] == [socket.inet_aton("10.96.0.7")]
                assert await ask("127.0.0.2") == b""
                await _only_clients_hear_datagrams()
        finally:
            server.close()


async def _only_clients_hear_datagrams() -> None:
    """What a stranger asks first is not answered when a client has its answer."""
    loop = asyncio.get_running_loop()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        for made, source in ((stranger, "127.0.0.2"), (client, "127.0.0.1")):
            made.setblocking(False)
            made.bind((source, 0))
            await loop.sock_sendto(made, ASKED, (ADDRESS, PORT))
        assert dns.records_of(await loop.sock_recv(client, 4096))
        with pytest.raises(BlockingIOError):
            stranger.recv(4096)
