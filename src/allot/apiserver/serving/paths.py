"""Request paths: from method, path and query to the verb and object."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote

import msgspec

from allot.apiserver.errors import StatusError, bad_request

_METHODS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_PATH_LENGTH_MAX = 8192
_SAME_LENGTH_MAX = 256


class Target(msgspec.Struct, frozen=True):
    """What a path means: objects of the API."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # What follows the subresource, for proxies.
    rest: tuple[str, ...] = ()


def resolve(method: str, path: str, query: Mapping[str, str]) -> tuple[tuple[str, ...], Target | None]:
    """The segments of a path, and the objects that it refers to, if any."""
    if query or len(path) > _SAME_LENGTH_MAX:
        segments = split(path)
        return segments, target(method, segments, query)
    return _same(method, path)


@lru_cache(maxsize=4096)
def _same(method: str, path: str) -> tuple[tuple[str, ...], Target | None]:
    segments = split(path)
    return segments, target(method, segments, {})


def split(path: str) -> tuple[str, ...]:
    """The decoded segments of a path; 400 for a segment that could change the path's meaning."""
    if len(path) > _PATH_LENGTH_MAX:
        raise StatusError(414, "", "the path of the request is too long")
    segments = tuple(segment for segment in path.split("/") if segment)
    if "%" in path:
        segments = tuple(unquote(segment) for segment in segments)
    for segment in segments:
        if segment in (".", "..") or "/" in segment or "\0" in segment or not segment.isprintable():
            raise bad_request("invalid path: segments may not be '.' or '..' or contain '/' or control characters")
    return segments


def target(method: str, segments: tuple[str, ...], query: Mapping[str, str]) -> Target | None:
    """The objects that a path refers to, or None."""
    if segments[:1] == ("api",) and len(segments) >= 3:
        group, version, rest = "", segments[1], segments[2:]
    elif segments[:1] == ("apis",) and len(segments) >= 4:
        group, version, rest = segments[1], segments[2], segments[3:]
    else:
        return None
    verb = _METHODS.get(method, method.lower())
    watching = rest[0] == "watch" and len(rest) > 1
    if watching:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        # What follows a namespace is a resource in it, unless it is a subresource of the namespace.
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    resource, name, subresource = (*rest[:3], "", "")[:3]
    if verb == "get" and not subresource:
        verb = _reading_verb(name, query, watching=watching)
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return Target(verb, group, version, resource, namespace, name, subresource, rest[3:])


def _reading_verb(name: str, query: Mapping[str, str], *, watching: bool) -> str:
    wanted = query.get("watch")
    if watching or (wanted is not None and wanted.lower() not in ("false", "0")):
        return "watch"
    return "get" if name else "list"
