"""Changes to nodes, and to what a pod asks of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from allot.core.advice.explain.diagnosis import Candidate, Rank, delete_of, patch_of, pointer
from allot.core.advice.explain.holding import FITS_TOO, are_siblings, comes_back, controller_of, ends_by_itself
from allot.core.advice.explain.moving import other_place
from allot.core.advice.explain.node_troubles import taint_text, troubles_of
from allot.core.advice.explain.nodes import (
    CORDON_TAINT,
    NOT_READY,
    Check,
    Shortage,
    asks,
    hard_spreads,
    missing,
    shortages,
    untolerated,
)
from allot.core.advice.explain.remedies.templates import workload_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.upkeep import upkeep
from allot.core.advice.explain.wording import joined, listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster, as_json, full_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PREEMPT_LOWER_PRIORITY, PREEMPT_NEVER, PriorityClass
from allot.core.quantity import Quantity
from allot.core.scheduling import SCHEDULE_ANYWAY, NodeInfo, PodInfo, PodTerm

_NEW_NODE = "new-node"
_PORT_MAX = 65535
_HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OTHERS_MAX = 4
# Labels that clouds, kubelets and installers set.
_GIVEN_DOMAINS = (
    "kubernetes.io",
    "k8s.io",
    "cloud.google.com",
    "eks.amazonaws.com",
    "kubernetes.azure.com",
    "karpenter.sh",
)
# Components that set labels about devices; users do not set these by hand.
_LABELLERS = {
    "nvidia.com": "GPU Feature Discovery",
    "amd.com": "the AMD GPU node labeller",
    "gpu.intel.com": "the Intel GPU labeller",
    "feature.node.kubernetes.io": "Node Feature Discovery",
}
_GIVEN_NAMES = ("zone", "region", "hostname")
# Words of taints that keep a node for someone.
_RESERVED = re.compile(r"reserved|dedicated|exclusive|tenant|owner|team", re.IGNORECASE)
_DEVICE_WORDS = ("gpu", "accelerator", "tpu", "npu", "device", "nic", "rdma")


class _Part(NamedTuple):
    """A change that removes one obstacle, where there may be several."""

    rank: int
    text: str
    patch: Patch
    # Patches of other objects, applied together.
    more: tuple[Patch, ...] = ()
    waits: bool = False

    def candidate(self) -> Candidate:
        """The change alone."""
        return Candidate(rank=self.rank, text=self.text, patches=(self.patch, *self.more), waits=self.waits)


def for_node(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo, checks: Sequence[Check]) -> list[Candidate]:
    """Possible remedies for a node that cannot be used. Several obstacles must be removed together."""
    parts = [found for check in checks if (found := _for_check(what_if, pod, info, check))]
    if len(parts) < len(checks) or not parts:
        return []
    if len(parts) == 1:
        return [part.candidate() for part in parts[0]]
    firsts = [found[0] for found in parts]
    return [
        Candidate(
            rank=max(part.rank for part in firsts) + len(firsts),
            text=", and ".join(part.text for part in firsts),
            patches=tuple(patch for part in firsts for patch in (part.patch, *part.more)),
        )
    ]


def _for_check(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo, check: Check) -> list[_Part]:
    if check.reason is Reason.CORDONED:
        work = upkeep(info.node)
        over = f", when the work that it was cordoned for is done ({work})" if work else ""
        return [_Part(Rank.NODE, f"uncordon node {info.name}{over}", uncordoned(info))]
    if check.reason in (Reason.NODE_TAINT, Reason.NODE_NOT_READY):
        return _taint(what_if, pod, info, check, untolerated(what_if.cluster.profiles.of(pod), info))
    if check.reason is Reason.AFFINITY:
        return _affinity(what_if, pod, info)
    if check.reason is Reason.RESOURCES:
        return _resources(what_if, pod, info)
    if check.reason is Reason.PORTS:
        return _ports(what_if, pod, info)
    if check.reason is Reason.NEIGHBOURS:
        return _neighbours(what_if, pod, info)
    return []


def _pod_patch(pod: core_v1.Pod, path: str, value: object, *, recreate: bool) -> Patch:
    operation = {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
    return patch_of("Pod", pod.metadata.name, operation, namespace=pod.metadata.namespace, recreate=recreate)


# --- cordons and taints ---


def offering(node: str, resource: str, amount: str) -> Patch:
    """A node that offers so much of a resource."""
    path = f"/status/allocatable/{pointer(resource)}"
    return patch_of("Node", node, {"op": "add", "path": path, "value": amount})


def uncordoned(info: NodeInfo) -> Patch:
    """A node that takes pods again."""
    operations = [{"op": "remove", "path": "/spec/unschedulable"}]
    if any(taint.key == CORDON_TAINT for taint in info.taints):
        operations.append(_without_taints(info, {CORDON_TAINT}))
    return patch_of("Node", info.name, *operations)


def _without_taints(info: NodeInfo, keys: set[str]) -> dict[str, Any]:
    kept = [taint for taint in as_json(info.node)["spec"]["taints"] if taint.get("key") not in keys]
    return {"op": "replace", "path": "/spec/taints", "value": kept}


def _is_about_devices(what_if: WhatIfCluster, key: str) -> bool:
    """Whether a taint marks nodes with devices: it has the domain of a driver, or a word for devices."""
    domain, _, name = key.rpartition("/")
    if any(word in name.lower() for word in _DEVICE_WORDS):
        return True
    return bool(domain) and any(
        slice_.spec.driver.endswith(domain) or domain.endswith(slice_.spec.driver)
        for slice_ in what_if.all(api.ResourceSlice)
    )


def _taint(
    what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo, check: Check, taints: Sequence[core_v1.Taint]
) -> list[_Part]:
    """Remedies for the taints of a check."""
    if check.reason is Reason.NODE_NOT_READY:
        gone = set(NOT_READY)
        remove = patch_of("Node", info.name, _without_taints(info, gone))
        text = f"bring node {info.name} back: see its kubelet (kubectl describe node {info.name})"
        if "network" in check.text.lower():
            text = f"bring node {info.name} back: check that the pods of its network plugin (CNI) run"
        return [_Part(Rank.NODE, text, remove)]
    troubles = troubles_of(what_if, info.node, taints)
    for key, found in troubles.items():
        if check.text.endswith(f"(taint {key})"):
            patch = patch_of("Node", info.name, _without_taints(info, {key}))
            return [_Part(Rank.NODE, found.remedy, patch)] if found.remedy else []
    taints = [taint for taint in taints if taint.key not in NOT_READY and taint.key not in troubles]
    shown = named("taint", [taint_text(taint) for taint in taints])
    own = as_json(pod)["spec"].get("tolerations", [])
    tolerations = [*own, *(toleration_of(taint.key, taint.value, taint.effect) for taint in taints)]
    tolerate = _pod_patch(pod, "/spec/tolerations", tolerations, recreate=False)
    remove = patch_of("Node", info.name, _without_taints(info, {taint.key for taint in taints}))
    # Nodes with devices are tainted for pods that need these; other taints reserve a node for someone else.
    rank = Rank.TOLERATE if all(_is_about_devices(what_if, taint.key) for taint in taints) else Rank.NODE + 1
    reserved = any(_RESERVED.search(taint.key.rpartition("/")[2]) for taint in taints)
    if reserved:
        rank = Rank.OTHERS + 2
    proviso = f", if it may use node {info.name}, which is reserved" if reserved else ""
    return [
        _Part(rank, f"tolerate {shown} in the pod{proviso}", tolerate),
        _Part(Rank.ADMIN, f"remove {shown} from node {info.name}", remove),
    ]


def toleration_of(key: str, value: str, effect: str) -> dict[str, str]:
    """A toleration for exactly one taint."""
    matched = {"operator": "Equal", "value": value} if value else {"operator": "Exists"}
    return {"key": key, "effect": effect, **matched}


# --- selectors and affinity ---


def node_terms(pod: core_v1.Pod, infos: Sequence[NodeInfo]) -> str:
    """The part of a pod's node selector or affinity that some nodes do not match."""
    wrong = _wrong_labels(pod, infos[0])
    if wrong:
        shown = []
        for key, value in wrong.items():
            there = {info.labels.get(key) for info in infos}
            have = "it has" if len(infos) == 1 else "they have"
            actual = next(iter(there)) if len(there) == 1 else None
            shown.append(f"{key}={value} ({have} {actual})" if actual is not None else f"{key}={value}")
        return f"the pod's nodeSelector {listed(shown)}"
    return own_terms(pod)


