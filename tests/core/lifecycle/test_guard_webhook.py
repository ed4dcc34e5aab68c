"""Whether a configuration makes API servers ask the guard about every allocation."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.guard_webhook import unguarded
from allot.guard.configuration import WebhookOptions, webhook_configuration


def configuration(**changes: Any) -> dict[str, Any]:
    """The guard's own as a server stores it, with these changes."""
    made = webhook_configuration(WebhookOptions(url="https://guard.example/validate"))
    # Servers add them.
    defaults: dict[str, Any] = {"namespaceSelector": {}, "objectSelector": {}}
    return {**made, "webhooks": [{**defaults, **made["webhooks"][0], **changes}]}


def rule(**changes: Any) -> dict[str, Any]:
    (found,) = configuration()["webhooks"][0]["rules"]
    return {**found, **changes}


def test_the_guards_own_configuration_exempts_nothing() -> None:
    assert unguarded([configuration()]) == ""
    # As long as one of several is asked about everything, nothing passes.
    assert unguarded([configuration(failurePolicy="Ignore"), configuration()]) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"matchPolicy": "Equivalent", "rules": [rule(apiVersions=["v1"])]},
        {"rules": [rule(apiGroups=["*"], operations=["*"], resources=["*/*"], scope="*")]},
        {"matchConditions": []},
        {"namespaceSelector": {"matchExpressions": []}},
    ],
)
def test_what_covers_more_or_the_same_in_other_words_is_as_good(changes: dict[str, Any]) -> None:
    assert unguarded([configuration(**changes)]) == ""


_EXCLUDED = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "another.example"}, "no ValidatingWebhookConfiguration has the webhook guard.allot.dev"),
        ({"failurePolicy": "Ignore"}, "ValidatingWebhookConfiguration allot-guard: failurePolicy is Ignore"),
        ({"namespaceSelector": _EXCLUDED}, 'namespaceSelector is {"matchExpressions": [{"key": "team"'),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, 'objectSelector is {"matchLabels": {"a": "b"}}'),
        ({"matchConditions": [{"name": "x", "expression": "false"}]}, 'matchConditions have "false"'),
        ({"rules": []}, "no rule covers UPDATE of resourceclaims/status in all versions"),
        ({"rules": [rule(apiVersions=["v1"])]}, "no rule covers UPDATE"),
        ({"rules": [rule(operations=["CREATE"])]}, "no rule covers UPDATE"),
        ({"rules": [rule(resources=["resourceclaims"])]}, "no rule covers UPDATE"),
        ({"rules": [rule(apiGroups=["apps"])]}, "no rule covers UPDATE"),
        ({"rules": [rule(scope="Cluster")]}, "no rule covers UPDATE"),
    ],
)
def test_what_exempts_anything_counts_as_no_guard_and_is_named(changes: dict[str, Any], text: str) -> None:
    assert text in unguarded([configuration(**changes)])
