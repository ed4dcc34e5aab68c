"""Authorization of requests: system:masters, then the node authorizer, then RBAC; the first that allows decides.

Follows the changes of the store (`apply_change`), so that decisions need only memory. Refusals become the Status that
Kubernetes returns: 403, also without credentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allot.apiserver.access.default_policy import node_rules
from allot.apiserver.errors import StatusError, forbidden
from allot.core.access.attributes import MASTERS_GROUP, Attributes, Decision, User, refusal
from allot.core.access.node_authorizer import NodeAuthorizer
from allot.core.access.node_graph import NodeGraph
from allot.core.access.rbac import GROUP, Policy
from allot.core.access.rules import Rule
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.store.port import Entry, Event, EventType

_ALLOWED = Decision(True)

_RBAC_KINDS = {
    "Role": "roles",
    "ClusterRole": "clusterroles",
    "RoleBinding": "rolebindings",
    "ClusterRoleBinding": "clusterrolebindings",
}
_GRAPH_KINDS = {
    ("", "Pod"): "pods",
    ("", "PersistentVolume"): "persistentvolumes",
    ("storage.k8s.io", "VolumeAttachment"): "volumeattachments",
    ("resource.k8s.io", "ResourceSlice"): "resourceslices",
    ("certificates.k8s.io", "PodCertificateRequest"): "podcertificaterequests",
}
# (group, plural) of everything that decisions depend on: read at start and then watched.
WATCHED = (
    *((GROUP, plural) for plural in _RBAC_KINDS.values()),
    *((group, plural) for (group, _), plural in _GRAPH_KINDS.items()),
)
# Where the store keeps them: `/registry/<plural>/`.
_FOLDERS = frozenset(plural for _, plural in WATCHED)
_RBAC_FOLDERS = frozenset(_RBAC_KINDS.values())
_ROOT_LENGTH = len("/registry/")


def is_followed(key: str) -> bool:
    """Whether the store keeps a role or binding under a key."""
    return key[_ROOT_LENGTH : key.find("/", _ROOT_LENGTH)] in _RBAC_FOLDERS


class Authorizer:
    """The chain of authorizers."""

    def __init__(self, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._gates = gates
        self.policy = Policy()
        self.graph = NodeGraph()
        self._nodes = NodeAuthorizer(self.graph, node_rules(gates))
        # The revision of the last change applied from the watch, and revisions of own writes ahead of it.
        self._followed = 0
        self._written: dict[str, int] = {}

    def authorize(self, attributes: Attributes) -> Decision:
        """Whether the user may do it, and the reason (if any)."""
        user = attributes.user
        if MASTERS_GROUP in user.groups:
            return _ALLOWED
        by_node = self._nodes.authorize(attributes)
        if by_node.allowed:
            return by_node
        by_rule = self.policy.authorize(attributes)
        if by_rule.allowed or not by_node.reason:
            return by_rule
        reasons = [reason for reason in (by_node.reason, by_rule.reason) if reason]
        return Decision(False, "\n".join(reasons))

    def check(self, attributes: Attributes) -> None:
        """Pass, or raise 403."""
        decision = self.authorize(attributes)
        if not decision.allowed:
            raise self.refused(attributes, decision.reason)

    def refused(self, attributes: Attributes, reason: str = "") -> StatusError:
        """The refusal."""
        return forbidden(attributes.group, attributes.resource, attributes.name, refusal(attributes, reason))

    def rules_for(self, user: User, namespace: str) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
        """A user's rules in a namespace, and errors that may have hidden others."""
        rules, failures = self.policy.rules_for(user, namespace)
        if self._nodes.is_node(user):
            failures = ("node authorizer does not support user rule resolution", *failures)
        return rules, failures

    # --- feeding ---

    def reload(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Start over from these objects: missed deletions must not keep counting."""
        fresh = Authorizer(self._gates)
        for object_ in objects:
            fresh.apply(object_)
        self.policy, self.graph, self._nodes = fresh.policy, fresh.graph, fresh._nodes
        self._written.clear()

    def apply_change(self, event: Event) -> None:
        """Apply a change in the store, in order. Ignores changes of other kinds."""
        self._followed = event.revision
        key = event.entry.key
        if key[_ROOT_LENGTH : key.find("/", _ROOT_LENGTH)] not in _FOLDERS:
            return
        if self._written and self._written.get(event.entry.key, 0) > event.revision:
            # A newer version is already applied; its own event will follow.
            return
        self._written.pop(event.entry.key, None)
        self.apply(event.entry.object, deleted=event.type is EventType.DELETED)

    def apply_write(self, entry: Entry, *, deleted: bool = False) -> None:
        """Apply a role or binding that this server has just written, before the store's watch reports it."""
        object_ = entry.object
        if object_.get("kind") not in _RBAC_KINDS:
            return
        # Writers may resume in a different order than they wrote, or after the watch.
        if entry.revision <= self._followed or entry.revision <= self._written.get(entry.key, 0):
            return
        self._written[entry.key] = entry.revision
        self.apply(object_, deleted=deleted)

    def apply(self, object_: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Apply the current state of an object, as at start."""
        kind = object_.get("kind", "")
        group = object_.get("apiVersion", "").rpartition("/")[0]
        metadata = object_.get("metadata") or {}
        namespace, name = metadata.get("namespace") or "", metadata.get("name") or ""
        state = None if deleted else object_
        if group == GROUP and kind in _RBAC_KINDS:
            self.policy.apply(_RBAC_KINDS[kind], namespace, name, state)
        elif (group, kind) in _GRAPH_KINDS:
            self.graph.apply(_GRAPH_KINDS[group, kind], namespace, name, state)
