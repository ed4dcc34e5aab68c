"""Finds the pods of a driver by names, labels and images, because no object lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.containers import container_trouble
from allot.core.advice.explain.causes.creating import creation_advice
from allot.core.advice.explain.causes.labellers import absent_labeller
from allot.core.advice.explain.causes.revisions import revision, spoken_of
from allot.core.advice.explain.causes.starting import init_container
from allot.core.advice.explain.causes.vendors import vendor_of
from allot.core.advice.explain.causes.webhooks import refusal
from allot.core.advice.explain.daemons import lacking_labels, left_out, selected_labels, taken_in
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.program_settings import containers_in
from allot.core.advice.explain.remedies.templates import of_workload, workload_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import listed, named, of_several, one_line
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.codec import DecodeError
from allot.core.model.resource_v1 import ResourceSlice
from allot.core.workloads.daemonset_nodes import Placement, placement_of, target_node

# What kubelet plugins have in their names.
_WORDS = ("dra", "kubelet-plugin", "kubeletplugin", "device-driver")
_SHOWN_MAX = 2
# Labels with which administrators tell kinds of nodes apart.
_KINDS = frozenset(
    ("pool", "nodepool", "node-pool", "gke-nodepool", "nodegroup", "node-group", "class", "type", "model", "product")
)
_DEVICE_WORDS = frozenset(("gpu", "gpus", "accelerator", "tpu", "npu", "rdma"))
_WORD = re.compile(r"[^a-z]+")
# Models of accelerators, as in pool=h200 or accelerator=nvidia-l40s.
_MODEL = re.compile(r"(?:^|[^a-z0-9])(?:[abhlptv]\d{2,3}s?|gb\d{3}|gh\d{3}|mi\d{3}[a-z]?|rtx|gaudi\d?)(?:$|[^a-z0-9])")
_POD_SECURITY = "violates PodSecurity"
_COMPLAINTS = ("Unhealthy", "Failed", "BackOff")
_PROBE = re.compile(r"^\w+ probe (?:failed|errored)[^:]*: ")
_SKIPS = re.compile(r"(?P<who>.*) skips (?:the node|it): it (?P<why>.*)")
_WEBHOOK = re.compile(r'admission webhook "(?P<name>[^"]+)" denied the request: (?P<why>.*)')


class FailingPod(NamedTuple):
    """A pod of a driver that does not run. text: phrased to follow a colon."""

    node: str
    text: str
    advice: str


def of_all(found: Sequence[FailingPod]) -> str:
    """What is wrong on the first of some nodes, in the plural if a DaemonSet skips them all for the same reason."""
    skips = _SKIPS.fullmatch(found[0].text)
    if skips is None or len(found) == 1 or any(each.text != found[0].text for each in found):
        return found[0].text
    return f"{skips['who']} skips them: they {of_several(skips['why'])}"


def failing(what_if: WhatIfCluster, driver: str, node: str = "", *, controllers: bool = False) -> list[FailingPod]:
    """What is wrong with the pods of a driver. node: only there; controllers: also those that work for all nodes."""
    found = []
    for pod in what_if.all(core_v1.Pod):
        if not _is_of_driver(pod, driver, controllers=controllers):
            continue
        waiting = _waiting(pod)
        if waiting is not None and node in ("", waiting.node):
            found.append(waiting)
        if node and pod.spec.node_name != node:
            continue
        trouble = container_trouble(what_if, pod)
        hangs = init_container(what_if, pod) if trouble is None and pod.spec.node_name else None
        if hangs is not None and hangs.reason is Reason.STARTING:
            trouble = hangs
        if trouble is not None:
            found.append(_in_trouble(what_if, pod, trouble))
    return found


def failing_of_vendor(what_if: WhatIfCluster, vendor: str, node: str) -> list[FailingPod]:
    """What is wrong with the daemons of a vendor on a node, which make its devices usable together: the kernel driver first, for which the
    others wait."""
    found = []
    info = what_if.cluster.nodes.get(node)
    for pod in (each.pod for each in info.pods.values()) if info is not None else ():
        if not any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references):
            continue
        text = " ".join((full_name(pod), *(container.image for container in pod.spec.containers))).lower()
        trouble = container_trouble(what_if, pod) if vendor in text else None
        if trouble is not None and trouble.advice:
            found.append(("driver" not in pod.metadata.name, _in_trouble(what_if, pod, trouble)))
    return [each for _, each in sorted(found)]


def _in_trouble(what_if: WhatIfCluster, pod: core_v1.Pod, trouble: Diagnosis) -> FailingPod:
    """What is wrong with a driver's pod that has a node, and what is new about it."""
    node, text = pod.spec.node_name, f"in pod {full_name(pod)}, {trouble.text}"
    fix = f"fix the driver's pod {full_name(pod)} on node {node}: {_for_its_workload(what_if, pod, trouble.advice[0])}"
    new = revision(what_if, pod, trouble.text)
    if new is not None:
        return FailingPod(node, f"{text}; {new.text}", new.advice)
    setting = spoken_of(what_if, pod, trouble.text) if trouble.reason is Reason.CRASH else None
    maker = controller_of(pod)
    if setting is None or maker is None:
        return FailingPod(node, text, fix)
    where = f"{maker.kind} {pod.metadata.namespace}/{maker.name}"
    advice = f'correct {setting.name} in {where}, which is "{setting.value}"; or {fix}'
    return FailingPod(node, f"{text}; {setting.text}", advice)


