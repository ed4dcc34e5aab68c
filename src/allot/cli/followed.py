"""Follows the cluster or dump that the command line names, for a view."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from allot.dashboard.following import Followed, cluster_followed, dump_followed
from allot.dashboard.recordings import Writer
from allot.process.clock import Clock
from allot.reading.listener import Listener
from allot.reading.snapshots import SnapshotSource

# The analyst that knows machines which could be added.
ANALYST = (sys.executable, "-m", "allot.cli.analyst")

if TYPE_CHECKING:
    from allot.client.connection import Connection


def followed(
    source: SnapshotSource,
    connection: Connection | None,
    listener: Listener,
    clock: Clock,
    recording: Writer | None = None,
) -> AbstractAsyncContextManager[Followed]:
    """connection: how to reach the cluster; None for a dump. recording: where to keep what happens in the cluster."""
    if connection is None:
        return dump_followed(source.files, listener, clock, ANALYST)
    title = source.context or connection.server.removeprefix("https://")
    return cluster_followed(connection, title, listener, clock, ANALYST, recording)
