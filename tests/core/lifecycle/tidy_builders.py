"""Pods and nodes for tests of their ends."""

from __future__ import annotations

from typing import Any

from allot.core.model.core_v1 import (
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Taint,
    Toleration,
)
from allot.core.model.meta import ObjectMeta

NOW = "2026-01-01T00:10:00Z"
NOW_S = 1767226200.0


def pod(
    name: str = "p",
    *,
    node: str = "",
    phase: str = "Running",
    ready: str = "",
    deleted: bool = False,
    tolerations: tuple[Toleration, ...] = (),
    **meta: Any,
) -> Pod:
    """A pod."""
    conditions = (PodCondition(type="Ready", status=ready),) if ready else ()
    deletion = "2026-01-01T00:00:00Z" if deleted else None
    created = meta.pop("created", "2026-01-01T00:00:00Z")
    reason = meta.pop("reason", "")
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            creation_timestamp=created,
            deletion_timestamp=deletion,
            **meta,
        ),
        spec=PodSpec(node_name=node, tolerations=tolerations),
        status=PodStatus(phase=phase, conditions=conditions, reason=reason),
    )


def node(
    name: str = "n",
    *,
    ready: str | None = "True",
    heartbeat: str = "2026-01-01T00:00:00Z",
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    labels: dict[str, str] | None = None,
    **conditions: str,
) -> Node:
    """A node; ready None: it has never said how it is."""
    said = [NodeCondition(type=type_, status=status) for type_, status in conditions.items()]
    if ready is not None:
        said.append(NodeCondition(type="Ready", status=ready, last_heartbeat_time=heartbeat))
    return Node(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            resource_version="7",
            labels=labels or {},
            creation_timestamp="2026-01-01T00:00:00Z",
        ),
        spec=NodeSpec(taints=taints, unschedulable=unschedulable),
        status=NodeStatus(conditions=tuple(said)),
    )
