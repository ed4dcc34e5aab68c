"""What a process does when it is asked to end."""

from __future__ import annotations

import asyncio
import os
import signal

# Of a process that was asked a second time, as a shell says of SIGINT.
EXIT_FORCED = 130


def stop_on_signals(stop: asyncio.Event) -> None:
    """The first SIGINT or SIGTERM stops cleanly, the second at once; SIGHUP, from a terminal that is closed, as the first."""

    def received() -> None:
        if stop.is_set():
            os._exit(EXIT_FORCED)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, received)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop.set)
