"""Privilege escalation checks on writes of roles and bindings.

A writer of a role needs every permission in it, or the verb `escalate` on it; a writer of a binding needs every permission
of the role that it binds, or the verb `bind` on that role. Answers are the reasons of a 403.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from allot.core.access.attributes import MASTERS_GROUP, Attributes, Decision, User
from allot.core.access.rbac import GROUP, Policy
from allot.core.access.rules import FULL_AUTHORITY, Rule, TooManyPermissions, describe_missing, missing, rules_of
from allot.core.validation.fields import quote

Authorize = Callable[[Attributes], Decision]
Object = Mapping[str, Any]

# What the garbage collector changes on its way to deleting an object.
_COLLECTOR_FIELDS = ("ownerReferences", "finalizers", "managedFields", "selfLink", "resourceVersion")


def check_role_write(
    policy: Policy,
    authorize: Authorize,
    user: User,
    resource: str,
    namespace: str,
    role: Object,
    old: Object | None,
) -> str | None:
    """Why the user may not write this Role or ClusterRole, None if they may."""
    if MASTERS_GROUP in user.groups or (old is not None and _only_collector_fields(role, old)):
        return None
    name = (role.get("metadata") or {}).get("name") or ""
    asked = Attributes(
        user=user, verb="escalate", group=GROUP, version="*", resource=resource, namespace=namespace, name=name
    )
    if authorize(asked).allowed:
        return None
    reason = _missing(policy, user, namespace, rules_of(role))
    if reason is not None or not (_aggregates(role) or (old is not None and _aggregates(old))):
        return reason
    # What is aggregated later cannot be known now, so it takes everything.
    if _missing(policy, user, namespace, FULL_AUTHORITY) is not None:
        return "must have cluster-admin privileges to use the aggregationRule"
    return None


def check_binding_write(
    policy: Policy, authorize: Authorize, user: User, namespace: str, binding: Object, old: Object | None
) -> str | None:
    """Why the user may not write this binding, None if they may. RoleMissing if it binds a role that does not exist."""
    if MASTERS_GROUP in user.groups or (old is not None and _only_collector_fields(binding, old)):
        return None
    reference = binding.get("roleRef") or {}
    kind, name = reference.get("kind") or "", reference.get("name") or ""
    resource = {"ClusterRole": "clusterroles", "Role": "roles"}.get(kind)
    if resource is None:
        return f"unsupported role reference kind: {quote(kind)}"
    asked = Attributes(
        user=user,
        verb="bind",
        group=reference.get("apiGroup") or "",
        version="*",
        resource=resource,
        namespace=namespace,
        name=name,
    )
    if authorize(asked).allowed:
        return None
    return _missing(policy, user, namespace, policy.role_rules(kind, namespace, name))


def _missing(policy: Policy, user: User, namespace: str, rules: tuple[Rule, ...]) -> str | None:
    owned, failures = policy.rules_for(user, namespace)
    try:
        lacking = missing(owned, rules)
    except TooManyPermissions as error:
        return str(error)
    if not lacking:
        return None
    groups = " ".join(quote(group) for group in user.groups)
    told = (
        f"user {quote(user.name)} (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n"
        f"{describe_missing(lacking)}"
    )
    return f"{told}; resolution errors: [{' '.join(failures)}]" if failures else told


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _only_collector_fields(object_: Object, old: Object) -> bool:
    return _without_collector_fields(object_) == _without_collector_fields(old)


def _without_collector_fields(object_: Object) -> dict[str, Any]:
    metadata = {key: value for key, value in (object_.get("metadata") or {}).items() if key not in _COLLECTOR_FIELDS}
    return {**object_, "metadata": metadata}
