"""Which pods are in which queue, and their charges: follows pods and queues, and updates the tree of queues.

A pod names its queue by label (or, for dialects that do so, by annotation); pods that name none take no part, and without queues
nothing is counted. A claim that several pods use is charged once, for the pod that came first. What a pod holds is counted while
the cluster counts it on a node, also when something is only tried; a terminating pod holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from allot.core.allocation import AllocationError, ClaimID
from allot.core.model import kai_words
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import EMPTY
from allot.core.model.resource_v1 import AllocationResult
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices.claims import Claims, one_of_class
from allot.core.scheduling.groups.dialects import ForeignGroup
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.podinfo import PodInfo, pod_key
from allot.core.scheduling.queues.amounts import CPU, MEMORY, ONE, Amounts, total
from allot.core.scheduling.queues.charges import Charges, GpuNames
from allot.core.scheduling.queues.jobs import Job, Task
from allot.core.scheduling.queues.model import Queue
from allot.core.scheduling.queues.shapes import is_stray, job_key, part_of, priority_of, shape_job
from allot.core.scheduling.queues.tree import QueueTree
from allot.core.scheduling.queues.usage import Usage

QUEUE_LABEL = kai_words.QUEUE
PREEMPTIBILITY_LABEL = kai_words.PREEMPTIBILITY
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
# From this priority on a pod cannot be preempted, unless it says otherwise: KAI's rule.
FIRM_PRIORITY = 100
# The queues of pods that name none, by the scheduler that they ask for.
DEFAULT_QUEUES: Mapping[str, str] = {"kai-scheduler": kai_words.DEFAULT_QUEUE, "volcano": "default"}


class _Charge(msgspec.Struct):
    """What is charged for a pod."""

    pod: Pod
    queue: str
    amounts: Amounts
    is_firm: bool
    is_held: bool = False
    # Others are evicted for it, so that what it asks for counts as held.
    is_reserved: bool = False
    # What it holds, or is to hold, beyond the least that it asks for, while that is only tried or kept for it.
    extra: Amounts = EMPTY
    # Of the devices for which it was computed.
    epoch: int = 0

    @property
    def is_counted(self) -> bool:
        """Whether its queue counts it as held."""
        return self.is_held or self.is_reserved


class QueueBook:
    """The tree of queues of a cluster."""

    def __init__(self, cluster: Cluster, claims: Claims, gpu_names: GpuNames | None = None) -> None:
        self._cluster = cluster
        self._claims = claims
        self.tree = QueueTree()
        self._charges = Charges(claims.inventory, gpu_names)
        self._pods: dict[str, _Charge] = {}
        # Which pods use a claim, in the order of coming; the first one is charged.
        self._users: dict[ClaimID, dict[str, None]] = {}
        # Pods whose claims have changed since it was computed what they are charged for; and how often devices have, on which it depends too.
        self._stale: dict[str, None] = {}
        self._epoch = 0
        self._reserved: dict[str, None] = {}
        self._resources: tuple[str, ...] = ()
        self._is_total_known = False
        self._listens = False

    def __bool__(self) -> bool:
        """Whether there is any queue."""
        return bool(self.tree)

    # --- queues ---

    def put_queue(self, queue: Queue) -> None:
        """A queue was created or changed."""
        self.tree.put(queue)
        if not self._listens:
            self._listens = True
            self._cluster.listen(self.placed, self.left)
            self._claims.listen_to_claims(self._claim_changed)
        self._count_anew()
        if queue.name in DEFAULT_QUEUES.values():
            for info in list(self._cluster.pods.values()):
                self.put_pod(info.pod)

    def delete_queue(self, name: str) -> None:
        """A queue is gone."""
        self.tree.delete(name)
        self._count_anew()

    def _count_anew(self) -> None:
        """If other resources count now, everything is charged again."""
        resources = self.tree.resources
        if resources == self._resources:
            return
        charges = list(self._pods.values())
        for charge in charges:
            self.remove_pod(charge.pod)
        self._resources = resources
        self._charges.count(resources)
        self._is_total_known = False
        for charge in charges:
            self.put_pod(charge.pod)

    # --- pods ---

    def put_all(self, pods: Iterable[Pod]) -> None:
        """These are all existing pods."""
        for charge in list(self._pods.values()):
            self.remove_pod(charge.pod)
        for pod in pods:
            self.put_pod(pod)

    def put_pod(self, pod: Pod) -> None:
        """A pod came or changed: it waits, or has a node."""
        queue = self.queue_of(pod)
        if not queue:
            if self._pods:
                self.remove_pod(pod)
            return
        key = pod_key(pod)
        known = self._pods.get(key)
        if not self.tree:
            self._pods[key] = _Charge(pod, queue, {}, self.is_firm(pod))
            return
        self._stale.pop(key, None)
        is_leaving = pod.metadata.deletion_timestamp is not None
        amounts = {} if is_leaving else self.amounts_of(pod)
        firm = self.is_firm(pod)
        if known is not None and (known.queue, known.amounts, known.is_firm) == (queue, amounts, firm):
            known.pod, known.epoch = pod, self._epoch
            return
        self._uncharge(key)
        charge = self._pods[key] = _Charge(pod, queue, amounts, firm, epoch=self._epoch)
        self.tree.request(queue, amounts)
        if key in self._cluster.pods and not is_leaving:
            self._hold(charge)

    def remove_pod(self, pod: Pod) -> None:
        """A pod is gone or has ended."""
        key = pod_key(pod)
        if key not in self._pods:
            return
        self._uncharge(key)
        del self._pods[key]
        self._stale.pop(key, None)
        for claim in self._claims.claims_of(pod):
            users = self._users.get(claim)
            if users is None:
                continue
            was_first = next(iter(users), "") == key
            users.pop(key, None)
            if not users:
                del self._users[claim]
            elif was_first:
                self.put_pod(self._pods[next(iter(users))].pod)

    def _claim_changed(self, id_: ClaimID) -> None:
        for key in self._users.get(id_, ()):
            self._stale[key] = None

    def _uncharge(self, key: str) -> None:
        charge = self._pods.get(key)
        if charge is None or not charge.amounts:
            return
        self._set_extra(charge, EMPTY)
        if charge.is_counted:
            charge.is_held = charge.is_reserved = False
            self._reserved.pop(key, None)
            self.tree.hold(charge.queue, charge.amounts, -1, firmly=charge.is_firm)
        self.tree.request(charge.queue, charge.amounts, -1)

    def refresh(self, pods: Iterable[Pod]) -> None:
        """Before these are decided, or when their groups have changed: their claims may have come meanwhile."""
        for pod in pods:
            key = pod_key(pod)
            known = self._pods.get(key)
            # Of a single pod whose claims are as they were, nothing else can have changed.
            if (
                known is None
                or known.epoch != self._epoch
                or key in self._stale
                or known.queue != self.queue_of(pod)
                or self._cluster.membership.of(pod) is not None
            ):
                self.put_pod(pod)

    def cost_of(self, placement: Placement) -> Amounts:
        """What a pod will be charged for if it is placed so: of alternatives and devices that differ, those that it gets."""
        if not placement.claims:
            return self.charged(placement.pod)
        chosen = {
            ClaimID(step.claim.metadata.namespace, step.claim.metadata.name): step.allocation
            for step in placement.claims
            if step.allocation is not None
        }
        return self.amounts_of(placement.pod, chosen)

    def amounts_of(self, pod: Pod, chosen: Mapping[ClaimID, AllocationResult] | None = None) -> dict[str, int]:
        """What a pod is charged for. chosen: allocations that its claims would get."""
        found = [self._charges.of_requests(self._cluster.profiles.of(pod))]
        key = pod_key(pod)
        for id_ in self._claims.claims_of(pod):
            users = self._users.setdefault(id_, {})
            users.setdefault(key)
            claim = self._claims.claim(id_.namespace, id_.name)
            if claim is not None and next(iter(users)) == key:
                allocation = chosen.get(id_) if chosen is not None else None
                allocation = allocation or self._claims.allocation(id_)
                found.append(self._charges.of_claim(claim.spec, allocation))
        return total(found)

    def charged(self, pod: Pod) -> Amounts:
        """What a pod is charged for, as it was last computed."""
        charge = self._pods.get(pod_key(pod))
        return charge.amounts if charge is not None else EMPTY

    def placed(self, info: PodInfo) -> None:
        """The cluster counts a pod on a node."""
        charge = self._pods.get(info.key)
        if charge is not None and not charge.is_held and not info.is_terminating:
            self._hold(charge)

    def left(self, info: PodInfo) -> None:
        """The cluster no longer counts a pod. What is reserved for it stays so: it may have been there only while something was tried."""
        charge = self._pods.get(info.key)
        if charge is not None and charge.is_held:
            charge.is_held = False
            if not charge.is_counted:
                self._set_extra(charge, EMPTY)
                self.tree.hold(charge.queue, charge.amounts, -1, firmly=charge.is_firm)

    def tried(self, placement: Placement, cost: Amounts) -> None:
        """A placement is applied tentatively: it counts for what it really takes."""
        charge = self._pods.get(pod_key(placement.pod))
        if charge is not None and charge.is_held and not charge.is_reserved:
            self._set_extra(charge, self._beyond(charge, cost))

    @staticmethod
    def _beyond(charge: _Charge, amounts: Amounts) -> Amounts:
        names = {**charge.amounts, **amounts}
        return {name: more for name in names if (more := amounts.get(name, 0) - charge.amounts.get(name, 0))}

    def _set_extra(self, charge: _Charge, extra: Amounts) -> None:
        if charge.extra:
            self.tree.hold(charge.queue, charge.extra, -1, firmly=charge.is_firm)
        charge.extra = extra
        if extra:
            self.tree.hold(charge.queue, extra, firmly=charge.is_firm)

    def _hold(self, charge: _Charge) -> None:
        was_counted, charge.is_held = charge.is_counted, True
        if not was_counted:
            self.tree.hold(charge.queue, charge.amounts, firmly=charge.is_firm)

    def reserve(self, pods: Iterable[tuple[Pod, Amounts]]) -> None:
        """Others are evicted for these: from now on what they will get counts as held."""
        for pod, amounts in pods:
            charge = self._pods.get(pod_key(pod))
            if charge is not None and not charge.is_counted:
                charge.is_reserved = True
                self._reserved[pod_key(pod)] = None
                self.tree.hold(charge.queue, charge.amounts, firmly=charge.is_firm)
                self._set_extra(charge, self._beyond(charge, amounts))

    def reserves(self, pod: Pod) -> bool:
        """Whether others are evicted for a pod."""
        return pod_key(pod) in self._reserved

    def release(self, pods: Iterable[Pod]) -> Sequence[tuple[Pod, Amounts]]:
        """Nothing is reserved for these any longer. Returns what was, and for whom."""
        found = [charge for pod in pods if (charge := self._pods.get(pod_key(pod))) is not None and charge.is_reserved]
        reserved = [(charge.pod, total((charge.amounts, charge.extra))) for charge in found]
        for charge in found:
            self._release(charge)
        return reserved

    def release_all(self) -> None:
        """Release all reservations."""
        self.release([self._pods[key].pod for key in list(self._reserved)])

    def _release(self, charge: _Charge) -> None:
        if charge.is_reserved:
            charge.is_reserved = False
            self._reserved.pop(pod_key(charge.pod), None)
            if not charge.is_counted:
                self._set_extra(charge, EMPTY)
                self.tree.hold(charge.queue, charge.amounts, -1, firmly=charge.is_firm)

    # --- what there is ---

    def capacity_changed(self) -> None:
        """Nodes, devices or classes have changed."""
        self._is_total_known = False
        self._charges.devices_changed()
        self._epoch += 1

    def settle_total(self) -> None:
        """Recompute what the cluster has, if that may have changed."""
        if self._is_total_known:
            return
        self._is_total_known = True
        found: dict[str, int] = dict.fromkeys(self._resources, 0)
        for info in self._cluster.nodes.values():
            if info.node.spec.unschedulable:
                continue
            if CPU in found:
                found[CPU] += info.allocatable_cpu * ONE
            if MEMORY in found:
                found[MEMORY] += info.allocatable_memory * ONE
            for name, quantity in info.node.status.allocatable.items():
                for resource, weight in self._charges.extended_keys(name):
                    found[resource] += quantity.nano * weight
        for class_name in sorted(self._claims.inventory.classes):
            for resource, amount in self._devices_of(class_name):
                found[resource] = found.get(resource, 0) + amount
        self.tree.set_total(found)

    def _devices_of(self, class_name: str) -> Iterator[tuple[str, int]]:
        """What the devices of a class add. Everything that one device could be cut into is no more than that device."""
        if not self._charges.counts(class_name):
            return
        inventory = self._claims.inventory
        signature = inventory.plan(one_of_class(class_name)).requests[0].leaves[0].signature
        if signature is None:
            return
        try:
            entries = [entry for entry, _ in inventory.judged(signature)]
        except AllocationError:
            return
        cut: dict[tuple[str, str, str], dict[str, int]] = {}
        for entry in entries:
            amounts = self._charges.of_device(entry, class_name)
            drawn = entry.device.consumes_counters
            if not drawn:
                yield from amounts.items()
                continue
            parts = cut.setdefault((entry.id.driver, entry.id.pool, drawn[0].counter_set), {})
            for resource, amount in amounts.items():
                parts[resource] = min(ONE, parts.get(resource, 0) + amount)
        for parts in cut.values():
            yield from parts.items()

    # --- jobs ---

    def jobs(self, waiting: Mapping[str, Pod]) -> dict[str, Job]:
        """All jobs of the queues. waiting: pods that want a place and may be tried, by key."""
        found: dict[str, Job] = {}
        for key, charge in self._pods.items():
            pod = charge.pod
            info = self._cluster.pods.get(key)
            if info is None and key not in waiting:
                continue
            if is_stray(self._cluster, pod):
                continue
            name = job_key(self._cluster, pod)
            job = found.get(name)
            if job is None:
                job = found[name] = shape_job(self._cluster, pod, queue=charge.queue, is_preemptible=not charge.is_firm)
            is_leaving = pod.metadata.deletion_timestamp is not None
            job.is_fixed = job.is_fixed or self._cluster.is_assumed(pod)
            job.is_movable = job.is_movable and bool(pod.metadata.owner_references)
            job.tasks.append(
                Task(
                    job,
                    pod,
                    charge.amounts,
                    part=part_of(self._cluster, pod, job),
                    node=info.node if info is not None else "",
                    rank=(-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", pod.metadata.name),
                    since_s=_seconds(pod.status.start_time),
                    is_leaving=is_leaving,
                )
            )
        return found

    def usage_of_groups(self) -> dict[tuple[str, str], Usage]:
        """What the pods of groups of other dialects have and ask for, by namespace and key of the whole group."""
        found: dict[tuple[str, str], Usage] = {}
        for charge in self._pods.values():
            member = self._cluster.membership.of(charge.pod)
            if member is None or ":" not in member[1]:
                continue
            dialect, name = member[1].split(":")[:2]
            usage = found.setdefault((member[0], f"{dialect}:{name}"), Usage())
            usage.add(charge.amounts, is_held=charge.is_held, is_firm=charge.is_firm)
        return found

    def _group_of(self, pod: Pod) -> PodGroup | None:
        key = self._cluster.membership.of(pod)
        return self._cluster.groups.get(key) if key is not None else None

    def queue_of(self, pod: Pod) -> str:
        """The queue that a pod or its group names; empty if it takes no part."""
        metadata = pod.metadata
        group = self._group_of(pod)
        if isinstance(group, ForeignGroup) and group.queue:
            is_default = group.queue in DEFAULT_QUEUES.values()
            return "" if is_default and group.queue not in self.tree else group.queue
        named = metadata.labels.get(QUEUE_LABEL) or metadata.annotations.get(VOLCANO_QUEUE)
        if named:
            return named
        default = DEFAULT_QUEUES.get(pod.spec.scheduler_name, "")
        return default if default and default in self.tree else ""

    def is_firm(self, pod: Pod) -> bool:
        """Whether a pod cannot be evicted for other queues."""
        group = self._group_of(pod)
        said = group.preemptibility if isinstance(group, ForeignGroup) else ""
        said = said or pod.metadata.labels.get(PREEMPTIBILITY_LABEL, "")
        if said in ("preemptible", "non-preemptible"):
            return said == "non-preemptible"
        return priority_of(self._cluster, pod, group) >= FIRM_PRIORITY


def _seconds(time: str | None) -> float:
    """Since 1970; 0 if it is not known."""
    return datetime.fromisoformat(time).timestamp() if time else 0.0
