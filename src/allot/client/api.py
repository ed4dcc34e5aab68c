"""Access to the kinds of an API server, by their names (`resource`) or by the types of `core.model` (`typed`).

Objects of dynamic access are JSON values as the server sends them; never change one, create a new one.
Every unsuccessful answer raises an error of `errors`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from allot.client.discovery import ApiResource, Discovery, UnknownResource, discover
from allot.client.errors import Gone, UnexpectedAnswer, error_from_answer
from allot.client.transport import (
    APPLY_PATCH,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    REQUEST_TIMEOUT_S,
    STRATEGIC_PATCH,
    Response,
    Transport,
    WatchEvent,
)
from allot.client.typed import TypedResource
from allot.core.model.kinds import kind_of_type
from allot.core.model.meta import APIStruct

Object = dict[str, Any]
T = TypeVar("T", bound=APIStruct)

PAGE_SIZE = 500
_PLAIN = re.compile(r"[A-Za-z0-9._~-]+", re.ASCII).fullmatch
_PATHS_MAX = 1_000
# A watch may stay open this much longer than requested; then the server counts as gone.
WATCH_GRACE_S = 30.0


class PatchType(StrEnum):
    """How a patch is written, by its content type."""

    JSON = JSON_PATCH
    MERGE = MERGE_PATCH
    STRATEGIC = STRATEGIC_PATCH
    APPLY = APPLY_PATCH


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A list, or a page of one."""

    items: tuple[Object, ...]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


