"""The steps that a round has applied to a cluster and its jobs; closing it reverts them in reverse order."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from allot.core.model.core_v1 import Pod
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.queues.jobs import Task


class InForce:
    """Applied steps. Close it when the round is over."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stack = ExitStack()

    def close(self) -> None:
        """Restore everything as it was before."""
        self._stack.close()

    def placed(self, placed: Mapping[Task, Placement]) -> None:
        """These placements, which the cluster knows of already."""
        for task, placement in placed.items():
            self._stack.callback(self._cluster.forget, placement)
            self.move(task, placement.node)

    def move(self, task: Task, node: str, *, is_leaving: bool = False) -> None:
        """A pod is on another node, or on none."""

        def back(before: str = task.node, was_leaving: bool = task.is_leaving) -> None:
            task.node, task.is_leaving = before, was_leaving

        self._stack.callback(back)
        task.node, task.is_leaving = node, is_leaving

    def without(self, pods: list[Pod]) -> None:
        """These pods are gone."""
        self._stack.enter_context(self._cluster.without(pods, anew=True))

    def keep(self, trial: ExitStack) -> None:
        """What was tried stays as it is."""
        self._stack.enter_context(trial)
