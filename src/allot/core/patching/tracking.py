"""Ownership after a write other than apply: create, update, and patches of all other types.

The writer becomes the manager of every field that it changed or added; the managers of those fields before lose them, as
everyone loses fields that are gone.
"""

from __future__ import annotations

from typing import Any

from allot.core.patching.comparison import compare
from allot.core.patching.fieldset import LEAF, Tree, difference, recursive_difference, union
from allot.core.patching.manageable import left_out, manageable
from allot.core.patching.managed import (
    UNKNOWN_MANAGER,
    UPDATE,
    UPDATE_MANAGERS_MAX,
    Convert,
    Entries,
    Managed,
    capped,
    encoded,
    managed_fields_of,
    starting_entries,
    tracked,
)
from allot.core.schema import Schema

Object = dict[str, Any]


def track_update(
    live: Object | None,
    new: Object,
    *,
    manager: str,
    schema: Schema,
    api_version: str,
    now: str,
    subresource: str = "",
    reset: Tree = LEAF,
    convert: Convert | None = None,
) -> list[Object] | None:
    """metadata.managedFields after the write; None if there are none. live is None for a create.

    Both objects are in `api_version`, new as the writer sent it, with defaults and before the server sets its own fields.
    `reset` names fields that this way of writing cannot change. Without `convert`, entries of other versions are taken to
    name fields as this version does. An object that no one manages yet stays so.
    """
    if live is not None and (convert is None or _is_in_one_version(live, api_version)):
        in_place = _tracked_in_place(
            live, new, manager or UNKNOWN_MANAGER, schema, api_version, now, subresource, reset
        )
        if in_place is not None:
            return in_place
    if live is None and not managed_fields_of(new):
        mine = compare_manageable(None, new, schema, reset)[1]
        if not mine:
            return None
        return [Managed(manager or UNKNOWN_MANAGER, UPDATE, api_version, subresource, now, mine).encoded()]
    entries = starting_entries(live, new, subresource)
    if not entries and live is not None and live.get("metadata", {}).get("uid"):
        return None
    if entries or live is not None:
        entries, changed = disowned(live, new, entries, schema, api_version, reset, convert)
        mine = tracked(changed)
    else:
        mine = compare_manageable(None, new, schema, reset)[1]
    if mine:
        written = Managed(manager or UNKNOWN_MANAGER, UPDATE, api_version, subresource, now, mine)
        known = entries.get(written.identity)
        entries[written.identity] = written._replace(fields=union(mine, known.fields)) if known else written
    return encoded(capped(entries))


def _tracked_in_place(
    live: Object, new: Object, manager: str, schema: Schema, api_version: str, now: str, subresource: str, reset: Tree
) -> list[Object] | None:
    """The same for the usual case: the writer does not touch managedFields, and they need not be taken apart to see what
    becomes of them. None if they do."""
    sources = managed_fields_of(live)
    sent = managed_fields_of(new)
    if not sources or len(sources) >= UPDATE_MANAGERS_MAX or not (subresource or sent is None or sent is sources):
        return None
    removed, changed = compare_manageable(live, new, schema, reset)
    mine = changed
    left: list[Object] = []
    written: Object | None = None
    try:
        for source in sources:
            fields = source["fieldsV1"]
            tree = difference(fields, changed) if changed else fields
            if removed:
                tree = difference(tree, removed)
            if (
                mine
                and source["manager"] == manager
                and source["operation"] == UPDATE
                and source["apiVersion"] == api_version
                and source.get("subresource", "") == subresource
            ):
                written = {**source, "time": now, "fieldsV1": union(mine, tree)}
                mine = LEAF
            elif tree:
                left.append(source if tree is fields else {**source, "fieldsV1": tree})
        if mine:
            written = Managed(manager, UPDATE, api_version, subresource, now, mine).encoded()
        if written is not None:
            # The others are in order, and who writes last mostly comes last.
            in_order = not left or _order(left[-1]) <= _order(written)
            left.append(written)
            if not in_order:
                left.sort(key=_order)
    except (KeyError, TypeError, AttributeError):
        # Not as we write them.
        return None
    return left or None


def _is_in_one_version(live: Object, api_version: str) -> bool:
    """Whether everyone who manages something of the object wrote it in this version."""
    for source in managed_fields_of(live) or ():
        if type(source) is not dict or source.get("apiVersion") != api_version:
            return False
    return True


def _order(source: Object) -> tuple[str, str, str, str, str]:
    return (
        source["operation"],
        source.get("time") or "",
        source["manager"],
        source["apiVersion"],
        source.get("subresource", ""),
    )


def compare_manageable(live: Object | None, new: Object, schema: Schema, reset: Tree) -> tuple[Tree, Tree]:
    """The fields that the new state no longer has, and those that it changed or added, as far as they can be managed and are
    not reset."""
    without = left_out(reset)
    removed, changed = compare(None if live is None else manageable(live, without), manageable(new, without), schema)
    if without.rest:
        return recursive_difference(removed, without.rest), recursive_difference(changed, without.rest)
    return removed, changed


def disowned(
    live: Object | None,
    new: Object,
    entries: Entries,
    schema: Schema,
    api_version: str,
    reset: Tree,
    convert: Convert | None,
) -> tuple[Entries, Tree]:
    """The entries without the fields that were changed, added or removed, and the changed and added fields."""
    comparisons = Comparisons(live, new, schema, api_version, reset, convert)
    left: Entries = {}
    for identity, entry in entries.items():
        comparison = comparisons.in_version(entry.api_version)
        if comparison is None:
            continue
        removed, changed = comparison
        tree = entry.fields
        if changed:
            tree = difference(tree, changed)
        if removed:
            tree = difference(tree, removed)
        if tree:
            left[identity] = entry.with_fields(tree)
    own = comparisons.in_version(api_version)
    assert own is not None
    return left, own[1]


class Comparisons:
    """What differs between two states of an object, in every version in which someone asks."""

    def __init__(
        self,
        live: Object | None,
        new: Object,
        schema: Schema,
        api_version: str,
        reset: Tree,
        convert: Convert | None,
    ) -> None:
        self._live = live
        self._new = new
        self._reset = reset
        self._convert = convert
        own = self._compare(live, new, schema)
        self._own = own
        self._versions: dict[str, tuple[Tree, Tree] | None] = {api_version: own}

    def in_version(self, api_version: str) -> tuple[Tree, Tree] | None:
        """Removed fields, and changed or added ones; None if there is no such version."""
        if api_version not in self._versions:
            self._versions[api_version] = self._other(api_version)
        return self._versions[api_version]

    def _other(self, api_version: str) -> tuple[Tree, Tree] | None:
        if self._convert is None:
            return self._own
        new = self._convert(self._new, api_version)
        live = self._convert(self._live, api_version) if self._live is not None else None
        if new is None or (live is None and self._live is not None):
            return None
        return self._compare(live[0] if live is not None else None, new[0], new[1])

    def _compare(self, live: Object | None, new: Object, schema: Schema) -> tuple[Tree, Tree]:
        return compare_manageable(live, new, schema, self._reset)
