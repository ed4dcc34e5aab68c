"""Whether evictions from some nodes could help at all: a cheap check of these nodes before any attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from allot.core.model.core_v1 import Pod
from allot.core.scheduling.attempt import looks_around
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.nodes.filter_cache import local_refusal, static_refusal
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.queues.jobs import Job, Task
from allot.core.scheduling.settings import Settings


class NodeRoom:
    """Whether a pod of a job could be on a node once others have left it. Where more than the node matters (devices, volumes, pods of
    other nodes), it could."""

    def __init__(
        self, cluster: Cluster, job: Job, tasks: Sequence[Task], settings: Callable[[Pod], Settings], now: float
    ) -> None:
        self._cluster = cluster
        # By shape: pods of one are answered alike by a node.
        self._wanted: dict[tuple[bytes, int], tuple[Profile, Settings]] | None = {}
        for task in tasks:
            profile, own = cluster.profiles.of(task.pod), settings(task.pod)
            fit = cluster.devices.fit(task.pod, job.group_of(task), now) if cluster.devices is not None else None
            if fit is not None or profile.volume_claims or looks_around(cluster, profile, own):
                self._wanted = None
                return
            self._wanted[profile.shape, id(own)] = profile, own

    def could_be(self, victims: Sequence[Task]) -> bool:
        """On one of the nodes of these, if they were gone."""
        if self._wanted is None:
            return True
        nodes = self._cluster.nodes
        return any(
            (info := nodes.get(name)) is not None
            and self._could_be_on(info, [task.key for task in victims if task.key in info.pods])
            for name in sorted({task.node for task in victims})
        )

    def _could_be_on(self, info: NodeInfo, gone: Sequence[str]) -> bool:
        assert self._wanted is not None, "asked before"
        left = [info.remove(key) for key in gone]
        try:
            return any(
                static_refusal(profile, info, settings) is None
                and local_refusal(self._cluster, profile, info, settings) is None
                for profile, settings in self._wanted.values()
            )
        finally:
            for pod in left:
                info.add(pod)
