"""The guard's webhook: how it is recognized, and whether API servers call it for every allocation.

An administrator may change a configuration. Allocations exempt from the guard are stored unguarded, so a change that exempts
anything is as bad as no guard.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

JSON = Mapping[str, Any]

# Identifies a guard's webhook to others.
GUARD_WEBHOOK = "guard.allot.dev"
# New allocations: reservations, driver reports and deallocations need neither a check nor a guard.
CHANGES_ALLOCATION = (
    "has(object.status) && has(object.status.allocation) && "
    "!(has(oldObject.status) && has(oldObject.status.allocation) && "
    "object.status.allocation == oldObject.status.allocation)"
)
_GROUP, _RESOURCES = "resource.k8s.io", ("resourceclaims/status", "resourceclaims/*", "*/status", "*/*")


def unguarded(configurations: Iterable[JSON]) -> str:
    """Why allocations may be stored without calling a guard; empty if it is called for all of them.

    configurations: every ValidatingWebhookConfiguration of the cluster.
    """
    found = [
        (str(configuration["metadata"]["name"]), webhook)
        for configuration in configurations
        for webhook in configuration.get("webhooks") or ()
        if webhook.get("name") == GUARD_WEBHOOK
    ]
    if not found:
        return f"no ValidatingWebhookConfiguration has the webhook {GUARD_WEBHOOK}"
    reasons = [(name, exempt(webhook)) for name, webhook in found]
    if any(not reason for _, reason in reasons):
        return ""
    return "; ".join(f"ValidatingWebhookConfiguration {name}: {reason}" for name, reason in reasons)


def exempt(webhook: JSON) -> str:
    """Which part of a guard's webhook lets allocations pass unchecked; empty if none does."""
    # One without a certificate cannot be called, but lets nothing through either.
    if webhook.get("failurePolicy") == "Ignore":
        return "failurePolicy is Ignore, expected Fail: allocations are stored while no guard answers"
    for field in ("namespaceSelector", "objectSelector"):
        selector = webhook.get(field) or {}
        if any(selector.values()):
            return f"{field} is {_text(selector)}, expected none: claims that it does not select are stored unguarded"
    for condition in webhook.get("matchConditions") or ():
        expression = str(condition.get("expression"))
        if expression.split() != CHANGES_ALLOCATION.split():
            return f"matchConditions have {_text(expression)}, expected only the guard's own condition"
    is_exact = webhook.get("matchPolicy") == "Exact"
    if not any(_covers(rule, is_exact=is_exact) for rule in webhook.get("rules") or ()):
        return f"no rule covers UPDATE of resourceclaims/status in all versions of {_GROUP}"
    return ""


def _covers(rule: JSON, *, is_exact: bool) -> bool:
    """Whether a rule covers every change of a claim's status. is_exact: whether it applies only to the versions that it names."""
    versions = rule.get("apiVersions") or ()
    return (
        _names(rule.get("apiGroups"), _GROUP)
        and ("*" in versions or (not is_exact and bool(versions)))
        and _names(rule.get("operations"), "UPDATE")
        and any(each in _RESOURCES for each in rule.get("resources") or ())
        and rule.get("scope", "*") in ("*", "Namespaced")
    )


def _names(given: Any, wanted: str) -> bool:
    return any(each in ("*", wanted) for each in given or ())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
