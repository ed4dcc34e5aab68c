"""metadata.managedFields: who manages which fields of an object, entry by entry.

Knows how entries are distinguished, sorted, merged when there are too many, and read when someone else wrote them. What a write
changes about them is decided in `tracking` and `applying`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from allot.core.patching.fieldset import FieldsError, Tree, decode, difference, fields, union
from allot.core.schema import Schema

Object = dict[str, Any]
# An object in another version and the schema of that version; None if there is no such version (any more).
Convert = Callable[[Object, str], "tuple[Object, Schema] | None"]

APPLY = "Apply"
UPDATE = "Update"
UPDATE_MANAGERS_MAX = 10
ANCIENT_CHANGES = "ancient-changes"
UNKNOWN_MANAGER = "unknown"

# Fields that no one manages: the server sets them, or they say which object it is.
NOBODYS = fields(
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
)


class Identity(NamedTuple):
    """What tells entries apart. An applier has one entry whatever version it applies."""

    manager: str
    operation: str
    api_version: str
    subresource: str


class Managed(NamedTuple):
    """One entry. `time` is None if it has none."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str | None
    fields: Tree
    # The entry as it was in the object, for as long as nothing about it has changed.
    source: Object | None = None

    @property
    def identity(self) -> Identity:
        """What tells it apart."""
        version = "" if self.operation == APPLY else self.api_version
        return Identity(self.manager, self.operation, version, self.subresource)

    @property
    def applied(self) -> bool:
        """Whether it is an applier's."""
        return self.operation == APPLY

    def with_fields(self, tree: Tree) -> Managed:
        """The entry with other fields; itself if they are the same."""
        return self if tree is self.fields else self._replace(fields=tree, source=None)

    def encoded(self) -> Object:
        """The entry as objects have it."""
        if self.source is not None:
            return self.source
        entry: Object = {"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version}
        if self.time is not None:
            entry["time"] = self.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": self.fields}
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


Entries = dict[Identity, Managed]


def tracked(tree: Tree) -> Tree:
    """The fields without those that no one manages."""
    return difference(tree, NOBODYS)


# --- in ---


def managed_fields_of(object_: Object | None) -> Any:
    """metadata.managedFields, None if there are none."""
    metadata = object_.get("metadata") if object_ else None
    return metadata.get("managedFields") if isinstance(metadata, dict) else None


def stored_entries(object_: Object | None) -> Entries:
    """The entries of an object from the store, which are as we write them; none if they are not."""
    entries: Entries = {}
    for source in managed_fields_of(object_) or ():
        entry = _trusted(source)
        if entry is None:
            return _entries_or_none(managed_fields_of(object_)) or {}
        entries[entry.identity] = entry
    return entries


def _trusted(source: Any) -> Managed | None:
    try:
        if source["fieldsType"] != "FieldsV1":
            return None
        return Managed(
            source.get("manager", ""),
            source["operation"],
            source["apiVersion"],
            source.get("subresource", ""),
            source.get("time"),
            source.get("fieldsV1") or {},
            source,
        )
    except (KeyError, TypeError):
        return None


def read_entries(values: Any) -> Entries:
    """Entries that a client wrote; FieldsError if they are none."""
    if not isinstance(values, list):
        raise FieldsError("expected a list of entries")
    entries: Entries = {}
    for index, source in enumerate(values):
        entry = _read(source, index)
        entries[entry.identity] = entry
    return entries


def _read(source: Any, index: int) -> Managed:
    if not isinstance(source, dict):
        raise FieldsError(f"entry {index}: expected an object")
    texts = [source.get(name) or "" for name in ("manager", "operation", "apiVersion", "subresource", "fieldsType")]
    manager, operation, api_version, subresource, fields_type = texts
    if not all(isinstance(text, str) for text in texts):
        raise FieldsError(f"entry {index}: expected texts")
    if operation not in (APPLY, UPDATE):
        raise FieldsError("operation must be `Apply` or `Update`")
    if not api_version:
        raise FieldsError("apiVersion must not be empty")
    if fields_type != "FieldsV1":
        problem = f'invalid fieldsType "{fields_type[:80]}"' if fields_type else "missing fieldsType"
        raise FieldsError(f"{problem} in managed fields entry {index}")
    time = source.get("time")
    tree = decode(source.get("fieldsV1"))
    return Managed(manager, operation, api_version, subresource, time if isinstance(time, str) else None, tree)


def _entries_or_none(values: Any) -> Entries | None:
    try:
        return read_entries(values) if values else None
    except FieldsError:
        return None


def starting_entries(live: Object | None, new: Object, subresource: str) -> Entries:
    """The entries that a write begins with: those that the writer sent, if they make sense, or those of the object.

    An empty list, or a list of one empty entry, resets them. Through a subresource they cannot be set.
    """
    sent = managed_fields_of(new)
    if subresource or sent is None or (live is not None and sent is managed_fields_of(live)):
        return stored_entries(live)
    if sent in ([], [{}]):
        return {}
    if live is not None and sent == managed_fields_of(live):
        return stored_entries(live)
    return _entries_or_none(sent) or stored_entries(live)


# --- out ---


def encoded(entries: Entries) -> list[Object] | None:
    """managedFields as objects have them: appliers first, then by time; None if no one manages anything."""
    if not entries:
        return None
    return [entry.encoded() for entry in sorted(entries.values(), key=_order)]


def _order(entry: Managed) -> tuple[str, str, str, str, str]:
    return entry.operation, entry.time or "", entry.manager, entry.api_version, entry.subresource


def capped(entries: Entries) -> Entries:
    """At most so many updaters: the oldest ones become one entry per version."""
    updaters = [entry for entry in entries.values() if not entry.applied]
    surplus = len(updaters) - UPDATE_MANAGERS_MAX
    if surplus <= 0:
        return entries
    updaters.sort(key=lambda entry: (entry.time or "", entry.identity))
    left = dict(entries)
    first: dict[str, Managed] = {}
    for entry in updaters:
        if surplus <= 0:
            break
        version = entry.api_version
        if version not in first:
            first[version] = entry
            continue
        bucket = Managed(ANCIENT_CHANGES, UPDATE, version, "", entry.time, entry.fields)
        known = left.get(bucket.identity)
        if known is None:
            known = left.pop(first[version].identity)
        left[bucket.identity] = bucket._replace(fields=union(entry.fields, known.fields))
        if entry.identity != bucket.identity:
            left.pop(entry.identity, None)
        surplus -= 1
    return left


def without_new_times(live: Object, managed_fields: Sequence[Object] | None) -> list[Object] | None:
    """The new managedFields with the old times, if nothing but times has changed; else as they are.

    For the case that a write turns out to change nothing: then it must not be stored for the sake of a time.
    """
    old = managed_fields_of(live)
    new = list(managed_fields) if managed_fields is not None else None
    if not isinstance(old, list) or new is None or len(old) != len(new):
        return new
    same = all(
        {name: item for name, item in one.items() if name != "time"}
        == {name: item for name, item in other.items() if name != "time"}
        for one, other in zip(old, new, strict=True)
    )
    return old if same else new
