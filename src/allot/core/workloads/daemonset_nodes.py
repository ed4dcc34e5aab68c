"""Where pods of a DaemonSet run: its matching nodes, and how a pod is bound to one of them.

Resources and devices are not checked: a pod that does not fit waits on its node.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from allot.core.model.apps_v1 import CONTROLLER_REVISION_HASH
from allot.core.model.codec import decode_served
from allot.core.model.core_v1 import Node, NodeSelector, Pod, PodSpec, Taint, Toleration
from allot.core.model.meta import RawJSON
from allot.core.selectors import NodeMatcher, SelectorError, node_matcher, tolerates
from allot.core.workloads.pod_templates import template_value
from allot.core.workloads.whole import Object

TEMPLATE_GENERATION_LABEL = "pod-template-generation"
_NO_EXECUTE = "NoExecute"
_NO_SCHEDULE = "NoSchedule"
_PREFIX = "node.kubernetes.io/"
_TOLERATED = (
    ("not-ready", _NO_EXECUTE),
    ("unreachable", _NO_EXECUTE),
    ("disk-pressure", _NO_SCHEDULE),
    ("memory-pressure", _NO_SCHEDULE),
    ("pid-pressure", _NO_SCHEDULE),
    ("unschedulable", _NO_SCHEDULE),
)
_TOLERATED_ON_HOST_NETWORK = (("network-unavailable", _NO_SCHEDULE),)
_NAME_FIELD = "metadata.name"


class Placement(msgspec.Struct, frozen=True):
    """What a template says about nodes."""

    node_name: str
    node_selector: tuple[tuple[str, str], ...]
    affinity: NodeMatcher | None
    tolerations: tuple[Toleration, ...]
    # The affinity, for display.
    required: NodeSelector | None = None

    def judge(self, node: Node) -> tuple[bool, bool]:
        """Whether a pod should run on a node, and whether a running one may stay."""
        if self.node_name and self.node_name != node.metadata.name:
            return False, False
        if not self._is_meant(node):
            return False, False
        if not self.has_untolerated(node):
            return True, True
        return False, not self.untolerated(node, (_NO_EXECUTE,))

    def has_untolerated(self, node: Node) -> bool:
        """Whether a taint of a node keeps new pods away."""
        return bool(self.untolerated(node))

    def untolerated(self, node: Node, effects: tuple[str, ...] = (_NO_EXECUTE, _NO_SCHEDULE)) -> list[Taint]:
        """The taints of a node with the given effects that are not tolerated."""
        return [
            taint
            for taint in node.spec.taints
            if taint.effect in effects and not any(tolerates(one, taint) for one in self.tolerations)
        ]

    def _is_meant(self, node: Node) -> bool:
        labels = node.metadata.labels
        if any(labels.get(key) != value for key, value in self.node_selector):
            return False
        try:
            return self.affinity is None or self.affinity.matches_node(node)
        except SelectorError:
            return False


def _added(spec: PodSpec) -> list[Toleration]:
    """What pods of a DaemonSet tolerate: they belong to the node."""
    names = _TOLERATED + (_TOLERATED_ON_HOST_NETWORK if spec.host_network else ())
    return [Toleration(key=_PREFIX + name, operator="Exists", effect=effect) for name, effect in names]


@lru_cache(maxsize=256)
def placement_of(template: RawJSON) -> Placement:
    """What a template says about nodes. DecodeError if it is invalid."""
    spec = decode_served(template_value(template).get("spec") or {}, PodSpec)
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    return Placement(
        spec.node_name,
        tuple(spec.node_selector.items()),
        node_matcher(required) if required is not None else None,
        (*spec.tolerations, *_added(spec)),
        required,
    )


@lru_cache(maxsize=256)
def daemon_template(template: RawJSON, hash_: str, generation: str) -> Object:
    """The pod template of one revision, without the node."""
    value = template_value(template)
    metadata, spec = value.get("metadata") or {}, value.get("spec") or {}
    labels = {**(metadata.get("labels") or {}), CONTROLLER_REVISION_HASH: hash_}
    if generation:
        labels[TEMPLATE_GENERATION_LABEL] = generation
    tolerations = [dict(one) for one in spec.get("tolerations") or ()]
    for added in _added(decode_served(spec, PodSpec)):
        new = {"key": added.key, "operator": added.operator, "effect": added.effect}
        # One with a time limit is replaced.
        tolerations = [one for one in tolerations if {**one, "tolerationSeconds": 0} != {**new, "tolerationSeconds": 0}]
        tolerations.append(new)
    return {"metadata": {**metadata, "labels": labels}, "spec": {**spec, "tolerations": tolerations}}


def bound_to(pod: dict[str, Any], node: str) -> dict[str, Any]:
    """The pod, for one node only. The scheduler binds it."""
    spec = pod["spec"]
    affinity = dict(spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    term = {"matchFields": [{"key": _NAME_FIELD, "operator": "In", "values": [node]}]}
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    affinity["nodeAffinity"] = node_affinity
    return {**pod, "spec": {**spec, "affinity": affinity}}


def target_node(pod: Pod) -> str:
    """The node that a pod is on or meant for; empty if it names none."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        for field in term.match_fields:
            if field.key == _NAME_FIELD and field.operator == "In":
                return field.values[0] if len(field.values) == 1 else ""
    return ""
