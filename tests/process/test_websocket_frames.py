"""Frames of WebSockets: the examples of RFC 6455, and masks of any length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.process.websocket_frames import BINARY, PING, TEXT, accept_value, frame, unmasked


def test_the_handshake_is_answered_as_in_the_rfc() -> None:
    assert accept_value(b"dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("code", "data", "head"),
    [
        (TEXT, b"Hello", "8105"),
        (PING, b"Hello", "8905"),
        (BINARY, bytes(125), "827d"),
        (BINARY, bytes(126), "827e007e"),
        (BINARY, bytes(256), "827e0100"),
        (BINARY, bytes(65535), "827effff"),
        (BINARY, bytes(65536), "827f0000000000010000"),
    ],
)
def test_frames_are_those_of_the_rfc(code: int, data: bytes, head: str) -> None:
    assert frame(code, data) == bytes.fromhex(head) + data


def test_the_masked_text_of_the_rfc_is_read() -> None:
    assert unmasked(bytes.fromhex("7f9f4d5158"), bytes.fromhex("37fa213d")) == b"Hello"


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_unmasking_is_byte_by_byte(data: bytes, mask: bytes) -> None:
    assert unmasked(data, mask) == bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