def own_terms(pod: core_v1.Pod) -> str:
    """A pod's node selector, or affinity if it has none."""
    if pod.spec.node_selector and not _required(pod):
        return f"the pod's nodeSelector {_labels_text(pod.spec.node_selector)}"
    shown = [
        requirement_text(each) for term in _required(pod) for each in (*term.match_expressions, *term.match_fields)
    ]
    return f"the pod's node affinity ({listed(shown)})" if shown else "the pod's node affinity"


def selector_text(selector: core_v1.NodeSelector) -> str:
    """A node selector in readable form."""
    terms = [
        joined([requirement_text(each) for each in (*term.match_expressions, *term.match_fields)])
        for term in selector.node_selector_terms
    ]
    return " or ".join(terms)


def requirement_text(each: core_v1.NodeSelectorRequirement) -> str:
    """As kubectl writes label selectors: `zone in (a, b)`."""
    if each.operator in ("In", "NotIn"):
        return f"{each.key} {'in' if each.operator == 'In' else 'not in'} ({', '.join(each.values)})"
    if each.operator in ("Exists", "DoesNotExist"):
        return each.key if each.operator == "Exists" else f"no {each.key}"
    return f"{each.key} {'>' if each.operator == 'Gt' else '<'} {', '.join(each.values)}"


