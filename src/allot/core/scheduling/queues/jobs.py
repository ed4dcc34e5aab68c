"""Jobs as queues see them: pods that start together and may grow and shrink above their minimum, in parts if they have any.

A job is a single pod or a group of pods. It names its queue; what it needs first is its minimum, in every part that has to be
there, and then one pod after the other. What it loses first is a pod above the minimum, then a part that need not be there, then
everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.podinfo import pod_key
from allot.core.scheduling.queues.amounts import Amounts, total
from allot.core.scheduling.queues.order import elastic_state


class Near(msgspec.Struct, frozen=True):
    """In which domain the pods of a part are to be. levels: labels of nodes, the widest first; required, preferred: one of these, or
    empty."""

    levels: tuple[str, ...]
    required: str = ""
    preferred: str = ""

    def depth(self, level: str) -> int:
        """How many levels there are down to one: 0 is the whole cluster."""
        return self.levels.index(level) + 1 if level in self.levels else 0

    def depths(self) -> range:
        """The acceptable levels, as depths: from the preferred one up to the required one."""
        return range(self.depth(self.preferred or self.required), self.depth(self.required) - 1, -1)


class Part(msgspec.Struct, frozen=True):
    """A part of a job. minimum: of pods, or of its own parts if it has any; near: in one domain."""

    name: str = ""
    minimum: int = 1
    parts: tuple[Part, ...] = ()
    near: Near | None = None

    @property
    def is_near(self) -> bool:
        """Whether it or a part of it is bound to a domain."""
        return self.near is not None or any(part.is_near for part in self.parts)

    def leaves(self) -> Iterator[Part]:
        """The parts that have pods."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


