"""Three storage controllers: the volume binder, the creator of claims for ephemeral volumes, and the folder provisioner.

They wire `core.workloads.volume_binding`, `.ephemeral_volumes` and `.folder_volumes`. The provisioner also removes directories, once
the server confirms that the volume no longer exists.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from allot.client.api import Client
from allot.client.errors import ApiError, NotFound
from allot.client.informer import Change, Informer
from allot.client.informers import Informers
from allot.controllers.runner import Controller, Runnable, Services
from allot.controllers.serviceaccounts import Resting
from allot.controllers.storageprotection import informer_of, pods_by_claim
from allot.core.lifecycle.actions import Action, Answers
from allot.core.model.codec import DecodeError, decode
from allot.core.model.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from allot.core.model.meta import APIStruct
from allot.core.scheduling import BIND_COMPLETED, volume_matching
from allot.core.workloads import ephemeral_volumes, folder_volumes, volume_binding
from allot.core.workloads.storage_protection import CLAIMS, VOLUMES, claim_keys
from allot.core.workloads.volume_binding import Claim, Stored, Volume
from allot.process.beneath import remove_tree

_log = logging.getLogger("allot.controllers")

Object = dict[str, Any]
T = TypeVar("T", bound=APIStruct)
_Key = tuple[str, str]

_CLAIM = "claim"
_VOLUME = "volume"
_BY_HOLDER = "volumes: by claim, or free of a class"
_UNBOUND = "volumes: unbound claims of a class"
_SWEEP_RETRY_S = 60.0


class _Decoded:
    """Decoded objects of a cache, decoded only once."""

    def __init__(self, informer: Informer[Object], type_: type[T]) -> None:
        self._informer = informer
        self._type = type_
        self._known: dict[str, Stored[Any]] = {}
        informer.add_handler(self._changed)

    def get(self, key: str) -> Stored[Any] | None:
        """The object of a key; None also if it is invalid."""
        value = self._informer.cache.get(key)
        if value is None:
            return None
        known = self._known.get(key)
        if known is None or known.value is not value:
            try:
                known = Stored(value, decode(value, self._type).object)
            except DecodeError:
                return None
            self._known[key] = known
        return known

    def _changed(self, change: Change[Object]) -> None:
        self._known.pop(change.key, None)


class _Storage:
    """The caches as reconcilers see them (`volume_binding.StorageView`)."""

    def __init__(self, informers: Informers) -> None:
        self.claims = informer_of(informers, CLAIMS)
        self.volumes = informer_of(informers, VOLUMES)
        self.classes = informer_of(informers, volume_binding.STORAGE_CLASSES)
        self.pods, self._by_claim = pods_by_claim(informers)
        self.claims.cache.add_index(_UNBOUND, _unbound_class)
        self.volumes.cache.add_index(_BY_HOLDER, _holder)
        self._claims = _Decoded(self.claims, PersistentVolumeClaim)
        self._volumes = _Decoded(self.volumes, PersistentVolume)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All of them."""
        return self.claims, self.volumes, self.classes, self.pods

    def claim(self, key: str) -> Claim | None:
        return self._claims.get(key)

    def volume(self, name: str) -> Volume | None:
        return self._volumes.get(name)

    def candidates(self, claim: PersistentVolumeClaim) -> Iterator[Volume]:
        names = (f"held/{volume_matching.claim_key(claim)}", f"free/{volume_matching.class_name(claim)}")
        for name in names:
            for value in self.volumes.cache.by_index(_BY_HOLDER, name):
                found = self.volume(value["metadata"]["name"])
                if found is not None:
                    yield found

    def storage_class(self, name: str) -> Object | None:
        return self.classes.cache.get(name)

    def storage_classes(self) -> Iterable[Object]:
        return self.classes.cache

    def pods_without_node(self, key: str) -> Sequence[str]:
        pods = self.pods.cache.by_index(self._by_claim, key)
        return sorted(pod.metadata.name for pod in pods if not pod.spec.node_name)

    def unbound(self, class_name: str) -> Iterator[str]:
        """The keys of waiting claims of a class."""
        for claim in self.claims.cache.by_index(_UNBOUND, class_name):
            yield f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"

    def held_for(self, claim_key: str) -> Iterator[str]:
        """The volumes that name a claim."""
        for volume in self.volumes.cache.by_index(_BY_HOLDER, f"held/{claim_key}"):
            yield volume["metadata"]["name"]


