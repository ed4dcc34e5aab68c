"""Plugins that fill in a field or two: tolerations, taints, finalizers, storage classes."""

from __future__ import annotations

from typing import Any

from allot.apiserver.admission.attributes import Admission, Lookup, Object, Operation
from allot.apiserver.admission.objects import annotations_of, field, metadata, replaced, sequence, text
from allot.apiserver.resources import Resource
from allot.core.features import FeatureGates
from allot.core.json_objects import mapping

_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_TOLERATION_SECONDS = 300


class DefaultTolerationSeconds:
    """Pods stay on a not-ready or unreachable node for five minutes."""

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Writes of pods."""
        writes = operation in (Operation.CREATE, Operation.UPDATE)
        return (resource.group, resource.plural, subresource) == ("", "pods", "") and writes

    async def mutate(self, admission: Admission) -> None:
        """Add the tolerations that the pod does not set."""
        pod = admission.object
        if pod is None:
            return
        spec = pod.get("spec")
        if isinstance(spec, dict) and "tolerations" not in spec:
            admission.object = {**pod, "spec": {**spec, "tolerations": _BOTH}}
            return
        tolerations = [*sequence(field(pod, "spec", "tolerations"))]
        missing = [key for key in (_NOT_READY, _UNREACHABLE) if not any(_tolerates(one, key) for one in tolerations)]
        if missing:
            added = [_toleration(key) for key in missing]
            admission.object = replaced(pod, ("spec", "tolerations"), tolerations + added)


def _tolerates(toleration: Any, key: str) -> bool:
    one = mapping(toleration)
    return one.get("key") in (key, "", None) and one.get("effect") in ("NoExecute", "", None)


def _toleration(key: str) -> Object:
    return {"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": _TOLERATION_SECONDS}


_BOTH = [_toleration(key) for key in (_NOT_READY, _UNREACHABLE)]


class TaintNodesByCondition:
    """New nodes accept no pods until they are ready."""

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Creates of nodes."""
        return (resource.group, resource.plural, subresource, operation) == ("", "nodes", "", Operation.CREATE)

    async def mutate(self, admission: Admission) -> None:
        """Add the taint."""
        node = admission.object
        if node is None:
            return
        taints = sequence(field(node, "spec", "taints"))
        wanted = {"effect": "NoSchedule", "key": _NOT_READY}
        if not any(
            mapping(one).get("key") == _NOT_READY and mapping(one).get("effect") == "NoSchedule" for one in taints
        ):
            admission.object = replaced(node, ("spec", "taints"), [*taints, wanted])


_FINALIZERS = {
    ("", "persistentvolumes"): "kubernetes.io/pv-protection",
    ("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
    ("storage.k8s.io", "volumeattributesclasses"): "kubernetes.io/vac-protection",
    ("scheduling.k8s.io", "podgroups"): "scheduling.k8s.io/podgroup-protection",
}
# Kinds that can be in use only while a gate is on; their controller runs only then.
_GATES = {("scheduling.k8s.io", "podgroups"): "GenericWorkload"}


class ProtectionFinalizers:
    """Things that are in use are not deleted: StorageObjectInUseProtection and PodGroupProtection.

    Each finalizer has a controller that removes it (`controllers/table.py`).
    """

    def __init__(self, gates: FeatureGates) -> None:
        self._finalizers = {key: name for key, name in _FINALIZERS.items() if key not in _GATES or _GATES[key] in gates}

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Creates of what can be in use."""
        key = (resource.group, resource.plural)
        return not subresource and operation is Operation.CREATE and key in self._finalizers

    async def mutate(self, admission: Admission) -> None:
        """Add the finalizer."""
        new = admission.object
        finalizer = self._finalizers[admission.key]
        present = sequence(metadata(new).get("finalizers"))
        if new is not None and finalizer not in present:
            admission.object = replaced(new, ("metadata", "finalizers"), [*present, finalizer])


class DefaultStorageClass:
    """Volume claims without a class get the default one."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Creates of volume claims."""
        key = (resource.group, resource.plural, subresource, operation)
        return key == ("", "persistentvolumeclaims", "", Operation.CREATE)

    async def mutate(self, admission: Admission) -> None:
        """Name the class: of several defaults the newest, then the smallest name."""
        claim = admission.object
        if claim is None or field(claim, "spec", "storageClassName") is not None:
            return
        if "volume.beta.kubernetes.io/storage-class" in annotations_of(claim):
            return
        found = [one for one in await self._lookup.list("storageclasses", "storage.k8s.io") if _is_default(one)]
        if not found:
            return
        newest = max(text(metadata(one).get("creationTimestamp")) for one in found)
        names = [text(metadata(one).get("name")) for one in found if metadata(one).get("creationTimestamp") == newest]
        admission.object = replaced(claim, ("spec", "storageClassName"), min(names, default=metadata(found[0])["name"]))


def _is_default(storage_class: Object) -> bool:
    marks = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
    return any(annotations_of(storage_class).get(mark) == "true" for mark in marks)


class DefaultIngressClass:
    """Ingresses without a class get the default one."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Creates of ingresses."""
        key = (resource.group, resource.plural, subresource, operation)
        return key == ("networking.k8s.io", "ingresses", "", Operation.CREATE)

    async def mutate(self, admission: Admission) -> None:
        """Name the class: of several defaults the newest, then the smallest name."""
        ingress = admission.object
        if ingress is None or field(ingress, "spec", "ingressClassName") is not None:
            return
        if "kubernetes.io/ingress.class" in annotations_of(ingress):
            return
        mark = "ingressclass.kubernetes.io/is-default-class"
        classes = await self._lookup.list("ingressclasses", "networking.k8s.io")
        found = sorted(text(metadata(one).get("name")) for one in classes if annotations_of(one).get(mark) == "true")
        if found:
            admission.object = replaced(ingress, ("spec", "ingressClassName"), found[0])