def _for_its_workload(what_if: WhatIfCluster, pod: core_v1.Pod, advice: str) -> str:
    """Advice about a driver's pod that does not speak of "the pod", as that is the one that was asked about."""
    kind, _, name = workload_of(what_if, pod).partition(" ")
    return of_workload(advice, f"{kind} {pod.metadata.namespace}/{name}" if name else f"pod {full_name(pod)}", "")


def plugins(what_if: WhatIfCluster, driver: str, node: str) -> list[core_v1.Pod]:
    """The pods that look like a driver's kubelet plugin on a node."""
    return [pod for pod in what_if.all(core_v1.Pod) if pod.spec.node_name == node and _is_of_driver(pod, driver)]


def plugins_by_node(what_if: WhatIfCluster, driver: str) -> dict[str, list[core_v1.Pod]]:
    """The pods that look like a driver's kubelet plugin, by their nodes."""
    found: dict[str, list[core_v1.Pod]] = {}
    for pod in what_if.all(core_v1.Pod):
        if pod.spec.node_name and _is_of_driver(pod, driver):
            found.setdefault(pod.spec.node_name, []).append(pod)
    return found


def not_made(what_if: WhatIfCluster, driver: str) -> FailingPod | None:
    """The DaemonSet of a driver that has no pods, because they are refused or no node matches; None if it has some."""
    nodes = [info.node for info in what_if.cluster.nodes.values()]
    for set_, placement in _daemon_sets(what_if, driver):
        name, metadata = f"DaemonSet {full_name(set_)}", set_.metadata
        if any(
            metadata.uid in {owner.uid for owner in pod.metadata.owner_references} for pod in what_if.all(core_v1.Pod)
        ):
            continue
        refused = refusal(what_if, set_)
        if refused:
            advice = creation_advice(what_if, "DaemonSet", metadata, refused)
            fix = advice[0] if advice else f"fix what the API server refuses for {name}"
            if _POD_SECURITY in refused:
                # A driver needs access to its host.
                fix = f"label namespace {metadata.namespace} with pod-security.kubernetes.io/enforce=privileged, as drivers need"
            return FailingPod("", f"the pods of {name} cannot be created: {refused}", fix)
        reasons = {node.metadata.name: next(iter(left_out(placement, node)), "") for node in nodes}
        if nodes and all(reasons.values()):
            # Nodes without devices are skipped rightly.
            first = next((node for node in nodes if has_device_words(node)), nodes[0])
            text = f"{name} skips every node: {_reason_text(reasons, first.metadata.name)}"
            fix = _let_run(placement, first, name)
            return _unlabelled(what_if, placement, nodes, FailingPod("", text, fix))
    return None


def _let_run(placement: Placement, node: core_v1.Node, name: str) -> str:
    """What makes a DaemonSet run that runs on no node. node: one that probably has the hardware."""
    labels = lacking_labels(placement, node)
    if labels:
        return f"label the nodes that have the hardware with {', '.join(labels)}"
    if placement.has_untolerated(node):
        return taken_in(placement, node, name)
    return f"let {name} run on the nodes that have the hardware"


def _reason_text(reasons: Mapping[str, str], first: str) -> str:
    """Why nodes are skipped: one reason for all, or that of the first and of those like it."""
    alike = [name for name, reason in reasons.items() if reason == reasons[first]]
    if len(alike) == len(reasons):
        return f"each {reasons[first]}"
    text = reasons[first] if len(alike) == 1 else of_several(reasons[first])
    return f"{named('node', alike)} {text}"


def _unlabelled(
    what_if: WhatIfCluster, placement: Placement, nodes: Sequence[core_v1.Node], found: FailingPod
) -> FailingPod:
    """A DaemonSet that skips nodes, and why they lack its labels, if that is known."""
    with_devices = [node for node in nodes if has_device_words(node)]
    labeller = absent_labeller(what_if, selected_labels(placement), with_devices)
    if labeller is None:
        return found
    return found._replace(text=f"{found.text}; {labeller.text}", advice=labeller.advice)


