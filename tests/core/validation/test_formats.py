"""Name formats accept what Kubernetes accepts and say why they refuse the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.validation import declarative_formats, formats, names


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a" * 63])
def test_labels_are_accepted(name: str) -> None:
    assert formats.dns_label(name) == []


@pytest.mark.parametrize(
    ("name", "count"), [("", 1), ("A", 1), ("a.b", 1), ("-a", 1), ("a" * 64, 1), ("A" * 64, 2), ("a\n", 1)]
)
def test_other_labels_are_refused(name: str, count: int) -> None:
    assert len(formats.dns_label(name)) == count


def test_the_two_validators_count_in_different_words() -> None:
    assert formats.dns_label("a" * 64) == ["must be no more than 63 characters"]
    assert formats.dns_label("a" * 64, formats.BYTES) == ["must be no more than 63 bytes"]


@pytest.mark.parametrize("key", ["a", "example.com/a", "A_b.c-d", "a" * 63])
def test_label_keys_are_accepted(key: str) -> None:
    assert formats.label_key(key) == []


def test_label_keys_name_the_part_that_is_wrong() -> None:
    assert formats.label_key("/a") == ["prefix part must be non-empty"]
    assert formats.label_key("a/")[0] == "name part must be non-empty"
    assert formats.label_key("A/a")[0].startswith("prefix part a lowercase RFC 1123 subdomain")
    assert formats.label_key("a/b/c")[0].startswith("a valid label key must consist of")


@pytest.mark.parametrize("version", ["1.2.3", "0.0.0-alpha.1+build.7", "1.0.0-0a"])
def test_versions_are_accepted(version: str) -> None:
    assert formats.semver(version) == []


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "01.2.3", "1.2.3-01", "1.2.3+", "1.2.3\n"])
def test_other_versions_are_refused(version: str) -> None:
    assert formats.semver(version) == [formats.SEMVER_TEXT]


@pytest.mark.parametrize("address", ["192.0.2.5/24", "2001:db8::5/64", "::/0", "0.0.0.0/32"])
def test_canonical_interface_addresses_are_accepted(address: str) -> None:
    assert formats.interface_address(address) == []


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("2001:DB8:0::5/64", 'must be in canonical form ("2001:db8::5/64")'),
        ("192.0.2.005/24", 'must be in canonical form ("192.0.2.5/24")'),
        ("192.0.2.5/024", 'must be in canonical form ("192.0.2.5/24")'),
    ],
)
def test_other_spellings_of_addresses_are_corrected(address: str, message: str) -> None:
    assert formats.interface_address(address) == [message]


@pytest.mark.parametrize(
    "address", ["", "192.0.2.5", "1.2.3.4/33", "::/129", "a/b", "fe80::1%eth0/64", "1.2.3.4/9999999999"]
)
def test_what_is_no_interface_address_is_refused(address: str) -> None:
    assert formats.interface_address(address)[0].startswith("must be a valid address in CIDR form")


@given(st.text(max_size=80))
def test_no_format_fails_on_any_text(text: str) -> None:
    for check in (
        formats.dns_label,
        formats.dns_subdomain,
        formats.dns_subdomain_caseless,
        formats.c_identifier,
        formats.label_key,
        formats.label_value,
        formats.path_segment,
        formats.condition_reason,
        formats.lower_case_uuid,
        formats.semver,
        formats.interface_address,
    ):
        assert all(isinstance(message, str) and message for message in check(text))


@given(st.text(alphabet="ab.-/_A1", max_size=40))
def test_both_validators_agree_whether_a_pool_name_is_right(name: str) -> None:
    declarative = declarative_formats.resource_pool_name("p", name, True)
    assert bool(declarative) == bool(names.check_pool_name(name, "p"))


@given(st.text(alphabet="ab.-/_1", max_size=40))
def test_both_validators_agree_whether_an_attribute_name_is_right(name: str) -> None:
    declarative = declarative_formats.fully_qualified_name("p", name, True)
    assert bool(declarative) == bool(names.check_fully_qualified_name(name, "p"))
