"""Short ways to say what a test about nodes is about: nodes, pods, clusters, decisions."""

from __future__ import annotations

from typing import Any

from allot.core.model import core_v1
from allot.core.model.codec import decode
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.decide import decide
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plan import Decision, Placement, Refusal, Unit
from allot.core.scheduling.settings import DEFAULT_SETTINGS, Settings

NAMESPACE = "ns"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    unschedulable: bool = False,
    images: list[dict[str, Any]] | None = None,
    **amounts: str,
) -> core_v1.Node:
    """A node with its hostname label; `gpu="2"` stands for example.com/gpu."""
    more = {"example.com/gpu" if key == "gpu" else key.replace("_", "-"): value for key, value in amounts.items()}
    body = {
        "metadata": {"name": name, "labels": {HOSTNAME: name, **(labels or {})}},
        "spec": {"unschedulable": unschedulable, "taints": taints or []},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods, **more}, "images": images or []},
    }
    return decode(body, core_v1.Node).object


def pod(
    name: str = "p",
    *,
    cpu: str = "",
    memory: str = "",
    labels: dict[str, str] | None = None,
    on: str = "",
    priority: int | None = None,
    group: str = "",
    namespace: str = NAMESPACE,
    requests: dict[str, str] | None = None,
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    ports: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> core_v1.Pod:
    """A pod with one container; other fields of the spec by their wire names."""
    amounts = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value} | (requests or {})
    container = {"name": "c", "image": "image", "resources": {"requests": amounts}, "ports": ports or []}
    known: dict[str, Any] = {"containers": [container], "nodeName": on}
    if priority is not None:
        known["priority"] = priority
    if group:
        known["schedulingGroup"] = {"podGroupName": group}
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels or {}, **(metadata or {})}
    return decode({"metadata": meta, "spec": {**known, **spec}, "status": status or {}}, core_v1.Pod).object


def pod_group(name: str, minimum: int | None = None, **spec: Any) -> PodGroup:
    """A gang with a minimum, or a basic group."""
    policy: dict[str, Any] = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    body = {
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"},
        "spec": {"schedulingPolicy": policy, **spec},
    }
    return decode(body, PodGroup).object


def cluster(*objects: core_v1.Node | core_v1.Pod) -> Cluster:
    """Nodes, and pods that are on them."""
    made = Cluster()
    for item in objects:
        if isinstance(item, core_v1.Node):
            made.put_node(item)
        else:
            made.put_pod(item)
    return made


def cluster_with_devices(*objects: core_v1.Node | core_v1.Pod) -> tuple[Cluster, Claims]:
    """The same, with claims."""
    made = cluster(*objects)
    claims = Claims(changed=made.device_changes.add)
    made.devices = claims
    return made, claims


def ask(made: Cluster, asked: core_v1.Pod, settings: Settings = DEFAULT_SETTINGS) -> Decision:
    """The decision about a lone pod."""
    return decide(made, Unit(pods=(asked,)), settings)


def place(made: Cluster, asked: core_v1.Pod, settings: Settings = DEFAULT_SETTINGS) -> str:
    """The node that a pod gets; the decision is put into force."""
    decision = ask(made, asked, settings)
    assert decision.placements, decision.refusals
    made.assume(decision.placements[0])
    return decision.placements[0].node


def refused(made: Cluster, asked: core_v1.Pod, settings: Settings = DEFAULT_SETTINGS) -> Refusal:
    """Why a pod gets no node."""
    decision = ask(made, asked, settings)
    assert decision.refusals, decision.placements
    return decision.refusals[0]


def said(made: Cluster, asked: core_v1.Pod, settings: Settings = DEFAULT_SETTINGS) -> str:
    """The message without what preemption adds."""
    return refused(made, asked, settings).message.partition(" preemption:")[0]


def picture(made: Cluster) -> dict[str, Any]:
    """All that a decision depends on, to be compared."""
    return {
        "nodes": {name: numbers(info) for name, info in made.nodes.items()},
        "pods": {key: (info.node, info.profile.key) for key, info in made.pods.items()},
    }


def numbers(info: NodeInfo) -> tuple[object, ...]:
    """What a node's pods add up to."""
    sums = (info.cpu, info.memory, info.storage, info.nonzero_cpu, info.nonzero_memory)
    maps = (dict(info.scalars), {key: dict(value) for key, value in info.ports.items()}, dict(info.volume_claims))
    return (*sums, *maps, frozenset(info.pods))


def placed_on(decision: Decision) -> dict[str, str]:
    """Which pod gets which node."""
    return {placement.pod.metadata.name: placement.node for placement in decision.placements}


def placement_of(decision: Decision) -> Placement:
    """The only placement."""
    (placement,) = decision.placements
    return placement
