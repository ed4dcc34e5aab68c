"""Our reading of requests against two maintained parsers: httptools, which is llhttp of Node.js, and h11.

The laws: what we take, both take, as the same requests with the same bodies; what one of them takes and we refuse belongs to
a class that has a name and a reason here. Requests come from what the parsers' own tests are about (request lines, header
forms, lengths, chunks, line ends), put together at random and then damaged.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import h11
import httptools
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.http1.connections import BodyTooLarge, Connection, Limits
from allot.http1.heads import HEAD_BYTES_MAX, Head
from allot.http1.listener import Listener
from allot.process.clock import SystemClock

BODY_BYTES_MAX = 1 << 20
# Of an event loop on which nothing else happens: more than a request and its answer take.
TURNS = 40


class Read(NamedTuple):
    """A request as somebody has read it. headers: names in lower case."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Reading(msgspec.Struct):
    """What somebody has read: requests, and whether it went no further because of what then came."""

    requests: list[Read]
    refused: bool = False


# --- the three ---


class _Wire(asyncio.Transport):
    """The client's side of a connection in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close

    def pause_reading(self) -> None:
        """What comes is all there is."""

    resume_reading = pause_reading


async def _ours(data: bytes) -> Reading:
    reading = Reading([])

    async def handle(connection: Connection, head: Head) -> None:
        try:
            body = await connection.body(BODY_BYTES_MAX)
        except BodyTooLarge:
            await connection.answer(413, {}, b"")
            return
        target = f"{head.path}?{head.query}" if head.query else head.path
        headers = tuple((_encoded(name), _encoded(value)) for name, value in head.headers.items)
        reading.requests.append(Read(head.method.encode(), _encoded(target), headers, body))
        await connection.answer(200, {}, b"")

    wire = _Wire()
    connection = Connection(Listener(handle, SystemClock(), Limits()))
    connection.connection_made(wire)
    running = asyncio.ensure_future(connection.run())
    for start in range(0, len(data), 60_000):
        piece = data[start : start + 60_000]
        connection.get_buffer(-1)[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        for _ in range(TURNS * (1 + data.count(b"HTTP/"))):
            await asyncio.sleep(0)
    reading.refused = re.search(rb"(?:^|\r\n\r\n)HTTP/1\.1 [45]", wire.written) is not None
    connection.connection_lost(None)
    await running
    return reading


def ours(data: bytes) -> Reading:
    """What the servers here read."""
    return asyncio.run(_ours(data))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def by_httptools(data: bytes) -> Reading:
    """What llhttp reads."""
    reading = Reading([])

    class Events:
        def on_message_begin(self) -> None:
            self.url, self.body, self.headers = b"", b"", list[tuple[bytes, bytes]]()

        def on_url(self, url: bytes) -> None:
            self.url += url

        def on_header(self, name: bytes, value: bytes) -> None:
            self.headers.append((name.lower(), value.strip(b" \t")))

        def on_headers_complete(self) -> None:
            # What comes after the last chunk are headers to it too.
            self.own = tuple(self.headers)

        def on_body(self, body: bytes) -> None:
            self.body += body

        def on_message_complete(self) -> None:
            reading.requests.append(Read(parser.get_method(), self.url, self.own, self.body))

    parser = httptools.HttpRequestParser(Events())
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        # It stops there; what follows is another protocol to it.
        pass
    except httptools.HttpParserError:
        reading.refused = True
    return reading


def by_h11(data: bytes) -> Reading:
    """What h11 reads."""
    reading = Reading([])
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX + 4)
    connection.receive_data(data)
    request, body = h11.Request(method="GET", target="/", headers=[("host", "x")]), b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                headers = tuple((bytes(name), bytes(value)) for name, value in request.headers)
                reading.requests.append(Read(bytes(request.method), bytes(request.target), headers, body))
                connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.DONE and connection.their_state is h11.DONE:
                    connection.start_next_cycle()
            else:
                return reading
    except h11.RemoteProtocolError:
        reading.refused = True
    return reading


PARSERS: dict[str, Callable[[bytes], Reading]] = {"httptools": by_httptools, "h11": by_h11}


# --- where they differ ---


class Difference(NamedTuple):
    """A class of requests. is_one: whether bytes may be of it."""

    reason: str
    is_one: Callable[[bytes], object]
    example: bytes


def _matching(pattern: bytes) -> Callable[[bytes], object]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL).search


def _head(data: bytes) -> bytes:
    """Of the first request."""
    return data.lstrip(b"\r\n").partition(b"\r\n\r\n")[0]


def _names(data: bytes) -> set[bytes]:
    """The headers of the first request."""
    return {line.partition(b":")[0].strip().lower() for line in _head(data).split(b"\r\n")[1:]}


def _request(line: bytes, *headers: bytes, body: bytes = b"", host: bytes = b"Host: x") -> bytes:
    return b"\r\n".join(filter(None, (line, host, *headers))) + b"\r\n\r\n" + body


_CHUNKED = b"Transfer-Encoding: chunked"
_HOSTS = re.compile(rb"[\r\n]host:", re.IGNORECASE)

_SHARED = {
    "another version": Difference(
        "we speak HTTP/1.0 and HTTP/1.1: what others mean, only they know (RFC 9112, 2.3)",
        _matching(rb"HTTP/(?!1\.[01](?:[\r\n]|$))"),
        _request(b"GET / HTTP/2.0"),
    ),
    "a target for proxies": Difference(
        "only paths are served, with or without http:// and a name before them (RFC 9112, 3.2)",
        _matching(rb"^[\r\n]*[^ ]+ +(?! |/|https?://)"),
        _request(b"OPTIONS * HTTP/1.1"),
    ),
    "CONNECT": Difference(
        "it asks a proxy, and to some its body is another protocol (RFC 9110, 9.3.6)",
        _matching(rb"^[\r\n]*CONNECT "),
        _request(b"CONNECT http://x/ HTTP/1.1"),
    ),
    "chunks in HTTP/1.0": Difference(
        "who takes the version seriously sees another end of the body (RFC 9112, 6.1)",
        _matching(rb"HTTP/1\.0\r\n.*transfer-encoding:"),
        _request(b"POST / HTTP/1.0", _CHUNKED, body=b"0\r\n\r\n"),
    ),
    "numbers that are too long": Difference(
        "no body is that long, and leading zeros are a way to hide a number (RFC 9112, 6.3)",
        _matching(rb"content-length: *[0-9]{16}|\r\n[0-9a-f]{9}"),
        _request(b"POST / HTTP/1.1", _CHUNKED, body=b"0000000005\r\nhello\r\n0\r\n\r\n"),
    ),
}

STRICTER: dict[str, dict[str, Difference]] = {
    "httptools": {
        **_SHARED,
        "no version": Difference(
            "HTTP/0.9 has no headers (RFC 9112, 2.3)",
            _matching(rb"^[\r\n]*[^ ]+ +[^ ]+\r\n"),
            _request(b"GET /"),
        ),
        "no Host": Difference(
            "a server must refuse it (RFC 9112, 3.2)",
            lambda data: not _HOSTS.search(_head(data)),
            _request(b"GET / HTTP/1.1", host=b""),
        ),
        "two Hosts": Difference(
            "a server must refuse it (RFC 9112, 3.2)",
            lambda data: len(_HOSTS.findall(data)) > 1,
            _request(b"GET / HTTP/1.1", b"Host: y"),
        ),
        "more blanks": Difference(
            "parts of a request line are one blank apart (RFC 9112, 3)",
            _matching(rb"^[\r\n]*[^ ]+(?:  +[^ ]+ +| [^ ]+  +)HTTP"),
            _request(b"GET  / HTTP/1.1"),
        ),
        "other codings": Difference(
            "a coding that is not known is 501 (RFC 9112, 6.1); chunked twice is none",
            _matching(rb"transfer-encoding:(?![ \t]*chunked[ \t]*\r\n(?!.*\r\ntransfer-encoding:))"),
            _request(b"POST / HTTP/1.1", b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
        ),
        "extensions of chunks without a name or a value": Difference(
            "they have both, or no value and no equals sign (RFC 9112, 7.1.1)",
            _matching(rb"\r\n[0-9a-f]+;(?:[^\r\n]*[;=])?[;=\r]"),
            _request(b"POST / HTTP/1.1", _CHUNKED, body=b"5;=a\r\nhello\r\n0\r\n\r\n"),
        ),
        "bare line feeds before a request": Difference(
            "empty lines are passed over, and end as lines do (RFC 9112, 2.2)",
            _matching(rb"^[\r\n]*(?<!\r)\n"),
            b"\n" + _request(b"GET / HTTP/1.1"),
        ),
        "bare carriage returns before a request": Difference(
            "empty lines are passed over, and end as lines do (RFC 9112, 2.2)",
            _matching(rb"^[\r\n]*\r(?!\n)"),
            b"\r" + _request(b"GET / HTTP/1.1"),
        ),
    },
    "h11": {
        **_SHARED,
        "bare line feeds": Difference(
            "a line feed alone is no line end to everybody (RFC 9112, 2.2 lets a reader choose)",
            _matching(rb"(?<!\r)\n"),
            b"GET / HTTP/1.1\nHost: x\n\n",
        ),
        "folded lines": Difference(
            "a server must refuse or unfold them (RFC 9112, 5.2)",
            _matching(rb"\r\n[ \t]"),
            _request(b"GET / HTTP/1.1", b"A: b", b" c"),
        ),
        "the same length twice": Difference(
            "a list of equal lengths may be refused (RFC 9112, 6.3)",
            _matching(rb"content-length:(?:[^\r\n]*,|.*\r\ncontent-length:)"),
            _request(b"POST / HTTP/1.1", b"Content-Length: 5, 5", body=b"hello"),
        ),
        "a length and chunks": Difference(
            "who reads the one sees another end of the body than who reads the other; a server may refuse (RFC 9112, 6.1)",
            lambda data: {b"content-length", b"transfer-encoding"} <= _names(data),
            _request(b"POST / HTTP/1.1", _CHUNKED, b"Content-Length: 5", body=b"0\r\n\r\n"),
        ),
        "control characters in values": Difference(
            "a value has none but tabs (RFC 9110, 5.5 lets a reader choose)",
            _matching(rb":[^\r\n]*[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]"),
            _request(b"GET / HTTP/1.1", b"A: \x7f"),
        ),
        "blanks and oddities after the size of a chunk": Difference(
            "extensions have a grammar, and readers that do not keep to it were led astray (RFC 9112, 7.1.1)",
            _matching(rb"\r\n[0-9a-f]+[ \t;]"),
            _request(b"POST / HTTP/1.1", _CHUNKED, body=b"5 \r\nhello\r\n0\r\n\r\n"),
        ),
        "framing after the last chunk": Difference(
            "a trailer must not say where the body ends (RFC 9110, 6.5.1)",
            _matching(rb"\r\n0+(?:;[^\r\n]*)?\r\n.*(?:content-length|transfer-encoding):"),
            _request(b"POST / HTTP/1.1", _CHUNKED, body=b"0\r\nContent-Length: 5\r\n\r\n"),
        ),
    },
}

LOOSER: dict[str, dict[str, Difference]] = {
    "httptools": {
        "a method that is not listed": Difference(
            "methods are any token (RFC 9110, 9.1); what is not served is answered with 405",
            lambda data: by_httptools(re.sub(rb"(^|\n)[!-~]+ (?=[!-~]+ HTTP/)", rb"\1GET ", data)).requests,
            _request(b"FROB / HTTP/1.1"),
        ),
    },
    "h11": {
        "empty lines before a request": Difference(
            "a server should pass over them (RFC 9112, 2.2)",
            _matching(rb"(?:^|\r\n)(?:\r\n)"),
            b"\r\n" + _request(b"GET / HTTP/1.1"),
        ),
    },
}


# --- requests ---

METHODS = (b"GET", b"POST", b"DELETE", b"PATCH", b"OPTIONS")
ODD_METHODS = (b"get", b"CONNECT", b"PRI", b"FROB", b"G(T", b"", b"G\0T", b"M-SEARCH", b"GET\xff")
TARGETS = (b"/", b"/api/v1/pods?watch=1&labelSelector=a%3Db", b"/a?b?c=d", b"//a/b", b"http://x/a?b", b"/%ff/%00")
ODD_TARGETS = (
    *(b"*", b"", b"a", b"x:443", b"http://x", b"http://x?a/b", b"HTTPS://x:1/a", b"ftp://x/a", b"http://[::1/a"),
    *(b"/a#b", b"/\0", b"/\x7f", b"/\xff", "/ü".encode(), b"/a b", b'/"<>\\^`{|}', b"/" + b"a" * 9000),
)
VERSIONS = (b" HTTP/1.1",)
ODD_VERSIONS = (
    *(
        b" HTTP/1.0",
        b" HTTP/1.2",
        b" HTTP/2.0",
        b" HTTP/0.9",
        b" HTTP/01.1",
        b" HTTP/1.10",
        b" http/1.1",
        b" HTTP/1.1 ",
    ),
    *(b"", b"  HTTP/1.1", b"\tHTTP/1.1", b" HTTP/1,1", b" HTTPS/1.1", b" HTTP/1", b" HTTP/\xb9.1"),
)
HEADERS = (
    b"Accept: application/json",
    b"X-A:b",
    b"X-A:  b\t",
    b"X-Empty:",
    b"Connection: keep-alive",
    b"x!#$%&'*+-.^_`|~1: a",
)
ODD_HEADERS = (
    *(
        b"Host: y",
        b"Host:",
        b"no colon",
        b": no name",
        b"space : x",
        b" folded",
        b"\tfolded",
        b"A: b\r\n c",
        b"A:\r\n b",
    ),
    *(
        b"A: \0",
        b"A: \x0b",
        b"A: \x7f",
        b"A: \xff",
        "A: ü".encode(),
        b"\xff: a",
        b"A\0: b",
        b"A: b\nB: c",
        b"A: b\rB: c",
    ),
    *(b"A(: b", b'"A": b', b"A: " + b"b" * 9000, b"Connection: close", b"Connection: closer", b"Expect: 100-continue"),
    *(b"Upgrade: websocket", b"Keep-Alive: timeout=5"),
)
LENGTHS = (b"Content-Length: 5",)
ODD_LENGTHS = (
    *(
        b"Content-Length: " + value
        for value in (b"+5", b"-5", b"5, 5", b"5,6", b"5 5", b"0x5", b"5.0", b"05", b"00000000005")
    ),
    *(
        b"Content-Length: " + value
        for value in ("²".encode(), "٥".encode(), "5\u00a0".encode(), b"5\x0b", b"", b"5;", b"4", b"6")
    ),
    *(b"Content-Length: " + value for value in (b"9" * 15, b"9" * 16, b"18446744073709551616", b"9" * 30)),
    *(b"Content-Length : 5", b"Content-Length: 5\r\nContent-Length: 5", b"Content-Length: 5\r\nContent-Length: 6"),
    *(b"content-length:5", b"Content_Length: 5", b"Content-Length\0: 5", b"Content-Length:\r\n 5"),
)
CODINGS = (b"Transfer-Encoding: chunked",)
ODD_CODINGS = (
    *(
        b"Transfer-Encoding: " + value
        for value in (b"CHUNKED", b"gzip", b"gzip, chunked", b"chunked, gzip", b"identity")
    ),
    *(
        b"Transfer-Encoding: " + value
        for value in (b"chunked, chunked", b"chunked;a=b", b"xchunked", b",chunked", b"", b"\x0bchunked")
    ),
    *(b"Transfer-Encoding: " + value.encode() for value in ("chun\u212aed", "chunked\u2003")),
    *(
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Transfer_Encoding: chunked",
    ),
    *(b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked"),
)
ENDS = (b"\r\n",)
ODD_ENDS = (b"\n", b"\r", b"\r\r\n", b"\n\r\n", b" \r\n", b"")
CHUNKS = (b"5\r\nhello\r\n", b"0005\r\nhello\r\n", b"a;b=c\r\n0123456789\r\n", b'5;b="c d\\"";e\r\nhello\r\n')
ODD_CHUNKS = (
    *(
        line + b"\r\nhello\r\n"
        for line in (b"5 ", b" 5", b"5\t;a", b"5;", b"5; a", b"5;a =b", b"5;a=", b"5;;a", b"5;\xff", b"5;a\0")
    ),
    *(
        line + b"\r\nhello\r\n"
        for line in (b"0x5", b"+5", b"-5", b"5;a\nb", b"5;a\rb", b'5;a="\n"', b'5;a="b', b"5,", b"\xd9\xa5", b"")
    ),
    *(b"5\nhello\r\n", b"5\r\nhello\n", b"5\r\nhelloXX", b"4\r\nhello\r\n", b"6\r\nhello\r\n", b"5\r\r\nhello\r\n"),
    *(b"000000005\r\nhello\r\n", b"0" * 20 + b"5\r\nhello\r\n", b"ffffffff\r\nhello", b"fffffffffffffffff\r\nhello"),
)
TRAILERS = (b"0\r\n\r\n", b"0;a=b\r\nA: b\r\nC: d\r\n\r\n", b"00\r\n\r\n")
ODD_TRAILERS = (
    *(
        b"0\r\nno colon\r\n\r\n",
        b"0\r\nA : b\r\n\r\n",
        b"0\r\nA: b\r\n c\r\n\r\n",
        b"0\r\n: b\r\n\r\n",
        b"0\r\nA: \0\r\n\r\n",
    ),
    *(
        b"0\n\n",
        b"0\r\n\n",
        b"0\r\nA: b\n\r\n",
        b"0\r\nContent-Length: 5\r\n\r\n",
        b"0\r\n",
        b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
)


def _mostly(usual: Sequence[bytes], odd: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Something usual, so that what is odd elsewhere is reached; now and then something odd."""
    return st.integers(0, 11).flatmap(lambda place: st.sampled_from(usual if place else odd))


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """One request, usual but for a few places."""
    end = _mostly(ENDS, ODD_ENDS)
    line = draw(_mostly(METHODS, ODD_METHODS)) + draw(_mostly((b" ",), (b"  ", b"\t", b"")))
    line += draw(_mostly(TARGETS, ODD_TARGETS)) + draw(_mostly(VERSIONS, ODD_VERSIONS))
    headers = draw(st.lists(_mostly(HEADERS, ODD_HEADERS), max_size=2))
    if draw(st.integers(0, 9)):
        headers.append(b"Host: x")
    body = draw(st.sampled_from((b"", b"hello", b"chunks")))
    if body == b"hello":
        headers.append(draw(_mostly(LENGTHS, ODD_LENGTHS)))
    elif body == b"chunks":
        headers.append(draw(_mostly(CODINGS, ODD_CODINGS)))
        body = b"".join(draw(st.lists(_mostly(CHUNKS, ODD_CHUNKS), max_size=2))) + draw(_mostly(TRAILERS, ODD_TRAILERS))
    lines = draw(st.permutations(headers))
    return b"".join(each + draw(end) for each in (line, *lines)) + draw(end) + body


