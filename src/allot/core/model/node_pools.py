"""NodePools of Karpenter (karpenter.sh), as far as advice needs them: which nodes it makes, how much these have together, and how much they may
have."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.core_v1 import NodeSelectorRequirement, Taint
from allot.core.model.meta import EMPTY, ObjectMeta, PartialStruct
from allot.core.quantity import Quantity

KARPENTER = "karpenter.sh"
# Of nodes: their NodePool.
POOL_LABEL = "karpenter.sh/nodepool"


class NodeTemplateMetadata(PartialStruct, frozen=True, kw_only=True):
    """What all nodes of a pool have."""

    labels: Mapping[str, str] = EMPTY


class NodeTemplateSpec(PartialStruct, frozen=True, kw_only=True):
    """requirements: which labels its nodes may have; startup_taints: which others remove when a node has started."""

    requirements: tuple[NodeSelectorRequirement, ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()


class NodeTemplate(PartialStruct, frozen=True, kw_only=True):
    """What a pool's nodes are like."""

    metadata: NodeTemplateMetadata = NodeTemplateMetadata()
    spec: NodeTemplateSpec = NodeTemplateSpec()


class NodePoolSpec(PartialStruct, frozen=True, kw_only=True):
    """limits: what the nodes may have together."""

    template: NodeTemplate = NodeTemplate()
    limits: Mapping[str, Quantity] = EMPTY


class NodePoolStatus(PartialStruct, frozen=True, kw_only=True):
    """What they have."""

    resources: Mapping[str, Quantity] = EMPTY


class NodePool(PartialStruct, frozen=True, kw_only=True):
    """karpenter.sh/v1 NodePool."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()
