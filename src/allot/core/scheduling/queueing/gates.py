"""What must exist before a pod or a group is tried at all (PreEnqueue), in kube-scheduler's order and words.

The only place that knows: the queue asks before it admits a unit, again when the unit is taken out, and in between for what has changed;
`explain` asks in order to report why a pod is not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.groups.dialects import Dialect, ForeignTree, dialect_of
from allot.core.scheduling.groups.forest import Tree
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.plan import Unit
from allot.core.scheduling.status import Status, Verdict

SCHEDULING_GATES = "SchedulingGates"
GANG_SCHEDULING = "GangScheduling"
# Controllers may take longer under load to create objects, and report their own events if they fail.
_TEMPLATE_PATIENCE = 12
_UNGROUPED = "waiting for the pod grouper to make its PodGroup, which the annotation pod-group-name will name"


class Closed(msgspec.Struct, frozen=True):
    """A closed gate. pod: the pod that it holds back; None if it is the group itself."""

    status: Status
    pod: Pod | None = None

    def patience_s(self, grace_s: float) -> float:
        """How long this may last before it is reported. grace_s: for what users create themselves."""
        if self.status.plugin == SCHEDULING_GATES:
            # Users set them on purpose.
            return inf
        is_made_by_controller = any(reason.endswith("not created yet") for reason in self.status.reasons)
        return grace_s * (_TEMPLATE_PATIENCE if is_made_by_controller else 1)


class Gates:
    """Asks claims and groups."""

    def __init__(self, claims: Claims, cluster: Cluster, awaits_group: Callable[[Pod], bool] | None = None) -> None:
        """awaits_group: whether a pod without a group is going to get one."""
        self._claims = claims
        self._cluster = cluster
        self._awaits_group = awaits_group

    def closed(self, unit: Unit, group: str) -> Closed | None:
        """Why a unit must not be tried. group: namespace/name of the group that its pods name, empty for a single pod."""
        for pod in unit.pods:
            if pod.spec.scheduling_gates:
                return Closed(_scheduling_gates(pod), pod)
        closed = self.closed_to_unit(unit, group)
        if closed is not None:
            return closed
        for pod in unit.pods:
            status = self._claims.gate(pod)
            if status is not None:
                return Closed(status, pod)
        return None

    def closed_to_unit(self, unit: Unit, group: str) -> Closed | None:
        """What a unit lacks as a whole, whatever its pods lack themselves."""
        if group:
            status = self._quorum(unit, group)
            return Closed(status) if status is not None else None
        if self._awaits_group is not None and self._awaits_group(unit.pods[0]):
            return Closed(_refusal(GANG_SCHEDULING, _UNGROUPED), unit.pods[0])
        return None

    def closed_to(self, pod: Pod) -> Status | None:
        """What a pod itself lacks, its group aside."""
        return _scheduling_gates(pod) if pod.spec.scheduling_gates else self._claims.gate(pod)

    def _quorum(self, unit: Unit, group: str) -> Status | None:
        dialect = dialect_of(group) if ":" in group else None
        if dialect is not None:
            return self._foreign_quorum(unit, dialect)
        if unit.tree is not None or ":" in group:
            return self._tree_quorum(unit, group)
        if unit.group is None:
            name = group.partition("/")[2]
            return _refusal(GANG_SCHEDULING, f'waiting for pods\'s pod group "{name}" to appear in scheduling queue')
        gang = unit.group.spec.scheduling_policy.gang
        if gang is not None and len(unit.pods) + self._cluster.scheduled_count(unit.group) < gang.min_count:
            return _refusal(GANG_SCHEDULING, "waiting for minCount pods from a gang to appear in scheduling queue")
        return None

    def _tree_quorum(self, unit: Unit, group: str) -> Status | None:
        if unit.tree is not None and self._is_ready(unit.tree, self._waiting(unit.pods)):
            return None
        name = group.rpartition(":")[2]
        return _refusal(GANG_SCHEDULING, f'waiting for composite pod group "{name}" tree to meet quorum')

    def _waiting(self, pods: Sequence[Pod]) -> dict[str, int]:
        """The number of pods of each group."""
        found: dict[str, int] = {}
        for pod in pods:
            key = self._cluster.membership.key(pod)
            found[key] = found.get(key, 0) + 1
        return found

    def _is_ready(self, tree: Tree, waiting: Mapping[str, int]) -> bool:
        """Whether there are enough pods, or enough groups that have enough."""
        if isinstance(tree.group, PodGroup):
            pods = waiting.get(tree.key, 0) + self._cluster.scheduled_count(tree.group)
            return pods >= minimum_of(tree.group)
        return sum(self._is_ready(child, waiting) for child in tree.children) >= tree.minimum

    def _foreign_tree_quorum(self, unit: Unit, tree: Tree, dialect: Dialect) -> Status | None:
        waiting = self._waiting(unit.pods)
        leaves = list(tree.leaves())
        there = {key: waiting.get(key, 0) + self._cluster.scheduled_count(leaf) for key, leaf in leaves}
        least = tree.group.min_pods if isinstance(tree.group, ForeignTree) else 0
        pods = sum(there.values())
        if not unit.pods or (self._is_ready(tree, waiting) and pods >= least):
            return None
        minimum = max(least, sum(minimum_of(leaf) for _, leaf in leaves))
        name = min(pod.metadata.name for pod in unit.pods)
        short = [
            f"{key.rpartition(':')[2]} has {there[key]} of {minimum_of(leaf)}"
            for key, leaf in leaves
            if there[key] < minimum_of(leaf)
        ]
        said = dialect.too_few.format(pod=name, pods=pods, minimum=minimum)
        return _refusal(dialect.plugin, f"{said}: {', '.join(short)}" if short else said)

    def _foreign_quorum(self, unit: Unit, dialect: Dialect) -> Status | None:
        if unit.tree is not None:
            return self._foreign_tree_quorum(unit, unit.tree, dialect)
        if unit.group is None:
            return _refusal(dialect.plugin, dialect.unknown)
        minimum = minimum_of(unit.group)
        pods = len(unit.pods) + self._cluster.scheduled_count(unit.group)
        if pods >= minimum or not unit.pods:
            return None
        name = min(pod.metadata.name for pod in unit.pods)
        return _refusal(dialect.plugin, dialect.too_few.format(pod=name, pods=pods, minimum=minimum))


def _scheduling_gates(pod: Pod) -> Status:
    names = " ".join(gate.name for gate in pod.spec.scheduling_gates)
    return _refusal(SCHEDULING_GATES, f"waiting for scheduling gates: [{names}]")


def _refusal(plugin: str, text: str) -> Status:
    return Status(verdict=Verdict.UNRESOLVABLE, plugin=plugin, reasons=(text,))
