"""Which addresses from objects a server may connect to: those of other machines and pods, and none of
this machine or its links.

Checks only addresses; the dialler knows whether one belongs to this machine. Names are not addresses: they are
resolved by the dialler, and the result is checked.

Reads addresses strictly, unlike `core.validation.addresses`: an octet with leading zeros, which fields from before 1.33 may
have, is decimal to Go and octal to a C library, so what was judged would not be what is dialled.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from allot.core.validation.addresses import Address, unmapped

_THIS_NETWORK = IPv4Network("0.0.0.0/8")
_COMPATIBLE = IPv6Network("::/96")
# Translated by the network to the IPv4 address at their end (RFC 6052); of the second (RFC 8215) it depends on the network
# where in the address that is.
_TRANSLATED = IPv6Network("64:ff9b::/96")
_TRANSLATED_LOCALLY = IPv6Network("64:ff9b:1::/48")
_FIRST = (IPv6Address("::"), IPv6Address("::1"))


def parse_address(text: object) -> Address | None:
    """An address as it is dialled: one of IPv4 that is written as IPv6 is IPv4's. None for anything else; an address with a
    zone belongs to one link, and is none here."""
    if not isinstance(text, str) or "%" in text:
        return None
    try:
        return unmapped(ip_address(text))
    except ValueError:
        return None


def refusal(address: Address) -> str:
    """Why an address is not dialled; empty if it may be. Upstream's rule is Go's IsGlobalUnicast; that addresses of IPv4
    inside of others are checked too is ours."""
    for each in (address, *_embedded(address)):
        if kind := _kind(each):
            return f"{address} is {kind} address" if each == address else f"{address} leads to {each}, {kind} address"
    if isinstance(address, IPv6Address) and address in _TRANSLATED_LOCALLY:
        return f"{address} is an address that the network translates"
    return ""


def _kind(address: Address) -> str:
    if address.is_unspecified:
        return "an unspecified"
    if address.is_loopback:
        return "a loopback"
    if address.is_link_local:
        return "a link-local"
    if address.is_multicast:
        return "a multicast"
    if isinstance(address, IPv4Address) and (address in _THIS_NETWORK or address.is_reserved):
        return "a reserved"
    return ""


def _embedded(address: Address) -> tuple[IPv4Address, ...]:
    """The addresses of IPv4 to which tunnels and translators send what is for an address of IPv6."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in _TRANSLATED or (address in _COMPATIBLE and address not in _FIRST):
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    return address.teredo or ()
