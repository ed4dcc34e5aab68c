"""Short ways to say what a test about explanations is about: nodes with GPUs, claims that hold some, pods that want some."""

from __future__ import annotations

from typing import Any

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.features import DEFAULT_GATES, FeatureGates

DRIVER = "gpu.nvidia.com"
RESOURCE = "resource.k8s.io/v1"
NOW = 1_800_000_000.0
Object = dict[str, Any]


def node(name: str, cpu: str = "32", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """A node with room for many pods."""
    amounts = {"cpu": cpu, "memory": "128Gi", "pods": "110"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": {"allocatable": amounts}}


def gpu(number: int = 0, memory: str = "40Gi", **more: Any) -> Object:
    """A device; attributes come as their JSON."""
    attributes = {
        "type": {"string": "gpu"},
        "productName": {"string": "NVIDIA A100"},
        "cudaComputeCapability": {"version": "8.0.0"},
        "root": {"string": f"root-{number}"},
    }
    attributes |= more.pop("attributes", {})
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": {"memory": {"value": memory}}, **more}


def gpus(count: int, memory: str = "40Gi") -> list[Object]:
    """So many devices."""
    return [gpu(number, memory) for number in range(count)]


def pool(node_name: str, devices: list[Object], *, slices: int = 1, generation: int = 1, **spec: Any) -> Object:
    """The slice of a node."""
    head = {"driver": DRIVER, "pool": {"name": node_name, "generation": generation, "resourceSliceCount": slices}}
    name = f"{node_name}-{generation}"
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {**head, "nodeName": node_name, "devices": devices, **spec},
    }


def device_class(name: str = "gpu", expression: str = f'device.driver == "{DRIVER}"', **spec: Any) -> Object:
    """A class."""
    selectors = [{"cel": {"expression": expression}}]
    return {
        "apiVersion": RESOURCE,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def asks(*expressions: str, count: int = 1, of: str = "gpu", **spec: Any) -> Object:
    """What a claim asks for."""
    exactly: Object = {"deviceClassName": of, "allocationMode": "ExactCount", "count": count}
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}], **spec}}


def template(name: str, spec: Object, namespace: str = "default") -> Object:
    """A template."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": spec}}


def claim(name: str, spec: Object, *, owner: str = "", status: Object | None = None) -> Object:
    """A claim; owner: the pod that it was made for from a template."""
    metadata: Object = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if owner:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": f"uid-{owner}", "controller": True}
        metadata["ownerReferences"] = [reference]
        metadata["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    return {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": metadata, "spec": spec, "status": status or {}}


def holding(node_name: str, *devices: str, users: tuple[str, ...] = (), since: str = "2027-01-15T07:00:00Z") -> Object:
    """The status of a claim that has devices."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": node_name, "device": device} for device in devices]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    return {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [term]},
            "allocationTimestamp": since,
        },
        "reservedFor": [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users],
    }


def pod(name: str, *, cpu: str = "1", status: Object | None = None, **spec: Any) -> Object:
    """A pod that waits."""
    claims = [{"name": entry["name"]} for entry in spec.get("resourceClaims", [])]
    resources = {"requests": {"cpu": cpu}, **({"claims": claims} if claims else {})}
    container = {"name": "main", "image": "train", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Pending", **(status or {})},
    }


def wanting(name: str, claimed: str, **more: Any) -> Object:
    """A pod that names a claim."""
    return pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": claimed}], **more)


def templated(name: str, spec: Object, *, status: Object | None = None, **more: Any) -> list[Object]:
    """A pod with a claim from a template of its own, and both of these."""
    made = f"{name}-gpu-x"
    statuses = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": made}]}
    return [
        template(f"{name}-template", spec),
        claim(made, spec, owner=name, status=status),
        pod(
            name,
            resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": f"{name}-template"}],
            status={**statuses, **more.pop("status_of_pod", {})},
            **more,
        ),
    ]


def running(name: str, on: str, claimed: str = "", **more: Any) -> Object:
    """A pod that runs."""
    named = [{"name": "gpu", "resourceClaimName": claimed}] if claimed else []
    return pod(name, nodeName=on, resourceClaims=named, status={"phase": "Running"}, **more)


def event(about: str, reason: str, message: str) -> Object:
    """A warning about a pod."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about}.{reason}", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": about},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "lastTimestamp": "2027-01-15T08:00:00Z",
    }


def snapshot(*objects: Object | list[Object]) -> Snapshot:
    """A cluster with these objects."""
    flat = [each for part in objects for each in (part if isinstance(part, list) else [part])]
    return Snapshot(tuple(read_object(each) for each in flat), NOW)


def explained(*objects: Object | list[Object], name: str = "train", gates: FeatureGates = DEFAULT_GATES) -> Explanation:
    """Why the pod waits."""
    return Explainer(snapshot(*objects), gates).pod("default", name)
