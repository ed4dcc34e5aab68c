"""Messages of the domain name system (RFC 1035, EDNS of RFC 6891): questions in, answers out, nothing else.

Reads only what a server needs of a question, and refuses the rest: a name in a question is never compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

A, CNAME, SOA, PTR, TXT, AAAA, SRV, OPT, ANY = 1, 5, 6, 12, 16, 28, 33, 41, 255
NO_ERROR, FORMAT_ERROR, SERVER_FAILURE, NO_SUCH_NAME, NOT_IMPLEMENTED, REFUSED = 0, 1, 2, 3, 4, 5
_INTERNET = 1
_HEAD = struct.Struct(">HHHHHH")
_QUESTION = struct.Struct(">HH")
_RECORD = struct.Struct(">HHIH")
_ANSWER, _AUTHORITATIVE, _TRUNCATED, _RECURSION_WANTED, _RECURSION_THERE = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080
_OPCODE = 0x7800
_QUESTION_POINTER = b"\xc0\x0c"
_LABEL_MAX, _NAME_MAX, _POINTER = 63, 255, 0xC0
UDP_BYTES, _UDP_BYTES_MAX = 512, 4096

Name = tuple[bytes, ...]


class BadQuestion(Exception):
    """No question that can be answered. number: the id that an error goes back with, or None if nothing does."""

    def __init__(self, code: int, number: int | None) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.number = number


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What someone asks. name: its labels as they were sent; udp_bytes: how much they take in one packet."""

    number: int
    name: Name
    type: int
    wants_recursion: bool
    has_options: bool = False
    udp_bytes: int = UDP_BYTES

    @property
    def labels(self) -> tuple[str, ...]:
        """The name in lower case, as names are compared."""
        return tuple(each.decode("latin-1").lower() for each in self.name)


class Record(msgspec.Struct, frozen=True):
    """An answer. name: None for the one that was asked for."""

    type: int
    data: bytes
    seconds: int
    name: Name | None = None


def parse_question(data: bytes) -> Question:
    """BadQuestion with the code that answers it."""
    if len(data) < _HEAD.size:
        raise BadQuestion(FORMAT_ERROR, None)
    number, flags, questions, answers, authorities, others = _HEAD.unpack_from(data)
    if flags & _ANSWER:
        raise BadQuestion(FORMAT_ERROR, None)
    if flags & _OPCODE:
        raise BadQuestion(NOT_IMPLEMENTED, number)
    if questions != 1 or answers or authorities:
        raise BadQuestion(FORMAT_ERROR, number)
    try:
        name, at = _parse_name(data, _HEAD.size)
        type_, class_ = _QUESTION.unpack_from(data, at)
        options = _parse_options(data, at + _QUESTION.size) if others else None
    except (IndexError, struct.error, ValueError):
        raise BadQuestion(FORMAT_ERROR, number) from None
    if class_ != _INTERNET:
        raise BadQuestion(REFUSED, number)
    return Question(
        number=number,
        name=name,
        type=type_,
        wants_recursion=bool(flags & _RECURSION_WANTED),
        has_options=options is not None,
        udp_bytes=UDP_BYTES if options is None else max(UDP_BYTES, min(options, _UDP_BYTES_MAX)),
    )


def _parse_name(data: bytes, at: int) -> tuple[Name, int]:
    labels: list[bytes] = []
    start = at
    while length := data[at]:
        if length > _LABEL_MAX or at - start > _NAME_MAX:
            raise ValueError("no label")
        label = data[at + 1 : at + 1 + length]
        if len(label) != length:
            raise ValueError("it ends too early")
        labels.append(label)
        at += 1 + length
    return tuple(labels), at + 1


def _parse_options(data: bytes, at: int) -> int | None:
    """How much fits into one packet, if the record right after the question says so."""
    if data[at]:
        return None
    type_, size, _, _ = _RECORD.unpack_from(data, at + 1)
    return int(size) if type_ == OPT else None


