"""What belongs to which node: from pods bound to it to the objects that they refer to.

Fed with pods, volumes, attachments, slices and certificate requests as they change. An object belongs to a node if the graph
leads from it to the node: secret -> pod -> node, secret -> volume -> claim -> pod -> node, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

import msgspec

Object = Mapping[str, Any]
# (plural, namespace, name)
Vertex = tuple[str, str, str]

_MIRROR = "kubernetes.io/config.mirror"


class _Metadata(TypedDict, total=False):
    namespace: str
    name: str
    annotations: dict[str, str] | None


class _Container(TypedDict, total=False):
    env: Any
    envFrom: Any


class _PodSpec(TypedDict, total=False):
    nodeName: str | None
    serviceAccountName: str | None
    imagePullSecrets: Any
    initContainers: list[_Container] | None
    containers: list[_Container] | None
    ephemeralContainers: list[_Container] | None
    volumes: Any
    resourceClaims: Any


class _PodStatus(TypedDict, total=False):
    resourceClaimStatuses: Any
    extendedResourceClaimStatus: Any


class _Pod(TypedDict, total=False):
    """What is read of a pod here: half of one is managed fields, and most of the rest does not matter either."""

    apiVersion: str
    kind: str
    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


_pods = msgspec.json.Decoder(_Pod)


def read_pod(encoded: bytes) -> Object:
    """As much of a pod as the graph needs, from its JSON; all of one that looks unlike a pod."""
    try:
        return _pods.decode(encoded)
    except msgspec.ValidationError:
        found: Object = msgspec.json.decode(encoded)
        return found


class NodeGraph:
    """Edges from objects towards nodes, kept with the object that they come from so that they can be reverted."""

    def __init__(self) -> None:
        # Object that was fed -> its edges; the same edge can come from several objects.
        self._edges_of: dict[Vertex, tuple[tuple[Vertex, Vertex], ...]] = {}
        self._targets: dict[Vertex, dict[Vertex, int]] = {}

    def apply(self, plural: str, namespace: str, name: str, object_: Object | None) -> None:
        """Take over the new state of an object, None for deleted."""
        fed = (plural, namespace, name)
        edges = () if object_ is None else tuple(dict.fromkeys(_EDGES[plural](fed, object_)))
        before = self._edges_of.get(fed, ())
        if edges == before:
            return
        for edge in before:
            self._remove(*edge)
        for source, target in edges:
            targets = self._targets.setdefault(source, {})
            targets[target] = targets.get(target, 0) + 1
        if edges:
            self._edges_of[fed] = edges
        else:
            self._edges_of.pop(fed, None)

    def _remove(self, source: Vertex, target: Vertex) -> None:
        targets = self._targets[source]
        targets[target] -= 1
        if not targets[target]:
            del targets[target]
        if not targets:
            del self._targets[source]

    def belongs(self, plural: str, namespace: str, name: str, node: str) -> bool:
        """Whether the graph leads from an object to the node."""
        wanted = ("nodes", "", node)
        waiting: list[Vertex] = [(plural, namespace, name)]
        seen = set(waiting)
        while waiting:
            for target in self._targets.get(waiting.pop(), ()):
                if target == wanted:
                    return True
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return False


# --- the edges of each kind ---


def _pod_edges(pod_vertex: Vertex, pod: Object) -> Iterator[tuple[Vertex, Vertex]]:
    spec = pod.get("spec") or {}
    node = spec.get("nodeName")
    if not node:
        return
    yield pod_vertex, ("nodes", "", node)
    metadata = pod.get("metadata") or {}
    # A node makes mirror pods itself: they must not open anything for it.
    if _MIRROR in (metadata.get("annotations") or {}):
        return
    _, namespace, name = pod_vertex
    for plural, referred in _pod_references(pod, spec, name):
        yield (plural, namespace, referred), pod_vertex


def _pod_references(pod: Object, spec: Object, pod_name: str) -> Iterator[tuple[str, str]]:
    """(plural, name) of what a pod needs in its namespace."""
    if spec.get("serviceAccountName"):
        yield "serviceaccounts", spec["serviceAccountName"]
    for reference in spec.get("imagePullSecrets") or ():
        if reference.get("name"):
            yield "secrets", reference["name"]
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            yield from _container_references(container)
    for volume in spec.get("volumes") or ():
        yield from _volume_references(volume, pod_name)
    yield from _claim_references(pod, spec)


def _container_references(container: Object) -> Iterator[tuple[str, str]]:
    for source in container.get("envFrom") or ():
        for field, plural in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
            name = (source.get(field) or {}).get("name")
            if name:
                yield plural, name
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        for field, plural in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
            name = (source.get(field) or {}).get("name")
            if name:
                yield plural, name


# Volume sources that name a secret in the pod's namespace, and the field below them that does.
_SECRET_SOURCES = {
    "azureFile": ("secretName",),
    "cephfs": ("secretRef", "name"),
    "cinder": ("secretRef", "name"),
    "flexVolume": ("secretRef", "name"),
    "rbd": ("secretRef", "name"),
    "secret": ("secretName",),
    "scaleIO": ("secretRef", "name"),
    "iscsi": ("secretRef", "name"),
    "storageos": ("secretRef", "name"),
    "csi": ("nodePublishSecretRef", "name"),
}


def _volume_references(volume: Object, pod_name: str) -> Iterator[tuple[str, str]]:
    for source, value in volume.items():
        path = _SECRET_SOURCES.get(source)
        name = _text_at(value, path) if path is not None else ""
        if name:
            yield "secrets", name
    name = _text_at(volume.get("configMap"), ("name",))
    if name:
        yield "configmaps", name
    for projection in (volume.get("projected") or {}).get("sources") or ():
        for field, plural in (("secret", "secrets"), ("configMap", "configmaps")):
            name = _text_at(projection.get(field), ("name",))
            if name:
                yield plural, name
    name = _text_at(volume.get("persistentVolumeClaim"), ("claimName",))
    if not name and volume.get("ephemeral") is not None:
        name = f"{pod_name}-{volume.get('name', '')}"
    if name:
        yield "persistentvolumeclaims", name


def _claim_references(pod: Object, spec: Object) -> Iterator[tuple[str, str]]:
    """Resource claims: named directly, made from a template, or made for extended resources."""
    status = pod.get("status") or {}
    made = {entry.get("name"): entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()}
    for claim in spec.get("resourceClaims") or ():
        name = claim.get("resourceClaimName") or made.get(claim.get("name"))
        if name:
            yield "resourceclaims", name
    name = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    if name:
        yield "resourceclaims", name


# Volume sources of persistent volumes that name a secret somewhere.
_VOLUME_SECRETS = (
    ("azureFile", "secretName", "secretNamespace"),
    ("cephfs", "secretRef", ""),
    ("cinder", "secretRef", ""),
    ("csi", "controllerPublishSecretRef", ""),
    ("csi", "nodePublishSecretRef", ""),
    ("csi", "nodeStageSecretRef", ""),
    ("csi", "controllerExpandSecretRef", ""),
    ("csi", "nodeExpandSecretRef", ""),
    ("flexVolume", "secretRef", ""),
    ("rbd", "secretRef", ""),
    ("scaleIO", "secretRef", ""),
    ("iscsi", "secretRef", ""),
    ("storageos", "secretRef", ""),
)


def _volume_edges(volume_vertex: Vertex, volume: Object) -> Iterator[tuple[Vertex, Vertex]]:
    spec = volume.get("spec") or {}
    claim = spec.get("claimRef") or {}
    if not claim.get("name"):
        return
    namespace = claim.get("namespace") or ""
    yield volume_vertex, ("persistentvolumeclaims", namespace, claim["name"])
    for source, field, namespace_field in _VOLUME_SECRETS:
        reference = (spec.get(source) or {}).get(field)
        if not reference:
            continue
        if namespace_field:
            name, place = reference, spec[source].get(namespace_field)
        else:
            name, place = reference.get("name"), reference.get("namespace")
        if name:
            yield ("secrets", place or namespace, name), volume_vertex


def _node_name_edges(vertex: Vertex, object_: Object) -> Iterator[tuple[Vertex, Vertex]]:
    node = (object_.get("spec") or {}).get("nodeName")
    if node:
        yield vertex, ("nodes", "", node)


_EDGES = {
    "pods": _pod_edges,
    "persistentvolumes": _volume_edges,
    "volumeattachments": _node_name_edges,
    "resourceslices": _node_name_edges,
    "podcertificaterequests": _node_name_edges,
}


def _text_at(value: Any, path: tuple[str, ...]) -> str:
    for key in path:
        value = value.get(key) if value else None
    return value or ""
