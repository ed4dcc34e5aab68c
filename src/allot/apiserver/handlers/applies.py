"""Server-side apply: a client sends the fields that it wants, and owns them."""

from __future__ import annotations

from typing import Any

from allot.apiserver.errors import StatusError, bad_request
from allot.apiserver.handlers.writes import Change, Warned, Write
from allot.apiserver.objects import objectmeta
from allot.apiserver.objects.bodies import APPLY_PATCH, of_its_own, read_value
from allot.apiserver.objects.fieldchecks import IGNORE, STRICT, report_of, tidy
from allot.apiserver.objects.options import WriteOptions
from allot.apiserver.objects.ownership import converter, resets
from allot.apiserver.objects.sharing import changed_parts
from allot.apiserver.request import ApiRequest
from allot.core.model.decoding import ObjectWithDuplicates
from allot.core.patching.applying import ApplyConflict, apply
from allot.core.patching.errors import PatchError

Object = dict[str, Any]


def _applied(write: Write, stored: Object | None) -> Warned:
    """The stored object, or a new one, with the configuration applied."""
    served, request, options = write.served, write.request, write.options
    resource, schema = served.resource, served.schema
    assert schema is not None, "every kind that can be applied has a schema"
    read, name = read_configuration(request)
    given = _placed(read, request, resource.namespaced)
    if stored is None and write.subresource:
        raise write.not_found()
    if stored is None and not name:
        raise objectmeta.no_name(request.name)
    try:
        applied = apply(
            None if stored is None else served.present(stored),
            given,
            manager=options.field_manager,
            force=bool(options.force),
            schema=schema,
            api_version=resource.api_version,
            kind=resource.kind,
            now=write.context.clock.now(),
            subresource=write.subresource,
            reset=resets(served, write.subresource),
            convert=converter(write.context.registry, served),
        )
    except PatchError as error:
        raise from_apply_error(error) from None
    return applied.object, duplicate_keys(read, options)


def _checked(write: Write, proposed: Object, old: Object | None) -> Warned:
    """The configuration's own fields are already checked; the merged object is only tidied."""
    report = report_of(proposed if old is None else changed_parts(proposed, old), write.served)
    return proposed if report is None else tidy(proposed, write.served, report), ()


# PATCH with an apply configuration; creates the object if it does not exist.
APPLY = Change(_applied, _checked, managed=True, creates=True)


def read_configuration(request: ApiRequest) -> tuple[Object, str]:
    """The apply configuration in a body, and its name; 400 if it does not fit the object of the path."""
    given = of_its_own(read_value(request.body, APPLY_PATCH), request.body)
    if not isinstance(given, dict):
        raise bad_request("error decoding patch: expected an object")
    name = objectmeta.text_of(objectmeta.metadata_of(given), "name")
    if name and name != request.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({request.name})")
    return given, name


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


def duplicate_keys(given: Object, options: WriteOptions) -> tuple[str, ...]:
    """Warnings about duplicate keys in a configuration; 400 if it is refused because of them. Unknown fields cannot be
    applied, whatever the field validation."""
    if not isinstance(given, ObjectWithDuplicates) or options.field_validation == IGNORE:
        return ()
    problem = f"error converting YAML to JSON: {given.yaml_problem}"
    if options.field_validation == STRICT:
        raise bad_request(f"error strict decoding patch: {problem}")
    return (problem,)
