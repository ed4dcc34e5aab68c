"""Discovery: what this server serves, in the classic and the aggregated form."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Protocol

from allot.apiserver.registry import Registry, Served, version_order
from allot.apiserver.resources import Resource, Subresource
from allot.core.lifecycle.api_services import Priority, builtin_priority, group_priority

Object = dict[str, Any]

V2 = "v2"
V2BETA1 = "v2beta1"
# Of groups whose objects are made on demand, and of versions of custom resources.
_UNSTORED_PRIORITY = _VERSION_PRIORITY = 100


class UnstoredGroups(Protocol):
    """Groups whose objects are made on demand."""

    def versions(self) -> Mapping[str, tuple[str, ...]]:
        """Versions by group, the preferred one first."""

    def resources(self, group: str, version: str) -> list[Object] | None:
        """The resources of a version, in the classic form; None if there is no such version."""


class ExtensionGroups(Protocol):
    """Groups and versions that other servers serve."""

    @property
    def generation(self) -> int:
        """Changes with everything else here."""

    def priorities(self) -> Mapping[tuple[str, str], Priority]:
        """All groups and versions, and their places."""

    def discovered(self, group: str, version: str) -> Object:
        """A version in the aggregated form."""


class Discovery:
    """Answers built from the registry's rows, cached until they change."""

    def __init__(
        self,
        registry: Registry,
        address: str = "",
        unstored: UnstoredGroups | None = None,
        extensions: ExtensionGroups | None = None,
    ) -> None:
        """unstored: additional groups, whose resources may change at any time. extensions: those of other servers."""
        self._registry = registry
        self._address = address
        self._unstored = unstored
        self._extensions = extensions
        self._generation = (-1, -1)
        self._kept: dict[tuple[str, ...], Object] = {}

    def _answer(self, key: tuple[str, ...]) -> Object | None:
        generation = (self._registry.generation, 0 if self._extensions is None else self._extensions.generation)
        if self._generation != generation:
            self._generation = generation
            self._kept.clear()
        return self._kept.get(key)

    def _groups(self) -> Mapping[str, tuple[str, ...]]:
        """All groups by their place, each with its versions, the preferred one first."""
        own = {**self._registry.groups(), **self._others()}
        foreign = {} if self._extensions is None else self._extensions.priorities()
        if not foreign:
            return own
        places = {group: _UNSTORED_PRIORITY if group in self._others() else group_priority(group) for group in own}
        versions = {
            group: {each: builtin_priority(group, each) or Priority(0, _VERSION_PRIORITY) for each in several}
            for group, several in own.items()
        }
        for (group, version), priority in foreign.items():
            places[group] = max(places.get(group, 0), priority.group)
            versions.setdefault(group, {})[version] = priority
        mixed = {group for group, _ in foreign}
        return {
            group: tuple(
                sorted(versions[group], key=lambda each: (-versions[group][each].version, version_order(each)))
            )
            if group in mixed
            else own[group]
            for group in sorted(places, key=lambda group: (group != "", -places[group], group))
        }

    def _keep(self, key: tuple[str, ...], answer: Object) -> Object:
        self._kept[key] = answer
        return answer

    def api_versions(self) -> Object:
        """/api"""
        return {
            "kind": "APIVersions",
            "versions": list(self._groups().get("", ())),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}],
        }

    def groups(self) -> Object:
        """/apis"""
        found = self._answer(("groups",))
        if found is not None:
            return found
        groups = [_group(name, versions) for name, versions in self._groups().items() if name]
        return self._keep(("groups",), {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    def group(self, name: str) -> Object | None:
        """/apis/<group>"""
        versions = self._groups().get(name) if name else None
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
        if legacy:
            return found
        # Metrics appear as subresources of the resource that they measure, and come and go.
        items = [
            {**item, "versions": self._unstored_versions(item["metadata"]["name"]) or item["versions"]}
            for item in found["items"]
        ]
        return {**found, "items": items}

    def _aggregate(self, key: tuple[str, ...], version: str, *, legacy: bool) -> Object:
        items = [
            {
                "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
                "versions": [self._version(name, each) for each in versions],
            }
            for name, versions in self._groups().items()
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

    def _unstored_versions(self, group: str) -> list[Object]:
        if self._unstored is None or group not in self._others() or self._is_extension(group):
            return []
        return [
            {
                "version": each,
                "resources": aggregated_resources(group, each, self._unstored.resources(group, each) or []),
                "freshness": "Current",
            }
            for each in self._others()[group]
        ]

    def _is_extension(self, group: str) -> bool:
        return self._extensions is not None and any(each == group for each, _ in self._extensions.priorities())

    def _version(self, group: str, version: str) -> Object:
        if self._extensions is not None and (group, version) in self._extensions.priorities():
            return self._extensions.discovered(group, version)
        rows = self._registry.rows_of(group, version)
        if not rows and self._unstored is not None:
            listed = aggregated_resources(group, version, self._unstored.resources(group, version) or [])
            return {"version": version, "resources": listed, "freshness": "Current"}
        return {"version": version, "resources": [_aggregated(row) for row in rows], "freshness": "Current"}


def aggregated_resources(group: str, version: str, listed: list[Object]) -> list[Object]:
    """Resources in the aggregated form, from the classic one."""
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
