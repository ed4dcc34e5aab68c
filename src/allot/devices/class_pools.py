"""Pools that a simulated cloud creates on demand for ComputeClasses (`nodePoolAutoCreation`): one for each machine of a priority.

Names, labels and taints are those of GKE: `nap-g2-standard-8-spot-gpu1-3f9c2ab1`, the class label, and for machines with accelerators the taint
that pods must tolerate. The autoscaler decides whether to create one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from allot.core.autoscaling.classes import DEFAULT_FAMILY, matches
from allot.core.model import compute_classes as names
from allot.core.model.compute_classes import ComputeClass, Priority
from allot.core.model.core_v1 import Node, NodeStatus
from allot.core.model.meta import ObjectMeta
from allot.core.quantity import Format, Quantity
from allot.core.selectors import is_label_value
from allot.devices.catalogue import Profile, find_profile, profile_names
from allot.devices.node_files import Taint
from allot.devices.pool_files import PoolSpec, Reservation

PREFIX = "nap-"
# Of each pool, as in GKE.
NODES_MAX = 1000
# Of all classes together.
OFFERS_MAX = 200
_GKE = "gke"
_GPU_TAINT = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")
_TPU_TAINT = Taint(key="google.com/tpu", value="present", effect="NoSchedule")


def offers_of(found: ComputeClass, reservations: Mapping[str, Reservation]) -> Iterator[PoolSpec]:
    """The pools that can be created for a class, better priorities first. reservations: machines for classes that
    name them."""
    # No pod can select a class whose name is not a valid label value.
    if not found.spec.node_pool_auto_creation.enabled or not is_label_value(found.metadata.name):
        return
    for index, priority in enumerate(found.spec.priorities):
        if not priority.nodepools:
            yield from _offers(found, str(index), priority, reservations)
    if found.spec.when_unsatisfiable == names.SCALE_UP_ANYWAY:
        yield from _offers(found, names.ANYWAY_INDEX, Priority(machine_family=DEFAULT_FAMILY), reservations)


def _offers(
    found: ComputeClass, index: str, priority: Priority, reservations: Mapping[str, Reservation]
) -> Iterator[PoolSpec]:
    if priority.reservations.affinity == names.SPECIFIC:
        for each in priority.reservations.specific:
            kept = reservations.get(each.name)
            if kept is not None:
                made = _pool(found, index, priority, find_profile(kept.machine), each.name)
                if made is not None:
                    yield replace(made, stock=kept.count, max=min(kept.count, NODES_MAX))
        return
    for name in profile_names():
        profile = find_profile(name)
        made = _pool(found, index, priority, profile) if profile.cloud == _GKE else None
        if made is not None:
            yield made


def _pool(
    found: ComputeClass, index: str, priority: Priority, profile: Profile, reservation: str = ""
) -> PoolSpec | None:
    """A pool of a machine, if it matches a priority."""
    spec = found.spec
    zones = priority.location.zones or spec.priority_defaults.location.zones
    labels = {
        names.MACHINE_FAMILY: profile.name.partition("-")[0],
        **({names.ZONE: zones[0]} if zones else {}),
        **({names.RESERVATION: reservation} if reservation else {}),
        **({names.FLEX_START: "true"} if priority.flex_start.enabled else {}),
        **spec.node_pool_config.node_labels,
        **priority.node_labels,
    }
    own = [
        Taint(key=each.key, value=each.value, effect=each.effect)  # type: ignore[arg-type]
        for each in (*spec.node_pool_config.taints, *priority.taints)
    ]
    gpus = len(profile.machine.gpus) if profile.machine is not None else 0
    if gpus:
        own.append(_GPU_TAINT)
    if profile.tpus is not None:
        own.append(_TPU_TAINT)
    spot = {names.SPOT: "true"} if priority.spot else {}
    amounts = {
        "cpu": Quantity.from_int(profile.cpus),
        "memory": Quantity.from_int(profile.memory_gib * 2**30, Format.BINARY_SI),
    }
    node = Node(
        metadata=ObjectMeta(labels={**profile.labels, **labels, **spot}), status=NodeStatus(allocatable=amounts)
    )
    if not matches(priority, "", node, zones):
        return None
    described = (found.metadata.name, index, profile.name, str(priority.spot), *labels.values())
    mark = hashlib.sha256("\0".join(described).encode()).hexdigest()[:8]
    parts = [profile.name, "spot" if priority.spot else "", f"gpu{gpus}" if gpus else "", mark]
    return PoolSpec(
        name=PREFIX + "-".join(filter(None, parts)),
        machine=profile.name,
        max=NODES_MAX,
        spot=priority.spot,
        compute_class=found.metadata.name if found.metadata.name != names.DEFAULT_NAME else "",
        labels=labels,
        taints=tuple(own),
        annotations={names.PRIORITY_ANNOTATION: index},
    )
