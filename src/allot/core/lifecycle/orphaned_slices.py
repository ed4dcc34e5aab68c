"""Deletes orphaned ResourceSlices of nodes that are gone.

A driver's slices normally belong to their Node object and are garbage-collected with it. Kubernetes leaves those without an owner
behind forever; their devices look available. Here they are deleted, but only if it is safe: the slice names one node, has no
owner at all, and that node has been missing for too long to be just registering again. A driver that is still alive publishes its
slices again.
"""

from __future__ import annotations

from allot.core.lifecycle.actions import NORMAL, Action, Answers, Delete, Emit, LookUp, RequeueAfter, resource_of
from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import ResourceSlice

QUARANTINE_S = 300.0
REASON = "NodeNotFound"


def is_candidate(slice_: ResourceSlice) -> bool:
    """Whether a slice is for one node only and has no owner, so that nothing else would delete it."""
    metadata = slice_.metadata
    return bool(slice_.spec.node_name) and not metadata.owner_references and metadata.deletion_timestamp is None


def reconcile_slice(slice_: ResourceSlice, absent_since_s: float, answers: Answers, now_s: float) -> tuple[Action, ...]:
    """Delete a candidate whose node has been unknown for long enough, once the server confirms it."""
    node = slice_.spec.node_name or ""
    left_s = absent_since_s + QUARANTINE_S - now_s
    if left_s > 0:
        return (RequeueAfter(seconds=left_s),)
    question = LookUp(resource=resource_of(Node), name=node)
    if question not in answers:
        return (question,)
    if answers[question] is not None:
        return ()
    delete = Delete(
        resource=resource_of(ResourceSlice),
        name=slice_.metadata.name,
        uid=slice_.metadata.uid,
        resource_version=slice_.metadata.resource_version,
    )
    note = f"deleted: there has been no node {node!r} for {int(QUARANTINE_S)} s, and the slice has no owner"
    return (delete, Emit(regarding=slice_, type=NORMAL, reason=REASON, action="Delete", note=note))