def is_given(label: str) -> bool:
    """Whether a node's label states what or where it is, which setting the label does not change."""
    domain, _, name = label.rpartition("/")
    return domain.endswith(_GIVEN_DOMAINS) or domain in _LABELLERS or name in _GIVEN_NAMES


def unlabelled(what_if: WhatIfCluster, pod: core_v1.Pod) -> dict[str, str]:
    """Labels that the pod asks for, a labeller sets and no node has, with that labeller."""
    required = (
        each.key for term in _required(pod) for each in term.match_expressions if each.operator in ("In", "Exists")
    )
    found = {}
    for key in (*pod.spec.node_selector, *required):
        labeller = _LABELLERS.get(key.rpartition("/")[0])
        if labeller is not None and not any(key in info.labels for info in what_if.cluster.nodes.values()):
            found[key] = labeller
    return found


def telling_label(what_if: WhatIfCluster, names: Collection[str]) -> str:
    """`key: value`: a label that all of some nodes have, and no other node; one about devices first. Empty if there is none."""
    inside = [info.labels for name, info in what_if.cluster.nodes.items() if name in names]
    outside = [info.labels for name, info in what_if.cluster.nodes.items() if name not in names]
    found = [
        (key, value)
        for key, value in (inside[0] if inside else {}).items()
        if all(labels.get(key) == value for labels in inside) and all(labels.get(key) != value for labels in outside)
    ]
    found.sort(key=lambda pair: (not any(word in pair[0].lower() for word in _DEVICE_WORDS), len(pair[0]), pair[0]))
    return f"{found[0][0]}: {found[0][1]}" if found and found[0][0] != _HOSTNAME else ""


def _wrong_labels(pod: core_v1.Pod, info: NodeInfo) -> dict[str, str]:
    return {key: value for key, value in pod.spec.node_selector.items() if info.labels.get(key) != value}


def _required(pod: core_v1.Pod) -> Sequence[core_v1.NodeSelectorTerm]:
    affinity = pod.spec.affinity
    nodes = affinity.node_affinity if affinity is not None else None
    required = nodes.required_during_scheduling_ignored_during_execution if nodes is not None else None
    return required.node_selector_terms if required is not None else ()


def _affinity(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> list[_Part]:
    wrong = _wrong_labels(pod, info)
    if wrong:
        # A value that other nodes have is not a mistake.
        meant = _HOSTNAME in wrong or any(
            wrong.items() <= other.labels.items() for other in what_if.cluster.nodes.values()
        )
        return sorted(_node_selector(pod, info, wrong, meant=meant), key=lambda part: part.rank)
    path = f"/spec/affinity/nodeAffinity/{_REQUIRED}"
    patch = _pod_patch(pod, path, None, recreate=True)
    return [*_wider(pod, info), _Part(Rank.RELAX, "drop the required node affinity from the pod", patch)]


def _wider(pod: core_v1.Pod, info: NodeInfo) -> Iterator[_Part]:
    """The only requirement on a label, extended by the node's value."""
    terms = (
        as_json(pod)["spec"].get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED, {}).get("nodeSelectorTerms", [])
    )
    wrong = [
        (index, position, each)
        for index, term in enumerate(_required(pod))
        for position, each in enumerate(term.match_expressions)
        if each.operator == "In" and info.labels.get(each.key) not in each.values
    ]
    if len(terms) != 1 or len(wrong) != 1 or wrong[0][2].key not in info.labels:
        return
    index, position, each = wrong[0]
    value = info.labels[each.key]
    path = f"/spec/affinity/nodeAffinity/{_REQUIRED}/nodeSelectorTerms/{index}/matchExpressions/{position}/values"
    patch = _pod_patch(pod, path, [*each.values, value], recreate=True)
    yield _Part(Rank.RELAX, f"also allow {each.key} {value} in the pod's node affinity", patch)


