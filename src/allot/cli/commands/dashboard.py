"""`allot dashboard`: shows a cluster or a dump in the browser."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import re
import ssl
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import click
import msgspec

from allot.cli.component import CannotRun
from allot.cli.errors import Unreadable
from allot.cli.followed import ANALYST, followed
from allot.cli.output import TERMINAL, talk
from allot.cli.snapshots import connection_of, snapshot_options
from allot.dashboard.recordings import CannotRecord, Writer, is_recording
from allot.dashboard.replaying import recording_followed
from allot.dashboard.server import Shown
from allot.dashboard.serving import ServingOptions, dashboard_serving, is_loopback
from allot.dashboard.sessions import BadKey
from allot.process.clock import Clock, SystemClock
from allot.process.interpreter import settle, tune
from allot.process.signals import stop_on_signals
from allot.reading.listener import Listener, Notes
from allot.reading.snapshots import SnapshotSource

_PATH = click.Path(path_type=Path, dir_okay=False)
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


def _address(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not an IP address.") from None


def _url(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value and not _URL.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not a URL such as https://gpus.example.com/dashboard/.")
    return value


@click.command()
@click.option("--snapshot", "dumps", multiple=True, metavar="FILE", help="Show a dump; the same as -f.")
@click.option("--record", type=_PATH, help="Keep what happens in the cluster in this file, readable only by its owner.")
@click.option(
    "--record-limit",
    type=click.IntRange(1, 1 << 20),
    default=256,
    show_default=True,
    metavar="MIB",
    help="The size of the recording. When it is full, the oldest part is removed.",
)
@click.option("--replay", type=_PATH, help="Show a recording: every page at any moment.")
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    callback=_address,
    help="The address to listen on. Addresses other than loopback use TLS, with a self-signed certificate by default.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port to listen on.  [default: a free one]")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="An additional name that browsers may use for the server, such as that of a proxy in front of it. Repeatable.",
)
@click.option(
    "--external-url",
    default="",
    metavar="URL",
    callback=_url,
    help="The address of the dashboard behind a proxy, for links.",
)
@click.option("--tls-cert-file", "certificate", type=_PATH, help="The certificate of the server (PEM).")
@click.option("--tls-private-key-file", "key", type=_PATH, help="Its key.")
@click.option(
    "--link-file", type=_PATH, help="Keep the link for the next browser in this file, readable only by its owner."
)
@click.option(
    "--session-key-file",
    "session_key",
    type=_PATH,
    help="Sign sessions with the key in this file, so that they survive a restart.  [default: they end with the process]",
)
@click.option("--listen-handle", "handle", type=int, default=None, hidden=True)
@click.option("--open", "opens", is_flag=True, help="Open the browser.")
@snapshot_options
def dashboard(
    source: SnapshotSource,
    dumps: tuple[str, ...],
    address: str,
    port: int,
    hosts: tuple[str, ...],
    external_url: str,
    certificate: Path | None,
    key: Path | None,
    link_file: Path | None,
    session_key: Path | None,
    handle: int | None,
    record: Path | None,
    record_limit: int,
    replay: Path | None,
    opens: bool,
) -> None:
    """Show a cluster in the browser: every device by node and topology, why pods wait, claims, queues, gangs, capacity.

    It never writes: it sends only get, list and watch requests, and never reads Secrets. The link that it
    prints lets one browser in; then it prints the next one. Pages stay up to date. With a dump (-f, --snapshot), the pages show its
    content. With --record, it also keeps what happens in a file, which --replay shows at any moment.

    Exit code: 0 stopped by a signal, 1 the cluster may not be read, 2 the input is unreadable, 3 the cluster cannot be reached, or the port is in use.

    \b
    Examples:
      allot dashboard                            the cluster of the kubeconfig
      allot dashboard --context prod --open
      allot dashboard --snapshot dump.yaml --port 8080
      allot dashboard --record monday.recording
      allot dashboard --replay monday.recording
    """
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file must be set together.")
    options = ServingOptions(
        address=address,
        port=port,
        hosts=hosts,
        external_url=external_url,
        certificate=certificate,
        key=key,
        link_file=link_file,
        session_key=session_key,
        handle=handle,
    )
    source = msgspec.structs.replace(source, files=(*source.files, *dumps))
    _check(source, record, replay)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    tune()
    if replay is not None:
        main = _serve(
            lambda listener, clock: recording_followed(replay, listener, clock, ANALYST), options, opens=opens
        )
    else:
        connection = None if source.files else connection_of(source)
        writer = _writer(record, record_limit << 20) if record is not None else None
        main = _serve(
            lambda listener, clock: followed(source, connection, listener, clock, writer), options, opens=opens
        )
    if sys.platform == "win32":
        asyncio.run(main)
    else:
        import uvloop

        uvloop.run(main)


def _check(source: SnapshotSource, record: Path | None, replay: Path | None) -> None:
    """Options that contradict each other."""
    if record is not None and (source.files or replay is not None):
        raise click.UsageError("--record needs a cluster: a dump or a recording does not change.")
    if replay is not None and (source.files or source.kubeconfig is not None or source.context):
        raise click.UsageError("--replay shows a recording: leave out -f, --snapshot, --kubeconfig and --context.")
    if any(is_recording(file) for file in source.files):
        raise click.UsageError("a recording is shown with --replay FILE.")


def _writer(path: Path, bytes_max: int) -> Writer:
    try:
        return Writer(path, bytes_max)
    except CannotRecord as error:
        raise CannotRun(f"cannot record: {error}") from None


class _Listener(Notes):
    """Messages while the cluster is read go to the terminal, and are kept for the page."""

    def note(self, text: str) -> None:
        super().note(text)
        TERMINAL.note(text)

    def warn(self, text: str) -> None:
        super().warn(text)
        TERMINAL.warn(text)


async def _serve(
    follow: Callable[[Listener, Clock], AbstractAsyncContextManager[Shown]], options: ServingOptions, *, opens: bool
) -> None:
    clock, stop, listener = SystemClock(), asyncio.Event(), _Listener()
    stop_on_signals(stop)
    async with follow(listener, clock) as shown:
        notes = (*listener.notes, *listener.warnings)
        settle()
        try:
            async with dashboard_serving(shown, options, clock, _tell, notes) as link:
                if not is_loopback(options.address):
                    talk("note: others can reach this address; everybody with the link sees what you may see")
                if opens:
                    await asyncio.to_thread(click.launch, link)
                await stop.wait()
        except ssl.SSLError as error:
            raise Unreadable(
                f"{options.certificate}: no certificate with its key in {options.key}: {error.reason}"
            ) from None
        except BadKey as error:
            raise Unreadable(f"--session-key-file {error}") from None
        except OSError as error:
            raise _cannot_listen(error, options) from None
    talk("stopping")


def _tell(link: str) -> None:
    talk(f"dashboard: {link}")


def _cannot_listen(error: OSError, options: ServingOptions) -> CannotRun:
    where = f"{options.address}:{options.port}"
    if error.errno == errno.EADDRINUSE:
        return CannotRun(
            f"cannot listen on {where}: the port is in use", "choose another port with --port, 0 for a free one"
        )
    return CannotRun(f"cannot listen on {where}: {(error.strerror or str(error)).lower()}")
