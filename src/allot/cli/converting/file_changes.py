"""Files that a command changes, or would change."""

from __future__ import annotations

import difflib
import tempfile
from pathlib import Path

from allot.cli.errors import Unreadable
from allot.cli.output import write

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def show_diff(name: str, before: str, after: str) -> None:
    """What would change, as a unified diff on stdout."""
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, name)
    for line in lines:
        write(line.rstrip("\n"), _COLOURS.get(line[:1]))


def write_file(path: Path, data: bytes) -> None:
    """All of it or nothing: a file is never half written."""
    target = path.resolve()
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            file.write(data)
        temporary = Path(file.name)
        temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
    except OSError as error:
        raise Unreadable(f"{path}: cannot be changed: {(error.strerror or str(error)).lower()}") from None
