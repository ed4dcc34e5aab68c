"""JSON values become structs, and wrong ones are named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allot.core.model.codec import (
    DecodeError,
    ObjectWithDuplicates,
    decode,
    decode_json,
    decode_object,
    parse_json,
)
from allot.core.model.core_v1 import Pod
from allot.core.model.decoding import DEPTH_MAX, PROBLEMS_MAX, utc_time
from allot.core.model.resource_v1 import (
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    ResourceClaim,
    ResourcePoolStatusRequest,
    ResourceSlice,
    ResourceSliceSpec,
)
from allot.core.quantity import Quantity

from .documents import claim


def problems(value: object, type_: type = ResourceClaim) -> list[str]:
    with pytest.raises(DecodeError) as caught:
        decode(value, type_)
    return [str(problem) for problem in caught.value.problems]


def test_null_means_absent() -> None:
    value = claim(selectors=None, count=None, capacity=None)
    value["status"] = None
    assert decode(value, ResourceClaim).object == decode(claim(), ResourceClaim).object


def test_null_inside_a_list_is_an_empty_item() -> None:
    value = claim(selectors=[None], tolerations=[None])
    exactly = decode(value, ResourceClaim).object.spec.devices.requests[0].exactly
    assert exactly is not None
    assert exactly.selectors[0].cel is None
    assert exactly.tolerations[0].key == ""


def test_an_absent_list_of_devices_is_told_from_an_empty_one() -> None:
    assert decode({}, ResourceSliceSpec).object.devices is None
    assert decode({"devices": None}, ResourceSliceSpec).object.devices is None
    assert decode({"devices": []}, ResourceSliceSpec).object.devices == ()


def test_quantities_come_as_text_or_number() -> None:
    for value in ("10", 10, 10.0, " 10 "):
        assert decode({"value": value}, DeviceCapacity).object.value == Quantity.from_int(10)
    assert decode({"value": 0.1}, DeviceCapacity).object.value == Quantity.parse("100m")
    assert decode({"value": None}, DeviceCapacity).object.value == Quantity.ZERO


@pytest.mark.parametrize(
    "value", ["10 Gi", "1e999999", True, {}, [], float("nan"), float("inf"), 10**2000, "9" * 100_000]
)
def test_what_is_no_quantity_is_named(value: object) -> None:
    assert problems({"value": value}, DeviceCapacity)[0].startswith("value: expected quantity, got ")


def test_field_names_are_compared_case_sensitively() -> None:
    decoded = decode({"Spec": {}, "spec": {"Devices": {}}}, ResourceClaim)
    assert decoded.unknown_fields == ("Spec", "spec.Devices")


def test_unknown_fields_are_listed_with_their_paths() -> None:
    value = claim(foo=1)
    value["spec"]["bar"] = {"x": 1}
    value["extra"] = 1
    decoded = decode(value, ResourceClaim)
    assert decoded.unknown_fields == ("spec.devices.requests[0].exactly.foo", "spec.bar", "extra")
    assert decoded.warnings[0] == 'unknown field "spec.devices.requests[0].exactly.foo"'


def test_unknown_fields_below_a_map_have_the_key_in_their_path() -> None:
    value = {"spec": {"devices": [{"name": "d", "attributes": {"a": {"int": 1, "x": 2}}}]}}
    assert decode(value, ResourceSlice).unknown_fields == ("spec.devices[0].attributes.a.x",)


def test_strict_decoding_refuses_unknown_fields_and_lists_all() -> None:
    with pytest.raises(DecodeError, match=r'strict decoding error: unknown field "spec\.x", unknown field "y"'):
        decode({"spec": {"x": 1}, "y": 2}, ResourceClaim, strict=True)


def test_duplicate_fields_of_json_text_are_noticed() -> None:
    text = b'{"spec": {"devices": {}, "devices": {"requests": [{"name": "a"}]}}, "metadata": {"labels": {"a": "1", "a": "2"}}}'
    decoded = decode_json(text, ResourceClaim)
    assert decoded.duplicate_fields == ("spec.devices", "metadata.labels.a")
    assert decoded.object.spec.devices.requests[0].name == "a"
    assert decoded.warnings == ('duplicate field "spec.devices"', 'duplicate field "metadata.labels.a"')
    with pytest.raises(DecodeError, match=r'strict decoding error: duplicate field "spec\.devices"'):
        decode_json(text, ResourceClaim, strict=True)


def test_unusual_escapes_are_no_duplicates() -> None:
    decoded = decode_json(b'{"metadata": {"name": "\\u0061"}, "spec": {"devices": {}}}', ResourceClaim)
    assert (decoded.object.metadata.name, decoded.duplicate_fields) == ("a", ())


def test_readers_can_mark_duplicates_themselves() -> None:
    value = ObjectWithDuplicates(spec={})
    value.duplicates = ("spec",)
    assert decode(value, ResourceClaim).duplicate_fields == ("spec",)


def test_all_wrong_values_are_reported_with_path_value_and_expectation() -> None:
    value = claim(deviceClassName=5, count="two", adminAccess="yes", selectors={"a": 1}, capacity=[], allocationMode={})
    assert problems(value) == [
        "spec.devices.requests[0].exactly.deviceClassName: expected string, got number 5",
        'spec.devices.requests[0].exactly.count: expected int64, got string "two"',
        'spec.devices.requests[0].exactly.adminAccess: expected boolean, got string "yes"',
        "spec.devices.requests[0].exactly.selectors: expected array, got object",
        "spec.devices.requests[0].exactly.capacity: expected object, got array",
        "spec.devices.requests[0].exactly.allocationMode: expected string, got object",
    ]


def test_a_wrong_value_in_a_map_is_found_by_its_key() -> None:
    value = {"spec": {"devices": [{"name": "d", "attributes": {"model": {"int": "x"}}}]}}
    assert problems(value, ResourceSlice) == [
        'spec.devices[0].attributes[model].int: expected int64, got string "x"',
    ]


@pytest.mark.parametrize("value", [True, 1.0, 1.5, "1", 2**63, -(2**63) - 1, 10**400])
def test_only_integers_of_64_bits_are_integers(value: object) -> None:
    assert problems({"int": value}, DeviceAttribute)[0].startswith("int: expected int64")


def test_integers_of_32_bits_have_their_own_range() -> None:
    value = {"spec": {"driver": "d", "limit": 2**31}}
    assert problems(value, ResourcePoolStatusRequest) == [
        "spec.limit: expected int32 (from -2147483648 to 2147483647), got number 2147483648"
    ]


@pytest.mark.parametrize("value", [None, 5, "x", [], True, 1.5])
def test_what_is_no_object_is_refused(value: object) -> None:
    assert problems(value)[0].startswith("expected object, got ")
    with pytest.raises(DecodeError, match="expected object"):
        decode_object(value)


def test_deep_nesting_is_refused_without_recursion() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert problems({"spec": deep}) == [f"nested too deeply: expected at most {DEPTH_MAX} levels"]
    with pytest.raises(DecodeError, match="nested too deeply"):
        decode_object({"apiVersion": "v1", "kind": "Pod", "spec": deep})
    with pytest.raises(DecodeError, match="nested too deeply"):
        decode_json(b'{"a":' * 100_000, ResourceClaim)
    with pytest.raises(DecodeError, match="nested too deeply"):
        parse_json(b"[" * 100_000)


@pytest.mark.slow
def test_an_alias_bomb_is_refused() -> None:
    bomb: Any = ["x"]
    for _ in range(64):
        bomb = [bomb, bomb]
    with pytest.raises(DecodeError, match="too large"):
        decode({"spec": bomb}, ResourceClaim)


def test_the_number_of_problems_is_bounded() -> None:
    value = {"spec": {"devices": {"requests": [1] * 1000}}}
    assert len(problems(value)) == PROBLEMS_MAX


def test_keys_and_texts_that_are_not_unicode_are_refused() -> None:
    assert problems({"metadata": {"labels": {"a": "\ud800"}}})[0].startswith(
        "metadata.labels[a]: expected Unicode text"
    )
    assert "expected Unicode text" in problems({"metadata": {"labels": {"\ud800": "a"}}})[0]
    assert problems({"metadata": {"labels": {5: "a"}}}) == ["metadata.labels: expected a string as key, got number 5"]
    assert problems({5: "a"}) == ["expected a string as key, got number 5"]


@pytest.mark.parametrize("parameters", ["\ud800", {"a": object()}, {"a": "\ud800"}])
def test_raw_values_must_be_json(parameters: object) -> None:
    value = {"spec": {"config": [{"opaque": {"driver": "d", "parameters": parameters}}]}}
    assert problems(value, DeviceClass)[0].startswith("spec.config[0].opaque.parameters: expected a JSON value")


@pytest.mark.parametrize("text", [b"", b"{", b"nul", b'{"a": 1,}', b'"\xff"', b"\xff", b'{"a": NaN}'])
def test_malformed_json_is_refused(text: bytes) -> None:
    with pytest.raises(DecodeError, match="malformed JSON"):
        decode_json(text, ResourceClaim)
    with pytest.raises(DecodeError, match="malformed JSON"):
        parse_json(text)


@pytest.mark.parametrize("number", [b"1e400", b"9" * 5000, b"[" * 100_000])
@pytest.mark.parametrize("field", [b"spec", b"hostNetwork"])
def test_values_that_cannot_be_read_are_refused_wherever_they_are(number: bytes, field: bytes) -> None:
    text = b'{"spec":{"' + field + b'":' + number + b"}}"
    for type_ in (Pod, ResourceClaim):
        with pytest.raises(DecodeError):
            decode_json(text, type_)


def test_json_text_that_is_not_in_order_takes_the_careful_way() -> None:
    decoded = decode_json(b'{"spec": {"devices": {"requests": null}, "x": 1}}', ResourceClaim)
    assert decoded.unknown_fields == ("spec.x",)
    with pytest.raises(DecodeError, match=r"spec\.devices\.requests: expected array, got number 5"):
        decode_json(b'{"spec": {"devices": {"requests": 5}}}', ResourceClaim)
    with pytest.raises(DecodeError, match="expected quantity"):
        decode_json(b'{"value": "x"}', DeviceCapacity)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-08-01T10:00:00Z", "2026-08-01T10:00:00Z"),
        ("2026-08-01T10:00:00+02:00", "2026-08-01T08:00:00Z"),
        ("2026-08-01T10:00:00.999999999-00:30", "2026-08-01T10:30:00Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("2026-02-29T00:00:00Z", None),
        ("2026-13-01T00:00:00Z", None),
        ("2026-08-01T24:00:00Z", None),
        ("2026-08-01T10:00:00", None),
        ("2026-08-01 10:00:00Z", None),
        ("2026-08-01T10:00:00+24:00", None),
        ("2026-08-01T10:00:00+00:60", None),
        ("0001-01-01T00:00:00+01:00", None),
        ("9999-12-31T23:59:59-01:00", None),
        ("", None),
        ("now", None),
        ("2026-08-01T10:00:00Z\n", None),
    ],
)
def test_times_are_rewritten_to_utc_and_whole_seconds(text: str, utc: str | None) -> None:
    assert utc_time(text) == utc
    value = {"metadata": {"creationTimestamp": text}}
    for read in (lambda: decode(value, DeviceClass), lambda: decode_json(json.dumps(value).encode(), DeviceClass)):
        if utc is None:
            with pytest.raises(DecodeError, match=r"metadata\.creationTimestamp: expected a time such as"):
                read()
        else:
            assert read().object.metadata.creation_timestamp == utc
