"""Removes what the requests of a round have left, so that memory can be compared: everything that did not exist at first."""

from __future__ import annotations

import msgspec

from fuzz.corpus import NAMESPACES, Corpus, Object, Resource, furnish
from fuzz.wire import Ask, Request

_JSON = [("Content-Type", "application/json")]
_MERGE = [("Content-Type", "application/merge-patch+json")]
# More than the server keeps of history (what it keeps decoded is less), and more than by how much it lets that grow and shrink.
HISTORY_BYTES = 300 * 1024 * 1024
HISTORY_SLACK_BYTES = 30 * 1024 * 1024
_LARGE_BYTES = 900 * 1024
_DONOR_BYTES_MAX = 8 * 1024
_KEPT_METADATA = ("name", "namespace", "labels", "annotations")
Key = tuple[str, str, str]


def _key(resource: Resource, item: Object) -> Key:
    metadata = item["metadata"]
    return f"{resource.group}/{resource.plural}", metadata.get("namespace", ""), metadata["name"]


class Cleaner:
    """Knows what was there at first."""

    def __init__(self, ask: Ask, corpus: Corpus) -> None:
        self._ask = ask
        # Objects that are served in several versions are stored once; what others need goes last.
        listed = [resource for resource in corpus.resources if {"list", "delete"} <= set(resource.verbs)]
        self._resources = sorted(listed, key=lambda each: (each.plural == "namespaces", each.path()))
        self._first: dict[Key, tuple[Resource, Object]] = {}

    async def remember(self) -> None:
        """What is there now stays."""
        for resource in self._resources:
            for item in await self._items(resource):
                metadata = {name: text for name, text in item["metadata"].items() if name in _KEPT_METADATA}
                self._first[_key(resource, item)] = resource, {**item, "metadata": metadata}

    async def clean(self) -> int:
        """Take the rest away and put back what is missing; how many objects there are then."""
        await self._cast_off_policies()
        found = set()
        for resource in self._resources:
            for item in await self._items(resource):
                key = _key(resource, item)
                if key in self._first or not await self._delete(resource, key[1], key[2]):
                    found.add(key)
        await furnish(self._ask)
        for key, (resource, item) in self._first.items():
            if key in found:
                continue
            body = msgspec.json.encode(item)
            made = await self._ask(Request(method="POST", path=resource.path(key[1]), headers=_JSON, body=body))
            # The furniture has been put back already.
            if made.status in (201, 409):
                found.add(key)
        return len(found)

    async def _cast_off_policies(self) -> None:
        """What could refuse everything else goes first."""
        for resource in self._resources:
            if resource.group == "admissionregistration.k8s.io":
                for item in await self._items(resource):
                    _, namespace, name = _key(resource, item)
                    await self._delete(resource, namespace, name)

    async def _items(self, resource: Resource) -> list[Object]:
        answer = await self._ask(Request(method="GET", path=resource.path()))
        items: list[Object] = msgspec.json.decode(answer.body)["items"] if answer.status == 200 else []
        return items

    async def _delete(self, resource: Resource, namespace: str, name: str) -> bool:
        path = resource.path(namespace, name)
        deleted = await self._ask(Request(method="DELETE", path=path, query=[("gracePeriodSeconds", "0")]))
        if deleted.status == 404:
            return True
        if resource.plural == "namespaces":
            empty = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
            body = msgspec.json.encode(empty)
            await self._ask(Request(method="PUT", path=f"{path}/finalize", headers=_JSON, body=body))
        body = b'{"metadata":{"finalizers":null}}'
        await self._ask(Request(method="PATCH", path=path, headers=_MERGE, body=body))
        return (await self._ask(Request(method="GET", path=path))).status == 404


async def fill_history(ask: Ask, corpus: Corpus, size_bytes: int) -> None:
    """Write so much that the server keeps as many objects as it ever does: memory which grows still is lost for good."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACES[1]}/controllerrevisions"
    # As much memory for its size as other objects take: it is made of them.
    items = [donor for donor in corpus.donors if len(msgspec.json.encode(donor)) < _DONOR_BYTES_MAX]
    items *= 1 + _LARGE_BYTES // len(msgspec.json.encode(items))
    while len(msgspec.json.encode(items)) > _LARGE_BYTES:
        del items[-10:]
    for number in range(size_bytes // (2 * _LARGE_BYTES) + 1):
        # Its data cannot be changed: each is a new one. Its end is in history too.
        value = {"metadata": {"name": "large"}, "revision": number, "data": {"items": items}}
        await ask(Request(method="POST", path=path, headers=_JSON, body=msgspec.json.encode(value)))
        await ask(Request(method="DELETE", path=f"{path}/large"))
