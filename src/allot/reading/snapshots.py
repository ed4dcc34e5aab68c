"""Snapshots of a cluster: from a live cluster, or from files that `kubectl get -o yaml` or `allot snapshot` wrote.

Dumps are used as they are: missing or additional fields are not errors.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from allot.core.advice.snapshot import (
    DUMPED_KINDS,
    KINDS,
    NotInSnapshots,
    Snapshot,
    SnapshotKind,
    device_api_of,
    read_object,
    read_other,
)
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1, resource_v1
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError
from allot.core.model.meta import APIStruct
from allot.core.model.observed_v1 import OtherObject
from allot.reading.errors import NoCluster, Unreadable
from allot.reading.listener import Listener
from allot.reading.manifests import Manifest, Origin, manifests_in, read_sources

if TYPE_CHECKING:
    from allot.client.connection import Connection

DEFAULT_NAMESPACE = "default"
# Required kinds of which even a complete cluster may have no objects.
_MAY_BE_NONE = (core_v1.Pod, resource_v1.ResourceClaim)
_KIND_NAMES = frozenset((kind.group, kind.name) for kind in KINDS)
_DUMPED_NAMES = frozenset((kind.group, kind.name) for kind in DUMPED_KINDS)
_DUMPED = frozenset(kind.type for kind in DUMPED_KINDS)


class SnapshotSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read from. Files win over a live cluster. home: the default namespace, if not the context's."""

    kubeconfig: Path | None = None
    context: str = ""
    files: tuple[str, ...] = ()
    home: str = ""

    @property
    def namespace(self) -> str:
        """The default namespace."""
        return self.home or (DEFAULT_NAMESPACE if self.files else connection_of(self).namespace)


def connection_of(source: SnapshotSource) -> Connection:
    """How to reach the cluster; NoCluster."""
    # Imported late, like `live`: saves half a second when only files are read.
    from allot.client.kubeconfig import KubeconfigError, connection_from_environment

    try:
        found = connection_from_environment(os.environ, kubeconfig=source.kubeconfig, context=source.context)
    except KubeconfigError as error:
        raise NoCluster(str(error)) from None
    return msgspec.structs.replace(found, namespace=source.home) if source.home else found


def read_snapshot(source: SnapshotSource, listener: Listener, kinds: Sequence[SnapshotKind] = KINDS) -> Snapshot:
    """The objects of these kinds, from the cluster or the dump. Inside an event loop use `live.fetch_snapshot`."""
    if source.files:
        snapshot = snapshot_from_files(source.files, listener)
        _note_absence(snapshot, listener)
        return snapshot
    from allot.reading.live import fetch_snapshot

    return asyncio.run(fetch_snapshot(connection_of(source), listener, kinds))


def read_values(source: SnapshotSource, listener: Listener) -> list[dict[str, Any]]:
    """The objects of snapshot kinds as JSON values, from the server or the dump; of a dump, also the metadata of those that keep others
    from being deleted."""
    if source.files:
        return list(_values(_manifests(source.files)))
    from allot.reading.live import fetch_values

    return asyncio.run(fetch_values(connection_of(source), listener))[1]


# --- dumps ---


def _values(manifests: Iterable[Manifest]) -> Iterator[dict[str, Any]]:
    for manifest in manifests:
        place = (manifest.group, manifest.kind)
        if place in _KIND_NAMES:
            yield manifest.value
        elif place not in _DUMPED_NAMES and (other := read_other(manifest.value)) is not None and other.keeps_others:
            # The rest may contain anything, as environment variables in a template at any depth.
            yield {key: manifest.value[key] for key in ("apiVersion", "kind", "metadata")}


def values_in(files: tuple[str, ...]) -> list[dict[str, Any]]:
    """All objects of a dump, of any kind. The last of duplicate objects counts."""
    found = {(each.group, each.kind, each.namespace, each.name): each for each in _manifests(files)}
    for each in found.values():
        if not each.name:
            raise Unreadable(f"{each.origin}: {each.kind} has no metadata.name")
    return [each.value for each in found.values()]


