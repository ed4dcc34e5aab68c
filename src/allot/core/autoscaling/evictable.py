"""Whether a pod may be evicted so that its node can be removed: the rules and words of Cluster Autoscaler."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import Cluster
from allot.core.scheduling.preempting.budgets import Budgets
from allot.core.validation.pod import MIRROR_POD_ANNOTATION

PREFIX = "cluster-autoscaler.kubernetes.io/"
SAFE_TO_EVICT = f"{PREFIX}safe-to-evict"
SAFE_VOLUMES = f"{PREFIX}safe-to-evict-local-volumes"
SCALE_DOWN_DISABLED = f"{PREFIX}scale-down-disabled"
SCALE_UP_DELAY = f"{PREFIX}pod-scale-up-delay"
_SYSTEM = "kube-system"
_FINISHED = ("Succeeded", "Failed")


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Configurable rules that keep a node, in addition to the fixed ones."""

    skips_system_pods: bool = True
    skips_local_storage: bool = True
    skips_uncontrolled_pods: bool = True


class Leaving:
    """Disruption budgets, reduced by the pods that will leave."""

    def __init__(self, cluster: Cluster, rules: Rules) -> None:
        self._cluster = cluster
        self._rules = rules
        self._budgets = Budgets(cluster.budgets.values())
        self._allowed = self._budgets.allowed()

    def objection(self, pods: Collection[core_v1.Pod]) -> str:
        """Why these pods of one node cannot leave; empty if they can."""
        allowed = dict(self._allowed)
        going = {pod.metadata.uid for pod in pods}
        for pod in pods:
            name = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
            text = self._own_objection(pod) or self._group_objection(pod, going)
            if text:
                return f"{name} {text}"
            for budget in self._budgets.protecting(pod):
                allowed[budget] = allowed.get(budget, 0) - 1
                if allowed[budget] < 0:
                    return f"{name}: not enough pod disruption budget: {budget[0]}/{budget[1]}"
        return ""

    def left(self, pods: Collection[core_v1.Pod]) -> None:
        """Record that these pods leave."""
        for pod in pods:
            for budget in self._budgets.protecting(pod):
                self._allowed[budget] = self._allowed.get(budget, 0) - 1

    def _own_objection(self, pod: core_v1.Pod) -> str:
        annotations = pod.metadata.annotations
        safe = annotations.get(SAFE_TO_EVICT, "")
        if safe == "false":
            return f"has annotation {SAFE_TO_EVICT}: false"
        if safe == "true":
            return ""
        is_controlled = any(owner.controller for owner in pod.metadata.owner_references)
        if self._rules.skips_uncontrolled_pods and not is_controlled:
            return "is not replicated: it has no controller"
        if self._rules.skips_system_pods and pod.metadata.namespace == _SYSTEM and not self._budgets.protecting(pod):
            return "is non-daemonset, non-mirrored, kube-system and has no disruption budget"
        if self._rules.skips_local_storage:
            named = set(annotations.get(SAFE_VOLUMES, "").split(","))
            lost = [volume.name for volume in pod.spec.volumes if _is_lost(volume) and volume.name not in named]
            if lost:
                return f"has local storage: {', '.join(lost)}"
        return ""

    def _group_objection(self, pod: core_v1.Pod, going: Collection[str]) -> str:
        """A gang that is disrupted as a whole must leave as a whole."""
        key = self._cluster.membership.of(pod)
        group = self._cluster.groups.get(key) if key is not None else None
        if group is None or not _is_one(group):
            return ""
        others = [member for member in self._cluster.members(group) if member.pod.metadata.uid not in going]
        return (
            f"is disrupted with its whole group {group.metadata.name}, of which others run elsewhere" if others else ""
        )


def _is_lost(volume: core_v1.Volume) -> bool:
    """Whether eviction loses a volume's data; volumes in memory do not count."""
    return volume.host_path is not None or (volume.empty_dir is not None and volume.empty_dir.medium != "Memory")


def _is_one(group: PodGroup) -> bool:
    mode = group.spec.disruption_mode
    return mode is not None and mode.all is not None


def stays(pod: core_v1.Pod) -> bool:
    """Whether a pod needs no other node: DaemonSet pods, static pods, and finished or terminating pods."""
    if MIRROR_POD_ANNOTATION in pod.metadata.annotations or pod.status.phase in _FINISHED:
        return True
    if pod.metadata.deletion_timestamp is not None:
        return True
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
