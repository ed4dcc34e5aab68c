"""The parts of storage.k8s.io/v1 that scheduling reads: storage classes, and the drivers of a node."""

from __future__ import annotations

from allot.core.model.meta import APIStruct, Int32, ObjectMeta, PartialStruct

GROUP = "storage.k8s.io"
BINDING_WAIT = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


class TopologySelectorLabelRequirement(APIStruct, frozen=True, kw_only=True):
    """Values of one node label."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(APIStruct, frozen=True, kw_only=True):
    """Node labels that must all hold."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(PartialStruct, frozen=True, kw_only=True):
    """How storage is provisioned, and whether that waits for a pod."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeAttachmentSource(PartialStruct, frozen=True, kw_only=True):
    """The volume that is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(PartialStruct, frozen=True, kw_only=True):
    """What is attached where, and by which driver."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(PartialStruct, frozen=True, kw_only=True):
    """A volume that a driver attaches to a node, or keeps attached."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class VolumeNodeResources(APIStruct, frozen=True, kw_only=True):
    """How many volumes of a driver a node can attach."""

    count: Int32 | None = None


class CSINodeDriver(PartialStruct, frozen=True, kw_only=True):
    """A storage driver on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(PartialStruct, frozen=True, kw_only=True):
    """Storage drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(PartialStruct, frozen=True, kw_only=True):
    """What storage drivers report about a node; has the node's name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()
