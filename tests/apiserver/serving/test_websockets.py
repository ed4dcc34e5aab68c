"""Watches by WebSocket: clients that ping, close or are none."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec
import pytest

from apiserver.live import LiveServer
from waiting import WAIT_S

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_watch_answers_pings_and_ends_with_its_client(server: LiveServer) -> None:
    url = f"{server.url}{MAPS}?watch=true"
    async with server.session.ws_connect(url, protocols=("binary.k8s.io",), autoping=False) as socket:
        assert socket.protocol == "binary.k8s.io"
        first = await socket.receive(timeout=WAIT_S)
        assert msgspec.json.decode(first.data)["type"] == "ADDED"
        await socket.ping(b"are you there")
        pong = await socket.receive(timeout=WAIT_S)
        assert (pong.type, pong.data) == (aiohttp.WSMsgType.PONG, b"are you there")
        assert await socket.close()
        assert socket.close_code == 1000


@pytest.mark.slow
async def test_a_watch_by_websocket_ends_with_its_time(server: LiveServer) -> None:
    async with server.session.ws_connect(f"{server.url}{MAPS}?watch=true&timeoutSeconds=1") as socket:
        kinds = [message.type async for message in socket]
    assert kinds == [aiohttp.WSMsgType.BINARY]
    assert socket.close_code == 1000


async def test_a_handshake_that_is_none_is_refused(server: LiveServer) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    async with asyncio.timeout(WAIT_S):
        answer = await server.get(f"{MAPS}?watch=true", headers=headers)
    assert answer.status == 400
    assert "WebSocket handshake" in answer.json["message"]
