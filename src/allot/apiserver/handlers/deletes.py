"""Deletions: at once, after a grace period, or when the last finalizer is gone.

An object that is still needed gets a deletionTimestamp instead of being removed; its holder removes the
finalizer, or for pods deletes it again without grace. Dependents are left to the garbage collector,
which finalizers instruct.
"""

from __future__ import annotations

from typing import Any

from allot.apiserver.admission.attributes import Operation
from allot.apiserver.admission.chain import admission_of
from allot.apiserver.aside import size_of
from allot.apiserver.errors import StatusError, bad_request, conflict, not_found
from allot.apiserver.handlers.lists import list_objects
from allot.apiserver.handlers.storing import MODIFIED, at_revision, is_gone, owned, shown
from allot.apiserver.objects.bodies import read_value
from allot.apiserver.objects.options import DeleteOptions, delete_options, list_options
from allot.apiserver.objects.selection import selection
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiList, ApiObject, ApiRequest
from allot.apiserver.server_context import ServerContext
from allot.process.clock import rfc3339
from allot.store.port import Entry, KeyNotFound, RevisionConflict

Object = dict[str, Any]

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_ATTEMPTS = 5
_JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def read_options(request: ApiRequest) -> DeleteOptions:
    """The options of a deletion, from body or query."""
    body = None
    if request.body:
        body = read_value(request.body, request.content_type)
        if body is not None and not isinstance(body, dict):
            raise bad_request("decoded object cannot be converted to DeleteOptions")
    return delete_options(request.query, body)


async def delete(context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
    """DELETE of one object."""
    options = await context.aside.run(size_of(request.body), read_options, request)
    return await delete_object(context, served, request, options)


async def delete_object(
    context: ServerContext, served: Served, request: ApiRequest, options: DeleteOptions
) -> ApiObject:
    """Delete as requested; returns what is left of the object, or a Status if nothing is."""
    resource = served.resource
    key = served.key(request.namespace, request.name)
    for _ in range(_ATTEMPTS):
        entry = await context.store.get(key)
        if entry is None:
            raise not_found(resource.group, resource.plural, request.name)
        check_preconditions(served, entry, options)
        admission = admission_of(
            request,
            Operation.DELETE,
            resource,
            None,
            entry.object,
            dry_run=options.dry_run,
            options=_as_object(options),
        )
        await context.admission.mutate(admission)
        try:
            async with context.admission.judge(admission):
                left, removed = await _delete_once(context, served, entry, options)
        except RevisionConflict:
            continue
        except KeyNotFound:
            raise not_found(resource.group, resource.plural, request.name) from None
        warnings = (*_deletion_warnings(served, options), *admission.warnings)
        return await _answer(served, left, options, removed=removed, warnings=warnings)
    raise conflict(resource.group, resource.plural, request.name, MODIFIED)


def check_preconditions(served: Served, entry: Entry, options: DeleteOptions) -> None:
    """Refuse a deletion meant for another object, or another state of it."""
    resource, metadata = served.resource, entry.object["metadata"]
    why = ""
    if options.uid and options.uid != metadata.get("uid"):
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata.get('uid')}). "
            "The object might have been deleted and then recreated"
        )
    elif options.resource_version and options.resource_version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion in "
            f"record ({metadata['resourceVersion']}). The object might have been modified"
        )
    if why:
        raise conflict(resource.group, resource.kind, metadata["name"], why)


async def _delete_once(
    context: ServerContext, served: Served, entry: Entry, options: DeleteOptions
) -> tuple[Entry, bool]:
    """What is left of the object, and whether it was removed."""
    marked = marked_for_deletion(served, entry.object, options, int(context.clock.seconds()))
    if not is_gone(served, marked):
        if marked is entry.object:
            return entry, False
        if options.dry_run:
            return Entry(entry.key, marked, entry.revision), False
        return await context.store.update(entry.key, owned(marked), entry.revision), False
    if options.dry_run:
        return Entry(entry.key, marked, entry.revision), True
    deleted = await context.store.delete(entry.key, entry.revision)
    if served.resource.returns_deleted:
        return Entry(entry.key, at_revision(marked, deleted.revision), deleted.revision), True
    return deleted, True


