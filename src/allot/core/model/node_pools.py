"""NodePools of Karpenter (karpenter.sh), as far as advice needs them: how much their nodes have together, and how much they may have."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.meta import EMPTY, ObjectMeta, PartialStruct
from allot.core.quantity import Quantity

KARPENTER = "karpenter.sh"
# Of nodes: their NodePool.
POOL_LABEL = "karpenter.sh/nodepool"


class NodePoolSpec(PartialStruct, frozen=True, kw_only=True):
    """What the nodes may have together."""

    limits: Mapping[str, Quantity] = EMPTY


class NodePoolStatus(PartialStruct, frozen=True, kw_only=True):
    """What they have."""

    resources: Mapping[str, Quantity] = EMPTY


class NodePool(PartialStruct, frozen=True, kw_only=True):
    """karpenter.sh/v1 NodePool."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()
