"""Nodes and what drivers publish for them: why a node is not ready, and why devices of a slice are given to no one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from allot.core.advice.explain.causes import driver_pods
from allot.core.advice.explain.causes.containers import container_trouble
from allot.core.advice.explain.causes.silent import silent
from allot.core.advice.explain.diagnosis import Diagnosis, patch_of
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.node_troubles import troubles_of
from allot.core.advice.explain.remedies.drivers import Pool
from allot.core.advice.explain.report import Explanation, Reason
from allot.core.advice.explain.trial import pod_subject, would_help
from allot.core.advice.explain.wording import count, duration, listed, named, one_line
from allot.core.advice.explain.workloads.draining import cordoned, emptied
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, live_pods, not_as_wanted
from allot.core.advice.what_if import as_json, full_name
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.apps_v1 import DaemonSet

_NETWORK = re.compile(r"\b(?:cni|network)", re.IGNORECASE)
# Of pods that give nodes their network.
_NETWORK_WORDS = re.compile(r"cni|calico|cilium|flannel|weave|antrea|ovn|kube-router|multus|network", re.IGNORECASE)
# Of more pods than these, not all are tried.
_WAITING_MAX = 8
_PRESSURES = {
    "MemoryPressure": "memory",
    "DiskPressure": "disk space",
    "PIDPressure": "process ids",
}


# --- nodes ---


def explain_node(scene: Scene, found: core_v1.Node, *, briefly: bool) -> Explanation:
    """Why a node takes no pods, or that it does."""
    del briefly
    kind, name = "Node", found.metadata.name
    ready = next((each for each in found.status.conditions if each.type == "Ready"), None)
    if ready is not None and ready.status == "Unknown":
        return _silent(scene, found, ready)
    if ready is not None and ready.status != "True":
        return _not_ready(scene, found, ready)
    short = [
        _PRESSURES[each.type] for each in found.status.conditions if each.type in _PRESSURES and each.status == "True"
    ]
    if short:
        text = f"is short of {listed(short)}: it takes no new pods, and evicts some"
        advice = f"free {listed(short)} on node {name}, or move pods that use much of it"
        return not_as_wanted(kind, found, Reason.NODE_NOT_READY, text, advice=(advice,))
    going = emptied(scene, found)
    if going is not None:
        return going
    failing = _failing_drivers(scene, name)
    if failing:
        text = f"is ready, but driver {failing[0][0]} does not run on it: {failing[0][1].text}"
        return not_as_wanted(kind, found, Reason.NO_DRIVER, text, advice=(failing[0][1].advice,))
    if found.spec.unschedulable:
        return cordoned(scene, found)
    mute = _silent_driver(scene, name)
    if mute is not None:
        text = f"is ready, but driver {mute[0]} has published none of its devices: {mute[1].text}"
        return not_as_wanted(kind, found, Reason.NO_DRIVER, text, advice=(mute[1].advice,))
    return _starting(scene, found) or as_wanted(
        kind, found, f"is ready: {count(len(_pods_on(scene, name)), 'pod')}{_devices_text(scene, name)}"
    )


def _starting(scene: Scene, found: core_v1.Node) -> Explanation | None:
    """A ready node that takes no pods because of a taint which someone should have removed; None if there is no such taint."""
    troubles = troubles_of(scene.what_if, found, found.spec.taints)
    if not troubles:
        return None
    key, trouble = next(iter(troubles.items()))
    waiting = _kept_off(scene, found, key)
    for_it = f", and {named('pod', waiting)} {'waits' if len(waiting) == 1 else 'wait'} for the node" if waiting else ""
    text = f"is ready{_devices_text(scene, found.metadata.name).replace(',', ' with', 1)}, but {trouble.text} (taint {key}){for_it}"
    advice = (trouble.remedy, *([trouble.lasting] if trouble.lasting else []))
    return not_as_wanted("Node", found, Reason.NODE_TAINT, text, advice=advice)


def _kept_off(scene: Scene, found: core_v1.Node, key: str) -> list[str]:
    """Pods that would fit on a node without a taint."""
    kept = [each for each in as_json(found)["spec"]["taints"] if each.get("key") != key]
    patch = patch_of("Node", found.metadata.name, {"op": "replace", "path": "/spec/taints", "value": kept})
    pods = [pod for pod in scene.what_if.all(core_v1.Pod) if not pod.spec.node_name and pod.status.phase == "Pending"]
    return [
        full_name(pod)
        for pod in pods[:_WAITING_MAX]
        if (outcome := would_help(scene.what_if, pod_subject(pod), (patch,), [found.metadata.name])) is not None
        and outcome.schedulable
    ]


def _silent_driver(scene: Scene, node: str) -> tuple[str, driver_pods.FailingPod] | None:
    """A driver of other nodes' devices that publishes none of this one's, although its pod is ready there."""
    drivers = sorted({each.spec.driver for each in scene.what_if.all(api.ResourceSlice)})
    found = ((driver, each) for driver in drivers for each in silent(scene.what_if, driver))
    return next(((driver, each) for driver, each in found if each.node == node), None)


def _pods_on(scene: Scene, node: str) -> list[core_v1.Pod]:
    info = scene.what_if.cluster.nodes.get(node)
    return live_pods(each.pod for each in info.pods.values()) if info is not None else []


def _silent(scene: Scene, found: core_v1.Node, ready: core_v1.NodeCondition) -> Explanation:
    """A kubelet that does not report: no one knows whether it, the machine or the network is down."""
    name = found.metadata.name
    since = ready.last_transition_time
    ago = ""
    if since and scene.what_if.taken_at is not None:
        ago = f" for {duration(int(scene.what_if.taken_at - seconds_of(since)))}"
    leaving = [
        full_name(pod)
        for pod in scene.what_if.all(core_v1.Pod)
        if pod.spec.node_name == name and pod.metadata.deletion_timestamp is not None
    ]
    text = f"is not ready: its kubelet has not reported{ago}, so the kubelet, the machine or its network is down"
    if leaving:
        text += f"; {named('pod', leaving)} cannot end there"
    advice = (
        f"see whether machine {name} runs and is reached, and start its kubelet (systemctl status kubelet)",
        f"if it is off for good: kubectl taint node {name} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, so that its pods go",
    )
    return not_as_wanted("Node", found, Reason.NODE_NOT_READY, text, advice=advice)


def _not_ready(scene: Scene, found: core_v1.Node, ready: core_v1.NodeCondition) -> Explanation:
    """What its kubelet says; if that is the network, the pod that should set it up."""
    name, said = found.metadata.name, one_line(ready.message)
    text = f"is not ready: {said or ready.reason}"
    if _NETWORK.search(said):
        trouble = _network_trouble(scene, name)
        if trouble is not None:
            text = f"is not ready because its network (CNI) is not set up: {trouble.text}"
            return not_as_wanted("Node", found, Reason.NODE_NOT_READY, text, details=(said,), advice=trouble.advice)
        advice = f"check that the pods of the network plugin (CNI) run on node {name}"
        return not_as_wanted("Node", found, Reason.NODE_NOT_READY, text, advice=(advice,))
    advice = f"see the kubelet and the container runtime of node {name} (journalctl -u kubelet)"
    return not_as_wanted("Node", found, Reason.NODE_NOT_READY, text, advice=(advice,))


def _network_trouble(scene: Scene, node: str) -> Diagnosis | None:
    """What is wrong with the pod of a node that should give it its network; None if there is none, or if it runs."""
    for pod in scene.what_if.all(core_v1.Pod):
        maker = controller_of(pod)
        if pod.spec.node_name != node or maker is None or maker.kind != "DaemonSet":
            continue
        images = [each.image for each in pod.spec.containers]
        if not _NETWORK_WORDS.search(" ".join((maker.name, *images))):
            continue
        trouble = container_trouble(scene.what_if, pod)
        if trouble is None:
            continue
        back, advice = _earlier_image(scene, pod, maker.uid)
        text = f"in pod {full_name(pod)}, {trouble.text}{back}"
        return Diagnosis(reason=trouble.reason, text=text, advice=(*advice, *trouble.advice))
    return None


def _earlier_image(scene: Scene, pod: core_v1.Pod, maker: str) -> tuple[str, tuple[str, ...]]:
    """The image with which other pods of a DaemonSet still run, and to go back to it; nothing if it is the same."""
    own = {each.image for each in pod.spec.containers}
    owner = next((each for each in scene.what_if.all(DaemonSet) if each.metadata.uid == maker), None)
    others = scene.owned_by(core_v1.Pod, owner) if owner is not None else []
    images = sorted({each.image for other in others if other is not pod for each in other.spec.containers} - own)
    if owner is None or not images:
        return "", ()
    name = f"DaemonSet {full_name(owner)}"
    return (
        f"; the other pods of {name} run {images[0]}",
        (f"set the image of {name} back to {images[0]}, and delete pod {full_name(pod)}",),
    )


def _failing_drivers(scene: Scene, node: str) -> list[tuple[str, driver_pods.FailingPod]]:
    """Drivers that publish devices for other nodes, and whose pod fails on this one."""
    drivers = sorted({each.spec.driver for each in scene.what_if.all(api.ResourceSlice)})
    return [(driver, each) for driver in drivers for each in driver_pods.failing(scene.what_if, driver, node)]


def _devices_text(scene: Scene, node: str) -> str:
    slices = [each for each in scene.what_if.all(api.ResourceSlice) if each.spec.node_name == node]
    total = sum(len(each.spec.devices or ()) for each in slices)
    return (
        f", {count(total, 'device')} of {named('driver', sorted({each.spec.driver for each in slices}))}"
        if total
        else ""
    )


# --- slices ---


def explain_slice(scene: Scene, found: api.ResourceSlice, *, briefly: bool) -> Explanation:
    """Why the devices of a slice are given to no one, or that they are offered."""
    del briefly
    kind, spec = "ResourceSlice", found.spec
    devices = count(len(spec.devices or ()), "device")
    node = spec.node_name or ""
    pool = Pool.find(scene.what_if, spec.driver, spec.pool.name)
    if node and node not in scene.what_if.cluster.nodes and core_v1.Node not in scene.what_if.unread:
        text = f"is for node {node}, which does not exist: its {devices} cannot be used"
        advice = f"delete ResourceSlice {found.metadata.name}, if node {node} is gone for good"
        return not_as_wanted(kind, found, Reason.NOT_REACHABLE, text, advice=(advice,))
    if found in pool.old:
        newest = pool.current[0].spec.pool.generation
        text = f"does not count: it is of generation {spec.pool.generation} of pool {pool.name}, and generation {newest} is published"
        return not_as_wanted(kind, found, Reason.POOL_INCOMPLETE, text, advice=(_restart(scene, spec.driver, node),))
    missing = any(each.spec.pool.resource_slice_count != len(pool.current) for each in pool.current)
    if missing or pool.is_invalid:
        return _unusable(scene, found, pool, missing=missing)
    where = f" for node {node}" if node else ""
    return as_wanted(kind, found, f"offers {devices} of driver {spec.driver}{where}, {_in_use(scene, found)} in use")


def _unusable(scene: Scene, found: api.ResourceSlice, pool: Pool, *, missing: bool) -> Explanation:
    """A pool of which slices are missing, or that has a device twice: the scheduler takes no device of it."""
    driver, node = found.spec.driver, found.spec.node_name or ""
    why = pool.sentence() if missing else f"pool {pool.name} of driver {driver} is invalid: a device is published twice"
    names = f"its {count(len(pool.names), 'device')}"
    text = f"offers nothing: {why}, so the scheduler ignores {names}"
    failing = driver_pods.failing(scene.what_if, driver, node) if node else []
    complaint = failing[0] if failing else driver_pods.complaint(scene.what_if, driver, node) if node else None
    text += f"; {complaint.text}" if complaint is not None else ""
    advice = [complaint.advice] if complaint is not None else []
    reason = Reason.POOL_INCOMPLETE if missing else Reason.POOL_INVALID
    return not_as_wanted("ResourceSlice", found, reason, text, advice=(*advice, _restart(scene, driver, node)))


def _restart(scene: Scene, driver: str, node: str) -> str:
    """The driver publishes all of its pools when it starts."""
    pods = driver_pods.plugins(scene.what_if, driver, node) if node else []
    who = named("pod", map(full_name, pods)) if pods else f"driver {driver}"
    where = f" on node {node}" if node else ""
    return f"restart {who}{where}, so that it publishes all of the pool; its log says why it has not"


def _in_use(scene: Scene, found: api.ResourceSlice) -> int:
    held = {
        (result.driver, result.pool, result.device)
        for claim in scene.what_if.all(api.ResourceClaim)
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    }
    spec = found.spec
    return sum((spec.driver, spec.pool.name, device.name) in held for device in _devices(spec))


def _devices(spec: api.ResourceSliceSpec) -> Sequence[api.Device]:
    return spec.devices or ()
