"""The scale subresource: replicas of whatever has replicas, as one kind for everything that scales.

A Scale is read from and written to fields of the object; for built-in kinds always the same ones, for custom resources those
that their definition names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allot.apiserver import objectmeta
from allot.apiserver.bodies import APPLY_PATCH, read_object, read_value
from allot.apiserver.errors import bad_request, conflict, invalid, not_found, unsupported_media_type
from allot.apiserver.options import write_options
from allot.apiserver.parts import Parts
from allot.apiserver.patches import from_patch_error, patch_type
from allot.apiserver.registry import ScalePaths, Served
from allot.apiserver.request import ApiObject, ApiRequest
from allot.apiserver.writes import MODIFIED, replace_object
from allot.core.patching.errors import PatchError
from allot.core.patching.json_patch import json_patch
from allot.core.patching.merge_patch import merge_patch
from allot.core.validation.fields import INVALID, FieldError
from allot.store.port import Entry

Object = dict[str, Any]


async def handle(parts: Parts, served: Served, request: ApiRequest) -> ApiObject:
    """GET, PUT and PATCH of a Scale."""
    resource = served.resource
    if request.verb == "get":
        entry = await parts.store.get(served.key(request.namespace, request.name))
        if entry is None:
            raise not_found(resource.group, resource.plural, request.name)
        return ApiObject(object=scale_of(served.present(entry.object), served.scale))
    verb = "Patch" if request.verb == "patch" else "Update"
    options = write_options(request.query, request.user_agent, verb)
    change = _patched(served, request) if verb == "Patch" else _put(parts, served, request)

    def propose(entry: Entry | None) -> Object:
        if entry is None:
            raise not_found(resource.group, resource.plural, request.name)
        object_ = served.present(entry.object)
        wanted = change(scale_of(object_, served.scale))
        _check_preconditions(served, wanted, object_)
        return with_path(object_, served.scale.spec, _replicas(wanted, request.name))

    answer = await replace_object(parts, served, request, propose, options, subresource="scale")
    return ApiObject(object=scale_of(answer.object, served.scale), warnings=answer.warnings)


def _put(parts: Parts, served: Served, request: ApiRequest) -> Callable[[Object], Object]:
    wanted = read_object(request, served, parts.registry, kind="Scale", api_version="autoscaling/v1")
    objectmeta.check_name(wanted, request.name)
    return lambda _: wanted


def _patched(served: Served, request: ApiRequest) -> Callable[[Object], Object]:
    kind = patch_type(served, request.content_type)
    if kind == APPLY_PATCH:
        raise unsupported_media_type("scale: apply patches are not supported, use a merge patch")
    given = read_value(request.body, kind)

    def change(scale: Object) -> Object:
        try:
            # A Scale has no lists, so that a strategic patch is a merge patch.
            return json_patch(scale, given) if kind.startswith("application/json-patch") else merge_patch(scale, given)
        except PatchError as error:
            raise from_patch_error(error) from None

    return change


def _check_preconditions(served: Served, wanted: Object, object_: Object) -> None:
    resource, metadata = served.resource, object_["metadata"]
    uid = objectmeta.text_of(objectmeta.metadata_of(wanted), "uid")
    version = objectmeta.text_of(objectmeta.metadata_of(wanted), "resourceVersion")
    if uid and uid != metadata.get("uid"):
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata.get('uid')}"
        raise conflict(resource.group, resource.plural, metadata["name"], why)
    if version and version != metadata["resourceVersion"]:
        raise conflict(resource.group, resource.plural, metadata["name"], MODIFIED)


def _replicas(scale: Object, name: str) -> int:
    spec = scale.get("spec")
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else 0
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
    """The value at a path, None if there is none."""
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
