"""Server-side apply: a client says what it wants of an object, and owns the fields that it names."""

from __future__ import annotations

from typing import Any

from allot.apiserver import objectmeta
from allot.apiserver.aside import size_of
from allot.apiserver.errors import StatusError, bad_request
from allot.apiserver.fieldchecks import IGNORE, STRICT, report_of, strict_text, tidy
from allot.apiserver.options import WriteOptions
from allot.apiserver.ownership import converter, resets
from allot.apiserver.parts import Parts
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiObject, ApiRequest
from allot.apiserver.sharing import changed_parts
from allot.apiserver.writes import replace_object
from allot.core.patching.applying import ApplyConflict, apply
from allot.core.patching.errors import PatchError
from allot.core.schema import Schema, check_fields

Object = dict[str, Any]


async def apply_patch(
    parts: Parts, served: Served, request: ApiRequest, given: Any, options: WriteOptions, subresource: str
) -> ApiObject:
    """PATCH with an apply configuration; creates the object if it is not there."""
    if not isinstance(given, dict):
        raise bad_request("error decoding patch: expected an object")
    resource = served.resource
    schema = served.schema
    assert schema is not None, "every kind that can be applied has a schema"
    name = objectmeta.text_of(objectmeta.metadata_of(given), "name")
    if name and name != request.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({request.name})")
    given = _placed(given, request, resource.namespaced)
    errors = await parts.aside.run(size_of(request.body), field_errors, given, schema, options)

    def propose(stored: Object | None) -> Object:
        live = None if stored is None else served.present(stored)
        if live is None and not name:
            raise objectmeta.no_name(request.name)
        try:
            applied = apply(
                live,
                given,
                manager=options.field_manager,
                force=bool(options.force),
                schema=schema,
                api_version=resource.api_version,
                kind=resource.kind,
                now=parts.clock.now(),
                subresource=subresource,
                reset=resets(served, subresource),
                convert=converter(parts.registry, served),
            )
        except PatchError as error:
            raise from_apply_error(error) from None
        return applied.object

    def check(object_: Object, old: Object | None) -> Object:
        report = report_of(object_ if old is None else changed_parts(object_, old), served)
        return object_ if report is None else tidy(object_, served, report)

    return await replace_object(
        parts,
        served,
        request,
        propose,
        options,
        errors,
        check=check,
        subresource=subresource,
        managed=True,
        creates=True,
    )


def from_apply_error(error: PatchError) -> StatusError:
    """The answer to an apply that cannot be done."""
    if isinstance(error, ApplyConflict):
        return StatusError(409, "Conflict", error.message, details={"causes": error.causes})
    # What upstream answers with 500 is the client's fault.
    code, reason = (400, "BadRequest") if error.code == 500 else (error.code, error.reason)
    return StatusError(code, reason, error.message)


def _placed(given: Object, request: ApiRequest, namespaced: bool) -> Object:
    """The configuration with the name and namespace of the path."""
    metadata = dict(objectmeta.metadata_of(given))
    metadata["name"] = request.name
    if namespaced:
        metadata.setdefault("namespace", request.namespace)
    return objectmeta.with_metadata(given, metadata)


def field_errors(given: Object, schema: Schema, options: WriteOptions) -> tuple[str, ...]:
    """What to warn about in a configuration; 400 if it is refused because of that."""
    errors = check_fields(given, schema).strict_errors
    if not errors or options.field_validation == IGNORE:
        return ()
    if options.field_validation == STRICT:
        raise bad_request(f"error strict decoding patch: {strict_text(errors)}")
    return errors
