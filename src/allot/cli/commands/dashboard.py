"""`allot dashboard`: shows a cluster or a dump in the browser."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import re
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from allot.cli.component import CannotRun
from allot.cli.errors import Unreadable
from allot.cli.followed import followed
from allot.cli.output import TERMINAL, talk
from allot.cli.snapshots import connection_of, snapshot_options
from allot.dashboard.serving import ServingOptions, dashboard_serving, is_loopback
from allot.process.clock import SystemClock
from allot.process.interpreter import settle, tune
from allot.process.signals import stop_on_signals
from allot.reading.listener import Notes
from allot.reading.snapshots import SnapshotSource

if TYPE_CHECKING:
    from allot.client.connection import Connection

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
    handle: int | None,
    opens: bool,
) -> None:
    """Show a cluster in the browser: every device by node and topology, why pods wait, claims, queues, gangs, capacity.

    It never writes: it sends only get, list and watch requests, and never reads Secrets. The link that it
    prints lets one browser in; then it prints the next one. Pages stay up to date. With a dump (-f, --snapshot), the pages show its
    content.

    Exit code: 0 stopped by a signal, 1 the cluster may not be read, 2 the input is unreadable, 3 the cluster cannot be reached, or the port is in use.

    \b
    Examples:
      allot dashboard                            the cluster of the kubeconfig
      allot dashboard --context prod --open
      allot dashboard --snapshot dump.yaml --port 8080
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
        handle=handle,
    )
    source = msgspec.structs.replace(source, files=(*source.files, *dumps))
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    tune()
    connection = None if source.files else connection_of(source)
    main = _serve(source, connection, options, opens=opens)
    if sys.platform == "win32":
        asyncio.run(main)
    else:
        import uvloop

        uvloop.run(main)


class _Listener(Notes):
    """Messages while the cluster is read go to the terminal, and are kept for the page."""

    def note(self, text: str) -> None:
        super().note(text)
        TERMINAL.note(text)

    def warn(self, text: str) -> None:
        super().warn(text)
        TERMINAL.warn(text)


async def _serve(
    source: SnapshotSource, connection: Connection | None, options: ServingOptions, *, opens: bool
) -> None:
    clock, stop, listener = SystemClock(), asyncio.Event(), _Listener()
    stop_on_signals(stop)
    async with followed(source, connection, listener, clock) as shown:
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