def _deletion_warnings(served: Served, options: DeleteOptions) -> tuple[str, ...]:
    if served.resource.kind != "Job" or not served.resource.orphans_dependents or _specifies_dependents(options):
        return ()
    return (_JOB_WARNING,)


def _specifies_dependents(options: DeleteOptions) -> bool:
    """Whether the options specify what happens to dependents."""
    return options.orphan_dependents is not None or bool(options.propagation_policy)


def marked_for_deletion(served: Served, object_: Object, options: DeleteOptions, now: int) -> Object:
    """The object with a deletion's changes; the same object if there are none."""
    strategy = served.strategy
    metadata = dict(object_["metadata"])
    finalizers = _finalizers(metadata.get("finalizers") or [], options, orphans=served.resource.orphans_dependents)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if "deletionTimestamp" not in metadata:
        grace = strategy.grace_s(object_, options.grace_period_seconds)
        metadata["deletionTimestamp"] = rfc3339(now + grace)
        metadata["deletionGracePeriodSeconds"] = grace
        if metadata.get("generation"):
            metadata["generation"] += 1
    marked = strategy.prepare_delete({**object_, "metadata": metadata}, object_, options.grace_period_seconds, now)
    return object_ if marked == object_ else marked


def _finalizers(present: list[str], options: DeleteOptions, *, orphans: bool) -> list[str]:
    """The finalizers that tell the garbage collector how to treat dependents. orphans: keep them by default."""
    if not _specifies_dependents(options):
        is_said = ORPHAN in present or FOREGROUND in present
        return [*present, ORPHAN] if orphans and not is_said else present
    if options.orphan_dependents is not None:
        wanted = ORPHAN if options.orphan_dependents else ""
    else:
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(options.propagation_policy or "", "")
    kept = [finalizer for finalizer in present if finalizer not in (ORPHAN, FOREGROUND)]
    return [*kept, wanted] if wanted else kept


def _as_object(options: DeleteOptions) -> Object:
    """The options as policies see them."""
    told: Object = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    if options.grace_period_seconds is not None:
        told["gracePeriodSeconds"] = options.grace_period_seconds
    if options.propagation_policy:
        told["propagationPolicy"] = options.propagation_policy
    if options.dry_run:
        told["dryRun"] = ["All"]
    return told


async def _answer(
    served: Served, left: Entry, options: DeleteOptions, *, removed: bool, warnings: tuple[str, ...]
) -> ApiObject:
    resource = served.resource
    if not removed or resource.returns_deleted:
        return await shown(served, left, 202 if not removed and options.orphan_dependents is False else 200, warnings)
    metadata = left.object["metadata"]
    details = {
        "name": metadata["name"],
        "group": resource.group,
        "kind": resource.plural,
        "uid": metadata.get("uid", ""),
    }
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {name: value for name, value in details.items() if value},
    }
    return ApiObject(object=status, warnings=warnings)


# --- collections ---


async def delete_collection(context: ServerContext, served: Served, request: ApiRequest) -> ApiList:
    """DELETE of everything that the selectors match; returns what was deleted."""
    asked = list_options(request.query, watch=False)
    options = await context.aside.run(size_of(request.body), read_options, request)
    chosen = selection(served.resource, asked.label_selector, asked.field_selector)
    found = await list_objects(context.store, served, request.namespace, asked, chosen)
    for entry in found.entries:
        metadata = entry.object["metadata"]
        single = ApiRequest(
            user=request.user,
            verb="delete",
            group=request.group,
            version=request.version,
            resource=request.resource,
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            user_agent=request.user_agent,
        )
        try:
            await delete_object(context, served, single, options)
        except StatusError as error:
            # Another client was faster.
            if error.code != 404:
                raise
    return found
