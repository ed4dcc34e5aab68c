"""Malformed HTTP: truncated and split messages, pipelines, chunks, invalid lines, and frames of a WebSocket."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from fuzz.findings import Case
from fuzz.values import havoc
from fuzz.wire import Request

FRAMES = (
    *(
        b"\x81\x85\0\0\0\0hello",
        b"\x82\x81\0\0\0\0\x00",
        b"\x88\x80\0\0\0\0",
        b"\x89\x80\0\0\0\0",
        b"\x81\xfe\xff\xff" + b"\0" * 100,
    ),
    *(
        b"\x82\xff" + b"\xff" * 8 + b"\0" * 50,
        b"\x01\x80\0\0\0\0" * 50,
        b"\x00\x00",
        b"\xff" * 20,
        b'\x82\x84\0\0\0\0\x04{"w',
        b"\x80\x03\0\x01\0\0\0\x0c" + b"\0" * 12,
    ),
)


def _replaced(case: Case, *pieces: bytes, due: int = 0) -> Case:
    return msgspec.structs.replace(case, pieces=pieces, due=due, fresh=True)


def _half(case: Case, request: Request, dice: random.Random) -> Case:
    raw = request.raw()
    return msgspec.structs.replace(_replaced(case, raw[: dice.randrange(1, len(raw) + 1)]), leaves=True)


def _dripping(case: Case, request: Request, dice: random.Random) -> Case:
    raw = request.raw()
    cuts = sorted(dice.randrange(len(raw)) for _ in range(3))
    return _replaced(case, *(raw[a:b] for a, b in zip((0, *cuts), (*cuts, len(raw)), strict=True)), due=1)


def _pipelined(case: Case, request: Request, dice: random.Random) -> Case:
    return _replaced(case, request.raw() * dice.choice((2, 3)), due=1)


def _byte_havoc(case: Case, request: Request, dice: random.Random) -> Case:
    return _replaced(case, havoc(request.head(), dice) + b"\r\n\r\n" + (request.body or b""))


def _chunked(case: Case, request: Request, dice: random.Random) -> Case:
    body = request.body or b"{}"
    head = msgspec.structs.replace(request, body=None).head() + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    middle = len(body) // 2
    whole = b"%x\r\n%b\r\n%x;ext=1\r\n%b\r\n0\r\nX-Trailer: a\r\n\r\n" % (
        middle or len(body),
        body[:middle] or body,
        len(body) - middle if middle else 0,
        body[middle:] if middle else b"",
    )
    if not middle:
        whole = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    if dice.random() < 0.5:
        return _replaced(case, head + whole, due=1)
    if dice.random() < 0.5:
        return _replaced(case, head + havoc(whole, dice))
    odd = (
        b"-1\r\n",
        b"0x5\r\nhello\r\n",
        b"ffffffffffffffff\r\n",
        "²\r\n".encode(),
        b"\r\n",
        b"5\nhello\n",
        b"0\r\n" + b"A: b\r\n" * 3000,
        b" 5\r\nhello\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
    )
    return _replaced(case, head + dice.choice(odd) + b"\r\n")


_ODD_LINES = (
    *(
        b"Content-Length: -1",
        "Content-Length: ²".encode(),
        b"Content-Length: 1, 1",
        b"Content-Length: 99999999999999999999",
        b"Content-Length: 0x5",
        b"Content-Length: +5",
    ),
    *(
        b"Content-Length: 4000000",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding:\x0bchunked",
        b"Transfer-Encoding : chunked",
    ),
    *(
        b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b" folded: a",
        b": empty",
        b"no colon",
        b"A: \x00",
        b"A: \xff\xfe",
        b"A: b\nC: d",
        b"A: b\rC: d",
        b"\xff: a",
        b"A" * 70_000 + b": b",
    ),
    *(
        b"A: " + b"b" * 66_000,
        b"\r\n".join(b"A%d: b" % number for number in range(3000)),
        b"Host: a\r\nHost: b",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Expect: 200-ok",
        b"Connection: keep-alive, close",
    ),
)


def _odd_line(case: Case, request: Request, dice: random.Random) -> Case:
    head = request.head()
    lines = head.split(b"\r\n")
    lines.insert(dice.randrange(1, len(lines) + 1), dice.choice(_ODD_LINES))
    return _replaced(case, b"\r\n".join(lines) + b"\r\n\r\n" + (request.body or b""))


def _odd_request_line(case: Case, request: Request, dice: random.Random) -> Case:
    first, rest, tail = request.raw().partition(b"\r\n")
    method, _, target = first.rpartition(b" ")[0].partition(b" ")
    lines = (
        *(
            method + b" " + target,
            method + b" " + target + b" HTTP/2.0",
            method + b"\t" + target + b" HTTP/1.1",
            b" " + first,
            first + b" ",
            method + b"  " + target + b" HTTP/1.1",
        ),
        *(
            method + b" " + target + b" HTTP/1.0",
            method + b" " + target + b" HTTP/1.9",
            method + b" " + target + b"\0 HTTP/1.1",
            method + b" " + target + b"\xff HTTP/1.1",
            b"\x16\x03\x01\0\x05hello",
        ),
        *(
            b"PRI * HTTP/2.0",
            method + b" http://[::1 HTTP/1.1",
            method + b" //a/b HTTP/1.1",
            method + b" * HTTP/1.1",
            method + b" /" + b"a" * 70_000 + b" HTTP/1.1",
            b"",
            b"\r\n\r\n" + first,
        ),
    )
    return _replaced(case, dice.choice(lines) + rest + tail)


RAW: tuple[Callable[[Case, Request, random.Random], Case], ...] = (
    *(
        _half,
        _dripping,
        _pipelined,
        _byte_havoc,
        _byte_havoc,
        _chunked,
        _chunked,
        _odd_line,
        _odd_line,
        _odd_request_line,
    ),
)
