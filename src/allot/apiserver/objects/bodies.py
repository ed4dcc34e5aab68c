"""Request bodies: from bytes in one of the known formats to a JSON value, and to an object of the right kind.

Limits what a body can cost the server: the adapter limits its size, this module depth, aliases and duplicates.
An in-process body is already a JSON value and not parsed again.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from allot.apiserver.errors import StatusError, bad_request, unsupported_media_type
from allot.apiserver.registry import Registry, Served
from allot.apiserver.request import RAW, ApiRequest
from allot.core.model.codec import DecodeError, parse_json
from allot.core.model.decoding import ObjectWithDuplicates, check_bounds
from allot.wire import kubernetes as protobuf
from allot.yaml_values.reader import NotYAML, read_yaml

Object = dict[str, Any]

JSON = "application/json"
YAML = "application/yaml"
APPLY_PATCH = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_YAML_KINDS = (YAML, APPLY_PATCH, "application/x-yaml", "text/yaml")
PROTOBUF = "application/vnd.kubernetes.protobuf"

# Objects and arrays in a body. With more of them, reading and freeing it would stop everything else for a third of a second;
# what Kubernetes can store (1.5 MiB in etcd) has no more unless most of them are empty.
CONTAINERS_MAX = 300_000
# A string, or the start of one: to the end of the text if unterminated, so that the text is scanned once.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
# This few brackets cannot nest deeply: most bodies need no closer check.
_BRACKETS_HARMLESS = 100
_SUMMARY_LENGTH = 30
_PROTOBUF_HINT = (
    "; let the client send JSON instead of protobuf, for Kubernetes' components with "
    "--kube-api-content-type=application/json or contentType: application/json in their clientConnection"
)


def media_type(content_type: str) -> str:
    """A content type without its parameters."""
    return content_type.split(";", 1)[0].strip().lower()


def read_value(body: Any, content_type: str) -> Any:
    """The JSON value of a body; 400 for malformed ones, 415 for unknown formats."""
    if not isinstance(body, RAW):
        return body
    data = bytes(body)
    kind = media_type(content_type) or JSON
    if kind in (JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH):
        return _read_json(data)
    if kind in _YAML_KINDS:
        return _read_yaml_or_json(data)
    if kind == PROTOBUF:
        return _read_protobuf(data)
    raise unknown_format(kind)


def unknown_format(kind: str, why: str = "") -> StatusError:
    """415."""
    text = f"the body of the request was in an unknown format - accepted media types include: {JSON}, {YAML}"
    return unsupported_media_type(text + why + _PROTOBUF_HINT if kind == PROTOBUF else text)


def _read_yaml_or_json(data: bytes) -> Any:
    """A body declared as YAML; most are JSON, which is parsed faster."""
    if data.lstrip()[:1] != b"{":
        return _read_yaml(data)
    _check_containers(data)
    try:
        value = _parse_json(data)
    except DecodeError:
        # Flow style, with a trailing comma or unquoted names.
        return _read_yaml(data)
    # Upstream also parses JSON as YAML here, which reports duplicate keys.
    return _read_yaml(data) if isinstance(value, ObjectWithDuplicates) else value


def _read_json(data: bytes) -> Any:
    _check_containers(data)
    try:
        return _parse_json(data)
    except DecodeError as error:
        raise bad_request(str(error)) from None


def _parse_json(data: bytes) -> Any:
    value = parse_json(data)
    if _brackets(data) > _BRACKETS_HARMLESS:
        check_bounds(value)
    return value


def _brackets(data: bytes) -> int:
    return data.count(b"{") + data.count(b"[")


def _check_containers(data: bytes) -> None:
    if _brackets(data) > CONTAINERS_MAX and _containers(data) > CONTAINERS_MAX:
        raise bad_request(f"too large: expected at most {CONTAINERS_MAX} objects and arrays")


def _containers(data: bytes) -> int:
    """The number of objects and arrays in a text; brackets in strings do not count."""
    bare = _STRING.sub(b"", data)
    return bare.count(b"{") + bare.count(b"[")


def _read_protobuf(data: bytes) -> Any:
    """What client-go's typed clients send. Kinds that cannot be decoded are refused with a hint on how to use JSON."""
    try:
        return protobuf.read(data)
    except protobuf.NotReadable as error:
        raise unknown_format(PROTOBUF, f" ({error})") from None
    except protobuf.Malformed as error:
        raise bad_request(str(error)) from None


def _read_yaml(data: bytes) -> Any:
    try:
        value = read_yaml(data)
        check_bounds(value)
        return value
    except (NotYAML, DecodeError) as error:
        raise bad_request(f"error converting YAML to JSON: {error}") from None


def of_its_own(value: Any, body: Any) -> Any:
    """The value read from a body, copied if the body is in-process: its owner may continue using it. 400 for what JSON
    cannot carry."""
    if isinstance(body, RAW):
        return value
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise bad_request(f"the body is not a JSON value: {error}") from None


# --- objects ---


def read_object(
    request: ApiRequest, served: Served, registry: Registry, *, kind: str = "", api_version: str = ""
) -> Object:
    """The object in a body; 400 unless it has the kind that the path implies. A body without a type gets that kind."""
    resource = served.resource
    kind, expected = kind or resource.kind, api_version or resource.api_version
    value = read_value(request.body, request.content_type)
    if value is None or not isinstance(value, dict):
        raise _unrecognized(kind, request.body, value)
    given_version, given_kind = ("" if value.get(name) is None else value[name] for name in ("apiVersion", "kind"))
    if not isinstance(given_version, str) or not isinstance(given_kind, str):
        raise _unrecognized(kind, request.body, value)
    if given_kind == kind and given_version == expected:
        return value
    if given_kind and given_kind != kind:
        raise _other_kind(registry, given_version, given_kind, kind)
    if given_version and given_version != expected:
        text = f"the API version in the data ({given_version}) does not match the expected API version ({expected})"
        raise bad_request(text)
    typed = {**value, "apiVersion": expected, "kind": kind}
    return value.holding(typed) if isinstance(value, ObjectWithDuplicates) else typed


def _other_kind(registry: Registry, version: str, given: str, kind: str) -> StatusError:
    short = version.rpartition("/")[2]
    if registry.knows_kind(version, given):
        text = f"converting ({go_type(version, given)}) to ({go_type(version, kind)}): unknown conversion"
        return bad_request(f'{given} in version "{short}" cannot be handled as a {kind}: {text}')
    return bad_request(f'{given} in version "{short}" cannot be handled as a {kind}: {no_kind(version, given)}')


def no_kind(api_version: str, kind: str) -> str:
    """The error for an unknown kind."""
    return f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/api/legacyscheme/scheme.go:30"'


def go_type(api_version: str, kind: str) -> str:
    """The name of a type in upstream's messages."""
    return f"{api_version.rpartition('/')[2]}.{kind}"


def _unrecognized(kind: str, body: Any, value: Any) -> StatusError:
    data = bytes(body) if isinstance(body, RAW) else msgspec.json.encode(value)
    text = "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct"
    return bad_request(f"the object provided is unrecognized (must be of type {kind}): {text} ({_summary(data)})")


def _summary(data: bytes) -> str:
    if not data:
        return "<empty>"
    short = data[:_SUMMARY_LENGTH]
    told = short.decode(errors="replace") if data[:1] == b"{" else short.hex()
    return f"{told} ..." if len(data) > _SUMMARY_LENGTH else told
