"""WebSockets: frames, and clients that ping, close or misbehave."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.apiserver.websockets import BadFrame, take_frame
from allot.process.websocket_frames import frame
from apiserver.live import LiveServer

MAPS = "/api/v1/namespaces/default/configmaps"


def masked(code: int, said: bytes, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    """A frame of a client."""
    plain = frame(code, said)
    head = plain[: len(plain) - len(said)]
    hidden = bytes(byte ^ mask[position % 4] for position, byte in enumerate(said))
    return bytes((head[0], head[1] | 0x80)) + head[2:] + mask + hidden


@given(st.sampled_from([1, 2, 8, 9]), st.binary(max_size=300), st.binary(min_size=4, max_size=4), st.binary(max_size=9))
def test_a_frame_is_read_when_all_of_it_has_come(code: int, said: bytes, mask: bytes, more: bytes) -> None:
    whole, data = masked(code, said, mask), bytearray()
    for byte in whole[:-1]:
        data.append(byte)
        assert take_frame(data) is None
    data += whole[-1:] + more
    assert take_frame(data) == (code, said)
    assert data == more


@pytest.mark.parametrize("length", [125, 126, 65_535, 65_536])
def test_lengths_are_written_as_short_as_they_can_be(length: int) -> None:
    said = b"x" * length
    head = frame(2, said)[:-length]
    assert len(head) == {125: 2, 126: 4, 65_535: 4, 65_536: 10}[length]


@pytest.mark.parametrize("data", [frame(1, b"unmasked"), masked(1, b"x" * 65_537), b"\x81\xff" + b"\xff" * 8])
def test_frames_that_break_the_rules_are_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        take_frame(bytearray(data))


async def test_a_watch_answers_pings_and_ends_with_its_client(server: LiveServer) -> None:
    url = f"{server.url}{MAPS}?watch=true"
    async with server.session.ws_connect(url, protocols=("binary.k8s.io",), autoping=False) as socket:
        assert socket.protocol == "binary.k8s.io"
        first = await socket.receive(timeout=10)
        assert msgspec.json.decode(first.data)["type"] == "ADDED"
        await socket.ping(b"are you there")
        pong = await socket.receive(timeout=10)
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
    async with asyncio.timeout(10):
        answer = await server.get(f"{MAPS}?watch=true", headers=headers)
    assert answer.status == 400
    assert "WebSocket handshake" in answer.json["message"]
