"""The default RBAC objects of a cluster, from the tables in default_policy.yaml.

Labels and annotations mark them as in Kubernetes. Roles whose rules all depend on disabled feature gates are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from allot.core.access.rbac import GROUP, Policy
from allot.core.access.rules import Rule
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.process.data_files import read_data_file

Object = dict[str, Any]

_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_VERBS = {"read": _READ, "write": _WRITE, "everything": (*_READ, *_WRITE)}
_EVENTS = "create patch update | core events.k8s.io | events"

_AGGREGATE_LABEL = f"{GROUP}/aggregate-to-"
# Role -> the role that it aggregates to.
_ADDED_TO = {
    "edit": ("admin",),
    "view": ("edit",),
    "system:aggregate-to-admin": ("admin",),
    "system:aggregate-to-edit": ("edit",),
    "system:aggregate-to-view": ("view",),
    "system:aggregated-metrics-reader": ("admin", "edit", "view"),
}
_AGGREGATED = ("admin", "edit", "view")


class _RoleBinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A binding in a namespace. role: name of a role there."""

    role: str
    subjects: tuple[str, ...]


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """default_policy.yaml, which documents the tables. Rules are text, one per line; `parse_rules` reads them."""

    cluster_roles: Mapping[str, str]
    controller_roles: Mapping[str, str]
    roles: Mapping[str, Mapping[str, str]]
    cluster_role_bindings: Mapping[str, tuple[str, ...]]
    role_bindings: Mapping[str, Mapping[str, _RoleBinding]]


@cache
def _tables() -> _Tables:
    return read_data_file(__package__, "default_policy.yaml", _Tables)


def parse_rules(text: str, gates: FeatureGates) -> tuple[Rule, ...]:
    """The rules of a table entry that apply with these gates."""
    found: list[Rule] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        gate, mark, rest = line.partition("? ")
        if not mark:
            found.append(_rule(line))
        elif gate in gates:
            found.append(_rule(rest))
    return tuple(found)


def _rule(line: str) -> Rule:
    fields = [tuple(field.split()) for field in (_EVENTS if line == "events" else line).split("|")]
    verbs = tuple(sorted(verb for word in fields[0] for verb in _VERBS.get(word, (word,))))
    if len(fields) == 2:
        return Rule(verbs, non_resource_urls=fields[1])
    groups = tuple("" if group == "core" else group for group in fields[1])
    return Rule(verbs, groups, fields[2], fields[3] if len(fields) > 3 else ())


def node_rules(gates: FeatureGates = DEFAULT_GATES) -> tuple[Rule, ...]:
    """What every node may do, apart from what is decided object by object."""
    return parse_rules(_tables().cluster_roles["system:node"], gates)


def default_objects(gates: FeatureGates = DEFAULT_GATES) -> tuple[tuple[str, Object], ...]:
    """(resource, object) of every default role and binding, in an order in which they can be created."""
    roles = [*_cluster_roles(gates), *_namespace_roles(gates)]
    return (*roles, *_cluster_bindings({role["metadata"]["name"] for _, role in roles}), *_namespace_bindings())


def _cluster_roles(gates: FeatureGates) -> Iterable[tuple[str, Object]]:
    roles = {name: parse_rules(text, gates) for name, text in _tables().cluster_roles.items()}
    roles |= {
        f"system:controller:{name}": parse_rules(text, gates) for name, text in _tables().controller_roles.items()
    }
    found = {name: _cluster_role(name, rules) for name, rules in roles.items() if rules}
    found |= {name: _cluster_role(name, ()) for name in _AGGREGATED}
    policy = Policy()
    for name, role in found.items():
        policy.apply("clusterroles", "", name, role)
    for name, rules in policy.aggregations().items():
        found[name]["rules"] = [rule.as_object() for rule in rules]
    return [("clusterroles", found[name]) for name in sorted(found)]


def _cluster_role(name: str, rules: tuple[Rule, ...]) -> Object:
    role = _object("ClusterRole", "", name)
    role["rules"] = [rule.as_object() for rule in rules]
    for added_to in _ADDED_TO.get(name, ()):
        role["metadata"]["labels"][_AGGREGATE_LABEL + added_to] = "true"
    if name in _AGGREGATED:
        selector = {"matchLabels": {_AGGREGATE_LABEL + name: "true"}}
        role["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    return role


def _namespace_roles(gates: FeatureGates) -> Iterable[tuple[str, Object]]:
    for namespace, roles in _tables().roles.items():
        for name, text in roles.items():
            rules = [rule.as_object() for rule in parse_rules(text, gates)]
            yield "roles", _object("Role", namespace, name) | {"rules": rules}


def _cluster_bindings(roles: set[str]) -> Iterable[tuple[str, Object]]:
    subjects = dict(_tables().cluster_role_bindings)
    for name in _tables().controller_roles:
        if f"system:controller:{name}" in roles:
            subjects[f"system:controller:{name}"] = (f"ServiceAccount kube-system/{name}",)
    for name in sorted(subjects):
        yield "clusterrolebindings", _binding("ClusterRoleBinding", "", name, "ClusterRole", name, subjects[name])


def _namespace_bindings() -> Iterable[tuple[str, Object]]:
    for namespace, bindings in _tables().role_bindings.items():
        for name, binding in bindings.items():
            yield "rolebindings", _binding("RoleBinding", namespace, name, "Role", binding.role, binding.subjects)


def _binding(kind: str, namespace: str, name: str, role_kind: str, role: str, subjects: tuple[str, ...]) -> Object:
    binding = _object(kind, namespace, name)
    binding["roleRef"] = {"apiGroup": GROUP, "kind": role_kind, "name": role}
    if subjects:
        binding["subjects"] = [_subject(subject) for subject in subjects]
    return binding


def _subject(text: str) -> Object:
    kind, _, name = text.partition(" ")
    if kind == "ServiceAccount":
        namespace, _, name = name.partition("/")
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"apiGroup": GROUP, "kind": kind, "name": name}


def _object(kind: str, namespace: str, name: str) -> Object:
    metadata: Object = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata["labels"] = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    metadata["annotations"] = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}
