"""Which objects the scheduler watches, and where they go. Kinds that a server does not have are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from allot.client.discovery import Discovery
from allot.client.informer import Change, Informer
from allot.client.informers import Informers
from allot.core.model import apps_v1, core_v1, policy_v1, storage_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.kinds import kind_of_type
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.model.team_queues import KAI_GROUP, VOLCANO_GROUP, KaiQueue, VolcanoQueue
from allot.core.scheduling.groups.dialects import DIALECTS
from allot.scheduler.waits import ChangeWaits, ClaimWaits

T = TypeVar("T", bound=APIStruct)
Object = dict[str, Any]
Handler = Callable[[Change[Any]], None]

# What decisions need comes before the pods that wait for them, where that can be chosen.
_TYPED: tuple[type[APIStruct], ...] = (
    core_v1.Namespace,
    core_v1.Node,
    api.DeviceClass,
    api.ResourceSlice,
    api.DeviceTaintRule,
    api.ResourceClaim,
    CompositePodGroup,
    PodGroup,
    core_v1.Pod,
)
# Kinds that `core.model` describes only for the scheduler: decoded here, not in the shared informer. Group, version, plural,
# whether they have a namespace.
_PLAIN: Mapping[type[APIStruct], tuple[str, str, str, bool]] = {
    core_v1.PersistentVolumeClaim: ("", "v1", "persistentvolumeclaims", True),
    core_v1.PersistentVolume: ("", "v1", "persistentvolumes", False),
    storage_v1.StorageClass: ("storage.k8s.io", "v1", "storageclasses", False),
    storage_v1.CSINode: ("storage.k8s.io", "v1", "csinodes", False),
    core_v1.Service: ("", "v1", "services", True),
    core_v1.ReplicationController: ("", "v1", "replicationcontrollers", True),
    apps_v1.ReplicaSet: ("apps", "v1", "replicasets", True),
    apps_v1.StatefulSet: ("apps", "v1", "statefulsets", True),
    policy_v1.PodDisruptionBudget: ("policy", "v1", "poddisruptionbudgets", True),
    KaiQueue: (KAI_GROUP, "v2", "queues", False),
    VolcanoQueue: (VOLCANO_GROUP, "v1beta1", "queues", False),
}


def _served(discovery: Discovery, type_: type[APIStruct]) -> str:
    kind = kind_of_type(type_)
    for version in kind.versions:
        if discovery.find_kind(kind.group, version, kind.name) is not None:
            return version
    return ""


class Sources:
    """The scheduler's informers, connected to its machine."""

    def __init__(self, informers: Informers, discovery: Discovery) -> None:
        self._informers = informers
        self._discovery = discovery
        self._used: list[Informer[Any]] = []
        self._stops: list[Callable[[], None]] = []
        # Other schedulers' pod groups that the server has, by their API group.
        self.dialects = [
            dialect.api_group
            for dialect in DIALECTS
            if discovery.find_kind(dialect.api_group, dialect.version, "PodGroup") is not None
        ]
        # Told of volume claims that changed.
        self.volume_waits = ChangeWaits()

    def connect(self, handler: Handler) -> ClaimWaits:
        """Every change goes to the handler."""
        for type_, (group, version, plural, namespaced) in _PLAIN.items():
            self._plain(group, version, plural, type_, namespaced, handler)
        for dialect in DIALECTS:
            if dialect.api_group in self.dialects:
                self._plain(dialect.api_group, dialect.version, "podgroups", dialect.type, True, handler)
        waits: ClaimWaits | None = None
        for type_ in _TYPED:
            informer = self._typed(type_, handler)
            if type_ is api.ResourceClaim and informer is not None:
                waits = ClaimWaits(informer, _served(self._discovery, api.ResourceClaim))
                self._stops.append(informer.add_handler(waits.told))
        assert waits is not None, "the server has no resource claims"
        return waits

    async def wait_synced(self) -> None:
        """Return as soon as everything is known that was there at the start."""
        for informer in self._used:
            await informer.wait_synced()

    def disconnect(self) -> None:
        """Feed the machine no more."""
        for stop in self._stops:
            stop()
        self._stops.clear()

    # --- parts ---

    def _typed(self, type_: type[T], handler: Handler) -> Informer[Any] | None:
        version = _served(self._discovery, type_)
        if not version:
            return None
        informer = self._informers.typed(type_, version=version)
        self._used.append(informer)
        self._stops.append(informer.add_handler(handler))
        return informer

    def _plain(
        self,
        group: str,
        version: str,
        plural: str,
        type_: type[T],
        namespaced: bool,
        handler: Handler,
    ) -> None:
        found = self._discovery.find_name(f"{plural}.{group}" if group else plural)
        if found is None:
            return
        informer = self._informers.dynamic(group, version, plural, namespaced=namespaced)

        def decoded(change: Change[Object]) -> None:
            old, new = _decoded(change.old, type_), _decoded(change.new, type_)
            if old is not None or new is not None:
                handler(Change(key=change.key, old=old, new=new, is_initial=change.is_initial))
            if type_ is core_v1.PersistentVolumeClaim:
                self.volume_waits.wake(change.key)

        self._used.append(informer)
        self._stops.append(informer.add_handler(decoded))


def _decoded(value: Object | None, type_: type[T]) -> T | None:
    if value is None:
        return None
    try:
        return decode_served(without_managed_fields(value), type_)
    except DecodeError:
        # Nothing that it says can be relied on; it is as if it were not there.
        return None
