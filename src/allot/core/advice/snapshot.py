"""A cluster at one moment, as far as advice needs it: typed objects in their stored form.

Does not know where they come from (a live cluster, a dump). `KINDS` lists the kinds that a snapshot may have, for the code
that reads one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from allot.core.features import ALL_GATES
from allot.core.json_objects import mapping
from allot.core.model import (
    apps_v1,
    batch_v1,
    compute_classes,
    compute_domains,
    core_v1,
    node_topologies,
    observed_v1,
    policy_v1,
    resource_v1,
    scheduling_v1,
    storage_v1,
    volcano_jobs,
)
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.compute_classes import ComputeClass
from allot.core.model.compute_domains import ComputeDomain
from allot.core.model.convert import to_hub
from allot.core.model.foreign_groups import KAI_TOPOLOGY, KaiTopology
from allot.core.model.job_sets import JOB_SET_GROUP, JOB_SET_VERSION, JobSet
from allot.core.model.kinds import UnknownKind, is_kind_type, kind_of_type
from allot.core.model.machine_groups import CLUSTER_API, OPENSHIFT, MachineDeployment, MachineSet
from allot.core.model.meta import APIStruct, Condition
from allot.core.model.node_pools import KARPENTER, NodePool
from allot.core.model.node_topologies import NodeResourceTopology
from allot.core.model.team_queues import KAI_GROUP, VOLCANO_GROUP, KaiQueue, VolcanoQueue
from allot.core.scheduling import BIND_COMPLETED, DIALECTS, Dialect
from allot.core.validation.defaults import with_defaults

T = TypeVar("T", bound=APIStruct)


class SnapshotKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that a snapshot may have."""

    group: str
    # The type describes the first one.
    versions: tuple[str, ...]
    name: str
    plural: str
    namespaced: bool
    type: type[APIStruct]
    # Hardly any advice is possible without it.
    required: bool = False

    def api_version(self, version: str) -> str:
        """The apiVersion of objects in a version."""
        return f"{self.group}/{version}" if self.group else version


def _typed(type_: type[APIStruct], *, required: bool = False) -> SnapshotKind:
    kind = kind_of_type(type_)
    return SnapshotKind(
        group=kind.group,
        versions=kind.versions,
        name=kind.name,
        plural=kind.plural,
        namespaced=kind.namespaced,
        type=type_,
        required=required,
    )


def _plain(
    group: str, plural: str, type_: type[APIStruct], *, namespaced: bool = True, versions: tuple[str, ...] = ("v1",)
) -> SnapshotKind:
    return SnapshotKind(
        group=group, versions=versions, name=type_.__name__, plural=plural, namespaced=namespaced, type=type_
    )


def _foreign(dialect: Dialect) -> SnapshotKind:
    return SnapshotKind(
        group=dialect.api_group,
        versions=(dialect.version,),
        name="PodGroup",
        plural="podgroups",
        namespaced=True,
        type=dialect.type,
    )


def _queue(group: str, version: str, type_: type[APIStruct]) -> SnapshotKind:
    return SnapshotKind(group=group, versions=(version,), name="Queue", plural="queues", namespaced=False, type=type_)


def _kueue(name: str, type_: type[APIStruct], *, namespaced: bool = True) -> SnapshotKind:
    return SnapshotKind(
        group="kueue.x-k8s.io",
        versions=("v1beta2", "v1beta1"),
        name=name,
        plural=f"{name.lower()}s",
        namespaced=namespaced,
        type=type_,
    )


