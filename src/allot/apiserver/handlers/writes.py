"""The write path: what every create, update, patch and apply goes through, from the body to the store.

A `Write` is one request with its `Change`: how the verb derives an object from the body and the stored one. Its stages, always
in this order:

1. draft (pure): the body is read, its fields are checked, it is merged with what is stored and brought into the storage
   version; the server fills in metadata and records who set which fields;
2. admission that changes the object;
3. judgement (pure): the kind's strategy prepares and validates the object;
4. what the sender needs besides the permission to write: the privilege escalation check;
5. admission that refuses, around the store, which takes the object if nothing else has changed it meanwhile. If something
   has, an update starts over from what is stored now. A dry run leaves out the store.

Pure stages of large requests run outside the event loop; small ones pay one comparison for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Operation
from allot.apiserver.admission.chain import admission_of
from allot.apiserver.aside import LARGE_BYTES, size_of
from allot.apiserver.errors import StatusError, bad_request, conflict, invalid, not_found
from allot.apiserver.handlers.storing import MODIFIED, answer, store_changed, store_new
from allot.apiserver.objects import objectmeta
from allot.apiserver.objects.bodies import of_its_own, read_object
from allot.apiserver.objects.fieldchecks import cannot_be_handled, checked_fields
from allot.apiserver.objects.options import WriteOptions, write_options
from allot.apiserver.objects.ownership import track
from allot.apiserver.objects.sharing import sharing
from allot.apiserver.registry import Beside, Served
from allot.apiserver.request import ApiObject, ApiRequest, Attributes
from allot.apiserver.resources import Refused
from allot.apiserver.server_context import ServerContext
from allot.core.validation.fields import INVALID, FieldError
from allot.store.port import Entry, KeyNotFound, RevisionConflict

Object = dict[str, Any]
Errors = tuple[FieldError, ...]
# An object, and warnings for its sender.
Warned = tuple[Object, tuple[str, ...]]

_CONFLICT_ATTEMPTS = 5


class Change(msgspec.Struct, frozen=True):
    """How a verb derives an object. Pure functions: they are called again after a conflict, and outside the event loop."""

    # From the stored object, None if there is none, to what should be stored, in the version of the row.
    propose: Callable[[Write, Object | None], Warned]
    # The proposed object after a check of its fields; what it shares with the stored object, if given, is skipped.
    # None if `propose` includes that.
    check: Callable[[Write, Object, Object | None], Warned] | None = None
    # Whether proposals say in managedFields who owns what (apply).
    managed: bool = False
    # Whether missing objects are created, for every kind (apply).
    creates: bool = False


class Write(msgspec.Struct, frozen=True):
    """A write in progress."""

    context: ServerContext
    served: Served
    request: ApiRequest
    options: WriteOptions
    change: Change
    subresource: str = ""

    def not_found(self) -> StatusError:
        """404 for the object."""
        resource = self.served.resource
        return not_found(resource.group, resource.plural, self.request.name)

    def conflict(self, why: str) -> StatusError:
        """409 for the object."""
        resource = self.served.resource
        return conflict(resource.group, resource.plural, self.request.name, why)

    def invalid(self, errors: Errors, name: str) -> StatusError:
        """422 with field errors."""
        resource = self.served.resource
        return invalid(resource.group, resource.kind, name, errors)


class _Draft(msgspec.Struct, frozen=True):
    """The object of a write before admission: in the storage version, with what the server fills in."""

    object: Object
    warnings: tuple[str, ...]
    # Whether the client chose the name of a new object.
    is_named: bool = True
    # Whether the client gave a new object a resourceVersion, which only stored objects have.
    has_version: bool = False
    # Whether the kind's fast path accepted the update.
    took_fast_path: bool = False


# --- verbs ---


async def create(context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
    """POST."""
    options = write_options(request.query, request.user_agent, "Create")
    return await _written(Write(context, served, request, options, _POST), None)


async def update(context: ServerContext, served: Served, request: ApiRequest, subresource: str = "") -> ApiObject:
    """PUT of an object or of a subresource that has the object's shape."""
    options = write_options(request.query, request.user_agent, "Update")
    return await replace(Write(context, served, request, options, _PUT, subresource))


async def replace(write: Write) -> ApiObject:
    """Apply the change to the stored object; retries if another writer was faster."""
    key = write.served.key(write.request.namespace, write.request.name)
    for _ in range(_CONFLICT_ATTEMPTS):
        entry = await write.context.store.get(key)
        try:
            return await _written(write, entry)
        except (RevisionConflict, KeyNotFound):
            # Again, from the newest state: a client that named a version then learns that it is outdated.
            continue
    raise write.conflict(MODIFIED)


def _posted(write: Write, stored: Object | None) -> Warned:  # noqa: ARG001
    request, served = write.request, write.served
    given = of_its_own(read_object(request, served, write.context.registry), request.body)
    return checked_fields(given, served, write.options.field_validation)


