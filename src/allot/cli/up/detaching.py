"""Starts `allot up` in the background: a process in its own session, whose first output is kept until it is ready."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from allot.cli.errors import CommandError
from allot.cli.output import talk
from allot.cli.up.instance import POLL_S, Instance, InstanceState
from allot.process.clock import SystemClock

IN_BACKGROUND = "--in-background"
# Thousands of nodes take long; those that take even longer are announced as missing by then.
READY_S = 1200.0


class NotStarted(CommandError):
    """It ended before it was ready, with this exit code, or did not become ready."""

    def __init__(self, message: str, hint: str | None, exit_code: int | None) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code if exit_code is not None and exit_code > 0 else 3


def start_in_background(folder: Path, arguments: Sequence[str]) -> InstanceState:
    """Returns when it is ready. The folder exists; arguments: those of `allot up`. AlreadyRunning, NotStarted."""
    with Instance(folder).held():
        pass  # no other instance runs there
    words = folder / "log" / "start.log"
    words.parent.mkdir(mode=0o700, exist_ok=True)
    with words.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "allot", "up", IN_BACKGROUND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    state = asyncio.run(_until_ready(Instance(folder), process))
    if state is not None:
        return state
    if process.poll() is not None:
        with Instance(folder).held():
            pass  # no other instance was faster, whose output is in the same file
    said = words.read_text(errors="replace").splitlines()
    for line in said:
        if not line.startswith(("error: ", "hint: ")):
            talk(line)
    errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    hints = [line.removeprefix("hint: ") for line in said if line.startswith("hint: ")]
    message = errors[-1] if errors else f"not ready; see {words}"
    raise NotStarted(message, hints[-1] if hints else None, process.poll())


async def _until_ready(instance: Instance, process: subprocess.Popen[bytes]) -> InstanceState | None:
    clock = SystemClock()
    until = clock.monotonic() + READY_S
    while process.poll() is None:
        state = instance.running()
        if state is not None and state.pid == process.pid and state.ready:
            return state
        if clock.monotonic() > until:
            process.terminate()
            return None
        await clock.sleep(POLL_S)
    return None
