"""The last step of every write: stores the object and builds the answer."""

from __future__ import annotations

from typing import Any

from allot.apiserver.errors import StatusError, already_exists
from allot.apiserver.objects import objectmeta
from allot.apiserver.registry import Served, run_for
from allot.apiserver.request import ApiObject
from allot.apiserver.server_context import ServerContext
from allot.core.patching.managed import without_new_times
from allot.store.port import Entry, KeyExists

Object = dict[str, Any]

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_GENERATE_ATTEMPTS = 8


async def store_new(context: ServerContext, served: Served, object_: Object, *, dry_run: bool, is_named: bool) -> Entry:
    """Store a new object; 409 if there is one of that name. is_named: the client chose the name, so no other name is tried."""
    metadata = object_["metadata"]
    generated = bool(metadata.get("generateName")) and not is_named
    for _ in range(_GENERATE_ATTEMPTS):
        key = served.key(metadata.get("namespace", ""), metadata["name"])
        if dry_run:
            if await context.store.get(key) is None:
                return Entry(key, object_, 0)
        else:
            try:
                return await context.store.create(key, owned(object_))
            except KeyExists as error:
                if not generated:
                    raise _exists(served, error.entry, metadata["name"]) from None
        if not generated:
            raise _exists(served, await context.store.get(key), metadata["name"])
        object_ = objectmeta.renamed(object_, context.ids)
        metadata = object_["metadata"]
    error_ = already_exists(served.resource.group, served.resource.plural, metadata["name"])
    text = f"{error_.message}, the server was not able to generate a unique name for the object"
    raise StatusError(409, "AlreadyExists", text, details={**(error_.details or {}), "retryAfterSeconds": 1})


def _exists(served: Served, entry: Entry | None, name: str) -> StatusError:
    error = already_exists(served.resource.group, served.resource.plural, name)
    if entry is not None and entry.object["metadata"].get("deletionTimestamp"):
        error.message = f"object is being deleted: {error.message}"
    return error


async def store_changed(
    context: ServerContext, served: Served, entry: Entry, object_: Object, *, dry_run: bool
) -> Entry:
    """Replace an entry with an object; RevisionConflict or KeyNotFound if the entry has changed or is gone."""
    if _is_unchanged(object_, entry.object):
        # No revision is used and no watch is triggered.
        return entry
    if dry_run:
        return Entry(entry.key, object_, entry.revision)
    if is_gone(served, object_):
        # The last finalizer is gone: the deletion that waited for it happens now, instead of the update.
        deleted = await context.store.delete(entry.key, entry.revision)
        return Entry(entry.key, at_revision(object_, deleted.revision), deleted.revision)
    return await context.store.update(entry.key, owned(object_), entry.revision)


def _is_unchanged(object_: Object, old: Object) -> bool:
    """Whether nothing differs, except perhaps the times at which managers wrote unchanged fields."""
    if object_ == old:
        return True
    if {**object_, "metadata": None} != {**old, "metadata": None}:
        return False
    managed = without_new_times(old, object_["metadata"].get("managedFields"))
    if managed is not old["metadata"].get("managedFields"):
        return False
    return bool({**object_["metadata"], "managedFields": managed} == old["metadata"])


def is_gone(served: Served, object_: Object) -> bool:
    """Whether nothing holds back the object's deletion any longer."""
    metadata = object_["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds") and not served.strategy.is_held(object_)


def owned(object_: Object) -> Object:
    """An object that the store may stamp: its outermost parts are not shared. Its type comes first, so that lists find
    it at the beginning of the JSON."""
    names = iter(object_)
    if next(names) == "apiVersion" and next(names) == "kind" and next(names) == "metadata":
        return {**object_, "metadata": {**object_["metadata"]}}
    head = {"apiVersion": object_["apiVersion"], "kind": object_["kind"], "metadata": {**object_["metadata"]}}
    return head | {name: value for name, value in object_.items() if name not in head}


def at_revision(object_: Object, revision: int) -> Object:
    """The object with this resourceVersion."""
    return {**object_, "metadata": {**object_["metadata"], "resourceVersion": str(revision)}}


async def shown(served: Served, entry: Entry, status: int, warnings: tuple[str, ...] = ()) -> ApiObject:
    """A stored object as an answer, converted if necessary."""
    return await run_for(served, answer, served, entry, status, warnings)


def answer(served: Served, entry: Entry, status: int, warnings: tuple[str, ...] = ()) -> ApiObject:
    """A stored object as an answer, in the version of the row."""
    if served.resource.warning:
        warnings = (served.resource.warning, *warnings)
    presented = served.present_entry(entry)
    if warnings:
        warnings = tuple(dict.fromkeys(warnings))
    return ApiObject(object=presented.object, status=status, entry=presented, warnings=warnings)
