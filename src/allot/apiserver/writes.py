"""Creates and updates: what every write goes through, from the body to the store.

In order: the body is read, judged by the schema and brought into the storage version; the server fills in metadata and notes
who set which fields; admission may change the object; the kind's strategy prepares and validates it, and its sender must be
allowed to write just that; admission may refuse it; the store takes it if nothing else has changed it meanwhile. Dry runs do
all but the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from allot.apiserver import objectmeta
from allot.apiserver.access.write_checks import check_write
from allot.apiserver.admission.attributes import Operation
from allot.apiserver.admission.chain import admission_of
from allot.apiserver.aside import LARGE_BYTES, size_of
from allot.apiserver.bodies import of_its_own, read_object
from allot.apiserver.errors import StatusError, already_exists, bad_request, conflict, forbidden, invalid, not_found
from allot.apiserver.fieldchecks import cannot_be_handled, checked_fields
from allot.apiserver.kinds.ordinary import Ordinary, ordinary_for
from allot.apiserver.kinds.requesters import with_requester
from allot.apiserver.kinds.typed import admin_access_errors, needs_namespace_labels
from allot.apiserver.options import WriteOptions, write_options
from allot.apiserver.ownership import track
from allot.apiserver.parts import Parts
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiObject, ApiRequest, Attributes
from allot.apiserver.resources import Refused
from allot.apiserver.sharing import sharing
from allot.core.access.attributes import refusal
from allot.core.patching.managed import without_new_times
from allot.core.validation.fields import INVALID, FieldError
from allot.store.port import Entry, KeyExists, KeyNotFound, RevisionConflict

Object = dict[str, Any]
Errors = tuple[FieldError, ...]
# From the stored object, None if there is none, to what should be stored, in the version of the row.
Propose = Callable[[Object | None], Object]
# What is proposed as it is after its fields have been checked; what it shares with the stored object, if that is given, is fine.
Check = Callable[[Object, Object | None], Object]

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_GENERATE_ATTEMPTS = 8
_CONFLICT_ATTEMPTS = 5


async def create(parts: Parts, served: Served, request: ApiRequest) -> ApiObject:
    """POST."""
    options = write_options(request.query, request.user_agent, "Create")
    size = size_of(request.body)
    if size > LARGE_BYTES:
        object_, warnings = await parts.aside.run(size, _read_new, parts, served, request, options)
    else:
        object_, warnings = _read_new(parts, served, request, options)
    return await create_object(parts, served, request, object_, options, warnings)


def _read_new(
    parts: Parts, served: Served, request: ApiRequest, options: WriteOptions
) -> tuple[Object, tuple[str, ...]]:
    """The object in a body, and what to warn about."""
    given = of_its_own(read_object(request, served, parts.registry), request.body)
    return checked_fields(given, served, options.field_validation)


async def create_object(
    parts: Parts,
    served: Served,
    request: ApiRequest,
    object_: Object,
    options: WriteOptions,
    warnings: Sequence[str] = (),
    *,
    managed: bool = False,
) -> ApiObject:
    """Store a new object, given in the version of the row. managed: managedFields are as they shall be."""
    resource, strategy = served.resource, served.strategy
    object_ = objectmeta.in_namespace(object_, request.namespace, namespaced=resource.namespaced)
    if objectmeta.text_of(objectmeta.metadata_of(object_), "resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    is_named = bool(objectmeta.text_of(objectmeta.metadata_of(object_), "name"))
    run, size = parts.aside.run, size_of(request.body)
    # Asked here and not left to `run`, which would make this path a tenth slower.
    large = size > LARGE_BYTES
    if large:
        object_, told = await run(size, _new_object, parts, served, object_, options, managed=managed)
    else:
        object_, told = _new_object(parts, served, object_, options, managed=managed)
    admission = admission_of(request, Operation.CREATE, resource, object_, None, dry_run=options.dry_run)
    admitted = await parts.admission.mutate(admission)
    assert admitted is not None, "admission of a create keeps an object"
    try:
        admitted = with_requester(resource, admitted, request.user)
        object_ = await run(size, strategy.prepare_create, admitted) if large else strategy.prepare_create(admitted)
        errors = check_write(parts.authorizer, parts.gates, request, resource, object_, None)
        if needs_namespace_labels(resource, object_, ""):
            errors += await _admin_access_errors(parts, served, request, object_, None, "")
        if served.custom:
            errors += await _validated_aside(strategy.validate_create, object_)
        else:
            validate = strategy.validate_create
            errors += await run(size, validate, object_) if large else validate(object_)
    except Refused as error:
        raise cannot_be_handled(resource.kind, resource.version, str(error)) from None
    if errors:
        raise await run(size, invalid, resource.group, resource.kind, object_["metadata"].get("name", ""), errors)
    warned = await run(size, strategy.warnings, object_) if large else strategy.warnings(object_)
    admission.object = object_
    async with parts.admission.judge(admission):
        entry = await _store_new(parts, served, object_, options, is_named=is_named)
    if resource.idle:
        told = (*told, resource.idle)
    warnings = (*warnings, *told, *warned, *admission.warnings)
    return await run(size, answer, served, entry, 201, warnings) if large else answer(served, entry, 201, warnings)


def _new_object(
    parts: Parts, served: Served, object_: Object, options: WriteOptions, *, managed: bool
) -> tuple[Object, tuple[str, ...]]:
    """What is about to be created, in the storage version, and what to warn about."""
    object_ = objectmeta.new_object(_read(served, object_), parts.clock, parts.ids)
    if not managed:
        object_ = track(parts, served, None, object_, options, "")
    return objectmeta.without_duplicate_owners(object_)


async def _store_new(parts: Parts, served: Served, object_: Object, options: WriteOptions, *, is_named: bool) -> Entry:
    """is_named: the client chose the name itself, so there is no other to be tried."""
    metadata = object_["metadata"]
    generated = bool(metadata.get("generateName")) and not is_named
    for _ in range(_GENERATE_ATTEMPTS):
        key = served.key(metadata.get("namespace", ""), metadata["name"])
        if options.dry_run:
            if await parts.store.get(key) is None:
                return Entry(key, object_, 0)
        else:
            try:
                return await parts.store.create(key, owned(object_))
            except KeyExists as error:
                if not generated:
                    raise _exists(served, error.entry, metadata["name"]) from None
        if not generated:
            raise _exists(served, await parts.store.get(key), metadata["name"])
        object_ = objectmeta.renamed(object_, parts.ids)
        metadata = object_["metadata"]
    error_ = already_exists(served.resource.group, served.resource.plural, metadata["name"])
    text = f"{error_.message}, the server was not able to generate a unique name for the object"
    raise StatusError(409, "AlreadyExists", text, details={**(error_.details or {}), "retryAfterSeconds": 1})


def _exists(served: Served, entry: Entry | None, name: str) -> StatusError:
    error = already_exists(served.resource.group, served.resource.plural, name)
    if entry is not None and entry.object["metadata"].get("deletionTimestamp"):
        error.message = f"object is being deleted: {error.message}"
    return error


# --- updates ---


async def update(parts: Parts, served: Served, request: ApiRequest, subresource: str = "") -> ApiObject:
    """PUT of an object or of a subresource that has the object's shape."""
    options = write_options(request.query, request.user_agent, "Update")

    def read() -> Object:
        value = read_object(request, served, parts.registry)
        return of_its_own(value, request.body) if served.convert_needed else value

    given = await parts.aside.run(size_of(request.body), read)
    warnings: list[str] = []

    def check(object_: Object, old: Object | None) -> Object:
        object_, warnings[:] = checked_fields(object_, served, options.field_validation, old)
        object_ = objectmeta.in_namespace(object_, request.namespace, namespaced=served.resource.namespaced)
        objectmeta.check_name(object_, request.name)
        return object_

    return await replace_object(
        parts, served, request, lambda _: given, options, warnings, check=check, subresource=subresource
    )