def _node_selector(pod: core_v1.Pod, info: NodeInfo, wrong: Mapping[str, str], *, meant: bool) -> list[_Part]:
    """meant: nodes with the requested labels exist."""
    selector = pod.spec.node_selector
    shown = _labels_text(wrong)
    found = []
    if all(key in info.labels for key in wrong):
        right = {key: info.labels[key] for key in selector}
        text = f"select {_labels_text({key: right[key] for key in wrong})} instead of {shown} in the pod's nodeSelector"
        rank = Rank.RELAX + 1 if meant else Rank.FIX
        found.append(_Part(rank, text, _pod_patch(pod, "/spec/nodeSelector", right, recreate=True)))
    renamed = _renamed_keys(selector, wrong, info)
    if renamed is not None:
        text = f"select {_labels_text(renamed)} in the pod's nodeSelector"
        found.append(_Part(Rank.FIX, text, _pod_patch(pod, "/spec/nodeSelector", renamed, recreate=True)))
    rest = {key: value for key, value in selector.items() if key not in wrong}
    patch = _pod_patch(pod, "/spec/nodeSelector", rest or None, recreate=True)
    found.append(_Part(Rank.RELAX, f"drop {shown} from the pod's nodeSelector", patch))
    # A label with another value describes the node.
    if not any(is_given(key) or key in info.labels for key in wrong):
        labels = {"op": "add", "path": "/metadata/labels", "value": {**info.labels, **wrong}}
        found.append(_Part(Rank.ADMIN, f"label node {info.name} with {shown}", patch_of("Node", info.name, labels)))
    return found


def _labels_text(labels: Mapping[str, str]) -> str:
    return listed(f"{key}={value}" for key, value in labels.items())


def _renamed_keys(selector: Mapping[str, str], wrong: Mapping[str, str], info: NodeInfo) -> dict[str, str] | None:
    """Labels with corrected keys; None if no key is misspelt."""
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
    found = [*_without_plugin(what_if, pod, info), *_lower_requests(what_if, pod, info)]
    profile = what_if.cluster.profiles.of(pod)
    lacking = {each.resource: missing(profile, info, each.resource) for each in shortages(profile, info)}
    enough = [
        each for each in info.pods.values() if all(asks(each, name) >= amount for name, amount in lacking.items())
    ]
    return [
        *found,
        *_may_preempt(what_if, pod, info),
        *_others_go(what_if, pod, info.name, enough),
        *_several_go(what_if, pod, info),
    ]