@st.composite
def damaged(draw: st.DrawFn, requests: st.SearchStrategy[bytes]) -> bytes:
    """Requests with an empty line before, or with a byte more, less or other than they had."""
    data = draw(_mostly((b"",), (b"\r\n", b"\r\n\r\n", b"\n", b" "))) + draw(requests)
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        odd = draw(
            st.sampled_from((b"", b"\r", b"\n", b"\0", b" ", b"\t", b":", b",", b";", b"\xff", b"0", b"a", b"\r\n"))
        )
        data = data[:place] + odd + data[place + draw(st.integers(0, 1)) :]
    return data


def one() -> st.SearchStrategy[bytes]:
    """A request and what was done to it."""
    return damaged(messages())


def several() -> st.SearchStrategy[bytes]:
    """Requests one after the other on a connection, and what was done to them."""
    return damaged(st.lists(messages(), min_size=1, max_size=3).map(b"".join))


# --- the laws ---


def normal(target: bytes) -> bytes:
    """A target as a server takes it: without a fragment, and without the name of the server."""
    path = re.sub(rb"^https?://[^/?#]*", b"", target, flags=re.IGNORECASE).partition(b"#")[0]
    path = path if path.startswith(b"/") else b"/" + path
    return path.removesuffix(b"?") if path.count(b"?") == 1 else path


