"""Which objects the scheduler watches, and where they go. Kinds that a server does not have are left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from allot.client.discovery import Discovery
from allot.client.informer import Change, Informer
from allot.client.informers import Informers
from allot.core.model import apps_v1, core_v1, policy_v1, storage_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import DecodeError, decode
from allot.core.model.kinds import kind_of_type
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.hints import Happening
from allot.scheduler.cache import SchedulerCache
from allot.scheduler.waits import ClaimWaits

T = TypeVar("T", bound=APIStruct)
Object = dict[str, Any]


def _served(discovery: Discovery, type_: type[APIStruct]) -> str:
    kind = kind_of_type(type_)
    for version in kind.versions:
        if discovery.find_kind(kind.group, version, kind.name) is not None:
            return version
    return ""


class Sources:
    """The scheduler's informers, connected to its cache."""

    def __init__(self, informers: Informers, discovery: Discovery) -> None:
        self._informers = informers
        self._discovery = discovery
        self._used: list[Informer[Any]] = []
        self._stops: list[Callable[[], None]] = []

    def connect(self, cache: SchedulerCache) -> ClaimWaits:
        """Feed the cache. What decisions need comes before the pods that wait for them, where that can be chosen."""
        self._connect_volumes(cache)
        self._connect_owners(cache)
        self._typed(core_v1.Namespace, cache.namespace_changed)
        self._typed(core_v1.Node, cache.node_changed)
        self._typed(api.DeviceClass, cache.class_changed)
        self._typed(api.ResourceSlice, cache.slice_changed)
        self._typed(api.DeviceTaintRule, cache.taint_rule_changed)
        claims = self._typed(api.ResourceClaim, cache.claim_changed)
        assert claims is not None, "the server has no resource claims"
        waits = ClaimWaits(claims, _served(self._discovery, api.ResourceClaim))
        self._stops.append(claims.add_handler(waits.told))
        self._typed(PodGroup, cache.group_changed)
        self._typed(core_v1.Pod, cache.pod_changed)
        return waits

    async def wait_synced(self) -> None:
        """Return as soon as everything is known that was there at the start."""
        for informer in self._used:
            await informer.wait_synced()

    def disconnect(self) -> None:
        """Feed the cache no more."""
        for stop in self._stops:
            stop()
        self._stops.clear()

    # --- parts ---

    def _connect_volumes(self, cache: SchedulerCache) -> None:
        volumes = cache.cluster.volumes

        def told(
            happening: Happening, put: Callable[[T], None], remove: Callable[[T], None]
        ) -> Callable[[Change[T]], None]:
            def handle(change: Change[T]) -> None:
                if change.new is None:
                    remove(change.object)
                else:
                    put(change.new)
                cache.tell(happening, change)

            return handle

        self._plain(
            "", "v1", "persistentvolumeclaims", core_v1.PersistentVolumeClaim, True,
            told(
                Happening.VOLUME_CLAIM,
                volumes.put_claim,
                lambda claim: volumes.delete_claim(claim.metadata.namespace, claim.metadata.name),
            ),
        )  # fmt: skip
        self._plain(
            "", "v1", "persistentvolumes", core_v1.PersistentVolume, False,
            told(Happening.VOLUME, volumes.put_volume, lambda volume: volumes.delete_volume(volume.metadata.name)),
        )  # fmt: skip
        self._plain(
            "storage.k8s.io", "v1", "storageclasses", storage_v1.StorageClass, False,
            told(Happening.STORAGE_CLASS, volumes.put_class, lambda class_: volumes.delete_class(class_.metadata.name)),
        )  # fmt: skip
        self._plain(
            "storage.k8s.io", "v1", "csinodes", storage_v1.CSINode, False,
            told(Happening.CSI_NODE, volumes.put_csi_node, lambda node: volumes.delete_csi_node(node.metadata.name)),
        )  # fmt: skip

    def _connect_owners(self, cache: SchedulerCache) -> None:
        cluster = cache.cluster

        def owner(change: Change[Any]) -> None:
            if change.new is None:
                cluster.owners.delete(change.object)
            else:
                cluster.owners.put(change.new)

        def budget(change: Change[policy_v1.PodDisruptionBudget]) -> None:
            if change.new is None:
                namespace, _, name = change.key.partition("/")
                cluster.delete_budget(namespace, name)
            else:
                cluster.put_budget(change.new)

        self._plain("", "v1", "services", core_v1.Service, True, owner)
        self._plain("", "v1", "replicationcontrollers", core_v1.ReplicationController, True, owner)
        self._plain("apps", "v1", "replicasets", apps_v1.ReplicaSet, True, owner)
        self._plain("apps", "v1", "statefulsets", apps_v1.StatefulSet, True, owner)
        self._plain("policy", "v1", "poddisruptionbudgets", policy_v1.PodDisruptionBudget, True, budget)

    def _typed(self, type_: type[T], handler: Callable[[Change[T]], None]) -> Informer[T] | None:
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
        handler: Callable[[Change[T]], None],
    ) -> None:
        """A kind that `core.model` describes only for the scheduler: decoded here, not in the shared informer."""
        found = self._discovery.find_name(f"{plural}.{group}" if group else plural)
        if found is None:
            return
        informer = self._informers.dynamic(group, version, plural, namespaced=namespaced)

        def decoded(change: Change[Object]) -> None:
            old, new = _decoded(change.old, type_), _decoded(change.new, type_)
            if old is not None or new is not None:
                handler(Change(key=change.key, old=old, new=new, is_initial=change.is_initial))

        self._used.append(informer)
        self._stops.append(informer.add_handler(decoded))


def _decoded(value: Object | None, type_: type[T]) -> T | None:
    if value is None:
        return None
    try:
        return decode(value, type_).object
    except DecodeError:
        # Nothing that it says can be relied on; it is as if it were not there.
        return None