# --- binder ---


class _Binder:
    def __init__(self, services: Services) -> None:
        storage = self._storage = _Storage(services.informers)
        self.controller: Controller[_Key] = Controller(
            services,
            self._reconcile,
            queue_name="claims",
            component="persistentvolume-controller",
            waits_for=storage.informers,
        )
        self._queue = self.controller.queue
        storage.claims.add_handler(self._claim_changed)
        storage.volumes.add_handler(self._volume_changed)
        storage.classes.add_handler(self._class_changed)
        storage.pods.add_handler(self._pod_changed)

    def _reconcile(self, key: _Key, answers: Answers) -> Sequence[Action]:
        what, name = key
        if what == _CLAIM:
            claim = self._storage.claim(name)
            return () if claim is None else volume_binding.reconcile_claim(claim, self._storage)
        volume = self._storage.volume(name)
        return () if volume is None else volume_binding.reconcile_volume(volume, self._storage, answers)

    def _claim_changed(self, change: Change[Object]) -> None:
        self._queue.add((_CLAIM, change.key))
        names = dict.fromkeys(self._storage.held_for(change.key))
        named = (change.object.get("spec") or {}).get("volumeName")
        if named:
            names[named] = None
        for name in names:
            self._queue.add((_VOLUME, name))

    def _volume_changed(self, change: Change[Object]) -> None:
        self._queue.add((_VOLUME, change.key))
        for volume in (change.old, change.new):
            if volume is None:
                continue
            for place in _holder(volume):
                kind, _, name = place.partition("/")
                keys = (name,) if kind == "held" else tuple(self._storage.unbound(name))
                for key in keys:
                    self._queue.add((_CLAIM, key))

    def _class_changed(self, change: Change[Object]) -> None:
        for name in (change.key, ""):
            for key in self._storage.unbound(name):
                self._queue.add((_CLAIM, key))

    def _pod_changed(self, change: Change[Pod]) -> None:
        """Events of waiting claims name the pods that use them."""
        if change.old is None or change.new is None:
            for key in claim_keys(change.object):
                claim = self._storage.claims.cache.get(key)
                if claim is not None and any(True for _ in _unbound_class(claim)):
                    self._queue.add((_CLAIM, key))


def make_binder(services: Services) -> Controller[_Key]:
    """The controller `persistentvolume-binder-controller`."""
    return _Binder(services).controller


def _holder(volume: Object) -> Iterator[str]:
    spec = volume.get("spec") or {}
    holder = spec.get("claimRef")
    if holder:
        yield f"held/{holder.get('namespace', '')}/{holder.get('name', '')}"
    else:
        old = (volume["metadata"].get("annotations") or {}).get(volume_matching.OLD_CLASS)
        yield f"free/{old if old is not None else spec.get('storageClassName', '')}"


def _unbound_class(claim: Object) -> Iterator[str]:
    annotations = claim["metadata"].get("annotations") or {}
    if BIND_COMPLETED not in annotations:
        old = annotations.get(volume_matching.OLD_CLASS)
        yield old if old is not None else (claim.get("spec") or {}).get("storageClassName") or ""


# --- claims of ephemeral volumes ---


