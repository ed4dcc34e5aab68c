"""ComputeDomains and the labels of the driver's node, in the API. API errors become PrepareErrors."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, Conflict, Invalid, NotFound
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.compute_domains import (
    CLIQUE_LABEL,
    DOMAIN_LABEL,
    GROUP,
    KIND,
    PLURAL,
    VERSION,
    ComputeDomain,
    label_removal,
)
from allot.driver import PrepareError

T = TypeVar("T")


class NotYet(PrepareError):
    """A temporary obstacle; a retry may succeed."""


class Domains:
    """Reads and writes as the driver of one node."""

    def __init__(self, client: Client, node: str) -> None:
        self._domains = client.resource(GROUP, VERSION, PLURAL, namespaced=True)
        self._nodes = client.resource("", "v1", "nodes", namespaced=False)
        self._node = node

    async def find(self, uid: str, namespace: str) -> ComputeDomain:
        """The domain of a claim in this namespace. Claims in other namespaces do not learn where the domain is."""
        found = _with_uid(await self._list(namespace), uid)
        if found is None:
            if _with_uid(await self._list(""), uid) is not None:
                raise PrepareError(
                    f"{KIND} {uid} is not in namespace {namespace}: only pods of the domain's own namespace can use it"
                )
            raise PrepareError(f"{KIND} {uid} does not exist")
        return found

    async def find_anywhere(self, uid: str) -> ComputeDomain:
        """The domain that a daemon serves."""
        found = _with_uid(await self._list(""), uid)
        if found is None:
            raise PrepareError(f"{KIND} {uid} does not exist")
        return found

    async def refreshed(self, domain: ComputeDomain) -> ComputeDomain:
        """The current domain."""
        name, namespace = domain.metadata.name, domain.metadata.namespace
        try:
            found = await _asked(self._domains.get(name, namespace), f"{KIND} {namespace}/{name}", NotFound)
        except NotFound:
            found = {}
        if not found or found["metadata"]["uid"] != domain.metadata.uid:
            raise PrepareError(f"{KIND} {namespace}/{name} ({domain.metadata.uid}) no longer exists")
        return _decoded(found)

    async def _list(self, namespace: str) -> Iterable[dict[str, Any]]:
        try:
            return (await _asked(self._domains.list(namespace), f"{KIND}s", NotFound)).items
        except NotFound:
            raise NotYet(f"the API server has no {KIND}s: install their definition (allot install crds)") from None

    # --- the node ---

    async def clique(self) -> str:
        """The NVLink domain in the node's label; empty without one."""
        return str((await self._labels())[0].get(CLIQUE_LABEL, ""))

    async def tell_clique(self, clique: str) -> None:
        """Label the node with its NVLink domain, unless it has such a label. ApiError."""
        node = await self._nodes.get(self._node)
        if CLIQUE_LABEL not in node["metadata"].get("labels", {}):
            await self._nodes.patch(self._node, {"metadata": {"labels": {CLIQUE_LABEL: clique}}}, PatchType.MERGE)

    async def join(self, domain: ComputeDomain) -> None:
        """Add the node to a domain, which starts the domain's daemon there. NotYet if the node is in another domain."""
        uid = domain.metadata.uid
        labels, version = await self._labels()
        current = labels.get(DOMAIN_LABEL)
        if current == uid:
            return
        if current:
            raise NotYet(f"node {self._node} is in another {KIND} ({current}), and a node can be in only one at a time")
        patch = {"metadata": {"resourceVersion": version, "labels": {DOMAIN_LABEL: uid}}}
        try:
            await _asked(self._nodes.patch(self._node, patch, PatchType.MERGE), f"label node {self._node}", Conflict)
        except Conflict:
            raise NotYet(f"node {self._node} was changed by another client at the same time") from None

    async def leave(self, uid: str) -> None:
        """Remove the node from this domain, but not from any other."""
        try:
            labels, _ = await self._labels(NotFound)
            if labels.get(DOMAIN_LABEL) != uid:
                return
            removal = self._nodes.patch(self._node, label_removal(uid), PatchType.JSON)
            await _asked(removal, f"label of node {self._node}", NotFound, Invalid)
        except (NotFound, Invalid):
            # The node is gone, or the label has another value.
            return

    async def _labels(self, *expected: type[ApiError]) -> tuple[dict[str, str], str]:
        node = await _asked(self._nodes.get(self._node), f"node {self._node}", *expected)
        return node["metadata"].get("labels", {}), node["metadata"]["resourceVersion"]


def _with_uid(objects: Iterable[dict[str, Any]], uid: str) -> ComputeDomain | None:
    return next((_decoded(each) for each in objects if each["metadata"]["uid"] == uid), None)


def _decoded(value: dict[str, Any]) -> ComputeDomain:
    try:
        return decode_served(without_managed_fields(value), ComputeDomain)
    except DecodeError as error:
        raise PrepareError(f"{KIND} {value['metadata']['name']} cannot be read: {error}") from error


async def _asked(question: Awaitable[T], what: str, *expected: type[ApiError]) -> T:
    """expected: the errors that the caller handles."""
    try:
        return await question
    except expected:
        raise
    except ApiError as error:
        raise NotYet(f"{what}: {error}") from error
