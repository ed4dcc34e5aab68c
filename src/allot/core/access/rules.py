"""Policy rules of RBAC: what a rule allows, and whether rules cover other rules.

Knows one rule at a time or lists of them; `rbac` knows which rules a user has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.validation.fields import quote

# A role that spells out more single permissions than this is not compared with those of its writer.
SINGLE_RULES_MAX = 100_000
# How many times a rule of its writer is held against one of the role: a fifth of a second.
COMPARISONS_MAX = 150_000
# An answer names at most this many missing permissions.
MISSING_SHOWN_MAX = 1_000


class TooManyPermissions(ValueError):
    """Rules that spell out more single permissions than can be compared."""


class Rule(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"api_groups": "apiGroups", "resource_names": "resourceNames", "non_resource_urls": "nonResourceURLs"},
):
    """Verbs on resources (of groups, perhaps by name) or on paths outside the API."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = ()

    def allows_verb(self, verb: str) -> bool:
        """Whether the verb is one of the rule's."""
        return "*" in self.verbs or verb in self.verbs

    def allows_group(self, group: str) -> bool:
        """Whether the API group is one of the rule's."""
        return "*" in self.api_groups or group in self.api_groups

    def allows_resource(self, resource: str, subresource: str) -> bool:
        """Whether the resource or subresource is one of the rule's; `*/scale` is the scale of everything."""
        if "*" in self.resources:
            return True
        if not subresource:
            return resource in self.resources
        return f"{resource}/{subresource}" in self.resources or f"*/{subresource}" in self.resources

    def allows_path(self, path: str) -> bool:
        """Whether the path is one of the rule's; a trailing * stands for any rest."""
        return any(
            pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))
            for pattern in self.non_resource_urls
        )

    def as_object(self) -> dict[str, Any]:
        """The rule as API objects carry it."""
        return {name: list(values) for name, values in msgspec.to_builtins(self).items()}

    def __str__(self) -> str:
        parts = [
            f"{label}:[{' '.join(quote(value) for value in values)}]"
            for label, values in (
                ("APIGroups", self.api_groups),
                ("Resources", self.resources),
                ("NonResourceURLs", self.non_resource_urls),
                ("ResourceNames", self.resource_names),
                ("Verbs", self.verbs),
            )
            if values
        ]
        return "{" + ", ".join(parts) + "}"


FULL_AUTHORITY = (
    Rule(("*",), api_groups=("*",), resources=("*",)),
    Rule(("*",), non_resource_urls=("*",)),
)


def rules_of(role: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules of a Role or ClusterRole."""
    return tuple(
        Rule(
            tuple(rule.get("verbs") or ()),
            tuple(rule.get("apiGroups") or ()),
            tuple(rule.get("resources") or ()),
            tuple(rule.get("resourceNames") or ()),
            tuple(rule.get("nonResourceURLs") or ()),
        )
        for rule in role.get("rules") or ()
    )


# --- covering: may someone with these rules hand out those? ---


def missing(owned: Sequence[Rule], wanted: Iterable[Rule]) -> tuple[Rule, ...]:
    """The single permissions of `wanted` that none of the owned rules covers; TooManyPermissions if they are too many."""
    found: list[Rule] = []
    budget = SINGLE_RULES_MAX
    comparisons = COMPARISONS_MAX
    owned = tuple(dict.fromkeys(owned))
    for rule in dict.fromkeys(wanted):
        comparisons -= len(owned)
        if comparisons < 0:
            raise TooManyPermissions("there are too many rules to compare with those of the user")
        # A rule that is covered as a whole need not be taken apart.
        if any(_covers(owner, rule) for owner in owned):
            continue
        comparisons -= _single_count(rule) * len(owned)
        budget -= _single_count(rule)
        if budget < 0:
            raise TooManyPermissions(
                f"the rules spell out more than {SINGLE_RULES_MAX} single permissions, which are too many to compare"
            )
        found.extend(single for single in _singles(rule) if not any(_covers(owner, single) for owner in owned))
    return tuple(found)


def _single_count(rule: Rule) -> int:
    names = max(len(rule.resource_names), 1)
    on_resources = len(rule.api_groups) * len(rule.resources) * names
    return len(rule.verbs) * (on_resources + len(rule.non_resource_urls))


def _singles(rule: Rule) -> Iterable[Rule]:
    """The rule as rules of one verb, group, resource and name or path each."""
    names: tuple[tuple[str, ...], ...] = tuple((name,) for name in rule.resource_names) or ((),)
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for name in names:
                    yield Rule((verb,), (group,), (resource,), name)
    for url in rule.non_resource_urls:
        for verb in rule.verbs:
            yield Rule((verb,), non_resource_urls=(url,))


def _covers(owner: Rule, rule: Rule) -> bool:
    if not _has_all(owner.verbs, rule.verbs) or not _has_all(owner.api_groups, rule.api_groups):
        return False
    # A rule without names is about all of them: names cannot cover it.
    if owner.resource_names and not (rule.resource_names and set(rule.resource_names) <= set(owner.resource_names)):
        return False
    return _covers_resources(owner.resources, rule.resources) and all(
        _covers_path(owner.non_resource_urls, url) for url in rule.non_resource_urls
    )


def _has_all(owned: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return "*" in owned or set(wanted) <= set(owned)


def _covers_resources(owned: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    if "*" in owned:
        return True
    for resource in wanted:
        if resource in owned:
            continue
        _, slash, subresource = resource.partition("/")
        if not slash or f"*/{subresource}" not in owned:
            return False
    return True


def _covers_path(owned: tuple[str, ...], path: str) -> bool:
    return any(url == path or (url.endswith("*") and path.startswith(url.rstrip("*"))) for url in owned)


def describe_missing(rules: Iterable[Rule]) -> str:
    """Missing permissions, one a line; those that differ in their verb only share a line."""
    verbs: dict[Rule, list[str]] = {}
    lines: list[str] = []
    for rule in rules:
        if rule.non_resource_urls:
            lines.append(str(rule))
        else:
            verbs.setdefault(msgspec.structs.replace(rule, verbs=()), []).extend(rule.verbs)
    lines.extend(str(msgspec.structs.replace(rule, verbs=tuple(of_rule))) for rule, of_rule in verbs.items())
    shown = sorted(set(lines))
    if len(shown) > MISSING_SHOWN_MAX:
        shown = [*shown[:MISSING_SHOWN_MAX], f"... and {len(shown) - MISSING_SHOWN_MAX} more"]
    return "\n".join(shown)
