"""Stops the cluster of a data directory from another process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from allot.cli.errors import CommandError
from allot.cli.up.instance import Instance
from allot.process.clock import SystemClock

# Children have ten seconds to end, and pods theirs.
STOP_S = 30.0


class DoesNotEnd(CommandError):
    """The process still runs although it was asked to end."""

    exit_code = 1


def end_cluster(folder: Path) -> bool:
    """Ask it to end, and wait; returns whether there was one. Also ends programs of pods, including those of a killed one. DoesNotEnd."""
    instance = Instance(folder)
    state = instance.running()
    if state is None:
        # Imported when it is needed: most of the time the cluster runs and ends its pods itself.
        from allot.cli.up.containers_left import end_containers

        return bool(asyncio.run(end_containers(folder)))
    if not asyncio.run(instance.stop(state, SystemClock(), STOP_S)):
        raise DoesNotEnd(
            f"process {state.pid} still runs {STOP_S:g} s after it was asked to end", f"its log: {state.log}"
        )
    return True
