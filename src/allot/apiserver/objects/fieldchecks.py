"""Field validation of bodies: unknown and duplicate fields, and values of the wrong type.

`Ignore` drops what the kind does not have, `Warn` (the default) also warns, `Strict` refuses; a value of the wrong type is
always refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from allot.apiserver.errors import StatusError, bad_request
from allot.apiserver.kinds.schemas import builtin_schemas
from allot.apiserver.objects.bodies import read_object
from allot.apiserver.objects.sharing import changed_parts
from allot.apiserver.registry import Registry, Served
from allot.apiserver.request import ApiRequest
from allot.core.model.decoding import ObjectWithDuplicates
from allot.core.schema import FieldReport, Schema, check_fields, prune

Object = dict[str, Any]

STRICT = "Strict"
IGNORE = "Ignore"


def checked_fields(
    object_: Object, served: Served, validation: str, old: Object | None = None
) -> tuple[Object, tuple[str, ...]]:
    """The object with only the fields that its kind has, and warnings; 400 if it is refused. What is shared
    with the old object is not checked."""
    schema, resource = served.schema, served.resource
    if schema is None:
        return object_, ()
    # Parsers mark the outermost object if it contains duplicates anywhere.
    if type(object_) is not dict:
        report = check_fields(object_, schema)
    elif old is None:
        report = check_fields(object_, schema, no_duplicates=True)
    else:
        report = check_fields(changed_parts(object_, old), schema)
    return _judged(object_, schema, report, resource.kind, resource.version, validation)


class Part(NamedTuple):
    """A kind that is sent only to a subresource."""

    group: str
    version: str
    kind: str


BINDING = Part("", "v1", "Binding")
EVICTION = Part("policy", "v1", "Eviction")
SCALE = Part("autoscaling", "v1", "Scale")
TOKEN_REQUEST = Part("authentication.k8s.io", "v1", "TokenRequest")


def read_part(
    request: ApiRequest, served: Served, registry: Registry, part: Part, validation: str
) -> tuple[Object, tuple[str, ...]]:
    """The object in a body sent to a subresource, with its fields checked, and warnings."""
    group, version, kind = part
    api_version = f"{group}/{version}" if group else version
    object_ = read_object(request, served, registry, kind=kind, api_version=api_version)
    schema = builtin_schemas().for_kind(group, version, kind)
    assert schema is not None, "there are schemas of all built-in kinds"
    return _judged(object_, schema, check_fields(object_, schema), kind, version, validation)


def _judged(
    object_: Object, schema: Schema, report: FieldReport, kind: str, version: str, validation: str
) -> tuple[Object, tuple[str, ...]]:
    if report.wrong:
        raise cannot_be_handled(kind, version, report.wrong[0])
    if not report.untidy and not report.duplicates:
        return object_, ()
    errors = report.strict_errors
    if isinstance(object_, ObjectWithDuplicates) and object_.yaml_problem:
        errors = (object_.yaml_problem, *FieldReport(report.unknown).strict_errors)
    if errors and validation == STRICT:
        raise cannot_be_handled(kind, version, strict_text(errors))
    return prune(object_, schema) if report.untidy else object_, errors if validation != IGNORE else ()


def report_of(object_: Object, served: Served) -> FieldReport | None:
    """What strict decoding would report; None if the kind has no schema."""
    schema = served.schema
    return None if schema is None else check_fields(object_, schema)


def tidy(object_: Object, served: Served, report: FieldReport) -> Object:
    """The object as it is after decoding."""
    schema = served.schema
    if not report.untidy or schema is None:
        return object_
    return prune(object_, schema)


def strict_text(errors: tuple[str, ...]) -> str:
    """The message of strict decoding."""
    return f"strict decoding error: {', '.join(errors)}"


def cannot_be_handled(kind: str, version: str, why: str) -> StatusError:
    """400 for an object with a value of the wrong type or an unknown field."""
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')
