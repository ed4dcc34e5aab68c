"""Text as Go writes it."""

from __future__ import annotations

import msgspec

from allot.core.quoting import html_escaped


def test_json_is_escaped_as_gos_encoder_does_and_means_the_same() -> None:
    value = {"a<b": ["x & y > z", "\u2028\u2029", "ü"]}
    text = html_escaped(msgspec.json.encode(value))
    assert text == '{"a\\u003cb":["x \\u0026 y \\u003e z","\\u2028\\u2029","ü"]}'.encode()
    assert msgspec.json.decode(text) == value
