"""Builds modified clusters: with more nodes, without some, or with some drained.

A removed node takes along its slices and pods, and the claims that only they use. Pods of a drained node remain without
a node, to be placed elsewhere; those of DaemonSets stay with their node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from allot.core.advice.snapshot import Snapshot
from allot.core.autoscaling.templates import renamed_node, renamed_slice
from allot.core.lifecycle.claim_owners import is_done
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.quantity import Quantity
from allot.core.scheduling import controller_of
from allot.core.selectors import SelectorError, parse_label_selector
from allot.core.validation.pod import MIRROR_POD_ANNOTATION

_PLENTY = {"cpu": Quantity.parse("1M"), "memory": Quantity.parse("1Ei"), "pods": Quantity.parse("1M")}


class ChangeError(ValueError):
    """A change that cannot be made to this cluster."""


class Drained(msgspec.Struct, frozen=True):
    """A cluster without some nodes, and their displaced pods."""

    snapshot: Snapshot
    displaced: tuple[core_v1.Pod, ...]


def with_objects(snapshot: Snapshot, objects: Iterable[APIStruct]) -> Snapshot:
    """With more objects; ChangeError if a node of that name already exists. Other objects replace their namesakes."""
    added = {_key(found): found for found in objects}
    for node in snapshot.of(core_v1.Node):
        if _key(node) in added:
            raise ChangeError(f"node {node.metadata.name} already exists")
    kept = (found for found in snapshot.objects if _key(found) not in added)
    return replace(snapshot, objects=(*kept, *added.values()))


def _key(found: APIStruct) -> tuple[type[APIStruct], str, str]:
    metadata: ObjectMeta = found.metadata  # type: ignore[attr-defined]
    return type(found), metadata.namespace, metadata.name


def with_assumed_capacity(snapshot: Snapshot) -> tuple[Snapshot, int]:
    """With enough CPU, memory and pods on nodes without these numbers, as in dumps of devices; and how many there are."""
    silent = {node.metadata.name for node in snapshot.of(core_v1.Node) if not node.status.allocatable}
    if not silent:
        return snapshot, 0
    objects = (
        replace(found, status=replace(found.status, allocatable=_PLENTY))
        if isinstance(found, core_v1.Node) and found.metadata.name in silent
        else found
        for found in snapshot.objects
    )
    return replace(snapshot, objects=tuple(objects)), len(silent)


# --- more of a node ---


def nodes_like(snapshot: Snapshot, name: str, count: int) -> tuple[APIStruct, ...]:
    """Copies of a named node without pods, with its own devices. ChangeError if it does not exist."""
    node = snapshot.find(core_v1.Node, name)
    if node is None:
        raise ChangeError(f"node {name} is not in the cluster")
    slices = [slice_ for slice_ in snapshot.of(api.ResourceSlice) if slice_.spec.node_name == name]
    made: list[APIStruct] = []
    for number in range(count):
        other = f"{name}-like-{number}"
        made.append(renamed_node(node, other))
        made.extend(renamed_slice(slice_, name, other) for slice_ in slices)
    return tuple(made)


def with_machines(snapshot: Snapshot, objects: Iterable[APIStruct]) -> tuple[Snapshot, tuple[str, ...]]:
    """With nodes of another kind, their slices and the device classes of their drivers; and which of these classes the cluster
    lacks: existing ones keep their definition. ChangeError."""
    known = {found.metadata.name for found in snapshot.of(api.DeviceClass)}
    kept = [found for found in objects if not isinstance(found, api.DeviceClass) or found.metadata.name not in known]
    new = dict.fromkeys(found.metadata.name for found in kept if isinstance(found, api.DeviceClass))
    return with_objects(snapshot, kept), tuple(new)


# --- fewer nodes ---


def nodes_named(snapshot: Snapshot, text: str) -> tuple[str, ...]:
    """The named node, or those that a label selector selects. ChangeError if there are none."""
    if snapshot.find(core_v1.Node, text) is not None:
        return (text,)
    try:
        selector = parse_label_selector(text)
    except SelectorError as error:
        raise ChangeError(f"{text!r} is neither a node of the cluster nor a label selector: {error}") from None
    found = [node.metadata.name for node in snapshot.of(core_v1.Node) if selector.matches(node.metadata.labels)]
    if not found:
        raise ChangeError(f"{text!r}: no node has this name or these labels")
    return tuple(found)


def without_nodes(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """The cluster without these nodes and everything on them."""
    gone = {pod.metadata.uid for pod in _pods_on(snapshot, names)}
    kept: list[APIStruct] = []
    for found in _off_nodes(snapshot, names):
        if isinstance(found, api.ResourceClaim):
            owner = controller_of(found)
            if owner is not None and owner.uid in gone:
                continue
            found = _released(found, gone)
        kept.append(found)
    return replace(snapshot, objects=tuple(kept))


def drained(snapshot: Snapshot, names: Collection[str]) -> Drained:
    """The cluster without these nodes, and their pods without a node and without devices."""
    pods = _pods_on(snapshot, names)
    moving = {pod.metadata.uid: pod for pod in pods if not _stays(pod)}
    rest = [
        _released(found, set(moving)) if isinstance(found, api.ResourceClaim) else found
        for found in _off_nodes(snapshot, names)
    ]
    displaced = [replace(pod, spec=replace(pod.spec, node_name=""), status=_waiting(pod)) for pod in moving.values()]
    displaced.sort(key=lambda pod: -(pod.spec.priority or 0))
    return Drained(replace(snapshot, objects=(*rest, *displaced)), tuple(displaced))


def _waiting(pod: core_v1.Pod) -> core_v1.PodStatus:
    return core_v1.PodStatus(phase="Pending", resource_claim_statuses=pod.status.resource_claim_statuses)


def _stays(pod: core_v1.Pod) -> bool:
    """Whether a pod belongs to its node: a DaemonSet's pod, or a static pod."""
    owners = pod.metadata.owner_references
    return MIRROR_POD_ANNOTATION in pod.metadata.annotations or any(owner.kind == "DaemonSet" for owner in owners)


def _pods_on(snapshot: Snapshot, names: Collection[str]) -> list[core_v1.Pod]:
    return [pod for pod in snapshot.of(core_v1.Pod) if pod.spec.node_name in names and not is_done(pod)]


def _off_nodes(snapshot: Snapshot, names: Collection[str]) -> Iterable[APIStruct]:
    for found in snapshot.objects:
        if isinstance(found, core_v1.Node) and found.metadata.name in names:
            continue
        if isinstance(found, api.ResourceSlice) and found.spec.node_name in names:
            continue
        if isinstance(found, core_v1.Pod) and found.spec.node_name in names:
            continue
        yield found


def _released(claim: api.ResourceClaim, gone: Collection[str]) -> api.ResourceClaim:
    """Without removed consumers; without devices if there were no others."""
    remaining = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid not in gone)
    if len(remaining) == len(claim.status.reserved_for):
        return claim
    status = replace(claim.status, reserved_for=remaining)
    return replace(claim, status=status if remaining else api.ResourceClaimStatus())