def _waiting(pod: core_v1.Pod) -> FailingPod | None:
    """A pending pod of a driver: it is meant for one node and does not fit there."""
    refused = next((each for each in pod.status.conditions if each.reason == "Unschedulable"), None)
    if pod.spec.node_name or refused is None:
        return None
    node = target_node(pod)
    where = f" for node {node}" if node else ""
    why = f"allot explain {pod.metadata.name} -n {pod.metadata.namespace}"
    return FailingPod(
        node,
        f"pod {full_name(pod)}{where} is pending ({one_line(refused.message)})",
        f"make room for the driver's pod {full_name(pod)}{where}: {why}",
    )


def failing_text(found: Sequence[FailingPod]) -> str:
    """What is wrong with pods, phrased to follow a colon; empty if nothing is."""
    return listed([each.text for each in found], _SHOWN_MAX)


def complaint(what_if: WhatIfCluster, driver: str, node: str) -> FailingPod | None:
    """The last report about a driver's pod that runs on a node and is not ready; None if there is none."""
    for pod in what_if.all(core_v1.Pod):
        if pod.spec.node_name != node or not _is_of_driver(pod, driver):
            continue
        ready = next((each for each in pod.status.conditions if each.type == "Ready"), None)
        events = events_of(what_if, pod, *_COMPLAINTS)
        if not events or (ready is not None and ready.status == "True"):
            continue
        said = _PROBE.sub("", one_line(events[0].message))
        refused = _WEBHOOK.search(said)
        if refused is not None:
            name, why = refused["name"], refused["why"]
            text = f'admission webhook "{name}" refuses what pod {full_name(pod)} publishes: {why}'
            return FailingPod(node, text, f"fix what admission webhook {name} refuses ({why})")
        advice = (
            f"check pod {full_name(pod)} on node {node}: kubectl logs -n {pod.metadata.namespace} {pod.metadata.name}"
        )
        return FailingPod(node, f"pod {full_name(pod)} is not ready ({said})", advice)
    return None


def unselected(what_if: WhatIfCluster, driver: str, node: str) -> FailingPod | None:
    """The DaemonSet of a driver that skips a node; None if none does."""
    info = what_if.cluster.nodes.get(node)
    for set_, placement in _daemon_sets(what_if, driver) if info is not None else ():
        assert info is not None
        for why in left_out(placement, info.node):
            name = f"DaemonSet {full_name(set_)}"
            skips = FailingPod(node, f"{name} skips the node: it {why}", taken_in(placement, info.node, name))
            return _unlabelled(what_if, placement, [info.node], skips)
    return None


def left_out_with_devices(what_if: WhatIfCluster, driver: str) -> list[FailingPod]:
    """Nodes that a driver's DaemonSet skips although their names and labels suggest that they have devices, for example nodes just
    added."""
    found = []
    published = {each.spec.node_name for each in what_if.all(ResourceSlice) if each.spec.driver == driver}
    for info in what_if.cluster.nodes.values():
        if has_device_words(info.node) and info.name not in published:
            each = unselected(what_if, driver, info.name)
            found += [each] if each is not None else []
    return found


def has_device_words(node: core_v1.Node) -> bool:
    """Whether the name, a label or a taint of a node suggests that it has devices."""
    labels = node.metadata.labels
    keys = (*labels, *(taint.key for taint in node.spec.taints))
    names = (node.metadata.name, *(key.rpartition("/")[2] for key in keys))
    return any(map(speaks_of_devices, names)) or any(
        _MODEL.search(value.lower()) for key, value in labels.items() if key.rpartition("/")[2] in _KINDS
    )


def speaks_of_devices(name: str) -> bool:
    """Whether a name has a word for accelerators."""
    return bool(_DEVICE_WORDS & set(_WORD.split(name.lower())))


def _daemon_sets(what_if: WhatIfCluster, driver: str) -> Iterator[tuple[DaemonSet, Placement]]:
    for set_ in what_if.all(DaemonSet):
        template = set_.spec.template
        if template is None:
            continue
        try:
            placement = placement_of(template)
        except DecodeError:
            continue
        images = [str(each.get("image", "")) for each in containers_in(template)]
        if _is_about(driver, [full_name(set_), *set_.metadata.labels.values(), *images]):
            yield set_, placement


def _is_of_driver(pod: core_v1.Pod, driver: str, *, controllers: bool = False) -> bool:
    """Whether a pod looks like the kubelet plugin of a driver, which is a daemon, or like its controller."""
    makers = ("DaemonSet", "ReplicaSet", "StatefulSet") if controllers else ("DaemonSet",)
    if not any(owner.kind in makers for owner in pod.metadata.owner_references):
        return False
    images = (container.image for container in pod.spec.containers)
    return _is_about(driver, [full_name(pod), *pod.metadata.labels.values(), *images])


def _is_about(driver: str, texts: Sequence[str]) -> bool:
    """Whether names contain the driver's name, or its vendor's and the word for a driver."""
    text = " ".join(texts).lower()
    return driver in text or (vendor_of(driver) in text and any(word in text for word in _WORDS))
