"""Versions parse and compare as in Kubernetes' CEL functions."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.semver import Semver, SemverError

numbers = st.integers(0, 2**64 - 1)
words = st.from_regex(r"[0-9A-Za-z-]{0,6}[A-Za-z-][0-9A-Za-z-]{0,6}", fullmatch=True)
versions = st.builds(
    Semver,
    numbers,
    numbers,
    numbers,
    st.lists(st.one_of(numbers, words), max_size=3).map(tuple),
    st.lists(words, max_size=2).map(tuple),
)


def test_versions_follow_the_precedence_of_the_specification() -> None:
    ordered = [
        "1.0.0-1",
        "1.0.0-2",
        "1.0.0-11",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.1",
        "1.2.0",
        "1.10.0",
        "2.0.0",
    ]
    parsed = [Semver.parse(text) for text in ordered]
    assert all(left < right for left, right in itertools.pairwise(parsed))
    assert all(left.compare(right) == -1 for left, right in itertools.pairwise(parsed))


def test_build_metadata_counts_neither_for_order_nor_for_equality() -> None:
    left, right = Semver.parse("1.0.0+a"), Semver.parse("1.0.0+b.1")
    assert left == right
    assert hash(left) == hash(right)
    assert left.compare(right) == 0
    assert str(right) == "1.0.0+b.1"


@settings(max_examples=50)
@given(versions)
def test_what_is_printed_parses_to_an_equal_version(version: Semver) -> None:
    twin = Semver.parse(str(version))
    assert twin == version
    assert str(twin) == str(version)
    assert (twin.pre_release, twin.build) == (version.pre_release, version.build)


@settings(max_examples=50)
@given(versions, versions)
def test_comparison_is_antisymmetric_and_agrees_with_the_operators(left: Semver, right: Semver) -> None:
    assert left.compare(right) == -right.compare(left)
    assert (left < right, left == right, left > right) == tuple(left.compare(right) == sign for sign in (-1, 0, 1))
    assert (left <= right, left >= right) == (left.compare(right) <= 0, left.compare(right) >= 0)


@given(st.text(alphabet="v0123456789.-+aé\n", max_size=20), st.booleans())
def test_any_text_is_a_version_or_a_semver_error(text: str, normalize: bool) -> None:
    try:
        version = Semver.parse(text, normalize)
    except SemverError as error:
        assert str(error)
        return
    assert Semver.parse(str(version)) == version


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Version string empty"),
        ("1", "No Major.Minor.Patch elements found"),
        ("1.2", "No Major.Minor.Patch elements found"),
        ("v1.2.3", 'Invalid character(s) found in major number "v1"'),
        ("01.2.3", 'Major number must not contain leading zeroes "01"'),
        ("1.b.3", 'Invalid character(s) found in minor number "b"'),
        ("1.02.3", 'Minor number must not contain leading zeroes "02"'),
        ("1.2.3 ", 'Invalid character(s) found in patch number "3 "'),
        ('1.2."\n', 'Invalid character(s) found in patch number "\\"\\n"'),
        ("1.2.\x01\u200b", 'Invalid character(s) found in patch number "\\x01\\u200b"'),
        ("1.2.03", 'Patch number must not contain leading zeroes "03"'),
        ("1.2.3.4", 'Invalid character(s) found in patch number "3.4"'),
        ("1..3", 'strconv.ParseUint: parsing "": invalid syntax'),
        (
            "18446744073709551616.0.0",
            'strconv.ParseUint: parsing "18446744073709551616": value out of range',
        ),
        ("1.2.3-", "Prerelease is empty"),
        ("1.2.3-a..b", "Prerelease is empty"),
        ("1.2.3-01", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("1.2.3-a_b", 'Invalid character(s) found in prerelease "a_b"'),
        ("1.2.3+", "Build meta data is empty"),
        ("1.2.3+a_b", 'Invalid character(s) found in build meta data "a_b"'),
    ],
)
def test_a_text_that_is_no_version_is_refused_with_kubernetes_message(text: str, message: str) -> None:
    with pytest.raises(SemverError) as caught:
        Semver.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1", "1.0.0"),
        ("1.2", "1.2.0"),
        ("v01.002.0003", "1.2.3"),
        ("00.0.0", "0.0.0"),
        ("1.2.3-rc.1+b", "1.2.3-rc.1+b"),
        ("1.2.0-rc", "1.2.0-rc"),
    ],
)
def test_normalizing_removes_the_v_and_zeros_and_completes_short_versions(text: str, version: str) -> None:
    assert str(Semver.parse(text, normalize=True)) == version


def test_normalizing_refuses_a_short_version_with_a_pre_release() -> None:
    with pytest.raises(SemverError, match="short version cannot contain PreRelease/Build meta data"):
        Semver.parse("1.2-rc", normalize=True)


def test_numbers_of_absurd_length_are_refused() -> None:
    with pytest.raises(SemverError, match="value out of range"):
        Semver.parse("1" * 100_000 + ".0.0")


def test_numbers_are_unsigned_and_64_bits_wide() -> None:
    version = Semver.parse("18446744073709551615.1.2")
    assert (version.major, version.minor, version.patch) == (2**64 - 1, 1, 2)


def test_a_version_cannot_be_changed_and_survives_copying() -> None:
    version = Semver.parse("1.2.3-a.1+b")
    with pytest.raises(AttributeError, match="immutable"):
        version.major = 5
    with pytest.raises(AttributeError, match="immutable"):
        del version.major
    for twin in (copy.deepcopy(version), pickle.loads(pickle.dumps(version))):
        assert str(twin) == str(version)
        assert repr(twin) == "Semver('1.2.3-a.1+b')"


def test_a_version_is_never_equal_to_a_text() -> None:
    assert Semver.parse("1.2.3") != "1.2.3"
    with pytest.raises(TypeError):
        _ = Semver.parse("1.2.3") < "1.2.4"  # type: ignore[operator]
