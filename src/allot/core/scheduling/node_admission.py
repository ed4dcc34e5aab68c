"""Whether a node admits a pod that is bound to it, or its resize: the kubelet's check, since a pod can bypass the scheduler.

The rules, their order and their words are the kubelet's (pkg/kubelet/lifecycle/predicate.go and AdmissionCheck in pkg/scheduler, 1.37).
What is on a node counts as in the scheduler. Does not know about reporting, or when a node is asked again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from allot.core.model.containers_v1 import RunnableContainer
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.pods_v1 import RunnablePod
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plugins import node_affinity, node_ports, taint_toleration
from allot.core.scheduling.podinfo import PodInfo, Profile, pod_key
from allot.core.selectors import tolerates

_OS_LABEL = "kubernetes.io/os"
_STRICT = "Strict"
_OUT_OF = "OutOf"


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node does not admit a pod. is_of_node: because of labels or taints of the node, which may be out of date."""

    reason: str
    message: str
    is_of_node: bool = False


class NodeAdmission:
    """A node and the pods that it has admitted, with the resources of each."""

    def __init__(self, node: Node) -> None:
        self._info = NodeInfo(node)

    def update(self, node: Node) -> None:
        """The node itself has changed."""
        self._info.replace(node)

    def __len__(self) -> int:
        return len(self._info.pods)

    def count(self, pod: Pod) -> None:
        """A pod is on the node, whatever the rules say, with what its spec asks for."""
        self.forget(pod_key(pod))
        extra = pod.status.node_allocatable_resource_claim_statuses
        self._info.add(PodInfo(pod, Profile(pod, b""), self._info.name, extra))

    def forget(self, key: str) -> bool:
        """A pod is no longer on the node. Returns whether it was."""
        if key not in self._info.pods:
            return False
        self._info.remove(key)
        return True

    def admit(self, pod: RunnablePod, held: Mapping[str, int] = MappingProxyType({})) -> Rejection | None:
        """Admit a pod, or an existing one with changed requests. Returns why not, if that is impossible; then nothing has changed. held: devices of
        device plugins that containers have, of which the node has at least as many, whatever its status says."""
        key = pod_key(pod)
        before = self._info.remove(key) if key in self._info.pods else None
        rejection = self._rejection(pod, held)
        if rejection is None:
            self.count(pod)
        elif before is not None:
            self._info.add(before)
        return rejection

    def _rejection(self, pod: RunnablePod, held: Mapping[str, int]) -> Rejection | None:
        for rejection in self._rejections(pod, held):
            return rejection
        return None

    def _rejections(self, pod: RunnablePod, held: Mapping[str, int]) -> Iterator[Rejection]:
        node = self._info
        os = node.labels.get(_OS_LABEL) or "linux"
        if pod.metadata.labels.get(_OS_LABEL, os) != os:
            text = f"Failed to admit pod as the `{_OS_LABEL}` label doesn't match node label"
            yield Rejection(reason="PodOSSelectorNodeLabelDoesNotMatch", message=text)
        if pod.spec.os is not None and pod.spec.os.name != os:
            yield Rejection(
                reason="PodOSNotSupported", message="Failed to admit pod as the OS field doesn't match node OS"
            )
        context = pod.spec.security_context
        if context is not None and context.supplemental_groups_policy == _STRICT:
            text = f"SupplementalGroupsPolicy={_STRICT} is not supported in this node"
            yield Rejection(reason="SupplementalGroupsPolicyNotSupported", message=text)
        there = node.allocatable_scalars
        scalars = {**there, **{name: max(count, there.get(name, 0)) for name, count in held.items()}}
        counted = _without_missing(pod, scalars)
        profile = Profile(counted, b"")
        extra = pod.status.node_allocatable_resource_claim_statuses
        wanted = PodInfo(_without_status(counted), profile, node.name, extra)
        yield from _shortages(wanted, node, scalars)
        if not profile.selects(node.name, node.labels):
            yield _predicate(node_affinity.NAME, "node(s) didn't match Pod's node affinity/selector", is_of_node=True)
        if node_ports.refusal(profile, node) is not None:
            yield _predicate(node_ports.NAME, "node(s) didn't have free ports for the requested pod ports")
        if _has_untolerated(profile, node):
            yield _predicate(taint_toleration.NAME, "node(s) had untolerated taint(s)", is_of_node=True)


def _predicate(name: str, why: str, *, is_of_node: bool = False) -> Rejection:
    return Rejection(reason=name, message=f"Predicate {name} failed: {why}", is_of_node=is_of_node)


def _shortages(wanted: PodInfo, node: NodeInfo, scalars: Mapping[str, int]) -> Iterator[Rejection]:
    """What there is too little of, in the kubelet's order. Processors are counted in thousandths. scalars: the other resources that there are."""
    if len(node.pods) >= node.allocatable_pods:
        yield _shortage("pods", 1, len(node.pods), node.allocatable_pods)
    for name, asked, used, there in (
        ("cpu", wanted.cpu, node.cpu, node.allocatable_cpu),
        ("memory", wanted.memory, node.memory, node.allocatable_memory),
        ("ephemeral-storage", wanted.storage, node.storage, node.allocatable_storage),
        *(
            (name, asked, node.scalars.get(name, 0), scalars.get(name, 0))
            for name, asked in sorted(wanted.scalars.items())
        ),
    ):
        if asked > 0 and asked > there - used:
            yield _shortage(name, asked, used, there)


def _shortage(name: str, asked: int, used: int, there: int) -> Rejection:
    text = f"Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {there}"
    return Rejection(reason=f"{_OUT_OF}{name}", message=text)


def _has_untolerated(profile: Profile, node: NodeInfo) -> bool:
    """Whether a taint evicts the pod: the kubelet ignores NoSchedule taints."""
    return any(
        taint.effect == "NoExecute" and not any(tolerates(each, taint) for each in profile.tolerations)
        for taint in node.taints
    )


def _without_missing(pod: RunnablePod, there: Mapping[str, int]) -> RunnablePod:
    """Without extended resources that the node does not have: they belong to the cluster, or are devices of claims."""
    mapped = pod.status.extended_resource_claim_status
    of_claims = {(each.container_name, each.resource_name) for each in mapped.request_mappings} if mapped else set()
    replace = msgspec.structs.replace

    def counts(container: str, name: str) -> bool:
        return "/" not in name or (name in there and (container, name) not in of_claims)

    def counted(container: RunnableContainer) -> RunnableContainer:
        requests = {
            name: amount for name, amount in container.resources.requests.items() if counts(container.name, name)
        }
        if len(requests) == len(container.resources.requests):
            return container
        return replace(container, resources=replace(container.resources, requests=requests))

    spec = replace(
        pod.spec,
        containers=tuple(counted(each) for each in pod.spec.containers),
        init_containers=tuple(counted(each) for each in pod.spec.init_containers),
    )
    return replace(pod, spec=spec)


def _without_status(pod: RunnablePod) -> RunnablePod:
    """For existing pods, allocated resources count; for a pod to be admitted, only its requests do."""
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, container_statuses=()))
