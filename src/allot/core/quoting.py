"""Text in double quotes as Go's %q writes it, which is how Kubernetes shows values in messages."""

from __future__ import annotations

ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quoted(text: str) -> str:
    """Go's %q."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(ESCAPES.get(character) or _shown(character) for character in text)}"'


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"  # half of a pair: no character at all
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