def _put(write: Write, stored: Object | None) -> Warned:
    request, served = write.request, write.served
    given = read_object(request, served, write.context.registry)
    # In the same version, the stored object's parts are shared with the given one, and the rest is copied.
    return of_its_own(given, request.body) if stored is None or served.convert_needed else given, ()


def _checked_put(write: Write, proposed: Object, old: Object | None) -> Warned:
    request, served = write.request, write.served
    proposed, warnings = checked_fields(proposed, served, write.options.field_validation, old)
    proposed = objectmeta.in_namespace(proposed, request.namespace, namespaced=served.resource.namespaced)
    objectmeta.check_name(proposed, request.name)
    return proposed, warnings


_POST = Change(_posted)
_PUT = Change(_put, _checked_put)


# --- stages ---


async def _written(write: Write, entry: Entry | None) -> ApiObject:
    """One attempt to write, replacing an entry or, if there is none, creating an object."""
    context, served, request, options = write.context, write.served, write.request, write.options
    size, subresource = size_of(request.body), write.subresource
    if entry is None:
        old, drafted, operation, status = None, _new, Operation.CREATE, 201
    else:
        old, drafted, operation, status = entry.object, _changed, Operation.UPDATE, 200
        size = max(size, entry.size_bytes)
    large, base = size > LARGE_BYTES, entry
    run: Callable[..., Awaitable[Any]] = context.aside.run
    if served.beside is not None:
        # A webhook converts versions wherever needed: none of that may run in the event loop.
        run, large = _beside(served.beside), True
        if entry is not None:
            old = await served.beside.run(served.strategy.current, entry.object)
            base = Entry(entry.key, old, entry.revision)
    # Inlined: a function call here would make small writes a tenth slower.
    draft = await run(size, drafted, write, base) if large else drafted(write, base)
    if old is None and request.verb != "create":
        context.authorizer.check(_creation(write))
    admission = admission_of(
        request,
        operation,
        served.resource,
        draft.object,
        old,
        subresource=subresource,
        dry_run=options.dry_run,
    )
    admitted = await context.admission.mutate(admission)
    assert admitted is not None, "admission of a write keeps an object"
    if served.custom and served.beside is None:
        # Their schemas and rules are written by users and may be slow: others are served meanwhile.
        object_, errors, warned = await asyncio.to_thread(_judged, write, draft, admitted, old)
    elif large:
        object_, errors, warned = await run(size, _judged, write, draft, admitted, old)
    else:
        object_, errors, warned = _judged(write, draft, admitted, old)
    write_check = served.strategy.write_check
    if write_check is not None:
        errors = await write_check(context, request, object_, old, subresource) + errors
    if errors:
        name = request.name or object_["metadata"].get("name", "")
        raise await run(size, write.invalid, errors, name)
    admission.object = object_
    async with context.admission.judge(admission):
        if draft.has_version:
            # Upstream's storage reports this, so a policy that also refuses the object comes first.
            raise bad_request("resourceVersion should not be set on objects to be created")
        if entry is None:
            stored = await store_new(context, served, object_, dry_run=options.dry_run, is_named=draft.is_named)
        else:
            stored = await store_changed(context, served, entry, object_, dry_run=options.dry_run)
    warnings = (*draft.warnings, *warned, *admission.warnings)
    return (
        await run(size, answer, served, stored, status, warnings) if large else answer(served, stored, status, warnings)
    )


def _beside(beside: Beside) -> Callable[..., Awaitable[Any]]:
    """Replaces the thread for large requests, which must not wait."""
    return lambda _, work, *arguments: beside.run(work, *arguments)


def _new(write: Write, entry: Entry | None) -> _Draft:  # noqa: ARG001
    """A new object."""
    context, served, change, request = write.context, write.served, write.change, write.request
    resource = served.resource
    object_, warnings = change.propose(write, None)
    if change.check is not None:
        object_, more = change.check(write, object_, None)
        warnings += more
    if request.verb != "create":
        _check_may_be_new(write, object_)
    object_ = objectmeta.in_namespace(object_, request.namespace, namespaced=resource.namespaced)
    metadata = objectmeta.metadata_of(object_)
    is_named, has_version = (bool(objectmeta.text_of(metadata, each)) for each in ("name", "resourceVersion"))
    object_ = objectmeta.new_object(_read(served, object_), context.clock, context.ids)
    if not change.managed:
        object_ = track(context, served, None, object_, write.options, "")
    object_, told = objectmeta.without_duplicate_owners(object_)
    return _Draft(object_, (*warnings, *told) if told else warnings, is_named, has_version)


def _check_may_be_new(write: Write, proposed: Object) -> None:
    """404 or 409 unless an update may create the proposed object."""
    if write.subresource or not (write.change.creates or write.served.resource.create_on_update):
        raise write.not_found()
    metadata = objectmeta.metadata_of(proposed)
    if uid := objectmeta.text_of(metadata, "uid"):
        raise write.conflict(f"uid mismatch: the provided object specified uid {uid}, and no existing object was found")
    if objectmeta.text_of(metadata, "resourceVersion") not in ("", "0"):
        raise write.not_found()


