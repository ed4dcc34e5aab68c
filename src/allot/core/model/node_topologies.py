"""NodeResourceTopology of topology.node.k8s.io: what is free on each NUMA node of a node. A custom resource that node agents write."""

from __future__ import annotations

from allot.core.model.meta import ObjectMeta, PartialStruct
from allot.core.quantity import Quantity

GROUP, VERSIONS, PLURAL = "topology.node.k8s.io", ("v1alpha2", "v1alpha1"), "noderesourcetopologies"
_POLICY = "topologyManagerPolicy"


class TopologyAttribute(PartialStruct, frozen=True, kw_only=True):
    """A setting of the kubelet."""

    name: str = ""
    value: str = ""


class ZoneResource(PartialStruct, frozen=True, kw_only=True):
    """A resource on one NUMA node. available: what is free."""

    name: str = ""
    allocatable: Quantity | None = None
    available: Quantity | None = None


class TopologyZone(PartialStruct, frozen=True, kw_only=True):
    """A NUMA node."""

    name: str = ""
    type: str = ""
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(PartialStruct, frozen=True, kw_only=True):
    """The NUMA nodes of the node with the same name."""

    metadata: ObjectMeta = ObjectMeta()
    attributes: tuple[TopologyAttribute, ...] = ()
    zones: tuple[TopologyZone, ...] = ()

    @property
    def policy(self) -> str:
        """The kubelet's topology manager policy; empty if unknown."""
        return next((each.value for each in self.attributes if each.name == _POLICY), "")
