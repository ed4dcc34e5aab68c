"""PATCH: four ways to say what should change, and server-side apply among them.

A patch is applied to the object in the version of the request; the result goes the way of every update. Somebody else's
change in between means: apply it again to the newer state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allot.apiserver import objectmeta
from allot.apiserver.applies import apply_patch
from allot.apiserver.aside import size_of
from allot.apiserver.bodies import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    media_type,
    of_its_own,
    read_value,
)
from allot.apiserver.errors import StatusError, bad_request, invalid, not_found, unsupported_media_type
from allot.apiserver.fieldchecks import IGNORE, STRICT, report_of, strict_text, tidy
from allot.apiserver.options import WriteOptions, write_options
from allot.apiserver.parts import Parts
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiObject, ApiRequest
from allot.apiserver.sharing import changed_parts
from allot.apiserver.writes import replace_object
from allot.core.patching.errors import PatchError
from allot.core.patching.json_patch import json_patch, operation_errors
from allot.core.patching.merge_patch import merge_patch
from allot.core.patching.strategic import strategic_merge_patch
from allot.core.validation.fields import INVALID, FieldError, go_json

Object = dict[str, Any]
_VALUE_TOLD_MAX = 10_000


async def patch(parts: Parts, served: Served, request: ApiRequest, subresource: str = "") -> ApiObject:
    """PATCH of an object or of a subresource that has the object's shape."""
    kind = patch_type(served, request.content_type)
    options = write_options(request.query, request.user_agent, "Patch", kind)
    given = await parts.aside.run(
        size_of(request.body), lambda: of_its_own(read_value(request.body, kind), request.body)
    )
    if kind == APPLY_PATCH:
        return await apply_patch(parts, served, request, given, options, subresource)
    patcher = _Patcher(served, request, kind, given, options)
    warnings: list[str] = []

    def propose(stored: Object | None) -> Object:
        if stored is None:
            resource = served.resource
            raise not_found(resource.group, resource.plural, request.name)
        patched, told = patcher.patched(served.present(stored))
        warnings[:] = told
        return patched

    answer = await replace_object(parts, served, request, propose, options, subresource=subresource)
    if not warnings:
        return answer
    return ApiObject(
        object=answer.object,
        status=answer.status,
        entry=answer.entry,
        warnings=tuple(dict.fromkeys((*warnings, *answer.warnings))),
    )


def patch_type(served: Served, content_type: str) -> str:
    """The kind of patch; 415 if there is none of that name for the resource."""
    known = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]
    if served.custom:
        known.remove(STRATEGIC_PATCH)
    kind = media_type(content_type)
    if kind not in known:
        text = "the body of the request was in an unknown format - accepted media types include: "
        raise unsupported_media_type(text + ", ".join(known))
    return kind


class _Patcher:
    """A patch that can be applied again and again."""

    def __init__(self, served: Served, request: ApiRequest, kind: str, given: Any, options: WriteOptions) -> None:
        self._served = served
        self._request = request
        self._given = given
        self._options = options
        self._errors: tuple[str, ...] = ()
        self._apply: Callable[[Object], Object]
        match kind:
            case "application/json-patch+json":
                self._apply = lambda base: json_patch(base, given)
                self._errors = operation_errors(given)
            case "application/merge-patch+json":
                self._apply = lambda base: merge_patch(base, given)
            case _:
                self._apply = self._strategic

    def _strategic(self, base: Object) -> Object:
        if not isinstance(self._given, dict):
            raise bad_request("json: cannot unmarshal into Go value of type map[string]interface {}")
        schema = self._served.schema
        assert schema is not None, "only custom resources lack strategic merge patches"
        return strategic_merge_patch(base, self._given, schema)

    def patched(self, base: Object) -> tuple[Object, tuple[str, ...]]:
        """The base with the patch applied, and warnings."""
        try:
            patched = self._apply(base)
        except PatchError as error:
            raise from_patch_error(error) from None
        resource, served = self._served.resource, self._served
        if patched is base:
            patched = dict(base)
        if patched.get("apiVersion") != resource.api_version or patched.get("kind") != resource.kind:
            patched = {**patched, "apiVersion": resource.api_version, "kind": resource.kind}
        report = report_of(changed_parts(patched, base), served)
        errors = self._errors
        if report is not None:
            if report.wrong:
                raise refused_patch(patched, report.wrong[0])
            errors += report.strict_errors
        if errors and self._options.field_validation == STRICT:
            raise refused_patch(patched, strict_text(errors))
        if report is not None:
            patched = tidy(patched, served, report)
        objectmeta.check_name(patched, self._request.name)
        return patched, errors if self._options.field_validation != IGNORE else ()


def refused_patch(patched: Object, why: str) -> StatusError:
    """422 for a patch that makes something else than an object of its kind."""
    shown = go_json(go_json(patched)[:_VALUE_TOLD_MAX])
    return invalid("", "", "", [FieldError("patch", INVALID, f"Invalid value: {shown}: {why}")])


def from_patch_error(error: PatchError) -> StatusError:
    """The answer to a patch that does not fit. What upstream answers with 500 is the client's fault here too."""
    if error.code == 500:
        return StatusError(422, "Invalid", error.message)
    return StatusError(error.code, error.reason, error.message)
