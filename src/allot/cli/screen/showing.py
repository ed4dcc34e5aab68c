"""Follows a cluster, or opens a dump, and shows the screen until its user leaves."""

from __future__ import annotations

import asyncio
import logging

from allot.cli.output import TERMINAL
from allot.cli.screen.app import Screen
from allot.cli.snapshots import connection_of
from allot.dashboard.following import cluster_followed, dump_followed
from allot.process.clock import SystemClock
from allot.reading.snapshots import SnapshotSource


def show_screen(source: SnapshotSource) -> None:
    """Until q is pressed."""
    # What is logged would be drawn over the screen, which says itself when the cluster cannot be reached.
    logging.disable()
    asyncio.run(_show(source))


async def _show(source: SnapshotSource) -> None:
    clock = SystemClock()
    if source.files:
        following = dump_followed(source.files, TERMINAL, clock)
    else:
        connection = connection_of(source)
        title = source.context or connection.server.removeprefix("https://")
        following = cluster_followed(connection, title, TERMINAL, clock)
    async with following as followed:
        await Screen(followed).run_async()