def _without_plugin(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> Iterator[_Part]:
    """A node where a device plugin offers what DRA has devices for: remove the plugin, so that DRA serves it."""
    lacking = [each.resource for each in shortages(what_if.cluster.profiles.of(pod), info)]
    for resource in lacking if len(lacking) == 1 else ():
        devices, held = what_if.claims.totals(resource, info)
        if devices > held and info.allocatable_scalars.get(resource):
            operations = [
                {"op": "remove", "path": f"/status/{part}/{pointer(resource)}"}
                for part, amounts in (
                    ("allocatable", info.node.status.allocatable),
                    ("capacity", info.node.status.capacity),
                )
                if resource in amounts
            ]
            what = f"the device plugin for {resource}{_plugin_of(info, resource)}"
            text = f"remove {what} from node {info.name}, so that DRA serves it"
            users = [full_name(each.pod) for each in info.pods.values() if resource in each.scalars]
            if users:
                # Otherwise their devices would be allocated twice.
                text = f"end {named('pod', users)} on node {info.name} and remove {what} there, so that DRA serves it"
            yield _Part(Rank.NODE if users else Rank.RELAX, text, patch_of("Node", info.name, *operations))


def _plugin_of(info: NodeInfo, resource: str) -> str:
    """The DaemonSet of a device plugin, judged by its pod on the node: ` (DaemonSet kube-system/intel-gpu-plugin)`; empty if unknown."""
    vendor = resource.partition("/")[0].split(".")[-2:][0]
    for each in info.pods.values():
        maker = controller_of(each.pod)
        images = " ".join(container.image for container in each.pod.spec.containers)
        text = f"{each.pod.metadata.name} {images}"
        if maker is None or maker.kind != "DaemonSet" or vendor not in text:
            continue
        if "plugin" in text.replace("kubelet-plugin", "").replace("kubeletplugin", ""):
            return f" (DaemonSet {each.pod.metadata.namespace}/{maker.name})"
    return ""


def gone(what_if: WhatIfCluster, pod: core_v1.Pod, there: Iterable[PodInfo]) -> list[Candidate]:
    """Pods on any node that may be deleted, one at a time."""
    return [
        part.candidate()
        for each in there
        for part in _others_go(what_if, pod, each.pod.spec.node_name, [each], elsewhere=False)
    ]


def _several_go(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> list[_Part]:
    """As few pods of a node as make room together, if one is not enough."""
    chosen = _making_room(what_if, pod, info)
    if not 1 < len(chosen) <= _OTHERS_MAX:
        return []
    patches = [delete_of("Pod", each.pod.metadata.name, each.pod.metadata.namespace) for each in chosen]
    names = named("pod", [full_name(each.pod) for each in chosen])
    text = f"delete {names} on node {info.name}, or wait until they end"
    return [_Part(Rank.OTHERS + 1, text, patches[0], tuple(patches[1:]))]


def _making_room(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> list[PodInfo]:
    """The least important pods of a node that make room together, and of these the largest; none if all are not enough."""
    profile = what_if.cluster.profiles.of(pod)
    lacking = {each.resource: missing(profile, info, each.resource) for each in shortages(profile, info)}
    chosen: list[PodInfo] = []
    able = [each for each in _may_go(pod, info.pods.values()) if any(asks(each, name) for name in lacking)]
    able.sort(
        key=lambda each: (
            each.priority,
            each.pod.metadata.namespace != pod.metadata.namespace,
            -sum(asks(each, name) for name in lacking),
        )
    )
    for each in able:
        if all(sum(asks(one, name) for one in chosen) >= amount for name, amount in lacking.items()):
            break
        chosen.append(each)
    enough = all(sum(asks(one, name) for one in chosen) >= amount for name, amount in lacking.items())
    return chosen if lacking and enough else []


def _may_preempt(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> Iterator[_Part]:
    """A pod that only its preemptionPolicy keeps from preempting others is allowed to: the scheduler then does it each time, and
    what is deleted by hand comes back."""
    group, own = what_if.group_of(pod), pod.spec.priority or 0
    if pod.spec.preemption_policy != PREEMPT_NEVER or group is not None:
        return
    chosen = _making_room(what_if, pod, info)
    if not chosen or any(each.priority >= own for each in chosen):
        return
    lowest = max(each.priority for each in chosen)
    classes = [
        each
        for each in what_if.all(PriorityClass)
        if each.preemption_policy != PREEMPT_NEVER and lowest < each.value <= own
    ]
    other = max(classes, key=lambda each: (each.value, each.metadata.name), default=None)
    name = f"PriorityClass {other.metadata.name}" if other is not None else f"a PriorityClass of value {own}"
    before = f" instead of {pod.spec.priority_class_name}" if pod.spec.priority_class_name else ""
    victims = named("pod", [full_name(each.pod) for each in chosen])
    text = f"use {name} with preemptionPolicy: {PREEMPT_LOWER_PRIORITY}{before} in the pod, so that it preempts {victims} on node {info.name}"
    patch = _pod_patch(pod, "/spec/preemptionPolicy", PREEMPT_LOWER_PRIORITY, recreate=True)
    more = [delete_of("Pod", each.pod.metadata.name, each.pod.metadata.namespace) for each in chosen]
    yield _Part(Rank.OTHERS - 1, text, patch, tuple(more))


def _may_go(pod: core_v1.Pod, there: Iterable[PodInfo]) -> list[PodInfo]:
    """Pods that are not more important, are not recreated at once, and are not already terminating. A replica of the pod is
    recreated, too, and takes what it had; one that ends by itself can be waited for."""
    own = pod.spec.priority or 0
    return [
        each
        for each in there
        if each.pod.metadata.deletion_timestamp is None
        and each.priority <= own
        and not comes_back(each.pod)
        and (ends_by_itself(each.pod) or not are_siblings(pod, [each.pod]))
    ]


def _others_go(
    what_if: WhatIfCluster, pod: core_v1.Pod, node: str, there: Iterable[PodInfo], *, elsewhere: bool = True
) -> list[_Part]:
    """Pods of a node that may be deleted: least important first, none of higher priority. elsewhere: ask whether they fit on other
    nodes."""
    others = sorted(
        _may_go(pod, there),
        key=lambda each: (each.priority, each.pod.metadata.namespace != pod.metadata.namespace, full_name(each.pod)),
    )
    return [
        _goes(what_if, pod, node, each.pod, other_place(what_if, each.pod) if elsewhere else "")
        for each in others[:_OTHERS_MAX]
    ]


def _goes(what_if: WhatIfCluster, pod: core_v1.Pod, node: str, other: core_v1.Pod, place: str) -> _Part:
    """One pod of a node makes room. place: where it also fits."""
    name, patch = full_name(other), delete_of("Pod", other.metadata.name, other.metadata.namespace)
    if are_siblings(pod, [other]):
        return _Part(Rank.OTHERS, f"wait until pod {name} on node {node} ends", patch, waits=True)
    # Who is created anew may come back to the node that it has left.
    maker = workload_of(what_if, other) if place and not other.spec.resource_claims else ""
    stays = f"; a nodeSelector in {maker} keeps it off node {node}" if maker else ""
    fits = f" ({FITS_TOO} node {place}{stays})" if place else ""
    # To move a pod that does not need the node's devices harms no one.
    rank = Rank.NODE + 1 if place and not other.spec.resource_claims else Rank.OTHERS
    return _Part(rank, f"delete pod {name} on node {node}{fits}, or wait until it ends", patch)


def _ports(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> list[_Part]:
    """Delete the pods that listen on the ports; where those are recreated, use another port, or none."""
    users = port_users(what_if, pod, info)
    if any(comes_back(each.pod) for each in users):
        return _other_port(pod, users)
    return [*_others_go(what_if, pod, info.name, users), *_no_port(pod, users)]


def _no_port(pod: core_v1.Pod, users: Sequence[PodInfo]) -> Iterator[_Part]:
    """No host port for replicas of one workload, of which each node can have only one; with hostNetwork there is no choice."""
    if pod.spec.host_network or not are_siblings(pod, [each.pod for each in users]):
        return
    taken = {number for each in users for _, _, number in each.profile.host_ports}
    operations, shown = [], []
    for index, container in enumerate(pod.spec.containers):
        for at, port in enumerate(container.ports):
            if port.host_port in taken:
                operations.append({"op": "remove", "path": f"/spec/containers/{index}/ports/{at}/hostPort"})
                shown.append(f"{port.host_port} of container {container.name}")
    if operations:
        patch = patch_of("Pod", pod.metadata.name, *operations, namespace=pod.metadata.namespace, recreate=True)
        text = f"drop {named('hostPort', shown)} in the pod; a Service reaches its pods without one"
        yield _Part(Rank.RELAX, text, patch)


def _other_port(pod: core_v1.Pod, users: Iterable[PodInfo]) -> list[_Part]:
    """The next host port; with hostNetwork the container would also have to listen there."""
    taken = {number for each in users for _, _, number in each.profile.host_ports}
    found = []
    for index, container in enumerate(pod.spec.containers):
        for at, port in enumerate(container.ports):
            if port.host_port in taken and port.host_port < _PORT_MAX and not pod.spec.host_network:
                path = f"/spec/containers/{index}/ports/{at}/hostPort"
                text = f"set hostPort: {port.host_port + 1} instead of {port.host_port} in the pod"
                found.append(_Part(Rank.RELAX, text, _pod_patch(pod, path, port.host_port + 1, recreate=True)))
    return found


def port_users(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> list[PodInfo]:
    """The pods of a node that listen on host ports which a pod wants."""
    wanted = {(protocol, number) for _, protocol, number in what_if.cluster.profiles.of(pod).host_ports}
    return [
        each
        for each in info.pods.values()
        if any((protocol, number) in wanted for _, protocol, number in each.profile.host_ports)
    ]


def _neighbours(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> list[_Part]:
    """Required rules about other pods, made preferred."""
    found = []
    apart = kept_apart(what_if, pod, info)
    # Similar pods have the same rule, which counts in both directions.
    alike = [each.pod for each in apart if each.pod.metadata.labels == pod.metadata.labels]
    others = [each for each in apart if each.pod.metadata.labels != pod.metadata.labels]
    spreads = as_json(pod)["spec"].get("topologySpreadConstraints", [])
    hard = hard_spreads(pod)
    if hard:
        # A preferred constraint cannot have minDomains.
        kept = [{name: value for name, value in each.items() if name != "minDomains"} for each in spreads]
        soft = [{**each, "whenUnsatisfiable": SCHEDULE_ANYWAY} for each in kept]
        keys = listed(each.topology_key for each in hard)
        text = f"set whenUnsatisfiable: {SCHEDULE_ANYWAY} in the pod's topology spread constraint on {keys}"
        found.append(_Part(Rank.RELAX, text, _pod_patch(pod, "/spec/topologySpreadConstraints", soft, recreate=True)))
    for member, word in (("podAntiAffinity", "anti-affinity"), ("podAffinity", "affinity")):
        patch = _preferred(pod, member)
        if patch is None:
            continue
        text = f"prefer the pod's {word} to other pods instead of requiring it"
        found.append(_Part(Rank.RELAX, text, patch))
        more = tuple(other for each in alike if (other := _preferred(each, member)) is not None)
        if more:
            text = (
                f"prefer the {word} instead of requiring it, in this pod and in {named('pod', map(full_name, alike))}"
            )
            if are_siblings(pod, alike):
                text = f"prefer the {word} instead of requiring it in the pod"
            found.append(_Part(Rank.RELAX, text, patch, more))
    repelled = repelled_by(what_if, pod, info)
    narrower = [_narrowed(repelled)] if repelled is not None and repelled.is_wide else []
    narrower += [_unlabelled(repelled)] if repelled is not None and repelled.labels else []
    return [*narrower, *found, *_others_go(what_if, pod, info.name, others)]


class Repelled(NamedTuple):
    """Pods near a node whose required anti-affinity is about a pod that does not ask for it. at: the place of the term in each of them."""

    pods: tuple[core_v1.Pod, ...]
    at: int
    term: core_v1.PodAffinityTerm
    pod: core_v1.Pod

    @property
    def text(self) -> str:
        """Whom the term keeps away."""
        what = f"pods with {named('label', [_labels_text(self.labels)])}" if self.labels else "such pods"
        return f"{what} away{', of other namespaces, too' if self.is_wide else ''}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the pod that the term is about."""
        selector = self.term.label_selector
        keys = [*selector.match_labels, *(each.key for each in selector.match_expressions)] if selector else []
        return {key: self.pod.metadata.labels[key] for key in keys if key in self.pod.metadata.labels}

    @property
    def is_wide(self) -> bool:
        """Whether it is about a pod of another namespace than its own."""
        return self.pods[0].metadata.namespace != self.pod.metadata.namespace


def repelled_by(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> Repelled | None:
    """Who near a node keeps a pod away that has no such rule itself, and by which of its terms; None if no one does."""
    if what_if.cluster.profiles.of(pod).anti_affinity_terms:
        return None
    found: list[tuple[core_v1.Pod, int]] = []
    for each in kept_apart(what_if, pod, info):
        at = next(
            (at for at, term in enumerate(each.profile.anti_affinity_terms) if _is_meant(what_if, term, pod)), None
        )
        if at is not None:
            found.append((each.pod, at))
    if not found:
        return None
    first, at = found[0]
    affinity = first.spec.affinity
    anti = affinity.pod_anti_affinity if affinity is not None else None
    assert anti is not None, "it has the term"
    alike = tuple(each for each, there in found if there == at)
    return Repelled(alike, at, anti.required_during_scheduling_ignored_during_execution[at], pod)


def _is_meant(what_if: WhatIfCluster, term: PodTerm, pod: core_v1.Pod) -> bool:
    namespace = what_if.get(core_v1.Namespace, pod.metadata.namespace)
    labels = namespace.metadata.labels if namespace is not None else {}
    return term.matches(pod.metadata.namespace, pod.metadata.labels, labels)


def _narrowed(repelled: Repelled) -> _Part:
    """The rule is about its own namespace only, in all pods that have it."""
    path = f"/spec/affinity/podAntiAffinity/{_REQUIRED}/{repelled.at}"
    term = repelled.term
    gone = ["namespaceSelector"] if term.namespace_selector is not None else []
    gone += ["namespaces"] if term.namespaces else []
    operations = [{"op": "remove", "path": f"{path}/{each}"} for each in gone]
    patches = [
        patch_of("Pod", each.metadata.name, *operations, namespace=each.metadata.namespace, recreate=True)
        for each in repelled.pods
    ]
    maker = controller_of(repelled.pods[0])
    whose = (
        f"{maker.kind} {repelled.pods[0].metadata.namespace}/{maker.name}"
        if maker is not None
        else named("pod", map(full_name, repelled.pods))
    )
    text = f"drop {joined(gone)} from the anti-affinity of {whose}, so that it is about pods of its own namespace only"
    return _Part(Rank.RELAX, text, patches[0], tuple(patches[1:]))


def _unlabelled(repelled: Repelled) -> _Part:
    """The pod without the labels that others keep away; Services and selectors may need them."""
    metadata = repelled.pod.metadata
    operations = [{"op": "remove", "path": f"/metadata/labels/{pointer(key)}"} for key in repelled.labels]
    text = f"drop {named('label', [_labels_text(repelled.labels)])} from the pod, if nothing selects it by that"
    return _Part(Rank.NODE, text, patch_of("Pod", metadata.name, *operations, namespace=metadata.namespace))


def _preferred(pod: core_v1.Pod, member: str) -> Patch | None:
    """A pod's required terms of one kind of affinity, made preferred; None if it has none."""
    affinity = as_json(pod)["spec"].get("affinity", {})
    terms = affinity.get(member, {}).get(_REQUIRED, [])
    if not terms:
        return None
    preferred = [{"weight": 100, "podAffinityTerm": term} for term in terms]
    wish = {_PREFERRED: [*affinity[member].get(_PREFERRED, []), *preferred]}
    return _pod_patch(pod, f"/spec/affinity/{member}", wish, recreate=True)


def kept_apart(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> list[PodInfo]:
    """Pods near a node that conflict with the pod by anti-affinity, theirs or its own."""
    own = what_if.cluster.profiles.of(pod)

    def meant(term: PodTerm, other: core_v1.Pod, there: NodeInfo) -> bool:
        key = term.topology_key
        if key not in info.labels or info.labels[key] != there.labels.get(key):
            return False
        namespace = what_if.get(core_v1.Namespace, other.metadata.namespace)
        labels = namespace.metadata.labels if namespace is not None else {}
        return term.matches(other.metadata.namespace, other.metadata.labels, labels)

    return [
        each
        for there in what_if.cluster.nodes.values()
        for each in there.pods.values()
        if any(meant(term, each.pod, there) for term in own.anti_affinity_terms)
        or any(meant(term, pod, there) for term in each.profile.anti_affinity_terms)
    ]


def _lower_requests(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> list[_Part]:
    """What a pod with one container asks for, lowered to what is free."""
    lacking = shortages(what_if.cluster.profiles.of(pod), info)
    amounts = {each.resource: each.free for each in lacking if each.free != "0"}
    if not lacking or len(amounts) < len(lacking) or pod.spec.init_containers or not pod.spec.containers:
        return []
    if len(pod.spec.containers) > 1:
        return _lower_largest(pod, lacking[0]) if len(lacking) == 1 else []
    resources = as_json(pod)["spec"]["containers"][0].get("resources", {})
    changed = {**resources, "requests": {**resources.get("requests", {}), **amounts}}
    if any(name in resources.get("limits", {}) for name in amounts):
        changed["limits"] = {**resources["limits"], **amounts}
    shown = listed(f"{value} {name}" for name, value in amounts.items())
    patch = _pod_patch(pod, "/spec/containers/0/resources", changed, recreate=True)
    # Undo an administrator's change before asking for less.
    rank = Rank.DROP if any(each.much and not each.never for each in lacking) else Rank.NODE + 2
    return [_Part(rank, f"ask for at most {shown} in the pod", patch)]


def _lower_largest(pod: core_v1.Pod, lacking: Shortage) -> list[_Part]:
    """Of several containers, the largest request is lowered until the pod fits."""
    name = lacking.resource
    asked = [
        each.resources.requests[name].nano if name in each.resources.requests else 0 for each in pod.spec.containers
    ]
    index = max(range(len(asked)), key=lambda each: asked[each])
    left = asked[index] - (Quantity.parse(lacking.wanted).nano - Quantity.parse(lacking.free).nano)
    if left <= 0:
        return []
    container = pod.spec.containers[index]
    amount = str(Quantity.from_nano(left, container.resources.requests[name].format))
    resources = as_json(pod)["spec"]["containers"][index].get("resources", {})
    changed = {**resources, "requests": {**resources.get("requests", {}), name: amount}}
    if name in resources.get("limits", {}):
        changed["limits"] = {**resources["limits"], name: amount}
    patch = _pod_patch(pod, f"/spec/containers/{index}/resources", changed, recreate=True)
    rank = Rank.NODE + 2 if 2 * left >= asked[index] else Rank.DROP
    return [_Part(rank, f"ask for at most {amount} {name} in container {container.name} of the pod", patch)]


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
    patches = [Patch(action="create", object=new), *slices_like(what_if, like, _NEW_NODE)]
    return [Candidate(rank=Rank.ADD_NODE, text=f"add one node like {like.name}", patches=tuple(patches))]


def slices_like(what_if: WhatIfCluster, like: NodeInfo, node: str) -> Iterator[Patch]:
    """The slices of a node, made for another one."""
    for slice_ in what_if.all(api.ResourceSlice):
        if slice_.spec.node_name == like.name:
            yield Patch(action="create", object=_for_node(as_json(slice_), node))


def _for_node(slice_: dict[str, Any], node: str) -> dict[str, Any]:
    spec = slice_["spec"]
    # Edited dumps may have lost the names.
    pool = {**spec["pool"], "name": f"{spec['pool'].get('name', '')}-{node}"}
    name = f"{node}-{slice_['metadata'].get('name', '')}"
    devices = [{key: part for key, part in each.items() if key != "taints"} for each in spec.get("devices", [])]
    new = {**spec, "nodeName": node, "pool": pool, **({"devices": devices} if devices else {})}
    return {**slice_, "metadata": {"name": name}, "spec": new}
