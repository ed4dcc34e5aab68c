"""What a node may do: its own Node, its pods, and what these refer to; the rest by fixed rules.

Only users `system:node:<name>` in the group system:nodes are nodes. There is no opinion about other users.
"""

from __future__ import annotations

from collections.abc import Callable

from allot.core.access.attributes import NO_OPINION, Attributes, Decision, User, node_name
from allot.core.access.node_graph import NodeGraph
from allot.core.access.rules import Rule
from allot.core.validation.fields import quote

_ALLOWED = Decision(True)
_LEASE_NAMESPACE = "kube-node-lease"
_OWN_OBJECT_VERBS = ("get", "create", "update", "patch", "delete")

_Rule = Callable[[str, Attributes], Decision]


def _no(reason: str) -> Decision:
    return Decision(False, reason)


class NodeAuthorizer:
    """Decides for nodes, from the graph of what belongs to them."""

    def __init__(self, graph: NodeGraph, rules: tuple[Rule, ...]) -> None:
        self._graph = graph
        self._rules = rules
        self._special: dict[tuple[str, str], _Rule] = {
            ("", "secrets"): self._read,
            ("", "configmaps"): self._read,
            ("", "persistentvolumeclaims"): self._volume_claim,
            ("", "persistentvolumes"): self._get,
            ("resource.k8s.io", "resourceclaims"): self._get,
            ("storage.k8s.io", "volumeattachments"): self._get,
            ("", "serviceaccounts"): self._service_account,
            ("coordination.k8s.io", "leases"): self._lease,
            ("storage.k8s.io", "csinodes"): self._csi_node,
            ("resource.k8s.io", "resourceslices"): self._slice,
            ("", "nodes"): self._node,
            ("", "pods"): self._pod,
            ("certificates.k8s.io", "podcertificaterequests"): self._certificate_request,
        }

    def is_node(self, user: User) -> bool:
        """Whether the user is a node."""
        return node_name(user) is not None

    def authorize(self, attributes: Attributes) -> Decision:
        """Whether a node may do it; no opinion about anyone else."""
        node = node_name(attributes.user)
        if node is None:
            return NO_OPINION
        if not node:
            return _no(f"unknown node for user {quote(attributes.user.name)}")
        special = self._special.get((attributes.group, attributes.resource)) if attributes.resource else None
        if special is not None:
            return special(node, attributes)
        return _ALLOWED if any(_allows(rule, attributes) for rule in self._rules) else NO_OPINION

    def _related(self, node: str, attributes: Attributes) -> Decision:
        if not attributes.name:
            return _no("No Object name found")
        if self._graph.belongs(attributes.resource, attributes.namespace, attributes.name, node):
            return _ALLOWED
        return _no(f"no relationship found between node '{node}' and this object")

    def _get(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb != "get":
            return _no("can only get individual resources of this type")
        if attributes.subresource:
            return _no("cannot get subresource")
        return self._related(node, attributes)

    def _read(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in ("get", "list", "watch"):
            return _no("can only read resources of this type")
        if attributes.subresource:
            return _no("cannot read subresource")
        if not attributes.namespace:
            return _no("can only read namespaced object of this type")
        return self._related(node, attributes)

    def _volume_claim(self, node: str, attributes: Attributes) -> Decision:
        if attributes.subresource != "status":
            return self._get(node, attributes)
        if attributes.verb not in ("update", "patch"):
            return _no("can only get/update/patch this type")
        return self._related(node, attributes)

    def _service_account(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb == "get" and not attributes.subresource:
            return self._read(node, attributes)
        if attributes.verb != "create" or not attributes.name:
            return _no("can only create tokens for individual service accounts")
        if attributes.subresource != "token":
            return _no("can only create token subresource of serviceaccount")
        return self._related(node, attributes)

    def _lease(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in _OWN_OBJECT_VERBS:
            return _no("can only get, create, update, patch, or delete a node lease")
        if attributes.namespace != _LEASE_NAMESPACE:
            return _no(f"can only access leases in the {quote(_LEASE_NAMESPACE)} system namespace")
        # The name of a new object is not known here; admission (NodeRestriction) looks at it.
        if attributes.verb != "create" and attributes.name != node:
            return _no("can only access node lease with the same name as the requesting node")
        return _ALLOWED

    def _csi_node(self, node: str, attributes: Attributes) -> Decision:
        if attributes.subresource == "status":
            return _no("CSINode status access requires CSIVolumeHealth feature")
        if attributes.subresource:
            return _no("cannot authorize CSINode subresources")
        if attributes.verb not in _OWN_OBJECT_VERBS:
            return _no("can only get, create, update, patch, or delete a CSINode")
        if attributes.verb != "create" and attributes.name != node:
            return _no("can only access CSINode with the same name as the requesting node")
        return _ALLOWED

    def _slice(self, node: str, attributes: Attributes) -> Decision:
        if attributes.subresource:
            return _no("cannot authorize ResourceSlice subresources")
        match attributes.verb:
            case "create":
                # That it is for this node is checked by admission, which sees the object.
                return _ALLOWED
            case "get" | "update" | "patch" | "delete":
                return self._related(node, attributes)
            case "watch" | "list" | "deletecollection":
                if _selects(attributes.field_selector, node):
                    return _ALLOWED
                return _no("can only list/watch/deletecollection resourceslices with nodeName field selector")
        return _no(
            "only the following verbs are allowed for a ResourceSlice: "
            "get, watch, list, create, update, patch, delete, deletecollection"
        )

    def _node(self, node: str, attributes: Attributes) -> Decision:
        match attributes.subresource, attributes.verb:
            case ("", "create" | "update" | "patch") | ("status", "update" | "patch"):
                # Which node it is about is checked by admission.
                return _ALLOWED
            case "", "get" | "list" | "watch":
                if attributes.name == node:
                    return _ALLOWED
                if not attributes.name:
                    return _no(f"node '{node}' cannot read all nodes, only its own Node object")
                return _no(f"node '{node}' cannot read '{attributes.name}', only its own Node object")
        return NO_OPINION

    def _pod(self, node: str, attributes: Attributes) -> Decision:
        match attributes.subresource, attributes.verb:
            case "", "get":
                return self._get(node, attributes)
            case "", "list" | "watch":
                if _selects(attributes.field_selector, node):
                    return _ALLOWED
                if attributes.name:
                    return self._related(node, attributes)
                return _no("can only list/watch pods with spec.nodeName field selector")
            case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
                # Whose pod it is is checked by admission.
                return _ALLOWED
        return NO_OPINION

    def _certificate_request(self, node: str, attributes: Attributes) -> Decision:
        if attributes.subresource:
            return _no("nodes may not access the status subresource of PodCertificateRequests")
        match attributes.verb:
            case "create":
                return _ALLOWED
            case "get":
                return self._related(node, attributes)
            case "list" | "watch":
                if _selects(attributes.field_selector, node):
                    return _ALLOWED
                return _no("can only list/watch podcertificaterequests with nodeName field selector")
        return _no(f"nodes may not {attributes.verb} podcertificaterequests")


def _selects(field_selector: str, node: str) -> bool:
    """Whether the selector keeps to objects of the node. Node names have no characters that selectors escape."""
    wanted = (f"spec.nodeName={node}", f"spec.nodeName=={node}")
    return any(term.strip() in wanted for term in field_selector.split(","))


def _allows(rule: Rule, attributes: Attributes) -> bool:
    if not rule.allows_verb(attributes.verb):
        return False
    if not attributes.resource:
        return rule.allows_path(attributes.path)
    return (
        rule.allows_group(attributes.group)
        and rule.allows_resource(attributes.resource, attributes.subresource)
        and (not rule.resource_names or attributes.name in rule.resource_names)
    )
