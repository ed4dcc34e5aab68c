"""Running a server: options, store, failures in words.

Shared by `allot apiserver` and `allot up`. The composition root: the only place that chooses a store.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from allot.apiserver.access.secret_files import SecretFileError
from allot.apiserver.assembly import Settings
from allot.apiserver.serving.seats import SeatLimits
from allot.cli.errors import EXIT_UNREACHABLE, CommandError
from allot.cli.gates import gates_option
from allot.cli.output import talk
from allot.controlplane.plane import ControlPlane, control_plane
from allot.core.features import FeatureGates
from allot.http1.connections import CONNECTIONS_MAX, Limits
from allot.process.interpreter import open_files_max, tune
from allot.store.marker import marker_path
from allot.store.memory import MemoryStore
from allot.store.port import Fault, Store, StoreUnavailable
from allot.store.sqlite import SqliteStore
from allot.store.sqlite_errors import ACCEPT_LOSS

ADMIN_KUBECONFIG = "admin.kubeconfig"
_DATABASE = "state.db"
_KEYS = "pki"
# What a server has open besides connections of clients.
_OTHER_FILES = 128

Function = TypeVar("Function", bound=Callable[..., Any])


# So that whoever starts servers can tell what is the matter: docs/reference/errors.md has the table.
EXIT_CODES = {
    Fault.LOG_CUT: 10,
    Fault.LOG_MISSING: 11,
    Fault.EMPTIED: 12,
    Fault.OLDER_COPY: 13,
    Fault.FOREIGN: 14,
    Fault.MARKER: 15,
    Fault.DAMAGED: 16,
    Fault.DISK_FULL: 17,
    Fault.READ_ONLY: 18,
    Fault.DISK_ERROR: 19,
}


class CannotServe(CommandError):
    """The server cannot start or go on."""

    def __init__(self, message: str, hint: str | None = None, fault: Fault | None = None) -> None:
        super().__init__(message, hint)
        self.exit_code = EXIT_UNREACHABLE if fault is None else EXIT_CODES[fault]


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    data_dir: Path
    bind_address: str
    port: int
    kubeconfig: Path | None
    memory: bool
    etcd_servers: tuple[str, ...]
    etcd_ca: Path | None
    etcd_cert: Path | None
    etcd_key: Path | None
    etcd_prefix: str
    gates: FeatureGates
    names: tuple[str, ...]
    token_file: Path | None
    signing_key_file: Path | None
    verifying_key_files: tuple[Path, ...]
    audit_log: Path | None
    loopback_kubelets: bool | None
    kubelet_authority: Path | None
    max_requests_inflight: int
    max_mutating_requests_inflight: int
    accept_loss: bool


def default_data_dir() -> Path:
    """Where data is kept unless said otherwise: $XDG_DATA_HOME/allot."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "allot"


_PATH = click.Path(path_type=Path, dir_okay=False)

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=default_data_dir,
    show_default="$XDG_DATA_HOME/allot",
    help="Where objects, keys and certificates are kept.",
)


def server_options(gates: str) -> Callable[[Function], Function]:
    """The options of a command that runs a server. gates: which feature gates are on if it is not said."""
    options = (
        data_dir_option,
        click.option("--bind-address", default="127.0.0.1", show_default=True, help="The address to listen on."),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=6443,
            show_default=True,
            help="The port to listen on; 0 takes a free one.",
        ),
        click.option(
            "--kubeconfig",
            type=_PATH,
            help="Where the administrator's kubeconfig is written.  [default: admin.kubeconfig in the data directory]",
        ),
        click.option(
            "--memory", is_flag=True, help="Keep objects in memory only; they are gone when the server stops."
        ),
        click.option("--etcd-servers", default="", metavar="URLS", help="Keep objects in etcd, comma-separated URLs."),
        click.option("--etcd-cafile", "etcd_ca", type=_PATH, help="The authority of etcd's certificate."),
        click.option("--etcd-certfile", "etcd_cert", type=_PATH, help="The client certificate for etcd."),
        click.option("--etcd-keyfile", "etcd_key", type=_PATH, help="The key of the client certificate for etcd."),
        click.option(
            "--etcd-prefix",
            default="/registry",
            show_default=True,
            help="Where keys begin in etcd, as kube-apiserver's.",
        ),
        gates_option(gates),
        click.option(
            "--tls-san",
            "names",
            multiple=True,
            metavar="NAME",
            help="Another name or address of this server; repeatable.",
        ),
        click.option(
            "--token-auth-file", "token_file", type=_PATH, help='A file of lines token,user,uid,"group,group".'
        ),
        click.option(
            "--service-account-signing-key-file",
            "signing_key_file",
            type=_PATH,
            help="The private key (RSA or ECDSA) that signs service-account tokens.  [default: sa.key, made in the data "
            "directory]",
        ),
        click.option(
            "--service-account-key-file",
            "verifying_key_files",
            type=_PATH,
            multiple=True,
            help="Keys, public or private, that may have signed service-account tokens besides; repeatable.",
        ),
        click.option("--audit-log", type=_PATH, help="Write an audit log (JSON lines) to this file."),
        click.option(
            "--kubelet-certificate-authority",
            "kubelet_authority",
            type=_PATH,
            help="The authority of kubelets' certificates, which are not verified otherwise.",
        ),
        click.option(
            "--loopback-kubelets/--no-loopback-kubelets",
            default=None,
            help="Whether nodes may be at loopback addresses.  [default: if the server listens on one; with allot up, yes]",
        ),
        click.option(
            "--max-requests-inflight",
            type=click.IntRange(0),
            default=400,
            show_default=True,
            metavar="NUMBER",
            help="How many requests that only read are handled at a time; one user gets at most half. 0: no limit.",
        ),
        click.option(
            "--max-mutating-requests-inflight",
            type=click.IntRange(0),
            default=200,
            show_default=True,
            metavar="NUMBER",
            help="The same for requests that write.",
        ),
        click.option(
            ACCEPT_LOSS,
            "accept_loss",
            is_flag=True,
            help="Start with what is left of the objects where some are known to be missing; once, not as a habit.",
        ),
    )

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def options_of(arguments: dict[str, Any]) -> ServerOptions:
    """The options from click's arguments."""
    servers = tuple(filter(None, (url.strip() for url in arguments.pop("etcd_servers").split(","))))
    if servers and arguments["memory"]:
        raise click.UsageError("--memory and --etcd-servers cannot be used together.")
    if arguments["accept_loss"] and (servers or arguments["memory"]):
        raise click.UsageError(f"{ACCEPT_LOSS} is for the SQLite file of a data directory.")
    return ServerOptions(etcd_servers=servers, **arguments)


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
    """What a person can do something about, in words; everything else as it is."""
    if isinstance(error, StoreUnavailable):
        return CannotServe(str(error), fault=error.fault)
    if isinstance(error, SecretFileError):
        return CannotServe(str(error), fault=_disk_fault(error.__cause__))
    if isinstance(error, OSError):
        fault = _disk_fault(error)
        return _cannot_listen(error, options) if fault is None else _cannot_write(error, options.data_dir, fault)
    return error


