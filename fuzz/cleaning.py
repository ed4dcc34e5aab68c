"""Takes away what the requests of a round have left, so that memory can be compared: everything that was not there at first."""

from __future__ import annotations

from typing import Any

import msgspec

from fuzz.corpus import NAMESPACES, Corpus, Resource, furnish
from fuzz.wire import Ask, Request

_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_MERGE = [("Content-Type", "application/merge-patch+json")]
# More than the server keeps decoded, in objects that take as much memory for their size as others do.
_KEPT_BYTES = 72 * 1024 * 1024
_LARGE_BYTES = 900 * 1024
Key = tuple[str, str, str]


class Cleaner:
    """Knows what was there at first."""

    def __init__(self, ask: Ask, corpus: Corpus) -> None:
        self._ask = ask
        # Objects that are served in several versions are stored once; what others need goes last.
        listed = [resource for resource in corpus.resources if {"list", "delete"} <= set(resource.verbs)]
        self._resources = sorted(listed, key=lambda each: (each.plural == "namespaces", each.path()))
        self._first: set[Key] = set()

    async def remember(self) -> None:
        """What is there now stays."""
        self._first = {key for resource in self._resources for key in await self._keys(resource)}

    async def clean(self) -> int:
        """Take the rest away and put back what is missing; how many objects there are then."""
        await self._cast_off_policies()
        count = 0
        for resource in self._resources:
            for key in await self._keys(resource):
                if key in self._first or not await self._delete(resource, key[1], key[2]):
                    count += 1
        await furnish(self._ask)
        return count

    async def _cast_off_policies(self) -> None:
        """What could refuse everything else goes first."""
        for resource in self._resources:
            if resource.group == "admissionregistration.k8s.io":
                for _, namespace, name in await self._keys(resource):
                    await self._delete(resource, namespace, name)

    async def _keys(self, resource: Resource) -> list[Key]:
        answer = await self._ask(Request(method="GET", path=resource.path(), headers=[("Accept", _METADATA)]))
        if answer.status != 200:
            return []
        items: list[dict[str, Any]] = msgspec.json.decode(answer.body)["items"]
        return [
            (f"{resource.group}/{resource.plural}", each["metadata"].get("namespace", ""), each["metadata"]["name"])
            for each in items
        ]

    async def _delete(self, resource: Resource, namespace: str, name: str) -> bool:
        path = resource.path(namespace, name)
        deleted = await self._ask(Request(method="DELETE", path=path, query=[("gracePeriodSeconds", "0")]))
        if deleted.status == 404:
            return True
        if resource.plural == "namespaces":
            empty = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
            headers = [("Content-Type", "application/json")]
            await self._ask(
                Request(method="PUT", path=f"{path}/finalize", headers=headers, body=msgspec.json.encode(empty))
            )
        body = b'{"metadata":{"finalizers":null}}'
        await self._ask(Request(method="PATCH", path=path, headers=_MERGE, body=body))
        return (await self._ask(Request(method="GET", path=path))).status == 404


async def fill_caches(ask: Ask) -> None:
    """Write until the server keeps as many objects as it ever does, so that memory which grows after that is lost for good."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACES[1]}/controllerrevisions"
    for number in range(_KEPT_BYTES // _LARGE_BYTES + 1):
        items = [f"{number:05}{item:05}" for item in range(_LARGE_BYTES // 13)]
        value = {"metadata": {"name": "large"}, "revision": number, "data": {"items": items}}
        headers = [("Content-Type", "application/json")]
        # Its data cannot be changed: each is a new one.
        await ask(Request(method="POST", path=path, headers=headers, body=msgspec.json.encode(value)))
        await ask(Request(method="DELETE", path=f"{path}/large"))
