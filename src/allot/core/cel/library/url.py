"""Kubernetes' url library, with the rules and messages of Go's net/url package."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from allot.core.cel.data.values import URL, CelError, KeyedMap, Value
from allot.core.quoting import quoted

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)", re.ASCII)
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL | re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PORT: Final = re.compile(r"(?::[0-9]*)?", re.ASCII)
_HOST_BAD: Final = re.compile(r'[ "<>\\^`{|}]')
# Characters that a path may contain unescaped (encodePath), and those with which it is kept as written.
_PATH_SAFE: Final = "$&+,/:;=@-_.~"
_PATH_AS_WRITTEN: Final = re.compile(r"[A-Za-z0-9!$&'()*+,;=:@\[\]/%._~-]*", re.ASCII)


class UrlError(ValueError):
    """Not an absolute URL; the message is Go's."""


def _check_escapes(text: str) -> None:
    bad = _BAD_ESCAPE.search(text)
    if bad:
        raise UrlError(f"invalid URL escape {quoted(bad[0])}")


def _escaped_path(path: str) -> str:
    if _PATH_AS_WRITTEN.fullmatch(path):
        return path
    return quote(unquote_to_bytes(path), safe=_PATH_SAFE)


def _authority(text: str) -> tuple[str, str]:
    """User information (as written) and host."""
    user, at, host = text.rpartition("@")
    if at and re.search(r"[^A-Za-z0-9\-._:~!$&'()*+,;=%@]", user):
        raise UrlError("net/url: invalid userinfo")
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise UrlError("missing ']' in host")
        port = host[end + 1 :]
    else:
        port = host[host.index(":") :] if ":" in host else ""
        bad = _HOST_BAD.search(host)
        if bad:
            raise UrlError(f"invalid character {quoted(bad[0])} in host name")
        _check_escapes(host)
    if not _PORT.fullmatch(port):
        raise UrlError(f"invalid port {quoted(port)} after host")
    return user + at, host


def parse_absolute(text: str) -> URL:
    """The URL; raises UrlError. An absolute path is valid, as in a request line."""
    if _CONTROL.search(text):
        raise UrlError("net/url: invalid control character in URL")
    if not text:
        raise UrlError("empty url")
    if text.startswith(":"):
        raise UrlError("missing protocol scheme")
    matched = _SCHEME.match(text)
    scheme = matched[0].lower() if matched else ""
    whole, _, fragment = text.partition("#")
    rest, question, query = (whole[len(scheme) + 1 :] if matched else whole).partition("?")
    if text == "*":
        return URL(text="*", escaped_path="*")
    if not rest.startswith("/"):
        if not scheme:
            raise UrlError("invalid URI for request")
        return URL(text=text, scheme=scheme, raw_query=query)
    user, host, path = "", "", rest
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
        user, host = _authority(authority)
    _check_escapes(path)
    escaped = _escaped_path(path)
    printed = (f"{scheme}:" if scheme else "") + (f"//{user}{host}" if scheme and rest.startswith("//") else "")
    printed += escaped + question + query + (f"#{fragment}" if fragment else "")
    return URL(text=printed, scheme=scheme, host=host, escaped_path=escaped, raw_query=query)


def parse_url(text: str) -> URL:
    """url()"""
    try:
        return parse_absolute(text)
    except UrlError as error:
        raise CelError(f"URL parse error during conversion from string: parse {quoted(text)}: {error}") from None


def is_url(text: str) -> bool:
    """isURL()"""
    try:
        parse_absolute(text)
    except UrlError:
        return False
    return True


def get_scheme(url: URL) -> str:
    """`https`"""
    return url.scheme


def get_host(url: URL) -> str:
    """Host with port."""
    return url.host


def get_hostname(url: URL) -> str:
    """Host without port and brackets."""
    host = url.host
    if host.startswith("["):
        return host[1:].rpartition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def get_port(url: URL) -> str:
    """Port, or the empty string."""
    tail = url.host.rpartition("]")[2]
    return tail.rpartition(":")[2] if ":" in tail else ""


def get_escaped_path(url: URL) -> str:
    """Path with escapes."""
    return url.escaped_path


def get_query(url: URL) -> KeyedMap:
    """Query parameters: name to list of values."""
    result = KeyedMap()
    for pair in url.raw_query.split("&"):
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        key, _, value = pair.partition("=")
        result.setdefault(_unescaped(key), []).append(_unescaped(value))
    return result


def _unescaped(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode(errors="replace")


OVERLOADS: Final[dict[str, Callable[..., Value]]] = {
    "string_to_url": parse_url,
    "is_url_string": is_url,
    "url_get_scheme": get_scheme,
    "url_get_host": get_host,
    "url_get_hostname": get_hostname,
    "url_get_port": get_port,
    "url_get_escaped_path": get_escaped_path,
    "url_get_query": get_query,
}
