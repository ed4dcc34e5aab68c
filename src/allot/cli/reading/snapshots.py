"""Snapshots of a cluster for commands that give advice: from a live cluster, or from files that `kubectl get -o yaml` or
`allot snapshot` wrote.

Reading needs no more than the right to list. A kind that the server does not have, or that one may not list, is left out with a
note, unless nothing could be said without it. Dumps are taken as they are: what people cut away or added is no error.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from allot.cli.errors import Refused, Unreadable
from allot.cli.output import progress, talk
from allot.cli.reading.manifests import Manifest, Origin, manifests_in, read_sources
from allot.core.advice.snapshot import KINDS, NotInSnapshots, Snapshot, SnapshotKind, read_object
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1, resource_v1
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError
from allot.core.model.meta import APIStruct

if TYPE_CHECKING:
    from allot.client.api import Client
    from allot.client.connection import Connection

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_NAMESPACE = "default"
_HINT_WITHOUT_CLUSTER = "name a kubeconfig with --kubeconfig, or a dump with -f"
_LISTS_AT_ONCE = 4
# Somebody waits for the answer: a server that is away should be told soon.
TRIES_MAX = 3
# Kinds without which nothing can be said, but of which even a whole cluster may have none.
_MAY_BE_NONE = (core_v1.Pod, resource_v1.ResourceClaim)
_KIND_NAMES = frozenset((kind.group, kind.name) for kind in KINDS)


class SnapshotSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read from. Files win over a live cluster. home: the namespace that is meant, if it is not the context's."""

    kubeconfig: Path | None = None
    context: str = ""
    files: tuple[str, ...] = ()
    home: str = ""

    @property
    def namespace(self) -> str:
        """The namespace that is meant if none is given."""
        return DEFAULT_NAMESPACE if self.files else connection_of(self).namespace


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
            help="Ask a dump instead of a cluster: a file or folder of YAML or JSON as kubectl get prints it, - for "
            "stdin. May be repeated.",
        ),
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path, dir_okay=False),
            help="How to reach the cluster.  [default: as kubectl: $KUBECONFIG, ~/.kube/config, or in the cluster]",
        ),
        click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use."),
    )
    decorated: Any = command
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def read_snapshot(source: SnapshotSource, kinds: Sequence[SnapshotKind] = KINDS) -> Snapshot:
    """The cluster as it is, as far as these kinds go, or as the dump has it."""
    if source.files:
        snapshot = snapshot_from_files(source.files)
        _note_absence(snapshot)
        return snapshot
    taken_at, values = read_live(source, kinds)
    return Snapshot(tuple(_objects(values)), taken_at)


def read_values(source: SnapshotSource) -> list[dict[str, Any]]:
    """The objects of the kinds that snapshots have as JSON values, as the server or the dump has them."""
    if not source.files:
        return read_live(source)[1]
    return [manifest.value for manifest in _manifests(source.files) if (manifest.group, manifest.kind) in _KIND_NAMES]


# --- dumps ---


def snapshot_from_files(files: tuple[str, ...]) -> Snapshot:
    """The objects of a dump. Of an object that is there twice the last one counts."""
    manifests = list(_manifests(files))
    found: dict[tuple[str, str, str, str], APIStruct] = {}
    passed_over: dict[str, int] = {}
    with progress("reading objects", len(manifests)) as advance:
        for manifest in manifests:
            advance()
            try:
                object_ = read_object(manifest.value)
            except NotInSnapshots:
                passed_over[manifest.kind] = passed_over.get(manifest.kind, 0) + 1
                continue
            except (DecodeError, ConversionError) as error:
                raise Unreadable(f"{manifest.origin}: {error}") from None
            found[manifest.group, manifest.kind, manifest.namespace, manifest.name] = object_
    if not found:
        raise Unreadable(
            f"{', '.join(files)}: nothing of a cluster's state is in there",
            "allot snapshot > dump.yaml writes everything that is needed",
        )
    if passed_over:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(passed_over.items()))
        talk(f"note: passed over, as they do not matter here: {kinds}")
    objects = tuple(found.values())
    return Snapshot(objects, _newest_time(objects))