def _creation(write: Write) -> Attributes:
    """The create that an update amounts to if there is nothing to update."""
    resource, request = write.served.resource, write.request
    return Attributes(
        user=request.user,
        verb="create",
        group=resource.group,
        version=resource.version,
        resource=resource.plural,
        namespace=request.namespace,
        name=request.name,
    )


def _changed(write: Write, entry: Entry | None) -> _Draft:
    """An object that replaces another."""
    assert entry is not None, "there is something to change"
    served, old = write.served, entry.object
    object_, warnings, took_fast_path = _merged(write, old)
    object_ = _with_version(write, object_, entry)
    if not write.change.managed:
        object_ = track(write.context, served, old, object_, write.options, write.subresource)
    object_, told = objectmeta.without_duplicate_owners(object_)
    return _Draft(object_, (*warnings, *told) if told else warnings, took_fast_path=took_fast_path)


def _merged(write: Write, old: Object) -> tuple[Object, tuple[str, ...], bool]:
    """The proposed object, checked, in the storage version and completed from the stored one; warnings; and whether it took the fast
    path."""
    served, change = write.served, write.change
    proposed, warnings = change.propose(write, old)
    # Where versions differ, nothing is shared.
    same_version = not served.convert_needed
    if same_version:
        proposed = sharing(proposed, old)
        fast_path = served.strategy.fast_path
        if fast_path is not None and type(proposed) is dict and (change.managed or _keeps_managers(proposed, old)):
            object_ = objectmeta.changed_object(proposed, old)
            if fast_path.accepts(object_, old, write.subresource):
                return object_, warnings, True
    if change.check is not None:
        proposed, more = change.check(write, proposed, old if same_version else None)
        warnings += more
    proposed = objectmeta.in_namespace(proposed, write.request.namespace, namespaced=served.resource.namespaced)
    return objectmeta.changed_object(_read(served, proposed), old), warnings, False


def _keeps_managers(proposed: Object, old: Object) -> bool:
    """Whether there is metadata, with managedFields absent or unchanged."""
    metadata = proposed.get("metadata")
    if not isinstance(metadata, dict):
        return False
    return "managedFields" not in metadata or metadata["managedFields"] is old["metadata"].get("managedFields")


def _with_version(write: Write, object_: Object, entry: Entry) -> Object:
    """The object at the version that it replaces; 409 if it is based on another one, 422 if it omits a required version."""
    metadata = object_["metadata"]
    uid, stored_uid = objectmeta.text_of(metadata, "uid"), entry.object["metadata"].get("uid", "")
    if uid != stored_uid:
        why = (
            f"StorageError: invalid object, Code: 4, Key: {entry.key}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored_uid}"
        )
        raise write.conflict(why)
    version = objectmeta.text_of(metadata, "resourceVersion")
    current = entry.object["metadata"]["resourceVersion"]
    if version == current:
        return object_
    if version in ("", "0"):
        if not write.served.resource.unconditional_update:
            raise _bad_version(write, "0", "must be specified for an update")
        return {**object_, "metadata": {**metadata, "resourceVersion": current}}
    if not version.isdigit():
        raise _bad_version(write, f'"{version}"', f'strconv.ParseUint: parsing "{version}": invalid syntax')
    raise write.conflict(MODIFIED)


def _bad_version(write: Write, value: str, why: str) -> StatusError:
    error = FieldError("metadata.resourceVersion", INVALID, f"Invalid value: {value}: {why}")
    return write.invalid((error,), write.request.name)


def _read(served: Served, object_: Object) -> Object:
    try:
        return served.strategy.read(object_)
    except Refused as error:
        raise cannot_be_handled(served.resource.kind, served.resource.version, str(error)) from None


def _judged(
    write: Write, draft: _Draft, admitted: Object, old: Object | None
) -> tuple[Object, Errors, tuple[str, ...]]:
    """The admitted object as stored, its field errors, and warnings if there are none."""
    strategy, subresource = write.served.strategy, write.subresource
    try:
        if old is None:
            object_ = strategy.prepare_create(strategy.with_requester(admitted, write.request.user))
            errors = strategy.validate_create(object_)
        else:
            fast_path = strategy.fast_path if draft.took_fast_path and admitted is draft.object else None
            stored = None if fast_path is None else fast_path.stored(admitted, old, subresource)
            if stored is not None:
                return stored, (), strategy.warnings(stored)
            object_ = strategy.prepare_update(admitted, old, subresource)
            errors = strategy.validate_update(object_, old, subresource)
    except Refused as error:
        resource = write.served.resource
        raise cannot_be_handled(resource.kind, resource.version, str(error)) from None
    if errors:
        return object_, errors, ()
    dropped = strategy.dropped(admitted, object_, old, subresource)
    return object_, (), (*strategy.warnings(object_), *dropped) if dropped else strategy.warnings(object_)
