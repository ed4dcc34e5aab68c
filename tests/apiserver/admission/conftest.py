"""A cluster in a dictionary, and the chain of plugins over it."""

from __future__ import annotations

import asyncio
import builtins
import copy
from collections.abc import Callable, Collection, Hashable
from typing import Any

import msgspec
import pytest

from allot.apiserver.admission.attributes import Admission, Operation
from allot.apiserver.admission.plugins import default_chain
from allot.apiserver.errors import conflict, not_found
from allot.apiserver.request import Attributes, User
from allot.apiserver.resources import Resource
from allot.core.features import DEFAULT_GATES
from allot.process.clock import ManualClock
from allot.process.ids import CountingIds

ADMIN = User("admin", groups=("system:masters",))


class Allowed(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str = ""


class World:
    """Objects by (group, plural, namespace, name)."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str, str], dict[str, Any]] = {}
        self.version = 0
        self.may: set[tuple[str, str, str]] = set()
        self.asked: list[Attributes] = []
        self.chain = default_chain(
            lookup=self,
            writer=self,
            authorize=self.authorize,
            clock=ImpatientClock(),
            ids=CountingIds(),
            gates=DEFAULT_GATES,
        )
        self.put("", "namespaces", {"metadata": {"name": "default"}, "status": {"phase": "Active"}})
        self.put("", "serviceaccounts", {"metadata": {"name": "default", "namespace": "default"}})

    def put(self, group: str, plural: str, object_: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        meta = object_["metadata"]
        stored = {**object_, "metadata": {**meta, "resourceVersion": str(self.version)}}
        self.objects[group, plural, meta.get("namespace", ""), meta["name"]] = stored
        return stored

    def authorize(self, attributes: Attributes) -> Allowed:
        self.asked.append(attributes)
        return Allowed((attributes.verb, attributes.resource, attributes.name) in self.may)

    async def get(self, plural: str, group: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((group, plural, namespace, name))

    async def list(self, plural: str, group: str, namespace: str = "") -> list[dict[str, Any]]:
        return self.known_list(plural, group, namespace)

    def known_list(self, plural: str, group: str, namespace: str = "") -> builtins.list[dict[str, Any]]:
        found = sorted(self.objects.items())
        return [
            object_
            for (in_group, of_plural, in_namespace, _), object_ in found
            if (in_group, of_plural) == (group, plural) and (not namespace or namespace == in_namespace)
        ]

    def stamp_of(self, kinds: Collection[tuple[str, str]]) -> Callable[[], Hashable]:  # noqa: ARG002
        return lambda: (self.version, len(self.objects))

    async def update_status(
        self, plural: str, group: str, namespace: str, name: str, object_: dict[str, Any]
    ) -> dict[str, Any]:
        await asyncio.sleep(0)
        present = self.objects.get((group, plural, namespace, name))
        if present is None:
            raise not_found(group, plural, name)
        if present["metadata"]["resourceVersion"] != object_["metadata"]["resourceVersion"]:
            raise conflict(group, plural, name, "the object has been modified")
        return self.put(group, plural, object_)

    async def create(
        self, group: str, plural: str, object_: dict[str, Any], *, user: User = ADMIN, dry_run: bool = False,
        subresource: str = "", name: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        """Through the chain into the dictionary."""
        namespace = object_["metadata"].get("namespace", "")
        admission = Admission(
            user=user, operation=Operation.CREATE, resource=resource(group, plural), namespace=namespace, name=name,
            object_=copy.deepcopy(object_), dry_run=dry_run, subresource=subresource,
        )  # fmt: skip
        await self.chain.mutate(admission)
        assert admission.object is not None
        async with self.chain.judge(admission):
            await asyncio.sleep(0)
            if not dry_run and not subresource:
                self.put(group, plural, admission.object)
        return admission.object

    async def update(
        self, group: str, plural: str, new: dict[str, Any], *, user: User = ADMIN, subresource: str = ""
    ) -> dict[str, Any]:
        """Through the chain into the dictionary."""
        meta = new["metadata"]
        old = self.objects[group, plural, meta.get("namespace", ""), meta["name"]]
        admission = Admission(
            user=user, operation=Operation.UPDATE, resource=resource(group, plural), subresource=subresource,
            namespace=meta.get("namespace", ""), name=meta["name"], object_=copy.deepcopy(new), old=old,
        )  # fmt: skip
        await self.chain.mutate(admission)
        assert admission.object is not None
        async with self.chain.judge(admission):
            self.put(group, plural, admission.object)
        return admission.object

    async def delete(self, group: str, plural: str, namespace: str, name: str, *, user: User = ADMIN) -> None:
        """Through the chain out of the dictionary."""
        admission = Admission(
            user=user, operation=Operation.DELETE, resource=resource(group, plural), namespace=namespace, name=name,
            old=self.objects[group, plural, namespace, name],
        )  # fmt: skip
        await self.chain.mutate(admission)
        async with self.chain.judge(admission):
            del self.objects[group, plural, namespace, name]


class ImpatientClock(ManualClock):
    """Waiting takes no time."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


_CLUSTER = (
    "namespaces",
    "nodes",
    "priorityclasses",
    "persistentvolumes",
    "csinodes",
    "resourceslices",
    "deviceclasses",
)


def resource(group: str, plural: str) -> Resource:
    return Resource(
        group=group,
        version="v1",
        kind=plural.removesuffix("s").capitalize(),
        plural=plural,
        singular=plural.removesuffix("s"),
        namespaced=plural not in _CLUSTER and plural != "certificatesigningrequests",
        storage_version="v1",
    )


@pytest.fixture
def world() -> World:
    return World()
