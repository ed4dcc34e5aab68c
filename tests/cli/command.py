"""Runs the command inside the test's process, through the same entry as the console script."""

from __future__ import annotations

import json
from typing import IO, Any, NamedTuple

from click.testing import CliRunner

from allot.cli.main import run


class Result(NamedTuple):
    """What a run of the command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """stdout as JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]


def allot(*arguments: str, stdin: bytes | str | IO[bytes] = b"") -> Result:
    """Exit code and output of `allot ARGUMENTS`."""
    with CliRunner().isolation(input=stdin) as (stdout, stderr, _):
        code = run(arguments)
        return Result(code, stdout.getvalue().decode(), stderr.getvalue().decode())
