"""Selectors, tolerations and taint rules mean what they mean in Kubernetes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.model.core_v1 import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from allot.core.model.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from allot.core.model.resource_v1 import DeviceTaint, DeviceTaintSelector, DeviceToleration
from allot.core.selectors import (
    Operator,
    SelectorError,
    blocking_taints,
    is_label_key,
    is_label_value,
    label_requirements,
    matches,
    node_matcher,
    parse_label_selector,
    requirement,
    selects_device,
    tolerates,
)

NODE = Node(metadata=ObjectMeta(name="node-1", labels={"zone": "a", "cores": "8", "gpu": ""}))


def condition(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def term(*expressions: NodeSelectorRequirement, fields: tuple[NodeSelectorRequirement, ...] = ()) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=expressions, match_fields=fields)


def selector(*terms: NodeSelectorTerm) -> NodeSelector:
    return NodeSelector(node_selector_terms=terms)


# --- node selectors ---


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (condition("zone", "In", "b", "a"), True),
        (condition("zone", "In", "b"), False),
        (condition("absent", "In", "a"), False),
        (condition("zone", "NotIn", "b"), True),
        (condition("zone", "NotIn", "a"), False),
        (condition("absent", "NotIn", "a"), True),
        (condition("gpu", "Exists"), True),
        (condition("absent", "Exists"), False),
        (condition("absent", "DoesNotExist"), True),
        (condition("gpu", "DoesNotExist"), False),
        (condition("cores", "Gt", "7"), True),
        (condition("cores", "Gt", "8"), False),
        (condition("cores", "Lt", "9"), True),
        (condition("zone", "Gt", "0"), False),
        (condition("absent", "Lt", "9"), False),
    ],
)
def test_a_requirement_is_compared_with_the_nodes_labels(expression: NodeSelectorRequirement, expected: bool) -> None:
    assert matches(selector(term(expression)), NODE) is expected


def test_requirements_are_anded_and_terms_are_ored() -> None:
    in_zone_a, in_zone_b, has_gpu = (
        condition("zone", "In", "a"),
        condition("zone", "In", "b"),
        condition("gpu", "Exists"),
    )
    assert matches(selector(term(in_zone_a, has_gpu)), NODE)
    assert not matches(selector(term(in_zone_b, has_gpu)), NODE)
    assert matches(selector(term(in_zone_b), term(in_zone_a)), NODE)


def test_an_empty_term_and_an_empty_selector_match_no_node() -> None:
    assert not matches(selector(), NODE)
    assert not matches(selector(term()), NODE)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (condition("metadata.name", "In", "node-1"), True),
        (condition("metadata.name", "In", "node-2"), False),
        (condition("metadata.name", "NotIn", "node-2"), True),
        (condition("metadata.name", "NotIn", "node-1"), False),
        (condition("metadata.uid", "In", "x"), False),
        (condition("metadata.uid", "NotIn", "x"), True),
        (condition("metadata.uid", "In", ""), True),
    ],
)
def test_fields_are_the_nodes_name_and_otherwise_empty(field: NodeSelectorRequirement, expected: bool) -> None:
    assert matches(selector(term(fields=(field,))), NODE) is expected


def test_conditions_on_fields_do_not_apply_to_a_node_without_a_name() -> None:
    assert matches(selector(term(fields=(condition("metadata.name", "In", "node-1"),))), Node())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            term(condition("zone", "Near", "a")),
            'operator: Unsupported value: "Near": supported values: "DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"',
        ),
        (term(condition("zone", "In")), "nodeSelectorTerms[0].matchExpressions[0].values: Invalid value: []: for 'in'"),
        (term(condition("zone", "Exists", "a")), 'values: Invalid value: ["a"]: values set must be empty for exists'),
        (term(condition("zone", "Gt", "a")), "for 'Gt', 'Lt' operators, the value must be an integer"),
        (term(condition("zone", "Lt", "1", "2")), "for 'Gt', 'Lt' operators, exactly one value is required"),
        (term(condition("zone", "Gt", "9" * 30)), "the value must be an integer"),
        (term(condition("a b", "Exists")), 'key: Invalid value: "a b"'),
        (term(condition("zone", "In", "x", "-")), 'values[1]: Invalid value: "-"'),
        (
            term(fields=(condition("metadata.name", "Exists"),)),
            'nodeSelectorTerms[0].matchFields[0].operator: Unsupported value: "Exists": supported values: "In", "NotIn"',
        ),
        (term(fields=(condition("metadata.name", "In", "a", "b"),)), 'Invalid value: ["a","b"]: must have one element'),
    ],
)
def test_a_term_that_cannot_be_understood_is_an_error_only_if_no_other_matches(
    bad: NodeSelectorTerm, message: str
) -> None:
    with pytest.raises(SelectorError) as caught:
        matches(selector(bad), NODE)
    assert message in str(caught.value)
    assert matches(selector(bad, term(condition("zone", "In", "a"))), NODE)


def test_all_problems_of_a_selector_are_reported() -> None:
    bad = term(condition("zone", "Near"), fields=(condition("metadata.name", "Near"),))
    with pytest.raises(SelectorError, match=r"^\[nodeSelectorTerms\[0\].*matchFields.*nodeSelectorTerms\[1\].*\]$"):
        matches(selector(bad, bad), NODE)


def test_a_prepared_selector_can_be_asked_with_a_name_and_labels() -> None:
    matcher = node_matcher(selector(term(condition("zone", "In", "a"))))
    assert matcher.matches("n", {"zone": "a"})
    assert not matcher.matches("n", {})


# --- label selectors ---


def test_a_label_selector_needs_all_labels_and_all_expressions() -> None:
    requirements = label_requirements(
        LabelSelector(
            match_labels={"app": "web"},
            match_expressions=(LabelSelectorRequirement(key="tier", operator="NotIn", values=("test",)),),
        )
    )
    assert requirements is not None
    assert requirements.matches({"app": "web"})
    assert not requirements.matches({"app": "web", "tier": "test"})
    assert not requirements.matches({"app": "db"})


def test_an_empty_label_selector_matches_everything_and_none_is_told_apart() -> None:
    everything = label_requirements(LabelSelector())
    assert everything is not None
    assert everything.matches({})
    assert label_requirements(None) is None


def test_greater_and_less_are_no_operators_of_label_selectors() -> None:
    bad = LabelSelector(match_expressions=(LabelSelectorRequirement(key="a", operator="Gt", values=("1",)),))
    with pytest.raises(SelectorError, match=r'matchExpressions\[0\].operator: Unsupported value: "Gt"'):
        label_requirements(bad)


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("!a", {}, True),
        ("a=", {"a": ""}, True),
        ("c in (d,e)", {"c": "e"}, True),
        ("c in (d, e)", {"c": "f"}, False),
        ("c notin (d)", {}, True),
        ("c in (,)", {"c": ""}, True),
        ("x in (in,notin)", {"x": "notin"}, True),
        ("in=yes,notin", {"in": "yes", "notin": ""}, True),
        ("a>5", {"a": "6"}, True),
        ("a<5", {"a": "6"}, False),
        (" a = b , c in ( d , e ) , ! f ", {"a": "b", "c": "d"}, True),
        ("example.com/a=b", {"example.com/a": "b"}, True),
    ],
)
def test_a_label_selector_can_be_written_as_text(text: str, labels: dict[str, str], expected: bool) -> None:
    assert parse_label_selector(text).matches(labels) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a b", "found 'b', expected: in, notin, =, ==, !=, <, >"),
        ("!", "found '', expected: !, identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=(", "found '(', expected: identifier"),
        ("a in b", "found 'b', expected: '('"),
        ("a in (b", "found '', expected: ',' or ')'"),
        ("a in (b c)", "found 'c', expected: ',' or ')'"),
        ("a in ()", "values set can't be empty"),
        ("a>b", "the value must be an integer"),
        ("a=é", "must be a label value"),
        ("/a", "must be a label key"),
    ],
)
def test_a_text_that_is_no_label_selector_is_refused(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(text)
    assert message in str(caught.value)


@given(st.text(alphabet="ab=!<>(), in\té/", max_size=30))
def test_any_text_is_a_label_selector_or_a_selector_error(text: str) -> None:
    try:
        parse_label_selector(text).matches({"a": "b"})
    except SelectorError as error:
        assert str(error)


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x", "y", ""])),
    st.sampled_from("abc"),
    st.frozensets(st.sampled_from(["x", "y", ""]), min_size=1),
)
def test_opposite_operators_never_agree(labels: dict[str, str], key: str, values: frozenset[str]) -> None:
    pairs = [(Operator.IN, Operator.NOT_IN, tuple(values)), (Operator.EXISTS, Operator.DOES_NOT_EXIST, ())]
    for operator, opposite, used in pairs:
        assert requirement(key, operator, used).matches(labels) is not requirement(key, opposite, used).matches(labels)


@pytest.mark.parametrize("key", ["a", "A.b_c-d", "example.com/a", "a" * 63, "x" * 253 + "/a"])
def test_names_with_an_optional_dns_prefix_are_label_keys(key: str) -> None:
    assert is_label_key(key)


@pytest.mark.parametrize(
    "key", ["", "-a", "a-", "a" * 64, "/a", "a/", "a/b/c", "UPPER/a", "a..b/c", "x" * 254 + "/a", "a\n"]
)
def test_other_texts_are_no_label_keys(key: str) -> None:
    assert not is_label_key(key)


def test_label_values_may_be_empty_but_not_long() -> None:
    assert is_label_value("")
    assert is_label_value("a" * 63)
    assert not is_label_value("a" * 64)
    assert not is_label_value("a\n")


# --- devices ---

TAINT = DeviceTaint(key="example.com/broken", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (DeviceToleration(operator="Exists"), True),
        (DeviceToleration(key="example.com/broken", operator="Exists"), True),
        (DeviceToleration(key="example.com/broken", operator="Exists", effect="NoSchedule"), True),
        (DeviceToleration(key="example.com/broken", operator="Exists", effect="NoExecute"), False),
        (DeviceToleration(key="other", operator="Exists"), False),
        (DeviceToleration(key="example.com/broken", operator="Equal", value="yes"), True),
        (DeviceToleration(key="example.com/broken", value="yes"), True),
        (DeviceToleration(key="example.com/broken", operator="Equal", value="no"), False),
        (DeviceToleration(value="yes"), True),
        (DeviceToleration(key="example.com/broken", operator="Near"), False),
        (DeviceToleration(operator="Exists", toleration_seconds=0), True),
    ],
)
def test_a_toleration_covers_a_taint_by_effect_key_and_value(toleration: DeviceToleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_only_untolerated_taints_of_a_blocking_effect_block() -> None:
    informative = DeviceTaint(key="k", effect="None")
    unknown = DeviceTaint(key="k", effect="Later")
    evicting = DeviceTaint(key="k", effect="NoExecute")
    taints = (TAINT, informative, unknown, evicting)
    assert blocking_taints(taints, ()) == (TAINT, evicting)
    assert blocking_taints(taints, (DeviceToleration(key="k", operator="Exists"),)) == (TAINT,)
    assert blocking_taints(taints, (DeviceToleration(operator="Exists"),)) == ()


def test_a_taint_rule_selects_by_every_member_that_is_set() -> None:
    by_pool = DeviceTaintSelector(driver="gpu.example.com", pool="node-1")
    assert selects_device(by_pool, "gpu.example.com", "node-1", "gpu-0")
    assert not selects_device(by_pool, "gpu.example.com", "node-2", "gpu-0")
    assert not selects_device(by_pool, "nic.example.com", "node-1", "gpu-0")
    assert selects_device(DeviceTaintSelector(device="gpu-0"), "any", "any", "gpu-0")


def test_an_empty_taint_selector_means_every_device_and_an_absent_one_depends_on_who_asks() -> None:
    assert selects_device(DeviceTaintSelector(), "d", "p", "x")
    assert selects_device(None, "d", "p", "x")
    assert not selects_device(None, "d", "p", "x", absent_selects=False)
