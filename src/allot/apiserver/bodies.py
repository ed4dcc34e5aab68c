"""Request bodies: from bytes in one of the known formats to a JSON value, and to an object of the right kind.

Bounds everything that a body could do to the server: size is the adapter's business, depth, aliases and duplicates are
judged here. In process a body is a JSON value already; it is not read again.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

from allot.apiserver import protobuf
from allot.apiserver.errors import StatusError, bad_request, unsupported_media_type
from allot.apiserver.registry import Registry, Served
from allot.apiserver.request import ApiRequest
from allot.core.model.codec import DecodeError, parse_json
from allot.core.model.decoding import ObjectWithDuplicates, check_bounds

Object = dict[str, Any]

JSON = "application/json"
YAML = "application/yaml"
APPLY_PATCH = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"

# So few brackets cannot nest deeply: most bodies need no closer look.
_BRACKETS_HARMLESS = 100
_SUMMARY_LENGTH = 30
_DEPTH_MAX = 200
# What aliases may make of a body.
BYTES_WRITTEN_OUT_MAX = 3 * 1024 * 1024
_PROTOBUF_HINT = (
    "; let the client send JSON instead of protobuf, for Kubernetes' components with "
    "--kube-api-content-type=application/json or contentType: application/json in their clientConnection"
)


def media_type(content_type: str) -> str:
    """A content type without its parameters."""
    return content_type.split(";", 1)[0].strip().lower()


def read_value(body: Any, content_type: str) -> Any:
    """The JSON value of a body; 400 for malformed ones, 415 for unknown formats."""
    if not isinstance(body, bytes | bytearray | memoryview):
        return body
    data = bytes(body)
    kind = media_type(content_type) or JSON
    if kind in (JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH):
        return _read_json(data)
    if kind in (YAML, APPLY_PATCH, "application/x-yaml", "text/yaml"):
        return _read_json(data) if data.lstrip()[:1] == b"{" else _read_yaml(data)
    if kind == PROTOBUF:
        return _read_protobuf(data)
    raise unknown_format(kind)


def unknown_format(kind: str, why: str = "") -> StatusError:
    """415."""
    text = f"the body of the request was in an unknown format - accepted media types include: {JSON}, {YAML}"
    return unsupported_media_type(text + why + _PROTOBUF_HINT if kind == PROTOBUF else text)


def _read_json(data: bytes) -> Any:
    try:
        value = parse_json(data)
        if data.count(b"{") + data.count(b"[") > _BRACKETS_HARMLESS:
            check_bounds(value)
        return value
    except DecodeError as error:
        raise bad_request(str(error)) from None


def _read_protobuf(data: bytes) -> Any:
    """What client-go's typed clients send. Kinds that cannot be read are refused with a hint at the setting for JSON."""
    try:
        return protobuf.read(data)
    except protobuf.NotReadable as error:
        raise unknown_format(PROTOBUF, f" ({error})") from None
    except protobuf.Malformed as error:
        raise bad_request(str(error)) from None


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: times stay texts, and only true and false are booleans."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":bool", ":value"))]
    for letter, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def _read_yaml(data: bytes) -> Any:
    try:
        value = yaml.load(data, Loader=_Loader)
        if b"*" in data and _written_out(value, {}, 0) > BYTES_WRITTEN_OUT_MAX:
            raise bad_request("error converting YAML to JSON: yaml: document contains excessive aliasing")
        check_bounds(value)
        # Through JSON once more: keys become texts, what JSON cannot say is refused, shared parts are no longer shared.
        return msgspec.json.decode(msgspec.json.encode(value))
    except (yaml.YAMLError, DecodeError, ValueError, TypeError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise bad_request(f"error converting YAML to JSON: {text}") from None


def _written_out(value: Any, known: dict[int, int], depth: int) -> int:
    """How long the value would be without aliases, at least; each shared part is looked at once."""
    if not isinstance(value, dict | list):
        return len(value) + 1 if isinstance(value, str) else 1
    found = known.get(id(value))
    if found is None:
        if depth > _DEPTH_MAX:
            raise bad_request(f"error converting YAML to JSON: nested too deeply: expected at most {_DEPTH_MAX} levels")
        # What contains itself is endless.
        known[id(value)] = BYTES_WRITTEN_OUT_MAX + 1
        parts = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(_written_out(part, known, depth + 1) for part in parts)
    return found


# --- objects ---


def read_object(
    request: ApiRequest, served: Served, registry: Registry, *, kind: str = "", api_version: str = ""
) -> Object:
    """The object in a body; 400 unless it is one of the kind that the path means. A body without type gets it."""
    resource = served.resource
    kind, expected = kind or resource.kind, api_version or resource.api_version
    value = read_value(request.body, request.content_type)
    if value is None or not isinstance(value, dict):
        raise _unrecognized(kind, request.body, value)
    given_version, given_kind = value.get("apiVersion", ""), value.get("kind", "")
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
    if isinstance(value, ObjectWithDuplicates):
        marked = ObjectWithDuplicates(typed)
        marked.duplicates = value.duplicates
        return marked
    return typed


def _other_kind(registry: Registry, version: str, given: str, kind: str) -> StatusError:
    short = version.rpartition("/")[2]
    if registry.knows_kind(version, given):
        text = f"converting ({_go_type(version, given)}) to ({_go_type(version, kind)}): unknown conversion"
        return bad_request(f'{given} in version "{short}" cannot be handled as a {kind}: {text}')
    text = f'no kind "{given}" is registered for version "{version}" in scheme "pkg/api/legacyscheme/scheme.go:30"'
    return bad_request(f'{given} in version "{short}" cannot be handled as a {kind}: {text}')


def _go_type(api_version: str, kind: str) -> str:
    return f"{api_version.rpartition('/')[2]}.{kind}"


def _unrecognized(kind: str, body: Any, value: Any) -> StatusError:
    data = bytes(body) if isinstance(body, bytes | bytearray | memoryview) else msgspec.json.encode(value)
    text = "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct"
    return bad_request(f"the object provided is unrecognized (must be of type {kind}): {text} ({_summary(data)})")


def _summary(data: bytes) -> str:
    if not data:
        return "<empty>"
    short = data[:_SUMMARY_LENGTH]
    told = short.decode(errors="replace") if data[:1] == b"{" else short.hex()
    return f"{told} ..." if len(data) > _SUMMARY_LENGTH else told
