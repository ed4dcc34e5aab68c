"""The cluster as the scheduler sees it: nodes, their pods, and everything that a decision depends on, updated change by change.

The watches feed it; `assume` applies a decision before the API confirms it, and `forget` reverts
it. Nothing else changes it: a decision that tries something does so inside `without` or with `assume` and
`forget`, and leaves no trace. Devices are behind `devices`, which reports the nodes that they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from allot.core.model import core_v1, policy_v1
from allot.core.model.foreign_groups import KaiTopologyLevel
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.devices.device_fit import Devices, Leftover
from allot.core.scheduling.groups.dialects import Membership, group_key
from allot.core.scheduling.groups.forest import Forest
from allot.core.scheduling.nodes.changes import Changes
from allot.core.scheduling.nodes.filter_caches import FilterCaches
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.nodes.pod_affinity_index import PodAffinityIndex
from allot.core.scheduling.nodes.spread_selectors import SpreadSelectors
from allot.core.scheduling.nodes.volumes import Volumes
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.podinfo import PodInfo, Profile, Profiles, pod_key
from allot.core.scheduling.settings import HOSTNAME

_FINISHED = ("Succeeded", "Failed")
_DEPARTED_MAX = 10_000


class Cluster:
    """Nodes, pods and everything else that decisions look at."""

    def __init__(self, devices: Devices | None = None, membership: Membership | None = None) -> None:
        self.membership = membership if membership is not None else Membership()
        # `device_changes` records which node's devices changed.
        self.devices = devices
        self.nodes: dict[str, NodeInfo] = {}
        # Pods that count on a node, by key: bound ones and assumed ones.
        self.pods: dict[str, PodInfo] = {}
        self.changes = Changes()
        self.device_changes = Changes()
        self.profiles = Profiles()
        self.affinity_index = PodAffinityIndex()
        self.spread_selectors = SpreadSelectors()
        self.volumes = Volumes()
        self.budgets: dict[tuple[str, str], policy_v1.PodDisruptionBudget] = {}
        # By namespace and key (`groups.dialects.group_key`).
        self.groups: dict[tuple[str, str], PodGroup] = {}
        self.forest = Forest()
        # Levels of other schedulers' Topologies, the outermost first, by name; and the values of priority classes, which their groups name.
        self.topologies: dict[str, tuple[KaiTopologyLevel, ...]] = {}
        self.priority_classes: dict[str, int] = {}
        # Pods that preemption has promised a node, by node and key.
        self.nominated: dict[str, dict[str, core_v1.Pod]] = {}
        # Those for which the node is reserved against all other pods, whatever their priority, by key.
        self.kept: set[str] = set()
        # How often a promise was made or withdrawn.
        self.promises = 0
        # How many pods on nodes have each priority; and terminating ones, by key.
        self.priorities: dict[int, int] = {}
        self.leaving: dict[str, PodInfo] = {}
        # How many nodes have an image.
        self.image_spread: dict[str, int] = {}
        self.filter_caches = FilterCaches(self)
        # The uids of pods that ended recently: what their claims hold is about to be free.
        self.departed: dict[str, None] = {}
        # Pods of groups that are done, by namespace and uid.
        self._finished: dict[str, dict[str, core_v1.Pod]] = {}
        self._assumed: set[str] = set()
        self._homeless: dict[str, dict[str, PodInfo]] = {}
        self._members: dict[tuple[str, str], dict[str, None]] = {}
        self._nominations: dict[str, str] = {}
        self._hostnames: dict[str, int] = {}
        self._repeated_hostnames = 0
        # Called with every pod that begins or ceases to count on a node; None if there is no listener.
        self._on_placed: Callable[[PodInfo], None] | None = None
        self._on_left: Callable[[PodInfo], None] | None = None

    # --- nodes ---

    def put_node(self, node: core_v1.Node) -> None:
        """A node was created or changed."""
        name = node.metadata.name
        info = self.nodes.get(name)
        if info is None:
            self._add_node(node)
            return
        before = info.node
        if _is_same(before, node):
            info.node = node
            return
        relabeled = before.metadata.labels != node.metadata.labels
        if relabeled:
            self._count_hostname(before.metadata.labels, -1)
            self._count_hostname(node.metadata.labels, 1)
        if before.status.images != node.status.images:
            self._count_images(info, -1)
        info.replace(node)
        if before.status.images != node.status.images:
            self._count_images(info, 1)
        if relabeled:
            for pod in info.pods.values():
                self.affinity_index.remove(pod.key)
                self.affinity_index.add(pod, info.labels)
        self.changes.add(name)

    def _add_node(self, node: core_v1.Node) -> None:
        info = NodeInfo(node)
        self.nodes[info.name] = info
        for pod in self._homeless.pop(info.name, {}).values():
            info.add(pod)
            self.affinity_index.add(pod, info.labels)
        self._count_images(info, 1)
        self._count_hostname(info.labels, 1)
        self.changes.add(info.name)

    def delete_node(self, name: str) -> None:
        """A node is gone; its pods are kept in case it comes back."""
        info = self.nodes.pop(name, None)
        if info is None:
            return
        for pod in info.pods.values():
            self.affinity_index.remove(pod.key)
        if info.pods:
            self._homeless[name] = dict(info.pods)
        self._count_images(info, -1)
        self._count_hostname(info.labels, -1)
        self.changes.add(name)

    def _count_hostname(self, labels: Mapping[str, str], sign: int) -> None:
        host = labels.get(HOSTNAME)
        if host is None:
            return
        before = self._hostnames.get(host, 0)
        self._hostnames[host] = before + sign
        if not self._hostnames[host]:
            del self._hostnames[host]
        self._repeated_hostnames += (before + sign > 1) - (before > 1)

    @property
    def has_unique_hostnames(self) -> bool:
        """Whether no two nodes have the same hostname label, as should be the case."""
        return not self._repeated_hostnames

    def _count_images(self, info: NodeInfo, sign: int) -> None:
        """A score depends on how many nodes have an image, so this may affect every node."""
        for image in info.images:
            self.image_spread[image] = self.image_spread.get(image, 0) + sign
            if not self.image_spread[image]:
                del self.image_spread[image]
        if self.image_spread or info.images:
            self.changes.add(None)

    # --- pods ---

    def put_pod(self, pod: core_v1.Pod) -> None:
        """A pod as the API shows it. An assumed pod stays where it was put until the API confirms it."""
        key = pod_key(pod)
        node = pod.spec.node_name
        self._nominate(key, pod)
        if not node and key in self._assumed and pod.status.phase not in _FINISHED:
            return
        known = self.pods.get(key)
        if not node or pod.status.phase in _FINISHED:
            if node:
                self._depart(pod)
            if known is not None:
                self._drop(known)
            return
        if self.departed:
            self.departed.pop(pod.metadata.uid, None)
        extra = pod.status.node_allocatable_resource_claim_statuses
        info = PodInfo(pod, self.profiles.of(pod), node, extra)
        if known is not None:
            self._assumed.discard(key)
            if info.counts_as(known) and self._is_same_group(known.pod, pod):
                known.pod = pod
                return
            self._drop(known)
        self._count(info)

    def _is_same_group(self, before: core_v1.Pod, after: core_v1.Pod) -> bool:
        """Groups of other dialects are named by labels and annotations, which may change."""
        old, new = before.metadata, after.metadata
        if old.annotations == new.annotations and old.labels == new.labels:
            return True
        return self.membership.of(before) == self.membership.of(after)

    def delete_pod(self, pod: core_v1.Pod) -> None:
        """A pod is gone."""
        key = pod_key(pod)
        self._nominate(key, None)
        self._depart(pod)
        known = self.pods.get(key)
        if known is not None:
            self._drop(known)

    def _depart(self, pod: core_v1.Pod) -> None:
        self.departed[pod.metadata.uid] = None
        if len(self.departed) > _DEPARTED_MAX:
            del self.departed[next(iter(self.departed))]

    def listen(self, placed: Callable[[PodInfo], None], left: Callable[[PodInfo], None]) -> None:
        """From now on call these with every pod that begins or ceases to count on a node, also while something is tried."""
        self._on_placed = _both(self._on_placed, placed)
        self._on_left = _both(self._on_left, left)

    def _count(self, pod: PodInfo) -> None:
        self.pods[pod.key] = pod
        if self._on_placed is not None:
            self._on_placed(pod)
        self.priorities[pod.priority] = self.priorities.get(pod.priority, 0) + 1
        if pod.is_terminating:
            self.leaving[pod.key] = pod
        group = self.membership.of(pod.pod)
        if group is not None:
            self._members.setdefault(group, {})[pod.key] = None
        info = self.nodes.get(pod.node)
        if info is None:
            self._homeless.setdefault(pod.node, {})[pod.key] = pod
            return
        info.add(pod)
        self.affinity_index.add(pod, info.labels)
        self.changes.add(pod.node)

    def _drop(self, pod: PodInfo) -> None:
        del self.pods[pod.key]
        if self._on_left is not None:
            self._on_left(pod)
        self.priorities[pod.priority] -= 1
        if not self.priorities[pod.priority]:
            del self.priorities[pod.priority]
        self.leaving.pop(pod.key, None)
        self._assumed.discard(pod.key)
        group = self.membership.of(pod.pod)
        if group is not None:
            members = self._members[group]
            members.pop(pod.key, None)
            if not members:
                del self._members[group]
        info = self.nodes.get(pod.node)
        if info is None:
            homeless = self._homeless[pod.node]
            del homeless[pod.key]
            if not homeless:
                del self._homeless[pod.node]
            return
        info.remove(pod.key)
        self.affinity_index.remove(pod.key)
        self.changes.add(pod.node)

    def _nominate(self, key: str, pod: core_v1.Pod | None) -> None:
        """Remember which node a waiting pod was promised."""
        node = pod.status.nominated_node_name if pod is not None and not pod.spec.node_name else ""
        before = self._nominations.get(key, "")
        if before and before != node:
            self.promises += 1
            pods = self.nominated[before]
            del pods[key], self._nominations[key]
            if not pods:
                del self.nominated[before]
        if node and pod is not None:
            self.promises += 1
            self.nominated.setdefault(node, {})[key] = pod
            self._nominations[key] = node

    def promised_to(self, pod: core_v1.Pod) -> str:
        """The node that a waiting pod was promised; empty if none."""
        return self._nominations.get(pod_key(pod), "") if self._nominations else ""

    # --- decisions ---

    def assume(self, placement: Placement) -> None:
        """Apply a decision before the API confirms it."""
        pod = placement.pod
        key = pod_key(pod)
        known = self.pods.get(key)
        if known is not None:
            self._drop(known)
        self._count(PodInfo(pod, self.profiles.of(pod), placement.node, placement.node_allocatable))
        self._assumed.add(key)
        if placement.volumes:
            self.volumes.assume(placement)
        if self.devices is not None:
            self.devices.assume(placement)

    def forget(self, placement: Placement) -> None:
        """Revert a decision. If the API has confirmed it meanwhile, the pod stays where it is."""
        key = pod_key(placement.pod)
        if key in self._assumed:
            self._drop(self.pods[key])
        if placement.volumes:
            self.volumes.forget(placement)
        if self.devices is not None:
            self.devices.forget(placement)

    def is_assumed(self, pod: core_v1.Pod) -> bool:
        """Whether the pod is on its node only because of a decision."""
        return pod_key(pod) in self._assumed

    def assumed(self, pod: core_v1.Pod) -> core_v1.Pod | None:
        """The pod as it was when a decision put it on its node; None if it is not assumed."""
        key = pod_key(pod)
        return self.pods[key].pod if key in self._assumed else None

    @contextmanager
    def without(self, pods: Sequence[core_v1.Pod], leftovers: Leftover = (), *, anew: bool = False) -> Iterator[None]:
        """What if these pods were gone: devices that no other pod uses are free, and so is what claims hold that
        outlived their pods. anew: these claims can be allocated again, for pods that come back."""
        gone = [known for pod in pods if (known := self.pods.get(pod_key(pod))) is not None]
        assumed = self._assumed & {pod.key for pod in gone}
        for pod in gone:
            self._drop(pod)
        try:
            with (
                nullcontext()
                if self.devices is None
                else self.devices.without([pod.pod for pod in gone], leftovers, anew=anew)
            ):
                yield
        finally:
            for pod in gone:
                self._count(pod)
            self._assumed |= assumed

    @contextmanager
    def unpromised(self, pods: Sequence[core_v1.Pod]) -> Iterator[None]:
        """What if these waiting pods had been promised no node: they must not block each other."""
        promised = [
            (key, found[key])
            for pod in pods
            if (node := self._nominations.get(key := pod_key(pod))) and (found := self.nominated[node])
        ]
        for key, _ in promised:
            self._nominate(key, None)
        try:
            yield
        finally:
            for key, pod in promised:
                self._nominate(key, pod)

    @contextmanager
    def trying(self) -> Iterator[list[Placement]]:
        """What if these placements were applied: append to the list after each `assume`; all are reverted at the end."""
        placements: list[Placement] = []
        try:
            yield placements
        finally:
            for placement in reversed(placements):
                self.forget(placement)

    # --- groups, budgets ---

    def put_group(self, group: PodGroup) -> None:
        """A pod group was created or changed."""
        self.forest.put(group)
        self.groups[group.metadata.namespace, group_key(group)] = group

    def delete_group(self, group: PodGroup) -> None:
        """A pod group is gone."""
        self.forest.delete(group)
        self.groups.pop((group.metadata.namespace, group_key(group)), None)

    @contextmanager
    def regrouping(self, keys: Iterable[str]) -> Iterator[None]:
        """Inside, the groups that these pods belong to may change."""
        pods = [self.pods[key] for key in keys if key in self.pods]
        assumed = self._assumed & {pod.key for pod in pods}
        for pod in pods:
            self._drop(pod)
        try:
            yield
        finally:
            for pod in pods:
                self._count(pod)
            self._assumed |= assumed

    def member_keys(self, namespace: str, key: str) -> tuple[str, ...]:
        """The keys of the pods of a group that have a node."""
        return tuple(self._members.get((namespace, key), ()))

    def members(self, group: PodGroup) -> list[PodInfo]:
        """The pods of a group that have a node."""
        keys = self._members.get((group.metadata.namespace, group_key(group)), ())
        return [self.pods[key] for key in keys]

    def scheduled_count(self, group: PodGroup) -> int:
        """How many pods of a group have a node."""
        return len(self._members.get((group.metadata.namespace, group_key(group)), ()))

    def remember_finished(self, pod: core_v1.Pod) -> None:
        """A pod is done; to its group, a failed pod is not."""
        if pod.status.phase == "Succeeded" and self.membership.of(pod) is not None:
            self._finished.setdefault(pod.metadata.namespace, {})[pod.metadata.uid] = pod

    def forget_finished(self, pod: core_v1.Pod) -> None:
        """A pod that was done is gone."""
        found = self._finished.get(pod.metadata.namespace, {})
        found.pop(pod.metadata.uid, None)
        if not found:
            self._finished.pop(pod.metadata.namespace, None)

    def finished_count(self, group: PodGroup) -> int:
        """How many pods of a group are done."""
        key = (group.metadata.namespace, group_key(group))
        return sum(self.membership.of(pod) == key for pod in self._finished.get(group.metadata.namespace, {}).values())

    def put_budget(self, budget: policy_v1.PodDisruptionBudget) -> None:
        """A disruption budget was created or changed."""
        self.budgets[budget.metadata.namespace, budget.metadata.name] = budget

    def delete_budget(self, namespace: str, name: str) -> None:
        """A disruption budget is gone."""
        self.budgets.pop((namespace, name), None)

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace has these labels; None: it is gone."""
        self.affinity_index.put_namespace(name, labels)

    def profile(self, pod: core_v1.Pod) -> Profile:
        """The part of a pod that filters and scores read."""
        return self.profiles.of(pod)


def _both(first: Callable[[PodInfo], None] | None, second: Callable[[PodInfo], None]) -> Callable[[PodInfo], None]:
    if first is None:
        return second
    earlier = first

    def tell(pod: PodInfo) -> None:
        earlier(pod)
        second(pod)

    return tell


def _is_same(before: core_v1.Node, after: core_v1.Node) -> bool:
    """Whether a node is the same in everything that decisions look at: heartbeats do not count."""
    return (
        before.metadata.labels == after.metadata.labels
        and before.spec == after.spec
        and before.status.allocatable == after.status.allocatable
        and before.status.images == after.status.images
        and before.status.declared_features == after.status.declared_features
    )
