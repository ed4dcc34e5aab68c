"""Reconciles default roles and bindings of an existing cluster at each start.

The rules are Kubernetes': permissions and subjects that are missing are added, those that an administrator added stay, and an
object with the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"` is left alone.
"""

from __future__ import annotations

from typing import Any

from allot.core.access.rules import Rule, TooManyPermissions, missing, rules_of

Object = dict[str, Any]

_AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"


def is_protected(existing: Object) -> bool:
    """Whether an administrator keeps an object as it is."""
    return bool((existing["metadata"].get("annotations") or {}).get(_AUTOUPDATE) == "false")


def reconciled(existing: Object, expected: Object) -> Object | None:
    """The object as it should be; the existing one itself if nothing is missing, None if it has to be recreated: what a
    binding refers to cannot be changed."""
    if expected.get("roleRef") != existing.get("roleRef"):
        return None
    wanted = {**existing, "metadata": _with_marks(existing["metadata"], expected["metadata"])}
    if "roleRef" in expected:
        subjects = _with_missing(existing.get("subjects"), expected.get("subjects"))
        if subjects:
            wanted["subjects"] = subjects
    else:
        _add_rules(wanted, expected)
    return existing if wanted == existing else wanted


def _with_marks(metadata: Object, expected: Object) -> Object:
    """With the labels and annotations that are missing; those that are there keep their values."""
    marks = {name: {**(expected.get(name) or {}), **(metadata.get(name) or {})} for name in ("labels", "annotations")}
    return {**metadata, **{name: values for name, values in marks.items() if values}}


def _add_rules(role: Object, expected: Object) -> None:
    """What a role lacks. The rules of aggregated roles are those of other roles, and are not compared."""
    aggregation = expected.get("aggregationRule")
    if aggregation is not None:
        before = role.get("aggregationRule") or {}
        selectors = _with_missing(before.get("clusterRoleSelectors"), aggregation.get("clusterRoleSelectors"))
        role["aggregationRule"] = {**before, "clusterRoleSelectors": selectors}
        return
    role.pop("aggregationRule", None)
    lacking = _missing_rules(rules_of(role), rules_of(expected))
    if lacking:
        role["rules"] = [*(role.get("rules") or ()), *(rule.as_object() for rule in lacking)]


def _missing_rules(owned: tuple[Rule, ...], wanted: tuple[Rule, ...]) -> tuple[Rule, ...]:
    try:
        return missing(owned, wanted)
    except TooManyPermissions:
        # Someone gave the role more rules than can be compared: those that do not exist word for word are added.
        known = frozenset(owned)
        return tuple(rule for rule in wanted if rule not in known)


def _with_missing(items: Any, wanted: Any) -> list[Any]:
    found = list(items or ())
    return found + [each for each in wanted or () if each not in found]