def answer(
    question: Question,
    code: int,
    answers: Sequence[Record] = (),
    authorities: Sequence[Record] = (),
    *,
    is_ours: bool,
    recurses: bool,
    bytes_max: int,
) -> bytes:
    """A message. is_ours: whether we know of all names around; bytes_max: if it would be longer, it says so and has no answers."""
    flags = _ANSWER | code | (_AUTHORITATIVE if is_ours else 0) | (_RECURSION_THERE if recurses else 0)
    flags |= _RECURSION_WANTED if question.wants_recursion else 0
    asked = encode_name(question.name) + _QUESTION.pack(question.type, _INTERNET)
    options = b"\0" + _RECORD.pack(OPT, _UDP_BYTES_MAX, 0, 0) if question.has_options else b""
    body = b"".join(map(_encode, (*answers, *authorities)))
    counts = (len(answers), len(authorities))
    if _HEAD.size + len(asked) + len(body) + len(options) > bytes_max:
        flags, body, counts = flags | _TRUNCATED, b"", (0, 0)
    return _HEAD.pack(question.number, flags, 1, *counts, 1 if options else 0) + asked + body + options


def ask(number: int, name: Name, type_: int) -> bytes:
    """A question of our own, to someone who knows more."""
    return _HEAD.pack(number, _RECURSION_WANTED, 1, 0, 0, 0) + encode_name(name) + _QUESTION.pack(type_, _INTERNET)


def records_of(message: bytes) -> tuple[Record, ...]:
    """The addresses in someone's answer, and the names that lead to them; ValueError if it cannot be read."""
    try:
        _, _, questions, answers, _, _ = _HEAD.unpack_from(message)
        at = _HEAD.size
        for _ in range(questions):
            at = _read_name(message, at)[1] + _QUESTION.size
        found = []
        for _ in range(answers):
            name, at = _read_name(message, at)
            type_, _, seconds, size = _RECORD.unpack_from(message, at)
            at += _RECORD.size
            data = message[at : at + size]
            if type_ == CNAME:
                data = encode_name(_read_name(message, at)[0])
            if type_ in (A, AAAA, CNAME):
                found.append(Record(type_, data, seconds, name))
            at += size
    except (IndexError, struct.error) as error:
        raise ValueError("it ends too early") from error
    return tuple(found)


def _read_name(message: bytes, at: int) -> tuple[Name, int]:
    """A name that may continue elsewhere, always further in front, so that it comes to an end."""
    labels: list[bytes] = []
    end, before = -1, at
    while length := message[at]:
        if length & _POINTER == _POINTER:
            end = at + 2 if end < 0 else end
            at = (length & ~_POINTER) << 8 | message[at + 1]
            if at >= before:
                raise ValueError("a name with a compression loop")
            before = at
            continue
        if length > _LABEL_MAX or len(labels) * 2 > _NAME_MAX:
            raise ValueError("no label")
        labels.append(message[at + 1 : at + 1 + length])
        at += 1 + length
    return tuple(labels), at + 1 if end < 0 else end


def error(number: int, code: int) -> bytes:
    """An answer to what could not be read."""
    return _HEAD.pack(number, _ANSWER | code, 0, 0, 0, 0)


def _encode(record: Record) -> bytes:
    owner = _QUESTION_POINTER if record.name is None else encode_name(record.name)
    return owner + _RECORD.pack(record.type, _INTERNET, record.seconds, len(record.data)) + record.data


def encode_name(name: Name) -> bytes:
    """Labels as they are sent."""
    return b"".join(bytes((len(each),)) + each for each in name) + b"\0"


def name_of(text: str) -> Name:
    """The labels of a name, with or without a dot at its end; ValueError if it cannot be one."""
    labels = tuple(each.encode("ascii") for each in text.removesuffix(".").split(".")) if text not in ("", ".") else ()
    if any(not 0 < len(each) <= _LABEL_MAX for each in labels) or sum(len(each) + 1 for each in labels) >= _NAME_MAX:
        raise ValueError(f"{text[:80]!r} is not a name")
    return labels
