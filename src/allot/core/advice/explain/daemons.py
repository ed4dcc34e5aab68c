"""DaemonSets: which nodes one leaves out, and why."""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.advice.explain.nodes import taint_text
from allot.core.advice.explain.wording import named
from allot.core.model import core_v1
from allot.core.workloads.daemonset_nodes import Placement


def left_out(placement: Placement, node: core_v1.Node) -> Iterator[str]:
    """Why a DaemonSet leaves a node out: the first reason, to be read behind the node."""
    if placement.judge(node)[0]:
        return
    missing = lacking_labels(placement, node)
    if placement.node_name and placement.node_name != node.metadata.name:
        yield f"not called {placement.node_name}, as nodeName says"
    elif missing:
        yield f"without label {', '.join(missing)} of its nodeSelector"
    elif not placement.has_untolerated(node):
        yield "not what its node affinity asks for"
    else:
        yield f"with {named('taint', map(taint_text, placement.untolerated(node)))} that it does not tolerate"


def lacking_labels(placement: Placement, node: core_v1.Node) -> list[str]:
    """Labels that a DaemonSet selects, and that a node does not have."""
    labels = node.metadata.labels
    return [f"{key}={value}" for key, value in placement.node_selector if labels.get(key) != value]
