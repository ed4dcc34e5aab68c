"""Which nodes a DaemonSet skips, and why."""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.advice.explain.node_troubles import taint_text
from allot.core.advice.explain.program_settings import containers_in
from allot.core.advice.explain.wording import named
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.codec import DecodeError
from allot.core.workloads.daemonset_nodes import Placement, placement_of

# By prefixes of labels: the label of a node, and its value, with which an administrator keeps an operator from setting them.
_SWITCHES = {"nvidia.com/gpu.deploy.": ("nvidia.com/gpu.deploy.operands", "false")}


def daemon_sets(what_if: WhatIfCluster, *words: str) -> Iterator[tuple[DaemonSet, Placement]]:
    """The DaemonSets whose names or images have one of some words, and where they run."""
    for set_ in what_if.all(DaemonSet):
        template = set_.spec.template
        if template is None:
            continue
        try:
            placement = placement_of(template)
        except DecodeError:
            continue
        images = [str(each.get("image", "")) for each in containers_in(template)]
        text = " ".join((full_name(set_), *images)).lower()
        if any(word in text for word in words):
            yield set_, placement


def left_out(placement: Placement, node: core_v1.Node) -> Iterator[str]:
    """The first reason why a DaemonSet skips a node, phrased to follow the node's name."""
    if placement.judge(node)[0]:
        return
    missing, any_of = lacking_labels(placement, node), _lacking_one_of(placement, node)
    if placement.node_name and placement.node_name != node.metadata.name:
        yield f"is not node {placement.node_name}, which its nodeName requires"
    elif missing:
        whose = "nodeSelector" if placement.node_selector else "node affinity"
        off = _switched_off(node, missing)
        why = f", because it has label {off}={node.metadata.labels[off]}" if off else ""
        yield f"lacks label {', '.join(missing)} of its {whose}{_has_instead(node, missing)}{why}"
    elif any_of:
        yield f"lacks label {' or '.join(any_of)} of its node affinity"
    elif not placement.has_untolerated(node):
        yield "does not match its node affinity"
    else:
        taints = placement.untolerated(node)
        yield f"has {named('taint', map(taint_text, taints))} that it does not tolerate{_tolerates_instead(placement, taints[0])}"


def _switched_off(node: core_v1.Node, missing: list[str]) -> str:
    """The label with which an administrator keeps a node from having others; empty if there is none."""
    for prefix, (key, value) in _SWITCHES.items():
        if node.metadata.labels.get(key) == value and any(each.startswith(prefix) for each in missing):
            return key
    return ""


def _has_instead(node: core_v1.Node, missing: list[str]) -> str:
    """The other value of the only label that a node lacks; empty if it has none."""
    value = node.metadata.labels.get(missing[0].partition("=")[0]) if len(missing) == 1 else None
    return f" (it is {value})" if value else ""


def _tolerates_instead(placement: Placement, taint: core_v1.Taint) -> str:
    """The value or effect that a DaemonSet tolerates instead of a taint's; empty if it tolerates nothing like it."""
    for each in placement.tolerations:
        if each.key == taint.key and each.value and each.value != taint.value:
            return f" (it tolerates value {each.value})"
        if each.key == taint.key and each.effect and each.effect != taint.effect:
            return f" (it tolerates effect {each.effect})"
    return ""


def lacking_labels(placement: Placement, node: core_v1.Node) -> list[str]:
    """Labels that a DaemonSet selects and a node lacks."""
    labels = node.metadata.labels
    found = [f"{key}={value}" for key, value in placement.node_selector if labels.get(key) != value]
    terms = placement.required.node_selector_terms if placement.required is not None else ()
    # With several terms any one is enough, so no single label is missing.
    return [*found, *_lacking_of(terms[0], node)] if len(terms) == 1 else found


def _lacking_one_of(placement: Placement, node: core_v1.Node) -> list[str]:
    """Labels of which a DaemonSet selects any one, and a node lacks all."""
    terms = placement.required.node_selector_terms if placement.required is not None else ()
    found = [_lacking_of(term, node) for term in terms] if len(terms) > 1 else []
    return [" and ".join(each) for each in found] if all(found) else []


def _lacking_of(term: core_v1.NodeSelectorTerm, node: core_v1.Node) -> list[str]:
    labels, found = node.metadata.labels, []
    for each in term.match_expressions:
        if each.operator == "In" and each.values and labels.get(each.key) not in each.values:
            found.append(f"{each.key}={each.values[0]}")
        elif each.operator == "Exists" and each.key not in labels:
            found.append(each.key)
    return found


def selected_labels(placement: Placement) -> list[str]:
    """The keys of all labels by which a DaemonSet may select nodes."""
    terms = placement.required.node_selector_terms if placement.required is not None else ()
    required = [each.key for term in terms for each in term.match_expressions if each.operator in ("In", "Exists")]
    return [*dict(placement.node_selector), *required]


def taken_in(placement: Placement, node: core_v1.Node, name: str) -> str:
    """What makes a DaemonSet run on a node that it skips. name: as `DaemonSet drivers/plugin`."""
    labels = lacking_labels(placement, node) or _lacking_one_of(placement, node)[:1]
    off = _switched_off(node, labels)
    if off:
        command = f"kubectl label node {node.metadata.name} {off}-"
        return f"remove label {off}={node.metadata.labels[off]} from node {node.metadata.name}, if its operator may run pods there: {command}"
    if labels:
        return f"label node {node.metadata.name} with {', '.join(labels)}"
    if placement.has_untolerated(node):
        return f"tolerate {named('taint', map(taint_text, placement.untolerated(node)))} in {name}"
    return f"let {name} run on node {node.metadata.name}"
