"""PATCH: four patch formats, including server-side apply.

A patch is applied to the object in the version of the request; the result is handled like every update. A concurrent
change means: apply it again to the newer state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allot.apiserver.errors import StatusError, bad_request, invalid, unsupported_media_type
from allot.apiserver.handlers.applies import APPLY
from allot.apiserver.handlers.writes import Change, Warned, Write, replace
from allot.apiserver.kinds.versions import convert_to
from allot.apiserver.objects import objectmeta
from allot.apiserver.objects.bodies import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    go_type,
    media_type,
    no_kind,
    of_its_own,
    read_value,
)
from allot.apiserver.objects.fieldchecks import IGNORE, STRICT, report_of, strict_text, tidy
from allot.apiserver.objects.options import write_options
from allot.apiserver.objects.sharing import changed_parts
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiObject, ApiRequest
from allot.apiserver.server_context import ServerContext
from allot.core.patching.errors import PatchError
from allot.core.patching.json_patch import json_patch, operation_errors
from allot.core.patching.merge_patch import merge_patch
from allot.core.patching.strategic import strategic_merge_patch
from allot.core.schema.fields import json_type
from allot.core.validation.fields import INVALID, FieldError, go_json

Object = dict[str, Any]
_VALUE_TOLD_MAX = 10_000


async def patch(context: ServerContext, served: Served, request: ApiRequest, subresource: str = "") -> ApiObject:
    """PATCH of an object or of a subresource that has the object's shape."""
    kind = patch_type(served, request.content_type)
    options = write_options(request.query, request.user_agent, "Patch", kind)
    return await replace(Write(context, served, request, options, _CHANGES[kind], subresource))


def patch_type(served: Served, content_type: str) -> str:
    """The patch format; 415 if the resource does not support it."""
    known = [kind for kind in _CHANGES if kind != STRATEGIC_PATCH or not served.custom]
    kind = media_type(content_type)
    if kind not in known:
        text = "the body of the request was in an unknown format - accepted media types include: "
        raise unsupported_media_type(text + ", ".join(known))
    return kind


def _json_patched(write: Write, stored: Object | None) -> Warned:
    given = _read(write, JSON_PATCH)
    return _patched(write, stored, lambda base: json_patch(base, given), operation_errors(given))


def _merge_patched(write: Write, stored: Object | None) -> Warned:
    given = _read(write, MERGE_PATCH)
    return _patched(write, stored, lambda base: merge_patch(base, given))


def _strategic_patched(write: Write, stored: Object | None) -> Warned:
    given, schema = _read(write, STRATEGIC_PATCH), write.served.schema
    if not isinstance(given, dict):
        raise bad_request("json: cannot unmarshal into Go value of type map[string]interface {}")
    assert schema is not None, "only custom resources lack strategic merge patches"
    check_named_type(given)
    return _patched(write, stored, lambda base: with_type(strategic_merge_patch(base, given, schema), base))


_CHANGES = {
    JSON_PATCH: Change(_json_patched),
    MERGE_PATCH: Change(_merge_patched),
    STRATEGIC_PATCH: Change(_strategic_patched),
    APPLY_PATCH: APPLY,
}


def _read(write: Write, kind: str) -> Any:
    body = write.request.body
    return of_its_own(read_value(body, kind), body)


def _patched(
    write: Write, stored: Object | None, apply: Callable[[Object], Object], errors: tuple[str, ...] = ()
) -> Warned:
    """The stored object with a patch applied. errors: what is wrong with the patch itself."""
    served, validation = write.served, write.options.field_validation
    resource = served.resource
    if stored is None:
        raise write.not_found()
    base = served.present(stored)
    try:
        patched = apply(base)
    except PatchError as error:
        raise from_patch_error(error) from None
    if patched is base:
        patched = dict(base)
    patched = of_type(write, patched, resource.api_version, resource.kind)
    report = report_of(changed_parts(patched, base), served)
    if report is not None:
        if report.wrong:
            raise refused_patch(patched, report.wrong[0])
        errors += report.strict_errors
    if errors and validation == STRICT:
        raise refused_patch(patched, strict_text(errors))
    if report is not None:
        patched = tidy(patched, served, report)
    objectmeta.check_name(patched, write.request.name)
    return patched, errors if validation != IGNORE else ()


# --- types ---


def check_named_type(given: Object) -> None:
    """422 if a strategic patch names its type by anything but strings; otherwise the type is ignored."""
    for name in ("apiVersion", "kind"):
        if given.get(name) is not None and not isinstance(given[name], str):
            raise refused_patch(given, f"cannot convert {json_type(given[name])} to string")


def with_type(patched: Object, base: Object) -> Object:
    """A patched object with its previous type."""
    kept = ("apiVersion", "kind")
    if all(patched.get(name) == base[name] for name in kept):
        return patched
    return {**patched, **{name: base[name] for name in kept}}


def of_type(write: Write, patched: Object, api_version: str, kind: str) -> Object:
    """A patched object, which must have its expected type; raises an error that says why not."""
    if patched.get("apiVersion") == api_version and patched.get("kind") == kind:
        return patched
    for name in ("apiVersion", "kind"):
        if patched.get(name) is not None and not isinstance(patched[name], str):
            text = f"cannot unmarshal {json_type(patched[name])} into Go struct field .{name} of type string"
            raise refused_patch(patched, f"couldn't get version/kind; json parse error: json: {text}")
    version, given = patched.get("apiVersion") or "", patched.get("kind") or ""
    if version.count("/") > 1:
        raise refused_patch(patched, f"unexpected GroupVersion string: {version}")
    if write.served.custom and kind == write.served.resource.kind:
        raise _of_another_type(write, patched, version, given)
    if not version:
        # Without a version nothing can be read, including the name.
        raise objectmeta.no_name(write.request.name)
    given = given or kind
    if (version, given) == (api_version, kind):
        return {**patched, "kind": kind}
    if not write.context.registry.knows_kind(version, given):
        raise refused_patch(patched, no_kind(version, given))
    group = api_version.rpartition("/")[0]
    if given != kind or version.rpartition("/")[0] != group:
        package = group.partition(".")[0] or "core"
        raise refused_patch(
            patched, f"converting ({go_type(version, given)}) to ({package}.{kind}): unknown conversion"
        )
    return convert_to(patched, kind, version, api_version)


def _of_another_type(write: Write, patched: Object, version: str, kind: str) -> StatusError:
    """422 for a patch that would turn a custom resource into another kind of object."""
    resource = write.served.resource
    if not kind or not version:
        missing = "Kind" if not kind else "apiVersion"
        return refused_patch(patched, f"Object '{missing}' is missing in '{go_json(patched)[:_VALUE_TOLD_MAX]}'")
    wanted = (("kind", kind, resource.kind), ("apiVersion", version, resource.api_version))
    errors = [
        FieldError(field, INVALID, f"Invalid value: {go_json(given)}: must be {expected}")
        for field, given, expected in wanted
        if given != expected
    ]
    return invalid(version.rpartition("/")[0], kind, write.request.name, errors)


def refused_patch(patched: Object, why: str) -> StatusError:
    """422 for a patch whose result is not an object of its kind."""
    shown = go_json(go_json(patched)[:_VALUE_TOLD_MAX])
    return invalid("", "", "", [FieldError("patch", INVALID, f"Invalid value: {shown}: {why}")])


def from_patch_error(error: PatchError) -> StatusError:
    """The answer to a patch that does not fit. What upstream answers with 500 is the client's fault here too."""
    if error.code == 500:
        return StatusError(422, "Invalid", error.message)
    return StatusError(error.code, error.reason, error.message)
