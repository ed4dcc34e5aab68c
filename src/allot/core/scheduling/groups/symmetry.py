"""Pods of a group that no node distinguishes form a class: what holds for one of them holds for all."""

from __future__ import annotations

from allot.core.model import core_v1
from allot.core.scheduling.devices.device_fit import DeviceFit
from allot.core.scheduling.groups.task import Task
from allot.core.scheduling.nodes.full_evaluation import pre_refusal
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.status import Status


class Member:
    """A pod of a group that wants a node."""

    __slots__ = ("fit", "index", "pod")

    def __init__(self, index: int, pod: core_v1.Pod, fit: DeviceFit | None) -> None:
        self.index = index
        self.pod = pod
        self.fit = fit


class PodClass:
    """Pods that are the same to every node, in the order in which they are tried."""

    __slots__ = ("group", "is_hopeless", "members", "profile", "shares_claims")

    def __init__(self, profile: Profile, group: str) -> None:
        self.profile = profile
        # The key of the group that they belong to.
        self.group = group
        self.members: list[Member] = []
        # No node fits, whatever happens (PreFilter).
        self.is_hopeless = False
        # Its pods name claims that other pods of the group name too, and that have no devices yet.
        self.shares_claims = False

    def room(self, info: NodeInfo) -> int:
        """An upper bound, from counts, on how many such pods a node takes, if there were enough."""
        profile = self.profile
        most = max(0, info.allocatable_pods - len(info.pods))
        for wanted, free in (
            (profile.cpu, info.allocatable_cpu - info.cpu),
            (profile.memory, info.allocatable_memory - info.memory),
            (profile.storage, info.allocatable_storage - info.storage),
        ):
            if wanted > 0:
                most = min(most, max(0, free) // wanted)
        if profile.host_ports:
            most = min(most, 1)
        fit = self.members[0].fit
        if most and fit is not None and not self.shares_claims:
            by_devices = fit.most(info)
            if by_devices is not None:
                most = min(most, by_devices)
        return most

    @property
    def looks_around(self) -> bool:
        """Whether these pods, or others because of them, depend on the nodes of other pods of the group."""
        profile = self.profile
        return bool(profile.affinity_terms or profile.anti_affinity_terms or profile.hard_spreads)


def pod_classes(task: Task) -> list[PodClass]:
    """The pods of a task by class, in the order of their first pods."""
    cluster = task.cluster
    members: list[tuple[Member, Profile, bool]] = []
    users: dict[str, int] = {}
    for index, pod in enumerate(task.unit.pods):
        profile = cluster.profiles.of(pod)
        status = pre_refusal(cluster, profile, pod, task.settings)
        fit = cluster.devices.fit(pod, task.group, task.now) if cluster.devices is not None and status is None else None
        is_hopeless = status is not None or isinstance(fit, Status)
        fit = None if isinstance(fit, Status) else fit
        for uid in fit.new_claims if fit is not None else ():
            users[uid] = users.get(uid, 0) + 1
        members.append((Member(index, pod, fit), profile, is_hopeless))
    classes: dict[object, PodClass] = {}
    for member, profile, is_hopeless in members:
        pod, fit = member.pod, member.fit
        of = cluster.membership.key(pod)
        # Pods with equal claims are not the same if one shares its claim and the other has its own.
        shared = frozenset(uid for uid in fit.new_claims if users[uid] > 1) if fit is not None else frozenset()
        key: object = (of, profile.key, pod.spec.node_name, None if fit is None else fit.key, shared, is_hopeless)
        if (fit is not None and fit.key is None) or profile.volume_claims:
            key = member.index
        pod_class = classes.get(key)
        if pod_class is None:
            pod_class = classes[key] = PodClass(profile, of)
            pod_class.is_hopeless = is_hopeless
            pod_class.shares_claims = bool(shared)
        pod_class.members.append(member)
    return list(classes.values())
