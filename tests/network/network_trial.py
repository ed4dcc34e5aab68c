"""Two pods on one network, as whoever runs this: a program of its own, so that tests can run it as another user."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from allot.network.namespace import NetworkRefused
from network.running import Pods, asked, running_network


async def attempt(folder: Path) -> dict[str, str]:
    """What came of it; `refused` if the kernel allows no such network."""
    try:
        async with running_network(folder) as running:
            pods = Pods(folder, running.client)
            await pods.runtime.open()
            try:
                isolation = await pods.runtime.isolation()
                if not isolation.is_on:
                    return {"refused": isolation.message}
                return await _try(pods)
            finally:
                await pods.close()
    except NetworkRefused as error:
        return {"refused": str(error)}


async def _try(pods: Pods) -> dict[str, str]:
    one, two = await pods.serve("one", 80), await pods.serve("two", 80)
    connect = f"import socket; print(socket.create_connection(('{two.ips[0]}', 80)).recv(99).decode())"
    came = {"one": await asked(pods.network, one.ips[0], 80), "two": await asked(pods.network, two.ips[0], 80)}
    came["from one to two"] = (await pods.said("one", sys.executable, "-c", connect)).strip()
    streams = await pods.runtime.connect(one.id, 80)
    said = b"".join([data async for _, data in streams.output()])
    await streams.close()
    return {**came, "from within": said.decode(), "addresses": f"{one.ips[0]} {two.ips[0]}"}


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(attempt(Path(sys.argv[1])))))
