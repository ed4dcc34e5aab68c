"""Runs a server: chooses the store, words failures.

Shared by `allot apiserver` and `allot up`. The composition root: the only place that chooses a store.
"""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import click

from allot.apiserver.access.secret_files import SecretFileError
from allot.apiserver.assembly import Settings
from allot.apiserver.serving.seats import SeatLimits
from allot.cli.errors import CommandError
from allot.cli.output import talk
from allot.cli.server_options import CannotServe, ServerOptions, cannot_write, disk_fault
from allot.controlplane.plane import ControlPlane, control_plane
from allot.http1.connections import CONNECTIONS_MAX, Limits
from allot.process.interpreter import open_files_max, tune
from allot.store.marker import marker_path
from allot.store.memory import MemoryStore
from allot.store.port import Store, StoreUnavailable
from allot.store.sqlite import SqliteStore

_DATABASE = "state.db"
_KEYS = "pki"
# File descriptors of a server besides client connections.
_OTHER_FILES = 128


def run_server(options: ServerOptions, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run what serves; CommandError if that is not possible."""
    tune()
    try:
        if sys.platform == "win32":
            asyncio.run(main())
        else:
            import uvloop

            uvloop.run(main())
    except BaseException as error:
        failure = _told(_innermost(error), options)
        if failure is error:
            raise
        raise failure from None


def _innermost(error: BaseException) -> BaseException:
    """The failure itself: tasks that run together wrap the failures of one in a group."""
    while isinstance(error, BaseExceptionGroup):
        known = error.subgroup((CommandError, StoreUnavailable, SecretFileError, OSError))
        error = (known or error).exceptions[0]
    return error


def _told(error: BaseException, options: ServerOptions) -> BaseException:
    """Failures that a user can fix, as messages; everything else unchanged."""
    if isinstance(error, StoreUnavailable):
        return CannotServe(str(error), fault=error.fault)
    if isinstance(error, SecretFileError):
        return CannotServe(str(error), fault=disk_fault(error.__cause__))
    if isinstance(error, OSError):
        fault = disk_fault(error)
        return _cannot_listen(error, options) if fault is None else cannot_write(error, options.data_dir, fault)
    return error


def _store(options: ServerOptions) -> Store:
    if options.memory:
        return MemoryStore()
    if options.etcd_servers:
        # Imported on demand: gRPC alone takes longer to load than the store of most servers.
        from allot.apiserver.kinds.stored_forms import read_stored
        from allot.store.etcd import EtcdStore
        from allot.store.etcd_client import EtcdOptions

        return EtcdStore(
            EtcdOptions(
                servers=options.etcd_servers,
                ca_file=options.etcd_ca,
                cert_file=options.etcd_cert,
                key_file=options.etcd_key,
                prefix=options.etcd_prefix,
            ),
            read_stored,
        )
    database = options.data_dir / _DATABASE
    if (options.data_dir / _KEYS).exists() and not database.exists() and not marker_path(database).exists():
        talk(
            f"warning: data directory {options.data_dir}: contains the keys of a cluster but no objects; starting empty"
        )
    return SqliteStore(database, accept_loss=options.accept_loss)


@asynccontextmanager
async def serving(options: ServerOptions) -> AsyncIterator[ControlPlane]:
    """A ready server without components. The data directory exists."""
    settings = Settings(
        directory=options.data_dir / _KEYS,
        host=options.bind_address,
        port=options.port,
        gates=options.gates,
        names=options.names,
        token_file=options.token_file,
        signing_key_file=options.signing_key_file,
        verifying_key_files=options.verifying_key_files,
        audit_log=options.audit_log,
        metric_resolution_s=options.metric_resolution,
        loopback_kubelets=options.loopback_kubelets,
        kubelet_authority=options.kubelet_authority,
        own_endpoints=tuple(_endpoint(url) for url in options.etcd_servers),
        store_name="etcd" if options.etcd_servers else "store",
        limits=Limits(connections=max(min(CONNECTIONS_MAX, open_files_max() - _OTHER_FILES), 2)),
        seats=SeatLimits(
            max_requests_inflight=options.max_requests_inflight,
            max_mutating_requests_inflight=options.max_mutating_requests_inflight,
        ),
    )
    async with control_plane(settings, _store(options)) as plane:
        yield plane


def _endpoint(url: str) -> tuple[str, int]:
    pieces = urlsplit(url if "://" in url else f"//{url}")
    try:
        return pieces.hostname or "", pieces.port or 2379
    except ValueError:
        raise click.UsageError(f"--etcd-servers: {url!r} is not a URL with host and port.") from None


def _cannot_listen(error: OSError, options: ServerOptions) -> CommandError:
    where = f"{options.bind_address}:{options.port}"
    if error.errno == errno.EADDRINUSE:
        return CannotServe(f"cannot listen on {where}: the port is in use", "choose another port with --port")
    return CannotServe(f"cannot serve on {where}: {(error.strerror or str(error)).lower()}")