def snapshot_from_files(files: tuple[str, ...], listener: Listener) -> Snapshot:
    """The objects of a dump. The last of duplicate objects counts."""
    return snapshot_and_values(files, listener)[0]


def snapshot_and_values(files: tuple[str, ...], listener: Listener) -> tuple[Snapshot, list[dict[str, Any]]]:
    """The same, and these objects as written."""
    manifests = list(_manifests(files))
    found: dict[tuple[str, str, str, str], tuple[APIStruct, dict[str, Any]]] = {}
    others: dict[tuple[str, str, str, str], OtherObject] = {}
    passed_over: dict[str, int] = {}
    with listener.progress("reading objects", len(manifests)) as advance:
        for manifest in manifests:
            advance()
            try:
                object_ = read_object(manifest.value)
            except NotInSnapshots:
                other = read_other(manifest.value)
                if other is not None:
                    others[manifest.group, manifest.kind, manifest.namespace, manifest.name] = other
                    continue
                passed_over[manifest.kind] = passed_over.get(manifest.kind, 0) + 1
                continue
            except (DecodeError, ConversionError) as error:
                raise Unreadable(f"{manifest.origin}: {error}") from None
            place = (manifest.group, manifest.kind, manifest.namespace, manifest.name)
            found[place] = object_, manifest.value
    # ConfigMaps and the like are only useful together with objects that name them.
    if not any((group, kind) in _KIND_NAMES for group, kind, _, _ in found):
        raise Unreadable(
            f"{', '.join(files)}: nothing of a cluster's state is in there",
            "allot snapshot > dump.yaml writes everything that is needed",
        )
    if passed_over:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(passed_over.items()))
        listener.note(f"not read: {kinds}")
    objects = tuple(object_ for object_, _ in found.values())
    # Private contents have been dropped by now, and must not reappear.
    values = [value for (group, kind, _, _), (_, value) in found.items() if (group, kind) in _KIND_NAMES]
    served = device_api_of(each.value for each in manifests)
    return Snapshot(objects, _newest_time(objects), device_api=served, others=tuple(others.values())), values


def _note_absence(snapshot: Snapshot, listener: Listener) -> None:
    """Note missing kinds that every cluster with devices has: users forget them in dumps."""
    kinds = [kind for kind in KINDS if kind.required and kind.type not in _MAY_BE_NONE]
    if not _asks_for_devices(snapshot):
        kinds = [kind for kind in kinds if kind.group != resource_v1.GROUP]
    absent = [kind.name for kind in kinds if not snapshot.of(kind.type)]
    if absent:
        listener.note(f"the dump has no {' and no '.join(absent)}: answers are those for a cluster that has none")


def _asks_for_devices(snapshot: Snapshot) -> bool:
    """Whether a dump involves devices: claims and related objects, or pods with extended resources."""
    kinds = (kind.type for kind in KINDS if kind.group == resource_v1.GROUP)
    if any(snapshot.of(type_) for type_ in kinds):
        return True
    if all(isinstance(each, core_v1.Node | core_v1.Namespace) or type(each) in _DUMPED for each in snapshot.objects):
        # Nodes are dumped alone for no other reason.
        return True
    offered = {name for node in snapshot.of(core_v1.Node) for name in node.status.allocatable}
    return any(
        pod.spec.resource_claims
        or any("/" in name and name not in offered for each in pod.spec.containers for name in each.resources.requests)
        for pod in snapshot.of(core_v1.Pod)
    )


def _manifests(files: tuple[str, ...]) -> Iterator[Manifest]:
    for source, data in read_sources(files):
        items = _listed_in_json(data)
        if items is None:
            yield from manifests_in(data, source)
            continue
        for index, item in enumerate(items):
            yield Manifest(item, Origin(source, 1, 1, index))


def _listed_in_json(data: bytes) -> list[dict[str, Any]] | None:
    """The members of a list printed by `kubectl get -o json`, six times faster than the careful manifest reader;
    None if anything is unusual, to be read by that one."""
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
    """The newest time in a dump, which does not record when it was created."""
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
        # Not all conditions have both.
        for field in ("last_transition_time", "last_heartbeat_time"):
            time = getattr(condition, field, None)
            if time is not None:
                yield time
