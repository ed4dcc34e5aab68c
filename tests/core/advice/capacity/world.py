"""Short ways to say what a test about capacity is about: nodes with devices, claims that hold some, manifests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from allot.core.advice.planning.manifest import read_manifest
from allot.core.advice.planning.outcome import PlanResult, outcome_of
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model.meta import APIStruct

DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"
Object = dict[str, Any]


def node(name: str, cpu: str = "8", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """A node with room for many pods."""
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": {"allocatable": amounts}}


def gpu(name: str, model: str = "A", **more: Any) -> Object:
    """A device."""
    return {"name": name, "attributes": {"model": {"string": model}}, **more}


def gpus(count: int, model: str = "A") -> list[Object]:
    """So many devices: gpu-0, gpu-1, ..."""
    return [gpu(f"gpu-{number}", model) for number in range(count)]


def slices(pool: str, devices: Iterable[Object], counters: Iterable[Object] = (), **spec: Any) -> list[Object]:
    """A pool of a node of the same name, unless the spec says where it is."""
    where = spec or {"nodeName": pool}
    parts: list[Object] = [{"devices": list(devices)}]
    if counters:
        parts.append({"sharedCounters": list(counters)})
    head = {"driver": DRIVER, "pool": {"name": pool, "generation": 1, "resourceSliceCount": len(parts)}, **where}
    return [
        {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{pool}-{number}"}, "spec": {**head, **part}}
        for number, part in enumerate(parts)
    ]


def board(name: str, places: int = 4) -> tuple[list[Object], Object]:
    """A GPU that can be had whole, in halves or in quarters: its devices and its counters."""
    slots = {f"slot-{index}": {"value": "1"} for index in range(places)}

    def part(kind: str, first: int, size: int) -> Object:
        taken = {f"slot-{index}": {"value": "1"} for index in range(first, first + size)}
        device = gpu(f"{name}-{kind}-{first}", "cut")
        device["attributes"]["profile"] = {"string": kind}
        return {**device, "consumesCounters": [{"counterSet": name, "counters": taken}]}

    devices = [part("whole", 0, places)]
    devices += [part("half", first, places // 2) for first in range(0, places, places // 2)]
    devices += [part("quarter", first, places // 4) for first in range(0, places, places // 4)]
    return devices, {"name": name, "counters": slots}


def device_class(name: str = "gpu", expression: str = "") -> Object:
    """A class; without an expression it has every device."""
    spec = {"selectors": [{"cel": {"expression": expression}}]} if expression else {}
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def model_is(model: str) -> str:
    """CEL for devices of a model."""
    return f'device.attributes["{DRIVER}"].model == "{model}"'


def request(name: str = "gpu", count: int = 1, expression: str = "", **more: Any) -> Object:
    """A request for devices of the class gpu."""
    exactly: Object = {"deviceClassName": "gpu", "count": count, **more}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": exactly}


def claim(name: str, *requests: Object, constraints: list[Object] | None = None, **status: Any) -> Object:
    """A claim in the namespace default."""
    spec = {"devices": {"requests": list(requests) or [request()], "constraints": constraints or []}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec, "status": status}


def held(name: str, pool: str, *devices: str, pods: Iterable[str] = (), **result: Any) -> Object:
    """A claim that holds devices of a pool on the node of that name, reserved for pods."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": pool, "device": device, **result} for device in devices]
    field = {"key": "metadata.name", "operator": "In", "values": [pool]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    users = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    return claim(name, request(count=len(devices)), allocation=allocation, reservedFor=users)


def template(name: str, *requests: Object, constraints: list[Object] | None = None) -> Object:
    """A claim template in the namespace default."""
    spec = {"devices": {"requests": list(requests) or [request()], "constraints": constraints or []}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": spec}}


def pod(
    name: str = "p", *, cpu: str = "", templates: Iterable[str] = (), claims: Iterable[str] = (), **spec: Any
) -> Object:
    """A pod with one container that uses all of its claims."""
    entries = [{"name": found, "resourceClaimTemplateName": found} for found in templates]
    entries += [{"name": found, "resourceClaimName": found} for found in claims]
    resources = {"requests": {"cpu": cpu} if cpu else {}, "claims": [{"name": entry["name"]} for entry in entries]}
    container = {"name": "c", "image": "image", "resources": resources}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    full = {"containers": [container], "resourceClaims": entries, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": full}


def snapshot(*objects: Object | list[Object], taken_at: float | None = None) -> Snapshot:
    """A cluster."""
    flat = [found for part in objects for found in (part if isinstance(part, list) else [part])]
    return Snapshot(tuple(read_object(found) for found in flat), taken_at)


def situation(*objects: Object | list[Object], taken_at: float | None = None) -> WhatIfCluster:
    """A cluster as the scheduler sees it."""
    return WhatIfCluster(snapshot(*objects, taken_at=taken_at))


def plan(cluster: Snapshot, *manifest: Object, limit: int = 1000, more: Iterable[APIStruct] = ()) -> PlanResult:
    """How many copies of a manifest fit."""
    read = read_manifest(manifest, cluster)
    everything = Snapshot((*cluster.objects, *read.context, *more), cluster.taken_at)
    return outcome_of(WhatIfCluster(everything), read, limit)