KINDS: tuple[SnapshotKind, ...] = (
    _typed(core_v1.Namespace),
    _typed(core_v1.Node, required=True),
    _typed(core_v1.Pod, required=True),
    _typed(resource_v1.DeviceClass, required=True),
    _typed(resource_v1.ResourceSlice, required=True),
    _typed(resource_v1.ResourceClaim, required=True),
    _typed(resource_v1.ResourceClaimTemplate),
    _typed(resource_v1.DeviceTaintRule),
    _typed(scheduling_v1.PriorityClass),
    _typed(scheduling_v1.PodGroup),
    _typed(scheduling_v1.CompositePodGroup),
    _typed(scheduling_v1.Workload),
    *(_foreign(dialect) for dialect in DIALECTS),
    _queue(KAI_GROUP, "v2", KaiQueue),
    _queue(VOLCANO_GROUP, "v1beta1", VolcanoQueue),
    SnapshotKind(
        group=KAI_TOPOLOGY,
        versions=("v1alpha1",),
        name="Topology",
        plural="topologies",
        namespaced=False,
        type=KaiTopology,
    ),
    _plain(compute_domains.GROUP, compute_domains.PLURAL, ComputeDomain, versions=(compute_domains.VERSION,)),
    _plain(compute_classes.GROUP, compute_classes.PLURAL, ComputeClass, namespaced=False),
    _plain(KARPENTER, "nodepools", NodePool, namespaced=False, versions=("v1", "v1beta1")),
    _plain("", "persistentvolumeclaims", core_v1.PersistentVolumeClaim),
    _plain("", "persistentvolumes", core_v1.PersistentVolume, namespaced=False),
    _plain("storage.k8s.io", "storageclasses", storage_v1.StorageClass, namespaced=False),
    _plain("storage.k8s.io", "csinodes", storage_v1.CSINode, namespaced=False),
    _plain("policy", "poddisruptionbudgets", policy_v1.PodDisruptionBudget),
    _plain("", "services", core_v1.Service),
    _plain("", "replicationcontrollers", core_v1.ReplicationController),
    _plain("apps", "replicasets", apps_v1.ReplicaSet),
    _plain("apps", "statefulsets", apps_v1.StatefulSet),
    _plain("apps", "deployments", apps_v1.Deployment),
    _plain("apps", "daemonsets", apps_v1.DaemonSet),
    _plain("batch", "jobs", batch_v1.Job),
    _plain("batch", "cronjobs", batch_v1.CronJob),
    SnapshotKind(
        group=volcano_jobs.BATCH_VOLCANO,
        versions=("v1alpha1",),
        name="Job",
        plural="jobs",
        namespaced=True,
        type=volcano_jobs.VolcanoJob,
    ),
    _plain(JOB_SET_GROUP, "jobsets", JobSet, versions=(JOB_SET_VERSION,)),
    _plain("autoscaling", "horizontalpodautoscalers", observed_v1.HorizontalPodAutoscaler, versions=("v2", "v1")),
    _plain("apiregistration.k8s.io", "apiservices", observed_v1.APIService, namespaced=False),
    _plain("", "resourcequotas", observed_v1.ResourceQuota),
    _plain("", "limitranges", observed_v1.LimitRange),
    _plain("", "events", observed_v1.Event),
    _kueue("Workload", observed_v1.KueueWorkload),
    _kueue("LocalQueue", observed_v1.LocalQueue),
    _kueue("ClusterQueue", observed_v1.ClusterQueue, namespaced=False),
    _kueue("ResourceFlavor", observed_v1.ResourceFlavor, namespaced=False),
)

# Only if a dump has them: listing Secrets, or the leases and attached volumes of all nodes, just for a hint would be too much.
DUMPED_KINDS: tuple[SnapshotKind, ...] = (
    _plain("", "configmaps", observed_v1.ConfigMap),
    _plain("", "secrets", observed_v1.Secret),
    _plain("coordination.k8s.io", "leases", observed_v1.Lease),
    _plain("storage.k8s.io", "volumeattachments", storage_v1.VolumeAttachment, namespaced=False),
    _plain(
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        observed_v1.MutatingWebhookConfiguration,
        namespaced=False,
    ),
    _plain(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        observed_v1.ValidatingWebhookConfiguration,
        namespaced=False,
    ),
    _plain(CLUSTER_API, "machinedeployments", MachineDeployment, versions=("v1beta2", "v1beta1")),
    _plain(OPENSHIFT, "machinesets", MachineSet, versions=("v1beta1",)),
    _plain(
        node_topologies.GROUP,
        node_topologies.PLURAL,
        NodeResourceTopology,
        namespaced=False,
        versions=node_topologies.VERSIONS,
    ),
    _plain("k8s.cni.cncf.io", "network-attachment-definitions", observed_v1.NetworkAttachmentDefinition),
)

