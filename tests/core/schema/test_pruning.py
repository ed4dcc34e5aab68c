"""Pruning of unknown fields, and defaults of custom resources."""

from __future__ import annotations

from typing import Any

import pytest

from allot.apiserver.kinds.schemas import builtin_schemas
from allot.core.schema import Schema, apply_defaults, check_fields, prune

POD = builtin_schemas().for_kind("", "v1", "Pod")
assert POD is not None


def custom(**properties: Any) -> Schema:
    return builtin_schemas().from_structural({"type": "object", "properties": properties})


def object_(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


# --- pruning ---


def test_an_object_in_order_is_returned_itself() -> None:
    value = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    assert prune(value, POD) is value


def test_unknown_fields_nulls_and_empty_optional_lists_and_maps_go() -> None:
    value = {
        "metadata": {"name": "p", "labels": {}, "annotations": None, "x": 1},
        "spec": {"containers": [], "volumes": [], "tolerations": [{"key": "a", "y": 1}], "securityContext": {}},
    }
    assert prune(value, POD) == {
        "metadata": {"name": "p"},
        "spec": {"containers": [], "tolerations": [{"key": "a"}], "securityContext": {}},
    }
    assert value["metadata"]["x"] == 1, "input is not changed"


def test_what_is_not_touched_is_shared() -> None:
    value = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}, "x": 1}
    pruned = prune(value, POD)
    assert pruned["spec"] is value["spec"]


def test_null_in_a_map_or_list_is_the_zero_value() -> None:
    value = {"metadata": {"labels": {"a": None, "b": "c"}}, "spec": {"containers": [None]}}
    assert prune(value, POD) == {"metadata": {"labels": {"a": "", "b": "c"}}, "spec": {"containers": [{}]}}


def test_pruned_objects_are_in_order() -> None:
    value = {"metadata": {"labels": None, "x": {}}, "spec": {"volumes": [], "containers": [None, {"y": 1}]}}
    assert not check_fields(prune(value, POD), POD).untidy


def test_custom_resources_keep_null_and_empty() -> None:
    schema = custom(spec=object_(a={"type": "array", "items": {"type": "string"}}, b={"type": "string"}))
    value = {"spec": {"a": [], "b": None, "c": 1}}
    assert prune(value, schema) == {"spec": {"a": [], "b": None}}


def test_preserved_fields_stay_but_known_ones_below_are_pruned() -> None:
    schema = custom(
        free=object_(known=object_(a={"type": "string"})) | {"x-kubernetes-preserve-unknown-fields": True},
    )
    value = {"free": {"other": {"x": 1}, "known": {"a": "1", "b": "2"}}}
    assert prune(value, schema) == {"free": {"other": {"x": 1}, "known": {"a": "1"}}}


def test_embedded_resources_keep_what_makes_them_objects() -> None:
    schema = custom(template={"type": "object", "x-kubernetes-embedded-resource": True, "properties": {}})
    value = {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}}}
    assert prune(value, schema) == {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}}


def test_objects_without_properties_lose_everything() -> None:
    assert prune({"spec": {"a": 1}}, custom(spec={"type": "object"})) == {"spec": {}}


# --- defaults ---


def test_defaults_are_filled_in_at_every_depth() -> None:
    schema = custom(
        spec={
            **object_(
                size={"type": "integer", "default": 3},
                ports={"type": "array", "items": object_(protocol={"type": "string", "default": "TCP"})},
                by_name={"type": "object", "additionalProperties": object_(a={"type": "string", "default": "x"})},
            ),
            "default": {},
        }
    )
    assert apply_defaults({}, schema) == {"spec": {"size": 3}}
    value = {"spec": {"size": 5, "ports": [{}, {"protocol": "UDP"}], "by_name": {"k": {}}}}
    assert apply_defaults(value, schema) == {
        "spec": {"size": 5, "ports": [{"protocol": "TCP"}, {"protocol": "UDP"}], "by_name": {"k": {"a": "x"}}}
    }


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        ({"type": "string", "default": "d"}, {"f": None}, {"f": "d"}),
        ({"type": "string", "default": "d", "nullable": True}, {"f": None}, {"f": None}),
        ({"type": "string"}, {"f": None}, {}),
        ({"type": "string", "nullable": True}, {"f": None}, {"f": None}),
        ({"type": "string", "default": "d"}, {"f": ""}, {"f": ""}),
    ],
)
def test_null_is_replaced_only_where_it_is_not_allowed(
    field: dict[str, Any], given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert apply_defaults({"spec": given}, custom(spec=object_(f=field))) == {"spec": expected}


def test_an_object_that_needs_no_defaults_is_returned_itself() -> None:
    value = {"spec": {"size": 1}}
    assert apply_defaults(value, custom(spec=object_(size={"type": "integer", "default": 3}))) is value


def test_defaults_are_copied() -> None:
    schema = custom(spec={"type": "object", "default": {"a": [1]}, "x-kubernetes-preserve-unknown-fields": True})
    apply_defaults({}, schema)["spec"]["a"].append(2)
    assert apply_defaults({}, schema) == {"spec": {"a": [1]}}
