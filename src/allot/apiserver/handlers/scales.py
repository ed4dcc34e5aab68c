"""The scale subresource: replicas of whatever has replicas, as one kind for everything that scales.

A Scale is read from and written to fields of the object; for built-in kinds always the same ones, for custom resources those
that their definition names.
"""

from __future__ import annotations

from typing import Any

from allot.apiserver.errors import bad_request, invalid, not_found
from allot.apiserver.handlers.applies import duplicate_keys, from_apply_error, read_configuration
from allot.apiserver.handlers.patches import (
    check_named_type,
    from_patch_error,
    of_type,
    patch_type,
    refused_patch,
    with_type,
)
from allot.apiserver.handlers.storing import MODIFIED
from allot.apiserver.handlers.writes import Change, Warned, Write, replace
from allot.apiserver.kinds.schemas import builtin_schemas
from allot.apiserver.objects import objectmeta
from allot.apiserver.objects.bodies import APPLY_PATCH, JSON_PATCH, STRATEGIC_PATCH, media_type, read_value
from allot.apiserver.objects.fieldchecks import SCALE, read_part
from allot.apiserver.objects.options import write_options
from allot.apiserver.objects.ownership import with_managed_fields
from allot.apiserver.registry import ScalePaths, Served, run_for
from allot.apiserver.request import ApiObject, ApiRequest
from allot.apiserver.server_context import ServerContext
from allot.core.patching.applying import apply
from allot.core.patching.errors import PatchError
from allot.core.patching.json_patch import json_patch
from allot.core.patching.merge_patch import merge_patch
from allot.core.patching.scale import SCALE_API_VERSION, resource_managed_fields, scale_managed_fields
from allot.core.schema import Schema, check_fields
from allot.core.validation.fields import INVALID, FieldError

Object = dict[str, Any]


async def handle(context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
    """GET, PUT and PATCH of a Scale."""
    if request.verb == "get":
        resource = served.resource
        entry = await context.store.get(served.key(request.namespace, request.name))
        if entry is None:
            raise not_found(resource.group, resource.plural, request.name)
        return ApiObject(object=scale_of(await run_for(served, served.present, entry.object), served.scale))
    if request.verb == "patch":
        kind = patch_type(served, request.content_type)
        options = write_options(request.query, request.user_agent, "Patch", kind)
        change = _APPLY if kind == APPLY_PATCH else _PATCH
    else:
        options = write_options(request.query, request.user_agent, "Update")
        change = _PUT
    answer = await replace(Write(context, served, request, options, change, "scale"))
    return ApiObject(object=scale_of(answer.object, served.scale), warnings=answer.warnings)


def _put(write: Write, stored: Object | None) -> Warned:
    served, request = write.served, write.request
    wanted, warnings = read_part(request, served, write.context.registry, SCALE, write.options.field_validation)
    objectmeta.in_namespace(wanted, request.namespace, namespaced=served.resource.namespaced)
    objectmeta.check_name(wanted, request.name)
    return _scaled(write, _present(write, stored), wanted), warnings


def _patched(write: Write, stored: Object | None) -> Warned:
    kind = media_type(write.request.content_type)
    given, object_ = read_value(write.request.body, kind), _present(write, stored)
    scale = scale_of(object_, write.served.scale)
    try:
        # A Scale has no lists, so a strategic patch is a merge patch.
        wanted = json_patch(scale, given) if kind == JSON_PATCH else merge_patch(scale, given)
    except PatchError as error:
        raise from_patch_error(error) from None
    if kind == STRATEGIC_PATCH:
        check_named_type(given)
        wanted = with_type(wanted, scale)
    wanted = of_type(write, wanted, SCALE_API_VERSION, "Scale")
    report = check_fields(wanted, _schema())
    if report.wrong:
        raise refused_patch(wanted, report.wrong[0])
    objectmeta.check_name(wanted, write.request.name)
    return _scaled(write, object_, wanted), ()


def _applied(write: Write, stored: Object | None) -> Warned:
    """An apply configuration of a Scale: its manager owns the replicas of the object."""
    resource, paths, options = write.served.resource, write.served.scale, write.options
    given, _ = read_configuration(write.request)
    object_ = _present(write, stored)
    replicas = tuple(f"f:{step}" for step in paths.spec)
    managed = object_["metadata"].get("managedFields")
    scale = with_managed_fields(scale_of(object_, paths), scale_managed_fields(managed, replicas))
    try:
        applied = apply(
            scale,
            given,
            manager=options.field_manager,
            force=bool(options.force),
            schema=_schema(),
            api_version=SCALE_API_VERSION,
            kind="Scale",
            now=write.context.clock.now(),
            subresource="scale",
        )
    except PatchError as error:
        raise from_apply_error(error) from None
    managed = resource_managed_fields(managed, applied.managed_fields, resource.api_version, replicas)
    return _scaled(write, with_managed_fields(object_, managed), applied.object), duplicate_keys(given, options)


_PUT = Change(_put)
_PATCH = Change(_patched)
_APPLY = Change(_applied, managed=True)


def _present(write: Write, stored: Object | None) -> Object:
    if stored is None:
        raise write.not_found()
    return write.served.present(stored)


def _scaled(write: Write, object_: Object, wanted: Object) -> Object:
    """The object with the replicas of the new Scale; 409 if that is based on another state of the object."""
    metadata = object_["metadata"]
    uid = objectmeta.text_of(objectmeta.metadata_of(wanted), "uid")
    version = objectmeta.text_of(objectmeta.metadata_of(wanted), "resourceVersion")
    if uid and uid != metadata.get("uid"):
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata.get('uid')}"
        raise write.conflict(why)
    if version and version != metadata["resourceVersion"]:
        raise write.conflict(MODIFIED)
    return with_path(object_, write.served.scale.spec, _replicas(wanted, write.request.name))


