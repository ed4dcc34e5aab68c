"""Labels that a component sets on nodes, and that are missing because it does not run there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.containers import container_trouble
from allot.core.advice.explain.daemons import daemon_sets, left_out, selected_labels, taken_in
from allot.core.advice.explain.wording import named, of_several
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.apps_v1 import DaemonSet
from allot.core.workloads.daemonset_nodes import Placement
from allot.core.workloads.ownership import controller_reference

_NFD = ("node-feature-discovery", "nfd-worker", "/nfd-")
# By the domain of a label: words for the DaemonSets that set it. What vendors' operators set follows from NFD's labels.
_WORDS = {
    "feature.node.kubernetes.io": _NFD,
    "nvidia.com": ("gpu-feature-discovery", *_NFD),
    "amd.com": ("node-labeller", *_NFD),
    "gpu.intel.com": _NFD,
    "intel.feature.node.kubernetes.io": _NFD,
}


class Absent(NamedTuple):
    """A labeller that does not run on nodes. text: phrased to follow a semicolon."""

    text: str
    advice: str


def absent_labeller(what_if: WhatIfCluster, keys: Collection[str], nodes: Sequence[core_v1.Node]) -> Absent | None:
    """Why nodes lack labels of these keys: what sets them does not run there. None if it does, or if nothing is known to set them."""
    words = dict.fromkeys(word for key in keys for word in _WORDS.get(key.rpartition("/")[0], ()))
    for set_, placement in daemon_sets(what_if, *words) if words else ():
        if set(selected_labels(placement)) & set(keys):
            # It needs them itself.
            continue
        found = _skips(set_, placement, nodes) or _fails(what_if, set_, nodes)
        if found is not None:
            return found
    return None


def _skips(set_: DaemonSet, placement: Placement, nodes: Sequence[core_v1.Node]) -> Absent | None:
    skipped = [(node, why) for node in nodes for why in left_out(placement, node)]
    if not skipped:
        return None
    name = f"DaemonSet {full_name(set_)}"
    first, why = skipped[0]
    alike = [node.metadata.name for node, each in skipped if each == why]
    they = f"it {why}" if len(alike) == 1 else f"they {of_several(why)}"
    text = f"{name}, which sets such labels, skips {named('node', alike)}: {they}"
    return Absent(text, taken_in(placement, first, name))


def _fails(what_if: WhatIfCluster, set_: DaemonSet, nodes: Sequence[core_v1.Node]) -> Absent | None:
    names = {node.metadata.name for node in nodes}
    for pod in what_if.all(core_v1.Pod):
        maker = controller_reference(pod.metadata)
        if maker is None or maker.uid != set_.metadata.uid or pod.spec.node_name not in names:
            continue
        trouble = container_trouble(what_if, pod)
        if trouble is not None:
            text = f"pod {full_name(pod)} of DaemonSet {full_name(set_)}, which sets such labels, does not run on node {pod.spec.node_name}: {trouble.text}"
            fix = (
                trouble.advice[0]
                if trouble.advice
                else f"kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name}"
            )
            return Absent(text, f"fix pod {full_name(pod)}, so that it labels node {pod.spec.node_name}: {fix}")
    return None
