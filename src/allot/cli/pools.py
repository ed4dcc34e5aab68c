"""The pools of `--pools` as a cluster's autoscaler would see them: with their sizes, DaemonSet overhead, and pools
that would be created for ComputeClasses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from allot.core.advice.snapshot import Snapshot
from allot.core.autoscaling.daemons import claim_templates
from allot.core.autoscaling.pools import Pool
from allot.core.model import core_v1
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.compute_classes import NODE_POOL, ComputeClass
from allot.core.model.resource_v1 import DeviceClass, ResourceClaimTemplate
from allot.devices.catalogue import profile_names
from allot.devices.class_pools import offers_of
from allot.devices.pool_files import PoolSpec, as_pool, parse_pools, price_table, template_of

# Labels that name a node's pool: of the simulated cloud, GKE, EKS and AKS.
_POOL_LABELS = (
    "autoscaling.allot.dev/pool",
    NODE_POOL,
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
)


class NamedPools:
    """The pools that `--pools` names. Unreadable. compute_classes: existing and future ones."""

    def __init__(self, texts: Sequence[str], snapshot: Snapshot, compute_classes: Sequence[ComputeClass]) -> None:
        given = parse_pools(texts, "--pools")
        offers = [spec for each in compute_classes for spec in offers_of(each, given.cloud.reservations)]
        self._specs = (*given.pools, *offers)
        self._snapshot = snapshot
        self._daemons = snapshot.of(DaemonSet)
        self._templates = claim_templates(snapshot.of(ResourceClaimTemplate))

    @property
    def device_classes(self) -> list[DeviceClass]:
        """The device classes of the nodes' drivers."""
        return [found for spec in self._specs for found in template_of(spec)[1]]

    def pools(self) -> list[Pool]:
        """As decisions see them."""
        sizes = _sizes(self._snapshot)
        return [as_pool(spec, sizes.get(spec.name, 0), self._daemons, self._templates) for spec in self._specs]

    def others(self) -> Iterator[Pool]:
        """Machines with a known price that no pool has."""
        known = {spec.machine for spec in self._specs}
        for name in profile_names():
            if name not in known and name in price_table():
                yield as_pool(PoolSpec(name=name, machine=name), 0, self._daemons, self._templates)


def _sizes(snapshot: Snapshot) -> dict[str, int]:
    """The number of nodes per pool, as far as their labels tell."""
    found: dict[str, int] = {}
    for node in snapshot.of(core_v1.Node):
        for label in _POOL_LABELS:
            name = node.metadata.labels.get(label)
            if name:
                found[name] = found.get(name, 0) + 1
                break
    return found