def _note_absence(snapshot: Snapshot) -> None:
    """Of kinds of which a cluster with devices has some: people forget them when they make a dump."""
    kinds = [kind for kind in KINDS if kind.required and kind.type not in _MAY_BE_NONE]
    absent = [kind.name for kind in kinds if not snapshot.of(kind.type)]
    if absent:
        talk(f"note: the dump has no {' and no '.join(absent)}: answers are those for a cluster that has none")


def _manifests(files: tuple[str, ...]) -> Iterator[Manifest]:
    for source, data in read_sources(files):
        items = _listed_in_json(data)
        if items is None:
            yield from manifests_in(data, source)
            continue
        for index, item in enumerate(items):
            yield Manifest(item, Origin(source, 1, 1, index))


def _listed_in_json(data: bytes) -> list[dict[str, Any]] | None:
    """The members of a list as `kubectl get -o json` prints it, read six times as quickly as by the careful reader of manifests,
    which has the word if anything is unusual: then None."""
    if data[:1] != b"{":
        return None
    try:
        value = msgspec.json.decode(data, type=_ListDocument)
    except (ValueError, RecursionError):
        return None
    is_plain = all(
        isinstance(item.get("apiVersion"), str)
        and isinstance(item.get("kind"), str)
        and not item["kind"].endswith("List")
        for item in value.items
    )
    return value.items if is_plain else None


class _ListDocument(msgspec.Struct):
    items: list[dict[str, Any]]


def _newest_time(objects: tuple[APIStruct, ...]) -> float | None:
    """A dump does not say when it was made: not before the newest time in it."""
    newest = max((text for object_ in objects for text in _times(object_)), default="")
    try:
        return seconds_of(newest) if newest else None
    except ValueError:
        return None


def _times(object_: APIStruct) -> Iterator[str]:
    metadata = object_.metadata  # type: ignore[attr-defined]
    if metadata.creation_timestamp is not None:
        yield metadata.creation_timestamp
    seen_at = getattr(object_, "seen_at", "")
    if seen_at:
        yield seen_at
    for condition in getattr(getattr(object_, "status", None), "conditions", ()):
        if condition.last_transition_time is not None:
            yield condition.last_transition_time
        heartbeat = getattr(condition, "last_heartbeat_time", None)
        if heartbeat is not None:
            yield heartbeat


# --- live ---


def read_live(source: SnapshotSource, kinds: Sequence[SnapshotKind] = KINDS) -> tuple[float, list[dict[str, Any]]]:
    """When, and every object of these kinds, as the server sends them."""
    return asyncio.run(_read_live(connection_of(source), kinds))


def connection_of(source: SnapshotSource, *, hint: str = _HINT_WITHOUT_CLUSTER) -> Connection:
    """How to reach the cluster. hint: what to do where no kubeconfig is found."""
    from allot.client.kubeconfig import KubeconfigError, connection_from_environment

    try:
        found = connection_from_environment(os.environ, kubeconfig=source.kubeconfig, context=source.context)
    except KubeconfigError as error:
        raise Unreadable(str(error), _running_here(source) or hint) from None
    return msgspec.structs.replace(found, namespace=source.home) if source.home else found


def _running_here(source: SnapshotSource) -> str:
    """How to reach the cluster of this machine, if one runs and nobody has named another one; else empty."""
    if source.kubeconfig is None and not source.context:
        # Imported late: a server's modules, for a question to which nobody has told the cluster.
        from allot.cli.serving import default_data_dir
        from allot.cli.up.instance import Instance

        state = Instance(default_data_dir()).running()
        if state is not None and state.kubeconfig:
            return f"for the cluster of allot up on this machine: export KUBECONFIG={shlex.quote(state.kubeconfig)}"
    return ""


