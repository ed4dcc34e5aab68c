"""Heads of HTTP/1.1 messages: parses request heads, and encodes answer heads.

Strict where leniency would allow request smuggling: line ends, names of headers, lengths of bodies. Knows
nothing about sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import parse_qsl

HEAD_BYTES_MAX = 64 * 1024
_LENGTH_DIGITS_MAX = 15
_SAME_LENGTH_MAX = 1024

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rf"({_TOKEN}) ([!-~]+) HTTP/1\.([01])")
_AUTHORITY = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
# Values without control characters; a line that starts with a blank would continue the previous one, and is refused.
_HEADER = rf"{_TOKEN}:[^\x00-\x08\x0a-\x1f\x7f]*"
_HEADERS = re.compile(rf"{_HEADER}(?:\r\n{_HEADER})*")
_QUOTED = r'"(?:[\t !#-\[\]-~]|\\[\t -~])*"'
_CHUNK_SIZE = re.compile(rf"([0-9A-Fa-f]{{1,8}})(?:;{_TOKEN}(?:=(?:{_TOKEN}|{_QUOTED}))?)*".encode())
_TRAILER = re.compile(_HEADER.encode())
_FRAMING = (b"content-length", b"transfer-encoding")
_STATUS_LINE = re.compile(r"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_REASONS = {status.value: status.phrase for status in HTTPStatus}

Pairs = tuple[tuple[str, str], ...]


class HttpError(Exception):
    """An unsuccessful answer; code: its status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class BadHead(HttpError):
    """A message that cannot be understood."""


class Headers:
    """The headers of a request. Names are in lower case. Immutable: requests with the same headers share them."""

    __slots__ = ("_values", "chunked", "connection", "has_host", "impersonates", "items", "length")

    def __init__(self, items: Pairs) -> None:
        self.items = items
        self._values = dict(items)
        if len(self._values) != len(items):
            self._values = _joined(items)
        self.length, self.chunked = _framing(self._values)
        self.connection = _lower(self._values.get("connection", ""))
        self.has_host = "host" in self._values
        self.impersonates = any(name.startswith("impersonate-") for name in self._values)

    def get(self, name: str) -> str:
        """The value of a header, or empty; several of the same name are joined, except Authorization."""
        return self._values.get(name, "")


class Head:
    """The head of a request."""

    __slots__ = ("chunked", "get", "headers", "keep_alive", "length", "method", "path", "query", "version_minor")

    def __init__(self, method: str, target: str, version_minor: int, headers: Headers) -> None:
        self.method = method
        self.path, _, self.query = _origin_form(target).partition("?")
        self.version_minor = version_minor
        self.headers = headers
        if method == "CONNECT":
            # Its target is an authority, and for servers that support it, what follows is not a body.
            raise BadHead(400, "malformed request target")
        if version_minor and not headers.has_host:
            raise BadHead(400, "missing required Host header")
        if headers.chunked and not version_minor:
            # A strict HTTP/1.0 reader would see a different end of the body.
            raise BadHead(400, "Transfer-Encoding in a request of HTTP/1.0")
        self.get = headers.get
        self.length, self.chunked = headers.length, headers.chunked
        connection = headers.connection
        self.keep_alive = "close" not in connection if version_minor else "keep-alive" in connection

    @property
    def has_body(self) -> bool:
        """Whether a body follows."""
        return self.chunked or self.length > 0

    @property
    def upgrade(self) -> str:
        """The protocol that the client wants to switch to, or empty."""
        return _lower(self.get("upgrade"))


def parse_head(data: bytes) -> Head:
    """The head of a request, without the empty line at its end; BadHead if it is not one."""
    line, _, rest = data.partition(b"\r\n")
    found = _REQUEST_LINE.fullmatch(line.decode("utf-8", "surrogateescape"))
    if found is None:
        raise BadHead(400, "malformed request line")
    method, target, minor = found.groups()
    headers = _same_headers(rest) if len(rest) <= _SAME_LENGTH_MAX else _parse_headers(rest)
    return Head(method, target, int(minor), headers)


