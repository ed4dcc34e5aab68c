"""Runs the command blocks of the documentation, to check them or to write what the commands print now.

A block is fenced as ```console; a line `$ allot ...` is a command, what follows is its output, and a line `...` stands for
any number of lines. Other commands (make, kubectl, pip) are not run here. `python docs/console.py` rewrites the outputs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ELISION = "..."
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Command(NamedTuple):
    """A command line and the output shown under it."""

    line: str
    output: str

    @property
    def is_run(self) -> bool:
        """Only plain `allot` commands are run: no pipes, nothing that needs a cluster."""
        return self.line.startswith("allot ") and "|" not in shlex.split(self.line)


def pages() -> list[Path]:
    """Every page that may have commands."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def commands(block: str) -> Iterator[Command]:
    """The commands of a block, in order."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(line, output)


def commands_on(page: Path) -> list[Command]:
    """Every command of a page."""
    return [command for block in _BLOCK.findall(page.read_text()) for command in commands(block)]


def run(command: Command) -> tuple[int, str]:
    """Exit code, and what the command printed on both streams."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
    arguments = [sys.executable, "-m", "allot", *shlex.split(command.line)[1:]]
    done = subprocess.run(
        arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def says_the_same(shown: str, printed: str) -> bool:
    """Whether the output on the page is what was printed, elisions aside."""
    pattern = "".join(
        r"(?:.*\n)*" if line == ELISION else re.escape(line) + r"\n" for line in shown.rstrip("\n").split("\n")
    )
    return re.fullmatch(pattern, printed.rstrip("\n") + "\n") is not None


def _refreshed(block: str) -> str:
    parts = []
    for command in commands(block):
        output = command.output
        if command.is_run and output.strip() and ELISION not in output.split("\n"):
            output = run(command)[1].rstrip("\n") + "\n"
        parts.append(f"$ {command.line}\n{output}")
    return "".join(parts)


def refresh() -> None:
    """Writes the present output of every command into the pages."""
    for page in pages():
        text = page.read_text()
        new = _BLOCK.sub(lambda match: f"```console\n{_refreshed(match.group(1))}```", text)
        if new != text:
            page.write_text(new)
            sys.stdout.write(f"{page.relative_to(ROOT)}: refreshed\n")


if __name__ == "__main__":
    refresh()