def make_ephemeral(services: Services) -> Controller[str]:
    """The controller `ephemeral-volume-controller`."""
    pods, index = pods_by_claim(services.informers)
    claims = informer_of(services.informers, CLAIMS)

    def reconcile(key: str, answers: Answers) -> Sequence[Action]:
        pod = pods.cache.get(key)
        if pod is None:
            return ()
        namespace = pod.metadata.namespace
        return ephemeral_volumes.reconcile_pod(pod, lambda name: claims.cache.get(f"{namespace}/{name}"), answers)

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name="ephemeral_volume",
        component="ephemeral_volume",
        waits_for=(pods, claims),
    )

    def pod_changed(change: Change[Pod]) -> None:
        if change.new is not None and change.old is None and ephemeral_volumes.has_ephemeral_volumes(change.new):
            controller.queue.add(change.key)

    def claim_changed(change: Change[Object]) -> None:
        if change.new is None:
            for pod in pods.cache.by_index(index, change.key):
                if ephemeral_volumes.has_ephemeral_volumes(pod):
                    controller.queue.add(f"{pod.metadata.namespace}/{pod.metadata.name}")

    pods.add_handler(pod_changed)
    claims.add_handler(claim_changed)
    return controller


# --- folders ---


class _Folders:
    """Removes directories of deleted volumes."""

    def __init__(self, client: Client, volumes: Informer[Object], folder: Path, services: Services) -> None:
        self._volumes = volumes
        self._live = client.resource("", "v1", "persistentvolumes", namespaced=False)
        self._folder = folder
        self._clock = services.clock
        self._gone = asyncio.Event()
        self._gone.set()
        volumes.add_handler(self._changed)

    def _changed(self, change: Change[Object]) -> None:
        if change.new is None and change.key.startswith(folder_volumes.PREFIX):
            self._gone.set()

    async def run(self) -> None:
        """Check at the start, and whenever a volume is deleted."""
        while True:
            await self._gone.wait()
            self._gone.clear()
            try:
                await self._sweep()
            except (OSError, ApiError) as error:
                _log.warning("folders of volumes: %s", error)
                await self._clock.sleep(_SWEEP_RETRY_S)
                self._gone.set()

    async def _sweep(self) -> None:
        if not self._folder.is_dir():
            return
        for entry in sorted(self._folder.iterdir()):
            if not entry.name.startswith(folder_volumes.PREFIX) or entry.name in self._volumes.cache:
                continue
            try:
                await self._live.get(entry.name)
            except NotFound:
                await asyncio.to_thread(remove_tree, entry)
                _log.info("folder of volume %s removed", entry.name)


def make_folders(services: Services) -> Runnable:
    """The controller `folder-provisioner-controller`; idle without a directory."""
    folder = services.volume_folder
    if folder is None:
        return Resting()
    storage = _Storage(services.informers)
    nodes = services.informers.typed(Node)

    def reconcile(key: _Key, answers: Answers) -> Sequence[Action]:  # noqa: ARG001 - it asks nothing
        what, name = key
        if what == _VOLUME:
            volume = storage.volume(name)
            return () if volume is None else folder_volumes.give_up(volume)
        claim = storage.claim(name)
        if claim is not None and claim.object.spec.volume_name:
            volume = storage.volume(claim.object.spec.volume_name)
            return () if volume is None else folder_volumes.grow(claim, volume)
        if claim is None or not folder_volumes.is_ours(claim.object):
            return ()
        class_ = storage.storage_class(volume_matching.class_name(claim.object))
        if class_ is None or folder_volumes.volume_name(claim.object) in storage.volumes.cache:
            return ()
        node = nodes.cache.get(claim.object.metadata.annotations.get(volume_matching.SELECTED_NODE, ""))
        return folder_volumes.provision(claim, class_, node, str(folder))

    folders = _Folders(services.client, storage.volumes, folder, services)
    controller: Controller[_Key] = Controller(
        services,
        reconcile,
        queue_name="folder_volumes",
        component=folder_volumes.FOLDER_PROVISIONER,
        waits_for=(*storage.informers, nodes),
        background=(folders.run,),
    )

    def claim_changed(change: Change[Object]) -> None:
        if change.new is not None:
            controller.queue.add((_CLAIM, change.key))

    def volume_changed(change: Change[Object]) -> None:
        if change.new is not None:
            controller.queue.add((_VOLUME, change.key))
            for place in _holder(change.new):
                kind, _, name = place.partition("/")
                if kind == "held":
                    controller.queue.add((_CLAIM, name))

    storage.claims.add_handler(claim_changed)
    storage.volumes.add_handler(volume_changed)
    return controller
