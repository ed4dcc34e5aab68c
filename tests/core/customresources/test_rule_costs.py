"""What rules may cost at most: upstream's figures for the same schemas, and the definitions that are refused for them."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.customresources.rule_costs import check_costs, rule_cost, sized
from allot.core.customresources.rules import compile_rules

Schema = dict[str, Any]


def array(items: Schema, rule: str, limit: int | None = None) -> Schema:
    return {"type": "array", "items": items, "x-kubernetes-validations": [{"rule": rule}]} | limited("maxItems", limit)


def mapping(values: Schema, rule: str, limit: int | None = None) -> Schema:
    rules = {"x-kubernetes-validations": [{"rule": rule}]}
    return {"type": "object", "additionalProperties": values, **rules} | limited("maxProperties", limit)


def text(rule: str, limit: int | None = None, **more: Any) -> Schema:
    return {"type": "string", "x-kubernetes-validations": [{"rule": rule}], **more} | limited("maxLength", limit)


def limited(name: str, limit: int | None) -> Schema:
    return {} if limit is None else {name: limit}


NUMBER, TEXT, BOOLEAN = {"type": "number"}, {"type": "string"}, {"type": "boolean"}
OBJECT = {"type": "object", "properties": {"required": TEXT, "optional": TEXT}, "required": ["required"]}


@pytest.mark.parametrize(
    ("schema", "cost"),
    [
        (array(NUMBER, "self.all(x, true)"), 4718591),
        (array(NUMBER, "self.all(x, true)", 10), 32),
        (array(TEXT, "self.all(x, true)"), 3145727),
        (array(BOOLEAN, "self.all(x, true)", 5), 17),
        (array({"type": "array", "items": NUMBER}, "self.all(x, true)"), 3145727),
        (array(OBJECT, "self.all(x, true)"), 555128),
        (array(OBJECT, "self.all(x, true)", 50), 152),
        (mapping(NUMBER, "self.all(x, true)"), 1348169),
        (mapping(NUMBER, "self.all(x, true)", 10), 32),
        (array(NUMBER, "self.all(x, x == 0.0)"), 6291454),
        (array(NUMBER, "self.all(x, x == 0.0)", 3 * 1024 * 2048), 25165826),
        (text('self == "x"', 0), 1),
        (text('self == b"x"', format="byte"), 2),
    ],
)
def test_costs_are_those_of_kubernetes(schema: Schema, cost: int) -> None:
    rule, values = compile_rules(schema)[0], sized(schema)
    assert rule.program is not None, rule.problem
    assert values is not None
    assert rule_cost(rule.program, values) == cost


def test_a_rule_runs_as_often_as_there_are_values() -> None:
    rule = {"x-kubernetes-validations": [{"rule": "self.contains('a')"}]}
    inner = {"type": "string", "maxLength": 100_000, **rule}
    few = {"type": "object", "properties": {"tags": {"type": "array", "items": inner, "maxItems": 10}}}
    assert check_costs(few, "schema") == []
    many = {"type": "object", "properties": {"tags": {"type": "array", "items": inner}}}
    found = [str(finding.error) for finding in check_costs(many, "schema")]
    assert len(found) == 3
    assert found[0].startswith(
        "schema.properties[tags].items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost"
    )


def test_loops_in_loops_need_limits() -> None:
    rule = "self.all(a, self.all(b, a == b))"
    schema = {"type": "object", "properties": {"tags": array(TEXT, rule)}}
    found = [finding.error.message for finding in check_costs(schema, "schema")]
    assert "exceeds budget by factor of more than 100x" in found[0]
    # Alone it is too much for the whole schema as well.
    assert "contributed to estimated rule cost total" in found[1]
    assert "total for entire OpenAPIv3 schema exceeds budget" in found[2]
    bounded = {"type": "object", "properties": {"tags": array({**TEXT, "maxLength": 64}, rule, 100)}}
    assert check_costs(bounded, "schema") == []


def test_the_object_itself_has_a_name_to_look_at() -> None:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('a')"}]}
    assert check_costs(schema, "schema") == []
