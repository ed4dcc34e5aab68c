"""A cluster that `allot up` made, and a shell in which the documents' commands run as they stand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from waiting import wait_for

_SECONDS_MAX = 60


class Shell:
    """Runs lines in a folder, for a cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        programs = Path(sys.executable).parent
        self._environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "GOGC": os.environ.get("GOGC", ""),
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "NO_COLOR": "1",
        }

    def run(self, line: str, seconds_max: float = _SECONDS_MAX) -> str:
        """What a line that succeeds prints."""
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds_max,
        )
        assert done.returncode == 0, f"$ {line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def shows(self, line: str, shown: Callable[[str], bool]) -> str:
        """What a line prints once it shows what it is to show."""
        printed = ""

        def look() -> bool:
            nonlocal printed
            printed = self.run(line)
            return shown(printed)

        try:
            wait_for(f"$ {line}", look, _SECONDS_MAX)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{printed}") from None
        return printed


@contextmanager
def cluster(folder: Path, *options: str) -> Iterator[Shell]:
    """A cluster with its files in a folder."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl found on the PATH")
    shell = Shell(folder)
    shell.run(f"allot up --detach --port 0 --kubeconfig kubeconfig {' '.join(options)}")
    try:
        yield shell
    finally:
        shell.run("allot down")
