"""Follows a cluster, or opens a dump, and shows the screen until its user leaves."""

from __future__ import annotations

import asyncio
import logging

from allot.cli.followed import followed
from allot.cli.output import TERMINAL
from allot.cli.screen.app import Screen
from allot.cli.snapshots import connection_of
from allot.process.clock import SystemClock
from allot.reading.snapshots import SnapshotSource


def show_screen(source: SnapshotSource) -> None:
    """Until q is pressed."""
    # Log output would overwrite the screen, which shows itself if the cluster cannot be reached.
    logging.disable()
    asyncio.run(_show(source))


async def _show(source: SnapshotSource) -> None:
    connection = None if source.files else connection_of(source)
    async with followed(source, connection, TERMINAL, SystemClock()) as shown:
        await Screen(shown).run_async()
