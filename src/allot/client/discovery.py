"""Discovery: the groups, versions and resources of an API server, and the resource for a kind or a user's name for it.

Requests the aggregated form (two requests for everything) and falls back to the classic one, group by group. A group whose server
is unavailable is left out, as in kubectl.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from allot.client.errors import ApiError, NotFound, ServerFault, UnexpectedAnswer
from allot.client.transport import Response

_AGGREGATED = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)


class UnknownResource(Exception):
    """The server does not serve that."""


class ApiResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource in one version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """group/version as in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


class Discovery:
    """All resources, in the server's order: groups by priority, in each the preferred version first. missing: groups and
    versions whose server was unavailable, for callers that must be complete."""

    def __init__(self, resources: Iterable[ApiResource], missing: Iterable[str] = ()) -> None:
        self.resources = tuple(resources)
        self.missing = tuple(missing)
        self._by_kind = {(found.group, found.version, found.kind): found for found in reversed(self.resources)}

    def find_kind(self, group: str, version: str, kind: str) -> ApiResource | None:
        """The resource of a kind in a version; in the preferred one if version is empty."""
        if version:
            return self._by_kind.get((group, version, kind))
        return next((found for found in self.resources if (found.group, found.kind) == (group, kind)), None)

    def find_name(self, name: str) -> ApiResource | None:
        """The resource for a user's name: `pods`, `pod`, `po`, `Pod`, `deployments.apps`, `deployments.v1.apps`."""
        plain, _, rest = name.lower().partition(".")
        for matches in (_is_called, _is_abbreviated):
            for found in self.resources:
                group_fits = not rest or rest in (found.group, f"{found.version}.{found.group}".rstrip("."))
                if group_fits and matches(found, plain):
                    return found
        return None


def _is_called(found: ApiResource, name: str) -> bool:
    return name in (found.plural, found.singular, found.kind.lower())


def _is_abbreviated(found: ApiResource, name: str) -> bool:
    return name in found.short_names


class Asking(Protocol):
    """What discovery needs from a client."""

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Response:
        """A request that raises errors."""


async def discover(client: Asking) -> Discovery:
    """Request everything."""
    resources: list[ApiResource] = []
    missing: list[str] = []
    for path in ("/api", "/apis"):
        try:
            body = (await client.request("GET", path, headers={"Accept": _AGGREGATED})).body
        except NotFound:
            # A server with only custom groups has no /api.
            continue
        if not isinstance(body, dict):
            raise UnexpectedAnswer("expected discovery in JSON", request=f"GET {path}")
        if body.get("kind") == "APIGroupDiscoveryList":
            resources.extend(_read_aggregated(body))
            missing.extend(_stale(body))
            continue
        for group, version in _classic_versions(body):
            found = await _ask_classic(client, group, version)
            if found is None:
                missing.append(_group_version(group, version))
            else:
                resources.extend(found)
    return Discovery(resources, missing)


def _group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def _stale(body: Mapping[str, Any]) -> Iterable[str]:
    """Groups that the server itself could not reach."""
    for item in _objects(body, "items"):
        for served in _objects(item, "versions"):
            if served.get("freshness") == "Stale":
                yield _group_version(str(item.get("metadata", {}).get("name", "")), str(served.get("version", "")))


def _read_aggregated(body: Mapping[str, Any]) -> Iterable[ApiResource]:
    for item in _objects(body, "items"):
        group = str(item.get("metadata", {}).get("name", ""))
        for served in _objects(item, "versions"):
            for found in _objects(served, "resources"):
                kind = found.get("responseKind") or {}
                yield ApiResource(
                    group=group,
                    version=str(served.get("version", "")),
                    kind=str(kind.get("kind", "")),
                    plural=str(found.get("resource", "")),
                    singular=str(found.get("singularResource", "")),
                    namespaced=found.get("scope") == "Namespaced",
                    verbs=_texts(found, "verbs"),
                    short_names=_texts(found, "shortNames"),
                    categories=_texts(found, "categories"),
                    subresources=tuple(str(sub.get("subresource", "")) for sub in _objects(found, "subresources")),
                )


def _classic_versions(body: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Group and version, the preferred version of each group first."""
    if body.get("kind") == "APIVersions":
        yield from (("", version) for version in _texts(body, "versions"))
        return
    for group in _objects(body, "groups"):
        versions = [str(served.get("version", "")) for served in _objects(group, "versions")]
        preferred = str((group.get("preferredVersion") or {}).get("version", ""))
        for version in sorted(versions, key=lambda version: version != preferred):
            yield str(group.get("name", "")), version


async def _ask_classic(client: Asking, group: str, version: str) -> list[ApiResource] | None:
    """The resources of a version; None if its server is unavailable."""
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        body = (await client.request("GET", path)).body
    except NotFound:
        return []
    except ServerFault:
        return None
    if not isinstance(body, dict):
        raise ApiError("expected an APIResourceList", request=f"GET {path}")
    entries = _objects(body, "resources")
    subresources: dict[str, list[str]] = {}
    for entry in entries:
        plural, _, subresource = str(entry.get("name", "")).partition("/")
        if subresource:
            subresources.setdefault(plural, []).append(subresource)
    return [
        ApiResource(
            group=group,
            version=version,
            kind=str(entry.get("kind", "")),
            plural=str(entry.get("name", "")),
            singular=str(entry.get("singularName") or str(entry.get("kind", "")).lower()),
            namespaced=entry.get("namespaced") is True,
            verbs=_texts(entry, "verbs"),
            short_names=_texts(entry, "shortNames"),
            categories=_texts(entry, "categories"),
            subresources=tuple(subresources.get(str(entry.get("name", "")), ())),
        )
        for entry in entries
        if "/" not in str(entry.get("name", ""))
    ]


def _objects(value: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    found = value.get(field)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _texts(value: Mapping[str, Any], field: str) -> tuple[str, ...]:
    found = value.get(field)
    return tuple(item for item in found if isinstance(item, str)) if isinstance(found, list) else ()