class Client:
    """An API server. on_warning receives the server's warnings."""

    def __init__(
        self,
        transport: Transport,
        *,
        timeout: float = REQUEST_TIMEOUT_S,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self.transport = transport
        self._timeout = timeout
        self._on_warning = on_warning
        self._discovery: Discovery | None = None

    def resource(self, group: str, version: str, plural: str, *, namespaced: bool) -> ResourceClient:
        """Dynamic access to a resource."""
        return ResourceClient(self, group, version, plural, namespaced)

    def typed(self, type_: type[T], *, version: str = "") -> TypedResource[T]:
        """Access by type, in the type's version or another one that is converted to and from it."""
        kind = kind_of_type(type_)
        version = version or kind.hub_version
        return TypedResource(self.resource(kind.group, version, kind.plural, namespaced=kind.namespaced), type_, kind)

    async def typed_as_served(self, type_: type[T]) -> TypedResource[T]:
        """Access by type, in the first of its versions that the server has (older clusters lack the newest)."""
        kind = kind_of_type(type_)
        discovery = await self.discovery()
        for version in kind.versions:
            if discovery.find_kind(kind.group, version, kind.name) is not None:
                return self.typed(type_, version=version)
        expected = " or ".join(kind.api_versions)
        raise UnknownResource(f"the server does not serve kind {kind.name}: expected {expected}")

    async def of_kind(self, api_version: str, kind: str) -> ResourceClient:
        """Dynamic access to a kind by apiVersion and kind."""
        group, _, version = api_version.rpartition("/")
        found = (await self.discovery()).find_kind(group, version, kind)
        if found is None:
            # It may be new: a CustomResourceDefinition may just have been created.
            found = (await self.discovery(refresh=True)).find_kind(group, version, kind)
        if found is None:
            raise UnknownResource(f"the server does not serve kind {kind!r} in apiVersion {api_version!r}")
        return self.discovered(found)

    async def of_name(self, name: str) -> ResourceClient:
        """Dynamic access by a user's name for it: plural, singular, short name or kind, with `.group` appended if necessary."""
        found = (await self.discovery()).find_name(name) or (await self.discovery(refresh=True)).find_name(name)
        if found is None:
            raise UnknownResource(f"the server does not have a resource {name!r}")
        return self.discovered(found)

    def discovered(self, found: ApiResource) -> ResourceClient:
        """Dynamic access to a resource from discovery."""
        return self.resource(found.group, found.version, found.plural, namespaced=found.namespaced)

    async def discovery(self, *, refresh: bool = False) -> Discovery:
        """The server's discovery; read once, and again on request."""
        if self._discovery is None or refresh:
            self._discovery = await discover(self)
        return self._discovery

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Response:
        """Any request; the answer if successful, else an error."""
        timeout = self._timeout if timeout is None else timeout
        response = await self.transport.request(method, path, query, body, content_type, headers, timeout)
        if self._on_warning is not None:
            for warning in response.warnings:
                self._on_warning(warning)
        if not 200 <= response.status < 300:
            raise error_from_answer(response.status, response.body, f"{method} {path}", response.retry_after_s)
        return response

    async def close(self) -> None:
        """Release the transport."""
        await self.transport.close()


class ResourceClient:
    """Dynamic access to one resource. An empty namespace means all of them in lists and watches."""

    def __init__(self, client: Client, group: str, version: str, plural: str, namespaced: bool) -> None:
        self._client = client
        self.group = group
        self.version = version
        self.plural = plural
        self.is_namespaced = namespaced
        self._root = f"/apis/{quote(group)}/{quote(version)}" if group else f"/api/{quote(version)}"
        # Namespace -> path of the resource in it.
        self._paths: dict[str, str] = {}

    @property
    def api_version(self) -> str:
        """apiVersion of the objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    # --- reads ---

    async def get(self, name: str, namespace: str = "", *, subresource: str = "", resource_version: str = "") -> Object:
        """One object."""
        query = _query(resourceVersion=resource_version)
        return await self._object("GET", self.path(namespace, name, subresource), query)

    async def list(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listed:
        """All objects, fetched page by page, as of one resourceVersion."""
        query = _query(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            resourceVersion=resource_version,
            resourceVersionMatch=resource_version_match,
        )
        items: list[Object] = []
        page = await self._page(namespace, query, page_size)
        items.extend(page.items)
        # The first page determines the version; the token carries it.
        for consumed in ("resourceVersion", "resourceVersionMatch"):
            query.pop(consumed, None)
        try:
            while page.continue_token:
                page = await self._page(namespace, {**query, "continue": page.continue_token}, page_size)
                items.extend(page.items)
        except Gone:
            # Paging took longer than the server keeps history: a single request for everything cannot expire.
            return await self._page(namespace, query, 0)
        return Listed(items=tuple(items), resource_version=page.resource_version)

    async def pages(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
    ) -> AsyncIterator[Listed]:
        """Page by page, for lists that need not fit in memory at once; Gone if it takes too long."""
        query = _query(labelSelector=label_selector, fieldSelector=field_selector)
        page = await self._page(namespace, query, page_size)
        yield page
        while page.continue_token:
            page = await self._page(namespace, {**query, "continue": page.continue_token}, page_size)
            yield page

    def watch(
        self,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = True,
        send_initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """An open watch after a resourceVersion. ERROR events are returned unchanged (`error_from_event`)."""
        query = _query(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            resourceVersion=resource_version,
            allowWatchBookmarks="true" if bookmarks else "",
            timeoutSeconds=str(timeout_seconds),
        )
        if send_initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return self._client.transport.stream(self.path(namespace), query, duration=timeout_seconds + WATCH_GRACE_S)

    # --- writes ---

    async def create(
        self,
        object_: Object,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Create an object; with a subresource (binding, eviction, token), for the object of that name."""
        path = self.path(namespace or _namespace_of(object_), name, subresource, needs_namespace=True)
        return await self._object("POST", path, _write_query(field_manager, dry_run), object_)

    async def update(
        self,
        object_: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Replace an object. Conflict if it has a resourceVersion that is not the current one."""
        path = self.path(namespace or _namespace_of(object_), _name_of(object_), subresource)
        return await self._object("PUT", path, _write_query(field_manager, dry_run), object_)

    async def update_status(
        self, object_: Object, namespace: str = "", *, field_manager: str = "", dry_run: bool = False
    ) -> Object:
        """Replace an object's status."""
        return await self.update(object_, namespace, subresource="status", field_manager=field_manager, dry_run=dry_run)

    async def patch(
        self,
        name: str,
        patch: Any,
        type_: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> Object:
        """Change parts of an object."""
        query = _write_query(field_manager, dry_run)
        if force:
            query["force"] = "true"
        return await self._object("PATCH", self.path(namespace, name, subresource), query, patch, type_.value)

    async def apply(
        self,
        object_: Object,
        field_manager: str,
        namespace: str = "",
        *,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply: own exactly the fields given. Conflict if another manager owns one, unless forced."""
        return await self.patch(
            _name_of(object_),
            object_,
            PatchType.APPLY,
            namespace or _namespace_of(object_),
            subresource=subresource,
            field_manager=field_manager,
            force=force,
            dry_run=dry_run,
        )

    async def delete(
        self,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation_policy: str = "",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete an object, only if it has the given uid and resourceVersion, if any. Returns the object, or a Status if it is gone."""
        options = _delete_options(propagation_policy, grace_period_seconds, dry_run)
        preconditions = _query(uid=uid, resourceVersion=resource_version)
        if preconditions:
            options["preconditions"] = preconditions
        return await self._object("DELETE", self.path(namespace, name), None, options)

    async def delete_collection(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        propagation_policy: str = "",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete all objects that match, in a namespace if the resource is namespaced."""
        query = _query(labelSelector=label_selector, fieldSelector=field_selector)
        options = _delete_options(propagation_policy, grace_period_seconds, dry_run)
        return await self._object("DELETE", self.path(namespace, needs_namespace=True), query, options)

    # --- paths and answers ---

    def path(self, namespace: str = "", name: str = "", subresource: str = "", *, needs_namespace: bool = False) -> str:
        """The path of an object, a subresource or the whole resource."""
        if not self.is_namespaced and namespace:
            raise ValueError(f"{self.plural} have no namespace, got {namespace!r}")
        if self.is_namespaced and not namespace and (name or needs_namespace):
            raise ValueError(f"{self.plural} {name!r}: expected a namespace")
        if subresource and not name:
            raise ValueError(f"{self.plural}/{subresource}: expected the name of an object")
        path = self._paths.get(namespace)
        if path is None:
            below = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
            if len(self._paths) >= _PATHS_MAX:
                self._paths.clear()
            path = self._paths[namespace] = f"{self._root}/{below}{quote(self.plural, safe='')}"
        if name:
            # Nearly all names are plain, and checking that is faster than quoting.
            path = f"{path}/{name if _PLAIN(name) else quote(name, safe='')}"
        if not subresource:
            return path
        return f"{path}/{subresource if _PLAIN(subresource) else quote(subresource)}"

    async def _object(
        self, method: str, path: str, query: dict[str, str] | None = None, body: Any = None, content_type: str = JSON
    ) -> Object:
        response = await self._client.request(method, path, query, body, content_type)
        if not isinstance(response.body, dict):
            raise UnexpectedAnswer("expected an object", code=response.status, request=f"{method} {path}")
        return response.body

    async def _page(self, namespace: str, query: dict[str, str], limit: int) -> Listed:
        path = self.path(namespace)
        body = await self._object("GET", path, {**query, "limit": str(limit)} if limit else query)
        items, metadata = body.get("items"), body.get("metadata")
        if items is None:
            items = []
        if not isinstance(items, list) or not isinstance(metadata, dict):
            raise UnexpectedAnswer("expected a list with items and metadata", code=200, request=f"GET {path}")
        return Listed(
            items=tuple(self._with_type(item, body) for item in items),
            resource_version=str(metadata.get("resourceVersion", "")),
            continue_token=str(metadata.get("continue") or ""),
            remaining=metadata.get("remainingItemCount"),
        )

    def _with_type(self, item: Object, body: Object) -> Object:
        """kube-apiserver omits apiVersion and kind in the items of a list; the list's kind determines them."""
        if "kind" in item:
            return item
        kind = str(body.get("kind", "")).removesuffix("List")
        return {"apiVersion": self.api_version, "kind": kind, **item}


def _query(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _write_query(field_manager: str, dry_run: bool) -> dict[str, str]:
    query = {"fieldManager": field_manager} if field_manager else {}
    if dry_run:
        query["dryRun"] = "All"
    return query


def _delete_options(propagation_policy: str, grace_period_seconds: int | None, dry_run: bool) -> Object:
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if propagation_policy:
        options["propagationPolicy"] = propagation_policy
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if dry_run:
        options["dryRun"] = ["All"]
    return options


def _name_of(object_: Object) -> str:
    name = object_.get("metadata", {}).get("name", "")
    if not name:
        raise ValueError(f"{object_.get('kind', 'object')}: expected metadata.name")
    return str(name)


def _namespace_of(object_: Object) -> str:
    return str(object_.get("metadata", {}).get("namespace", ""))
