"""Changes to nodes, and to what a pod asks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from allot.core.advice.explain.diagnosis import Candidate, Rank, delete_of, patch_of
from allot.core.advice.explain.nodes import CORDON_TAINT, Check, shortages, taint_text, untolerated
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster, as_json
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import NodeInfo

_NEW_NODE = "new-node"
_HOSTNAME = "kubernetes.io/hostname"
_NODE_TROUBLE = "node.kubernetes.io/"
_OTHERS_MAX = 4


class _Part(NamedTuple):
    """A change that removes one obstacle, where there may be several."""

    rank: int
    text: str
    patch: Patch


def for_node(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo, checks: Sequence[Check]) -> list[Candidate]:
    """What could be done about a node that is out of reach. Several obstacles have to be removed at once."""
    parts = [found for check in checks if (found := _for_check(what_if, pod, info, check))]
    if len(parts) < len(checks) or not parts:
        return []
    if len(parts) == 1:
        return [Candidate(rank=part.rank, text=part.text, patches=(part.patch,)) for part in parts[0]]
    firsts = [found[0] for found in parts]
    return [
        Candidate(
            rank=max(part.rank for part in firsts) + len(firsts),
            text=", and ".join(part.text for part in firsts),
            patches=tuple(part.patch for part in firsts),
        )
    ]


def _for_check(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo, check: Check) -> list[_Part]:
    if check.reason is Reason.CORDONED:
        return [_Part(Rank.NODE, f"uncordon node {info.name}", _uncordoned(info))]
    if check.reason is Reason.NODE_TAINT:
        return _taint(pod, info, untolerated(what_if.cluster.profiles.of(pod), info))
    if check.reason is Reason.AFFINITY:
        return _affinity(pod, info)
    if check.reason is Reason.RESOURCES:
        return _resources(what_if, pod, info)
    return []


def _pod_patch(pod: core_v1.Pod, path: str, value: object, *, recreate: bool) -> Patch:
    operation = {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
    return patch_of("Pod", pod.metadata.name, operation, namespace=pod.metadata.namespace, recreate=recreate)


# --- cordons and taints ---


def _uncordoned(info: NodeInfo) -> Patch:
    operations = [{"op": "remove", "path": "/spec/unschedulable"}]
    if any(taint.key == CORDON_TAINT for taint in info.taints):
        operations.append(_without_taints(info, {CORDON_TAINT}))
    return patch_of("Node", info.name, *operations)


def _without_taints(info: NodeInfo, keys: set[str]) -> dict[str, Any]:
    kept = [taint for taint in as_json(info.node)["spec"]["taints"] if taint.get("key") not in keys]
    return {"op": "replace", "path": "/spec/taints", "value": kept}


def _taint(pod: core_v1.Pod, info: NodeInfo, taints: Sequence[core_v1.Taint]) -> list[_Part]:
    shown = named("taint", [taint_text(taint) for taint in taints])
    own = as_json(pod)["spec"].get("tolerations", [])
    tolerations = [*own, *(toleration_of(taint.key, taint.value, taint.effect) for taint in taints)]
    tolerate = _pod_patch(pod, "/spec/tolerations", tolerations, recreate=False)
    remove = patch_of("Node", info.name, _without_taints(info, {taint.key for taint in taints}))
    # A node that is in trouble is no better for being tolerated.
    if any(taint.key.startswith(_NODE_TROUBLE) for taint in taints):
        return [
            _Part(Rank.NODE, f"get node {info.name} into order, so that it loses {shown}", remove),
            _Part(Rank.ADD_NODE, f"tolerate {shown} in the pod", tolerate),
        ]
    return [
        _Part(Rank.TOLERATE, f"tolerate {shown} in the pod", tolerate),
        _Part(Rank.ADMIN, f"remove {shown} from node {info.name}", remove),
    ]


def toleration_of(key: str, value: str, effect: str) -> dict[str, str]:
    """A toleration of exactly one taint."""
    matched = {"operator": "Equal", "value": value} if value else {"operator": "Exists"}
    return {"key": key, "effect": effect, **matched}


# --- selectors and affinity ---


def node_terms(pod: core_v1.Pod, info: NodeInfo) -> str:
    """What of a pod's node selector or affinity a node does not match."""
    wrong = _wrong_labels(pod, info)
    if wrong:
        shown = [
            f"{key}={value} (it has {info.labels[key]})" if key in info.labels else f"{key}={value}"
            for key, value in wrong.items()
        ]
        return f"the pod's nodeSelector {listed(shown)}"
    shown = [
        f"{each.key} {each.operator} {listed(each.values)}".rstrip()
        for term in _required(pod)
        for each in (*term.match_expressions, *term.match_fields)
    ]
    return f"the pod's node affinity ({listed(shown)})" if shown else "the pod's node affinity"


def _wrong_labels(pod: core_v1.Pod, info: NodeInfo) -> dict[str, str]:
    return {key: value for key, value in pod.spec.node_selector.items() if info.labels.get(key) != value}


def _required(pod: core_v1.Pod) -> Sequence[core_v1.NodeSelectorTerm]:
    affinity = pod.spec.affinity
    nodes = affinity.node_affinity if affinity is not None else None
    required = nodes.required_during_scheduling_ignored_during_execution if nodes is not None else None
    return required.node_selector_terms if required is not None else ()


