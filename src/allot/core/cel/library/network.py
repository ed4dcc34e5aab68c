"""IP addresses and prefixes: Kubernetes' ip and cidr libraries, with the messages of Go's netip package.

A separate parser, because expressions can see its error messages; Python's differ, and fields of
objects follow other rules (`core.validation.addresses`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from allot.core.cel.data.text import network_text
from allot.core.cel.data.values import CIDR, IP, CelError, Value
from allot.core.quoting import quoted

_HEX_GROUP: Final = re.compile(r"[0-9A-Fa-f]+")
_BITS: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_MAPPED_PREFIX: Final = 0xFFFF
_ADDRESS_TEXT_MAX: Final = 256


class _AddressError(ValueError):
    """An invalid address: the reason and, where Go reports it, the rest of the text that failed to parse."""

    def __init__(self, reason: str, at: str = "") -> None:
        super().__init__(reason + (f" (at {quoted(at)})" if at else ""))


# --- parsing ---


def _parse_address(text: str) -> tuple[IP, str]:
    """An address and its zone; raises _AddressError."""
    mark = re.search(r"[.:%]", text)
    if mark is None or len(text) > _ADDRESS_TEXT_MAX:
        raise _AddressError("unable to parse IP")
    if mark[0] == ".":
        return IP(4, _version_4(text)), ""
    if mark[0] == "%":
        raise _AddressError("missing IPv6 address")
    address, percent, zone = text.partition("%")
    if percent and not zone:
        raise _AddressError("zone must be a non-empty string")
    return IP(6, _version_6(address)), zone


def _version_4(text: str) -> int:
    fields = text.split(".")
    number, rest = 0, text
    for position, field in enumerate(fields):
        digits = re.match(r"[0-9]*", field, re.ASCII)
        assert digits is not None, "the pattern matches the empty string"
        if position == 4:
            raise _AddressError("IPv4 address too long")
        if len(digits[0]) > 1 and digits[0][0] == "0":
            raise _AddressError("IPv4 field has octet with leading zero")
        if len(digits[0]) > 3 or int(digits[0] or 0) > 255:
            raise _AddressError("IPv4 field has value >255")
        if digits.end() < len(field):
            raise _AddressError("unexpected character", rest[digits.end() :])
        if not field:
            raise _AddressError("IPv4 field must have at least one digit", rest if position else text)
        number, rest = number << 8 | int(field), rest[len(field) + 1 :]
    if len(fields) < 4:
        raise _AddressError("IPv4 address too short")
    return number


def _version_6(text: str) -> int:
    head, ellipsis, tail = text.partition("::")
    if "::" in tail or tail.startswith(":"):
        raise _AddressError("multiple :: in address", tail)
    groups = _groups(head, last=not ellipsis) + _groups(tail, last=True)
    if not ellipsis:
        if len(groups) < 8:
            raise _AddressError("address string too short")
    elif len(groups) == 8:
        raise _AddressError("the :: must expand to at least one field of zeros")
    if len(groups) > 8:
        raise _AddressError("trailing garbage after address")
    split = len(_groups(head, last=not ellipsis))
    number = 0
    for group in (*groups[:split], *[0] * (8 - len(groups)), *groups[split:]):
        number = number << 16 | group
    return number


def _groups(text: str, last: bool) -> list[int]:
    if not text:
        return []
    groups: list[int] = []
    fields = text.split(":")
    for position, field in enumerate(fields):
        if "." in field and last and position == len(fields) - 1:
            number = _version_4(field)
            return [*groups, number >> 16, number & 0xFFFF]
        digits = _HEX_GROUP.match(field)
        if digits is None:
            raise _AddressError("each colon-separated field must have at least one digit", ":".join(fields[position:]))
        if digits.end() < len(field):
            raise _AddressError("unexpected character, want colon", ":".join(fields[position:])[digits.end() :])
        if len(field) > 4:
            raise _AddressError("each group must have 4 or less digits", ":".join(fields[position:]))
        groups.append(int(field, 16))
    return groups


def _is_mapped(address: IP) -> bool:
    return address.version == 6 and address.number >> 32 == _MAPPED_PREFIX


def parse_ip(text: str) -> IP:
    """The address; CelError for zones and mapped IPv4 addresses too."""
    try:
        address, zone = _parse_address(text)
    except _AddressError as error:
        raise CelError(
            f"IP Address {quoted(text)} parse error during conversion from string: ParseAddr({quoted(text)}): {error}"
        ) from None
    if zone:
        raise CelError(f"IP address {quoted(text)} with zone value is not allowed")
    if _is_mapped(address):
        raise CelError(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return address


def _parse_prefix(text: str) -> CIDR:
    address_text, slash, bits_text = text.rpartition("/")
    if not slash:
        raise _AddressError("no '/'")
    try:
        address, zone = _parse_address(address_text)
    except _AddressError as error:
        raise _AddressError(f"ParseAddr({quoted(address_text)}): {error}") from None
    if zone:
        raise _AddressError("IPv6 zones cannot be present in a prefix")
    if not _BITS.fullmatch(bits_text):
        raise _AddressError(f"bad bits after slash: {quoted(bits_text)}")
    if int(bits_text) > _width(address):
        raise _AddressError("prefix length out of range")
    return CIDR(address, int(bits_text))


def parse_cidr(text: str) -> CIDR:
    """The prefix; CelError for mapped IPv4 addresses too."""
    problem = "network address parse error during conversion from string: "
    try:
        prefix = _parse_prefix(text)
    except _AddressError as error:
        # The message says it twice, as upstream's does.
        raise CelError(f"{problem}{problem}netip.ParsePrefix({quoted(text)}): {error}") from None
    if _is_mapped(prefix.address):
        raise CelError(f"{problem}IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return prefix


def _parses(parse: Callable[[str], Value]) -> Callable[[str], bool]:
    def parses(text: str) -> bool:
        try:
            parse(text)
        except CelError:
            return False
        return True

    return parses


# --- addresses ---


def _width(address: IP) -> int:
    return 32 if address.version == 4 else 128


def _starts(address: IP, version: int, prefix: int, bits: int) -> bool:
    return address.version == version and address.number >> (_width(address) - bits) == prefix


def family(address: IP) -> int:
    """4 or 6."""
    return address.version


def is_canonical(text: str) -> bool:
    """Whether the text is how the address would be printed."""
    return network_text(parse_ip(text)) == text


def is_unspecified(address: IP) -> bool:
    """0.0.0.0 or ::"""
    return address.number == 0


def is_loopback(address: IP) -> bool:
    """127.0.0.0/8 or ::1"""
    return _starts(address, 4, 127, 8) or address == IP(6, 1)


def is_link_local_multicast(address: IP) -> bool:
    """224.0.0.0/24 or ff?2::/16"""
    return _starts(address, 4, 0xE00000, 24) or (address.version == 6 and address.number >> 112 & 0xFF0F == 0xFF02)


def is_link_local_unicast(address: IP) -> bool:
    """169.254.0.0/16 or fe80::/10"""
    return _starts(address, 4, 0xA9FE, 16) or _starts(address, 6, 0xFE80 >> 6, 10)


def is_global_unicast(address: IP) -> bool:
    """Neither unspecified, broadcast, loopback, multicast nor link-local."""
    multicast = _starts(address, 4, 0xE, 4) or _starts(address, 6, 0xFF, 8)
    broadcast = address == IP(4, 0xFFFFFFFF)
    special = is_unspecified(address) or is_loopback(address) or is_link_local_unicast(address)
    return not (multicast or broadcast or special)


# --- prefixes ---


def _network(prefix: CIDR) -> int:
    shift = _width(prefix.address) - prefix.bits
    return prefix.address.number >> shift << shift


def contains_ip(prefix: CIDR, address: IP) -> bool:
    """Whether the address is in the network."""
    return address.version == prefix.address.version and _network(CIDR(address, prefix.bits)) == _network(prefix)


def contains_ip_string(prefix: CIDR, text: str) -> bool:
    """Whether the address in the text is in the network."""
    return contains_ip(prefix, parse_ip(text))


def contains_cidr(prefix: CIDR, inner: CIDR) -> bool:
    """Whether the other network is a part of this one."""
    return prefix.bits <= inner.bits and contains_ip(prefix, inner.address)


def contains_cidr_string(prefix: CIDR, text: str) -> bool:
    """Whether the network in the text is a part of this one."""
    return contains_cidr(prefix, parse_cidr(text))


def cidr_ip(prefix: CIDR) -> IP:
    """The address, without the prefix length."""
    return prefix.address


def prefix_length(prefix: CIDR) -> int:
    """The number of bits of the network part."""
    return prefix.bits


def masked(prefix: CIDR) -> CIDR:
    """The prefix with the bits of the host part cleared."""
    return CIDR(IP(prefix.address.version, _network(prefix)), prefix.bits)


def is_mask(prefix: CIDR) -> bool:
    """Whether no bit of the host part is set."""
    return _network(prefix) == prefix.address.number


OVERLOADS: Final[dict[str, Callable[..., Value]]] = {
    "string_to_ip": parse_ip,
    "is_ip": _parses(parse_ip),
    "ip_family": family,
    "ip_is_canonical": is_canonical,
    "ip_is_unspecified": is_unspecified,
    "ip_is_loopback": is_loopback,
    "ip_is_link_local_multicast": is_link_local_multicast,
    "ip_is_link_local_unicast": is_link_local_unicast,
    "ip_is_global_unicast": is_global_unicast,
    "string_to_cidr": parse_cidr,
    "is_cidr": _parses(parse_cidr),
    "cidr_contains_ip_ip": contains_ip,
    "cidr_contains_ip_string": contains_ip_string,
    "cidr_contains_cidr": contains_cidr,
    "cidr_contains_cidr_string": contains_cidr_string,
    "cidr_ip": cidr_ip,
    "cidr_prefix_length": prefix_length,
    "cidr_masked": masked,
    "cidr_is_mask": is_mask,
}
