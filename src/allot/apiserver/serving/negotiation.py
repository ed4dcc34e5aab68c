"""Content negotiation: the format and form of an answer.

JSON and YAML; an object or list itself, as a Table, or only its metadata. Protobuf is not written; a client that
accepts nothing else gets a hint to request JSON.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from allot.apiserver.errors import StatusError

JSON = "application/json"
YAML = "application/yaml"
_ACCEPTED = (JSON, YAML)
_ALIASES = {
    "*/*": JSON,
    "application/*": JSON,
    "text/plain": JSON,
    "text/*": JSON,
    "text/html": JSON,
    "text/yaml": YAML,
    "application/x-yaml": YAML,
    "application/json": JSON,
    "application/yaml": YAML,
}
_HEADER_LENGTH_MAX = 4096
_META_GROUP = "meta.k8s.io"
_META_VERSIONS = ("v1", "v1beta1")
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")


class Format(msgspec.Struct, frozen=True):
    """How to write an answer."""

    media_type: str = JSON
    # Table, PartialObjectMetadata or PartialObjectMetadataList, and its version; empty for the object itself.
    as_: str = ""
    version: str = ""
    group: str = ""


class Accepted(msgspec.Struct, frozen=True):
    """One entry of an Accept header."""

    media_type: str
    quality: float
    parameters: dict[str, str]


@lru_cache(maxsize=1024)
def parse_accept(header: str) -> tuple[Accepted, ...]:
    """The entries of an Accept header, the most preferred first."""
    entries = []
    for part in header[:_HEADER_LENGTH_MAX].split(","):
        media_type, *rest = part.split(";")
        parameters = {}
        for parameter in rest:
            name, _, value = parameter.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        if media_type.strip():
            entries.append(Accepted(media_type.strip().lower(), _quality(parameters.pop("q", "1")), parameters))
    return tuple(sorted(entries, key=lambda entry: -entry.quality))


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


@lru_cache(maxsize=1024)
def negotiate(header: str, *, tables: bool = True) -> Format:
    """The format of an answer; 406 if none that the client accepts is supported. tables: whether the answer can be one."""
    if not header.strip():
        return Format()
    for entry in parse_accept(header):
        media_type = _ALIASES.get(entry.media_type)
        if media_type is None or entry.quality <= 0:
            continue
        as_ = entry.parameters.get("as", "")
        if not as_:
            return Format(media_type)
        version, group = entry.parameters.get("v", ""), entry.parameters.get("g", "")
        is_known = as_ in _TRANSFORMS and (tables or as_ != "Table")
        if group == _META_GROUP and version in _META_VERSIONS and is_known:
            return Format(media_type, as_, version, group)
    raise not_acceptable(header)


_TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")


def not_acceptable(header: str) -> StatusError:
    """406."""
    text = f"only the following media types are accepted: {', '.join(_ACCEPTED)}"
    if "protobuf" in header:
        text += (
            "; this server does not answer in protobuf: let the client accept JSON, for Kubernetes' components with "
            "--kube-api-content-type=application/json or acceptContentTypes: application/json in their clientConnection"
        )
    return StatusError(406, "NotAcceptable", text)


def wants_pretty(query_value: str | None, user_agent: str) -> bool:
    """Whether to indent the answer: on request, or for clients that show answers as they are."""
    if query_value is not None:
        return query_value.lower() not in ("false", "0")
    return user_agent.startswith(_PRETTY_AGENTS)
