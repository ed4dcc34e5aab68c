"""Preemption: which pods of lower priority must leave so that a pod gets a node and its devices.

Terminating pods, and claims that they left behind, count as gone first: if that is enough, no other pod is evicted.
Otherwise the cheapest victims (`victims`) are computed for every node on which fewer pods or free devices might help, and the
cheapest of all nodes is taken. Devices that are not local to a node may be held by pods of other nodes: these can be victims
too. A shared claim frees its devices only if all its pods go. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from allot.core.model import core_v1
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices.claim_fit import CANNOT_ALLOCATE
from allot.core.scheduling.devices.device_fit import Leftover
from allot.core.scheduling.failure import Failure, counted
from allot.core.scheduling.messages import histogram
from allot.core.scheduling.nodes.full_evaluation import fits
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plan import Victim
from allot.core.scheduling.podinfo import PodInfo
from allot.core.scheduling.preempting.budgets import Budgets
from allot.core.scheduling.preempting.victims import Cost, Resident, VictimSearch, cost_of
from allot.core.scheduling.settings import DEFAULT_SETTINGS, Settings
from allot.core.scheduling.status import Status, Verdict

NAME = "DefaultPreemption"
# As upstream: of many candidate nodes, a tenth is checked, but no fewer than this.
NODES_MIN = 100
NODES_PART = 10
_NOT_HELPFUL = Status(verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("Preemption is not helpful for scheduling",))
_NO_VICTIMS = Status(
    verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("No preemption victims found for incoming pod",)
)
_NAMED_MAX = 3


class Preempted(msgspec.Struct, frozen=True, kw_only=True):
    """What preemption found."""

    # The end of the pod's message, in upstream's words.
    message: str = ""
    # What is done about it, in ours.
    explanation: str = ""
    node: str = ""
    victims: tuple[Victim, ...] = ()


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    node: NodeInfo
    victims: tuple[Resident, ...]
    cost: Cost

    @property
    def since(self) -> str:
        """When the earliest of the highest-priority victims started: later is better."""
        return min(resident.since for resident in self.victims if resident.priority == self.cost[1])


def preempt(
    cluster: Cluster, pod: core_v1.Pod, failure: Failure, settings: Settings = DEFAULT_SETTINGS, now: float = 0.0
) -> Preempted:
    """Victims for a pod that fits on no node, if any."""
    if pod.spec.preemption_policy == "Never":
        return Preempted(message="preemption: not eligible due to preemptionPolicy=Never.")
    if failure.status is not None:
        return Preempted(message=_told({_NOT_HELPFUL: len(cluster.nodes)}))
    return _Preemption(cluster, pod, settings, now).run(failure)


def may_help(status: Status) -> bool:
    """Whether a node with this status could take the pod if others were evicted."""
    return status.verdict is Verdict.UNSCHEDULABLE or status == CANNOT_ALLOCATE


def _without_victims(failure: Failure) -> dict[Status, int]:
    """The message about the nodes if no pod can be evicted. Upstream says of devices that preemption does not help."""
    counts: dict[Status, int] = {}
    for refused, count in failure.histogram.items():
        helps = may_help(refused) and refused != CANNOT_ALLOCATE
        status = _NO_VICTIMS if helps else _NOT_HELPFUL
        counts[status] = counts.get(status, 0) + count
    return counts


def _told(counts: Mapping[Status, int]) -> str:
    return f"preemption: 0/{sum(counts.values())} nodes are available: {histogram(counts)}."


class _Preemption:
    """One attempt for one pod."""

    def __init__(self, cluster: Cluster, pod: core_v1.Pod, settings: Settings, now: float) -> None:
        self._cluster = cluster
        self._pod = pod
        self._priority = pod.spec.priority or 0
        self._settings = settings
        self._now = now
        profile = cluster.profiles.of(pod)
        self._is_monotone = not (profile.affinity_terms or profile.hard_spreads)
        self._budgets = Budgets(cluster.budgets.values())
        self._leaving = list(cluster.leaving.values())
        devices = cluster.devices
        self._leftovers: Leftover = devices.leftovers(cluster.departed) if devices is not None else ()
        # Pods anywhere that hold devices which several nodes can reach, least important first.
        self._remote = self._remote_holders() if pod.spec.resource_claims or profile.scalars else []

    def run(self, failure: Failure) -> Preempted:
        """The cheapest victims of all nodes, or why there are none."""
        if self._nobody_can_go():
            return Preempted(message=_told(_without_victims(failure)))
        names = sorted(name for name, status in failure.refusals.items() if may_help(status))
        helpful = [self._cluster.nodes[name] for name in names]
        if not helpful:
            return Preempted(message=_told({_NOT_HELPFUL: len(self._cluster.nodes)}))
        waiting = self._enough_is_leaving(helpful)
        if waiting is not None:
            return waiting
        statuses: dict[str, Status] = {}
        best: _Choice | None = None
        for node in helpful[: max(NODES_MIN, len(helpful) // NODES_PART)]:
            residents = self._residents(node)
            if not residents:
                statuses[node.name] = _NO_VICTIMS
                continue
            choice = self._on_node(node, residents, best, statuses)
            if choice is not None and _is_better(choice, best):
                best = choice
        if best is not None:
            return self._preempted(best)
        # Upstream says of devices that preemption does not help, so only other reasons are reported.
        told = [
            status if not may_help(refused) or refused != CANNOT_ALLOCATE else _NOT_HELPFUL
            for name, refused in failure.refusals.items()
            for status in (statuses.get(name, _NOT_HELPFUL),)
        ]
        return Preempted(message=_told(counted(told)))

    # --- no victims needed ---

    def _nobody_can_go(self) -> bool:
        """Whether all pods have at least this priority, and none is terminating: the usual case, which needs no check of nodes."""
        lowest = min(self._cluster.priorities, default=self._priority)
        return lowest >= self._priority and not self._leaving and not self._leftovers

    def _enough_is_leaving(self, nodes: Sequence[NodeInfo]) -> Preempted | None:
        """Whether terminating pods make room, so the pod only has to wait."""
        if not self._leaving and not self._leftovers:
            return None
        promised = self._pod.status.nominated_node_name
        ordered = sorted(nodes, key=lambda node: node.name != promised)
        with self._gone(()):
            for node in ordered:
                if self._refusal(node) is None:
                    text = "preemption: not eligible due to terminating pod on the nominated node."
                    said = f"pods that are terminating make room on node {node.name}, so no other pod has to leave"
                    # Nothing was evicted for this pod, so it gets no new promise.
                    if node.name == promised:
                        return Preempted(message=text, explanation=said, node=promised)
                    return Preempted(explanation=said)
        return None

    # --- victims ---

    def _on_node(
        self, node: NodeInfo, residents: list[Resident], best: _Choice | None, statuses: dict[str, Status]
    ) -> _Choice | None:
        def makes_room(gone: Sequence[Resident]) -> bool:
            with self._gone([pod for resident in gone for pod in resident.pods]):
                status = self._refusal(node)
            if status is not None and len(gone) == len(residents):
                statuses[node.name] = status
            return status is None

        allowed = self._budgets.allowed()
        search = VictimSearch(residents, allowed, makes_room, is_monotone=self._is_monotone)
        # A set of the same cost may still be better if its pods started later: costs are compared up to their sum.
        limit = None if best is None else (*best.cost[:3], best.cost[3] + 1)
        victims = search.best(limit)
        if victims is None:
            statuses.setdefault(node.name, _NOT_HELPFUL)
            return None
        return _Choice(node=node, victims=victims, cost=cost_of(victims, allowed))

    def _residents(self, node: NodeInfo) -> list[Resident]:
        """Candidates: pods of lower priority on the node, and holders of devices that it shares with other nodes."""
        pods = {info.key: info for info in node.pods.values()}
        pods.update({info.key: info for info in self._remote})
        leaving = {info.key for info in self._leaving}
        return residents_of(self._cluster, pods.values(), self._budgets, self._priority, leaving)

    def _remote_holders(self) -> list[PodInfo]:
        devices = self._cluster.devices
        uids = devices.users_of_shared_devices() if devices is not None else frozenset()
        if not uids:
            return []
        return [info for info in self._cluster.pods.values() if info.pod.metadata.uid in uids]

    # --- what if ---

    @contextmanager
    def _gone(self, pods: Sequence[PodInfo]) -> Iterator[None]:
        """Inside, these pods are gone, along with terminating pods and what pods left behind."""
        with self._cluster.without([info.pod for info in (*self._leaving, *pods)], self._leftovers):
            yield

    def _refusal(self, node: NodeInfo) -> Status | None:
        return fits(self._cluster, self._pod, node.name, self._settings, self._now)

    # --- the answer ---

    def _preempted(self, best: _Choice) -> Preempted:
        victims, named = victims_of(self._cluster, best.victims, self._budgets)
        count = f"{len(victims)} pod{'s' if len(victims) != 1 else ''} of lower priority"
        said = f"preempting {count} to make room on node {best.node.name}: {several(named)}"
        return Preempted(explanation=said, node=best.node.name, victims=tuple(victims))


def residents_of(
    cluster: Cluster, pods: Iterable[PodInfo], budgets: Budgets, priority: int, leaving: Collection[str]
) -> list[Resident]:
    """Which of these pods could go for a pod of this priority: each alone, or all of a group that is disrupted as a whole. leaving: the keys
    of terminating pods."""
    residents: dict[object, Resident] = {}
    for info in pods:
        of = cluster.membership.of(info.pod)
        whole = cluster.forest.disrupted_with(f"{of[0]}/{of[1]}") if of is not None else None
        if whole is None:
            residents[info.key] = _resident([info], _priority_of(cluster, info, of), budgets)
        elif whole.key not in residents:
            members = [member for _, leaf in whole.leaves() for member in cluster.members(leaf)]
            residents[whole.key] = _resident(members, _priority_of(cluster, info, of), budgets)
    return [
        resident
        for resident in residents.values()
        if resident.priority < priority and not all(pod.key in leaving for pod in resident.pods)
    ]


def _resident(pods: list[PodInfo], priority: int, budgets: Budgets) -> Resident:
    return Resident(pods=tuple(pods), priority=priority, budgets=tuple(budgets.protecting(info.pod) for info in pods))


def _priority_of(cluster: Cluster, info: PodInfo, of: tuple[str, str] | None) -> int:
    """The priority of a pod as a victim: that of its root group, else its own."""
    found = cluster.forest.priority(f"{of[0]}/{of[1]}") if of is not None else None
    return info.priority if found is None else found


def victims_of(
    cluster: Cluster, residents: Iterable[Resident], budgets: Budgets, by: str = ""
) -> tuple[list[Victim], list[str]]:
    """The pods to evict, and a description of each: its name, priority and what it holds."""
    allowed = budgets.allowed()
    devices = cluster.devices
    victims: list[Victim] = []
    named: list[str] = []
    for resident in residents:
        for info, protecting in zip(resident.pods, resident.budgets, strict=True):
            breaks = False
            for budget in protecting:
                allowed[budget] -= 1
                breaks |= allowed[budget] < 0
            held = devices.held_by(info.pod) if devices is not None else ()
            gives = f"it gives {several(held)}" if held else ""
            victims.append(Victim(pod=info.pod, violates_budget=breaks, gives=gives, by=by))
            detail = f"priority {info.pod.spec.priority or 0}" + (f", holds {several(held)}" if held else "")
            named.append(f"{info.pod.metadata.namespace}/{info.pod.metadata.name} ({detail})")
    return victims, named


def _is_better(choice: _Choice, best: _Choice | None) -> bool:
    if best is None or choice.cost != best.cost:
        return best is None or choice.cost < best.cost
    return choice.since > best.since


def several(names: Sequence[str]) -> str:
    """The first few of many."""
    shown = ", ".join(names[:_NAMED_MAX])
    more = len(names) - _NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
