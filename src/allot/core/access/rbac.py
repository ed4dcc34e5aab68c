"""Role-based access control: roles and bindings as an index, and the decisions made from it.

A Policy is fed with Roles, ClusterRoles and their bindings as they change and answers from memory. Answers are kept per
user and kind of request (not per object name, of which there are many) until any of those objects changes.

The rules of an aggregated ClusterRole are computed here from the roles that it selects, at once; Kubernetes has a
controller write them into the role some time later. `aggregations` says what such a controller should write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from allot.core.access.attributes import NO_OPINION, Attributes, Decision, User
from allot.core.access.rules import Rule, rules_of
from allot.core.access.service_accounts import user_name
from allot.core.model.meta import LabelSelector
from allot.core.selectors import Requirements, SelectorError, label_requirements
from allot.core.validation.fields import quote

GROUP = "rbac.authorization.k8s.io"
RESOURCES = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")

# Cached answers; too many different questions clear the cache instead of growing it.
ANSWERS_MAX = 50_000
GRANTS_MAX = 10_000
# Reviews may ask about users with names and groups of megabytes: such are answered and not kept.
KEY_LENGTH_MAX = 4096


class Subject(msgspec.Struct, frozen=True):
    """Who is bound."""

    kind: str
    name: str
    namespace: str = ""

    def key(self, binding_namespace: str) -> tuple[str, str] | None:
        """What a user is compared with: kind User or Group, and a name; None if it can match no one."""
        if self.kind in ("User", "Group"):
            return self.kind, self.name
        namespace = self.namespace or binding_namespace
        if self.kind != "ServiceAccount" or not namespace:
            return None
        return "User", user_name(namespace, self.name)

    def told(self, binding_namespace: str) -> str:
        """The subject as reasons name it."""
        if self.kind == "ServiceAccount":
            return f"ServiceAccount {quote(f'{self.name}/{self.namespace or binding_namespace}')}"
        return f"{self.kind} {quote(self.name)}"


class Binding(msgspec.Struct, frozen=True):
    """Subjects that have a role, in one namespace or (namespace empty) everywhere."""

    namespace: str
    name: str
    role_kind: str
    role_name: str
    subjects: tuple[Subject, ...]

    def told(self, subject: Subject) -> str:
        """The binding as reasons name it."""
        kind, name = "ClusterRoleBinding", self.name
        if self.namespace:
            kind, name = "RoleBinding", f"{self.name}/{self.namespace}"
        role = f"{self.role_kind} {quote(self.role_name)}"
        return f"{kind} {quote(name)} of {role} to {subject.told(self.namespace)}"


class Grant(msgspec.Struct, frozen=True):
    """What one binding gives a user. failure: why it gives nothing (its role is missing)."""

    source: str
    rules: tuple[Rule, ...]
    failure: str = ""


class _Answer(msgspec.Struct, frozen=True):
    """What a user may do with one kind of request: with all names, with some of them, or why not."""

    always: Decision | None
    by_name: Mapping[str, Decision]
    otherwise: Decision


class RoleMissing(LookupError):
    """A role that a binding refers to does not exist."""

    def __init__(self, resource: str, name: str) -> None:
        super().__init__(f"{resource}.{GROUP} {quote(name)} not found")
        self.resource = resource
        self.name = name


class Policy:
    """All roles and bindings, indexed by who is bound."""

    def __init__(self) -> None:
        # Keys are (namespace, name); the namespace of cluster-wide objects is empty.
        self._roles: dict[tuple[str, str], tuple[Rule, ...]] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._selectors: dict[str, tuple[Requirements, ...]] = {}
        self._bindings: dict[tuple[str, str], Binding] = {}
        # (binding's namespace, kind, name of a subject) -> names of bindings -> index of the subject in the binding.
        self._bound: dict[tuple[str, str, str], dict[str, int]] = {}
        self._aggregated: dict[str, tuple[Rule, ...]] | None = None
        self._grants: dict[tuple[str, tuple[str, ...], str], tuple[Grant, ...]] = {}
        self._answers: dict[tuple[str, ...], _Answer] = {}

    # --- feeding ---

    def apply(self, resource: str, namespace: str, name: str, object_: Mapping[str, Any] | None) -> None:
        """Take over the new state of one object, None for deleted; other resources than RBAC's are passed over."""
        if resource == "roles" or resource == "clusterroles":
            self._apply_role(namespace, name, object_)
        elif resource == "rolebindings" or resource == "clusterrolebindings":
            self._apply_binding(namespace, name, object_)
        else:
            return
        self._grants.clear()
        self._answers.clear()

    def _apply_role(self, namespace: str, name: str, role: Mapping[str, Any] | None) -> None:
        self._aggregated = None
        if not namespace:
            self._selectors.pop(name, None)
            self._labels.pop(name, None)
        if role is None:
            self._roles.pop((namespace, name), None)
            return
        self._roles[namespace, name] = rules_of(role)
        if namespace:
            return
        self._labels[name] = (role.get("metadata") or {}).get("labels") or {}
        aggregation = role.get("aggregationRule")
        if aggregation is not None:
            self._selectors[name] = _selectors(aggregation)

    def _apply_binding(self, namespace: str, name: str, object_: Mapping[str, Any] | None) -> None:
        before = self._bindings.pop((namespace, name), None)
        for key in _subject_keys(before):
            bound = self._bound[namespace, *key]
            bound.pop(name, None)
            if not bound:
                del self._bound[namespace, *key]
        if object_ is None:
            return
        binding = binding_of(namespace, name, object_)
        self._bindings[namespace, name] = binding
        for key, index in _subject_keys(binding).items():
            self._bound.setdefault((namespace, *key), {})[name] = index

    # --- roles ---

    def role_rules(self, kind: str, namespace: str, name: str) -> tuple[Rule, ...]:
        """The rules of a Role of a namespace or of a ClusterRole; RoleMissing."""
        if kind == "ClusterRole":
            if name in self._selectors:
                return self.aggregations()[name]
            namespace = ""
        rules = self._roles.get((namespace, name))
        if rules is None or (kind == "Role" and not namespace):
            raise RoleMissing("role" if kind == "Role" else "clusterrole", name)
        return rules

    def aggregations(self) -> dict[str, tuple[Rule, ...]]:
        """For every ClusterRole with an aggregation rule the rules that it should have."""
        if self._aggregated is None:
            self._aggregated = self._aggregate()
        return self._aggregated

    def _aggregate(self) -> dict[str, tuple[Rule, ...]]:
        chosen = {
            name: [
                other
                for other in sorted(self._labels)
                if other != name and any(selector.matches(self._labels[other]) for selector in selectors)
            ]
            for name, selectors in self._selectors.items()
        }
        found: dict[str, tuple[Rule, ...]] = dict.fromkeys(sorted(chosen), ())
        # Roles that aggregate aggregated roles settle after as many rounds as they are deep, at most as there are roles.
        for _ in range(len(chosen) + 1):
            after = {
                name: tuple(dict.fromkeys(rule for other in chosen[name] for rule in self._stored(other, found)))
                for name in found
            }
            if after == found:
                break
            found = after
        return found

    def _stored(self, name: str, aggregated: Mapping[str, tuple[Rule, ...]]) -> tuple[Rule, ...]:
        return aggregated[name] if name in aggregated else self._roles["", name]

    # --- decisions ---

    def authorize(self, attributes: Attributes) -> Decision:
        """Whether some rule of the user allows it."""
        user = attributes.user
        if not attributes.resource:
            return self._authorize_path(attributes)
        key = (
            user.name,
            attributes.verb,
            attributes.group,
            attributes.resource,
            attributes.subresource,
            attributes.namespace,
            *user.groups,
        )
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answer(attributes)
            if sum(map(len, key)) <= KEY_LENGTH_MAX:
                self._answers[key] = answer
        if answer.always is not None:
            return answer.always
        return answer.by_name.get(attributes.name, answer.otherwise)

    def _answer(self, attributes: Attributes) -> _Answer:
        by_name: dict[str, Decision] = {}
        grants = self.grants(attributes.user, attributes.namespace)
        for grant in grants:
            for rule in grant.rules:
                if not (
                    rule.allows_verb(attributes.verb)
                    and rule.allows_group(attributes.group)
                    and rule.allows_resource(attributes.resource, attributes.subresource)
                ):
                    continue
                decision = Decision(True, f"RBAC: allowed by {grant.source}")
                if not rule.resource_names:
                    return _Answer(decision, {}, NO_OPINION)
                for name in rule.resource_names:
                    by_name.setdefault(name, decision)
        return _Answer(None, by_name, _refused(grants))

    def _authorize_path(self, attributes: Attributes) -> Decision:
        grants = self.grants(attributes.user, "")
        for grant in grants:
            for rule in grant.rules:
                if rule.allows_verb(attributes.verb) and rule.allows_path(attributes.path):
                    return Decision(True, f"RBAC: allowed by {grant.source}")
        return _refused(grants)

    def rules_for(self, user: User, namespace: str) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
        """All rules of a user in a namespace, and what kept others from being found."""
        grants = self.grants(user, namespace)
        return (
            tuple(rule for grant in grants for rule in grant.rules),
            tuple(grant.failure for grant in grants if grant.failure),
        )

    def grants(self, user: User, namespace: str) -> tuple[Grant, ...]:
        """What each binding gives the user: the cluster-wide ones first, then those of the namespace, by name."""
        key = (user.name, user.groups, namespace)
        found = self._grants.get(key)
        if found is None:
            if len(self._grants) >= GRANTS_MAX:
                self._grants.clear()
            found = tuple(self._grants_of(user, namespace))
            if sum(map(len, (user.name, namespace, *user.groups))) <= KEY_LENGTH_MAX:
                self._grants[key] = found
        return found

    def _grants_of(self, user: User, namespace: str) -> Iterator[Grant]:
        keys = [("User", user.name), *(("Group", group) for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            found: dict[str, int] = {}
            for kind, subject in keys:
                for name, index in self._bound.get((scope, kind, subject), {}).items():
                    found[name] = min(index, found.get(name, index))
            for name in sorted(found):
                yield self._grant(self._bindings[scope, name], found[name])

    def _grant(self, binding: Binding, index: int) -> Grant:
        source = binding.told(binding.subjects[index])
        if binding.role_kind not in ("Role", "ClusterRole"):
            return Grant(source, (), f"unsupported role reference kind: {quote(binding.role_kind)}")
        try:
            return Grant(source, self.role_rules(binding.role_kind, binding.namespace, binding.role_name))
        except RoleMissing as error:
            return Grant(source, (), str(error))


def binding_of(namespace: str, name: str, object_: Mapping[str, Any]) -> Binding:
    """A RoleBinding or ClusterRoleBinding as a value."""
    reference = object_.get("roleRef") or {}
    subjects = tuple(
        Subject(subject.get("kind") or "", subject.get("name") or "", subject.get("namespace") or "")
        for subject in object_.get("subjects") or ()
    )
    return Binding(namespace, name, reference.get("kind") or "", reference.get("name") or "", subjects)


def _subject_keys(binding: Binding | None) -> dict[tuple[str, str], int]:
    """Whom the binding is about, each with the index of its first mention."""
    found: dict[tuple[str, str], int] = {}
    if binding is not None:
        for index, subject in enumerate(binding.subjects):
            key = subject.key(binding.namespace)
            if key is not None:
                found.setdefault(key, index)
    return found


def _selectors(aggregation: Mapping[str, Any]) -> tuple[Requirements, ...]:
    found: list[Requirements] = []
    for selector in aggregation.get("clusterRoleSelectors") or ():
        try:
            requirements = label_requirements(msgspec.convert(selector, LabelSelector))
        except (SelectorError, msgspec.ValidationError):
            # Validation keeps such a selector out; one that got in another way selects nothing.
            continue
        if requirements is not None:
            found.append(requirements)
    return tuple(found)


def _refused(grants: tuple[Grant, ...]) -> Decision:
    failures = list(dict.fromkeys(grant.failure for grant in grants if grant.failure))
    if not failures:
        return NO_OPINION
    told = failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]"
    return Decision(False, f"RBAC: {told}")
