"""A driver in its own process, started as its author would, and ended in every possible way."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from allot.driver.conformance.kubelet import KubeletError, find_sockets
from allot.driver.run import Description

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_TAIL_BYTES = 4000


class ProcessError(Exception):
    """The driver cannot be started."""


def command_of(module: str) -> tuple[str, ...]:
    """The command to run a module: a file, or an importable name."""
    return (sys.executable, module) if module.endswith(".py") else (sys.executable, "-m", module)


async def describe(command: Sequence[str]) -> Description:
    """A driver's description; ProcessError if it is not valid."""
    process = await asyncio.create_subprocess_exec(
        *command, "--describe", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            out, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ProcessError(f"{' '.join(command)}: says nothing with --describe; does it call run()?") from None
    try:
        return msgspec.json.decode(out, type=Description)
    except msgspec.MsgspecError:
        said = (errors or out).decode(errors="replace").strip().split("\n")[-1]
        told = said or "said nothing with --describe; does it call run()?"
        raise ProcessError(f"{' '.join(command)}: {told}") from None


class DriverProcess:
    """A driver process. Its log goes to a file."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = tuple(command)
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self._process is not None and self._process.returncode is None

    @property
    def process_id(self) -> int:
        """The ID of the running process."""
        assert self._process is not None, "the driver was not started"
        return self._process.pid

    async def start(self) -> None:
        """Start it, without waiting until it is ready."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ)
            )

    async def until_ready(self, registry: Path, count: int = 1) -> tuple[Path, ...]:
        """Wait for its registration socket to answer; ProcessError includes its log."""
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while True:
            try:
                return await find_sockets(registry, count, 0.2)
            except (KubeletError, FileNotFoundError):
                if not self.is_running:
                    raise ProcessError(f"the driver ended: {self.last_words()}") from None
                if asyncio.get_running_loop().time() > deadline:
                    raise ProcessError(
                        f"no registration socket in {START_TIMEOUT_S:g} s: {self.last_words()}"
                    ) from None

    async def kill(self) -> None:
        """End it as a crash would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """Stop it as the kubelet would; returns its exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(number)
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        return process.returncode if process.returncode is not None else 0

    def last_words(self) -> str:
        """The last line of its log."""
        try:
            lines = self._log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip().split("\n")
        except OSError:
            return ""
        return lines[-1]
