"""IP addresses and networks as fields of the API spell them, with the texts of Kubernetes.

Fields from before 1.33 are *legacy*: any spelling of an address passes except those that programs read differently:
octets with leading zeros and IPv4 addresses mapped into IPv6. Newer fields accept only the canonical spelling. A mapped
address counts as its IPv4 address, as in Go.

The rules are those of Go's older parser (net.ParseIP). Where an address is dialled it is read strictly (`core.access.addresses`);
CEL has the newer parser (netip), which keeps mapped addresses and zones apart and whose messages are part of its answers
(`core.cel.library.network`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from allot.core.quoting import quoted as quote

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Messages = list[str]

_TEXT_LENGTH_MAX = 128
_octet = re.compile(r"[0-9]+").fullmatch
_IP_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_CIDR_TEXT = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def parse_address(value: str) -> Address | None:
    """The address; None if invalid. Leading zeros are decimal; a mapped IPv4 address becomes IPv4."""
    address = _parse(value)
    return unmapped(address) if address is not None else None


def unmapped(address: Address) -> Address:
    """The address, or the IPv4 address that is mapped into it."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped if mapped is not None else address


def _parse(value: str) -> Address | None:
    if len(value) > _TEXT_LENGTH_MAX or "%" in value or "/" in value:
        return None
    groups, separator, last = value.rpartition(":")
    if "." in last:
        last = ".".join(_without_zeros(octet) if _octet(octet) else octet for octet in last.split("."))
    text = groups + separator + last
    if separator:
        text = ":".join(
            _without_zeros(group) if len(group) > 4 and "." not in group else group for group in text.split(":")
        )
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _without_zeros(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _has_leading_zeros(value: str) -> bool:
    """Whether a valid address is spelled with leading zeros, which strict parsers refuse."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return True
    return False


def _is_mapped(value: str) -> bool:
    address = _parse(value)
    return address is not None and unmapped(address) is not address


def legacy_ip(value: str) -> Messages:
    """An address in a field from before 1.33."""
    if parse_address(value) is None:
        return [_IP_TEXT]
    if _has_leading_zeros(value):
        return ["must not have leading 0s"]
    return ["must not be an IPv4-mapped IPv6 address"] if _is_mapped(value) else []


def strict_ip(value: str) -> Messages:
    """An address in its canonical spelling."""
    messages = legacy_ip(value)
    canonical = str(parse_address(value))
    if not messages and canonical != value:
        messages.append(f"must be in canonical form ({quote(canonical)})")
    return messages


def endpoint_ip(value: str) -> Messages:
    """An address that can receive traffic: not unspecified, loopback or link-local."""
    address = parse_address(value)
    if address is None:
        return ["must be a valid IP address"]
    messages = []
    if address.is_unspecified:
        messages.append(f"may not be unspecified ({value})")
    if address.is_loopback:
        messages.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        messages.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if _is_link_local_multicast(address):
        messages.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return messages


def _is_link_local_multicast(address: Address) -> bool:
    packed = address.packed
    return packed[:3] == b"\xe0\x00\x00" if address.version == 4 else packed[0] == 0xFF and packed[1] & 0x0F == 0x02


def family(value: str) -> int:
    """4 or 6; 0 if it is not an address."""
    address = parse_address(value)
    return address.version if address is not None else 0


def are_dual_stack(values: Sequence[str]) -> bool:
    """Whether both families are present among addresses or networks."""
    return {4, 6} <= {family(value.partition("/")[0]) for value in values}


# --- networks ---


class Network:
    """A network as written: its address, the length of its prefix, and whether the spelling is strict."""

    def __init__(self, value: str) -> None:
        text, slash, length = value.partition("/")
        address = _parse(text)
        if not slash or address is None or not _octet(length) or len(length) > 8 or int(length) > address.max_prefixlen:
            raise ValueError(value)
        self.is_mapped = unmapped(address) is not address
        self.has_leading_zeros = _has_leading_zeros(text) or (len(length) > 1 and length[0] == "0")
        self.address = address
        self.prefix = int(length)
        network = ipaddress.ip_network((address, self.prefix), strict=False)
        self.has_host_bits = network.network_address != address
        # As Go prints it; a mapped network prints as IPv4 if its prefix is long enough.
        first = unmapped(network.network_address)
        self.canonical = str(network) if first is network.network_address else f"{first}/{self.prefix - 96}"


def parse_network(value: str) -> Network | None:
    """The network; None if invalid."""
    try:
        return Network(value)
    except ValueError:
        return None


def legacy_cidr(value: str) -> Messages:
    """A network in a field from before 1.33."""
    network = parse_network(value)
    if network is None:
        return [_CIDR_TEXT]
    if network.has_leading_zeros:
        return ["must not have leading 0s in IP or prefix length"]
    if network.is_mapped:
        return ["must not have an IPv4-mapped IPv6 address"]
    return ["must not have bits set beyond the prefix length"] if network.has_host_bits else []


def strict_cidr(value: str) -> Messages:
    """A network in its canonical spelling."""
    messages = legacy_cidr(value)
    network = parse_network(value)
    if not messages and network is not None and network.canonical != value:
        messages.append(f"must be in canonical form ({quote(network.canonical)})")
    return messages


def contains(outer: str, inner: str) -> bool:
    """Whether a network is a proper subset of another; both are valid."""
    one, other = parse_network(outer), parse_network(inner)
    if one is None or other is None or one.address.version != other.address.version or one.prefix >= other.prefix:
        return False
    kept = one.address.max_prefixlen - one.prefix
    return int(one.address) >> kept == int(other.address) >> kept


# --- warnings about accepted spellings ---


def ip_warnings(path: str, value: str) -> tuple[str, ...]:
    """Warnings about an address in a legacy field."""
    address = parse_address(value)
    if address is None:
        return ()
    if _has_leading_zeros(value) or _is_mapped(value):
        return (f"{path}: non-standard IP address {quote(value)} is invalid: use {quote(str(address))}",)
    if address.version == 6 and str(address) != value:
        canonical = quote(str(address))
        return (f"{path}: IPv6 address {quote(value)} should be in RFC 5952 canonical format ({canonical})",)
    return ()


def cidr_warnings(path: str, value: str) -> tuple[str, ...]:
    """Warnings about a network in a legacy field."""
    network = parse_network(value)
    if network is None:
        return ()
    found = []
    if network.has_host_bits:
        alone = f"{unmapped(network.address)}/{network.address.max_prefixlen}"
        either = f"{quote(network.canonical)} or {quote(alone)}?"
        found.append(f"{path}: CIDR value {quote(value)} is ambiguous in this context (should be {either})")
    if network.has_leading_zeros or network.is_mapped:
        found.append(f"{path}: non-standard CIDR value {quote(value)} is invalid: use {quote(network.canonical)}")
    if not found and network.address.version == 6 and network.canonical != value:
        form = quote(network.canonical)
        found.append(f"{path}: IPv6 CIDR value {quote(value)} should be in RFC 5952 canonical format ({form})")
    return tuple(found)
