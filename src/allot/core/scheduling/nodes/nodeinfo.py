"""A node and what is on it, in the numbers that filters and scores compare.

Changed in place by `Cluster` alone; everyone else only reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from allot.core.model import core_v1
from allot.core.quantity import Quantity
from allot.core.scheduling.podinfo import HostPort, PodInfo, is_scalar

_ANY_ADDRESS = "0.0.0.0"


class NodeInfo:
    """A node, its pods, and the sums over them."""

    __slots__ = (
        "allocatable_cpu",
        "allocatable_memory",
        "allocatable_pods",
        "allocatable_scalars",
        "allocatable_storage",
        "cpu",
        "images",
        "labels",
        "memory",
        "name",
        "node",
        "nonzero_cpu",
        "nonzero_memory",
        "pods",
        "ports",
        "scalars",
        "storage",
        "volume_claims",
    )

    def __init__(self, node: core_v1.Node) -> None:
        self.name = node.metadata.name
        self.pods: dict[str, PodInfo] = {}
        self.cpu = self.memory = self.storage = 0
        self.nonzero_cpu = self.nonzero_memory = 0
        self.scalars: dict[str, int] = {}
        self.ports: dict[tuple[str, int], dict[str, int]] = {}
        # How many pods use a volume claim, by namespace/name.
        self.volume_claims: dict[str, int] = {}
        self.replace(node)

    def replace(self, node: core_v1.Node) -> None:
        """The node itself changed."""
        self.node = node
        self.labels: Mapping[str, str] = node.metadata.labels
        allocatable = node.status.allocatable
        self.allocatable_cpu = allocatable.get("cpu", Quantity.ZERO).milli_value()
        self.allocatable_memory = allocatable.get("memory", Quantity.ZERO).value()
        self.allocatable_storage = allocatable.get("ephemeral-storage", Quantity.ZERO).value()
        self.allocatable_pods = allocatable.get("pods", Quantity.ZERO).value()
        self.allocatable_scalars = {name: amount.value() for name, amount in allocatable.items() if is_scalar(name)}
        self.images = {name: image.size_bytes for image in node.status.images for name in image.names}

    @property
    def unschedulable(self) -> bool:
        """Whether the node is cordoned."""
        return self.node.spec.unschedulable

    @property
    def taints(self) -> tuple[core_v1.Taint, ...]:
        """The node's taints."""
        return self.node.spec.taints

    # --- pods ---

    def add(self, pod: PodInfo) -> None:
        """A pod counts here from now on."""
        self.pods[pod.key] = pod
        self.cpu += pod.cpu
        self.memory += pod.memory
        self.storage += pod.storage
        profile = pod.profile
        self.nonzero_cpu += pod.nonzero_cpu
        self.nonzero_memory += pod.nonzero_memory
        for name, amount in pod.scalars.items():
            self.scalars[name] = self.scalars.get(name, 0) + amount
        for port in profile.host_ports:
            addresses = self.ports.setdefault(port[1:], {})
            addresses[port[0]] = addresses.get(port[0], 0) + 1
        for claim in profile.volume_claims:
            self.volume_claims[claim] = self.volume_claims.get(claim, 0) + 1

    def remove(self, key: str) -> PodInfo:
        """A pod no longer counts here."""
        pod = self.pods.pop(key)
        self.cpu -= pod.cpu
        self.memory -= pod.memory
        self.storage -= pod.storage
        profile = pod.profile
        self.nonzero_cpu -= pod.nonzero_cpu
        self.nonzero_memory -= pod.nonzero_memory
        for name, amount in pod.scalars.items():
            _take(self.scalars, name, amount)
        for port in profile.host_ports:
            addresses = self.ports[port[1:]]
            _take(addresses, port[0], 1)
            if not addresses:
                del self.ports[port[1:]]
        for claim in profile.volume_claims:
            _take(self.volume_claims, claim, 1)
        return pod

    def has_free(self, ports: Iterable[HostPort]) -> bool:
        """Whether no pod here listens on one of these ports: an address conflicts with itself and with all addresses."""
        for address, protocol, number in ports:
            used = self.ports.get((protocol, number))
            if used is not None and (address == _ANY_ADDRESS or address in used or _ANY_ADDRESS in used):
                return False
        return True


def _take(counts: dict[str, int], name: str, amount: int) -> None:
    left = counts[name] - amount
    if left:
        counts[name] = left
    else:
        del counts[name]
