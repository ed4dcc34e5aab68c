"""Runs the command blocks of the documentation, to check or to refresh their output.

A block is fenced as ```console; a line `$ ...` is a command (lines after it that begin with `> ` belong to it), what follows is its
output. In an output a line `...` stands for any number of lines, and `…` for any text within a line.

The commands of a page run in order, by a shell, in a folder of their own that has the project's `docs` and `examples` in it, and the files
that the page shows: blocks fenced as ```yaml whose first line is a comment with the file's name, `# pod.yaml`. If the
page says `<!-- cluster: --node t4 -->`, there is a cluster that `allot up` started with those options, and kubectl uses it; otherwise
there is none. A command that ends with ` &` runs until the end of the page; the one after it is tried until it succeeds.
`python docs/console.py [PAGE...]` rewrites the outputs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ELISION = "..."
GAP = "…"
KUBECONFIG = "kubeconfig"
COMMAND_SECONDS_MAX = 120
BACKGROUND_SECONDS_MAX = 120
_BACKGROUND = " &"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^```yaml\n(# (\S+\.yaml)\n.*?)^```$", re.MULTILINE | re.DOTALL)
_CLUSTER = re.compile(r"^<!-- cluster:(.*?)-->$", re.MULTILINE)
# What sets up or builds something: the tests of the project run these on their own.
_NOT_RUN = ("make ", "pip ", "pipx ", "helm ", "source ", ". ")
# What a shell does something with.
_FOR_SHELL = re.compile(r"[^\w ./:=,@%+-]")
# The end of each log is enough: it is what happened when the command failed.
_LOOK_AT_CLUSTER = """
kubectl get pods,resourceclaims --all-namespaces --output wide
kubectl get events --all-namespaces --sort-by .metadata.creationTimestamp | tail -n 50
find "$XDG_DATA_HOME" -name '*.log' -exec tail -n 40 {} +
"""


class Command(NamedTuple):
    """A command line and the output shown under it."""

    line: str
    output: str

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


def files_on(page: Path) -> dict[str, str]:
    """The files that a page shows, by name."""
    return {name: text for text, name in _FILE.findall(page.read_text())}


class Place:
    """Where commands run: a folder, with a cluster if one was started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._background: list[subprocess.Popen[bytes]] = []
        self._is_starting = False
        programs = Path(sys.executable).parent
        self._environment = {
            **os.environ,
            "NO_COLOR": "1",
            "COLUMNS": "100",
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "KUBECONFIG": str(folder / KUBECONFIG),
        }

    def run(self, line: str) -> tuple[int, str]:
        """Exit code, and what the command printed on both streams."""
        if line.endswith(_BACKGROUND):
            self._start(line.removesuffix(_BACKGROUND))
            return 0, ""
        deadline = time.monotonic() + (BACKGROUND_SECONDS_MAX if self._is_starting else 0)
        self._is_starting = False
        while True:
            done = self._run(line)
            if done.returncode == 0 or time.monotonic() >= deadline:
                return done.returncode, done.stdout
            time.sleep(0.2)

    def cluster(self) -> str:
        """What the page's cluster looks like, and what its parts have logged: for whoever asks why a command failed."""
        return self._run(_LOOK_AT_CLUSTER).stdout

    def _run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            _started(line),
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS_MAX,
        )

    def _start(self, line: str) -> None:
        with (self._folder / "background.log").open("ab") as log:
            process = subprocess.Popen(
                _started(line, "exec "),
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._background.append(process)
        self._is_starting = True

    def end(self) -> None:
        """Stops what runs in the background, the last one first."""
        for process in reversed(self._background):
            process.terminate()
            process.wait(BACKGROUND_SECONDS_MAX)


def _started(line: str, before: str = "") -> list[str]:
    """By a shell, unless it would only start allot: then it is started as tests start it (`tests/warm_starts.py`)."""
    if line.startswith("allot ") and not _FOR_SHELL.search(line):
        return [sys.executable, "-m", *line.split()]
    return ["sh", "-c", before + line]


@contextmanager
def place(page: Path) -> Iterator[Place]:
    """Where the commands of a page run, with its cluster if it wants one."""
    options = cluster_of(page)
    with tempfile.TemporaryDirectory(prefix="allot-docs-") as name:
        folder = Path(name)
        for shared in ("docs", "examples"):
            (folder / shared).symlink_to(ROOT / shared)
        for file, text in files_on(page).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        here = Place(folder)
        try:
            if options is not None:
                code, printed = here.run(f"allot up --detach --port 0 --kubeconfig {KUBECONFIG} {shlex.join(options)}")
                assert code == 0, printed
            yield here
        finally:
            here.end()
            if options is not None:
                here.run("allot down")


def says_the_same(shown: str, printed: str) -> bool:
    """Whether the output on the page is what was printed, elisions aside."""
    pattern = "".join(
        r"(?:.*\n)*" if line == ELISION else ".*".join(map(re.escape, line.split(GAP))) + r"\n"
        for line in shown.rstrip("\n").split("\n")
    )
    return re.fullmatch(pattern, printed.rstrip("\n") + "\n") is not None


def refresh(chosen: list[Path]) -> None:
    """Writes the present output of every command into the pages."""
    for page in chosen:
        text = page.read_text()
        if not commands_on(page):
            continue
        with place(page) as here:
            new = _rewritten(text, here)
        if new != text:
            page.write_text(new)
            sys.stdout.write(f"{page.relative_to(ROOT)}: refreshed\n")


def _rewritten(text: str, here: Place) -> str:
    return _BLOCK.sub(lambda match: f"```console\n{_refreshed(match.group(1), here)}```", text)


def _refreshed(block: str, here: Place) -> str:
    parts = []
    for command in commands(block):
        output = command.output
        if not command.is_set_up:
            _, printed = here.run(command.line)
            if output.strip() and not command.is_elided:
                output = printed.rstrip("\n") + "\n"
        shown = command.line.replace("\n", "\n> ")
        parts.append(f"$ {shown}\n{output}")
    return "".join(parts)


if __name__ == "__main__":
    refresh([Path(name).resolve() for name in sys.argv[1:]] or pages())