async def _read_live(connection: Connection, kinds: Sequence[SnapshotKind]) -> tuple[float, list[dict[str, Any]]]:
    # Imported late: half a second that questions about files need not wait for.
    from allot.cli.component import not_reached
    from allot.client.api import Client
    from allot.client.errors import ApiError, Unauthorized, Unreachable
    from allot.client.http import HttpTransport
    from allot.process.clock import SystemClock
    from allot.process.ids import SystemIds

    clock = SystemClock()
    transport = HttpTransport(
        connection, clock, SystemIds(), environ=os.environ, user_agent="allot-snapshot", tries_max=TRIES_MAX
    )
    client = Client(transport)
    try:
        await client.discovery()
        taken_at = clock.seconds()
        values: list[dict[str, Any]] = []
        hidden = _Hidden(connection.namespace, kinds)
        for found in await _all_lists(client, kinds, hidden):
            if isinstance(found, Exception):
                raise found
            values += found
        hidden.tell()
        return taken_at, values
    except (Unreachable, Unauthorized) as error:
        raise not_reached(connection.server, error) from None
    except ApiError as error:
        raise Refused(f"API server {connection.server}: {error}") from None
    finally:
        await client.close()


class _Hidden:
    """What may not be listed, by kind; told at once, as for some people it is most kinds."""

    def __init__(self, namespace: str, kinds: Sequence[SnapshotKind]) -> None:
        self.namespace = namespace
        self.needed = ", ".join(kind.plural for kind in kinds if kind.required)
        self.everywhere: list[str] = []
        self.elsewhere: list[str] = []

    def tell(self) -> None:
        if self.elsewhere:
            kinds = ", ".join(sorted(self.elsewhere))
            talk(f"note: only those of namespace {self.namespace} may be listed: {kinds}")
        if self.everywhere:
            talk(f"note: left out, as they may not be listed: {', '.join(sorted(self.everywhere))}")


async def _all_lists(
    client: Client, kinds: Sequence[SnapshotKind], hidden: _Hidden
) -> list[list[dict[str, Any]] | Exception]:
    """The objects of each kind, a few kinds at once. One that fails does not cut the others short: their connections would be
    left half open."""
    from allot.client.errors import ApiError

    turns = asyncio.Semaphore(_LISTS_AT_ONCE)
    with progress("reading the cluster", len(kinds)) as advance:

        async def read(kind: SnapshotKind) -> list[dict[str, Any]] | Exception:
            async with turns:
                try:
                    return await _list(client, kind, hidden)
                except (ApiError, Refused) as error:
                    return error
                finally:
                    advance()

        async with asyncio.TaskGroup() as tasks:
            lists = [tasks.create_task(read(kind)) for kind in kinds]
    return [task.result() for task in lists]


async def _list(client: Client, kind: SnapshotKind, hidden: _Hidden) -> list[dict[str, Any]]:
    """All objects of a kind, with the apiVersion and kind that members of lists do not carry."""
    from allot.client.errors import Forbidden

    discovery = await client.discovery()
    served = next(
        (version for version in kind.versions if discovery.find_kind(kind.group, version, kind.name) is not None), ""
    )
    if not served:
        if kind.required:
            talk(f"note: the server has no {kind.plural}")
        return []
    resource = client.resource(kind.group, served, kind.plural, namespaced=kind.namespaced)
    head = {"apiVersion": kind.api_version(served), "kind": kind.name}
    try:
        return [{**head, **item} for item in (await resource.list()).items]
    except Forbidden as error:
        if kind.namespaced:
            try:
                items = (await resource.list(hidden.namespace)).items
            except Forbidden:
                pass
            else:
                hidden.elsewhere.append(kind.plural)
                return [{**head, **item} for item in items]
        if kind.required:
            hint = f"the right to list {hidden.needed} is needed; a dump (-f) needs no rights"
            raise Refused(f"{kind.plural}: {error.message}", hint) from None
        hidden.everywhere.append(kind.plural)
        return []


def _objects(values: list[dict[str, Any]]) -> Iterator[APIStruct]:
    for value in values:
        try:
            yield read_object(value)
        except (DecodeError, ConversionError) as error:
            talk(f"note: {_named(value)}: left out: {error}")


def _named(value: Mapping[str, Any]) -> str:
    metadata = value.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{value.get('kind', '')} {name}"
