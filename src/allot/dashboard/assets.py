"""The static files of the page from the package: read once, compressed once."""

from __future__ import annotations

import gzip
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_INDEX = "index.html"


class Asset(msgspec.Struct, frozen=True):
    """A file ready to send."""

    content_type: str
    data: bytes
    compressed: bytes
    tag: str


def read_assets() -> dict[str, Asset]:
    """All files, by their path in addresses."""
    found = dict(_below(files("allot.dashboard").joinpath("static"), ""))
    return {"/": found[f"/{_INDEX}"], **found}


def _below(folder: Traversable, path: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            found += _below(each, f"{path}/{each.name}")
        elif each.name.rpartition(".")[2] in _TYPES:
            found.append((f"{path}/{each.name}", _asset(each)))
    return found


def _asset(file: Traversable) -> Asset:
    data = file.read_bytes()
    return Asset(
        content_type=_TYPES[file.name.rpartition(".")[2]],
        data=data,
        compressed=gzip.compress(data, 9, mtime=0),
        tag=f'"{sha256(data).hexdigest()[:20]}"',
    )
