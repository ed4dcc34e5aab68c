"""PEM certificates for volumes: only the blocks, optionally without duplicates."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable

from allot.core.validation.builtin.certificates import pem_blocks

_LINE_LENGTH = 64


def cleaned(chain: str) -> str:
    """A chain without text between its blocks and without their headers; in its order."""
    return "".join(_spelled(each.der) for each in pem_blocks(chain))


def trust_anchors(bundles: Iterable[str]) -> str:
    """The certificates of all bundles, each once, in an order that depends only on them."""
    return "".join(_spelled(der) for der in sorted({each.der for bundle in bundles for each in pem_blocks(bundle)}))


def _spelled(der: bytes) -> str:
    text = b64encode(der).decode()
    lines = "\n".join(text[at : at + _LINE_LENGTH] for at in range(0, len(text), _LINE_LENGTH))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"
