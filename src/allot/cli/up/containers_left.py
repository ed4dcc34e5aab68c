"""Ends the programs of a stopped cluster's pods: containers of the process runtime outlive their agent.

Their state stays on disk, as on a machine that was switched off: the next start continues from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

from allot.node.runtimes.port import RuntimeFailure, State
from allot.node.runtimes.process import ProcessRuntime
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds

_log = logging.getLogger("allot.process")

NODES = "nodes"
_RUNTIME = "runtime"
# Between the request to end and the end by force.
_GRACE_S = 2.0


def node_folder(data: Path, name: str) -> Path:
    """The root directory of an agent of a data directory."""
    return data / NODES / name


async def end_containers(data: Path) -> int:
    """End all of them at once; returns how many there were. No agent manages them."""
    ended = 0
    for folder in _runtime_folders(data):
        runtime = ProcessRuntime(folder, SystemClock(), SystemIds())
        await runtime.open()
        try:
            sandboxes, containers = await runtime.list()
            running = [each.id for each in containers if each.state == State.RUNNING]
            async with asyncio.TaskGroup() as tasks:
                for container in running:
                    tasks.create_task(_end(runtime, container))
            for sandbox in sandboxes:
                await runtime.stop_sandbox(sandbox.id)
            ended += len(running)
        finally:
            await runtime.close()
    return ended


async def _end(runtime: ProcessRuntime, container: str) -> None:
    try:
        await runtime.stop_container(container, _GRACE_S)
    except RuntimeFailure as error:
        _log.warning("container %s: %s", container, error)


def _runtime_folders(data: Path) -> Iterator[Path]:
    nodes = data / NODES
    for folder in sorted(nodes.iterdir()) if nodes.is_dir() else ():
        if (folder / _RUNTIME / "containers").is_dir():
            yield folder / _RUNTIME