class Task:
    """A pod of a job. node: where it is, or will be; empty if it waits. is_leaving: it is terminating."""

    __slots__ = ("amounts", "is_leaving", "job", "key", "node", "part", "pod", "rank", "since_s")

    def __init__(
        self,
        job: Job,
        pod: Pod,
        amounts: Amounts,
        *,
        part: str = "",
        node: str = "",
        rank: tuple[int | str, ...] = (),
        since_s: float = 0.0,
        is_leaving: bool = False,
    ) -> None:
        self.job = job
        self.pod = pod
        self.key = pod_key(pod)
        self.amounts = amounts
        self.part = part
        self.node = node
        # The order in which a job's pods are started; the last one goes first.
        self.rank = rank
        # Since when it runs, in seconds since 1970.
        self.since_s = since_s
        self.is_leaving = is_leaving

    @property
    def name(self) -> str:
        """For display: namespace/name."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def is_active(self) -> bool:
        """Whether it has its place and is to stay."""
        return bool(self.node) and not self.is_leaving

    @property
    def waits(self) -> bool:
        """Whether it wants a place."""
        return not self.node and not self.is_leaving


class Job:
    """Pods that belong together."""

    __slots__ = (
        "created",
        "group",
        "groups",
        "is_fixed",
        "is_movable",
        "is_preemptible",
        "key",
        "priority",
        "queue",
        "root",
        "takes_at_s",
        "tasks",
    )

    def __init__(
        self, key: str, queue: str, *, priority: int, is_preemptible: bool, created: str = "", root: Part | None = None
    ) -> None:
        self.key = key
        self.queue = queue
        self.priority = priority
        self.is_preemptible = is_preemptible
        self.created = created
        self.root = root or Part()
        self.group: PodGroup | None = None
        # Of a tree of groups: the group of each part.
        self.groups: Mapping[str, PodGroup] = {}
        # Some of it is being written, so it must not be touched now.
        self.is_fixed = False
        # Its pods come back if they are evicted.
        self.is_movable = True
        # When it may start to preempt, in seconds since 1970.
        self.takes_at_s = 0.0
        self.tasks: list[Task] = []

    @property
    def name(self) -> str:
        """namespace/name of its pod or group, for display."""
        namespace, _, key = self.key.partition("/")
        return f"{namespace}/{key.split(':')[1]}" if ":" in key else self.key

    def group_of(self, task: Task) -> PodGroup | None:
        """The group that a pod belongs to; None if it is alone."""
        return self.groups.get(task.part, self.group)

    @property
    def only(self) -> Task | None:
        """Its pod, if it is one: most are."""
        return self.tasks[0] if len(self.tasks) == 1 and not self.root.parts else None

    def active(self, part: str | None = None) -> list[Task]:
        """Pods that have a place, in the order of starting. part: only of this one."""
        return _in_order([task for task in self.tasks if task.is_active and part in (None, task.part)])

    def waiting(self, part: str | None = None) -> list[Task]:
        """Pods that want a place, in the order of starting."""
        return _in_order([task for task in self.tasks if task.waits and part in (None, task.part)])

    def is_ready(self) -> bool:
        """Whether there are as many pods as it needs to start at all."""
        return self._could_start(self.root)

    def _could_start(self, part: Part) -> bool:
        if part.parts:
            return sum(self._could_start(below) for below in part.parts) >= part.minimum
        return sum(not task.is_leaving for task in self.tasks if task.part == part.name) >= part.minimum

    def has_minimum(self, part: Part | None = None) -> bool:
        """Whether it, or a part of it, has what it needs."""
        part = part or self.root
        if part.parts:
            return sum(self.has_minimum(below) for below in part.parts) >= part.minimum
        return len(self.active(part.name)) >= part.minimum

    def sort_key(self) -> tuple[int, int, str, str]:
        """Among jobs of a queue: priority, jobs with too few pods before those with more, age, name."""
        only = self.only
        if only is not None:
            return -self.priority, elastic_state((only.is_active,), (self.root.minimum,)), self.created, self.key
        leaves = list(self.root.leaves())
        state = elastic_state([len(self.active(leaf.name)) for leaf in leaves], [leaf.minimum for leaf in leaves])
        return -self.priority, state, self.created, self.key

    # --- growing ---

    def to_start(self) -> list[Task]:
        """The pods that are to be placed next, together: up to the minimum, or one more."""
        only = self.only
        if only is not None:
            return [only] if only.waits else []
        return self._to_start(self.root)

    def _to_start(self, part: Part) -> list[Task]:
        if not part.parts:
            missing = part.minimum - len(self.active(part.name))
            return self.waiting(part.name)[: missing if missing > 0 else 1]
        ordered = sorted(part.parts, key=self.need)
        if not self.has_minimum(part):
            found: list[Task] = []
            for below in ordered[: part.minimum]:
                if not self.has_minimum(below):
                    found += self._to_start(below)
            return found
        for below in ordered:
            tasks = self._to_start(below)
            if tasks:
                return tasks
        return []

    def need(self, part: Part) -> tuple[bool, Fraction]:
        """Parts that lack something first, then those with the smallest part of their minimum."""
        have = sum(self.has_minimum(below) for below in part.parts) if part.parts else len(self.active(part.name))
        return self.has_minimum(part), Fraction(have, max(part.minimum, 1))

    # --- shrinking ---

    def to_lose(self) -> list[Task]:
        """The pods that go next, together: one above the minimum, a part that need not be there, or all."""
        return self._surplus(self.root) or self._all(self.root)

    def surplus(self) -> list[Task]:
        """As `to_lose`, but nothing if that would take it below its minimum."""
        return self._surplus(self.root) if self.has_minimum() else []

    def _surplus(self, part: Part) -> list[Task]:
        if not part.parts:
            active = self.active(part.name)
            return active[-1:] if len(active) > part.minimum else []
        ordered = sorted(part.parts, key=self.need, reverse=True)
        have = sum(self.has_minimum(below) for below in ordered)
        if not have:
            return []
        for below in ordered:
            tasks = self._surplus(below)
            if tasks:
                return tasks
        if have > part.minimum:
            for below in ordered:
                tasks = self._all(below)
                if tasks:
                    return tasks
        return []

    def _all(self, part: Part) -> list[Task]:
        return [task for leaf in part.leaves() for task in reversed(self.active(leaf.name))]


def _in_order(tasks: list[Task]) -> list[Task]:
    # Most jobs have one.
    return sorted(tasks, key=lambda task: task.rank) if len(tasks) > 1 else tasks


def asked(tasks: Sequence[Task]) -> Amounts:
    """What pods ask for together."""
    return tasks[0].amounts if len(tasks) == 1 else total(task.amounts for task in tasks)


def units_of(job: Job, gone: Sequence[Task]) -> list[Amounts]:
    """What a job loses, as units that are judged one by one: each pod above the minimum of its part, then the rest together."""
    if len(gone) == 1:
        return [gone[0].amounts]
    surplus: list[Task] = []
    core: list[Task] = []
    minimums = {leaf.name: leaf.minimum for leaf in job.root.leaves()}
    for name, minimum in minimums.items():
        tasks = [task for task in gone if task.part == name]
        # Those that were taken first are the ones above the minimum.
        above = max(0, len(tasks) - minimum)
        surplus += tasks[:above]
        core += tasks[above:]
    units = [asked((task,)) for task in surplus]
    return [*units, asked(core)] if core else units
