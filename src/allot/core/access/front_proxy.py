"""The identity that a front proxy passes on in X-Remote headers, in both directions.

An extension API server trusts these headers only from a client with the front proxy's certificate, and so does this one. What
was in such headers before is never passed on: `is_remote_header` finds them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from allot.core.access.attributes import User, authenticated_groups

USER_HEADER = "X-Remote-User"
UID_HEADER = "X-Remote-Uid"
GROUP_HEADER = "X-Remote-Group"
EXTRA_PREFIX = "X-Remote-Extra-"

# Bytes that a header name may have; all others, and the escape itself, are escaped in the names of extras.
_PLAIN = frozenset(b"!#$&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
# A value that arrives as it was sent: no control characters, no blanks at its ends, which receivers drop.
_VALUE = re.compile(r"(?:[^\x00-\x20\x7f](?:[^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?)?")


class UnsendableIdentity(ValueError):
    """A user whose name, group or extra would arrive as that of another one."""


def remote_headers(user: User) -> tuple[tuple[str, str], ...]:
    """The headers that tell an extension API server who asks; UnsendableIdentity if they could be misread."""
    found = [(USER_HEADER, user.name)]
    if user.uid:
        found.append((UID_HEADER, user.uid))
    found += [(GROUP_HEADER, group) for group in user.groups]
    for key, values in user.extra.items():
        found += [(EXTRA_PREFIX + _escaped(key), value) for value in values]
    for name, value in found:
        if _VALUE.fullmatch(value) is None or not value.isprintable():
            raise UnsendableIdentity(f'invalid header field value for "{name}": {value[:100]!r}')
    return tuple(found)


def _escaped(key: str) -> str:
    raw = key.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)


def remote_user(headers: Iterable[tuple[str, str]]) -> User | None:
    """The user in the headers of a front proxy, None if they name none. The proxy must have been authenticated."""
    name, uid = "", ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for header, value in headers:
        key = header.lower()
        if not key.startswith("x-remote-"):
            continue
        if not header.isprintable() or not value.isprintable():
            return None
        if key == USER_HEADER.lower():
            name = name or value
        elif key == UID_HEADER.lower():
            uid = uid or value
        elif key == GROUP_HEADER.lower() and value:
            groups.append(value)
        elif key.startswith(EXTRA_PREFIX.lower()):
            extra.setdefault(unquote(key[len(EXTRA_PREFIX) :]), []).append(value)
    if not name:
        return None
    told = {key: tuple(values) for key, values in extra.items()}
    return User(name, uid, authenticated_groups(name, groups), told)