def _disk_fault(error: BaseException | None) -> Fault | None:
    if not isinstance(error, OSError):
        return None
    return {errno.ENOSPC: Fault.DISK_FULL, errno.EDQUOT: Fault.DISK_FULL, errno.EROFS: Fault.READ_ONLY}.get(
        error.errno or 0
    )


def _cannot_write(error: OSError, data_dir: Path, fault: Fault) -> CannotServe:
    hint = (
        "free some space" if fault is Fault.DISK_FULL else "mount it for writing, or choose another one with --data-dir"
    )
    return CannotServe(
        f"{error.filename or f'data directory {data_dir}'}: the {fault.replace(' ', ' is ', 1)}", hint, fault
    )


def _store(options: ServerOptions) -> Store:
    if options.memory:
        return MemoryStore()
    if options.etcd_servers:
        # Imported when it is asked for: gRPC alone takes longer to load than the store of most servers.
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
        talk(f"warning: data directory {options.data_dir}: has the keys of a cluster and no objects; starting empty")
    return SqliteStore(database, accept_loss=options.accept_loss)


@asynccontextmanager
async def serving(options: ServerOptions) -> AsyncIterator[ControlPlane]:
    """A server that is ready, and no components yet. The data directory exists."""
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
        loopback_kubelets=options.loopback_kubelets,
        kubelet_authority=options.kubelet_authority,
        own_endpoints=tuple(_endpoint(url) for url in options.etcd_servers),
        limits=Limits(connections=max(min(CONNECTIONS_MAX, open_files_max() - _OTHER_FILES), 2)),
        seats=SeatLimits(
            max_requests_inflight=options.max_requests_inflight,
            max_mutating_requests_inflight=options.max_mutating_requests_inflight,
        ),
        compacts=bool(options.etcd_servers),
    )
    async with control_plane(settings, _store(options)) as plane:
        yield plane


def _endpoint(url: str) -> tuple[str, int]:
    pieces = urlsplit(url if "://" in url else f"//{url}")
    try:
        return pieces.hostname or "", pieces.port or 2379
    except ValueError:
        raise click.UsageError(f"--etcd-servers: {url!r} is not a URL with host and port.") from None


def make_data_dir(path: Path) -> None:
    """CannotServe if it is not there and cannot be made, or belongs to somebody else."""
    hint = "choose another one with --data-dir"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        disk = os.statvfs(path)
    except OSError as error:
        fault = _disk_fault(error)
        if fault is not None:
            raise _cannot_write(error, path, fault) from error
        raise CannotServe(f"data directory {path}: {(error.strerror or str(error)).lower()}", hint) from error
    if disk.f_flag & os.ST_RDONLY:
        raise _cannot_write(OSError(), path, Fault.READ_ONLY)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise CannotServe(f"data directory {path}: permission denied", hint)


def _cannot_listen(error: OSError, options: ServerOptions) -> CommandError:
    where = f"{options.bind_address}:{options.port}"
    if error.errno == errno.EADDRINUSE:
        return CannotServe(f"cannot listen on {where}: the port is in use", "choose another one with --port")
    return CannotServe(f"cannot serve on {where}: {(error.strerror or str(error)).lower()}")
