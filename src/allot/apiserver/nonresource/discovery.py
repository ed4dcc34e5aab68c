"""Discovery: what this server serves, in the classic and the aggregated form."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Protocol

from allot.apiserver.registry import Registry, Served
from allot.apiserver.resources import Resource, Subresource

Object = dict[str, Any]

V2 = "v2"
V2BETA1 = "v2beta1"


class UnstoredGroups(Protocol):
    """Groups whose objects are made on demand."""

    def versions(self) -> Mapping[str, tuple[str, ...]]:
        """Versions by group, the preferred one first."""

    def resources(self, group: str, version: str) -> list[Object] | None:
        """The resources of a version, in the classic form; None if there is no such version."""


class Discovery:
    """Answers built from the registry's rows, cached until they change."""

    def __init__(self, registry: Registry, address: str = "", unstored: UnstoredGroups | None = None) -> None:
        """unstored: additional groups, whose resources may change at any time."""
        self._registry = registry
        self._address = address
        self._unstored = unstored
        self._generation = -1
        self._kept: dict[tuple[str, ...], Object] = {}

    def _answer(self, key: tuple[str, ...]) -> Object | None:
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            self._kept.clear()
        return self._kept.get(key)

    def _keep(self, key: tuple[str, ...], answer: Object) -> Object:
        self._kept[key] = answer
        return answer

    def api_versions(self) -> Object:
        """/api"""
        return {
            "kind": "APIVersions",
            "versions": list(self._registry.groups().get("", ())),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}],
        }

    def groups(self) -> Object:
        """/apis"""
        found = self._answer(("groups",))
        if found is not None:
            return found
        groups = [_group(name, versions) for name, versions in self._registry.groups().items() if name]
        groups += [_group(name, versions) for name, versions in self._others().items()]
        return self._keep(("groups",), {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    def group(self, name: str) -> Object | None:
        """/apis/<group>"""
        versions = self._registry.groups().get(name) or self._others().get(name) if name else None
        return None if versions is None else {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}

    def resources(self, group: str, version: str) -> Object | None:
        """/api/v1 and /apis/<group>/<version>"""
        found = self._answer(("resources", group, version))
        if found is not None:
            return found
        listed = self._unstored.resources(group, version) if self._unstored is not None else None
        if listed is not None:
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{group}/{version}",
                "resources": listed,
            }
        rows = self._registry.rows_of(group, version)
        if not rows:
            return None
        listed = []
        for row in rows:
            listed.append(_resource(row))
            listed += [_subresource(row, each) for _, each in sorted(row.resource.subresources.items())]
        group_version = f"{group}/{version}" if group else version
        answer = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}
        return self._keep(("resources", group, version), answer)

    def aggregated(self, version: str, *, legacy: bool) -> Object:
        """/api (legacy) and /apis in one document. version: v2, or v2beta1 for older clients."""
        key = ("aggregated", version, str(legacy))
        found = self._answer(key) or self._aggregate(key, version, legacy=legacy)
        return found if legacy else {**found, "items": [*found["items"], *self._aggregated_others()]}

    def _aggregate(self, key: tuple[str, ...], version: str, *, legacy: bool) -> Object:
        items = [
            {
                "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
                "versions": [self._version(name, each) for each in versions],
            }
            for name, versions in self._registry.groups().items()
            if (name == "") == legacy
        ]
        answer = {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": items,
        }
        return self._keep(key, answer)

    def _others(self) -> Mapping[str, tuple[str, ...]]:
        return self._unstored.versions() if self._unstored is not None else {}

    def _aggregated_others(self) -> list[Object]:
        """Resources that come and go: metrics appear as subresources of the resource that they measure."""
        assert self._unstored is not None or not self._others()
        return [
            {
                "metadata": {"name": group, "creationTimestamp": None},
                "versions": [
                    {
                        "version": each,
                        "resources": _aggregated_listed(group, each, self._unstored.resources(group, each) or []),
                        "freshness": "Current",
                    }
                    for each in versions
                ],
            }
            for group, versions in self._others().items()
            if self._unstored is not None
        ]

    def _version(self, group: str, version: str) -> Object:
        rows = self._registry.rows_of(group, version)
        return {"version": version, "resources": [_aggregated(row) for row in rows], "freshness": "Current"}


def _aggregated_listed(group: str, version: str, listed: list[Object]) -> list[Object]:
    found: dict[str, Object] = {}
    for one in listed:
        plural, _, part = one["name"].partition("/")
        kind = {"group": group, "version": version, "kind": one["kind"]}
        told = found.setdefault(
            plural,
            {
                "resource": plural,
                "responseKind": kind,
                "scope": "Namespaced" if one["namespaced"] else "Cluster",
                "singularResource": one["singularName"],
                "verbs": [] if part else one["verbs"],
            },
        )
        if part:
            told.setdefault("subresources", []).append(
                {"subresource": part, "responseKind": kind, "verbs": one["verbs"]}
            )
    return list(found.values())


def _group(name: str, versions: tuple[str, ...]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource(row: Served) -> Object:
    resource = row.resource
    told: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        told["shortNames"] = list(resource.short_names)
    if resource.categories:
        told["categories"] = list(resource.categories)
    if resource.stored:
        told["storageVersionHash"] = _storage_version_hash(resource)
    return told


def _storage_version_hash(resource: Resource) -> str:
    """Changes with the version in which objects are stored; the same as kube-apiserver's for the same version."""
    group = resource.group if resource.storage_group is None else resource.storage_group
    digest = sha256(f"{group}/{resource.storage_version}/{resource.kind}".encode()).digest()
    return b64encode(digest[:8]).decode()


def _subresource(row: Served, subresource: Subresource) -> Object:
    resource = row.resource
    told: Object = {
        "name": f"{resource.plural}/{subresource.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": subresource.kind or resource.kind,
        "verbs": list(subresource.verbs),
    }
    if subresource.version:
        told |= {"group": subresource.group, "version": subresource.version}
    return told


def _aggregated(row: Served) -> Object:
    resource = row.resource
    told: Object = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        told["shortNames"] = list(resource.short_names)
    if resource.categories:
        told["categories"] = list(resource.categories)
    if resource.subresources:
        told["subresources"] = [_aggregated_part(row, each) for _, each in sorted(resource.subresources.items())]
    return told


def _aggregated_part(row: Served, subresource: Subresource) -> Object:
    resource = row.resource
    kind = {
        "group": subresource.group if subresource.version else resource.group,
        "version": subresource.version or resource.version,
        "kind": subresource.kind or resource.kind,
    }
    return {"subresource": subresource.name, "responseKind": kind, "verbs": list(subresource.verbs)}
