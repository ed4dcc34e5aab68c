"""Server-side apply: a configuration is merged into the object, and its manager owns exactly the fields that it states.

Fields that the manager stated before and no longer states are removed, unless someone else owns them. Changing a field that
someone else owns is a conflict, unless forced. What the object looks like afterwards is told here; defaults, admission and
validation come after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from allot.core.patching.bounds import check_patch_bounds
from allot.core.patching.comparison import configured_fields
from allot.core.patching.errors import PatchError, internal, malformed
from allot.core.patching.fieldset import (
    LEAF,
    FieldsError,
    Tree,
    difference,
    has,
    intersection,
    path_text,
    paths,
    recursive_difference,
    union,
)
from allot.core.patching.last_applied import allowed_by_last_applied, with_last_applied
from allot.core.patching.manageable import left_out, manageable
from allot.core.patching.managed import (
    APPLY,
    UPDATE,
    Convert,
    Entries,
    Identity,
    Managed,
    encoded,
    managed_fields_of,
    read_entries,
    stored_entries,
    tracked,
)
from allot.core.patching.tracking import Comparisons, disowned
from allot.core.patching.typed import merged, reconciled, type_problem, with_named_fields, without
from allot.core.quoting import quoted
from allot.core.schema import Schema

Object = dict[str, Any]

BEFORE_FIRST_APPLY = "before-first-apply"
KUBECTL = "kubectl"


class Applied(NamedTuple):
    """The object with its new managedFields, those alone, and whether anything but them differs from the live object."""

    object: Object
    managed_fields: list[Object] | None
    changed: bool


class Conflict(NamedTuple):
    """A field that someone else owns."""

    owner: Identity
    path: tuple[str, ...]

    @property
    def owner_text(self) -> str:
        """The owner as in messages."""
        text = quoted(self.owner.manager)
        if self.owner.subresource:
            text += f" with subresource {quoted(self.owner.subresource)}"
        return f"{text} using {self.owner.api_version}" if self.owner.operation == UPDATE else text


class ApplyConflict(PatchError):
    """Fields of the configuration belong to others: 409 with one cause for each."""

    def __init__(self, conflicts: Iterable[Conflict]) -> None:
        self.conflicts = tuple(conflicts)
        super().__init__(409, "Conflict", _conflict_text(self.conflicts))

    @property
    def causes(self) -> list[dict[str, str]]:
        """For the details of the Status."""
        return [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {each.owner_text}",
                "field": path_text(each.path),
            }
            for each in self.conflicts
        ]


def _conflict_text(conflicts: tuple[Conflict, ...]) -> str:
    if len(conflicts) == 1:
        conflict = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {conflict.owner_text}: {path_text(conflict.path)}"
    lines = []
    for owner in dict.fromkeys(each.owner for each in conflicts):
        theirs = [each for each in conflicts if each.owner == owner]
        lines.append(f"conflicts with {theirs[0].owner_text}:")
        lines += [f"- {path_text(each.path)}" for each in theirs]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


class _Request(NamedTuple):
    """What stays the same while an apply is computed."""

    manager: str
    schema: Schema
    api_version: str
    now: str
    subresource: str
    reset: Tree
    convert: Convert | None

    @property
    def identity(self) -> Identity:
        return Identity(self.manager, APPLY, "", self.subresource)


def apply(
    live: Object | None,
    applied: Any,
    *,
    manager: str,
    force: bool,
    schema: Schema,
    api_version: str,
    kind: str,
    now: str,
    subresource: str = "",
    reset: Tree = LEAF,
    convert: Convert | None = None,
) -> Applied:
    """The object after an apply; PatchError (400, 500) or ApplyConflict (409). live is None if there is no object yet.

    The live object is in `api_version`. `reset` names fields that cannot be set this way. Without `convert`, entries of
    other versions are taken to name fields as this version does.
    """
    _check_configuration(applied, schema, api_version, kind)
    request = _Request(manager, schema, api_version, now, subresource, reset, convert)
    before = live if live is not None else {"apiVersion": api_version, "kind": kind}
    entries = _live_entries(before, request)
    try:
        new, entries, changed = _merge(before, applied, entries, request, force)
    except ApplyConflict as error:
        if manager != KUBECTL:
            raise
        # Fields that client-side apply set last, and that are as it set them, are taken over without a conflict.
        allowed = allowed_by_last_applied(before, schema, api_version)
        left = [each for each in error.conflicts if not has(allowed, each.path)]
        if left:
            raise ApplyConflict(left) from None
        new, entries, changed = _merge(before, applied, entries, request, force=True)
    if manager == KUBECTL:
        new = with_last_applied(new, applied)
    managed_fields = encoded(entries)
    return Applied(_with_managed_fields(new, managed_fields), managed_fields, changed)


def _check_configuration(applied: Any, schema: Schema, api_version: str, kind: str) -> None:
    if not isinstance(applied, dict):
        raise malformed("error decoding patch: expected an object")
    check_patch_bounds(applied)
    version, name = applied.get("apiVersion", ""), applied.get("kind", "")
    if version != api_version or name != kind:
        group, _, short = str(version).rpartition("/")
        raise malformed(f"invalid object type: {group}/{short}, Kind={name}")
    metadata = applied.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise malformed("metadata.managedFields must be nil")
    problem = type_problem(applied, schema)
    if problem:
        raise internal(f"failed to create typed patch object ({_which(applied)}): {problem}")


def _which(object_: Object) -> str:
    metadata = object_.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    group, _, version = str(object_.get("apiVersion", "")).rpartition("/")
    place = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
    return f"{place}; {group}/{version}, Kind={object_.get('kind', '')}"


def _live_entries(live: Object, request: _Request) -> Entries:
    """The entries to begin with. An object that no one manages yet belongs to its previous writer."""
    try:
        values = managed_fields_of(live)
        entries = stored_entries(live) or (read_entries(values) if values else {})
    except FieldsError as error:
        raise internal(f"failed to decode managed fields: {error}") from None
    if entries:
        return {identity: entry.with_fields(_fitting(entry, live, request)) for identity, entry in entries.items()}
    empty = {"apiVersion": live.get("apiVersion"), "kind": live.get("kind")}
    _, changed = disowned(empty, live, {}, request.schema, request.api_version, request.reset, None)
    fields = tracked(changed)
    if not fields:
        return {}
    entry = Managed(BEFORE_FIRST_APPLY, UPDATE, request.api_version, request.subresource, request.now, fields)
    return {entry.identity: entry}


def _fitting(entry: Managed, live: Object, request: _Request) -> Tree:
    """The entry's fields along the schema as it is now."""
    if entry.api_version == request.api_version or request.convert is None:
        return reconciled(entry.fields, request.schema)
    converted = request.convert(live, entry.api_version)
    return entry.fields if converted is None else reconciled(entry.fields, converted[1])


