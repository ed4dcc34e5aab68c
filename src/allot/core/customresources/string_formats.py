"""Formats of strings that schemas of custom resources may name. Formats that are not known mean nothing."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from allot.core.cel.data.times import parse_duration, parse_timestamp
from allot.core.validation import formats

_HOSTNAME = re.compile(
    r"[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)*\.?"
)
_EMAIL = re.compile(r"[^@\s<>]+@[^@\s<>]+")
_UUID = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_MAC = re.compile(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}")
_HEX_COLOR = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_RGB_COLOR = re.compile(r"rgb\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ISBN_10 = re.compile(r"[0-9]{9}[0-9Xx]")
_CREDIT_CARD = re.compile(r"[0-9]{13,19}")
_SSN = re.compile(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}")
_OBJECT_ID = re.compile(r"[0-9a-fA-F]{24}")
_DURATION_WORDS = re.compile(
    r"\s*[0-9]+(\.[0-9]+)?\s*(ns|us|µs|ms|s|m|h|hr|hour|min|minute|sec|second|d|day|w|week)s?\s*"
)


def _fits(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    compiled = re.compile(pattern, flags)
    return lambda text: compiled.fullmatch(text) is not None


def _date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None and parse_timestamp(f"{text}T00:00:00Z") is not None


def _date_time(text: str) -> bool:
    return parse_timestamp(text) is not None


def _duration(text: str) -> bool:
    return parse_duration(text) is not None or _DURATION_WORDS.fullmatch(text) is not None


def _byte(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return False
    return True


def _address(version: int) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version and "%" not in text
        except ValueError:
            return False

    return fits


def _cidr(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


def _rgb(text: str) -> bool:
    found = _RGB_COLOR.fullmatch(text)
    return found is not None and all(int(part) <= 255 for part in found.groups())


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if not _ISBN_10.fullmatch(digits):
        return False
    return sum((10 - at) * (10 if one in "Xx" else int(one)) for at, one in enumerate(digits)) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum(int(one) * (3 if at % 2 else 1) for at, one in enumerate(digits)) % 10 == 0


def _credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CREDIT_CARD.fullmatch(digits):
        return False
    total = 0
    for at, one in enumerate(reversed(digits)):
        doubled = int(one) * (2 if at % 2 else 1)
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0


_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "bsonobjectid": lambda text: _OBJECT_ID.fullmatch(text) is not None,
    "uri": _uri,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": lambda text: len(text) <= 255 and _HOSTNAME.fullmatch(text) is not None,
    "ipv4": _address(4),
    "ipv6": _address(6),
    "cidr": _cidr,
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "uuid": _fits(_UUID % ("[0-9a-f]", "[0-9a-f]"), re.IGNORECASE),
    "uuid3": _fits(_UUID % ("3", "[0-9a-f]"), re.IGNORECASE),
    "uuid4": _fits(_UUID % ("4", "[89ab]"), re.IGNORECASE),
    "uuid5": _fits(_UUID % ("5", "[89ab]"), re.IGNORECASE),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "creditcard": _credit_card,
    "ssn": lambda text: _SSN.fullmatch(text) is not None,
    "hexcolor": lambda text: _HEX_COLOR.fullmatch(text) is not None,
    "rgbcolor": _rgb,
    "byte": _byte,
    "password": lambda _: True,
    "date": _date,
    "duration": _duration,
    "datetime": _date_time,
    "k8s-short-name": lambda text: not formats.dns_label(text),
    "k8s-long-name": lambda text: not formats.dns_subdomain(text),
}


def _normal(name: str) -> str:
    return name if name.startswith("k8s-") else name.replace("-", "")


def is_known_format(name: str) -> bool:
    """Whether a format means anything."""
    return isinstance(name, str) and _normal(name) in _FORMATS


def has_format(name: str, text: str) -> bool:
    """Whether a text has a known format."""
    return _FORMATS[_normal(name)](text)
