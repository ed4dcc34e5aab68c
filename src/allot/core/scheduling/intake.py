"""One table: for each kind of object, where its changes go and which event they are to waiting pods.

Pods and pod groups are units of the queue as well; `machine` knows what else their changes mean. Kinds that are not in the
table do not affect any decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from allot.core.model import apps_v1, core_v1, policy_v1, storage_v1
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.queueing.hints import EventResource


class Change(Protocol):
    """What happened to an object. Added: no old state. Deleted: no new one. An informer's changes conform to this."""

    @property
    def key(self) -> str:
        """namespace/name, or name alone."""

    @property
    def old(self) -> Any:
        """The old state; None if added."""

    @property
    def new(self) -> Any:
        """The new state; None if deleted."""

    @property
    def is_final_state_unknown(self) -> bool:
        """The deletion was missed: old is the last known state."""


class ObjectChange(msgspec.Struct, frozen=True, gc=False):
    """From one state of an object to the next, for callers without an informer."""

    old: APIStruct | None
    new: APIStruct | None
    is_final_state_unknown: bool = False

    @property
    def key(self) -> str:
        """namespace/name, or name alone."""
        found = self.new if self.new is not None else self.old
        assert found is not None, "a change has an object"
        metadata = _meta(found)
        return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def _always(_old: Any, _new: Any) -> bool:
    return True


class Kind(NamedTuple):
    """Where the objects of a kind go. event: what their changes are to waiting pods; None if no refusal depends on them.
    is_news: whether a change from one state to another can matter to any of them."""

    put: Callable[[Any], None]
    delete: Callable[[Any], None]
    event: EventResource | None = None
    is_news: Callable[[Any, Any], bool] = _always


def kinds(cluster: Cluster, claims: Claims) -> Mapping[type[APIStruct], Kind]:
    """The table."""
    volumes, selectors, events = cluster.volumes, cluster.spread_selectors, EventResource

    def put_group(group: PodGroup) -> None:
        cluster.put_group(group)
        claims.put_pod_group(group)

    def delete_group(group: PodGroup) -> None:
        cluster.delete_group(group)
        claims.delete_pod_group(group.metadata.namespace, group.metadata.name)

    def put_namespace(namespace: core_v1.Namespace) -> None:
        cluster.put_namespace(namespace.metadata.name, namespace.metadata.labels)

    def delete_namespace(namespace: core_v1.Namespace) -> None:
        cluster.put_namespace(namespace.metadata.name, None)

    owner = Kind(selectors.put, selectors.delete)
    return {
        core_v1.Pod: Kind(cluster.put_pod, cluster.delete_pod, events.ASSIGNED_POD),
        PodGroup: Kind(put_group, delete_group, events.POD_GROUP, _is_news_of_group),
        core_v1.Node: Kind(cluster.put_node, _named(cluster.delete_node), events.NODE, _is_no_heartbeat),
        core_v1.Namespace: Kind(put_namespace, delete_namespace, events.NAMESPACE, _is_relabelled),
        api.ResourceClaim: Kind(claims.put_claim, _placed(claims.delete_claim), events.CLAIM),
        api.DeviceClass: Kind(claims.put_class, _named(claims.delete_class), events.CLASS),
        api.ResourceSlice: Kind(claims.put_slice, _named(claims.delete_slice), events.SLICE),
        api.DeviceTaintRule: Kind(claims.put_taint_rule, _named(claims.delete_taint_rule), events.SLICE),
        core_v1.PersistentVolumeClaim: Kind(volumes.put_claim, _placed(volumes.delete_claim), events.VOLUME_CLAIM),
        core_v1.PersistentVolume: Kind(volumes.put_volume, _named(volumes.delete_volume), events.VOLUME),
        storage_v1.StorageClass: Kind(volumes.put_class, _named(volumes.delete_class), events.STORAGE_CLASS),
        storage_v1.CSINode: Kind(volumes.put_csi_node, _named(volumes.delete_csi_node), events.CSI_NODE),
        policy_v1.PodDisruptionBudget: Kind(cluster.put_budget, _placed(cluster.delete_budget)),
        core_v1.Service: owner,
        core_v1.ReplicationController: owner,
        apps_v1.ReplicaSet: owner,
        apps_v1.StatefulSet: owner,
    }


def _meta(object_: APIStruct) -> ObjectMeta:
    found: ObjectMeta = object_.metadata  # type: ignore[attr-defined]
    return found


def _named(delete: Callable[[str], None]) -> Callable[[APIStruct], None]:
    return lambda object_: delete(_meta(object_).name)


def _placed(delete: Callable[[str, str], None]) -> Callable[[APIStruct], None]:
    return lambda object_: delete(_meta(object_).namespace, _meta(object_).name)


def _is_relabelled(old: core_v1.Namespace, new: core_v1.Namespace) -> bool:
    return old.metadata.labels != new.metadata.labels


def _is_no_heartbeat(old: Node, new: Node) -> bool:
    """Whether a node has changed in anything that a hint looks at."""
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
        or old.status.declared_features != new.status.declared_features
    )


def _is_news_of_group(old: PodGroup, new: PodGroup) -> bool:
    """A condition that the scheduler wrote itself is no news to waiting pods."""
    return old.spec != new.spec or old.status.resource_claim_statuses != new.status.resource_claim_statuses