async def replace_object(
    parts: Parts,
    served: Served,
    request: ApiRequest,
    propose: Propose,
    options: WriteOptions,
    warnings: Sequence[str] = (),
    *,
    check: Check | None = None,
    subresource: str = "",
    managed: bool = False,
    creates: bool = False,
    status: int = 200,
) -> ApiObject:
    """Store what is proposed in place of what is there; tries again when somebody else was faster. check: None if what is
    proposed has been checked. creates: whether what is not there is created in any case (apply). warnings may grow until
    the object is stored."""
    resource = served.resource
    key = served.key(request.namespace, request.name)
    for _ in range(_CONFLICT_ATTEMPTS):
        entry = await parts.store.get(key)
        if entry is None:
            return await _create_by_update(
                parts,
                served,
                request,
                propose,
                options,
                warnings,
                check=check,
                managed=managed,
                allowed=creates,
                subresource=subresource,
            )
        try:
            return await _replace_once(
                parts,
                served,
                request,
                entry,
                propose,
                options,
                warnings,
                subresource,
                check=check,
                managed=managed,
                status=status,
            )
        except (RevisionConflict, KeyNotFound):
            # Once more, from the newest state: whoever said which version is meant then learns that it is gone.
            continue
    raise conflict(resource.group, resource.plural, request.name, MODIFIED)


