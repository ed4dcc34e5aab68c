"""Log files of a process: appends lines, and rotates large files.

`ContainerLog` writes the CRI format, which agents read for pod logs.
`OwnersLogs` keeps the logs of several such programs that share a process.
"""

from __future__ import annotations

import logging
import os
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

from allot.process.clock import Clock

BYTES_MAX = 10 * 1024 * 1024
SET_ASIDE_MAX = 3
_LEVELS = {logging.DEBUG: "D", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}

# Owner of the log for records written in this context; empty: the process itself.
log_owner = ContextVar("log_owner", default="")


def text_of(record: logging.LogRecord, *, with_head: bool = False) -> str:
    """A record as one or more lines: a letter for its level, the message, and the traceback of a failure.

    with_head: time, process and origin after the letter, as Kubernetes' components log.
    """
    head = _LEVELS.get(record.levelno, "I")
    if with_head:
        when = datetime.fromtimestamp(record.created, UTC)
        head = f"{head}{when:%m%d %H:%M:%S.%f} {record.process:>7} {record.filename}:{record.lineno}]"
    text = f"{head} {record.getMessage()}"
    if record.exc_info:
        text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
    return text


class LogFile:
    """A file of lines. Rotated files have a number after their name; 1 is the latest."""

    def __init__(self, path: Path, bytes_max: int = BYTES_MAX) -> None:
        self.path = path
        self._bytes_max = bytes_max
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._handle = self._open()
        self._bytes = os.fstat(self._handle).st_size

    def write(self, line: str) -> None:
        """Append a line. OSError if the disk is full or gone."""
        data = f"{line}\n".encode(errors="replace")
        if self._bytes and self._bytes + len(data) > self._bytes_max:
            self._set_aside()
        # Unbuffered and in one piece: readers of the file see whole lines, and nothing is lost with the process.
        os.write(self._handle, data)
        self._bytes += len(data)

    def close(self) -> None:
        """The last line is written."""
        os.close(self._handle)

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _set_aside(self) -> None:
        os.close(self._handle)
        for number in range(SET_ASIDE_MAX, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            newer = self.path if number == 1 else self.path.with_name(f"{self.path.name}.{number - 1}")
            if newer.exists():
                newer.replace(older)
        self._handle, self._bytes = self._open(), 0


class ContainerLog(LogFile):
    """The log of a container. time: RFC 3339 with fractions."""

    def write_entry(self, time: str, text: str) -> None:
        """One or more lines that the container wrote to stderr."""
        for line in text.split("\n"):
            self.write(f"{time} stderr F {line}")


class OwnersLogs(logging.Handler):
    """A file for each owner of records (`log_owner`): the owner's name with .log."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(logging.INFO)
        self._folder = folder
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        """For `logging`."""
        owner = log_owner.get()
        if not owner:
            return
        try:
            # Opened for each record: there are many owners, and each writes seldom.
            log = ContainerLog(self._folder / f"{owner}.log")
            try:
                log.write_entry(self._clock.now_micro(), text_of(record, with_head=True))
            finally:
                log.close()
        except OSError as error:
            sys.stderr.write(f"cannot log: {error}\n")
