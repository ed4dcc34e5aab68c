"""Children: started again, heard, ended with their parent."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from allot.process.children import Child
from allot.process.clock import SystemClock
from waiting import WAIT_S, until

pytestmark = pytest.mark.slow


class _Heard:
    def __init__(self) -> None:
        self.lines: list[str] = []

    async def until(self, is_so: Callable[[], bool]) -> None:
        await until(is_so)


@asynccontextmanager
async def running(script: str) -> AsyncIterator[tuple[Child, _Heard]]:
    heard = _Heard()
    child = Child("child", ["sh", "-c", script], SystemClock(), heard.lines.append)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(child.run())
        try:
            yield child, heard
        finally:
            task.cancel()


async def test_what_it_says_is_heard_line_by_line_and_it_is_started_again() -> None:
    async with running("echo one; printf 'two\\nhalf'; exit 3") as (child, heard):
        await heard.until(lambda: heard.lines[:6] == ["one", "two", "half"] * 2)
        assert child.restarts >= 1


async def test_its_end_is_seen_even_if_what_it_started_goes_on() -> None:
    async with running("sleep 5 & echo started") as (child, heard):
        await heard.until(lambda: child.restarts >= 1)


async def test_it_is_asked_to_end() -> None:
    async with running("trap 'echo bye; exit 0' TERM; echo ready; while true; do sleep 0.05; done") as (child, heard):
        await heard.until(lambda: "ready" in heard.lines)
        pid = child.pid
    assert heard.lines[-1] == "bye"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that their parent is gone")
def test_it_ends_when_its_parent_is_killed() -> None:
    code = """
import asyncio
from allot.process.children import Child
from allot.process.clock import SystemClock
asyncio.run(Child("child", ["sh", "-c", "echo $$; exec sleep 100"], SystemClock(), lambda line: print(line, flush=True)).run())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    # Readable as soon as the process has ended, whoever its parent is by then.
    handle = os.pidfd_open(pid)
    try:
        parent.send_signal(signal.SIGKILL)
        parent.communicate(timeout=WAIT_S)
        assert select.select([handle], [], [], 10)[0]
    finally:
        os.close(handle)


def test_a_program_that_is_not_there_is_told() -> None:
    command = [sys.executable, "-m", "allot.process.parent_death", str(os.getpid()), "/nowhere/program"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 127
    assert done.stderr == "error: /nowhere/program: no such file or directory\n"