_EVENTS_GROUP = "events.k8s.io"
_CORE_EVENT_FIELDS = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "reportingController": "reportingComponent",
}
_BY_NAME = {(kind.group, kind.name): kind for kind in (*KINDS, *DUMPED_KINDS)}
_BY_TYPE = {kind.type: kind for kind in (*KINDS, *DUMPED_KINDS)}
_DEVICE_KINDS = ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass")
# The ConfigMap in which the cluster autoscaler says how its node groups are.
AUTOSCALER_STATUS = "cluster-autoscaler-status"
_DATA = ("data", "binaryData", "stringData")


def snapshot_kind(type_: type[APIStruct]) -> SnapshotKind:
    """The kind of a type."""
    return _BY_TYPE[type_]


class Snapshot(msgspec.Struct, frozen=True):
    """The objects, and when they were read (seconds since 1970) if known."""

    objects: tuple[APIStruct, ...]
    taken_at: float | None = None
    # Kinds that could not be read for all namespaces, with the one namespace that could; empty if none.
    unread: Mapping[type[APIStruct], str] = {}
    # The version of resource.k8s.io that the cluster serves.
    device_api: str = "v1"
    # Objects of other kinds that keep others from being deleted, or may own them. Only dumps have them.
    others: tuple[observed_v1.OtherObject, ...] = ()

    def lacking(self, *types: type[APIStruct]) -> tuple[str, ...]:
        """Those of these kinds that could not be read at all, by their RBAC names."""
        return tuple(snapshot_kind(type_).plural for type_ in types if self.unread.get(type_) == "")

    def cut_short(self, *types: type[APIStruct]) -> tuple[str, ...]:
        """Those of these kinds that could be read in one namespace only."""
        return tuple(snapshot_kind(type_).plural for type_ in types if self.unread.get(type_))

    def of(self, type_: type[T]) -> list[T]:
        """The objects of one kind, in their order."""
        return [found for found in self.objects if found.__class__ is type_]

    def find(self, type_: type[T], name: str, namespace: str = "") -> T | None:
        """One object, if it exists."""
        for found in self.of(type_):
            metadata = found.metadata  # type: ignore[attr-defined]
            if metadata.name == name and metadata.namespace == namespace:
                return found
        return None


def device_api_of(values: Iterable[Mapping[str, Any]]) -> str:
    """The version of resource.k8s.io that a cluster serves, judged by its objects: the newest one found."""
    known = kind_of_type(resource_v1.ResourceClaim)
    there = {value.get("apiVersion") for value in values if value.get("kind") in _DEVICE_KINDS}
    served = (version for version in known.versions if f"{known.group}/{version}" in there)
    return next(served, known.versions[0])


class NotInSnapshots(ValueError):
    """A kind that snapshots do not have."""


