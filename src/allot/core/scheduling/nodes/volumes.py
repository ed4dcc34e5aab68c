"""Volumes as far as they restrict nodes: the plugins VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone.

Knows volume claims, volumes, storage classes, and how many volumes a node's drivers can attach. Decides where a pod can have those
that it names, and which of them must be bound or created there first (`steps`); what others were given is taken until the
API shows it too (`assume`). In-tree volumes are used as they are, not translated to CSI.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from allot.core.model import core_v1, storage_v1
from allot.core.model.meta import ObjectMeta
from allot.core.scheduling.devices.binding_conditions import Binding, BindingState
from allot.core.scheduling.devices.claim_record import is_older
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.nodes.volume_matching import (
    SELECTED_NODE,
    capacity,
    claim_key,
    class_name,
    is_bound,
    is_held_for,
    size,
    suits,
)
from allot.core.scheduling.plan import Placement, VolumeStep
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.status import Status, Verdict
from allot.core.selectors import NodeMatcher, SelectorError, node_matcher

RESTRICTIONS = "VolumeRestrictions"
LIMITS = "NodeVolumeLimits"
BINDING = "VolumeBinding"
ZONE = "VolumeZone"
_ONCE_POD = "ReadWriteOncePod"
_ZONE_LABELS = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}


def _refusal(plugin: str, *reasons: str, verdict: Verdict = Verdict.UNRESOLVABLE) -> Status:
    return Status(verdict=verdict, plugin=plugin, reasons=reasons)


_DISK_CONFLICT = _refusal(RESTRICTIONS, "node(s) had no available disk", verdict=Verdict.UNSCHEDULABLE)
_IN_USE = _refusal(
    RESTRICTIONS,
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
    verdict=Verdict.UNSCHEDULABLE,
)
_TOO_MANY = _refusal(LIMITS, "node(s) exceed max volume count", verdict=Verdict.UNSCHEDULABLE)
_UNBOUND = _refusal(BINDING, "pod has unbound immediate PersistentVolumeClaims")
_WRONG_ZONE = _refusal(ZONE, "node(s) had no available volume zone")
_NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
_NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
_VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


class Volumes:
    """Storage of a cluster."""

    def __init__(self) -> None:
        self._claims: dict[str, core_v1.PersistentVolumeClaim] = {}
        self._volumes: dict[str, core_v1.PersistentVolume] = {}
        self._matchers: dict[str, NodeMatcher] = {}
        self._classes: dict[str, storage_v1.StorageClass] = {}
        # By node and driver.
        self._limits: dict[str, dict[str, int]] = {}
        # What decisions gave away that the API does not show yet: nodes by claim, claims by volume.
        self._selected: dict[str, str] = {}
        self._held: dict[str, str] = {}
        # Grows with every change.
        self.version = 0

    # --- changes ---

    def put_claim(self, claim: core_v1.PersistentVolumeClaim) -> None:
        """A volume claim was created or changed."""
        self._claims[f"{claim.metadata.namespace}/{claim.metadata.name}"] = claim
        self.version += 1

    def delete_claim(self, namespace: str, name: str) -> None:
        """A volume claim is gone."""
        self._claims.pop(f"{namespace}/{name}", None)
        self.version += 1

    def put_volume(self, volume: core_v1.PersistentVolume) -> None:
        """A volume was created or changed."""
        name = volume.metadata.name
        self._volumes[name] = volume
        affinity = volume.spec.node_affinity
        if affinity is not None and affinity.required is not None:
            self._matchers[name] = node_matcher(affinity.required)
        else:
            self._matchers.pop(name, None)
        self.version += 1

    def delete_volume(self, name: str) -> None:
        """A volume is gone."""
        self._volumes.pop(name, None)
        self._matchers.pop(name, None)
        self.version += 1

    def put_class(self, storage_class: storage_v1.StorageClass) -> None:
        """A storage class was created or changed."""
        self._classes[storage_class.metadata.name] = storage_class
        self.version += 1

    def delete_class(self, name: str) -> None:
        """A storage class is gone."""
        self._classes.pop(name, None)
        self.version += 1

    def put_csi_node(self, csi_node: storage_v1.CSINode) -> None:
        """The storage drivers of a node changed."""
        limits = {
            driver.name: driver.allocatable.count
            for driver in csi_node.spec.drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        if self._limits.get(csi_node.metadata.name, {}) != limits:
            self._limits[csi_node.metadata.name] = limits
            self.version += 1

    def delete_csi_node(self, name: str) -> None:
        """Nothing is known about a node's storage drivers any longer."""
        if self._limits.pop(name, None):
            self.version += 1

    # --- decisions ---

    def steps(self, profile: Profile, node: NodeInfo) -> tuple[VolumeStep, ...]:
        """What must be bound or created before a pod has its volumes on a node that fits."""
        return self._bindings([claim for claim in self._claims_of(profile) if not is_bound(claim)], node) or ()

    def assume(self, placement: Placement) -> None:
        """A decision gives volumes away."""
        for step in placement.volumes:
            if step.volume is None:
                self._selected[claim_key(step.claim)] = placement.node
            else:
                self._held[step.volume.metadata.name] = claim_key(step.claim)
            self.version += 1

    def forget(self, placement: Placement) -> None:
        """The API shows the result of a decision, or it had none."""
        for step in placement.volumes:
            if step.volume is None:
                self._selected.pop(claim_key(step.claim), None)
            else:
                self._held.pop(step.volume.metadata.name, None)
            self.version += 1

    def binding(self, step: VolumeStep, node: NodeInfo | None, written: ObjectMeta) -> BindingState:
        """The progress of a step. written: the claim or volume after the write that started the step."""
        claim = self._claims.get(claim_key(step.claim))
        if claim is None or claim.metadata.uid != step.claim.metadata.uid:
            name = step.claim.metadata.name
            return BindingState(Binding.FAILED, f'failed to check binding: persistentvolumeclaim "{name}" not found')
        if node is None:
            return BindingState(Binding.FAILED, "failed to get node")
        if step.volume is not None:
            volume = self._volumes.get(step.volume.metadata.name)
            if volume is None:
                name = step.volume.metadata.name
                return BindingState(Binding.FAILED, f'failed to check binding: persistentvolume "{name}" not found')
            if is_older(volume.metadata, written):
                return BindingState(Binding.PENDING)
            if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
                return BindingState(Binding.FAILED, f'ClaimRef got reset for pv "{volume.metadata.name}"')
        elif is_older(claim.metadata, written):
            return BindingState(Binding.PENDING)
        elif claim.metadata.annotations.get(SELECTED_NODE) != node.name:
            return BindingState(Binding.FAILED, f'provisioning failed for PVC "{claim.metadata.name}"')
        if claim.spec.volume_name in self._volumes and not self._reaches(claim.spec.volume_name, node):
            text = f'pv "{claim.spec.volume_name}" node affinity doesn\'t match node "{node.name}"'
            return BindingState(Binding.FAILED, text)
        return BindingState(Binding.READY if is_bound(claim) else Binding.PENDING)

    # --- all nodes ---

    def pre_refusal(self, profile: Profile, pod: core_v1.Pod) -> Status | None:
        """Why no node fits."""
        for volume in pod.spec.volumes:
            source = volume.persistent_volume_claim
            if source is not None and f"{profile.namespace}/{source.claim_name}" not in self._claims:
                return _refusal(RESTRICTIONS, f'persistentvolumeclaim "{source.claim_name}" not found')
        unbound = False
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is None and volume.ephemeral is None:
                continue
            source = volume.persistent_volume_claim
            name = source.claim_name if source is not None else f"{pod.metadata.name}-{volume.name}"
            status = self._claim_refusal(pod, name, is_ephemeral=source is None)
            if status is not None:
                return status
            claim = self._claims[f"{profile.namespace}/{name}"]
            unbound = unbound or not (is_bound(claim) or self._waits(claim))
        return _UNBOUND if unbound else None

    def _claim_refusal(self, pod: core_v1.Pod, name: str, *, is_ephemeral: bool) -> Status | None:
        claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
        if claim is None:
            return _refusal(
                BINDING, f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            )
        if claim.status.phase == "Lost":
            gone = claim.spec.volume_name
            return _refusal(BINDING, f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{gone}"')
        if claim.metadata.deletion_timestamp is not None:
            return _refusal(BINDING, f'persistentvolumeclaim "{name}" is being deleted')
        if is_ephemeral and not any(
            owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references
        ):
            namespace = pod.metadata.namespace
            text = f"PVC {namespace}/{name} was not created for pod {namespace}/{pod.metadata.name} (pod is not owner)"
            return _refusal(BINDING, text)
        return None

    def _waits(self, claim: core_v1.PersistentVolumeClaim) -> bool:
        """Whether the claim gets its volume only when its pod gets a node."""
        storage_class = self._classes.get(class_name(claim))
        waits = storage_class is not None and storage_class.volume_binding_mode == storage_v1.BINDING_WAIT
        return waits and not claim.spec.volume_name

    def exclusive(self, profile: Profile) -> tuple[str, ...]:
        """The pod's volume claims that only one pod may use."""
        return tuple(
            name
            for name in profile.volume_claims
            if (claim := self._claims.get(name)) is not None and _ONCE_POD in claim.spec.access_modes
        )

    # --- one node ---

    def refusal(self, profile: Profile, node: NodeInfo, disabled: Collection[str]) -> Status | None:
        """Why the pod may not have the node. Claims that only one pod may use concern all nodes: see `exclusive`."""
        if RESTRICTIONS not in disabled and any(_conflicts(profile, other.profile) for other in node.pods.values()):
            return _DISK_CONFLICT
        if LIMITS not in disabled and self._exceeds(profile, node):
            return _TOO_MANY
        if BINDING not in disabled:
            reasons = self._binding_reasons(profile, node)
            if reasons:
                return _refusal(BINDING, *reasons)
        if ZONE not in disabled and self._is_in_wrong_zone(profile, node):
            return _WRONG_ZONE
        return None

    def _binding_reasons(self, profile: Profile, node: NodeInfo) -> tuple[str, ...]:
        waiting: list[core_v1.PersistentVolumeClaim] = []
        wrong = gone = False
        for claim in self._claims_of(profile):
            if not is_bound(claim):
                waiting.append(claim)
            elif not (wrong or gone):
                volume = self._volumes.get(claim.spec.volume_name)
                gone = volume is None
                wrong = volume is not None and not self._reaches(volume.metadata.name, node)
        nothing = bool(waiting) and self._bindings(waiting, node) is None
        reasons = ((wrong, _NODE_CONFLICT), (nothing, _NOTHING_TO_BIND), (gone, _VOLUME_GONE))
        return tuple(text for holds, text in reasons if holds)

    def _claims_of(self, profile: Profile) -> Iterator[core_v1.PersistentVolumeClaim]:
        for name in profile.volume_claims:
            claim = self._claims.get(name)
            if claim is not None:
                yield claim

    def _reaches(self, volume: str, node: NodeInfo) -> bool:
        matcher = self._matchers.get(volume)
        if matcher is None:
            return True
        try:
            return matcher.matches(node.name, node.labels)
        except SelectorError:
            return False

    def _bindings(
        self, claims: Sequence[core_v1.PersistentVolumeClaim], node: NodeInfo
    ) -> tuple[VolumeStep, ...] | None:
        """A volume on the node for each claim, or that one must be created there; None if impossible. Small claims choose first."""
        taken: set[str] = set()
        steps: list[VolumeStep] = []
        for claim in sorted(claims, key=size):
            selected = self._selected.get(claim_key(claim), claim.metadata.annotations.get(SELECTED_NODE))
            if selected is not None:
                if selected != node.name:
                    return None
            else:
                volume = self._smallest(claim, node, taken)
                if volume is not None:
                    taken.add(volume.metadata.name)
                    steps.append(VolumeStep(claim=claim, volume=volume))
                    continue
            if not self._can_provision(claim, node):
                return None
            steps.append(VolumeStep(claim=claim))
        return tuple(steps)

    def _smallest(
        self, claim: core_v1.PersistentVolumeClaim, node: NodeInfo, taken: Collection[str]
    ) -> core_v1.PersistentVolume | None:
        """The volume that is held for the claim, or the smallest free one that fits."""
        key = claim_key(claim)
        fitting = [
            volume
            for name, volume in self._volumes.items()
            if name not in taken and self._held.get(name, key) == key and suits(volume, claim)
        ]
        own = [volume for volume in fitting if is_held_for(volume, claim) or volume.metadata.name in self._held]
        near = [volume for volume in own or fitting if self._reaches(volume.metadata.name, node)]
        return min(near, key=lambda volume: (capacity(volume), volume.metadata.name), default=None)

    def _can_provision(self, claim: core_v1.PersistentVolumeClaim, node: NodeInfo) -> bool:
        storage_class = self._classes.get(class_name(claim))
        if storage_class is None or storage_class.provisioner in ("", storage_v1.NO_PROVISIONER):
            return False
        terms = storage_class.allowed_topologies
        return not terms or any(
            all(node.labels.get(label.key) in label.values for label in term.match_label_expressions) for term in terms
        )

    def _exceeds(self, profile: Profile, node: NodeInfo) -> bool:
        limits = self._limits.get(node.name)
        if not limits:
            return False
        attached = {volume for other in node.pods.values() for volume in self._attached(other.profile)}
        new = set(self._attached(profile)) - attached
        for driver, most in limits.items():
            more = sum(name == driver for name, _ in new)
            if more and more + sum(name == driver for name, _ in attached) > most:
                return True
        return False

    def _attached(self, profile: Profile) -> Iterator[tuple[str, str]]:
        """Driver and handle of the pod's volumes; a volume yet to be created is identified by its claim."""
        for name in profile.volume_claims:
            claim = self._claims.get(name)
            if claim is None:
                continue
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is not None and volume.spec.csi is not None:
                yield volume.spec.csi.driver, volume.spec.csi.volume_handle
            elif volume is None:
                storage_class = self._classes.get(class_name(claim))
                if storage_class is not None:
                    yield storage_class.provisioner, name

    def _is_in_wrong_zone(self, profile: Profile, node: NodeInfo) -> bool:
        if not any(label in node.labels for label in _ZONE_LABELS):
            return False
        for claim in self._claims_of(profile):
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is None:
                continue
            for key, label in _ZONE_LABELS.items():
                zones = volume.metadata.labels.get(key)
                if zones is None:
                    continue
                zone = node.labels.get(key, node.labels.get(label))
                if zone is None or zone not in {name.strip() for name in zones.split("__")}:
                    return True
        return False


def in_use() -> Status:
    """The status of every node if another pod uses a claim that only one pod may use."""
    return _IN_USE


def _conflicts(new: Profile, old: Profile) -> bool:
    return any(_disks_conflict(one, other) for one in new.disks for other in old.disks)


def _disks_conflict(one: core_v1.Volume, other: core_v1.Volume) -> bool:
    """Whether two pods cannot have these disks on one node."""
    if one.gce_persistent_disk is not None and other.gce_persistent_disk is not None:
        disk, second = one.gce_persistent_disk, other.gce_persistent_disk
        return disk.pd_name == second.pd_name and not (disk.read_only and second.read_only)
    if one.aws_elastic_block_store is not None and other.aws_elastic_block_store is not None:
        return one.aws_elastic_block_store.volume_id == other.aws_elastic_block_store.volume_id
    if one.iscsi is not None and other.iscsi is not None:
        return one.iscsi.iqn == other.iscsi.iqn and not (one.iscsi.read_only and other.iscsi.read_only)
    if one.rbd is None or other.rbd is None:
        return False
    image, second_image = one.rbd, other.rbd
    return (
        bool(set(image.monitors) & set(second_image.monitors))
        and (image.pool, image.image) == (second_image.pool, second_image.image)
        and not (image.read_only and second_image.read_only)
    )