async def _create_by_update(
    parts: Parts,
    served: Served,
    request: ApiRequest,
    propose: Propose,
    options: WriteOptions,
    warnings: Sequence[str],
    *,
    check: Check | None,
    managed: bool,
    allowed: bool,
    subresource: str,
) -> ApiObject:
    resource = served.resource
    refused = bool(subresource) or not (allowed or resource.create_on_update)
    if refused and managed:
        raise not_found(resource.group, resource.plural, request.name)

    def make() -> Object:
        made = propose(None)
        return made if check is None else check(made, None)

    proposed = await parts.aside.run(size_of(request.body), make)
    if refused:
        # What is wrong with the body was told first.
        raise not_found(resource.group, resource.plural, request.name)
    metadata = objectmeta.metadata_of(proposed)
    if uid := objectmeta.text_of(metadata, "uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(resource.group, resource.plural, request.name, why)
    if objectmeta.text_of(metadata, "resourceVersion") not in ("", "0"):
        raise not_found(resource.group, resource.plural, request.name)
    attributes = Attributes(
        user=request.user,
        verb="create",
        group=resource.group,
        version=resource.version,
        resource=resource.plural,
        namespace=request.namespace,
        name=request.name,
    )
    decision = parts.authorizer.authorize(attributes)
    if not decision.allowed:
        raise forbidden(resource.group, resource.plural, request.name, refusal(attributes, decision.reason))
    return await create_object(parts, served, request, proposed, options, warnings, managed=managed)


async def _replace_once(
    parts: Parts,
    served: Served,
    request: ApiRequest,
    entry: Entry,
    propose: Propose,
    options: WriteOptions,
    warnings: Sequence[str],
    subresource: str,
    *,
    check: Check | None,
    managed: bool,
    status: int,
) -> ApiObject:
    resource, strategy, old = served.resource, served.strategy, entry.object
    run, size = parts.aside.run, max(size_of(request.body), entry.size_bytes)

    def change() -> tuple[Object, tuple[str, ...], Ordinary | None]:
        object_, ordinary = _changed(served, request, old, propose(old), subresource, check=check, managed=managed)
        object_ = _with_version(served, object_, entry, request.name)
        if not managed:
            object_ = track(parts, served, old, object_, options, subresource)
        return *objectmeta.without_duplicate_owners(object_), ordinary

    large = size > LARGE_BYTES
    object_, told, ordinary = await run(size, change) if large else change()
    admission = admission_of(
        request, Operation.UPDATE, resource, object_, old, subresource=subresource, dry_run=options.dry_run
    )
    admitted = await parts.admission.mutate(admission)
    assert admitted is not None, "admission of an update keeps an object"
    stored = ordinary.stored(object_, old, subresource) if ordinary is not None and admitted is object_ else None
    try:
        if stored is not None:
            object_ = stored
        elif large:
            object_ = await run(size, strategy.prepare_update, admitted, old, subresource)
        else:
            object_ = strategy.prepare_update(admitted, old, subresource)
        errors = check_write(parts.authorizer, parts.gates, request, resource, object_, old, subresource)
        if needs_namespace_labels(resource, object_, subresource):
            errors += await _admin_access_errors(parts, served, request, object_, old, subresource)
        if stored is None:
            if served.custom:
                errors += await _validated_aside(strategy.validate_update, object_, old, subresource)
            else:
                validate = strategy.validate_update
                judged = (object_, old, subresource)
                errors += await run(size, validate, *judged) if large else validate(*judged)
    except Refused as error:
        raise cannot_be_handled(resource.kind, resource.version, str(error)) from None
    if errors:
        raise await run(size, invalid, resource.group, resource.kind, request.name, errors)
    warned = await run(size, strategy.warnings, object_) if large else strategy.warnings(object_)
    warnings = (*warnings, *told, *warned)
    admission.object = object_
    async with parts.admission.judge(admission):
        written = await _store_changed(parts, entry, object_, options)
    warnings = (*warnings, *admission.warnings)
    if large:
        return await run(size, answer, served, written, status, warnings)
    return answer(served, written, status, warnings)


def _changed(
    served: Served,
    request: ApiRequest,
    old: Object,
    proposed: Object,
    subresource: str,
    *,
    check: Check | None,
    managed: bool,
) -> tuple[Object, Ordinary | None]:
    """What is proposed, checked, in the storage version and with what the server fills in; and what recognized it as
    ordinary, if anything did."""
    resource = served.resource
    # Where versions differ, nothing is shared.
    same_version = not served.convert_needed
    if same_version:
        proposed = sharing(proposed, old)
    ordinary = ordinary_for(resource) if same_version and type(proposed) is dict else None
    if ordinary is not None and (managed or _keeps_managers(proposed, old)):
        object_ = objectmeta.changed_object(proposed, old)
        if ordinary.recognizes(object_, old, subresource):
            return object_, ordinary
    if check is not None:
        proposed = check(proposed, old if same_version else None)
    proposed = objectmeta.in_namespace(proposed, request.namespace, namespaced=resource.namespaced)
    return objectmeta.changed_object(_read(served, proposed), old), None


async def _validated_aside(validate: Callable[..., Errors], *arguments: Any) -> Errors:
    """Field errors of custom resources. Their schemas and rules are written by users, and may take their time: others are
    served meanwhile."""
    return await asyncio.to_thread(validate, *arguments)


def _keeps_managers(proposed: Object, old: Object) -> bool:
    """Whether there is metadata, and nothing in it says who manages what but what was there."""
    metadata = proposed.get("metadata")
    if not isinstance(metadata, dict):
        return False
    return "managedFields" not in metadata or metadata["managedFields"] is old["metadata"].get("managedFields")


async def _store_changed(parts: Parts, entry: Entry, object_: Object, options: WriteOptions) -> Entry:
    if _is_unchanged(object_, entry.object):
        # No revision is used up and nobody is woken.
        return entry
    if options.dry_run:
        return Entry(entry.key, object_, entry.revision)
    if is_gone(object_):
        # The last finalizer went: the deletion that waited for it happens now, in place of the update.
        deleted = await parts.store.delete(entry.key, entry.revision)
        return Entry(entry.key, at_revision(object_, deleted.revision), deleted.revision)
    return await parts.store.update(entry.key, owned(object_), entry.revision)


def _is_unchanged(object_: Object, old: Object) -> bool:
    """Whether nothing differs but, perhaps, the times at which managers wrote what was there already."""
    if object_ == old:
        return True
    if {**object_, "metadata": None} != {**old, "metadata": None}:
        return False
    managed = without_new_times(old, object_["metadata"].get("managedFields"))
    if managed is not old["metadata"].get("managedFields"):
        return False
    return bool({**object_["metadata"], "managedFields": managed} == old["metadata"])


def is_gone(object_: Object) -> bool:
    """Whether nothing holds back the deletion of the object any more."""
    metadata = object_["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if metadata.get("deletionGracePeriodSeconds"):
        return False
    # A namespace has finalizers of its own, for what is in it.
    return object_["kind"] != "Namespace" or not (object_.get("spec") or {}).get("finalizers")


def _with_version(served: Served, object_: Object, entry: Entry, name: str) -> Object:
    """The object at the version that it replaces; 409 if it was made from another one, 422 if it must say it and does not."""
    resource, metadata = served.resource, object_["metadata"]
    uid, stored_uid = objectmeta.text_of(metadata, "uid"), entry.object["metadata"].get("uid", "")
    if uid != stored_uid:
        why = (
            f"StorageError: invalid object, Code: 4, Key: {entry.key}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored_uid}"
        )
        raise conflict(resource.group, resource.plural, name, why)
    version = objectmeta.text_of(metadata, "resourceVersion")
    current = entry.object["metadata"]["resourceVersion"]
    if version == current:
        return object_
    if version in ("", "0"):
        if not resource.unconditional_update:
            text = "Invalid value: 0: must be specified for an update"
            raise invalid(resource.group, resource.kind, name, [FieldError("metadata.resourceVersion", INVALID, text)])
        return {**object_, "metadata": {**metadata, "resourceVersion": current}}
    if not version.isdigit():
        text = f'Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
        raise invalid(resource.group, resource.kind, name, [FieldError("metadata.resourceVersion", INVALID, text)])
    raise conflict(resource.group, resource.plural, name, MODIFIED)


# --- both ---


def _read(served: Served, object_: Object) -> Object:
    resource = served.resource
    try:
        return served.strategy.read(object_)
    except Refused as error:
        raise cannot_be_handled(resource.kind, resource.version, str(error)) from None


async def _admin_access_errors(
    parts: Parts, served: Served, request: ApiRequest, object_: Object, old: Object | None, subresource: str
) -> tuple[FieldError, ...]:
    """Whether the namespace of a claim allows it to use devices that others use."""
    namespaces = parts.registry.storage_row("", "namespaces")
    assert namespaces is not None, "namespaces are served"
    entry = await parts.store.get(namespaces.key("", request.namespace))
    labels = (entry.object["metadata"].get("labels") or {}) if entry is not None else {}
    return admin_access_errors(served.resource, object_, old, subresource, labels)


def owned(object_: Object) -> Object:
    """An object that the store may stamp: its outermost parts are nobody else's. Its type comes first, so that lists find
    it at the beginning of the JSON."""
    names = iter(object_)
    if next(names) == "apiVersion" and next(names) == "kind" and next(names) == "metadata":
        return {**object_, "metadata": {**object_["metadata"]}}
    head = {"apiVersion": object_["apiVersion"], "kind": object_["kind"], "metadata": {**object_["metadata"]}}
    return head | {name: value for name, value in object_.items() if name not in head}


def at_revision(object_: Object, revision: int) -> Object:
    """The object with this resourceVersion."""
    return {**object_, "metadata": {**object_["metadata"], "resourceVersion": str(revision)}}


def answer(served: Served, entry: Entry, status: int, warnings: tuple[str, ...] = ()) -> ApiObject:
    """A stored object as an answer, in the version of the row."""
    if served.resource.warning:
        warnings = (served.resource.warning, *warnings)
    shown = served.present_entry(entry)
    if warnings:
        warnings = tuple(dict.fromkeys(warnings))
    return ApiObject(object=shown.object, status=status, entry=shown, warnings=warnings)
