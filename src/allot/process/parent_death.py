"""`python -m allot.process.parent_death PARENT COMMAND...`: becomes the command, and ends with its parent, however the parent ends.

The kernel sends the requested SIGTERM when the parent is gone; the request survives exec, so this also works for
third-party programs. On kernels without such a request (all but Linux), the command runs without it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
EXIT_NOT_FOUND = 127
EXIT_NOT_RUNNABLE = 126


def ending_with_parent(command: Sequence[str]) -> list[str]:
    """The command line that makes a command end together with this process."""
    return [sys.executable, "-m", __name__, str(os.getpid()), *command]


def main(arguments: Sequence[str]) -> int:
    """Does not return if the command can be run."""
    parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        # The parent may have ended before the kernel was asked.
        if os.getppid() != int(parent):
            return 0
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"error: {command[0]}: {(error.strerror or str(error)).lower()}\n")
        return EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_RUNNABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
