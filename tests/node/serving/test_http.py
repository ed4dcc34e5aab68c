"""The agent's HTTP: what clients may send, and that whatever they send is answered."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.node.serving.http import BODY_BYTES_MAX, HttpError, Request, _serve
from allot.node.serving.log_streams import log_options


class Client:
    """Both ends of a connection in memory: what the server writes is kept."""

    def __init__(self, sent: bytes) -> None:
        self.reader = asyncio.StreamReader(limit=64 * 1024)
        self.reader.feed_data(sent)
        self.reader.feed_eof()
        self.written = bytearray()
        self.transport = self

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def abort(self) -> None:
        self.written += b"(aborted)"


async def answer_to(sent: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to bytes; the body tells what was understood."""

    async def tell(request: Request) -> None:
        if request.path == "/fault":
            raise LookupError("ours")
        if request.path == "/refused":
            raise HttpError(404, f"no {request.get('name')}")
        await request.answer(200, request.body)

    client = Client(sent)
    await _serve(client.reader, client, tell)  # type: ignore[arg-type]
    head, _, body = bytes(client.written).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_a_body_has_the_length_that_the_head_says_or_comes_in_chunks() -> None:
    assert await answer_to(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello") == (200, b"hello")
    chunked = (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: a\r\n\r\n"
    )
    assert await answer_to(chunked) == (200, b"hello")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Content-Length: ²", 400),
        ("Content-Length: -1", 400),
        ("Content-Length: +5", 400),
        ("Content-Length: 5\r\nContent-Length: 6", 400),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: gzip", 501),
        ("Transfer-Encoding: chunked", 400),
        ("Transfer-Encoding : chunked", 400),
        ("folded: a\r\n b", 400),
        (f"Content-Length: {BODY_BYTES_MAX + 1}", 413),
        ("A: \0", 400),
    ],
)
async def test_a_body_whose_length_is_in_doubt_is_refused(head: str, status: int) -> None:
    assert (await answer_to(f"POST / HTTP/1.1\r\n{head}\r\n\r\nhello\r\n".encode()))[0] == status


@pytest.mark.parametrize("line", [b"", b"GET", b"GET / HTTP/2.0", b"GET /\0 HTTP/1.1", b"\x16\x03\x01"])
async def test_what_is_not_a_request_is_told_so(line: bytes) -> None:
    assert (await answer_to(line + b"\r\n\r\n"))[0] == 400


async def test_a_fault_of_ours_is_reported_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    assert await answer_to(b"GET /fault HTTP/1.1\r\n\r\n") == (500, b"the request could not be handled")
    assert "GET /fault failed" in caplog.text


async def test_a_refusal_may_name_what_is_no_text() -> None:
    assert await answer_to(b"GET /refused?name=%ff HTTP/1.1\r\n\r\n") == (404, b"no ?")


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
async def test_every_head_has_an_answer(sent: bytes) -> None:
    status, _ = await answer_to(b"GET / HTTP/1.1\r\n" + sent.replace(b"\r\n\r\n", b"") + b"\r\n\r\n")
    assert status < 500 or status == 501


@pytest.mark.parametrize("text", ["²", "9" * 5000, "-1", "x"])
def test_numbers_in_queries_are_digits(text: str) -> None:
    request = Request("GET", f"/containerLogs?tailLines={text}", {}, b"", None, None)  # type: ignore[arg-type]
    with pytest.raises(HttpError, match="invalid tailLines"):
        log_options(request, 0.0)