def _schema() -> Schema:
    schema = builtin_schemas().for_kind("autoscaling", "v1", "Scale")
    assert schema is not None, "there are schemas of all built-in kinds"
    return schema


def _replicas(scale: Object, name: str) -> int:
    spec = scale.get("spec")
    replicas = (spec.get("replicas") if isinstance(spec, dict) else None) or 0
    if type(replicas) is not int or replicas > 2**31 - 1:
        raise bad_request(f"spec.replicas: expected a whole number, got {str(replicas)[:50]}")
    if replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid("autoscaling", "Scale", name, [FieldError("spec.replicas", INVALID, text)])
    return replicas


def scale_of(object_: Object, paths: ScalePaths) -> Object:
    """The Scale of an object."""
    metadata = object_["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas, status = at_path(object_, paths.spec), at_path(object_, paths.status)
    shown: Object = {"replicas": status if isinstance(status, int) else 0}
    if selector := _selector_text(at_path(object_, paths.selector)):
        shown["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": replicas} if isinstance(replicas, int) else {},
        "status": shown,
    }


def at_path(object_: Any, path: tuple[str, ...]) -> Any:
    """The value at a path, or None."""
    for name in path:
        if not isinstance(object_, dict):
            return None
        object_ = object_.get(name)
    return object_ if path else None


def with_path(object_: Object, path: tuple[str, ...], value: Any) -> Object:
    """The object with another value at a path."""
    name = path[0]
    inner = object_.get(name)
    if len(path) > 1:
        value = with_path(inner if isinstance(inner, dict) else {}, path[1:], value)
    return {**object_, name: value}


def _selector_text(selector: Any) -> str:
    """A label selector, in any of its forms, as text."""
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, dict):
        return ""
    labels = selector.get("matchLabels") if "matchLabels" in selector or "matchExpressions" in selector else selector
    terms = [(key, f"{key}={value}") for key, value in (labels or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        if not isinstance(expression, dict):
            continue
        key, values = str(expression.get("key", "")), ",".join(sorted(map(str, expression.get("values") or [])))
        text = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        terms.append((key, text.get(str(expression.get("operator")), f"!{key}")))
    return ",".join(text for _, text in sorted(terms))
