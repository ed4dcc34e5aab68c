"""Claims as the scheduler sees them: what the API shows, what it just wrote itself, what it has only decided.

Fed change by change with claims, classes, slices, taint rules and pod groups; keeps the inventory of devices up to date
with all of that. An allocation is *in flight* from `assume` until the claim is seen with an allocation (or `forget`). An
object that the scheduler wrote itself (`wrote`) counts until an informer delivers one that is as new.
A pod's `fit` knows about nodes; nothing here does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

from allot.core.allocation import FIRST_FIT, AllocationError, ClaimID, Features, Inventory, Policy, claim_id
from allot.core.allocation.plan import ClaimPlan
from allot.core.allocation.search import STEPS_MAX
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model import scheduling_v1 as scheduling
from allot.core.model.classic import GATE, controller_of
from allot.core.scheduling.devices import group_claims
from allot.core.scheduling.devices.binding_conditions import BINDING_TIMEOUT_SECONDS
from allot.core.scheduling.devices.claim_fit import ClaimFit, refusal
from allot.core.scheduling.devices.claim_record import ClaimRecord
from allot.core.scheduling.devices.claim_users import ClaimUsers
from allot.core.scheduling.devices.device_fit import DeviceFit
from allot.core.scheduling.devices.double_allocation import DoubleAllocation, double_allocations
from allot.core.scheduling.devices.extended_resources import SPECIAL_NAME, ExtendedResources, owner_of_special
from allot.core.scheduling.devices.group_claims import LookupFailure
from allot.core.scheduling.devices.group_clean_ups import Refused, group_clean_ups
from allot.core.scheduling.devices.joint_fit import fit_together
from allot.core.scheduling.devices.request_problems import RequestProblems
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plan import ClaimStep, CleanUp, Placement
from allot.core.scheduling.status import Status


class Claims:
    """All claims of a cluster and the devices that they hold."""

    def __init__(
        self,
        gates: FeatureGates = DEFAULT_GATES,
        changed: Callable[[str | None], None] | None = None,
        *,
        policy: Policy = FIRST_FIT,
        binding_timeout: float = BINDING_TIMEOUT_SECONDS,
        steps_max: int = STEPS_MAX,
    ) -> None:
        """changed: called with the name of the node whose devices changed, None for all nodes. steps_max: how long devices are
        searched for on one node before the attempt is given up; kube-scheduler has a timeout for that.
        """
        self.policy = policy
        self.steps_max = steps_max
        self.binding_timeout = binding_timeout
        # Work done by the allocator so far.
        self.search_steps = 0
        self.inventory = Inventory(Features.from_gates(gates), changed)
        self.extended = ExtendedResources()
        self.workload_claims = "DRAWorkloadResourceClaims" in gates
        self.node_allocatable = "DRANodeAllocatableResources" in gates
        self._has_controllers = GATE in gates
        self._records: dict[ClaimID, ClaimRecord] = {}
        self._users = ClaimUsers(self._records)
        self._on_claim: Callable[[ClaimID], None] | None = None
        # Claims for extended resources by the uid of the pod that they were created for.
        self._special: dict[str, ClaimID] = {}
        self._groups: dict[tuple[str, str], scheduling.PodGroup] = {}
        self._problems = RequestProblems(self.inventory)

    def listen(self, changed: Callable[[str | None], None]) -> None:
        """From now on call this with the node whose devices changed, None for all nodes."""
        self.inventory.listen(changed)

    def listen_to_claims(self, changed: Callable[[ClaimID], None]) -> None:
        """From now on call this with each claim that changed: its object, what it holds or whom it is reserved for."""
        self._on_claim = changed

    def _note(self, id_: ClaimID) -> None:
        self._users.note(id_)
        if self._on_claim is not None:
            self._on_claim(id_)

    # --- what the API says ---

    def put_claim(self, claim: api.ResourceClaim) -> None:
        """A claim as an informer delivered it."""
        id_ = claim_id(claim)
        record = self._record(id_)
        if record.informed is claim:
            return
        record.inform(claim)
        self._remember_special(claim, id_)
        self._settle(record)

    def delete_claim(self, namespace: str, name: str) -> None:
        """A claim is gone."""
        record = self._records.get(ClaimID(namespace, name))
        if record is None:
            return
        current = record.current
        if current is not None:
            owner = owner_of_special(current)
            if owner is not None and self._special.get(owner) == record.id:
                del self._special[owner]
        record.vanish()
        self._settle(record)

    def wrote(self, claim: api.ResourceClaim) -> None:
        """A claim as the API returned it for the scheduler's own write; an older one from an informer does not replace it."""
        id_ = claim_id(claim)
        record = self._record(id_)
        record.assume(claim)
        self._remember_special(claim, id_)
        self._settle(record)

    def put_slice(self, slice_: api.ResourceSlice) -> None:
        """A slice was published or changed."""
        self.inventory.put_slice(slice_)

    def delete_slice(self, name: str) -> None:
        """A slice is gone."""
        self.inventory.delete_slice(name)

    def put_class(self, device_class: api.DeviceClass) -> None:
        """A class was created or changed."""
        self.inventory.put_class(device_class)
        self.extended.put(device_class)
        self._problems.clear()

    def delete_class(self, name: str) -> None:
        """A class is gone."""
        self.inventory.delete_class(name)
        self.extended.delete(name)
        self._problems.clear()

    def put_taint_rule(self, rule: api.DeviceTaintRule) -> None:
        """A taint rule was created or changed."""
        self.inventory.put_taint_rule(rule)

    def delete_taint_rule(self, name: str) -> None:
        """A taint rule is gone."""
        self.inventory.delete_taint_rule(name)

    def put_pod_group(self, group: scheduling.PodGroup) -> None:
        """A pod group was created or changed."""
        self._groups[group.metadata.namespace, group.metadata.name] = group

    def delete_pod_group(self, namespace: str, name: str) -> None:
        """A pod group is gone."""
        self._groups.pop((namespace, name), None)

    # --- what the scheduler decides ---

    def assume(self, placement: Placement) -> None:
        """Apply the claims' part of a decision."""
        pod_uid = placement.pod.metadata.uid
        for step in placement.claims:
            record = self._records.get(claim_id(step.claim))
            if record is not None and record.uid == step.claim.metadata.uid:
                self._assume_step(record, step, placement.pod)
        if placement.extended is not None:
            record = self._record(special_id(placement.pod))
            record.add_sharer(placement.extended.allocation, pod_uid)
            self._settle(record)

    def _assume_step(self, record: ClaimRecord, step: ClaimStep, pod: core_v1.Pod) -> None:
        uid = pod.metadata.uid
        if step.consumer is not None:
            record.expect(uid, step.consumer)
            self._note(record.id)
        if step.allocation is None or (record.allocation is not None and record.in_flight is None):
            return
        record.add_sharer(step.allocation, uid, group_claims.group_name(pod))
        self._settle(record)

    def forget(self, placement: Placement) -> None:
        """Revert the claims' part of a decision. What was written to the API meanwhile stays."""
        pod_uid = placement.pod.metadata.uid
        for step in placement.claims:
            record = self._records.get(claim_id(step.claim))
            if record is not None and record.uid == step.claim.metadata.uid:
                record.expect_no_more(pod_uid)
                record.remove_sharer(pod_uid)
                self._settle(record)
        if placement.extended is not None:
            self.settle_extended(placement.pod)

    def settle_extended(self, pod: core_v1.Pod) -> None:
        """The claim for a pod's extended resources exists with its allocation, or will not be created after all."""
        record = self._records.get(special_id(pod))
        if record is not None:
            record.remove_sharer(pod.metadata.uid)
            self._settle(record)

    @contextmanager
    def without(
        self, pods: Iterable[core_v1.Pod], leftovers: Sequence[ClaimID] = (), *, anew: bool = False
    ) -> Iterator[None]:
        """Inside, the devices of claims that only these pods use are free, and those of the leftovers. anew: these claims can
        be allocated again, like those of the pods that follow."""
        pods = list(pods)
        gone = {pod.metadata.uid for pod in pods}
        held: list[tuple[ClaimID, api.AllocationResult]] = []
        left = set(leftovers)
        for record in (*self._used_by(pods), *(self._records[id_] for id_ in leftovers if id_ in self._records)):
            if self.inventory.ledger.allocation(record.id) is None or record.allocation is None:
                continue
            if record.consumers() <= gone or record.id in left:
                held.append((record.id, record.allocation))
                self.inventory.release(record.id)
        vacated = [(self._records[id_], self._records[id_].vacate()) for id_, _ in held if anew]
        for record, _ in vacated:
            self._note(record.id)
        try:
            yield
        finally:
            for record, claim in vacated:
                record.restore(claim)
                self._note(record.id)
            for id_, allocation in held:
                self.inventory.hold(id_, allocation)

    def leftovers(self, departed: Mapping[str, None]) -> tuple[ClaimID, ...]:
        """Claims whose users, by uid, are all among these: they will be released soon."""
        return self._users.only(departed) if departed else ()

    def users_of_shared_devices(self) -> frozenset[str]:
        """The uids of pods that hold devices that are not local to one node."""
        if not self.inventory.has_shared_devices:
            return frozenset()
        uids: set[str] = set()
        for record in self._records.values():
            if record.allocation is not None and self.inventory.is_shared(record.allocation):
                uids |= record.consumers()
        return frozenset(uids)

    def held_by(self, pod: core_v1.Pod) -> tuple[str, ...]:
        """Names of the devices that a pod's claims hold."""
        return tuple(
            result.device
            for record in self._used_by((pod,))
            if record.allocation is not None
            for result in record.allocation.devices.results
            if not result.admin_access
        )

    def _used_by(self, pods: Iterable[core_v1.Pod]) -> Iterator[ClaimRecord]:
        seen: set[ClaimID] = set()
        for pod in pods:
            for id_ in self.claims_of(pod):
                record = self._records.get(id_)
                if record is not None and id_ not in seen:
                    seen.add(id_)
                    yield record

    # --- questions ---

    def fit(
        self, pod: core_v1.Pod, group: scheduling.PodGroup | None = None, now: float = 0.0
    ) -> ClaimFit | Status | None:
        """The device requirements of a pod, to be checked on nodes. A status: no node fits. None: it needs no devices.

        group: the group that the pod is decided with, in case it is not known yet. now: seconds since 1970.
        """
        if group is not None and group_claims.group_name(pod) == group.metadata.name:
            self._groups.setdefault((group.metadata.namespace, group.metadata.name), group)
        if not pod.spec.resource_claims:
            wanted = self.extended.wanted(pod)
            if wanted is None:
                return None
            return ClaimFit.make(self, pod, (), wanted, now)
        try:
            found = self.lookup(pod)
        except LookupFailure as failure:
            return refusal(str(failure))
        wanted = self.extended.wanted(pod)
        if not found and wanted is None:
            return None
        return ClaimFit.make(self, pod, found, wanted, now)

    def together(self, fits: Sequence[DeviceFit], node: NodeInfo) -> Status | None:
        """Why the pods of these fits cannot all have their devices on a node; if they can, each fit keeps its own."""
        return fit_together(self, [fit for fit in fits if isinstance(fit, ClaimFit)], node)

    @property
    def is_local(self) -> bool:
        """Whether no device can be reached from several nodes, and none provides resources of its node: then what pods get
        on one node makes no difference to another."""
        return not self.inventory.has_shared_devices and not self.node_allocatable

    def gate(self, pod: core_v1.Pod) -> Status | None:
        """Why a pod may not even wait in the queue yet (PreEnqueue)."""
        if not pod.spec.resource_claims:
            return None
        try:
            self.lookup(pod)
        except LookupFailure as failure:
            return refusal(str(failure))
        return None

    def lookup(self, pod: core_v1.Pod) -> list[tuple[core_v1.PodResourceClaim, ClaimRecord]]:
        """The pod's claims in order. LookupFailure, in upstream's words, if one of them cannot be used."""
        namespace = pod.metadata.namespace
        found = []
        for entry in pod.spec.resource_claims:
            name, check_owner = group_claims.claim_name(pod, entry)
            if name is None:
                continue
            record = self._records.get(ClaimID(namespace, name))
            claim = record.current if record is not None else None
            if record is None or claim is None:
                raise LookupFailure(f'could not find ResourceClaim "{namespace}/{name}"')
            if claim.metadata.deletion_timestamp is not None:
                raise LookupFailure(f'resourceclaim "{name}" is being deleted')
            if check_owner:
                group_claims.check_owner(pod, claim, self.workload_claims)
            controller = controller_of(claim)
            if controller and claim.status.allocation is None:
                raise LookupFailure(self._awaited(f"{namespace}/{name}", controller))
            if record.is_full() and not self._is_user(pod, record):
                raise LookupFailure(
                    f'resourceclaim "{name}" is reserved for {api.RESERVED_FOR_MAX} consumers, which is the limit'
                )
            found.append((entry, record))
        return found

    def _awaited(self, claim: str, controller: str) -> str:
        waiting = f"resource claim {claim}: waiting for controller {controller} to allocate it"
        # Also true where the cluster's feature gates are unknown.
        return waiting if self._has_controllers else f"{waiting}, which needs feature gate {GATE}"

    def awaited(self, pod: core_v1.Pod) -> dict[str, api.ResourceClaim]:
        """The claims of a pod that controllers have to allocate, by their names in the pod; none if anything else is missing."""
        found = {}
        for entry in pod.spec.resource_claims if self._has_controllers else ():
            try:
                name, _ = group_claims.claim_name(pod, entry)
            except LookupFailure:
                return {}
            record = self._records.get(ClaimID(pod.metadata.namespace, name)) if name is not None else None
            claim = record.current if record is not None else None
            if claim is None or claim.metadata.deletion_timestamp is not None:
                if name is not None:
                    return {}
            elif controller_of(claim) and claim.status.allocation is None:
                found[entry.name] = claim
        return found

    def _is_user(self, pod: core_v1.Pod, record: ClaimRecord) -> bool:
        """Whether a claim is reserved for a pod or its group, or is about to be."""
        claim = record.current
        assert claim is not None, "a claim that is full is there"
        if group_claims.is_reserved_for(pod, claim, self.workload_claims) or pod.metadata.uid in record.consumers():
            return True
        group = self.pod_group_of(pod)
        return group is not None and group.metadata.uid in record.consumers()

    def claims_of(self, pod: core_v1.Pod) -> tuple[ClaimID, ...]:
        """Claims that a pod names, whether they exist or not; those still to be created are left out."""
        namespace = pod.metadata.namespace
        names = []
        for entry in pod.spec.resource_claims:
            try:
                name, _ = group_claims.claim_name(pod, entry)
            except LookupFailure:
                continue
            if name is not None:
                names.append(ClaimID(namespace, name))
        special = self._special.get(pod.metadata.uid)
        if special is not None:
            names.append(special)
        return tuple(names)

    def claim(self, namespace: str, name: str) -> api.ResourceClaim | None:
        """The newest known version of a claim."""
        record = self._records.get(ClaimID(namespace, name))
        return record.current if record is not None else None

    def allocation(self, id_: ClaimID) -> api.AllocationResult | None:
        """What a claim holds, or is about to hold."""
        record = self._records.get(id_)
        return record.allocation if record is not None else None

    def claims(self) -> Iterator[api.ResourceClaim]:
        """The newest known version of every claim."""
        for record in self._records.values():
            if record.current is not None:
                yield record.current

    def consumers(self, claim: api.ResourceClaim) -> set[str]:
        """The uids of a claim's users, including those decided but not yet written."""
        record = self._records.get(claim_id(claim))
        return record.consumers() if record is not None else set()

    def in_flight(self, namespace: str, name: str) -> bool:
        """Whether an allocation of the claim is decided but not written."""
        record = self._records.get(ClaimID(namespace, name))
        return record is not None and record.in_flight is not None

    def special_claim_of(self, pod: core_v1.Pod) -> api.ResourceClaim | None:
        """The claim in the API that was created for a pod's extended resources."""
        id_ = self._special.get(pod.metadata.uid)
        return self._records[id_].current if id_ is not None else None

    def pod_group_of(self, pod: core_v1.Pod) -> scheduling.PodGroup | None:
        """The group that a pod belongs to, if groups can have claims."""
        name = group_claims.group_name(pod) if self.workload_claims else None
        return self._groups.get((pod.metadata.namespace, name)) if name is not None else None

    def backs(self, resource: str) -> bool:
        """Whether devices of some class serve an extended resource, on nodes that do not offer it themselves."""
        return self.extended.class_name(resource) is not None

    def totals(self, resource: str, node: NodeInfo) -> tuple[int, int]:
        """Devices that serve an extended resource on a node: how many there are, how many of them are held."""
        name = self.extended.class_name(resource)
        if name is None or name not in self.inventory.classes:
            return 0, 0
        signature = self.inventory.plan(one_of_class(name)).requests[0].leaves[0].signature
        if signature is None:
            return 0, 0
        self.inventory.watch(signature)
        try:
            devices = self.inventory.view(node.node).candidates(signature).devices
        except AllocationError:
            return 0, 0
        return len(devices), sum(entry.state.allocated for entry in devices)

    def problem_of(self, plan: ClaimPlan, claim: api.ResourceClaim) -> Status | None:
        """Why no node can serve the claim, judging by its requests and classes (PreFilter)."""
        return self._problems.of(plan, claim)

    # --- when something is wrong ---

    def group_clean_ups(
        self, group: scheduling.PodGroup, refused: Sequence[Refused], scheduled: int
    ) -> tuple[tuple[CleanUp, ...], Status]:
        """What to clear away if a group found no place. scheduled: how many of its pods run or are about to."""
        return group_clean_ups(self, group, refused, scheduled)

    def double_allocations(self, namespace: str, name: str) -> tuple[DoubleAllocation, ...]:
        """What a claim holds that others hold too, because of another scheduler."""
        return tuple(double_allocations(self.inventory, ClaimID(namespace, name), self._claim_of))

    def _claim_of(self, id_: ClaimID) -> api.ResourceClaim | None:
        record = self._records.get(id_)
        return record.current if record is not None else None

    # --- keeping the inventory right ---

    def _record(self, id_: ClaimID) -> ClaimRecord:
        record = self._records.get(id_)
        if record is None:
            record = self._records[id_] = ClaimRecord(id_)
        return record

    def _remember_special(self, claim: api.ResourceClaim, id_: ClaimID) -> None:
        if not claim.metadata.annotations:
            return
        owner = owner_of_special(claim)
        if owner is None:
            return
        self._special[owner] = id_
        if claim.status.allocation is not None:
            # It now holds what was held on its behalf until it existed.
            stand_in = self._records.get(ClaimID(id_.namespace, f"{SPECIAL_NAME}{owner}"))
            if stand_in is not None:
                stand_in.remove_sharer(owner)
                self._settle(stand_in)

    def _settle(self, record: ClaimRecord) -> None:
        """Make the claim hold what it is known to hold, and forget it if nothing is known about it."""
        self._note(record.id)
        allocation = record.allocation
        if allocation is not None:
            self.inventory.hold(record.id, allocation)
        else:
            self.inventory.release(record.id)
            if record.is_empty:
                self._records.pop(record.id, None)


@lru_cache(maxsize=1024)
def one_of_class(name: str) -> api.ResourceClaimSpec:
    """The spec of a claim for one device of a class."""
    exactly = api.ExactDeviceRequest(device_class_name=name, allocation_mode=api.EXACT_COUNT, count=1)
    request = api.DeviceRequest(name="device", exactly=exactly)
    return api.ResourceClaimSpec(devices=api.DeviceClaim(requests=(request,)))


def special_id(pod: core_v1.Pod) -> ClaimID:
    """The name under which the devices for a pod's extended resources are held until their claim exists."""
    return ClaimID(pod.metadata.namespace, f"{SPECIAL_NAME}{pod.metadata.uid}")
