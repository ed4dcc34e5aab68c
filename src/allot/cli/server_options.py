"""The options of a command that runs a server, and messages about wrong ones.

A light module: `allot up --detach` needs nothing else before it starts a server in the background.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from allot.cli.data_dir import data_dir_option
from allot.cli.durations import duration_option
from allot.cli.errors import EXIT_UNREACHABLE, CommandError
from allot.cli.gates import gates_option
from allot.core.features import FeatureGates
from allot.core.metrics.resource_usage import RESOLUTION_S
from allot.store.port import Fault
from allot.store.sqlite_errors import ACCEPT_LOSS

Function = TypeVar("Function", bound=Callable[..., Any])

# One exit code per cause, for scripts that start servers: see docs/reference/errors.md.
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
    """The server cannot start or continue."""

    def __init__(self, message: str, hint: str | None = None, fault: Fault | None = None) -> None:
        super().__init__(message, hint)
        self.exit_code = EXIT_UNREACHABLE if fault is None else EXIT_CODES[fault]


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line options."""

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
    metric_resolution: float
    loopback_kubelets: bool | None
    kubelet_authority: Path | None
    max_requests_inflight: int
    max_mutating_requests_inflight: int
    accept_loss: bool


_PATH = click.Path(path_type=Path, dir_okay=False)


def server_options(gates: str) -> Callable[[Function], Function]:
    """The options of a command that runs a server. gates: the default feature gates."""
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
            help="Where to write the administrator's kubeconfig.  [default: admin.kubeconfig in the data directory]",
        ),
        click.option(
            "--memory", is_flag=True, help="Keep objects in memory only; they are lost when the server stops."
        ),
        click.option("--etcd-servers", default="", metavar="URLS", help="Keep objects in etcd, comma-separated URLs."),
        click.option("--etcd-cafile", "etcd_ca", type=_PATH, help="The authority of etcd's certificate."),
        click.option("--etcd-certfile", "etcd_cert", type=_PATH, help="The client certificate for etcd."),
        click.option("--etcd-keyfile", "etcd_key", type=_PATH, help="The key of the client certificate for etcd."),
        click.option(
            "--etcd-prefix",
            default="/registry",
            show_default=True,
            help="The prefix of keys in etcd, as in kube-apiserver.",
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
            "--token-auth-file", "token_file", type=_PATH, help='A file with lines token,user,uid,"group,group".'
        ),
        click.option(
            "--service-account-signing-key-file",
            "signing_key_file",
            type=_PATH,
            help="The private key (RSA or ECDSA) that signs service account tokens.  [default: sa.key, created in the data directory]",
        ),
        click.option(
            "--service-account-key-file",
            "verifying_key_files",
            type=_PATH,
            multiple=True,
            help="Additional keys, public or private, that verify service account tokens; repeatable.",
        ),
        click.option("--audit-log", type=_PATH, help="Write an audit log (JSON lines) to this file."),
        duration_option(
            "--metric-resolution",
            default=f"{RESOLUTION_S:g}s",
            least_s=1.0,
            help_="How often to collect metrics of nodes and their pods; at least 1s.",
        ),
        click.option(
            "--kubelet-certificate-authority",
            "kubelet_authority",
            type=_PATH,
            help="The authority of kubelets' certificates. Without it, they are not verified.",
        ),
        click.option(
            "--loopback-kubelets/--no-loopback-kubelets",
            default=None,
            help="Allow nodes at loopback addresses.  [default: if the server listens on one; with allot up, yes]",
        ),
        click.option(
            "--max-requests-inflight",
            type=click.IntRange(0),
            default=400,
            show_default=True,
            metavar="NUMBER",
            help="The maximum number of reading requests at a time; one user gets at most half. 0 means no limit.",
        ),
        click.option(
            "--max-mutating-requests-inflight",
            type=click.IntRange(0),
            default=200,
            show_default=True,
            metavar="NUMBER",
            help="The same for writing requests.",
        ),
        click.option(
            ACCEPT_LOSS,
            "accept_loss",
            is_flag=True,
            help="Start even if objects are known to be missing, with those that are left. Use it once, not permanently.",
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


def make_data_dir(path: Path) -> None:
    """CannotServe if it does not exist and cannot be created, or belongs to another user."""
    hint = "choose another directory with --data-dir"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        disk = os.statvfs(path)
    except OSError as error:
        fault = disk_fault(error)
        if fault is not None:
            raise cannot_write(error, path, fault) from error
        raise CannotServe(f"data directory {path}: {(error.strerror or str(error)).lower()}", hint) from error
    if disk.f_flag & os.ST_RDONLY:
        raise cannot_write(OSError(), path, Fault.READ_ONLY)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise CannotServe(f"data directory {path}: permission denied", hint)


def disk_fault(error: BaseException | None) -> Fault | None:
    if not isinstance(error, OSError):
        return None
    return {errno.ENOSPC: Fault.DISK_FULL, errno.EDQUOT: Fault.DISK_FULL, errno.EROFS: Fault.READ_ONLY}.get(
        error.errno or 0
    )


def cannot_write(error: OSError, data_dir: Path, fault: Fault) -> CannotServe:
    hint = (
        "free some space"
        if fault is Fault.DISK_FULL
        else "mount it for writing, or choose another directory with --data-dir"
    )
    return CannotServe(
        f"{error.filename or f'data directory {data_dir}'}: the {fault.replace(' ', ' is ', 1)}", hint, fault
    )
