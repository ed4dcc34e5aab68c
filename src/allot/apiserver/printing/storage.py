"""Rows of storage.k8s.io."""

from __future__ import annotations

from allot.apiserver.printing.cells import (
    NONE,
    UNSET,
    Cells,
    Moment,
    Object,
    Printer,
    columns,
    count,
    flag,
    given,
    is_default,
    items,
    members,
    name_of,
    scalar,
    text,
    texts,
)


def _storage_class(class_: Object, now: Moment) -> Cells:
    default = is_default(class_, "storageclass.kubernetes.io/is-default-class")
    return [
        f"{name_of(class_)} (default)" if default else name_of(class_),
        text(class_, "provisioner"),
        text(class_, "reclaimPolicy") or "Delete",
        text(class_, "volumeBindingMode") or "Immediate",
        flag(class_, "allowVolumeExpansion"),
        now.age(class_),
    ]


def _attachment(attachment: Object, now: Moment) -> Cells:
    spec = members(attachment, "spec")
    source = text(spec, "source", "persistentVolumeName")
    attached = flag(attachment, "status", "attached")
    return [name_of(attachment), text(spec, "attacher"), source, text(spec, "nodeName"), attached, now.age(attachment)]


def _csi_driver(driver: Object, now: Moment) -> Cells:
    spec = members(driver, "spec")
    audiences = ",".join(text(item, "audience") for item in items(spec, "tokenRequests"))
    return [
        name_of(driver),
        spec.get("attachRequired") is not False,
        flag(spec, "podInfoOnMount"),
        flag(spec, "storageCapacity"),
        audiences if given(spec, "tokenRequests") else UNSET,
        flag(spec, "requiresRepublish"),
        ",".join(texts(spec, "volumeLifecycleModes")) or NONE,
        now.age(driver),
    ]


def _capacity(capacity: Object, _: Moment) -> Cells:
    return [name_of(capacity), text(capacity, "storageClassName"), scalar(capacity.get("capacity"), UNSET)]


PRINTERS: dict[tuple[str, str], Printer] = {
    ("storage.k8s.io", "StorageClass"): Printer(
        columns("Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age"), _storage_class
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): Printer(
        columns("Name|DriverName|Age"), lambda o, now: [name_of(o), text(o, "driverName"), now.age(o)]
    ),
    ("storage.k8s.io", "VolumeAttachment"): Printer(columns("Name|Attacher|PV|Node|Attached?|Age"), _attachment),
    ("storage.k8s.io", "CSINode"): Printer(
        columns("Name|Drivers#|Age"), lambda o, now: [name_of(o), count(o, "spec", "drivers"), now.age(o)]
    ),
    ("storage.k8s.io", "CSIDriver"): Printer(
        columns("Name|AttachRequired?|PodInfoOnMount?|StorageCapacity?|TokenRequests|RequiresRepublish?|Modes|Age"),
        _csi_driver,
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): Printer(columns("Name|StorageClassName|Capacity"), _capacity),
}
