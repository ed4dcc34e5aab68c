"""Which credentials of a pod's pull secrets are for an image: Docker's config files, and the kubelet's rules for their names.

Parses the contents of secrets; fetches nothing. An invalid secret gives no credentials.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

# The default registry of images, and its name in Docker's files.
_DEFAULT_REGISTRY = "index.docker.io"
_ALIASES = {"docker.io": _DEFAULT_REGISTRY, "registry-1.docker.io": _DEFAULT_REGISTRY}
_SCHEME = re.compile(r"^https?://")
# What Docker appends to a registry's name for its own API.
_API = re.compile(r"^/v[12]/?$")


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials to pull an image with."""

    username: str = ""
    password: str = ""
    identity_token: str = ""


class _Entry(msgspec.Struct, frozen=True):
    """An entry in a Docker config file."""

    host: str
    port: str
    path: str
    credentials: Credentials


def credentials_for(image: str, secrets: Iterable[Mapping[str, bytes]]) -> tuple[Credentials, ...]:
    """Those that match, longest path first, in the order of the secrets; each once."""
    host, port, path = _parts(_with_registry(image))
    fitting = [
        entry
        for secret in secrets
        for entry in _entries(secret)
        if entry.port == port and _covers(entry.host, host) and _is_below(path, entry.path)
    ]
    fitting.sort(key=lambda entry: -len(entry.path))
    return tuple(dict.fromkeys(entry.credentials for entry in fitting))


def _entries(secret: Mapping[str, bytes]) -> list[_Entry]:
    try:
        if ".dockerconfigjson" in secret:
            named = msgspec.json.decode(secret[".dockerconfigjson"])["auths"]
        else:
            named = msgspec.json.decode(secret[".dockercfg"])
        return [_entry(name, value) for name, value in named.items()]
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError, ValueError):
        return []


def _entry(name: str, value: Any) -> _Entry:
    host, port, path = _parts(_SCHEME.sub("", name))
    username, password = str(value.get("username", "")), str(value.get("password", ""))
    if value.get("auth"):
        try:
            username, _, password = b64decode(value["auth"]).decode().partition(":")
        except (NotBase64, UnicodeDecodeError) as error:
            raise ValueError("auth is not base64") from error
    credentials = Credentials(
        username=username, password=password.rstrip("\x00"), identity_token=str(value.get("identitytoken", ""))
    )
    return _Entry(host, port, "" if _API.match(path) else path.rstrip("/"), credentials)


def _parts(text: str) -> tuple[str, str, str]:
    """Host, port and path."""
    registry, slash, path = text.partition("/")
    host, _, port = registry.partition(":")
    return _ALIASES.get(host, host), port, slash + path


def _with_registry(image: str) -> str:
    """An image with its registry and without tag and digest."""
    name = image.partition("@")[0]
    first, slash, rest = name.partition("/")
    if not slash:
        name = f"{_DEFAULT_REGISTRY}/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"{_DEFAULT_REGISTRY}/{name}"
    elif first in _ALIASES and "/" not in rest:
        name = f"{_DEFAULT_REGISTRY}/library/{rest}"
    before, colon, tag = name.rpartition(":")
    return before if colon and "/" not in tag else name


def _covers(pattern: str, host: str) -> bool:
    """Whether a pattern matches a host: part by part, where * stands for anything."""
    wanted, parts = pattern.split("."), host.split(".")
    return len(wanted) == len(parts) and all(
        re.fullmatch(".*".join(re.escape(each) for each in one.split("*")), part) is not None
        for one, part in zip(wanted, parts, strict=True)
    )


def _is_below(path: str, prefix: str) -> bool:
    return path.startswith(prefix)
