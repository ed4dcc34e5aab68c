"""Admission of pods by an agent's nodes: the core decides about each new pod and each resize, with the Node from the API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

from allot.client.api import Client
from allot.client.errors import ApiError
from allot.client.informer import Informer
from allot.core.model.core_v1 import Node
from allot.core.model.pods_v1 import RunnablePod
from allot.core.scheduling import NodeAdmission, Rejection

_log = logging.getLogger("allot.node")

Wake = Callable[[], None]
EMPTY: Mapping[str, int] = MappingProxyType({})


class _Taken:
    """A node's last known state, with its pods and those that wait for room to grow."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.admission = NodeAdmission(node)
        self.waiting: dict[str, tuple[int, Wake]] = {}


class Admission:
    """nodes: the Nodes of the agent, and perhaps others."""

    def __init__(self, client: Client, nodes: Informer[Node]) -> None:
        self._client = client.typed(Node)
        self._nodes = nodes
        self._taken: dict[str, _Taken] = {}

    async def wait(self) -> None:
        """Wait until the nodes are known."""
        await self._nodes.wait_synced()

    def count(self, pod: RunnablePod) -> None:
        """Count a pod that runs here already."""
        if (taken := self._of(pod)) is not None:
            taken.admission.count(pod)

    async def admit(self, pod: RunnablePod, held: Mapping[str, int] = EMPTY) -> Rejection | None:
        """Admit a new pod, or return why not. Labels and taints are read again before they cause a refusal. held: devices of device plugins that
        containers have."""
        taken = self._of(pod)
        rejection = taken.admission.admit(pod, held) if taken is not None else None
        if taken is not None and (rejection is None or not rejection.is_of_node):
            return rejection
        name = pod.spec.node_name
        try:
            node = await self._client.get(name)
        except ApiError as error:
            # Like the kubelet, fall back on what is known; if nothing is, admit the pod.
            _log.warning("pod %s: its node %s is not read: %s", pod.key, name, error)
            return rejection
        taken = self._taken.setdefault(name, _Taken(node))
        taken.admission.update(node)
        return taken.admission.admit(pod, held)

    def resize(self, pod: RunnablePod, wake: Wake) -> Rejection | None:
        """Grant a pod new resources, or return why not; then wake it when there is more room."""
        taken = self._of(pod)
        if taken is None:
            return None
        rejection = taken.admission.admit(pod)
        if rejection is None:
            taken.waiting.pop(pod.metadata.uid, None)
        else:
            taken.waiting[pod.metadata.uid] = (pod.spec.priority or 0, wake)
        return rejection

    def freed(self, node: str) -> None:
        """A node has more room: wake the pods that wait for it, highest priority first."""
        if (taken := self._taken.get(node)) is not None:
            for _, wake in sorted(taken.waiting.values(), key=lambda each: -each[0]):
                wake()

    def leave(self, pod: RunnablePod) -> None:
        """A pod no longer uses anything."""
        taken = self._taken.get(pod.spec.node_name)
        if taken is None:
            return
        taken.waiting.pop(pod.metadata.uid, None)
        if taken.admission.forget(pod.metadata.uid):
            self.freed(pod.spec.node_name)
        if not len(taken.admission) and pod.spec.node_name not in self._nodes.cache:
            del self._taken[pod.spec.node_name]

    def _of(self, pod: RunnablePod) -> _Taken | None:
        name = pod.spec.node_name
        node, taken = self._nodes.cache.get(name), self._taken.get(name)
        if node is None:
            return taken
        if taken is None:
            taken = self._taken[name] = _Taken(node)
        elif taken.node is not node:
            taken.node = node
            taken.admission.update(node)
        return taken
