"""The codec knows every field of every type."""

from __future__ import annotations

import copy
import pickle

import msgspec
import pytest

from allot.core.model import containers_v1, core_v1, meta, pods_v1, resource_v1, scheduling_v1, schema, volumes_v1
from allot.core.model.meta import APIStruct, RawJSON
from allot.core.model.schema import Shape, has_partial_parts, schema_of

TYPES = [
    member
    for module in (meta, core_v1, containers_v1, volumes_v1, pods_v1, resource_v1, scheduling_v1)
    for member in vars(module).values()
    if isinstance(member, type) and issubclass(member, APIStruct) and member.__module__ == module.__name__
]


@pytest.mark.parametrize("type_", TYPES, ids=lambda type_: type_.__name__)
def test_every_type_has_a_schema_and_an_empty_value(type_: type[APIStruct]) -> None:
    found = schema_of(type_)
    assert [field.name for field in found.fields] == list(type_.__struct_fields__)
    type_()


def test_fields_written_when_empty_exist() -> None:
    for type_, names in schema._WRITTEN_WHEN_EMPTY.items():
        assert set(names) <= set(type_.__struct_fields__), type_.__name__


def test_integers_have_the_width_of_the_api() -> None:
    shapes = {field.wire_name: field.value.shape for field in schema_of(resource_v1.PoolStatus).fields}
    assert (shapes["generation"], shapes["totalDevices"]) == (Shape.INT64, Shape.INT32)


def test_wire_names_that_break_the_camel_rule_are_spelled_out() -> None:
    names = {field.name: field.wire_name for type_ in TYPES for field in schema_of(type_).fields}
    assert (names["share_id"], names["resource_id"], names["fields_v1"]) == ("shareID", "resourceID", "fieldsV1")
    assert (names["int_"], names["uid"], names["ips"]) == ("int", "uid", "ips")


def test_only_the_core_group_is_known_in_part() -> None:
    partial = {
        type_.__name__
        for type_ in (core_v1.Pod, core_v1.Node, resource_v1.ResourceClaim, scheduling_v1.Workload)
        if has_partial_parts(type_)
    }
    assert partial == {"Pod", "Node"}


def test_raw_json_compares_by_value_and_cannot_be_changed() -> None:
    raw = RawJSON({"a": [1, None]})
    assert raw == RawJSON({"a": [1, None]})
    assert hash(raw) == hash(RawJSON({"a": [1, None]}))
    assert raw != RawJSON({"a": [1]})
    assert raw.value() == {"a": [1, None]}
    assert copy.deepcopy(raw) == pickle.loads(pickle.dumps(raw)) == raw
    with pytest.raises(AttributeError, match="immutable"):
        raw.data = b""


def test_objects_cannot_be_changed_but_replaced() -> None:
    claim = resource_v1.ResourceClaim()
    with pytest.raises(AttributeError):
        claim.metadata = meta.ObjectMeta(name="x")  # type: ignore[misc]
    assert msgspec.structs.replace(claim, metadata=meta.ObjectMeta(name="x")).metadata.name == "x"


def test_the_default_of_a_mapping_is_shared_and_stays_empty() -> None:
    first, second = meta.ObjectMeta(), msgspec.convert({}, meta.ObjectMeta)
    assert first.labels is second.labels is meta.EMPTY
    assert msgspec.json.encode(first.labels) == b"{}"
    with pytest.raises(TypeError):
        first.labels["a"] = "b"  # type: ignore[index]
    with pytest.raises(TypeError):
        first.labels.update(a="b")  # type: ignore[attr-defined]
    assert meta.ObjectMeta(labels={}) == first
