"""Forwards pods' DNS queries for external names to the machine's name servers."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

from allot.core.network.pod_files import Resolving, parse_resolving

PORT = 53
RESOLV_CONF = Path("/etc/resolv.conf")
_PATIENCE_S = 3.0
_PACKET_BYTES = 4096
_TRUNCATED = 0x02
_LENGTH = struct.Struct(">H")


def machine_resolving(path: Path = RESOLV_CONF) -> Resolving:
    """The machine's DNS settings; empty if there are none."""
    try:
        return parse_resolving(path.read_text(errors="replace"))
    except OSError:
        return Resolving()


async def ask_machine(message: bytes, path: Path = RESOLV_CONF, port: int = PORT) -> bytes:
    """The first answer of the machine's servers; OSError if there is none."""
    for server in machine_resolving(path).servers:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await _ask(server, port, message)
        except (OSError, TimeoutError, EOFError):
            continue
    raise OSError("no name server of this machine answers")


async def _ask(server: str, port: int, message: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asking:
        asking.setblocking(False)
        await loop.sock_connect(asking, (server, port))
        await loop.sock_sendall(asking, message)
        answer = b""
        # Only the answer to this question, not other packets.
        while answer[:2] != message[:2] or len(answer) < 12:
            answer = await loop.sock_recv(asking, _PACKET_BYTES)
    return await _ask_at_length(server, port, message) if answer[2] & _TRUNCATED else answer


async def _ask_at_length(server: str, port: int, message: bytes) -> bytes:
    """Ask over TCP, for answers too large for a packet."""
    reader, writer = await asyncio.open_connection(server, port)
    try:
        writer.write(_LENGTH.pack(len(message)) + message)
        return await reader.readexactly(_LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0])
    finally:
        writer.close()