def read_object(value: Mapping[str, Any]) -> APIStruct:
    """The typed object for a JSON value from an API server or a dump: in the type's version,
    with defaults, without managedFields. NotInSnapshots for other kinds; DecodeError or ConversionError for an invalid one."""
    api_version, name = value.get("apiVersion"), value.get("kind")
    group, _, version = api_version.rpartition("/") if isinstance(api_version, str) else ("", "", "")
    if (group, name) == (_EVENTS_GROUP, "Event"):
        group, value = "", _core_event(value)
    kind = _BY_NAME.get((group, name)) if isinstance(name, str) else None
    if kind is None:
        raise NotInSnapshots(f"{name!r} in {api_version!r}")
    plain = without_managed_fields(dict(value))
    if kind.type in (observed_v1.ConfigMap, observed_v1.Secret):
        plain = _keys_only(plain)
    if is_kind_type(kind.type):
        try:
            # Slices have no defaults except times, and very many devices to visit.
            if kind.type is not resource_v1.ResourceSlice:
                plain = with_defaults(plain, gates=ALL_GATES, now=None)
            if version != kind.versions[0]:
                plain = to_hub(plain)
        except UnknownKind as error:
            raise NotInSnapshots(str(error)) from None
    plain = _in_default_namespace(plain) if kind.namespaced else plain
    found = decode_served(plain, kind.type)
    return _bound(found) if isinstance(found, core_v1.PersistentVolumeClaim) else found


def read_other(value: Mapping[str, Any]) -> observed_v1.OtherObject | None:
    """An object of a kind that snapshots do not have, if it may keep others from being deleted, or if it is a custom resource that has
    an owner or conditions; None if not, or if it cannot be read."""
    plain = without_managed_fields({"metadata": value.get("metadata")})
    try:
        decoded = decode_served(plain, observed_v1.OtherObject)
    except DecodeError:
        return None
    conditions = mapping(value.get("status")).get("conditions")
    told = tuple(map(_condition, conditions)) if isinstance(conditions, list) else ()
    api_version, kind = str(value.get("apiVersion", "")), str(value.get("kind", ""))
    found = replace(decoded, api_version=api_version, kind=kind, conditions=told)
    may_own = _is_custom(found) and (found.metadata.owner_references or told)
    return found if found.keeps_others or may_own else None


def _condition(value: Any) -> Condition:
    """A condition of a custom resource, whose fields may be anything."""
    type_, status, reason, message = (
        text if isinstance(text := mapping(value).get(key), str) else ""
        for key in ("type", "status", "reason", "message")
    )
    return Condition(type=type_, status=status, reason=reason, message=message)


def _is_custom(found: observed_v1.OtherObject) -> bool:
    """Whether an object is in a namespace and of a group that is not Kubernetes' own."""
    group = found.api_version.rpartition("/")[0]
    is_own = group.endswith(".k8s.io") and not group.endswith(".x-k8s.io")
    return bool(found.metadata.namespace) and "." in group and not is_own


def _bound(claim: core_v1.PersistentVolumeClaim) -> core_v1.PersistentVolumeClaim:
    """A claim whose status says Bound is bound, even if an edited dump lacks the annotations that schedulers check."""
    metadata = claim.metadata
    if claim.status.phase != "Bound" or not claim.spec.volume_name or BIND_COMPLETED in metadata.annotations:
        return claim
    return replace(claim, metadata=replace(metadata, annotations={**metadata.annotations, BIND_COMPLETED: "yes"}))


def _keys_only(value: Mapping[str, Any]) -> dict[str, Any]:
    """A ConfigMap or Secret without its values."""
    keys = {str(key) for member in _DATA if isinstance(value.get(member), dict) for key in value[member]}
    kept = {key: part for key, part in value.items() if key not in _DATA}
    metadata, data = value.get("metadata"), value.get("data")
    if isinstance(metadata, dict) and metadata.get("name") == AUTOSCALER_STATUS and isinstance(data, dict):
        kept["autoscalerStatus"] = str(data.get("status", ""))
    return {**kept, "keys": sorted(keys)}


def _core_event(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """An event of events.k8s.io in the form of the core group."""
    renamed = {_CORE_EVENT_FIELDS.get(key, key): part for key, part in value.items()}
    return {**renamed, "apiVersion": "v1"}


def _in_default_namespace(value: dict[str, Any]) -> dict[str, Any]:
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and not metadata.get("namespace"):
        return {**value, "metadata": {**metadata, "namespace": "default"}}
    return value