def same(*reads: Read) -> bool:
    """Whether they have read the same request; h11 writes the words of the protocol in lower case."""
    words = {(b"transfer-encoding", b"CHUNKED"): (b"transfer-encoding", b"chunked")}
    headers = {tuple(words.get(each, each) for each in read.headers) for read in reads}
    rest = {(read.method, normal(read.target), read.body) for read in reads}
    return len(headers) == len(rest) == 1


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS)
@settings(deadline=None, max_examples=250)
@given(several())
def test_what_we_take_they_take_as_the_same_requests(parser: str, data: bytes) -> None:
    taken, others = ours(data).requests, PARSERS[parser](data).requests
    for mine, theirs in zip(taken, others, strict=False):
        assert same(mine, theirs)
    if len(taken) > len(others):
        assert any(each.is_one(data) for each in LOOSER[parser].values()), taken[len(others)]


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS)
@settings(deadline=None, max_examples=250)
@given(one())
def test_what_they_take_and_we_refuse_has_a_name(parser: str, data: bytes) -> None:
    taken, others = ours(data).requests, PARSERS[parser](data).requests
    if len(others) > len(taken):
        assert any(each.is_one(data) for each in STRICTER[parser].values()), others[len(taken)]


@pytest.mark.parametrize(
    ("parser", "name", "difference"),
    [(parser, name, each) for parser, classes in STRICTER.items() for name, each in classes.items()],
)
def test_every_name_is_of_a_difference(parser: str, name: str, difference: Difference) -> None:
    assert difference.is_one(difference.example)
    others = [each for other, each in STRICTER[parser].items() if other != name and each.is_one(difference.example)]
    assert not others
    assert PARSERS[parser](difference.example).requests
    assert not ours(difference.example).requests


