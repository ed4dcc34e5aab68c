"""Builders for manifests as text."""

from __future__ import annotations

import json
from typing import Any

DRIVER = "gpu.example.com"


def node(name: str = "n1", **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def device_class(name: str = "gpu", *expressions: str) -> dict[str, Any]:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return _resource("DeviceClass", {"name": name}, {"selectors": selectors} if selectors else {})


def device(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, **members}


def resource_slice(node_name: str = "n1", *devices: dict[str, Any], driver: str = DRIVER) -> dict[str, Any]:
    spec = {
        "driver": driver,
        "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
        "nodeName": node_name,
        "devices": list(devices or (device("gpu-0"), device("gpu-1"))),
    }
    return _resource("ResourceSlice", {"name": f"{node_name}-{driver}"}, spec)


def claim(name: str = "c1", *, count: int = 1, class_name: str = "gpu", **exactly: Any) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": class_name, "count": count, **exactly}}
    return _resource("ResourceClaim", {"name": name, "namespace": "ml"}, {"devices": {"requests": [request]}})


def pod(name: str, **claims: dict[str, str]) -> dict[str, Any]:
    spec = {
        "containers": [{"name": "main", "image": "example.com/image"}],
        "resourceClaims": [{"name": entry, **source} for entry, source in claims.items()],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"}, "spec": spec}


def text(*objects: dict[str, Any]) -> str:
    """The objects one after another."""
    return "\n".join(json.dumps(object_) for object_ in objects)


def _resource(kind: str, metadata: dict[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
