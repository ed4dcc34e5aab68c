"""Makes a case that failed smaller while it still fails, so that a person sees why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import msgspec

from fuzz.findings import Case
from fuzz.values import copied, places

_TRIES_MAX = 200
Fails = Callable[[Case], Awaitable[bool]]


async def shrunk(case: Case, fails: Fails) -> Case:
    """The smallest case that was found. fails: whether one still does."""
    tries = 0
    smaller = True
    while smaller and tries < _TRIES_MAX:
        smaller = False
        for candidate in _smaller(case):
            tries += 1
            if tries >= _TRIES_MAX:
                break
            if await fails(candidate):
                case, smaller = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with one thing less: a header, a parameter, a part of the body."""
    head, end, body = b"".join(case.pieces).partition(b"\r\n\r\n")
    if not end:
        return
    first, *lines = head.split(b"\r\n")
    for at in range(len(lines)):
        if not lines[at].lower().startswith((b"content-length", b"authorization")):
            yield _case(case, [first, *lines[:at], *lines[at + 1 :]], body)
    path, question, rest = first.partition(b"?")
    query, _, version = rest.rpartition(b" ")
    parameters = query.split(b"&") if question else []
    for at in range(len(parameters)):
        kept = b"&".join([*parameters[:at], *parameters[at + 1 :]])
        yield _case(case, [path + (b"?" + kept if kept else b"") + b" " + version, *lines], body)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if not isinstance(value, dict | list):
        return
    # What holds most goes first.
    for position in range(len(places(value))):
        less = copied(value)
        container, key = places(less)[position]
        del container[key]
        yield _case(case, [first, *lines], msgspec.json.encode(less))


def _case(case: Case, lines: list[bytes], body: bytes) -> Case:
    lengths = [
        b"Content-Length: %d" % len(body) if line.lower().startswith(b"content-length:") else line for line in lines
    ]
    return msgspec.structs.replace(case, pieces=(b"\r\n".join(lengths) + b"\r\n\r\n" + body,))
