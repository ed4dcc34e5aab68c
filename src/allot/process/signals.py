"""What a process does when it is asked to end."""

from __future__ import annotations

import asyncio
import os
import signal

# Exit code after a second signal, as a shell reports SIGINT.
EXIT_FORCED = 130


def stop_on_signals(stop: asyncio.Event) -> None:
    """The first SIGINT or SIGTERM stops cleanly, the second at once; SIGHUP, from a closed terminal, always cleanly."""

    def received() -> None:
        if stop.is_set():
            os._exit(EXIT_FORCED)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, received)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop.set)
