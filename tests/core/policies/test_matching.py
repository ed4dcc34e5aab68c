"""Which requests rules and selectors mean."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.policies.matching import (
    MatchError,
    Target,
    matching_version,
    namespace_selected,
    object_selected,
    rule_matches,
    selector_matches,
)


def target(**changes: Any) -> Target:
    given = {"operation": "CREATE", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "default"}
    return Target(**(given | changes))


def rule(**changes: Any) -> dict[str, Any]:
    return {"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]} | changes


@pytest.mark.parametrize(
    ("changes", "asked", "expected"),
    [
        ({}, {}, True),
        ({"operations": ["UPDATE"]}, {}, False),
        ({"apiGroups": ["*"]}, {"group": ""}, True),
        ({"resources": ["*"]}, {"subresource": "status"}, False),
        ({"resources": ["*/*"]}, {"subresource": "status"}, True),
        ({"resources": ["*/*"]}, {}, True),
        ({"resources": ["deployments/*"]}, {"subresource": "scale"}, True),
        ({"resources": ["deployments/status"]}, {"subresource": "scale"}, False),
        ({"resources": ["*/scale"]}, {"subresource": "scale"}, True),
        ({"scope": "Cluster"}, {}, False),
        ({"scope": "Namespaced"}, {"namespace": ""}, False),
        ({"resourceNames": ["a"]}, {"name": "b"}, False),
        ({"resourceNames": ["a"]}, {"name": "a"}, True),
    ],
)
def test_rules(changes: dict[str, Any], asked: dict[str, Any], expected: bool) -> None:
    assert rule_matches(rule(**changes), target(**asked)) is expected


def test_equivalent_versions_match_unless_the_policy_is_exact() -> None:
    match = {"resourceRules": [rule(apiVersions=["v1beta1"])]}
    assert matching_version(match, target(), ["v1", "v1beta1"]) == "v1beta1"
    assert matching_version(match | {"matchPolicy": "Exact"}, target(), ["v1", "v1beta1"]) is None


def test_exclusions_win() -> None:
    match = {"resourceRules": [rule()], "excludeResourceRules": [rule(resourceNames=["spared"])]}
    assert matching_version(match, target(), ["v1"]) == "v1"
    assert matching_version(match, target(name="spared"), ["v1"]) is None


def test_no_rules_mean_everything() -> None:
    assert matching_version({}, target(), ["v1"]) == "v1"


def test_objects_are_selected_before_or_after_the_change() -> None:
    match = {"objectSelector": {"matchLabels": {"a": "b"}}}
    labelled = {"metadata": {"labels": {"a": "b"}}}
    assert object_selected(match, {"metadata": {}}, labelled)
    assert not object_selected(match, {"metadata": {}}, None)


def test_only_namespaced_objects_are_subject_to_namespace_selectors() -> None:
    match = {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    assert namespace_selected(match, target(namespace=""), {})
    assert not namespace_selected(match, target(), {})
    assert namespace_selected(match, target(), {"a": ""})


def test_a_selector_that_makes_no_sense_is_an_error() -> None:
    with pytest.raises(MatchError):
        selector_matches({"matchExpressions": [{"key": "a", "operator": "Near"}]}, {})
