"""Snapshots for commands: the options for the source, and error handling."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from allot.cli.output import TERMINAL
from allot.core.advice.snapshot import KINDS, Snapshot, SnapshotKind
from allot.core.model.meta import APIStruct
from allot.reading import snapshots
from allot.reading.errors import Denied, NoCluster
from allot.reading.snapshots import SnapshotSource

if TYPE_CHECKING:
    from allot.client.connection import Connection

Function = TypeVar("Function", bound=Callable[..., Any])

_HINT_WITHOUT_CLUSTER = "set a kubeconfig with --kubeconfig, or a dump with -f"
_HINT_WITHOUT_RIGHTS = "a dump (-f) needs no permissions"


def snapshot_options(function: Function) -> Function:
    """`--kubeconfig`, `--context` and `-f` for a command, which gets them as one argument `source`."""

    @functools.wraps(function)
    def command(*arguments: Any, kubeconfig: Path | None, context: str, files: tuple[str, ...], **others: Any) -> Any:
        source = SnapshotSource(kubeconfig=kubeconfig, context=context, files=files)
        return function(*arguments, source=source, **others)

    options = (
        click.option(
            "-f",
            "--file",
            "files",
            multiple=True,
            metavar="FILE",
            help="Read a dump instead of a cluster: a file or directory of YAML or JSON from kubectl get or allot snapshot, or - for stdin. "
            "Repeatable.",
        ),
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path, dir_okay=False),
            help="How to reach the cluster.  [default: as in kubectl: $KUBECONFIG, ~/.kube/config, or in the cluster]",
        ),
        click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig."),
    )
    decorated: Any = command
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def read_snapshot(source: SnapshotSource, kinds: Sequence[SnapshotKind] = KINDS) -> Snapshot:
    """As `allot.reading.snapshots` has it."""
    with _hints(source):
        return snapshots.read_snapshot(source, TERMINAL, kinds)


def in_namespace(source: SnapshotSource, namespace: str) -> SnapshotSource:
    """The same with the given namespace instead of the context's: users without cluster-wide access read only that one."""
    return msgspec.structs.replace(source, home=namespace) if namespace else source


def need(snapshot: Snapshot, *types: type[APIStruct], hint: str = "") -> None:
    """Denied if there are kinds without which a question has no answer, and which could not be read."""
    lacking = snapshot.lacking(*types)
    if lacking:
        kinds = ", ".join(lacking)
        raise Denied(
            f"{kinds} may not be listed", hint or f"permission to list {kinds} is missing; {_HINT_WITHOUT_RIGHTS}"
        )


def read_values(source: SnapshotSource) -> list[dict[str, Any]]:
    """As `allot.reading.snapshots` has it."""
    with _hints(source):
        return snapshots.read_values(source, TERMINAL)


def connection_of(source: SnapshotSource, *, hint: str = _HINT_WITHOUT_CLUSTER) -> Connection:
    """How to reach the cluster. hint: what to do where no kubeconfig is found."""
    with _hints(source, hint):
        return snapshots.connection_of(source)


@contextmanager
def _hints(source: SnapshotSource, without_cluster: str = _HINT_WITHOUT_CLUSTER) -> Iterator[None]:
    """Add hints about the relevant options to failures."""
    try:
        yield
    except NoCluster as error:
        raise NoCluster(error.message, _running_here(source) or without_cluster) from None
    except Denied as error:
        if error.hint is None:
            raise
        raise Denied(error.message, f"{error.hint}; {_HINT_WITHOUT_RIGHTS}") from None


def _running_here(source: SnapshotSource) -> str:
    """The connection to this machine's cluster, if one runs and no other is named; else empty."""
    if source.kubeconfig is None and not source.context:
        # Imported late: for a question that names no cluster.
        from allot.cli.data_dir import default_data_dir
        from allot.cli.up.instance import Instance

        state = Instance(default_data_dir()).running()
        if state is not None and state.kubeconfig:
            return f"for the cluster of allot up on this machine: export KUBECONFIG={shlex.quote(state.kubeconfig)}"
    return ""
