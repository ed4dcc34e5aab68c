"""Changes to new pods for ComputeClasses, as in GKE: the class of their namespace, and the toleration for its nodes.

Works on pods as they were written. Pods must tolerate other taints, such as nvidia.com/gpu, themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.json_objects import mapping
from allot.core.model.compute_classes import CLASS_LABEL, DEFAULT_LABEL, DEFAULT_LABEL_NO_DAEMONS

Object = dict[str, Any]

_GKE = "cloud.google.com/"
# Labels that a pod cannot select together with a class, by the equivalent field of the class.
SAID_BY_CLASS: Mapping[str, str] = {
    f"{_GKE}machine-family": "priorities.machineFamily",
    f"{_GKE}machine-type": "priorities.machineType",
    f"{_GKE}gke-spot": "priorities.spot",
    f"{_GKE}gke-accelerator": "priorities.gpu.type",
    f"{_GKE}gke-gpu-driver-version": "priorities.gpu.driverVersion",
    f"{_GKE}reservation-name": "priorities.reservations.specific.name",
    f"{_GKE}reservation-project": "priorities.reservations.specific.project",
    f"{_GKE}reservation-affinity": "priorities.reservations.affinity",
    f"{_GKE}gke-ephemeral-storage-local-ssd": "priorities.storage.localSSDCount",
    f"{_GKE}gke-boot-disk": "priorities.storage.bootDiskType",
    f"{_GKE}gke-boot-disk-size": "priorities.storage.bootDiskSize",
    f"{_GKE}gke-node-pool-group-name": "nodePoolGroup.name",
    f"{_GKE}gke-workload-type": "nodePoolConfig.workloadType",
    "node.kubernetes.io/instance-type": "priorities.machineType",
}


def may_have_class(pod: Mapping[str, Any], namespace_labels: Mapping[str, str]) -> bool:
    """Whether a new pod could have a class. Most pods and namespaces have nothing of the kind, and need no further checks."""
    spec = mapping(pod.get("spec"))
    return (
        "nodeSelector" in spec
        or "affinity" in spec
        or DEFAULT_LABEL in namespace_labels
        or DEFAULT_LABEL_NO_DAEMONS in namespace_labels
    )


def conflict(pod: Mapping[str, Any]) -> str:
    """Why a pod is invalid: it selects a class and also something that the class decides; empty if it is valid."""
    selector = _selector(pod)
    name = selector.get(CLASS_LABEL)
    if not name:
        return ""
    said = next((key for key in selector if key in SAID_BY_CLASS), None)
    if said is None:
        return ""
    return (
        f"spec.nodeSelector selects ComputeClass {name} and {said}={selector[said]}: the class decides that, "
        f"by {SAID_BY_CLASS[said]}"
    )


def with_class(pod: Object, namespace_labels: Mapping[str, str]) -> Object:
    """A new pod: without a class it gets that of its namespace, and with a class it tolerates its nodes. Invalid values are left
    to validation.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("nodeSelector"), dict | None):
        return pod
    if not isinstance(spec.get("tolerations"), list | None):
        return pod
    name = selected_class(pod)
    if not name:
        name = _default(pod, namespace_labels)
        if not name:
            return pod
        pod = _with(pod, nodeSelector={**_selector(pod), CLASS_LABEL: name})
    given = spec.get("tolerations") or []
    if any(_tolerates(mapping(each), name) for each in given):
        return pod
    wanted = {"key": CLASS_LABEL, "operator": "Equal", "value": name, "effect": "NoSchedule"}
    return _with(pod, tolerations=[*given, wanted])


def selected_class(pod: Mapping[str, Any]) -> str:
    """The class that a pod selects, by its node selector or by an affinity with exactly one."""
    selected = _selector(pod).get(CLASS_LABEL)
    if isinstance(selected, str) and selected:
        return selected
    found: Any = mapping(pod.get("spec"))
    for step in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        found = mapping(found.get(step))
    terms = found.get("nodeSelectorTerms")
    names = {_named(mapping(term)) for term in terms} if isinstance(terms, list) else set()
    return names.pop() if len(names) == 1 else ""


def _named(term: Mapping[str, Any]) -> str:
    expressions = term.get("matchExpressions")
    for each in map(mapping, expressions if isinstance(expressions, list) else ()):
        values = each.get("values")
        if (each.get("key"), each.get("operator")) == (CLASS_LABEL, "In") and isinstance(values, list):
            return values[0] if len(values) == 1 and isinstance(values[0], str) else ""
    return ""


def _default(pod: Mapping[str, Any], namespace_labels: Mapping[str, str]) -> str:
    """The class of pods that select none. A pod that selects a machine itself is left unchanged."""
    if any(key in SAID_BY_CLASS for key in _selector(pod)):
        return ""
    owners = mapping(pod.get("metadata")).get("ownerReferences")
    kinds = [mapping(each).get("kind") for each in owners] if isinstance(owners, list) else []
    but_daemons = "" if "DaemonSet" in kinds else namespace_labels.get(DEFAULT_LABEL_NO_DAEMONS, "")
    return namespace_labels.get(DEFAULT_LABEL, "") or but_daemons


def _tolerates(toleration: Mapping[str, Any], name: str) -> bool:
    if toleration.get("effect") not in ("NoSchedule", "", None):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (CLASS_LABEL, "", None)
    return toleration.get("key") == CLASS_LABEL and toleration.get("value") == name


def _selector(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(pod.get("spec")).get("nodeSelector"))


def _with(pod: Object, **fields: Any) -> Object:
    return {**pod, "spec": {**mapping(pod.get("spec")), **fields}}