def _affinity(pod: core_v1.Pod, info: NodeInfo) -> list[_Part]:
    wrong = _wrong_labels(pod, info)
    if wrong:
        return _node_selector(pod, info, wrong)
    path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
    patch = _pod_patch(pod, path, None, recreate=True)
    return [_Part(Rank.RELAX, "leave the required node affinity out of the pod", patch)]


def _node_selector(pod: core_v1.Pod, info: NodeInfo, wrong: Mapping[str, str]) -> list[_Part]:
    selector = pod.spec.node_selector
    shown = _labels_text(wrong)
    found = []
    if all(key in info.labels for key in wrong):
        right = {key: info.labels[key] for key in selector}
        text = f"select {_labels_text({key: right[key] for key in wrong})} instead of {shown} in the pod's nodeSelector"
        found.append(_Part(Rank.FIX, text, _pod_patch(pod, "/spec/nodeSelector", right, recreate=True)))
    renamed = _renamed_keys(selector, wrong, info)
    if renamed is not None:
        text = f"select {_labels_text(renamed)} in the pod's nodeSelector"
        found.append(_Part(Rank.FIX, text, _pod_patch(pod, "/spec/nodeSelector", renamed, recreate=True)))
    rest = {key: value for key, value in selector.items() if key not in wrong}
    patch = _pod_patch(pod, "/spec/nodeSelector", rest or None, recreate=True)
    found.append(_Part(Rank.RELAX, f"leave {shown} out of the pod's nodeSelector", patch))
    labels = {"op": "add", "path": "/metadata/labels", "value": {**info.labels, **wrong}}
    found.append(_Part(Rank.ADMIN, f"label node {info.name} with {shown}", patch_of("Node", info.name, labels)))
    return found


def _labels_text(labels: Mapping[str, str]) -> str:
    return listed(f"{key}={value}" for key, value in labels.items())


def _renamed_keys(selector: Mapping[str, str], wrong: Mapping[str, str], info: NodeInfo) -> dict[str, str] | None:
    """Labels whose keys are misspelt, put right; None if that is not what is wrong."""
    renamed = dict(selector)
    for key, value in wrong.items():
        same_value = [other for other, there in info.labels.items() if there == value]
        meant = nearest(key, same_value)
        if meant is None:
            return None
        del renamed[key]
        renamed[meant] = value
    return renamed


# --- resources ---


def _resources(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> list[_Part]:
    found = _lower_requests(what_if, pod, info)
    others = sorted(
        (each for each in info.pods.values() if each.pod.metadata.deletion_timestamp is None),
        key=lambda each: (each.priority, each.key),
    )
    for other in others[:_OTHERS_MAX]:
        metadata = other.pod.metadata
        text = f"wait for or delete pod {metadata.namespace}/{metadata.name} on node {info.name}"
        found.append(_Part(Rank.OTHERS, text, delete_of("Pod", metadata.name, metadata.namespace)))
    return found


def _lower_requests(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> list[_Part]:
    """What a pod with one container asks for, lowered to what is free."""
    lacking = shortages(what_if.cluster.profiles.of(pod), info)
    amounts = {each.resource: each.free for each in lacking if each.free != "0"}
    if not lacking or len(amounts) < len(lacking) or len(pod.spec.containers) != 1 or pod.spec.init_containers:
        return []
    resources = as_json(pod)["spec"]["containers"][0].get("resources", {})
    changed = {**resources, "requests": {**resources.get("requests", {}), **amounts}}
    if any(name in resources.get("limits", {}) for name in amounts):
        changed["limits"] = {**resources["limits"], **amounts}
    shown = listed(f"{name} {value}" for name, value in amounts.items())
    patch = _pod_patch(pod, "/spec/containers/0/resources", changed, recreate=True)
    return [_Part(Rank.FEWER, f"ask for no more than {shown}", patch)]


# --- more nodes ---


def another_node(what_if: WhatIfCluster, like: NodeInfo | None) -> list[Candidate]:
    """One more node of the same kind, with devices of the same kind."""
    if like is None:
        return []
    node = as_json(like.node)
    labels = {**node["metadata"].get("labels", {})}
    if _HOSTNAME in labels:
        labels[_HOSTNAME] = _NEW_NODE
    spec = {key: value for key, value in node.get("spec", {}).items() if key not in ("unschedulable", "taints")}
    new = {**node, "metadata": {"name": _NEW_NODE, "labels": labels}, "spec": spec}
    patches = [Patch(action="create", object=new)]
    for slice_ in what_if.all(api.ResourceSlice):
        if slice_.spec.node_name == like.name:
            patches.append(Patch(action="create", object=_for_new_node(as_json(slice_))))
    return [Candidate(rank=Rank.ADD_NODE, text=f"add one node like {like.name}", patches=tuple(patches))]


def _for_new_node(slice_: dict[str, Any]) -> dict[str, Any]:
    spec = slice_["spec"]
    # Dumps that people have edited may have lost the names.
    pool = {**spec["pool"], "name": f"{spec['pool'].get('name', '')}-{_NEW_NODE}"}
    name = f"{_NEW_NODE}-{slice_['metadata'].get('name', '')}"
    devices = [{key: part for key, part in each.items() if key != "taints"} for each in spec.get("devices", [])]
    new = {**spec, "nodeName": _NEW_NODE, "pool": pool, **({"devices": devices} if devices else {})}
    return {**slice_, "metadata": {"name": name}, "spec": new}
