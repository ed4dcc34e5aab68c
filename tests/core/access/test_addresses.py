"""Which addresses may be dialled because an object says so."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.access.addresses import parse_address, refusal

ALLOWED = """
10.244.0.7 192.168.1.10 172.16.0.1 100.64.0.1 198.51.100.7 8.8.8.8 223.255.255.254 2001:db8::7 fd00:10:244::7 2600::1
::ffff:10.244.0.7 64:ff9b::8.8.8.8 2002:0a00:0001::1
"""
REFUSED = {
    "a loopback": "127.0.0.1 127.0.0.2 127.255.255.255 ::1 0:0:0:0:0:0:0:1 ::ffff:127.0.0.1 ::ffff:7f00:1 0::ffff:127.8.8.8",
    "leads to 127.0.0.1": "::127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::7f00:1 2002:7f00:0001::5 2002:7f00:1::",
    "leads to": "2001:0:0a00:1::80ff:fffe 2001:0:7f00:1::f5ff:fffe",
    "an unspecified": "0.0.0.0 :: ::ffff:0.0.0.0",
    "a link-local": "169.254.169.254 169.254.0.1 fe80::1 febf::1 ::ffff:169.254.169.254",
    "leads to 169.254.169.254": "64:ff9b::169.254.169.254 ::169.254.169.254 2002:a9fe:a9fe::",
    "a multicast": "224.0.0.1 239.255.255.250 ff02::1 ff0e::1 ::ffff:224.0.0.1",
    "a reserved": "255.255.255.255 240.0.0.1 0.1.2.3 ::ffff:255.255.255.255",
    "the network translates": "64:ff9b:1::7f00:1 64:ff9b:1:7f00:0:100::",
}
NO_ADDRESSES = [
    *("", " ", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "010.0.0.1", "10.0.0.1 ", "10.0.0.1\n"),
    *("fe80::1%lo", "fe80::1%25lo", "::1%1", "::ffff:127.0.0.1%eth0", "10.0.0.1:80", "[::1]", "10.0.0.1/24", "1.2.3"),
    *("10.0.0.1@127.0.0.1", "\u0661\u0660.0.0.1", None, 7, 2130706433, b"127.0.0.1", ["10.0.0.1"], True),
]


@pytest.mark.parametrize("text", ALLOWED.split())
def test_addresses_of_other_machines_and_of_pods_may_be_dialled(text: str) -> None:
    address = parse_address(text)
    assert address is not None
    assert refusal(address) == ""


@pytest.mark.parametrize(("reason", "text"), [(why, text) for why, many in REFUSED.items() for text in many.split()])
def test_addresses_of_this_machine_and_its_links_are_refused_however_they_are_written(reason: str, text: str) -> None:
    address = parse_address(text)
    assert address is not None
    assert reason in refusal(address)


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_what_only_some_readers_take_for_an_address_is_none(text: object) -> None:
    assert parse_address(text) is None


def test_an_address_of_ipv4_that_is_written_as_ipv6_is_dialled_as_ipv4() -> None:
    assert parse_address("::ffff:10.0.0.1") == IPv4Address("10.0.0.1")
    assert parse_address("64:ff9b::10.0.0.1") == IPv6Address("64:ff9b::a00:1")


@given(st.ip_addresses(v=4))
def test_an_address_is_judged_as_one_in_every_disguise(address: IPv4Address) -> None:
    number = int(address)
    forms = (0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80)
    for form in forms:
        parsed = parse_address(str(IPv6Address(form)))
        assert parsed is not None
        assert bool(refusal(parsed)) == bool(refusal(address))


@given(st.ip_addresses())
def test_what_is_allowed_is_global_unicast_as_go_has_it(address: IPv4Address | IPv6Address) -> None:
    parsed = parse_address(str(address))
    assert parsed is not None
    if not refusal(parsed):
        assert not (
            parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified
        ) and parsed != ip_address("255.255.255.255")
