"""Node templates: the objects that a node of a machine profile would have in the API, for what-if questions.

The Node is as the agent registers it, the slices as the drivers of the profile publish them.
"""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.lifecycle.slice_publishing import plan_writes
from allot.core.model.core_v1 import Node, NodeSpec, NodeStatus, Taint
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.quantity import Format, Quantity
from allot.core.scheduling import HOSTNAME
from allot.devices.node_files import NodeSet
from allot.node.registration import DECLARED_FEATURES, PODS_MAX

_SYSTEM = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


def objects_of(nodes: NodeSet) -> Iterator[APIStruct]:
    """Nodes, their slices, and the drivers' device classes. UnknownProfile, SettingsError."""
    profile, drivers = nodes.resolved()
    allocatable = {
        "cpu": Quantity.from_int(profile.cpus),
        "memory": Quantity.from_int(profile.memory_gib * 2**30, Format.BINARY_SI),
        "pods": Quantity.from_int(PODS_MAX),
    }
    taints = tuple(Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in nodes.taints)
    racks = nodes.labels_by_node(profile)
    for name in nodes.names:
        labels = {HOSTNAME: name, **_SYSTEM, **profile.labels, **racks.get(name, {}), **nodes.labels}
        yield Node(
            metadata=ObjectMeta(name=name, labels=labels),
            spec=NodeSpec(taints=taints),
            # Not used by clusters without the feature.
            status=NodeStatus(allocatable=allocatable, declared_features=DECLARED_FEATURES),
        )
        for driver, pool in drivers.pools(name):
            for number, slice_ in enumerate(plan_writes(driver, pool, (), None).creates):
                metadata = ObjectMeta(name=f"{number:05x}-{driver}-{name}")
                yield slice_.__class__(metadata=metadata, spec=slice_.spec)
    yield from drivers.device_classes
