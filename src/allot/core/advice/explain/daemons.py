"""Which nodes a DaemonSet skips, and why."""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.advice.explain.nodes import taint_text
from allot.core.advice.explain.wording import named
from allot.core.model import core_v1
from allot.core.workloads.daemonset_nodes import Placement


def left_out(placement: Placement, node: core_v1.Node) -> Iterator[str]:
    """The first reason why a DaemonSet skips a node, phrased to follow the node's name."""
    if placement.judge(node)[0]:
        return
    missing = lacking_labels(placement, node)
    if placement.node_name and placement.node_name != node.metadata.name:
        yield f"is not node {placement.node_name}, which its nodeName requires"
    elif missing:
        whose = "nodeSelector" if placement.node_selector else "node affinity"
        yield f"lacks label {', '.join(missing)} of its {whose}"
    elif not placement.has_untolerated(node):
        yield "does not match its node affinity"
    else:
        yield f"has {named('taint', map(taint_text, placement.untolerated(node)))} that it does not tolerate"


def lacking_labels(placement: Placement, node: core_v1.Node) -> list[str]:
    """Labels that a DaemonSet selects and a node lacks."""
    labels = node.metadata.labels
    found = [f"{key}={value}" for key, value in placement.node_selector if labels.get(key) != value]
    terms = placement.required.node_selector_terms if placement.required is not None else ()
    # With several terms any one is enough, so no single label is missing.
    for each in terms[0].match_expressions if len(terms) == 1 else ():
        if each.operator == "In" and each.values and labels.get(each.key) not in each.values:
            found.append(f"{each.key}={each.values[0]}")
        elif each.operator == "Exists" and each.key not in labels:
            found.append(each.key)
    return found


def taken_in(placement: Placement, node: core_v1.Node, name: str) -> str:
    """What makes a DaemonSet run on a node that it skips. name: as `DaemonSet drivers/plugin`."""
    labels = lacking_labels(placement, node)
    if labels:
        return f"label node {node.metadata.name} with {', '.join(labels)}"
    if placement.has_untolerated(node):
        return f"tolerate {named('taint', map(taint_text, placement.untolerated(node)))} in {name}"
    return f"let {name} run on node {node.metadata.name}"
