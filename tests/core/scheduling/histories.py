"""Histories of a cluster for laws about the machine: an API that is changed, watches that lag behind it by kind, and writes that
succeed, fail, come too late, or are done by half.

All choices are made by `choose`, so that a history can be drawn by Hypothesis or by a seed.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from allot.core.advice.snapshot import Snapshot
from allot.core.features import DEFAULT_GATES
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from allot.core.model.meta import APIStruct, Condition, ObjectMeta, OwnerReference
from allot.core.model.scheduling_v1 import GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec
from allot.core.model.storage_v1 import (
    BINDING_WAIT,
    NO_PROVISIONER,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    StorageClass,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    VolumeNodeResources,
)
from allot.core.quantity import Quantity
from allot.core.scheduling import Bound, Decision, Machine, NotBound, ObjectChange, Placement, Refusal, Settings
from allot.core.scheduling.devices.binding_conditions import Binding, binding_state, has_conditions
from allot.core.scheduling.plan import CleanUp, DeleteClaim, Unreserve

T = TypeVar("T")
Choose = Callable[[Sequence[Any]], Any]
Key = tuple[type[APIStruct], str]

DRIVER = "gpu.example.com"
GATES = DEFAULT_GATES.changed(["GenericWorkload"])
SETTINGS = Settings(preempts=False)
KINDS: tuple[type[APIStruct], ...] = (
    *(core_v1.Namespace, Node, api.DeviceClass, api.ResourceSlice, api.ResourceClaim, PodGroup),
    *(StorageClass, CSINode, PersistentVolume, PersistentVolumeClaim, Pod),
)
NODES = ("n0", "n1", "n2")
PODS = ("p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7")
# The other pods are in "ns", as are all claims and groups.
ABROAD = ("p6", "p7")
CLAIMS = ("c0", "c1", "c2")
GROUPS = ("g0", "g1")
VOLUMES = ("pv0", "pv1", "pv2")
VOLUME_CLAIMS = ("v0", "v1", "p0-data", "p1-data")
STORAGE_CLASSES = ("now", "later")
EXTENDED = "example.com/gpu"
IMPLICIT = f"{api.IMPLICIT_EXTENDED_RESOURCE_PREFIX}gpu"
ZONE = "topology.kubernetes.io/zone"
STORAGE_DRIVER = "csi.example.com"
READY, BROKEN = "example.com/ready", "example.com/broken"
NEAR = ("apart", "together", "apart from team", "together with team")
WISHES_ABROAD = (*("none",) * 4, "port", "zone", *NEAR, "spread", "gate", "toleration")
WISHES = (
    *("none",) * 4,
    *("claim",) * 5,
    *("gang",) * 3,
    *("volume",) * 3,
    *("extended",) * 3,
    *("gang with claim", "port", "zone", *NEAR, "spread", "gate", "toleration", "other scheduler"),
    *("ephemeral volume", "implicit", "claim and extended"),
)


class History:
    """An API, and a machine that watches it."""

    def __init__(self, choose: Choose, settings: Settings = SETTINGS) -> None:
        self._choose = choose
        self.preempts = settings.preempts
        self.machine = Machine({"default-scheduler": settings}.get, GATES)
        self.objects: dict[Key, Any] = {}
        self._known: dict[Key, Any] = {}
        self._outbox: dict[type[APIStruct], deque[tuple[str, Any]]] = {kind: deque() for kind in KINDS}
        self._flights: list[Placement] = []
        self._reports: list[Refusal] = []
        self._serial = 0
        self.now = 0.0
        self.told: list[str] = []
        # Something to begin with.
        for _ in range(2):
            self.make_node()
            self.make_slice()
        self.make_class()
        for name in ("ns", "other"):
            self.put(core_v1.Namespace(metadata=self._new(name, labels={"team": "a"})))
        for _ in range(3):
            self.make_storage_class()
            self.limit_volumes()
            self.make_volume()
            self.make_volume_claim()
            self.bind_volume()

    # --- the API ---

    def snapshot(self) -> Snapshot:
        return Snapshot(tuple(self.objects.values()), self.now)

    def get(self, kind: type[T], name: str) -> T | None:
        return self.objects.get((kind, name))  # type: ignore[arg-type]

    def put(self, object_: Any) -> None:
        self._serial += 1
        metadata = replace(object_.metadata, resource_version=str(self._serial))
        changed = replace(object_, metadata=metadata)
        self.objects[type(object_), object_.metadata.name] = changed
        self._outbox[type(object_)].append((object_.metadata.name, changed))

    def all(self, kind: type[T]) -> list[T]:
        return [found for (type_, _), found in self.objects.items() if type_ is kind]

    def delete(self, kind: type[APIStruct], name: str) -> None:
        if self.objects.pop((kind, name), None) is not None:
            self._outbox[kind].append((name, None))

    def _new(self, name: str, **more: Any) -> ObjectMeta:
        self._serial += 1
        return ObjectMeta(name=name, uid=f"{name}-{self._serial}", **more)

    # --- what users, drivers and controllers do ---

    def make_node(self) -> None:
        name = self._choose(NODES)
        known = self.get(Node, name)
        zone = self._choose(("a", "b"))
        labels = {"kubernetes.io/hostname": name, "zone": zone, ZONE: zone}
        amounts = {"cpu": self._choose(("1", "2", "3")), "pods": self._choose(("10", "10", "1"))}
        if self._choose((False,) * 7 + (True,)):
            # A device plugin serves it here.
            amounts[EXTENDED] = self._choose(("1", "0"))
        metadata = self._new(name) if known is None else known.metadata
        spec = core_v1.NodeSpec(
            unschedulable=self._choose((False,) * 7 + (True,)),
            taints=self._choose(((),) * 7 + ((core_v1.Taint(key="t", effect="NoSchedule"),),)),
        )
        allocatable = {resource: Quantity.parse(amount) for resource, amount in amounts.items()}
        self.put(
            Node(
                metadata=replace(metadata, labels=labels),
                spec=spec,
                status=core_v1.NodeStatus(allocatable=allocatable),
            )
        )

    def delete_node(self) -> None:
        self.delete(Node, self._choose(NODES))

    def make_slice(self) -> None:
        node = self._choose(NODES)
        known = self.get(api.ResourceSlice, node)
        count = self._choose((1, 1, 2, 0))
        attached = {"binding_conditions": (READY,), "binding_failure_conditions": (BROKEN,)}
        more: dict[str, Any] = self._choose(({}, {}, {}, attached, {**attached, "binds_to_node": True}))
        spec = api.ResourceSliceSpec(
            driver=DRIVER,
            pool=api.ResourcePool(name=node, generation=1, resource_slice_count=1),
            node_name=node,
            devices=tuple(api.Device(name=f"gpu-{number}", **more) for number in range(count)),
        )
        self.put(api.ResourceSlice(metadata=self._new(node) if known is None else known.metadata, spec=spec))

    def delete_slice(self) -> None:
        self.delete(api.ResourceSlice, self._choose(NODES))

    def make_class(self) -> None:
        if self.get(api.DeviceClass, "gpu") is None:
            name = self._choose((EXTENDED, EXTENDED, None))
            self.put(api.DeviceClass(metadata=self._new("gpu"), spec=api.DeviceClassSpec(extended_resource_name=name)))

    def delete_class(self) -> None:
        self.delete(api.DeviceClass, "gpu")

    def make_claim(self) -> None:
        name = self._choose(CLAIMS)
        if self.get(api.ResourceClaim, name) is not None:
            return
        exactly = api.ExactDeviceRequest(
            device_class_name="gpu", allocation_mode=api.EXACT_COUNT, count=self._choose((1, 1, 2))
        )
        devices = api.DeviceClaim(requests=(api.DeviceRequest(name="gpu", exactly=exactly),))
        metadata = replace(self._new(name), namespace="ns")
        self.put(api.ResourceClaim(metadata=metadata, spec=api.ResourceClaimSpec(devices=devices)))

    def delete_claim(self) -> None:
        self.delete(api.ResourceClaim, self._choose(CLAIMS))

    def make_group(self) -> None:
        name = self._choose(GROUPS)
        known = self.get(PodGroup, name)
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=self._choose((1, 2, 2, 3))))
        metadata = replace(self._new(name), namespace="ns") if known is None else known.metadata
        self.put(PodGroup(metadata=metadata, spec=PodGroupSpec(scheduling_policy=policy)))

    def delete_group(self) -> None:
        self.delete(PodGroup, self._choose(GROUPS))

    def relabel_namespace(self) -> None:
        found = self.get(core_v1.Namespace, self._choose(("ns", "other")))
        assert found is not None
        self.put(replace(found, metadata=replace(found.metadata, labels={"team": self._choose(("a", "b"))})))

    def make_storage_class(self) -> None:
        name = self._choose(STORAGE_CLASSES)
        known = self.get(StorageClass, name)
        in_zone_a = TopologySelectorTerm(
            match_label_expressions=(TopologySelectorLabelRequirement(key="zone", values=("a",)),)
        )
        self.put(
            StorageClass(
                metadata=self._new(name) if known is None else known.metadata,
                provisioner=self._choose((STORAGE_DRIVER, NO_PROVISIONER)),
                volume_binding_mode=BINDING_WAIT if name == "later" else "Immediate",
                allowed_topologies=self._choose(((), (), (in_zone_a,))),
            )
        )

    def limit_volumes(self) -> None:
        name = self._choose(NODES)
        known = self.get(CSINode, name)
        count = VolumeNodeResources(count=self._choose((0, 1, 1, None)))
        drivers = (CSINodeDriver(name=STORAGE_DRIVER, allocatable=count),)
        metadata = self._new(name) if known is None else known.metadata
        self.put(CSINode(metadata=metadata, spec=CSINodeSpec(drivers=drivers)))

    def make_volume(self) -> None:
        name = self._choose(VOLUMES)
        if self.get(PersistentVolume, name) is not None:
            return
        zone = core_v1.NodeSelectorRequirement(key="zone", operator="In", values=(self._choose(("a", "b")),))
        near = core_v1.NodeSelector(node_selector_terms=(core_v1.NodeSelectorTerm(match_expressions=(zone,)),))
        spec = core_v1.PersistentVolumeSpec(
            capacity={"storage": Quantity.parse(self._choose(("1Gi", "2Gi")))},
            csi=core_v1.CSIPersistentVolumeSource(driver=STORAGE_DRIVER, volume_handle=name),
            access_modes=("ReadWriteOnce", "ReadWriteOncePod"),
            storage_class_name=self._choose(STORAGE_CLASSES),
            node_affinity=self._choose((None, None, core_v1.VolumeNodeAffinity(required=near))),
        )
        labels = self._choose(({}, {}, {ZONE: "a"}, {ZONE: "b"}))
        status = core_v1.PersistentVolumeStatus(phase="Available")
        self.put(PersistentVolume(metadata=self._new(name, labels=labels), spec=spec, status=status))

    def make_volume_claim(self) -> None:
        name = self._choose(VOLUME_CLAIMS)
        if self.get(PersistentVolumeClaim, name) is not None:
            return
        owners = ()
        if name.endswith("-data"):
            # As the controller of ephemeral volumes does, which may be late.
            pod = self.get(Pod, name.removesuffix("-data"))
            if pod is None:
                return
            owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)
            owners = (replace(owner, controller=True),)
        spec = core_v1.PersistentVolumeClaimSpec(
            access_modes=(self._choose(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod")),),
            resources=core_v1.VolumeResourceRequirements(requests={"storage": Quantity.parse("1Gi")}),
            storage_class_name=self._choose(STORAGE_CLASSES),
        )
        metadata = replace(self._new(name, owner_references=owners), namespace="ns")
        self.put(PersistentVolumeClaim(metadata=metadata, spec=spec))

    def bind_volume(self) -> None:
        """As the controller of volumes does, or a scheduler that binds them."""
        claim = self.get(PersistentVolumeClaim, self._choose(VOLUME_CLAIMS))
        volume = self.get(PersistentVolume, self._choose(VOLUMES))
        if claim is None or volume is None or claim.spec.volume_name or volume.spec.claim_ref is not None:
            return
        if claim.spec.storage_class_name != volume.spec.storage_class_name:
            return
        metadata = claim.metadata
        holder = core_v1.ObjectReference(
            kind="PersistentVolumeClaim", namespace=metadata.namespace, name=metadata.name, uid=metadata.uid
        )
        bound = core_v1.PersistentVolumeStatus(phase="Bound")
        self.put(replace(volume, spec=replace(volume.spec, claim_ref=holder), status=bound))
        annotations = {"pv.kubernetes.io/bind-completed": "yes"}
        self.put(
            replace(
                claim,
                metadata=replace(metadata, annotations=annotations),
                spec=replace(claim.spec, volume_name=volume.metadata.name),
                status=core_v1.PersistentVolumeClaimStatus(phase="Bound"),
            )
        )

    def delete_storage_class(self) -> None:
        self.delete(StorageClass, self._choose(STORAGE_CLASSES))

    def delete_volume(self) -> None:
        self.delete(PersistentVolume, self._choose(VOLUMES))

    def delete_volume_claim(self) -> None:
        self.delete(PersistentVolumeClaim, self._choose(VOLUME_CLAIMS))

    def make_pod(self) -> None:
        name = self._choose(PODS)
        if self.get(Pod, name) is not None:
            return
        wish = self._choose(WISHES_ABROAD if name in ABROAD else WISHES)
        claim = self._choose(CLAIMS) if wish in ("claim", "gang with claim", "claim and extended") else None
        group = self._choose(GROUPS) if wish in ("gang", "gang with claim") else None
        ports = (core_v1.ContainerPort(container_port=1, host_port=80),) if wish == "port" else ()
        requests = {"cpu": Quantity.parse(self._choose(("1", "1", "2", "0")))}
        resource = {"extended": EXTENDED, "claim and extended": EXTENDED, "implicit": IMPLICIT}.get(wish)
        if resource is not None:
            requests[resource] = Quantity.parse(self._choose(("1", "1", "2")))
        container = core_v1.Container(name="c", ports=ports, resources=core_v1.ResourceRequirements(requests=requests))
        spec = core_v1.PodSpec(
            containers=(container,),
            priority=0 if group else self._choose((0, 0, 0, 5)),
            # A group's pods have one scheduler; of a snapshot nobody can tell which schedulers are one process.
            scheduler_name="other" if wish == "other scheduler" else "default-scheduler",
            node_selector={"zone": "a"} if wish == "zone" else {},
            affinity=_affinity(wish) if wish in NEAR else None,
            volumes=self._volumes(wish),
            topology_spread_constraints=(_spread(),) if wish == "spread" else (),
            scheduling_gates=(core_v1.PodSchedulingGate(name="g"),) if wish == "gate" else (),
            tolerations=(core_v1.Toleration(key="t", operator="Exists"),) if wish == "toleration" else (),
            resource_claims=(core_v1.PodResourceClaim(name="gpu", resource_claim_name=claim),) if claim else (),
            scheduling_group=core_v1.PodSchedulingGroup(pod_group_name=group) if group else None,
        )
        namespace = "other" if name in ABROAD else "ns"
        metadata = replace(self._new(name), namespace=namespace, labels={"app": self._choose(("x", "y"))})
        self.put(Pod(metadata=metadata, spec=spec))

    def _volumes(self, wish: str) -> tuple[core_v1.Volume, ...]:
        # As every pod has it, with a name of its own.
        token = core_v1.Volume(name=f"kube-api-access-{self._serial}")
        if wish == "volume":
            source = core_v1.PersistentVolumeClaimVolumeSource(claim_name=self._choose(("v0", "v1")))
            return token, core_v1.Volume(name="data", persistent_volume_claim=source)
        if wish == "ephemeral volume":
            return token, core_v1.Volume(name="data", ephemeral=core_v1.EphemeralVolumeSource())
        return (token,)

    def open_gates(self) -> None:
        pod = self.get(Pod, self._choose(PODS))
        if pod is not None and pod.spec.scheduling_gates:
            self.put(replace(pod, spec=replace(pod.spec, scheduling_gates=())))

    def relabel_pod(self) -> None:
        pod = self.get(Pod, self._choose(PODS))
        if pod is not None:
            self.put(replace(pod, metadata=replace(pod.metadata, labels={"app": self._choose(("x", "y", "z"))})))

    def terminate_pod(self) -> None:
        """It is being deleted, and still there."""
        pod = self.get(Pod, self._choose(PODS))
        if pod is not None:
            self.put(replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))

    def finish_pod(self) -> None:
        pod = self.get(Pod, self._choose(PODS))
        if pod is not None and pod.spec.node_name:
            self.put(replace(pod, status=replace(pod.status, phase="Succeeded")))
            self._release(pod)

    def delete_pod(self) -> None:
        pod = self.get(Pod, self._choose(PODS))
        if pod is not None:
            self.delete(Pod, pod.metadata.name)
            self._release(pod)

    def _release(self, pod: Pod) -> None:
        """As the claim controller does once a pod is done."""
        for claim in self.all(api.ResourceClaim):
            if any(owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
                self.delete(api.ResourceClaim, claim.metadata.name)
                continue
            if all(user.uid != pod.metadata.uid for user in claim.status.reserved_for):
                continue
            left = tuple(user for user in claim.status.reserved_for if user.uid != pod.metadata.uid)
            status = replace(claim.status, reserved_for=left) if left else api.ResourceClaimStatus()
            self.put(replace(claim, status=status))
        for volume_claim in self.all(PersistentVolumeClaim):
            if any(owner.uid == pod.metadata.uid for owner in volume_claim.metadata.owner_references):
                self.delete(PersistentVolumeClaim, volume_claim.metadata.name)

    def report_devices(self) -> None:
        """A driver says of the devices of a claim that they are attached, or cannot be."""
        waiting = [claim for claim in self.all(api.ResourceClaim) if has_conditions(claim)]
        if waiting:
            self._report_devices(self._choose(waiting), self._choose((READY, READY, BROKEN)))

    def _report_devices(self, claim: api.ResourceClaim, type_: str) -> None:
        assert claim.status.allocation is not None
        condition = Condition(type=type_, status="True", reason="Said", last_transition_time=time_of(self.now))
        devices = tuple(
            api.AllocatedDeviceStatus(
                driver=result.driver, pool=result.pool, device=result.device, conditions=(condition,)
            )
            for result in claim.status.allocation.devices.results
        )
        self.put(replace(claim, status=replace(claim.status, devices=devices)))

    def break_something(self) -> None:
        getattr(self, self._choose(BREAKS))()

    # --- watches ---

    def deliver(self) -> None:
        waiting = [kind for kind in KINDS if self._outbox[kind]]
        if waiting:
            self._deliver_one(self._choose(waiting))

    def _deliver_one(self, kind: type[APIStruct]) -> None:
        name, new = self._outbox[kind].popleft()
        old = self._known.pop((kind, name), None)
        if new is not None:
            self._known[kind, name] = new
        if old is None and new is None:
            return
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            self.machine.apply(ObjectChange(old, None), self.now)
            old = None
        self.machine.apply(ObjectChange(old, new), self.now)

    def deliver_again(self) -> None:
        """A watch that starts anew tells what is known already."""
        if self._known:
            key = self._choose(sorted(self._known, key=lambda each: (each[0].__name__, each[1])))
            self.machine.apply(ObjectChange(self._known[key], self._known[key]), self.now)

    def deliver_all(self) -> None:
        for kind in KINDS:
            while self._outbox[kind]:
                self._deliver_one(kind)

    # --- the scheduler ---

    def wait(self) -> None:
        self.now += self._choose((0.01, 1.5, 12.0))

    def decide(self) -> Decision | None:
        decision = self.machine.next(self.now, self.now)
        if decision is not None:
            self._flights += decision.placements
            self._reports += [
                refusal
                for refusal in decision.refusals
                if refusal.nominated_node or refusal.victims or refusal.clean_ups
            ]
            self.told.append(text_of(decision))
        return decision

    def settle(self) -> None:
        if self._flights:
            placement = self._flights.pop(self._choose(range(len(self._flights))))
            self._settle(placement, self._choose(("written", "written", "conflict", "failed", "failed", "half")))

    def report(self) -> None:
        """The scheduler asks victims to go and says where the pod is to go, or cannot."""
        if self._reports:
            self._report(self._reports.pop(0), self._choose(("done", "done", "failed")))

    def _report(self, refusal: Refusal, outcome: str) -> None:
        if outcome == "failed":
            self.machine.retry(refusal.pod, self.now)
            return
        for victim in refusal.victims:
            found = self.get(Pod, victim.pod.metadata.name)
            if found is not None and found.metadata.uid == victim.pod.metadata.uid:
                self.delete(Pod, found.metadata.name)
                self._release(found)
        pod = self.get(Pod, refusal.pod.metadata.name)
        if pod is None or pod.metadata.uid != refusal.pod.metadata.uid or pod.spec.node_name:
            return
        status = replace(pod.status, nominated_node_name=refusal.nominated_node or pod.status.nominated_node_name)
        if any(isinstance(clean_up, DeleteClaim) for clean_up in refusal.clean_ups):
            status = replace(status, extended_resource_claim_status=None)
        if status != pod.status:
            self.put(replace(pod, status=status))
        done = [self._clean_up(clean_up) for clean_up in refusal.clean_ups]
        if not all(done):
            self.machine.retry(refusal.pod, self.now)

    def _clean_up(self, clean_up: CleanUp) -> bool:
        """Whether it is done, and an event will say so."""
        claim = self.get(api.ResourceClaim, clean_up.claim.metadata.name)
        if claim is None or claim.metadata.uid != clean_up.claim.metadata.uid:
            return not isinstance(clean_up, DeleteClaim)
        if isinstance(clean_up, DeleteClaim):
            self.delete(api.ResourceClaim, claim.metadata.name)
            return False
        if isinstance(clean_up, Unreserve):
            left = tuple(user for user in claim.status.reserved_for if user.uid != clean_up.uid)
            self._wrote(replace(claim, status=replace(claim.status, reserved_for=left)))
            return True
        if claim.metadata.resource_version != clean_up.claim.metadata.resource_version:
            return False
        self._wrote(replace(claim, status=api.ResourceClaimStatus()))
        return True

    def _wrote(self, claim: api.ResourceClaim) -> api.ResourceClaim:
        """The scheduler itself has written a claim."""
        self.put(claim)
        written: api.ResourceClaim = self.objects[api.ResourceClaim, claim.metadata.name]
        self.machine.claims.wrote(written)
        return written

    def settle_all(self) -> None:
        while self._flights:
            self._settle(self._flights.pop(0), "written")
        while self._reports:
            self._report(self._reports.pop(0), "done")

    def _settle(self, placement: Placement, outcome: str) -> None:
        if outcome in ("conflict", "failed"):
            self._not_bound(placement, is_conflict=outcome == "conflict")
            return
        for step in placement.claims:
            claim = self.get(api.ResourceClaim, step.claim.metadata.name)
            if claim is None or claim.metadata.uid != step.claim.metadata.uid:
                self._not_bound(placement)
                return
            status = claim.status
            if step.allocation is not None:
                if status.allocation is not None and status.allocation.devices != step.allocation.devices:
                    self._not_bound(placement, is_conflict=True)
                    return
                stamped = replace(step.allocation, allocation_timestamp=time_of(self.now))
                status = replace(status, allocation=status.allocation or stamped)
            elif status.allocation is None:
                self._not_bound(placement, is_conflict=True)
                return
            if step.consumer is not None and step.consumer not in status.reserved_for:
                status = replace(status, reserved_for=(*status.reserved_for, step.consumer))
            self._wrote(replace(claim, status=status))
        pod = self.get(Pod, placement.pod.metadata.name)
        is_gone = pod is None or pod.metadata.uid != placement.pod.metadata.uid
        made = self._create_extended(placement) if placement.extended is not None else None
        if placement.extended is not None and made is None:
            self._not_bound(placement, is_conflict=True)
            return
        attached = [self._attach(id_.name) for id_ in self.machine.claims.claims_of(placement.pod)]
        if outcome == "half" or is_gone or not all(attached):
            if made is not None and outcome != "half":
                # A scheduler that ends at this moment leaves it; one that goes on takes it back.
                self.delete(api.ResourceClaim, made.metadata.name)
            self._not_bound(placement)
            if is_gone:
                # The claim controller finds a reservation for a pod that is gone.
                self._release(placement.pod)
            return
        assert pod is not None
        if pod.metadata.deletion_timestamp is not None:
            if made is not None:
                self.delete(api.ResourceClaim, made.metadata.name)
            self._not_bound(placement)
            return
        if not pod.spec.node_name:
            self.put(replace(pod, spec=replace(pod.spec, node_name=placement.node)))
            pod = self.objects[Pod, pod.metadata.name]
        self.machine.settled(placement, Bound(pod.spec.node_name), self.now)

    def _create_extended(self, placement: Placement) -> api.ResourceClaim | None:
        """The claim for a pod's extended resources, and the pod's status that names it; None if there is one already."""
        new, pod = placement.extended, placement.pod
        assert new is not None
        name = f"{new.claim.metadata.generate_name}{pod.metadata.uid}"
        if self.get(api.ResourceClaim, name) is not None:
            return None
        consumer = api.ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        allocation = replace(new.allocation, allocation_timestamp=time_of(self.now))
        made = self._wrote(
            replace(
                new.claim,
                metadata=replace(new.claim.metadata, name=name, uid=f"{name}-{self._serial}"),
                status=api.ResourceClaimStatus(allocation=allocation, reserved_for=(consumer,)),
            )
        )
        known = self.get(Pod, pod.metadata.name)
        if known is not None and known.metadata.uid == pod.metadata.uid:
            said = core_v1.PodExtendedResourceClaimStatus(request_mappings=new.mappings, resource_claim_name=name)
            self.put(replace(known, status=replace(known.status, extended_resource_claim_status=said)))
        return made

    def _attach(self, name: str) -> bool:
        """The scheduler waits until the devices of a claim are ready; whether they are."""
        claim = self.get(api.ResourceClaim, name)
        if claim is None:
            return False
        if not has_conditions(claim):
            return True
        state = binding_state(claim, self.now).binding
        if state is Binding.PENDING and not claim.status.devices:
            said = self._choose((READY, READY, READY, BROKEN, ""))
            if said:
                self._report_devices(claim, said)
                return bool(said == READY)
        return state is Binding.READY

    def _not_bound(self, placement: Placement, *, is_conflict: bool = False) -> None:
        self.machine.settled(placement, NotBound(is_conflict=is_conflict), self.now)

    # --- the law's own ---

    def step(self) -> None:
        """Something happens."""
        getattr(self, self._choose(STEPS))()

    def calm_down(self) -> Iterator[Decision]:
        """Nothing more happens: all is delivered and written. Each decision until nothing is left to try, before it is
        written; time goes on, but not as far as units are tried without an event."""
        self.settle_all()
        self.deliver_all()
        for _ in range(12):
            self.now += 11.0
            while (decision := self.decide()) is not None:
                yield decision
                self.settle_all()
                self.deliver_all()

    def holders(self) -> dict[tuple[str, str], list[str]]:
        """Who holds which device."""
        held: dict[tuple[str, str], list[str]] = {}
        for claim in self.all(api.ResourceClaim):
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation is not None else ():
                held.setdefault((result.pool, result.device), []).append(claim.metadata.name)
        return held


STEPS = (
    *("make_node", "make_slice", "make_class", "make_group", "open_gates", "relabel_pod"),
    *("relabel_namespace", "make_storage_class", "limit_volumes", "report_devices"),
    *("make_volume", "make_volume_claim", "bind_volume") * 2,
    *("make_claim",) * 3,
    "break_something",
    *("make_pod",) * 8,
    *("terminate_pod", "finish_pod", "finish_pod", "delete_pod", "delete_pod", "delete_pod"),
    *("deliver",) * 6,
    *("deliver_all",) * 6,
    *("deliver_again", "wait", "wait"),
    *("decide",) * 12,
    *("settle",) * 6,
    *("report",) * 2,
)
BREAKS = (
    *("delete_node", "delete_slice", "delete_class", "delete_claim", "delete_group"),
    *("delete_storage_class", "delete_volume", "delete_volume_claim"),
)


def _selector(value: str) -> core_v1.LabelSelector:
    return core_v1.LabelSelector(match_labels={"app": value})


def _term(value: str, *, with_team: bool) -> core_v1.PodAffinityTerm:
    team = core_v1.LabelSelector(match_labels={"team": "a"}) if with_team else None
    return core_v1.PodAffinityTerm(label_selector=_selector(value), topology_key="zone", namespace_selector=team)


def _affinity(wish: str) -> core_v1.Affinity:
    """To be apart from pods with label x, or together with those with label y; of one's own namespace, or of a team's."""
    with_team = wish.endswith("team")
    if wish.startswith("apart"):
        terms = (_term("x", with_team=with_team),)
        return core_v1.Affinity(
            pod_anti_affinity=core_v1.PodAntiAffinity(required_during_scheduling_ignored_during_execution=terms)
        )
    terms = (_term("y", with_team=with_team),)
    return core_v1.Affinity(pod_affinity=core_v1.PodAffinity(required_during_scheduling_ignored_during_execution=terms))


def _spread() -> core_v1.TopologySpreadConstraint:
    return core_v1.TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=_selector("x")
    )


def time_of(now: float) -> str:
    """A time of the history as objects have it."""
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:%SZ}"


def text_of(decision: Decision) -> str:
    """A decision in words."""
    placed = [
        (placement.pod.metadata.name, placement.node, devices_of_placement(placement))
        for placement in decision.placements
    ]
    refused = [(refusal.pod.metadata.name, refusal.message, sorted(refusal.plugins)) for refusal in decision.refusals]
    return f"{placed} {refused}"


def devices_of_placement(placement: Placement) -> list[list[str]]:
    """The devices of each claim that is written, that for extended resources last."""
    found = [devices_of(step.allocation) for step in placement.claims]
    return found if placement.extended is None else [*found, devices_of(placement.extended.allocation)]


def devices_of(allocation: api.AllocationResult | None) -> list[str]:
    """The devices of an allocation."""
    results = allocation.devices.results if allocation is not None else ()
    return [f"{result.pool}/{result.device}" for result in results]


def main(seeds: range, steps: int) -> None:
    """What a machine decides in the histories of these seeds."""
    for seed in seeds:
        history = History(random.Random(seed).choice, Settings(preempts=seed % 2 == 0))
        for _ in range(steps):
            history.step()
        for _ in history.calm_down():
            pass
        for line in history.told:
            sys.stdout.write(f"{seed} {line}\n")


if __name__ == "__main__":
    main(range(int(sys.argv[1])), int(sys.argv[2]))
