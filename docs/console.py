"""Runs the command blocks of the documentation, to check them or to write what the commands print now.

A block is fenced as ```console; a line `$ ...` is a command (lines after it that begin with `> ` belong to it), what follows is its
output. In an output a line `...` stands for any number of lines, and `…` for any text within a line.

Commands of a page that says `<!-- cluster: --node t4 -->` run in order, by a shell, in a folder of their own, with a cluster that
`allot up` started with those options; kubectl uses it. On other pages only plain `allot` commands are run, from the root of the
project. `python docs/console.py [PAGE...]` rewrites the outputs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ELISION = "..."
GAP = "…"
COMMAND_SECONDS_MAX = 120
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CLUSTER = re.compile(r"^<!-- cluster:(.*?)-->$", re.MULTILINE)
# What sets up or builds something: the tests of the project run these on their own.
_NOT_RUN = ("make ", "pip ", "pipx ", "helm ", "source ", ". ")


class Command(NamedTuple):
    """A command line and the output shown under it."""

    line: str
    output: str

    @property
    def is_plain(self) -> bool:
        """Whether it is an `allot` command that needs no shell."""
        return self.line.startswith("allot ") and not {"|", ">", "&&", "<"} & set(shlex.split(self.line))

    @property
    def is_set_up(self) -> bool:
        """Whether it prepares the machine."""
        return self.line.startswith(_NOT_RUN)

    @property
    def is_elided(self) -> bool:
        """Whether a part of the output is left out on the page."""
        return GAP in self.output or ELISION in self.output.split("\n")


def pages() -> list[Path]:
    """Every page that may have commands."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def cluster_of(page: Path) -> list[str] | None:
    """The options of `allot up` for the page's cluster; None if it needs none."""
    found = _CLUSTER.search(page.read_text())
    return shlex.split(found.group(1)) if found else None


def commands(block: str) -> Iterator[Command]:
    """The commands of a block, in order."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.removesuffix("\n").split("\n")
        length = 1
        while length < len(lines) and (lines[length].startswith("> ") or lines[length] == ">"):
            length += 1
        line = "\n".join([lines[0], *(line[2:] for line in lines[1:length])])
        yield Command(line, "".join(f"{line}\n" for line in lines[length:]))


def commands_on(page: Path) -> list[Command]:
    """Every command of a page."""
    return [command for block in _BLOCK.findall(page.read_text()) for command in commands(block)]


class Place:
    """Where commands run: the project's root, or a folder with a cluster."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self._folder = folder
        programs = Path(sys.executable).parent
        self._environment = {
            **os.environ,
            "NO_COLOR": "1",
            "COLUMNS": "100",
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }
        if kubeconfig is not None:
            self._environment["KUBECONFIG"] = str(kubeconfig)
            self._environment["XDG_DATA_HOME"] = str(folder / "data")
            self._environment["HOME"] = str(folder)

    def run(self, line: str) -> tuple[int, str]:
        """Exit code, and what the command printed on both streams."""
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS_MAX,
        )
        return done.returncode, done.stdout


PROJECT = Place(ROOT)


@contextmanager
def cluster(options: list[str]) -> Iterator[Place]:
    """A cluster of its own, with the project's examples beside it."""
    with tempfile.TemporaryDirectory(prefix="allot-docs-") as name:
        folder = Path(name)
        (folder / "examples").symlink_to(ROOT / "examples")
        place = Place(folder, folder / "kubeconfig")
        started = place.run(f"allot up --detach --port 0 --kubeconfig kubeconfig {shlex.join(options)}")
        try:
            assert started[0] == 0, started[1]
            yield place
        finally:
            place.run("allot down")


def says_the_same(shown: str, printed: str) -> bool:
    """Whether the output on the page is what was printed, elisions aside."""
    pattern = "".join(
        r"(?:.*\n)*" if line == ELISION else ".*".join(map(re.escape, line.split(GAP))) + r"\n"
        for line in shown.rstrip("\n").split("\n")
    )
    return re.fullmatch(pattern, printed.rstrip("\n") + "\n") is not None


def _refreshed(block: str, place: Place | None) -> str:
    parts = []
    for command in commands(block):
        output = command.output
        if place is not None or command.is_plain:
            printed = "" if command.is_set_up else (place or PROJECT).run(command.line)[1]
            if output.strip() and not command.is_elided:
                output = printed.rstrip("\n") + "\n"
        shown = command.line.replace("\n", "\n> ")
        parts.append(f"$ {shown}\n{output}")
    return "".join(parts)


def refresh(chosen: list[Path]) -> None:
    """Writes the present output of every command into the pages."""
    for page in chosen:
        text, options = page.read_text(), cluster_of(page)
        if options is None:
            new = _written(text, None)
        else:
            with cluster(options) as place:
                new = _written(text, place)
        if new != text:
            page.write_text(new)
            sys.stdout.write(f"{page.relative_to(ROOT)}: refreshed\n")


def _written(text: str, place: Place | None) -> str:
    return _BLOCK.sub(lambda match: f"```console\n{_refreshed(match.group(1), place)}```", text)


if __name__ == "__main__":
    refresh([Path(name).resolve() for name in sys.argv[1:]] or pages())
