"""What an extension API server says about itself: its resources, and its OpenAPI documents.

They are read again every minute, and when the server changes. A server that does not answer keeps its place in discovery, without
resources and marked as stale, so that clients know that something is missing. Only what belongs to the server's own group and
version is used: it has no say about others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.apiserver.aggregation.extension_server import ExtensionServer, Unavailable
from allot.apiserver.errors import StatusError
from allot.apiserver.nonresource.discovery import aggregated_resources
from allot.apiserver.request import User
from allot.core.json_objects import mapping
from allot.core.schema.merging import OwnPart, own_part

Object = dict[str, Any]

# As upstream: discovery as an administrator, since a server may hide what others may not see; the rest as anybody.
_DISCOVERING = User("system:kube-aggregator", groups=("system:masters",))
_READING = User("system:aggregator")
_DISCOVERY_S = 5.0
_OPENAPI_S = 60.0
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class Unreadable(Exception):
    """A document cannot be read; the text says why."""


class Documents:
    """The documents of one server, as last read."""

    def __init__(self, server: ExtensionServer) -> None:
        self._server = server
        # Its resources in the aggregated form; None if they could not be read.
        self.resources: list[Object] | None = None
        self.openapi_v2 = OwnPart({}, {})
        # Changes with its document in version 3; empty if there is none.
        self.openapi_v3_hash = ""
        self._etag_v2 = ""

    @property
    def told(self) -> tuple[Any, ...]:
        """What it said last: discovery and OpenAPI change with it."""
        return self.resources, self.openapi_v3_hash, self.openapi_v2

    async def read_resources(self) -> None:
        """Ask for its resources; Unreadable if it does not tell them."""
        try:
            found = await self._ask_aggregated()
            # Until it is known, the last answer stays: a group must not be stale every minute.
            self.resources = await self._ask_classic() if found is None else found
        except Unreadable:
            self.resources = None
            raise

    async def read_openapi(self) -> None:
        """Ask for its OpenAPI documents. What cannot be read stays as it was: it is for explanations, not for requests."""
        await self._read_v3()
        await self._read_v2()

    async def _ask_aggregated(self) -> list[Object] | None:
        server = self._server
        status, media_type, _, body = await self._get("/apis", _DISCOVERING, _AGGREGATED, _DISCOVERY_S)
        if status == 503:
            raise Unreadable("service returned non-success response code: 503")
        if status != 200 or "as=APIGroupDiscoveryList" not in media_type.replace(" ", ""):
            return None
        groups = [each for each in _listed(_decoded(body), "items") if _name(each) == server.group]
        versions = [each for group in groups for each in _listed(group, "versions")]
        found = [each for each in versions if each.get("version") == server.version]
        return [_with_kinds(each) for version in found for each in _listed(version, "resources")]

    async def _ask_classic(self) -> list[Object]:
        server = self._server
        status, _, _, body = await self._get(server.path, _DISCOVERING, "application/json", _DISCOVERY_S)
        if status != 200:
            raise Unreadable(f"failed to download legacy discovery for {server.path}: {status}")
        try:
            return aggregated_resources(server.group, server.version, _listed(_decoded(body), "resources"))
        except (KeyError, TypeError, AttributeError) as error:
            raise Unreadable(f"{server.path}: {error!r}") from error

    async def _read_v3(self) -> None:
        status, _, _, body = await self._get("/openapi/v3", _READING, "application/json", _OPENAPI_S)
        path = self._server.path.removeprefix("/")
        found = mapping(mapping(mapping(_decoded(body)).get("paths")).get(path)) if status == 200 else {}
        told = str(found.get("serverRelativeURL") or "")
        digest = told.rpartition("hash=")[2]
        self.openapi_v3_hash = "".join(each for each in digest if each.isalnum())[:128] or ("0" if told else "")

    async def _read_v2(self) -> None:
        status, _, etag, body = await self._get("/openapi/v2", _READING, "application/json", _OPENAPI_S, self._etag_v2)
        if status == 200:
            self.openapi_v2, self._etag_v2 = own_part(mapping(_decoded(body)), f"{self._server.path}/"), etag
        elif status != 304:
            self.openapi_v2, self._etag_v2 = OwnPart({}, {}), ""

    async def _get(
        self, path: str, user: User, accept: str, seconds: float, etag: str = ""
    ) -> tuple[int, str, str, bytes]:
        """Status, media type, ETag and body."""
        try:
            status, headers, body = await self._server.document(path, user, accept, seconds, etag)
        except (Unavailable, StatusError) as error:
            raise Unreadable(f"{path}: {error}") from error
        return status, headers.get("content-type"), headers.get("etag"), body


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(f"not JSON: {error}") from error


def _listed(value: Any, name: str) -> list[Object]:
    found = mapping(value).get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _name(item: Mapping[str, Any]) -> str:
    return str(mapping(item.get("metadata")).get("name") or "")


def _with_kinds(resource: Object) -> Object:
    """Old clients cannot bear a resource without a kind."""
    told = {"responseKind": {"group": "", "version": "", "kind": ""}, **resource}
    if "subresources" in told:
        told["subresources"] = [_with_kinds(each) for each in _listed(told, "subresources")]
    return told