def _merge(
    live: Object, applied: Object, entries: Entries, request: _Request, force: bool
) -> tuple[Object, Entries, bool]:
    identity = request.identity
    last = entries.get(identity)
    new = merged(live, applied, request.schema)
    claimed = _claimed(applied, request)
    own = Managed(request.manager, APPLY, request.api_version, request.subresource, None, claimed)
    others = dict(entries)
    others.pop(identity, None)
    if last is not None:
        # Unmanaged fields are still stated: they must not be removed with what is given up around them.
        stated = recursive_difference(configured_fields(applied, request.schema), request.reset)
        new = _pruned(new, last, [own._replace(fields=stated), *others.values()], request)
    if last is None and _keep_apart(claimed, others, request):
        left = others
    else:
        if not force:
            conflicts = _conflicts(live, new, others, request)
            if conflicts:
                raise ApplyConflict(conflicts)
        left, _ = disowned(live, new, others, request.schema, request.api_version, request.reset, request.convert)
    changed = new != live
    if claimed:
        time = request.now if changed else last.time if last is not None else None
        left[identity] = own._replace(time=time)
    return new, left, changed


def _keep_apart(claimed: Tree, others: Entries, request: _Request) -> bool:
    """Whether no one else manages anything in the members of the object that the configuration is about: then nothing can be
    taken from anyone."""
    return all(
        (request.convert is None or entry.api_version == request.api_version)
        and claimed.keys().isdisjoint(entry.fields)
        for entry in others.values()
    )


def _claimed(applied: Object, request: _Request) -> Tree:
    """What the configuration claims of what can be managed."""
    without = left_out(request.reset)
    part = manageable(applied, without)
    if not part.get("metadata"):
        part.pop("metadata", None)
    claimed = configured_fields(part, request.schema)
    return recursive_difference(claimed, without.rest) if without.rest else claimed


def _conflicts(live: Object, new: Object, others: Entries, request: _Request) -> list[Conflict]:
    comparisons = Comparisons(live, new, request.schema, request.api_version, request.reset, request.convert)
    conflicts = []
    for identity, entry in sorted(others.items()):
        comparison = comparisons.in_version(entry.api_version)
        taken = intersection(entry.fields, comparison[1]) if comparison is not None else LEAF
        conflicts += [Conflict(identity, path) for path in paths(taken)]
    return conflicts


# --- what is no longer stated ---


def _pruned(new: Object, last: Managed, managers: list[Managed], request: _Request) -> Object:
    """The object without fields that the manager stated last time, states no more, and no one else owns."""
    given_up = difference(last.fields, managers[0].fields) if last.api_version == request.api_version else last.fields
    if not given_up:
        return new
    version = _in_version(new, last.api_version, request)
    if version is None:
        return new
    start, schema = version
    named_last = with_named_fields(last.fields, schema)
    pruned = without(start, named_last, schema)
    for api_version in dict.fromkeys([last.api_version, *(each.api_version for each in managers)]):
        owned = LEAF
        for each in managers:
            if each.api_version == api_version:
                owned = union(owned, each.fields)
        pruned = _with_owned(start, pruned, owned, api_version, last.api_version, request)
    gone = difference(_all_fields(start, schema), _all_fields(pruned, schema))
    result = without(start, intersection(gone, named_last), schema)
    back = _in_version(result, request.api_version, request)
    return new if back is None else back[0]


def _with_owned(
    start: Object, pruned: Object, owned: Tree, api_version: str, last_version: str, request: _Request
) -> Object:
    """The pruned object with what is owned in one version added back; both objects are in the last applied version."""
    whole, less = _in_version(start, api_version, request), _in_version(pruned, api_version, request)
    if whole is None or less is None or not owned:
        return pruned
    schema = whole[1]
    kept = union(_all_fields(less[0], schema), with_named_fields(owned, schema))
    back = without(whole[0], difference(_all_fields(whole[0], schema), kept), schema)
    converted = _in_version(back, last_version, request)
    return pruned if converted is None else converted[0]


def _all_fields(object_: Object, schema: Schema) -> Tree:
    return with_named_fields(configured_fields(object_, schema), schema)


def _in_version(object_: Object, api_version: str, request: _Request) -> tuple[Object, Schema] | None:
    if request.convert is None or object_.get("apiVersion") == api_version == request.api_version:
        return object_, request.schema
    return request.convert(object_, api_version)


def _with_managed_fields(object_: Object, managed_fields: list[Object] | None) -> Object:
    metadata = dict(object_.get("metadata") or {})
    if managed_fields is None:
        metadata.pop("managedFields", None)
    else:
        metadata["managedFields"] = managed_fields
    return {**object_, "metadata": metadata}
