"""A view of a cluster that is kept up to date: drawn again when a watch tells of a change, until Ctrl-C.

On a terminal the view is drawn in place; elsewhere it is printed again whenever it says something else. While the server cannot be
reached, the last view stays, and it is told once since when it is out of date.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from allot.cli.errors import Refused, Unreadable
from allot.cli.output import talk
from allot.cli.reading.snapshots import SnapshotSource, connection_of
from allot.core.advice.snapshot import KINDS, Snapshot
from allot.core.model.meta import APIStruct
from allot.core.model.resource_v1 import DeviceTaintRule

if TYPE_CHECKING:
    from allot.client.api import Client
    from allot.client.connection import Connection

# Changes come in bursts; a view that is drawn more often than that cannot be read.
_PAUSE_S = 0.5

Show = Callable[[Snapshot], None]
_CLIENT_LOG = logging.getLogger("allot.client")

watch_option = click.option(
    "-w", "--watch", is_flag=True, help="Keep the view up to date until Ctrl-C. Needs a cluster, not a dump."
)


def show_live(source: SnapshotSource, show: Show) -> None:
    """Show the cluster again after every change. show: writes the view of a snapshot to stdout."""
    if source.files:
        raise Unreadable("--watch needs a cluster: a dump does not change", "leave out either -f or --watch")
    # Imported late: half a second that questions about files need not wait for.
    from allot.cli.component import not_reached
    from allot.client.errors import ApiError

    connection = connection_of(source)
    try:
        asyncio.run(_draw_on(connection, show) if sys.stdout.isatty() else _print_on(connection, show))
    except KeyboardInterrupt:
        return
    except ApiError as error:
        raise not_reached(connection.server, error) from None


async def _print_on(connection: Connection, show: Show) -> None:
    before = ""
    async for snapshot, stale in _views(connection):
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

    with Live(console=Console(no_color=bool(os.environ.get("NO_COLOR"))), screen=True, auto_refresh=False) as live:
        async for snapshot, stale in _views(connection):
            view = Text(_text(show, snapshot), no_wrap=True, overflow="ellipsis")
            if stale:
                view = Text.assemble((f"{stale}\n\n", "red"), view)
            live.update(view, refresh=True)


def _text(show: Show, snapshot: Snapshot) -> str:
    with redirect_stdout(io.StringIO()) as written:
        show(snapshot)
    return written.getvalue()


class _Troubles(logging.Handler):
    """Hears from all informers that the server cannot be watched, instead of each of them writing into the view."""

    def __init__(self, heard: asyncio.Event) -> None:
        super().__init__(logging.WARNING)
        self._heard = heard
        self.since = ""

    def emit(self, record: logging.LogRecord) -> None:
        """For `logging`."""
        if not self.since:
            self.since = time.strftime("%H:%M:%S", time.localtime(record.created))
            self._heard.set()


async def _views(connection: Connection) -> AsyncIterator[tuple[Snapshot, str]]:
    """The cluster as it is, and again after each change; with what to tell if it is out of date."""
    changed = asyncio.Event()
    troubles = _Troubles(changed)
    _CLIENT_LOG.addHandler(troubles)
    propagates, _CLIENT_LOG.propagate = _CLIENT_LOG.propagate, False
    try:
        async for snapshot, is_fresh in _snapshots(connection, changed):
            if is_fresh:
                troubles.since = ""
            stale = f"perhaps out of date: the server went away at {troubles.since}, and no change was seen since"
            yield snapshot, stale if troubles.since else ""
    finally:
        _CLIENT_LOG.propagate = propagates
        _CLIENT_LOG.removeHandler(troubles)


async def _snapshots(connection: Connection, changed: asyncio.Event) -> AsyncIterator[tuple[Snapshot, bool]]:
    """The cluster as far as it is known, and again when changed is set; with whether something of it has changed."""
    # Imported late: half a second that questions about files need not wait for.
    from allot.client.api import Client
    from allot.client.http import HttpTransport
    from allot.client.informers import Informers
    from allot.process.clock import SystemClock
    from allot.process.ids import SystemIds

    clock, ids = SystemClock(), SystemIds()
    client = Client(HttpTransport(connection, clock, ids, environ=os.environ, user_agent="allot-top"))
    is_fresh = True

    def note(_change: object) -> None:
        nonlocal is_fresh
        is_fresh = True
        changed.set()

    try:
        informers = Informers(client, clock, ids)
        used = [informers.typed(type_, version=version) for type_, version in await _watchable(client)]
        for informer in used:
            informer.add_handler(note)
        running = asyncio.ensure_future(informers.run())
        try:
            await informers.wait_synced()
            while True:
                changed.clear()
                fresh, is_fresh = is_fresh, False
                yield Snapshot(tuple(found for informer in used for found in informer.cache), clock.seconds()), fresh
                await changed.wait()
                await clock.sleep(_PAUSE_S)
        finally:
            running.cancel()
    finally:
        await client.close()


async def _watchable(client: Client) -> list[tuple[type[APIStruct], str]]:
    """The kinds to watch, with the version that the server has: those without which nothing can be said, and taint rules."""
    from allot.client.errors import Forbidden

    discovery = await client.discovery()
    found: list[tuple[type[APIStruct], str]] = []
    for kind in KINDS:
        version = next((v for v in kind.versions if discovery.find_kind(kind.group, v, kind.name) is not None), "")
        if version and (kind.required or kind.type is DeviceTaintRule):
            try:
                await client.typed(kind.type, version=version).list()
            except Forbidden as error:
                if kind.required:
                    raise Refused(
                        f"{kind.plural}: {error.message}", "the right to list and watch them is needed"
                    ) from None
                talk(f"note: {kind.plural}: left out, as they may not be listed")
                continue
            found.append((kind.type, version))
    return found
