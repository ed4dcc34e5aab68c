"""A live view of a cluster: drawn again when a watch reports a change, until Ctrl-C.

On a terminal the view is drawn in place; elsewhere it is printed again whenever it changes. While the server cannot be
reached, the last view stays, with a message about since when it is stale.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from allot.cli.errors import Unreadable
from allot.cli.output import TERMINAL, talk
from allot.cli.snapshots import connection_of
from allot.core.advice.snapshot import Snapshot
from allot.reading.snapshots import SnapshotSource

if TYPE_CHECKING:
    from allot.client.connection import Connection

Show = Callable[[Snapshot], None]

watch_option = click.option(
    "-w", "--watch", is_flag=True, help="Keep the view up to date until Ctrl-C. Needs a cluster, not a dump."
)


def show_live(source: SnapshotSource, show: Show) -> None:
    """Show the cluster again after every change. show: writes the view of a snapshot to stdout."""
    if source.files:
        raise Unreadable("--watch needs a cluster: a dump does not change", "omit either -f or --watch")
    connection = connection_of(source)
    try:
        asyncio.run(_draw_on(connection, show) if sys.stdout.isatty() else _print_on(connection, show))
    except KeyboardInterrupt:
        return


async def _print_on(connection: Connection, show: Show) -> None:
    # Imported late, here and below: half a second that questions about files need not wait for.
    from allot.reading.live import watch_snapshots

    before = ""
    async for snapshot, stale in watch_snapshots(connection, TERMINAL):
        if stale:
            talk(f"note: {stale}")
            continue
        text = _text(show, snapshot)
        if text != before:
            click.echo(text, nl=False)
            sys.stdout.flush()
            before = text


async def _draw_on(connection: Connection, show: Show) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from allot.reading.live import watch_snapshots

    with Live(console=Console(no_color=bool(os.environ.get("NO_COLOR"))), screen=True, auto_refresh=False) as live:
        async for snapshot, stale in watch_snapshots(connection, TERMINAL):
            view = Text(_text(show, snapshot), no_wrap=True, overflow="ellipsis")
            if stale:
                view = Text.assemble((f"{stale}\n\n", "red"), view)
            live.update(view, refresh=True)


def _text(show: Show, snapshot: Snapshot) -> str:
    with redirect_stdout(io.StringIO()) as written:
        show(snapshot)
    return written.getvalue()
