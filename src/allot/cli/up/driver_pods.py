"""Shows the drivers as pods on their nodes, whether they are processes of this machine or part of the simulated nodes' process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from allot.autoscaler.provider import POOL_LABEL
from allot.client.informer import Change
from allot.controlplane.own_node import ADDRESS, IMAGE
from allot.controlplane.plane import ControlPlane
from allot.core.model.compute_classes import INSTANCE_TYPE
from allot.core.model.core_v1 import Node
from allot.devices.driver_pods import DRIVER_POD, driver_pod, driver_pod_name
from allot.devices.simulation import driver_module
from allot.node.static_pods import NodeFacts, PartState, StaticPod, StaticPods

# A label to find them in any namespace.
_LABEL = "allot.dev/driver"
# How the driver of a kind on a node is doing.
StateOf = Callable[[str, str], PartState]


class DriverPods:
    """kinds: of the drivers, by node; of_pool: for nodes of a pool and machine, which change; logs: the directory of their logs."""

    def __init__(
        self,
        plane: ControlPlane,
        kinds: Mapping[str, Sequence[str]],
        of_pool: Callable[[str, str], Sequence[str]],
        logs: Path,
        state_of: StateOf,
    ) -> None:
        self._plane = plane
        self._kinds = kinds
        self._of_pool = of_pool
        self._logs = logs
        self._state_of = state_of
        seen = plane.informers.dynamic("", "v1", "pods", namespaced=True, label_selector=_LABEL)
        self._pods = StaticPods(plane.client(user_agent="kubelet"), seen, plane.clock)

    def changed(self) -> None:
        """Drivers have started or ended."""
        self._pods.changed()

    async def run(self) -> None:
        """Until cancelled."""
        nodes = self._plane.informers.typed(Node)
        remove = nodes.add_handler(self._node_changed)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pods.run())
        finally:
            remove()

    def _node_changed(self, change: Change[Node]) -> None:
        """A node is identified by its uid: a recreated one has new pods."""
        if change.new is None or (change.old is not None and change.old.metadata.uid == change.new.metadata.uid):
            return
        metadata = change.new.metadata
        facts = NodeFacts(name=metadata.name, uid=metadata.uid, address=ADDRESS)
        pool, machine = (metadata.labels.get(key, "") for key in (POOL_LABEL, INSTANCE_TYPE))
        kinds = self._kinds.get(facts.name) or self._of_pool(pool, machine)
        for kind in kinds:
            shown = driver_pod(kind)
            self._pods.add(
                StaticPod(
                    name=f"{kind}{DRIVER_POD}".rstrip("-"),
                    namespace=shown.namespace,
                    container=shown.container,
                    node=facts,
                    image=IMAGE,
                    command=("python", "-m", driver_module(kind)),
                    labels={"app.kubernetes.io/name": shown.app, _LABEL: kind},
                    log=self._logs / f"{driver_pod_name(kind, facts.name)}.log",
                    state=lambda kind=kind, node=facts.name: self._state_of(kind, node),  # type: ignore[misc]
                )
            )
