"""Discovery: what this server serves, for clients that ask before they act. In the classic form and aggregated."""

from __future__ import annotations

from typing import Any

from allot.apiserver.registry import Registry, Served
from allot.apiserver.resources import Subresource

Object = dict[str, Any]

V2 = "v2"
V2BETA1 = "v2beta1"


class Discovery:
    """Answers made from the registry's rows, kept until these change."""

    def __init__(self, registry: Registry, address: str = "") -> None:
        self._registry = registry
        self._address = address
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
        return self._keep(("groups",), {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    def group(self, name: str) -> Object | None:
        """/apis/<group>"""
        versions = self._registry.groups().get(name) if name else None
        return None if versions is None else {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}

    def resources(self, group: str, version: str) -> Object | None:
        """/api/v1 and /apis/<group>/<version>"""
        found = self._answer(("resources", group, version))
        if found is not None:
            return found
        rows = self._registry.rows_of(group, version)
        if not rows:
            return None
        listed: list[Object] = []
        for row in rows:
            listed.append(_resource(row))
            listed += [_subresource(row, each) for _, each in sorted(row.resource.subresources.items())]
        group_version = f"{group}/{version}" if group else version
        answer = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}
        return self._keep(("resources", group, version), answer)

    def aggregated(self, version: str, *, legacy: bool) -> Object:
        """/api (legacy) and /apis in one document. version: v2, or v2beta1 for older clients."""
        key = ("aggregated", version, str(legacy))
        found = self._answer(key)
        if found is not None:
            return found
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

    def _version(self, group: str, version: str) -> Object:
        rows = self._registry.rows_of(group, version)
        return {"version": version, "resources": [_aggregated(row) for row in rows], "freshness": "Current"}


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
    return told


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
