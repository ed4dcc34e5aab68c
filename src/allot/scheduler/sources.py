"""The objects that the scheduler watches, and their handlers. Kinds that a server does not have are left out; those of
other schedulers are read as soon as it has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from allot.client.discovery import Discovery
from allot.client.informer import Change, Informer
from allot.client.informers import Informers
from allot.core.model import apps_v1, core_v1, policy_v1, storage_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.foreign_groups import KAI_TOPOLOGY, KUEUE, KaiTopology
from allot.core.model.kinds import kind_of_type
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup, PriorityClass
from allot.core.model.team_queues import KAI_GROUP, VOLCANO_GROUP, KaiQueue, VolcanoQueue
from allot.core.scheduling.groups.dialects import DIALECTS
from allot.scheduler.waits import ChangeWaits, ClaimWaits

T = TypeVar("T", bound=APIStruct)
Object = dict[str, Any]
Handler = Callable[[Change[Any]], None]

# What decisions need comes before the pods that wait for them, where the order can be chosen.
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
}


class _Custom(msgspec.Struct, frozen=True, kw_only=True):
    """A custom resource, which may be defined at any time; which of the versions is read does not matter."""

    type: type[APIStruct]
    group: str
    versions: tuple[str, ...]
    plural: str
    namespaced: bool = False
    # Whether pods name its objects as their groups.
    is_group: bool = False


_CUSTOM = (
    *(
        _Custom(
            type=dialect.type,
            group=dialect.api_group,
            versions=(dialect.version,),
            plural="podgroups",
            namespaced=True,
            is_group=True,
        )
        for dialect in DIALECTS
    ),
    _Custom(type=KaiQueue, group=KAI_GROUP, versions=("v2",), plural="queues"),
    _Custom(type=VolcanoQueue, group=VOLCANO_GROUP, versions=("v1beta1",), plural="queues"),
    # KAI used Kueue's kind before it had its own.
    _Custom(type=KaiTopology, group=KUEUE, versions=("v1beta2", "v1beta1", "v1alpha1"), plural="topologies"),
    _Custom(type=KaiTopology, group=KAI_TOPOLOGY, versions=("v1alpha1",), plural="topologies"),
)


def served_version(discovery: Discovery, type_: type[APIStruct]) -> str:
    """The version in which a server has a kind; empty if it has none."""
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
        self._reads_classes = False
        self._custom: dict[tuple[str, str], Informer[Object]] = {}
        self._stops: list[Callable[[], None]] = []
        # Kinds of other schedulers that the server does not have yet.
        self.missing: tuple[_Custom, ...] = _CUSTOM
        # The API groups of those whose objects pods name as their groups.
        self.missing_groups: frozenset[str] = frozenset()
        # Called with volume claims that changed.
        self.volume_waits = ChangeWaits()

    def connect_custom(self, discovery: Discovery, handler: Handler, serve: Callable[[str], None]) -> None:
        """As `connect`, for kinds of other schedulers that the server now has. serve: called with their API groups first, where pods name
        groups of the kind."""
        missing: list[_Custom] = []
        for custom in self.missing:
            served = [
                version
                for version in custom.versions
                if any(
                    (found.group, found.version, found.plural) == (custom.group, version, custom.plural)
                    for found in discovery.resources
                )
            ]
            if not served:
                missing.append(custom)
                continue
            if custom.is_group:
                serve(custom.group)
                if not self._reads_classes:
                    self._reads_classes = True
                    self._typed(PriorityClass, handler)
            informer = self._plain(custom.group, served[0], custom.plural, custom.type, custom.namespaced, handler)
            self._custom[custom.group, custom.plural] = informer
        self.missing = tuple(missing)
        self.missing_groups = frozenset(custom.group for custom in missing if custom.is_group)

    def connect(self, handler: Handler, serve: Callable[[str], None]) -> ClaimWaits:
        """Every change goes to the handler."""
        for type_, (group, version, plural, namespaced) in _PLAIN.items():
            if self._discovery.find_name(f"{plural}.{group}" if group else plural) is not None:
                self._plain(group, version, plural, type_, namespaced, handler)
        self.connect_custom(self._discovery, handler, serve)
        waits: ClaimWaits | None = None
        for type_ in _TYPED:
            informer = self._typed(type_, handler)
            if type_ is api.ResourceClaim and informer is not None:
                waits = ClaimWaits(informer, served_version(self._discovery, api.ResourceClaim))
                self._stops.append(informer.add_handler(waits.told))
        assert waits is not None, "the server has no resource claims"
        return waits

    def custom(self, group: str, plural: str) -> Informer[Object] | None:
        """Objects of a kind of another scheduler; None if the server does not have it."""
        return self._custom.get((group, plural))

    async def wait_synced(self) -> None:
        """Wait until everything that existed at the start is known."""
        for informer in self._used:
            await informer.wait_synced()

    def disconnect(self) -> None:
        """Stop feeding the machine."""
        for stop in self._stops:
            stop()
        self._stops.clear()

    # --- parts ---

    def _typed(self, type_: type[T], handler: Handler) -> Informer[Any] | None:
        version = served_version(self._discovery, type_)
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
    ) -> Informer[Object]:
        informer = self._informers.dynamic(group, version, plural, namespaced=namespaced)

        def decoded(change: Change[Object]) -> None:
            old, new = _decoded(change.old, type_), _decoded(change.new, type_)
            if old is not None or new is not None:
                handler(Change(key=change.key, old=old, new=new, is_initial=change.is_initial))
            if type_ is core_v1.PersistentVolumeClaim:
                self.volume_waits.wake(change.key)

        self._used.append(informer)
        self._stops.append(informer.add_handler(decoded))
        return informer


def _decoded(value: Object | None, type_: type[T]) -> T | None:
    if value is None:
        return None
    try:
        return decode_served(without_managed_fields(value), type_)
    except DecodeError:
        # It cannot be relied on, so treat it as absent.
        return None