@pytest.mark.parametrize(
    ("parser", "difference"), [(parser, each) for parser, classes in LOOSER.items() for each in classes.values()]
)
def test_what_we_take_and_they_refuse_has_a_name_too(parser: str, difference: Difference) -> None:
    assert difference.is_one(difference.example)
    assert PARSERS[parser](difference.example).refused
    assert ours(difference.example).requests


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from(METHODS),
    st.sampled_from(TARGETS),
    st.lists(st.sampled_from(HEADERS), max_size=4),
    st.sampled_from((b"", b"hello", b"chunks")),
    st.lists(st.sampled_from(CHUNKS), max_size=4),
    st.sampled_from(TRAILERS),
)
def test_what_is_usual_all_take(
    method: bytes, target: bytes, headers: list[bytes], body: bytes, chunks: list[bytes], trailers: bytes
) -> None:
    if body == b"hello":
        headers = [*headers, *LENGTHS]
    elif body == b"chunks":
        headers, body = [*headers, *CODINGS], b"".join(chunks) + trailers
    data = _request(b"%b %b HTTP/1.1" % (method, target), *headers, body=body) * 2
    mine = ours(data)
    assert len(mine.requests) == 2
    for parse in PARSERS.values():
        others = parse(data).requests
        assert len(others) == 2
        assert all(map(same, mine.requests, others))
