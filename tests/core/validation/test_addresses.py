"""Addresses and networks: what programs read differently is no address of the API."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.validation import addresses

LOOPBACK = "may not be in the loopback range (127.0.0.0/8, ::1/128)"


@pytest.mark.parametrize("value", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "127.0.0.01"])
def test_every_spelling_of_loopback_is_known_as_such(value: str) -> None:
    assert addresses.endpoint_ip(value) == [LOOPBACK]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("10.1.2.3", ""),
        ("2001:DB8::1", ""),
        ("010.1.2.3", "must not have leading 0s"),
        ("::ffff:010.1.2.3", "must not have leading 0s"),
        ("::ffff:10.1.2.3", "must not be an IPv4-mapped IPv6 address"),
        ("fe80::1%eth0", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("10.1.2", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("10.1.2.3/24", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("٣.1.2.3", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("0" * 1000 + "1.2.3.4", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
    ],
)
def test_old_fields_take_any_spelling_that_all_programs_read_alike(value: str, told: str) -> None:
    assert addresses.legacy_ip(value) == ([told] if told else [])


def test_new_fields_take_one_spelling() -> None:
    assert addresses.strict_ip("2001:db8::1") == []
    assert addresses.strict_ip("2001:DB8::1") == ['must be in canonical form ("2001:db8::1")']
    assert addresses.strict_cidr("2001:DB8::/32") == ['must be in canonical form ("2001:db8::/32")']


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("10.0.0.0/8", ""),
        ("::/0", ""),
        ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
        ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
        ("::ffff:10.0.0.0/104", "must not have an IPv4-mapped IPv6 address"),
        ("10.0.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ("10.0.0.0/33", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
    ],
)
def test_networks_have_no_bits_beyond_their_prefix(value: str, told: str) -> None:
    assert addresses.legacy_cidr(value) == ([told] if told else [])


def test_a_network_is_part_of_a_wider_one() -> None:
    assert addresses.contains("10.0.0.0/8", "10.1.0.0/16")
    assert not addresses.contains("10.0.0.0/8", "10.0.0.0/8")
    assert not addresses.contains("10.0.0.0/8", "11.0.0.0/16")
    assert not addresses.contains("10.0.0.0/8", "2001:db8::/64")


def test_odd_spellings_are_pointed_out() -> None:
    (told,) = addresses.ip_warnings("spec.x", "010.1.2.3")
    assert told == 'spec.x: non-standard IP address "010.1.2.3" is invalid: use "10.1.2.3"'
    (told,) = addresses.cidr_warnings("spec.x", "10.0.0.1/8")
    should = '"10.0.0.0/8" or "10.0.0.1/32"?'
    assert told == f'spec.x: CIDR value "10.0.0.1/8" is ambiguous in this context (should be {should})'
    assert addresses.ip_warnings("spec.x", "2001:db8::1") == addresses.cidr_warnings("spec.x", "10.0.0.0/8") == ()


@given(st.ip_addresses())
def test_what_the_library_prints_is_canonical_unless_it_is_mapped(address: ipaddress.IPv4Address) -> None:
    found = addresses.parse_address(str(address))
    assert found is not None
    assert addresses.strict_ip(str(found)) == []
    assert (found == address) == (addresses.legacy_ip(str(address)) == [])


@given(st.text(max_size=60))
def test_any_text_gets_an_answer(text: str) -> None:
    assert (addresses.parse_address(text) is None) == bool(
        addresses.endpoint_ip(text) == ["must be a valid IP address"]
    )
    addresses.legacy_cidr(text)
    addresses.cidr_warnings("", text)
    addresses.ip_warnings("", text)
