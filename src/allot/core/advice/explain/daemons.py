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
        whose = "nodeSelector" if placement.node_selector else "node affinity"
        yield f"without label {', '.join(missing)} of its {whose}"
    elif not placement.has_untolerated(node):
        yield "not what its node affinity asks for"
    else:
        yield f"with {named('taint', map(taint_text, placement.untolerated(node)))} that it does not tolerate"


def lacking_labels(placement: Placement, node: core_v1.Node) -> list[str]:
    """Labels that a DaemonSet selects, and that a node does not have."""
    labels = node.metadata.labels
    found = [f"{key}={value}" for key, value in placement.node_selector if labels.get(key) != value]
    terms = placement.required.node_selector_terms if placement.required is not None else ()
    # Of several terms any is enough, so that none of them is what is lacking.
    for each in terms[0].match_expressions if len(terms) == 1 else ():
        if each.operator == "In" and each.values and labels.get(each.key) not in each.values:
            found.append(f"{each.key}={each.values[0]}")
        elif each.operator == "Exists" and each.key not in labels:
            found.append(each.key)
    return found
