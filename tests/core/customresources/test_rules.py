"""Rules of custom resources in CEL."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.customresources.definition import check_definition, with_definition_defaults
from allot.core.customresources.rules import check_rules, rule_tree
from allot.core.schema.declared_types import escaped

WORDS = {"type": "array", "items": {"type": "string"}}


def run(schema: dict[str, Any], value: Any, old: Any = None) -> list[str]:
    return [str(error) for error in check_rules(rule_tree(schema, root=True), value, old).errors]


def object_with(rules: list[dict[str, Any]], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "x-kubernetes-validations": rules, "properties": properties}


def test_rules_see_their_own_part_of_the_object() -> None:
    inner = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]}
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": inner}}}
    assert run(schema, {"a": [1, 2]}) == ["a[0]: Invalid value: 1: failed rule: self > 1"]


def test_rules_may_look_at_the_name_of_an_object() -> None:
    schema = object_with([{"rule": "self.metadata.name == 'singleton'"}])
    assert run(schema, {"metadata": {"name": "singleton"}}) == []
    assert run(schema, {"metadata": {"name": "x"}}) == [
        "<nil>: Invalid value: failed rule: self.metadata.name == 'singleton'"
    ]


def test_reasons_choose_the_kind_of_error() -> None:
    schema = {
        "type": "object",
        "properties": {"a": object_with([{"rule": "false", "reason": "FieldValueForbidden", "message": "no"}])},
    }
    assert run(schema, {"a": {}}) == ["a: Forbidden: no"]


def test_a_rule_about_a_change_waits_for_one() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}},
    }
    assert run(schema, {"a": 1}) == []
    assert run(schema, {"a": 1}, {"a": 2}) == ["a: Invalid value: 1: failed rule: self >= oldSelf"]


def test_an_optional_old_value_runs_on_create_too() -> None:
    rule = {"rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": True}
    schema = {"type": "object", "properties": {"a": {"type": "integer", "x-kubernetes-validations": [rule]}}}
    assert run(schema, {"a": 2}) == ["a: Invalid value: 2: failed rule: oldSelf.hasValue() || self == 1"]
    assert run(schema, {"a": 2}, {"a": 3}) == []


def test_errors_of_evaluation_are_told() -> None:
    schema = object_with([{"rule": "self.a[5] == 'x'"}], a=WORDS)
    assert run(schema, {"a": []}) == [
        "<nil>: Invalid value: \"object\": index out of bounds: 5 evaluating rule: self.a[5] == 'x'"
    ]


def test_what_did_not_change_is_only_warned_about() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]}},
    }
    verdict = check_rules(rule_tree(schema, root=True), {"a": 1, "b": 2}, {"a": 1})
    assert (verdict.errors, verdict.warnings) == ([], ["a: Invalid value: 1: failed rule: self > 1"])


@pytest.mark.slow
def test_the_budget_ends() -> None:
    body = "self.a.all(x, self.a.all(y, self.a.all(z, x + y + z != 'q')))"
    schema = object_with([{"rule": body}], a=WORDS)
    errors = run(schema, {"a": ["word"] * 200})
    assert len(errors) == 1
    assert "no further validation rules will be run due to call cost exceeds limit" in errors[0]


def test_formats_become_values() -> None:
    schema = object_with(
        [{"rule": "self.at > timestamp('2020-01-01T00:00:00Z') && self.for < duration('1h') && size(self.raw) == 3"}],
        at={"type": "string", "format": "date-time"},
        **{"for": {"type": "string", "format": "duration"}},
        raw={"type": "string", "format": "byte"},
    )
    schema["x-kubernetes-validations"][0]["rule"] = schema["x-kubernetes-validations"][0]["rule"].replace(
        "self.for", "self.__for__"
    )
    assert run(schema, {"at": "2024-01-01T00:00:00Z", "for": "5m", "raw": "YWJj"}) == []


def test_names_are_escaped() -> None:
    assert [escaped(name) for name in ("a", "for", "a-b", "a.b", "a/b", "a__b", "1a", "")] == [
        "a", "__for__", "a__dash__b", "a__dot__b", "a__slash__b", "a__underscores__b", None, None,
    ]  # fmt: skip


def definition(schema: dict[str, Any]) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    made = with_definition_defaults({"metadata": {"name": "things.example.com"}, "spec": spec})
    return {**made, "status": {"storedVersions": ["v1"]}}


def errors_of(schema: dict[str, Any]) -> list[str]:
    prefix = "spec.versions[0].schema.openAPIV3Schema"
    return [str(error).removeprefix(prefix) for error in check_definition(definition(schema))]


def test_a_plain_definition_is_fine() -> None:
    assert errors_of({"type": "object", "properties": {"spec": {"type": "object"}}}) == []


def test_rules_about_changes_need_items_that_can_be_told_apart() -> None:
    item = {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    found = errors_of({"type": "object", "properties": {"a": {"type": "array", "maxItems": 9, "items": item}}})
    assert len(found) == 1
    assert "oldSelf cannot be used on the uncorrelatable portion of the schema within" in found[0]


def test_the_usual_int_or_string_is_structural() -> None:
    port = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert errors_of({"type": "object", "properties": {"port": port}}) == []


def test_what_combinations_speak_of_has_to_be_described() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "anyOf": [{"properties": {"b": {"minLength": 1}}}],
    }
    assert errors_of(schema) == [
        ".properties[b]: Required value: because it is defined in "
        "spec.versions[0].schema.openAPIV3Schema.anyOf[0].properties[b]"
    ]
