"""Claims, volumes and classes in memory, seen through caches that may lag, for tests of the volume binder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from allot.core.lifecycle.actions import Action, Create, Delete, Emit, LookUp, Update
from allot.core.model.codec import decode
from allot.core.model.core_v1 import PersistentVolume, PersistentVolumeClaim
from allot.core.workloads.volume_binding import Claim, Stored, Volume, reconcile_claim, reconcile_volume

Object = dict[str, Any]


def claim(name: str = "c", storage_class: str | None = "", size: str = "1Gi", **more: Any) -> Object:
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    spec |= more.pop("spec", {})
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": spec, "status": more.pop("status", {"phase": "Pending"})}


def volume(
    name: str = "v", storage_class: str = "", size: str = "1Gi", phase: str = "Available", **more: Any
) -> Object:
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "hostPath": {"path": "/x"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    spec |= more.pop("spec", {})
    metadata = {"name": name, "uid": f"uid-{name}", **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def storage_class(
    name: str, provisioner: str = "p.example.com", *, waits: bool = False, default: bool = False
) -> Object:
    metadata: Object = {"name": name}
    if default:
        metadata["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    return {"metadata": metadata, "provisioner": provisioner, "volumeBindingMode": mode}


class Lost(Exception):
    """A write whose object was another by then."""


class World:
    """The server's objects, and a cache of them that is told by `see`."""

    def __init__(self, *objects: Object, classes: Iterable[Object] = (), pods: Sequence[str] = ()) -> None:
        self._version = 0
        self.server: dict[str, Object] = {}
        self.cache: dict[str, Object] = {}
        self.classes = {one["metadata"]["name"]: one for one in classes}
        self._pods = pods
        self.events: list[tuple[str, str, str]] = []
        for one in objects:
            self.put(one)

    # --- what is there ---

    def put(self, one: Object) -> None:
        self._version += 1
        self.server[_key(one)] = {
            **deepcopy(one),
            "metadata": {**deepcopy(one["metadata"]), "resourceVersion": str(self._version)},
        }
        self.see()

    def see(self, *keys: str) -> None:
        """The cache has what the server has, of these or of all."""
        for key in keys or {**self.server, **self.cache}:
            if key in self.server:
                self.cache[key] = self.server[key]
            else:
                self.cache.pop(key, None)

    def of(self, name: str) -> Object:
        return self.server[f"ns/{name}"] if f"ns/{name}" in self.server else self.server[name]

    # --- StorageView ---

    def claim(self, key: str) -> Claim | None:
        return _stored(self.cache.get(key), PersistentVolumeClaim)

    def volume(self, name: str) -> Volume | None:
        return _stored(self.cache.get(name), PersistentVolume)

    def candidates(self, claim: PersistentVolumeClaim) -> Iterator[Volume]:  # noqa: ARG002 - all of them are
        for key in self.cache:
            if "/" not in key:
                found = self.volume(key)
                assert found is not None
                yield found

    def storage_class(self, name: str) -> Object | None:
        return self.classes.get(name)

    def storage_classes(self) -> Iterable[Object]:
        return self.classes.values()

    def pods_without_node(self, key: str) -> Sequence[str]:  # noqa: ARG002 - there is one claim
        return self._pods

    # --- work ---

    def sync(self, name: str, writes_max: int = 100) -> list[Action]:
        """One look at an object; what was written. writes_max: then the controller dies."""
        key = f"ns/{name}" if f"ns/{name}" in {**self.server, **self.cache} else name
        answers: dict[LookUp, Any] = {}
        while True:
            found: Claim | Volume | None
            if "/" in key:
                found = self.claim(key)
                actions = reconcile_claim(found, self) if found is not None else ()
            else:
                found = self.volume(key)
                actions = reconcile_volume(found, self, answers) if found is not None else ()
            questions = [action for action in actions if isinstance(action, LookUp)]
            if not questions:
                break
            for one in questions:
                place = f"{one.namespace}/{one.name}" if one.namespace else one.name
                answers[one] = self.server.get(place)
        return self._carry_out(actions, writes_max)

    def settle(self) -> None:
        """Look at everything until nothing is written any more."""
        for _ in range(50):
            if not any(self.sync(key) for key in list(self.cache) if self.cache.get(key) is not None):
                return
        raise AssertionError("the binder does not come to rest")

    def _carry_out(self, actions: Iterable[Action], writes_max: int) -> list[Action]:
        done: list[Action] = []
        before = ""
        for action in actions:
            if isinstance(action, Emit):
                self.events.append((action.type, action.reason, action.note))
                continue
            if len(done) == writes_max:
                return done
            done.append(action)
            assert isinstance(action, Update | Create | Delete)
            if isinstance(action, Update):
                before = self._update(action, before)
        self.see()
        return done

    def _update(self, action: Update, before: str) -> str:
        wanted = msgspec.to_builtins(action.object)
        key = _key(wanted)
        old = self.server.get(key)
        version = before if action.follows else wanted["metadata"]["resourceVersion"]
        if old is None or old["metadata"]["resourceVersion"] != version:
            raise Lost(key)
        self._version += 1
        part = {"status": wanted["status"]} if action.subresource else {"spec": wanted["spec"]}
        metadata = old["metadata"] if action.subresource else wanted["metadata"]
        self.server[key] = {**old, **part, "metadata": {**metadata, "resourceVersion": str(self._version)}}
        return str(self._version)


def _key(one: Object) -> str:
    metadata = one["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


def _stored(value: Object | None, type_: Any) -> Any:
    return None if value is None else Stored(value, decode(value, type_).object)
