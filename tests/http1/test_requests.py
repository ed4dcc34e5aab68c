"""Handlers of request values: whatever clients send is answered, and what was not asked for is not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.http1.connections import Connection
from allot.http1.heads import HttpError
from allot.http1.requests import Request, Response, Upgrade, serving
from allot.process.clock import SystemClock
from waiting import WAIT_S


async def tell(request: Request) -> Response | Upgrade:
    """Answers with what was understood."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"
        if request.flag("fault"):
            raise LookupError("ours")
        if request.flag("follow"):
            await asyncio.Event().wait()

    async def echo(connection: Connection) -> None:
        while True:
            await connection.write(await connection.read())

    match request.path:
        case "/fault":
            raise LookupError("ours")
        case "/refused":
            raise HttpError(404, f"no {request.get('name')}")
        case "/pieces":
            return Response(pieces())
        case "/echo":
            return Upgrade("echo", {"X-Echo": "yes"}, echo)
    return Response(f"{request.method} {request.path} {request.all('a')}".encode())


@asynccontextmanager
async def client() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with serving(tell, SystemClock(), "127.0.0.1", 0) as port, asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


async def next_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
    return int(head.split()[1]), await reader.readexactly(int(length or 0))


async def answer_to(sent: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to bytes."""
    async with client() as (reader, writer):
        writer.write(sent)
        return await next_answer(reader)


async def test_a_request_says_what_is_asked_and_others_follow_on_its_connection() -> None:
    async with client() as (reader, writer):
        writer.write(b"GET /a%20b?a=1&b=2&a=%2F HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await next_answer(reader) == (200, b"GET /a b ('1', '/')")
        assert await next_answer(reader) == (200, b"POST / ()")


@pytest.mark.slow
async def test_a_body_is_passed_over_if_it_is_known_where_it_ends() -> None:
    async with client() as (reader, writer):
        writer.write(b"POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert [(await next_answer(reader))[1] for _ in range(2)] == [b"POST /1 ()", b"GET /2 ()"]
        writer.write(
            b"POST /3 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        assert await next_answer(reader) == (200, b"POST /3 ()")
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Content-Length: ²", 400),
        ("Content-Length: -1", 400),
        ("Content-Length: +5", 400),
        ("Content-Length: 5, 5", 400),
        ("Content-Length: 5\r\nContent-Length: 6", 400),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: gzip", 501),
        ("Transfer-Encoding : chunked", 400),
        ("folded: a\r\n b", 400),
        ("A: \0", 400),
    ],
)
async def test_a_body_whose_length_is_in_doubt_is_refused(head: str, status: int) -> None:
    assert (await answer_to(f"POST / HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\nhello\r\n".encode()))[0] == status


@pytest.mark.parametrize("line", [b"?", b"GET", b"GET / HTTP/2.0", b"GET /\0 HTTP/1.1", b"\x16\x03\x01"])
async def test_what_is_not_a_request_is_told_so(line: bytes) -> None:
    assert (await answer_to(line + b"\r\n\r\n"))[0] == 400


async def test_a_fault_of_ours_is_reported_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    assert await answer_to(b"GET /fault%0a HTTP/1.1\r\nHost: x\r\n\r\n") == (200, b"GET /fault\n ()")
    assert await answer_to(b"GET /fault HTTP/1.1\r\nHost: x\r\n\r\n") == (500, b"the request could not be handled")
    assert "GET /fault failed" in caplog.text


async def test_a_refusal_may_name_what_is_no_text() -> None:
    assert await answer_to(b"GET /refused?name=%ff HTTP/1.1\r\nHost: x\r\n\r\n") == (404, b"no ?")


async def test_answers_may_come_in_pieces() -> None:
    async with client() as (reader, writer):
        writer.write(b"GET /pieces HTTP/1.1\r\nHost: x\r\n\r\nHEAD /pieces HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"Transfer-Encoding: chunked" in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readuntil(b"\r\n0\r\n\r\n") == b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_an_answer_that_breaks_off_does_not_look_whole(caplog: pytest.LogCaptureFixture) -> None:
    async with client() as (reader, writer):
        writer.write(b"GET /pieces?fault=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readuntil(b"\r\n0\r\n\r\n")
    assert "LookupError: ours" in caplog.text


async def test_an_answer_without_end_ends_with_the_server() -> None:
    async with asyncio.timeout(WAIT_S):
        async with serving(tell, SystemClock(), "127.0.0.1", 0) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /pieces?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"two\r\n")
        # Nobody can take it for whole.
        assert await reader.read() == b""
        writer.transport.abort()


async def test_a_connection_can_change_its_protocol() -> None:
    upgrade = b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n"
    async with client() as (reader, writer):
        writer.write(upgrade + b"\r\n" + b"early ")
        head = await reader.readuntil(b"\r\n\r\n")
        assert (
            head == b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Echo: yes\r\n\r\n"
        )
        said = b"x" * 3_000_000
        writer.write(said)
        assert await reader.readexactly(6 + len(said)) == b"early " + said
    # What is a body to one must not be the other protocol to the next.
    status, _ = await answer_to(upgrade + b"Content-Length: 5\r\n\r\nhello")
    assert status == 400


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
async def test_every_head_has_an_answer(sent: bytes) -> None:
    status, _ = await answer_to(b"GET / HTTP/1.1\r\nHost: x\r\n" + sent.replace(b"\r\n\r\n", b"") + b"\r\n\r\n")
    assert status < 500 or status == 501
