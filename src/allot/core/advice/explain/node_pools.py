"""Pools of Karpenter's that may have no more nodes: their limits, and what Karpenter said of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from allot.core.advice.explain.wording import listed
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model.node_pools import POOL_LABEL, NodePool
from allot.core.quantity import Quantity

# `for nodepool (NodePool=gpu)`, and with Karpenter 1.5 and before: `for nodepool: "gpu"`.
_EXCEEDED = re.compile(
    r'exceed limits for nodepool:?\s*(?:"(?P<quoted>[^"]+)"|\((?:[^()]*, )?NodePool=(?P<name>[^,)\s]+))', re.IGNORECASE
)


class FullPool(NamedTuple):
    """A pool that may have no more nodes. limits: the limits in question, as `nvidia.com/gpu 8, of which its nodes have 8`; raised:
    with room for one more node."""

    name: str
    limits: str
    raised: str


def pools_said_full(said: str) -> list[str]:
    """The pools that Karpenter says are at their limits."""
    return [match["quoted"] or match["name"] for match in _EXCEEDED.finditer(said)]


def full_pool(what_if: WhatIfCluster, name: str, wanted: Mapping[str, Quantity], *, is_said: bool) -> FullPool | None:
    """A pool whose limits are reached; None if there is no such pool, or if it has room. wanted: by a pod, for a pool without nodes; is_said:
    by Karpenter, so that room for a part of a node does not count: otherwise a smaller node may fit."""
    pool = what_if.get(NodePool, name)
    if pool is None:
        return None
    have, node = pool.status.resources, _largest(what_if, name) or wanted
    facts, raised = [], []
    for resource, limit in pool.spec.limits.items():
        used = have[resource].nano if resource in have else 0
        more = node[resource].nano if resource in node else 0
        if not more or used + (more if is_said else 1) <= limit.nano:
            continue
        facts.append(f"{resource} {limit}, of which its nodes have {Quantity.from_nano(used, limit.format)}")
        raised.append(f"{resource}: {Quantity.from_nano(used + more, limit.format)}")
    return FullPool(name, listed(facts), listed(raised)) if facts else None


def _largest(what_if: WhatIfCluster, pool: str) -> Mapping[str, Quantity]:
    """The capacity of a pool's node with the most resources."""
    nodes = [info.node for info in what_if.cluster.nodes.values() if info.labels.get(POOL_LABEL) == pool]
    return max((each.status.capacity for each in nodes), key=len, default={})
