"""Node templates of pools: the Node, its slices, and its DaemonSet pods. Also copies of a live node."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import HOSTNAME

# Temporary taints: the node has a problem, or is to be removed.
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
DELETION_CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
_PASSING_TAINTS = (TO_BE_DELETED, DELETION_CANDIDATE)
_PASSING_PREFIX = "node.kubernetes.io/"
_MADE_UP = "template:"


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A possible node. pods: DaemonSet pods, bound to it; claims: theirs; source: where its devices are known from, for display; empty
    if its devices are unknown, so that none are assumed."""

    node: core_v1.Node
    slices: tuple[api.ResourceSlice, ...] = ()
    pods: tuple[core_v1.Pod, ...] = ()
    claims: tuple[api.ResourceClaim, ...] = ()
    source: str = ""

    @property
    def drivers(self) -> tuple[str, ...]:
        """The drivers that such a node must have to be ready."""
        return tuple(sorted({slice_.spec.driver for slice_ in self.slices}))

    def named(self, name: str) -> Template:
        """The same under another name."""
        node = self.node.metadata.name
        return Template(
            node=renamed_node(self.node, name),
            slices=tuple(renamed_slice(slice_, node, name) for slice_ in self.slices),
            pods=tuple(_renamed_pod(pod, name) for pod in self.pods),
            claims=tuple(_renamed_claim(claim, name) for claim in self.claims),
            source=self.source,
        )


def like_node(node: core_v1.Node, slices: Iterable[api.ResourceSlice]) -> Template:
    """A template from a live node: without pods, with the node's own devices."""
    own = tuple(slice_ for slice_ in slices if slice_.spec.node_name == node.metadata.name)
    return Template(node=node, slices=own, source=f"node {node.metadata.name}")


def renamed_node(node: core_v1.Node, name: str) -> core_v1.Node:
    """The node under another name, as if new: without problems."""
    labels = {**node.metadata.labels, HOSTNAME: name}
    metadata = replace(node.metadata, name=name, labels=labels, uid=f"{_MADE_UP}{name}")
    return replace(node, metadata=metadata, spec=replace(node.spec, unschedulable=False, taints=lasting_taints(node)))


def lasting_taints(node: core_v1.Node) -> tuple[core_v1.Taint, ...]:
    """The permanent taints of a node, without those for its condition."""
    return tuple(
        taint
        for taint in node.spec.taints
        if taint.key not in _PASSING_TAINTS and not taint.key.startswith(_PASSING_PREFIX)
    )


def renamed_slice(slice_: api.ResourceSlice, node: str, other: str) -> api.ResourceSlice:
    """A slice as on another node."""
    pool = slice_.spec.pool.name
    renamed = pool.replace(node, other) if node and node in pool else f"{pool}-{other}"
    metadata = replace(slice_.metadata, name=f"{slice_.metadata.name}-{other}", uid=f"{_MADE_UP}{other}")
    return replace(
        slice_,
        metadata=metadata,
        spec=replace(slice_.spec, node_name=other, pool=replace(slice_.spec.pool, name=renamed)),
    )


def _renamed_pod(pod: core_v1.Pod, node: str) -> core_v1.Pod:
    metadata = replace(pod.metadata, name=f"{pod.metadata.name}-{node}", uid=f"{_MADE_UP}{pod.metadata.name}-{node}")
    statuses = tuple(
        replace(each, resource_claim_name=f"{each.resource_claim_name}-{node}")
        for each in pod.status.resource_claim_statuses
    )
    status = replace(pod.status, resource_claim_statuses=statuses)
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=node), status=status)


def _renamed_claim(claim: api.ResourceClaim, node: str) -> api.ResourceClaim:
    (owner,) = claim.metadata.owner_references
    pod = replace(owner, name=f"{owner.name}-{node}", uid=f"{_MADE_UP}{owner.name}-{node}")
    name = f"{claim.metadata.name}-{node}"
    metadata = replace(claim.metadata, name=name, uid=f"{_MADE_UP}{name}", owner_references=(pod,))
    return replace(claim, metadata=metadata)