def _parse_headers(data: bytes) -> Headers:
    text = data.decode("utf-8", "surrogateescape")
    if not text:
        return Headers(())
    if _HEADERS.fullmatch(text) is None:
        raise BadHead(400, "malformed header")
    pairs = (line.partition(":") for line in text.split("\r\n"))
    return Headers(tuple((name.lower(), value.strip(" \t")) for name, _, value in pairs))


# A client's requests differ little except in their first line.
_same_headers = lru_cache(maxsize=512)(_parse_headers)


def parse_answer_head(data: bytes) -> tuple[int, Headers]:
    """Status and headers of an answer, without the empty line at its end; BadHead if it is not one."""
    line, _, rest = data.partition(b"\r\n")
    found = _STATUS_LINE.fullmatch(line.decode("utf-8", "surrogateescape"))
    if found is None:
        raise BadHead(502, "malformed status line")
    return int(found[1]), _parse_headers(rest)


def _origin_form(target: str) -> str:
    if not target.startswith("/"):
        found = _AUTHORITY.match(target)
        if found is None:
            raise BadHead(400, "malformed request target")
        path = target[found.end() :]
        target = path if path.startswith("/") else f"/{path}"
    return target.partition("#")[0] if "#" in target else target


def _lower(text: str) -> str:
    """Words of the protocol in lower case; not what only becomes one by that, such as K, the sign for Kelvin."""
    return text.lower() if text.isascii() else text


def _joined(headers: Pairs) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in headers:
        if name not in values:
            values[name] = value
        elif name in ("content-length", "host"):
            # A repeated header may have two meanings.
            raise BadHead(400, f"more than one {name.title()}")
        elif name != "authorization":
            # Of several Authorization headers the first counts, as in Kubernetes.
            values[name] = f"{values[name]}, {value}"
    return values


def _framing(values: Mapping[str, str]) -> tuple[int, bool]:
    """The length of the body, and whether it is chunked."""
    length, coding = values.get("content-length"), values.get("transfer-encoding")
    if coding is not None:
        if _lower(coding) != "chunked":
            raise BadHead(501, "unsupported transfer encoding")
        if length is not None:
            raise BadHead(400, "both Content-Length and Transfer-Encoding")
        return 0, True
    if length is None:
        return 0, False
    if not length.isascii() or not length.isdigit() or len(length) > _LENGTH_DIGITS_MAX:
        raise BadHead(400, "malformed Content-Length")
    return int(length), False


def chunk_size(line: bytes) -> int:
    """The size in a chunk header line; BadHead if it is malformed."""
    found = _CHUNK_SIZE.fullmatch(line)
    if found is None:
        raise BadHead(400, "malformed chunk")
    return int(found[1], 16)


def check_trailer(line: bytes) -> None:
    """BadHead if a line after the last chunk is not a header, or is one that determines where the body ends."""
    if _TRAILER.fullmatch(line) is None or line.partition(b":")[0].lower() in _FRAMING:
        raise BadHead(400, "malformed trailer")


# --- queries ---


def parse_query(query: str) -> Pairs:
    """The parameters of a query, in order."""
    if not query:
        return ()
    return _same_query(query) if len(query) <= _SAME_LENGTH_MAX else _parse_query(query)


def _parse_query(query: str) -> Pairs:
    return tuple(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))


_same_query = lru_cache(maxsize=1024)(_parse_query)


def first_values(pairs: Pairs) -> dict[str, str]:
    """The first value of each parameter."""
    return dict(reversed(pairs))


# --- answers ---


def answer_head(status: int, headers: Mapping[str, str], *, length: int | None = None, closes: bool = False) -> bytes:
    """The head of an answer; length: of its body, if known."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, '')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    if closes:
        lines.append("Connection: close")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1:
        raise ValueError("a header of an answer has more than one line")
    return text.encode("utf-8", "surrogateescape") + b"\r\n\r\n"
