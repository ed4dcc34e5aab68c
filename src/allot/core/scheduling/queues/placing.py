"""Places pods of a job, all or none, as its parts require: in one rack, in one zone, anywhere.

Pods are placed one after the other, each with those before it applied. Where that fails and another arrangement could help, all of
them are one search (`groups.joint`). A part that is bound to a domain is tried in one domain after the other, within that of the part
above it: narrower ones before wider ones, the tightest first, so that larger domains stay whole; if a later part finds no domain,
earlier ones get others. In a domain wider than the preferred level, pods go to as few preferred domains as possible. The number of
trials is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from fractions import Fraction

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.scheduling.attempt import DomainRankings, attempt
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups import joint
from allot.core.scheduling.groups.dialects import ForeignGroup
from allot.core.scheduling.groups.task import Task as SearchTask
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plan import Placement, Unit
from allot.core.scheduling.queues.costs import Costs
from allot.core.scheduling.queues.jobs import Job, Near, Part, Task
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Status

# Domains that are tried for the parts of one job, and steps of one joint search: this is asked for many sets of victims.
TRIALS_MAX = 500
STEPS_MAX = 2_000

Nodes = frozenset[str]
_Choice = tuple[Nodes | None, Sequence[Nodes]]
# How many nodes are tried for a pod that costs too much where it would go first.
_NODES_MAX = 16


def place_all(
    cluster: Cluster,
    job: Job,
    tasks: Sequence[Task],
    settings: Callable[[Pod], Settings],
    now: float,
    costs: Costs | None = None,
) -> dict[Task, Placement] | None:
    """Apply placements for all of these pods to the cluster, or none. costs: where placements can cost more than pods ask for."""
    placing = _Placing(cluster, job, settings, now, costs)
    return placing.found if placing.run(tasks) else None


def unplaced(pod: Pod) -> Pod:
    """A pod as it would come back."""
    if not pod.spec.node_name and not pod.metadata.deletion_timestamp:
        return pod
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=None),
        status=msgspec.structs.replace(pod.status, nominated_node_name=""),
    )


class _Step(msgspec.Struct, frozen=True):
    """A part that has pods to place, here or below. above: the position of the part above it; -1 at the top."""

    part: Part
    tasks: Sequence[Task]
    above: int


class _Placing:
    """One trial. found: what is applied."""

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        settings: Callable[[Pod], Settings],
        now: float,
        costs: Costs | None,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._costs = costs
        self._settings = settings
        self._now = now
        self._trials = 0
        self.found: dict[Task, Placement] = {}

    def run(self, tasks: Sequence[Task]) -> bool:
        """Whether all of these have a place now."""
        if not tasks:
            return False
        foreign_or_on = isinstance(self._job.group, ForeignGroup) or self._settings(tasks[0].pod).topology_placements
        if not foreign_or_on or not self._job.root.is_near:
            return self._pods(tasks, None, ())
        return self._search(self._steps(tasks))

    # --- parts ---

    def _steps(self, tasks: Sequence[Task]) -> list[_Step]:
        """The parts that have to be placed, each before those below it."""
        found: list[_Step] = []
        todo: list[tuple[Part, int]] = [(self._job.root, -1)]
        while todo:
            part, above = todo.pop(0)
            names = {leaf.name for leaf in part.leaves()}
            mine = [task for task in tasks if task.part in names]
            if not mine:
                continue
            found.append(_Step(part, mine, above))
            below = [(each, len(found) - 1) for each in sorted(part.parts, key=self._job.need)]
            todo = [*below, *todo]
        return found

    def _search(self, steps: Sequence[_Step]) -> bool:
        """A domain for each part, with going back."""
        marks: list[int] = []
        choices: list[Iterator[_Choice]] = []
        chosen: list[_Choice] = []
        while len(chosen) < len(steps):
            at = len(chosen)
            if len(choices) == at:
                step = steps[at]
                marks.append(len(self.found))
                choices.append(self._choices(step, chosen[step.above] if step.above >= 0 else (None, ())))
            choice = self._next(steps[at], choices[at], marks[at])
            if choice is not None:
                chosen.append(choice)
                continue
            choices.pop()
            marks.pop()
            if not chosen:
                return False
            chosen.pop()
            self._take_back(marks[-1])
        return True

    def _next(self, step: _Step, choices: Iterator[_Choice], mark: int) -> _Choice | None:
        """The next domain in which a part has room; if it has pods of its own, they are applied."""
        for choice in choices:
            self._trials += 1
            if self._trials > TRIALS_MAX + len(self._job.tasks):
                return None
            if step.part.parts or self._pods(step.tasks, *choice):
                return choice
            self._take_back(mark)
        return None

    def _choices(self, step: _Step, above: _Choice) -> Iterator[_Choice]:
        """The nodes that a part may have, one set after the other, and those that are preferred among them."""
        near = step.part.near
        if near is None:
            yield above
            return
        domains = _Domains(self._cluster, near, above[0])
        tightness = _Tightness(self._cluster, self._job, step.tasks, self._now)
        order = domains.ordered(tightness)
        home = self._home(step, near, domains)
        for depth in near.depths():
            for path, nodes in order:
                if len(path) != depth or (home is not None and path[: len(home)] != home):
                    continue
                if tightness.of(nodes) > 1:
                    continue
                yield nodes, domains.preferred(order, nodes) if near.preferred else above[1]

    def _home(self, step: _Step, near: Near, domains: _Domains) -> tuple[str, ...] | None:
        """The domain of the required level that pods of a part are already in; None if they may use any."""
        if not near.required:
            return None
        names = {leaf.name for leaf in step.part.leaves()}
        placing = set(step.tasks)
        for task in self._job.tasks:
            if task.is_active and task.part in names and task not in placing:
                return domains.path(task.node)[: near.depth(near.required)] or ("",)
        return None

    # --- pods ---

    def _pods(self, tasks: Sequence[Task], nodes: Nodes | None, preferred: Sequence[Nodes]) -> bool:
        """All of these pods on some of these nodes; preferred: domains that are filled one after the other."""
        mark = len(self.found)
        inside = [here for each in preferred if (here := each if nodes is None else each & nodes)]
        sets: Sequence[Nodes | None] = inside if len(inside) > 1 else (nodes,)
        rankings = [DomainRankings(here) if here is not None else None for here in sets]
        for task in tasks:
            for allowed, ranking in zip(sets, rankings, strict=True):
                found = self._pod(task, allowed, ranking)
                if found is not None:
                    self._put(task, found)
                    break
            else:
                self._take_back(mark)
                return self._jointly(tasks, nodes)
        return True

    def _pod(self, task: Task, nodes: Nodes | None, rankings: DomainRankings | None) -> Placement | None:
        """A pod where it does not cost more than its queue may have; None if nowhere. Those before it are counted by now."""
        pod, group = unplaced(task.pod), self._job.group_of(task)
        settings = self._settings(pod)
        found = attempt(self._cluster, pod, group, settings, self._now, nodes, rankings)
        left: set[str] | None = None
        for _ in range(_NODES_MAX):
            if not isinstance(found, Placement):
                return None
            if self._costs is None or self._costs.are_allowed(self._job, found):
                return found
            left = set(self._cluster.nodes if nodes is None else nodes) if left is None else left
            left.discard(found.node)
            found = attempt(self._cluster, pod, group, settings, self._now, frozenset(left))
        return None

    def _jointly(self, tasks: Sequence[Task], nodes: Nodes | None) -> bool:
        """As one search, if another arrangement could help."""
        if len(tasks) == 1 or self._is_plain(tasks):
            return False
        groups = {id(group): group for task in tasks if (group := self._job.group_of(task)) is not None}
        group = next(iter(groups.values())) if len(groups) == 1 else None
        pods = tuple(unplaced(task.pod) for task in tasks)
        wanted = SearchTask(
            self._cluster,
            Unit(pods=pods, group=group),
            group,
            self._settings(pods[0]),
            self._now,
            nodes,
            lambda counts: sum(counts.values()) >= len(pods),
        )
        with self._cluster.unpromised(pods):
            answer = joint.search(wanted, STEPS_MAX)
        if not isinstance(answer, joint.Found) or len(answer.placements) < len(tasks):
            return False
        for index, placement in sorted(answer.placements.items()):
            self._put(tasks[index], placement)
        return True

    def _is_plain(self, tasks: Sequence[Task]) -> bool:
        """Whether they are all alike and need neither devices nor each other: then placing them in order is enough."""
        profiles = [self._cluster.profiles.of(task.pod) for task in tasks]
        first = profiles[0]
        if first.affinity_terms or first.anti_affinity_terms or first.hard_spreads or first.volume_claims:
            return False
        return all(profile.key == first.key for profile in profiles) and not any(
            task.pod.spec.resource_claims for task in tasks
        )

    def _put(self, task: Task, placement: Placement) -> None:
        self._cluster.assume(placement)
        if self._costs is not None:
            self._costs.count(placement)
        self.found[task] = placement

    def _take_back(self, count: int) -> None:
        """Undo all but this many placements."""
        while len(self.found) > count:
            _, placement = self.found.popitem()
            self._cluster.forget(placement)


class _Domains:
    """The domains of all levels, by the values of the labels from the widest level on. allowed: the only nodes that count."""

    def __init__(self, cluster: Cluster, near: Near, allowed: Nodes | None) -> None:
        self._near = near
        self._paths: dict[str, tuple[str, ...]] = {}
        found: dict[tuple[str, ...], list[str]] = {}
        for name, info in cluster.nodes.items():
            path = _path(info, near.levels)
            if path is None:
                continue
            self._paths[name] = path
            if allowed is not None and name not in allowed:
                continue
            for depth in range(len(path) + 1):
                found.setdefault(path[:depth], []).append(name)
        self._nodes = {path: frozenset(names) for path, names in found.items()}

    def path(self, node: str) -> tuple[str, ...]:
        """Where a node is; empty if it is nowhere."""
        return self._paths.get(node, ())

    def ordered(self, tightness: _Tightness) -> list[tuple[tuple[str, ...], Nodes]]:
        """All domains, level by level as a tree: the tightest of siblings first."""
        keys = {path: (-tightness.of(nodes), path[-1:]) for path, nodes in self._nodes.items()}
        return sorted(
            self._nodes.items(), key=lambda item: [keys[item[0][:depth]] for depth in range(1, len(item[0]) + 1)]
        )

    def preferred(self, order: Sequence[tuple[tuple[str, ...], Nodes]], nodes: Nodes) -> list[Nodes]:
        """The domains of the preferred level among these nodes, the emptiest first."""
        depth = self._near.depth(self._near.preferred)
        return [each for path, each in reversed(order) if len(path) == depth and each <= nodes]


def _path(info: NodeInfo, levels: Sequence[str]) -> tuple[str, ...] | None:
    values = [info.labels.get(level) for level in levels]
    return tuple(value for value in values if value is not None) if None not in values else None


class _Tightness:
    """Which part of what is free in a domain pods would take: the largest of any resource, more than 1 if it cannot be. Of devices only
    counts are known, so whether pods fit must still be tried."""

    def __init__(self, cluster: Cluster, job: Job, tasks: Sequence[Task], now: float) -> None:
        self._cluster = cluster
        profiles = [cluster.profiles.of(task.pod) for task in tasks]
        self._request: dict[str, int] = {}
        for profile in profiles:
            parts = {"cpu": profile.cpu, "memory": profile.memory, **profile.scalars}
            for name, amount in parts.items():
                if amount > 0:
                    self._request[name] = self._request.get(name, 0) + amount
        with_claims = [task for task in tasks if task.pod.spec.resource_claims]
        self._with_claims = len(with_claims)
        self._fit = None
        if with_claims and cluster.devices is not None:
            first = with_claims[0]
            fit = cluster.devices.fit(unplaced(first.pod), job.group_of(first), now)
            self._fit = None if isinstance(fit, Status) else fit
        self._known: dict[Nodes, Fraction] = {}

    def of(self, nodes: Nodes) -> Fraction:
        """Of these nodes together."""
        known = self._known.get(nodes)
        if known is None:
            known = self._known[nodes] = self._of(nodes)
        return known

    def _of(self, nodes: Collection[str]) -> Fraction:
        infos = [self._cluster.nodes[name] for name in nodes]
        found = Fraction(0)
        for name, amount in self._request.items():
            free = sum(_free(info, name) for info in infos)
            found = max(found, Fraction(amount, free) if free > 0 else Fraction(2))
        if self._fit is not None:
            rooms = [self._fit.most(info) for info in infos]
            if all(room is not None for room in rooms):
                free = sum(room or 0 for room in rooms)
                found = max(found, Fraction(self._with_claims, free) if free > 0 else Fraction(2))
        return found


def _free(info: NodeInfo, name: str) -> int:
    if name == "cpu":
        return max(0, info.allocatable_cpu - info.cpu)
    if name == "memory":
        return max(0, info.allocatable_memory - info.memory)
    return max(0, info.allocatable_scalars.get(name, 0) - info.scalars.get(name, 0))
