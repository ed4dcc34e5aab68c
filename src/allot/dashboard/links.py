"""Login links, and the file with the next one, which only its owner may read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_TOKEN = "#token="


def new_token() -> str:
    """For one browser."""
    return secrets.token_urlsafe(32)


def link_of(base: str, token: str) -> str:
    """base: the address of the server. The token is in the fragment, which browsers do not send."""
    return f"{base}/{_TOKEN}{token}"


def read_link(path: Path) -> str:
    """The link in a file; empty if there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


def token_in(link: str) -> str:
    """The token of a link; empty if it has none."""
    return link.partition(_TOKEN)[2]


def write_link(path: Path, link: str) -> None:
    """Readable only by the owner, because the link grants access."""
    new = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(link)
    new.replace(path)
