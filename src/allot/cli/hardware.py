"""What nodes of hardware profiles have, as objects of a cluster: a node, the slices that its drivers publish, their classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from allot.cli.errors import Unreadable
from allot.core.advice.snapshot import Snapshot
from allot.core.lifecycle.slice_publishing import cut
from allot.core.model.core_v1 import Node
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.model.resource_v1 import DeviceClass, ResourceSlice
from allot.devices.catalogue import Profile, UnknownProfile, find_profile
from allot.devices.simulation import SimulatedDrivers

_HOSTNAME_LABEL = "kubernetes.io/hostname"


def profiles_snapshot(names: Iterable[str]) -> Snapshot:
    """One node of each profile; Unreadable names those that there are."""
    objects: list[APIStruct] = []
    classes: dict[str, DeviceClass] = {}
    for name in dict.fromkeys(names):
        profile = _profile(name)
        drivers = SimulatedDrivers(profile)
        classes |= {each.metadata.name: each for each in drivers.device_classes}
        objects += node_objects(profile, drivers, profile.name.lower().replace("_", "-"))
    return Snapshot((*classes.values(), *objects))


def node_objects(profile: Profile, drivers: SimulatedDrivers, node: str) -> Iterator[APIStruct]:
    """A node of the profile and the slices of its drivers."""
    yield Node(metadata=ObjectMeta(name=node, labels={**profile.labels, _HOSTNAME_LABEL: node}))
    for driver, pool in drivers.pools(node):
        for index, spec in enumerate(cut(driver, pool)):
            yield ResourceSlice(metadata=ObjectMeta(name=f"{node}-{driver}-{index}"), spec=spec)


def _profile(name: str) -> Profile:
    try:
        return find_profile(name)
    except UnknownProfile as error:
        hint = f"did you mean {' or '.join(error.nearest)}?" if error.nearest else None
        raise Unreadable(str(error), hint) from None
