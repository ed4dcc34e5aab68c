"""Who gets to an API server that listens on the loopback address."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from allot.node.api_door import ApiDoor


async def ask(port: int, source: str) -> bytes:
    """What a client from an address hears."""
    reader, writer = await asyncio.open_connection("127.0.0.2", port, local_addr=(source, 0))
    try:
        writer.write(b"asks\n")
        return await reader.readline()
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"api: " + await reader.readline())
    writer.close()


async def try_door() -> dict[str, Any]:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    api = server.sockets[0].getsockname()
    door = ApiDoor("127.0.0.2", (api[0], api[1]), lambda peer: peer == "127.0.0.3")
    found: dict[str, Any] = {source: await ask(door.port, source) for source in ("127.0.0.2", "127.0.0.3")}
    with pytest.raises(ConnectionResetError):
        await ask(door.port, "127.0.0.4")
    await door.close()
    server.close()
    await server.wait_closed()
    return found


def test_pods_of_the_node_and_the_node_itself_get_in_and_nobody_else() -> None:
    assert asyncio.run(try_door()) == {"127.0.0.2": b"api: asks\n", "127.0.0.3": b"api: asks\n"}
