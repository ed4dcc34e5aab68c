"""Quantities parse, print, compare and add as in Kubernetes."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.quantity import INT64_MAX, INT64_MIN, TEXT_LENGTH_MAX, Format, Quantity, QuantityError

SUFFIXES = {
    "": Fraction(1),
    **{suffix: Fraction(1, 10 ** (3 * power)) for power, suffix in enumerate("mun", start=1)},
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{suffix + "i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
    **{f"e{exponent}": Fraction(10) ** exponent for exponent in range(-12, 25)},
}

numbers = st.one_of(
    st.integers(0, 10**25).map(str),
    st.tuples(st.integers(0, 10**12), st.integers(0, 10**14)).map(lambda pair: f"{pair[0]}.{pair[1]}"),
    st.from_regex(r"[0-9]{0,4}\.[0-9]{1,13}", fullmatch=True),
)
parts = st.tuples(st.sampled_from(["", "-", "+"]), numbers, st.sampled_from(sorted(SUFFIXES)))
texts = parts.map("".join)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("1", "1"),
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000Ki", "1000Ki"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("0.0001Ki", "102400u"),
        ("1000", "1k"),
        ("1500000", "1500k"),
        ("1e3", "1e3"),
        ("1000e3", "1e6"),
        ("100e1", "1e3"),
        ("1E", "1E"),
        ("1E3", "1E3"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1e-10", "1e-9"),
        ("1e-999999999", "1e-9"),
        ("7Ei", "7Ei"),
        ("8Ei", "9223372036854775807"),
        ("-9Ei", "-9223372036854775807"),
        ("123456789012345678901", "123456789012345678901"),
    ],
)
def test_a_quantity_prints_in_canonical_form(text: str, canonical: str) -> None:
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize("text", ["1.500", "01", "+1Ki", "12.345k"])
def test_a_spelling_that_kubernetes_takes_for_canonical_is_kept(text: str) -> None:
    assert str(Quantity.parse(text)) == text


@pytest.mark.parametrize("text", ["1000E", "10000E", "1e21"])
def test_amounts_above_the_largest_suffix_keep_their_value_in_print(text: str) -> None:
    assert Quantity.parse(str(Quantity.parse(text))) == Quantity.parse(text)


@pytest.mark.parametrize("text", ["+", "-", ".", "Ki", "m", "e5", "0e99999999"])
def test_a_text_without_digits_is_zero_where_kubernetes_takes_it_so(text: str) -> None:
    assert Quantity.parse(text).nano == 0


@pytest.mark.parametrize("text", ["", "bad", " 1", "1 ", "1\n", "1e5i", "é", "1.2.3", "1,5", "0x10", "1_000", "١"])
def test_a_text_of_the_wrong_form_is_refused_with_the_expected_form(text: str) -> None:
    with pytest.raises(QuantityError, match=r"quantities must match the regular expression '\^\(\[\+-\]\?"):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["1ee5", "1e", "1e+", "++1", "1Kii", "1K", "1mi", "1e9223372036854775808"])
def test_an_unknown_suffix_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="unable to parse quantity's suffix"):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["Pi", ".Ei", "e-10"])
def test_a_missing_number_is_refused_where_kubernetes_refuses_it(text: str) -> None:
    with pytest.raises(QuantityError, match="unable to parse numeric part of quantity"):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["1e999999", "1e2147483647", "9" * 1020 + "E", "1e9223372036854775807"])
def test_an_amount_that_nobody_could_write_out_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="quantity is too large"):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["9" * 100_000, "0" * 100_000 + "x", "1" + "e" * 100_000, "." * 100_000])
def test_a_text_of_absurd_length_is_refused_unread(text: str) -> None:
    with pytest.raises(QuantityError, match=f"expected at most {TEXT_LENGTH_MAX}"):
        Quantity.parse(text)


@given(parts)
def test_the_amount_is_exact_or_rounded_away_from_zero_to_one_nano(written: tuple[str, str, str]) -> None:
    sign, number, suffix = written
    exact = Fraction(sign + number) * SUFFIXES[suffix]
    magnitude = math.ceil(abs(exact) * 10**9)
    if suffix.endswith("i"):
        magnitude = min(magnitude, INT64_MAX * 10**9)
    assert Quantity.parse("".join(written)).nano == (magnitude if exact >= 0 else -magnitude)


@given(texts)
def test_what_is_printed_parses_to_the_same_amount_and_prints_the_same(text: str) -> None:
    quantity = Quantity.parse(text)
    assert Quantity.parse(str(quantity)) == quantity
    assert str(Quantity.parse(str(quantity))) == str(quantity)


@given(st.text(alphabet="0123456789+-.eEinumkKMGTP x", max_size=40))
def test_any_text_is_a_quantity_or_a_quantity_error(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    assert Quantity.parse(str(quantity)) == quantity
    assert isinstance(quantity.as_approximate_float(), float)


@given(texts, texts)
def test_order_is_by_amount(left: str, right: str) -> None:
    a, b = Quantity.parse(left), Quantity.parse(right)
    amount_a, amount_b = Fraction(a.nano, 10**9), Fraction(b.nano, 10**9)
    assert (a < b, a <= b, a == b, a >= b, a > b, a != b) == (
        amount_a < amount_b,
        amount_a <= amount_b,
        amount_a == amount_b,
        amount_a >= amount_b,
        amount_a > amount_b,
        amount_a != amount_b,
    )
    if a == b:
        assert hash(a) == hash(b)


@given(texts, texts)
def test_sums_are_exact_and_take_the_notation_of_the_first_that_is_not_zero(left: str, right: str) -> None:
    a, b = Quantity.parse(left), Quantity.parse(right)
    total = a.add(b)
    assert total.nano == a.nano + b.nano
    assert total.sub(b) == a
    assert total.format == (a.format if a.nano else b.format)
    assert isinstance(total.as_approximate_float(), float)


@pytest.mark.parametrize(
    ("text", "integer"),
    [
        ("0", 0),
        ("5", 5),
        ("-5", -5),
        ("2k", 2000),
        ("1Gi", 2**30),
        ("99Ti", 99 * 2**40),
        ("9223372036854775807", None),
        ("1e18", 10**18),
        ("1e19", None),
        ("1.5Ki", None),
        ("1.0", None),
        ("1000m", None),
        ("100Ti", None),
        ("1Pi", None),
    ],
)
def test_only_some_whole_amounts_are_integers_to_cel(text: str, integer: int | None) -> None:
    assert Quantity.parse(text).as_int64() == integer
    assert Quantity.parse(text).is_integer() is (integer is not None)


def test_a_sum_that_leaves_64_bits_is_no_integer_any_more() -> None:
    most = Quantity.from_int(INT64_MAX)
    assert most.add(Quantity.from_int(0)).as_int64() == INT64_MAX
    assert most.add(Quantity.from_int(1)).as_int64() is None
    assert Quantity.from_int(INT64_MIN).as_int64() == INT64_MIN
    assert Quantity.parse("1").add(Quantity.parse("500m")).as_int64() is None


@pytest.mark.parametrize(
    ("text", "value", "milli_value"),
    [
        ("1.5", 2, 1500),
        ("-1.5", -2, -1500),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("1Gi", 2**30, 2**30 * 1000),
        ("1e30", INT64_MAX, INT64_MAX),
        ("-1e30", INT64_MIN, INT64_MIN),
    ],
)
def test_values_round_away_from_zero_and_stay_within_64_bits(text: str, value: int, milli_value: int) -> None:
    assert Quantity.parse(text).value() == value
    assert Quantity.parse(text).milli_value() == milli_value


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0.0), ("0.1", 0.1), ("100m", 0.1), ("16Gi", 17179869184.0), ("-1", -1.0), ("1e100", 1e100)],
)
def test_the_approximate_float_is_mantissa_times_power_of_ten(text: str, number: float) -> None:
    assert Quantity.parse(text).as_approximate_float() == pytest.approx(number, rel=1e-15)


def test_the_approximate_float_of_an_immense_amount_is_infinite() -> None:
    assert Quantity.parse("1e400").as_approximate_float() == math.inf
    assert Quantity.parse("-" + "9" * 500).as_approximate_float() == -math.inf


def test_signs_are_minus_one_zero_and_one() -> None:
    assert [Quantity.parse(text).sign() for text in ("-3n", "0", "2Gi")] == [-1, 0, 1]


def test_quantities_made_from_numbers_equal_parsed_ones() -> None:
    assert Quantity.from_int(1024, Format.BINARY_SI) == Quantity.parse("1Ki")
    assert str(Quantity.from_int(1024, Format.BINARY_SI)) == "1Ki"
    assert Quantity.from_nano(1_500_000_000) == Quantity.parse("1.5")
    assert Quantity.from_nano(2_000_000_000).as_int64() == 2
    assert Quantity.from_int(0) == Quantity.ZERO


def test_a_quantity_cannot_be_changed() -> None:
    quantity = Quantity.parse("1Gi")
    with pytest.raises(AttributeError, match="immutable"):
        quantity.nano = 5
    with pytest.raises(AttributeError, match="immutable"):
        del quantity.nano


def test_a_quantity_survives_copying_and_pickling_with_its_spelling() -> None:
    quantity = Quantity.parse("1.5Ki")
    for twin in (copy.deepcopy(quantity), pickle.loads(pickle.dumps(quantity))):
        assert twin == quantity
        assert str(twin) == str(quantity)
        assert twin.as_int64() is None


def test_a_quantity_is_never_equal_to_a_number() -> None:
    assert Quantity.from_int(1) != 1
    with pytest.raises(TypeError):
        _ = Quantity.from_int(1) < 2  # type: ignore[operator]
