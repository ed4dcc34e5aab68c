"""A snapshot as the scheduler sees it: the same `Cluster` that decisions are made on, fed with the objects of a snapshot."""

from __future__ import annotations

from allot.core.advice.snapshot import Snapshot
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model import apps_v1, core_v1, policy_v1, storage_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.claims import Claims
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.owners import Owner


class Situation:
    """What the scheduler would know at the moment of a snapshot. `cluster` and `claims` may be tried out on, as it is a copy."""

    def __init__(self, snapshot: Snapshot, gates: FeatureGates = DEFAULT_GATES) -> None:
        self.snapshot = snapshot
        self.claims = Claims(gates)
        self.cluster = Cluster(self.claims)
        self.claims.listen(self.cluster.device_changes.add)
        self._feed_devices()
        self._feed_volumes()
        self._feed_the_rest()

    def _feed_devices(self) -> None:
        snapshot, claims = self.snapshot, self.claims
        for rule in snapshot.of(api.DeviceTaintRule):
            claims.put_taint_rule(rule)
        for device_class in snapshot.of(api.DeviceClass):
            claims.put_class(device_class)
        for slice_ in snapshot.of(api.ResourceSlice):
            claims.put_slice(slice_)
        for claim in snapshot.of(api.ResourceClaim):
            claims.put_claim(claim)

    def _feed_volumes(self) -> None:
        snapshot, volumes = self.snapshot, self.cluster.volumes
        for claim in snapshot.of(core_v1.PersistentVolumeClaim):
            volumes.put_claim(claim)
        for volume in snapshot.of(core_v1.PersistentVolume):
            volumes.put_volume(volume)
        for storage_class in snapshot.of(storage_v1.StorageClass):
            volumes.put_class(storage_class)
        for csi_node in snapshot.of(storage_v1.CSINode):
            volumes.put_csi_node(csi_node)

    def _feed_the_rest(self) -> None:
        snapshot, cluster = self.snapshot, self.cluster
        for namespace in snapshot.of(core_v1.Namespace):
            cluster.put_namespace(namespace.metadata.name, namespace.metadata.labels)
        owners: list[Owner] = [*snapshot.of(core_v1.Service), *snapshot.of(core_v1.ReplicationController)]
        owners += [*snapshot.of(apps_v1.ReplicaSet), *snapshot.of(apps_v1.StatefulSet)]
        for owner in owners:
            cluster.owners.put(owner)
        for budget in snapshot.of(policy_v1.PodDisruptionBudget):
            cluster.put_budget(budget)
        for group in snapshot.of(PodGroup):
            cluster.put_group(group)
            self.claims.put_pod_group(group)
        for node in snapshot.of(core_v1.Node):
            cluster.put_node(node)
        for pod in snapshot.of(core_v1.Pod):
            cluster.put_pod(pod)
