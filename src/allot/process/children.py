"""Child programs: restarted when they end, stopped with this process, their output passed on line by line."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from allot.process.clock import Clock
from allot.process.parent_death import ending_with_parent

_log = logging.getLogger("allot.process")

PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 30.0
# A program that ran this long is restarted at once when it ends.
_LONG_RUN_S = 60.0
# Between the request to end and the kill.
STOP_S = 10.0
_LAST_WORDS_S = 0.2
_LINE_BYTES_MAX = 64 * 1024

Hear = Callable[[str], None]


class Child:
    """One program. hear: takes each line that it writes to stdout or stderr; changed: called when it starts or ends."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        clock: Clock,
        hear: Hear,
        *,
        environment: Mapping[str, str] | None = None,
        changed: Callable[[], None] = lambda: None,
        handles: Sequence[int] = (),
    ) -> None:
        """handles: descriptors that it inherits, under the same numbers."""
        self.name = name
        self._command = tuple(command)
        self._clock = clock
        self._hear = hear
        self._environment = environment
        self._changed = changed
        self._handles = tuple(handles)
        self.pid = 0
        self.started_at = 0.0
        self.starts = 0

    @property
    def restarts(self) -> int:
        """How often it was restarted."""
        return max(self.starts - 1, 0)

    async def run(self) -> None:
        """Run until cancelled; then ask it to end, and kill it if it does not."""
        pause = PAUSE_FIRST_S
        while True:
            began = self._clock.monotonic()
            code = await self._run_once()
            if self._clock.monotonic() - began > _LONG_RUN_S:
                pause = PAUSE_FIRST_S
            _log.warning("%s ended with %s; starting it again in %.1f s", self.name, _told(code), pause)
            await self._clock.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX_S)

    async def _run_once(self) -> int:
        # Not asyncio's pipe: asyncio reports the end of a program only when no one holds that pipe open any longer, and
        # the program's own children may live on.
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *ending_with_parent(self._command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env={**os.environ, **self._environment} if self._environment is not None else None,
                pass_fds=self._handles,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self.pid, self.started_at = process.pid, self._clock.seconds()
        self.starts += 1
        self._changed()
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._listen(reading))
            try:
                return await process.wait()
            except asyncio.CancelledError:
                await _stop(process)
                raise
            finally:
                self.pid = 0
                self._changed()
                await asyncio.wait([listening], timeout=_LAST_WORDS_S)
                listening.cancel()

    async def _listen(self, reading: int) -> None:
        output = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reading, "rb", 0)
        )
        try:
            rest = b""
            while block := await output.read(_LINE_BYTES_MAX):
                *lines, rest = (rest + block).split(b"\n")
                if len(rest) > _LINE_BYTES_MAX:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    self._hear(line.decode(errors="replace"))
            if rest:
                self._hear(rest.decode(errors="replace"))
        finally:
            transport.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _told(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
