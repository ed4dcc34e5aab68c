"""Groups of machines of Cluster API and of OpenShift, as far as advice needs them: how many nodes a group has, and what its nodes would have."""

from __future__ import annotations

from allot.core.model.meta import Int32, ObjectMeta, PartialStruct

CLUSTER_API, OPENSHIFT = "cluster.x-k8s.io", "machine.openshift.io"


class MachineGroupSpec(PartialStruct, frozen=True, kw_only=True):
    """How many machines are wanted; None means one."""

    replicas: Int32 | None = None


class MachineDeployment(PartialStruct, frozen=True, kw_only=True):
    """MachineDeployment of cluster.x-k8s.io."""

    metadata: ObjectMeta = ObjectMeta()
    spec: MachineGroupSpec = MachineGroupSpec()


class MachineSet(PartialStruct, frozen=True, kw_only=True):
    """MachineSet of machine.openshift.io."""

    metadata: ObjectMeta = ObjectMeta()
    spec: MachineGroupSpec = MachineGroupSpec()
