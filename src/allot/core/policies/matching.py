"""Which requests policies and webhooks match: resource rules and selectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.model.meta import LabelSelector
from allot.core.selectors import SelectorError, label_requirements

Object = Mapping[str, Any]

# Neither policies nor webhooks may lock out those who could mend them.
EXEMPT = frozenset(
    ("admissionregistration.k8s.io", plural)
    for plural in (
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    )
)
# Questions that components depend on.
EXEMPT_REVIEWS = frozenset(
    (
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    )
)


class MatchError(ValueError):
    """A selector that cannot be understood."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A request as rules see it."""

    operation: str
    group: str
    version: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def is_namespace(self) -> bool:
        """Whether it is about a namespace itself."""
        return (self.group, self.resource) == ("", "namespaces")


def matching_version(match: Object, target: Target, versions: Sequence[str]) -> str | None:
    """The version in which the object is to be shown; None if the rules mean other requests.

    With the match policy Equivalent a rule for another version of the resource counts, too.
    """
    policy = match.get("matchPolicy") or "Equivalent"
    if _version(_objects(match.get("excludeResourceRules")), policy, target, versions) is not None:
        return None
    rules = _objects(match.get("resourceRules"))
    return target.version if not rules else _version(rules, policy, target, versions)


def _version(rules: Sequence[Object], policy: str, target: Target, versions: Sequence[str]) -> str | None:
    others = [one for one in versions if one != target.version] if policy == "Equivalent" else []
    for version in (target.version, *others):
        shown = msgspec.structs.replace(target, version=version)
        if any(rule_matches(rule, shown) for rule in rules):
            return version
    return None


def rule_matches(rule: Object, target: Target) -> bool:
    """Whether a rule means a request."""
    names = _texts(rule.get("resourceNames"))
    return (
        _covers(rule.get("operations"), target.operation)
        and _covers(rule.get("apiGroups"), target.group)
        and _covers(rule.get("apiVersions"), target.version)
        and _covers_resource(_texts(rule.get("resources")), target)
        and _covers_scope(rule.get("scope"), target)
        and (not names or target.name in names)
    )


def _covers(listed: Any, value: str) -> bool:
    texts = _texts(listed)
    return "*" in texts or value in texts


def _covers_resource(listed: Iterable[str], target: Target) -> bool:
    for one in listed:
        resource, slash, subresource = one.partition("/")
        if resource in ("*", target.resource) and (
            (slash and subresource == "*") or (subresource == target.subresource)
        ):
            return True
    return False


def _covers_scope(scope: Any, target: Target) -> bool:
    namespaced = bool(target.namespace) and not target.is_namespace
    if scope == "Namespaced":
        return namespaced
    return not namespaced if scope == "Cluster" else True


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _objects(value: Any) -> list[Object]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# --- selectors ---


def selector_matches(selector: Any, *labels: Mapping[str, Any]) -> bool:
    """Whether a selector selects any of the labels; no selector selects everything."""
    if not selector:
        return True
    try:
        requirements = label_requirements(msgspec.convert(selector, LabelSelector))
    except (msgspec.ValidationError, SelectorError) as error:
        raise MatchError(str(error)) from None
    return requirements is not None and any(requirements.matches(dict(one)) for one in labels)


def labels_of(object_: Object | None) -> Mapping[str, Any]:
    """metadata.labels of an object."""
    meta = object_.get("metadata") if isinstance(object_, dict) else None
    labels = meta.get("labels") if isinstance(meta, dict) else None
    return labels if isinstance(labels, dict) else {}


def object_selected(match: Object, new: Object | None, old: Object | None) -> bool:
    """objectSelector: the object, before or after the change."""
    if not match.get("objectSelector"):
        return True
    return selector_matches(match["objectSelector"], *(labels_of(one) for one in (new, old) if one is not None))


def namespace_selected(match: Object, target: Target, namespace_labels: Mapping[str, Any]) -> bool:
    """namespaceSelector; objects outside of namespaces are always selected."""
    if not match.get("namespaceSelector") or not (target.namespace or target.is_namespace):
        return True
    return selector_matches(match["namespaceSelector"], namespace_labels)
