"""The declared usage of pods on simulated nodes (`core.metrics.declared_usage`), accumulated over time.

Processor time is a counter: the declared rate may change, but past usage stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allot.core.metrics.declared_usage import PodLoad, load_of, owner_of
from allot.node.metric_problems import MetricProblems, Record
from allot.node.metrics import NodeUse
from allot.node.runtimes.port import Container, ContainerUsage, State

Object = dict[str, Any]


class SimulatedUsage:
    """Counters of containers that exist only here."""

    def __init__(self, record: Record) -> None:
        """record: takes problems with annotations."""
        self._problems = MetricProblems(record)
        # By container: the time of the last update, and its usage then.
        self._used: dict[str, tuple[float, float]] = {}
        # What has been counted so far, for containers and for nodes.
        self._counted: dict[str, float] = {}
        self._nodes: dict[str, float] = {}
        # By the pod's uid: the pod, how many pods share its load, and the load.
        self._loads: dict[str, tuple[Object, int, PodLoad]] = {}

    def loads(self, pods: Iterable[Object]) -> dict[str, PodLoad]:
        """The current load of pods, by uid."""
        known = list(pods)
        sharers: dict[str, int] = {}
        for pod in known:
            if (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp"):
                owner = owner_of(pod)
                sharers[owner] = sharers.get(owner, 0) + 1
        loads: dict[str, tuple[Object, int, PodLoad]] = {}
        for pod in known:
            uid, count = pod["metadata"]["uid"], sharers.get(owner_of(pod), 1)
            kept = self._loads.get(uid)
            # Objects of the cache are never changed, only replaced.
            is_same = kept is not None and kept[0] is pod and kept[1] == count
            loads[uid] = kept if kept is not None and is_same else (pod, count, load_of(pod, count))
        self._loads = loads
        found = {uid: load for uid, (_, _, load) in loads.items()}
        self._problems.update({uid: (pod, load.problem) for uid, (pod, _, load) in loads.items() if load.problem})
        return found

    def usage(self, containers: Iterable[Container], loads: Mapping[str, PodLoad], now: float) -> list[ContainerUsage]:
        """The usage of running containers. loads: by the pod's uid."""
        used: dict[str, tuple[float, float]] = {}
        found = []
        for container in containers:
            load = loads.get(container.pod.uid)
            if load is None or container.state is not State.RUNNING or container.name not in load.containers:
                continue
            own = load.containers[container.name]
            since, before = self._used.get(container.id, (container.started_at, 0.0))
            total = before + max(now - since, 0.0) * own.cpu_nano / 1e9
            used[container.id] = (now, total)
            found.append(
                ContainerUsage(
                    id=container.id,
                    processor_seconds=total,
                    memory_bytes=own.memory_bytes,
                    started_at=container.started_at,
                )
            )
        self._used = used
        return found

    def nodes(
        self,
        names: Iterable[str],
        node_of: Mapping[str, str],
        used: Iterable[tuple[Container, ContainerUsage]],
    ) -> tuple[NodeUse, ...]:
        """The usage of nodes: that of their containers since they were first seen. node_of: by the pod's uid."""
        memory: dict[str, int] = {}
        seen: dict[str, float] = {}
        for container, usage in used:
            node = node_of.get(container.pod.uid, "")
            memory[node] = memory.get(node, 0) + usage.memory_bytes
            seen[container.id] = usage.processor_seconds
            before = self._counted.get(container.id, 0.0)
            self._nodes[node] = self._nodes.get(node, 0.0) + max(usage.processor_seconds - before, 0.0)
        self._counted = seen
        return tuple(
            NodeUse(name=name, processor_seconds=self._nodes.get(name, 0.0), memory_bytes=memory.get(name, 0))
            for name in names
        )
