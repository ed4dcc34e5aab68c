"""The parts of core/v1 that device allocation touches: node selectors, nodes, and the DRA fields of pods."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.quantity import Quantity


class NodeSelectorRequirement(APIStruct, frozen=True, kw_only=True):
    """One condition on a node label or field."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(APIStruct, frozen=True, kw_only=True):
    """Requirements that must all hold; an empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(APIStruct, frozen=True, kw_only=True):
    """Terms of which one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeStatus(APIStruct, frozen=True, kw_only=True):
    """What a node has and can do."""

    capacity: Mapping[str, Quantity] = {}
    allocatable: Mapping[str, Quantity] = {}
    declared_features: tuple[str, ...] = ()


class Node(APIStruct, frozen=True, kw_only=True):
    """A machine."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeStatus = NodeStatus()
