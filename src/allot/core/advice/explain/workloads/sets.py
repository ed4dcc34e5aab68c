"""StatefulSets, whose pods are created in order, and DaemonSets, whose pods belong to nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes.driver_pods import has_device_words
from allot.core.advice.explain.causes.labellers import absent_labeller
from allot.core.advice.explain.daemons import left_out, selected_labels, taken_in
from allot.core.advice.explain.node_troubles import taint_text
from allot.core.advice.explain.remedies.templates import PARALLEL, deletion
from allot.core.advice.explain.report import Change, Explanation, Reason
from allot.core.advice.explain.wording import count, joined, listed, named, of_several
from allot.core.advice.explain.workloads.scene import (
    HeldBack,
    Scene,
    all_ready,
    as_wanted,
    budgets,
    held_back,
    live_pods,
    mismatch,
    not_as_wanted,
    not_created,
    of_pod,
    ready_text,
    terminating,
    unobserved,
)
from allot.core.advice.nearest import nearest
from allot.core.model import core_v1
from allot.core.model.apps_v1 import DaemonSet, StatefulSet
from allot.core.model.codec import DecodeError
from allot.core.workloads.daemonset_nodes import Placement, placement_of, target_node
from allot.core.workloads.pod_states import is_ready

_REVISION = "controller-revision-hash"


# --- StatefulSet ---


def explain_stateful_set(scene: Scene, found: StatefulSet, *, briefly: bool) -> Explanation:
    """Why a StatefulSet does not have the wanted pods."""
    kind, spec, status = "StatefulSet", found.spec, found.status
    early = mismatch(kind, found, spec.selector, spec.template) or unobserved(
        scene, kind, found, status.observed_generation, "statefulset-controller"
    )
    if early is not None:
        return early
    wanted = 1 if spec.replicas is None else spec.replicas
    owned = scene.owned_by(core_v1.Pod, found)
    pods = sorted(live_pods(owned), key=lambda pod: _ordinal(pod.metadata.name))
    ready = ready_text(sum(map(is_ready, pods)), wanted)
    first = next((pod for pod in pods if not is_ready(pod)), None)
    if first is None:
        if len(pods) < wanted:
            leaving = terminating(scene, owned, briefly=briefly)
            if leaving is not None:
                return _not_replaced(scene, found, ready, leaving)
            return not_created(scene, kind, found, ready, lacking=wanted - len(pods)) or not_as_wanted(
                kind, found, Reason.PROGRESSING, f"{ready}: its controller is working on it"
            )
        old = [pod for pod in pods if status.update_revision and _is_old(pod, found)]
        if not old:
            return as_wanted(kind, found, all_ready(wanted))
        return _outdated(found, [pod.metadata.name for pod in old])
    ordered = spec.pod_management_policy != PARALLEL
    held = held_back(scene, [first] if ordered else pods, briefly=briefly)
    assert held is not None, "a pod that is not ready holds the set back"
    advice: list[str] = []
    text = f"{ready}: {held.text}"
    if ordered and len(pods) < wanted:
        verb = "is" if wanted - len(pods) == 1 else "are"
        text += f"; pods are created one at a time (OrderedReady), so {count(wanted - len(pods), 'pod')} after it {verb} not created"
    if ordered and _is_old(first, found):
        revision, newest = first.metadata.labels.get(_REVISION, ""), found.status.update_revision
        which = f"it is of revision {revision}, " if revision else ""
        text += f"; {which}its template has been changed since (updateRevision {newest}), and a StatefulSet does not replace a pod that never became ready"
        advice.append(
            f"kubectl delete pod {first.metadata.name} -n {first.metadata.namespace}, to recreate it from revision {newest}"
        )
    reason = Reason.ORDERED if ordered and len(pods) < wanted else held.explanation.reason
    made = not_as_wanted(kind, found, reason, text, advice=advice)
    explanation = held.explanation
    if ordered:
        explanation = replace(explanation, changes=_with_deletion(found, first, explanation.changes))
    return of_pod(made, explanation, budgets(scene, pods))


def _not_replaced(scene: Scene, found: StatefulSet, ready: str, leaving: HeldBack) -> Explanation:
    """A pod that was deleted and stays: the new one would have its name."""
    text = f"{ready}: {leaving.text}; a StatefulSet creates the pod of a name again only when the old one is gone"
    made = not_as_wanted("StatefulSet", found, leaving.explanation.reason, text)
    return of_pod(made, leaving.explanation, budgets(scene, leaving.pods))


def _with_deletion(found: StatefulSet, pod: core_v1.Pod, changes: Sequence[Change]) -> tuple[Change, ...]:
    """Changes to the template, which do not reach a pod that never became ready: a StatefulSet does not replace it by itself."""
    whose = f"StatefulSet {found.metadata.name}"
    return tuple(
        replace(each, text=f"{each.text}{deletion(pod)}")
        if f" {whose}" in each.text and "delete pod" not in each.text
        else each
        for each in changes
    )


def _ordinal(name: str) -> tuple[int, str]:
    number = name.rpartition("-")[2]
    return (int(number) if number.isdecimal() and len(number) < 10 else 0, name)


def _is_old(pod: core_v1.Pod, found: StatefulSet) -> bool:
    """Whether a pod is of an earlier template; one without the label that says so is, while the set is being updated."""
    status = found.status
    revision = pod.metadata.labels.get(_REVISION, "") or status.current_revision
    return bool(revision and status.update_revision) and revision != status.update_revision


def _outdated(found: StatefulSet, names: list[str]) -> Explanation:
    strategy = found.spec.update_strategy
    rolling = strategy.rolling_update
    if strategy.type == "OnDelete":
        text = f"has {count(len(names), 'pod')} of an older template ({listed(names)}): with OnDelete they stay until they are deleted"
        return as_wanted("StatefulSet", found, text)
    if rolling is not None and rolling.partition:
        text = (
            f"has all pods ready; {listed(names)} keep an older template because of its partition {rolling.partition}"
        )
        return as_wanted("StatefulSet", found, text)
    text = f"has {count(len(names), 'pod')} of an older template ({listed(names)}): its update continues"
    return not_as_wanted("StatefulSet", found, Reason.PROGRESSING, text)


# --- DaemonSet ---


def explain_daemon_set(scene: Scene, found: DaemonSet, *, briefly: bool) -> Explanation:
    """Why a DaemonSet does not run on every matching node."""
    kind, spec, status = "DaemonSet", found.spec, found.status
    early = mismatch(kind, found, spec.selector, spec.template) or unobserved(
        scene, kind, found, status.observed_generation, "daemonset-controller"
    )
    if early is not None:
        return early
    wanted = status.desired_number_scheduled
    if not wanted:
        return _nowhere(scene, found)
    pods = scene.owned_by(core_v1.Pod, found)
    ready = f"runs on {status.number_ready} of {count(wanted, 'node')}"
    if len(live_pods(pods)) < wanted:
        refused = not_created(scene, kind, found, ready, lacking=wanted - len(live_pods(pods)))
        if refused is not None:
            return refused
    held = held_back(scene, pods, briefly=briefly)
    if held is not None:
        made = not_as_wanted(kind, found, held.explanation.reason, f"{ready}: {_of_all_nodes(pods, held)}")
        return of_pod(made, held.explanation, budgets(scene, pods))
    if status.number_ready < wanted or status.updated_number_scheduled < wanted:
        return not_as_wanted(kind, found, Reason.PROGRESSING, f"{ready}: its controller is working on it")
    return as_wanted(kind, found, f"runs on {wanted} of {count(wanted, 'node')}")


def _of_all_nodes(pods: Sequence[core_v1.Pod], held: HeldBack) -> str:
    """What holds pods back; one sentence for all nodes if they lack devices."""
    home = target_node(held.pods[0])
    without = f"created it for node {home}, which has no devices"
    if without not in held.text:
        return held.text
    waiting = sorted(target_node(pod) for pod in live_pods(pods) if not pod.spec.node_name)
    why = held.text.partition(without)[2].partition("; ")[0]
    have = "has" if len(waiting) == 1 else "have"
    it = "its pod there is" if len(waiting) == 1 else "its pods there are"
    return f"{named('node', waiting)} {have} no devices{why}, and {it} pending"


def _nowhere(scene: Scene, found: DaemonSet) -> Explanation:
    nodes = scene.what_if.all(core_v1.Node)
    lacking = scene.what_if.unread.get(core_v1.Node)
    if lacking is not None or not nodes:
        why = "nodes may not be listed here" if lacking is not None else "the cluster has no nodes"
        return not_as_wanted("DaemonSet", found, Reason.NO_NODE_MATCHES, f"runs on no node: no node matches, and {why}")
    try:
        placement = placement_of(found.spec.template) if found.spec.template is not None else None
    except DecodeError:
        placement = None
    reasons: dict[str, list[str]] = {}
    for node in nodes:
        for reason in left_out(placement, node) if placement is not None else ():
            reasons.setdefault(reason, []).append(node.metadata.name)
    told = [
        f"{count(len(names), 'node')} ({listed(sorted(names))}) {reason if len(names) == 1 else of_several(reason)}"
        for reason, names in reasons.items()
    ]
    advice = list(_let_on(found.metadata.name, placement, nodes)) if placement is not None else []
    text = f"runs on no node: none of {count(len(nodes), 'node')} matches its template{f': {joined(told)}' if told else ''}"
    with_devices = [node for node in nodes if has_device_words(node)]
    keys = selected_labels(placement) if placement is not None else []
    labeller = absent_labeller(scene.what_if, keys, with_devices)
    if labeller is not None:
        text += f"; {labeller.text}"
        by_hand = [taken_in(placement, node, "") for node in with_devices[:1]] if placement is not None else []
        advice = [labeller.advice, *(f"until then, {each}" for each in by_hand)]
    return not_as_wanted("DaemonSet", found, Reason.NO_NODE_MATCHES, text, advice=advice)


def _let_on(name: str, placement: Placement, nodes: Sequence[core_v1.Node]) -> Iterator[str]:
    """What would let a DaemonSet run: tolerations for the nodes that it selects, or other labels to select."""
    labels = dict(placement.node_selector)
    chosen = [node for node in nodes if labels.items() <= node.metadata.labels.items()]
    tainted = [node for node in chosen if placement.has_untolerated(node)]
    if tainted:
        taints = placement.untolerated(tainted[0])
        yield f"tolerate {named('taint', map(taint_text, taints))} in the template of DaemonSet {name}"
    if chosen or not labels:
        return
    for key, value in sorted(labels.items()):
        there = sorted({node.metadata.labels[key] for node in nodes if key in node.metadata.labels})
        meant = nearest(value, there) or (there[0] if len(there) == 1 else None)
        similar = nearest(key, {other for node in nodes for other in node.metadata.labels})
        if meant is not None and meant != value:
            yield f"select {key}={meant} instead of {key}={value} in the nodeSelector of DaemonSet {name}"
        elif not there and similar is not None:
            yield f"select {similar} instead of {key} in the nodeSelector of DaemonSet {name}"
        elif not there:
            yield f"label its nodes with {key}={value}, or drop that label from the nodeSelector of DaemonSet {name}"
