"""Builders for the objects of small clusters, as plain JSON in the form in which an API server gives them out."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

JSON = dict[str, Any]

CREATED = "2026-09-14T08:00:00Z"
DRIVER = "gpu.nvidia.com"
IS_GPU = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
ANNOTATION = "resource.kubernetes.io/pod-claim-name"
TOLERATIONS = [
    {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]


def uid_of(kind: str, namespace: str, name: str) -> str:
    """The uid of an object, derived from what it is called."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}/{namespace}/{name}"))


def thing(api_version: str, kind: str, name: str, /, namespace: str = "", **fields: Any) -> JSON:
    """An object with metadata; `metadata` among the fields is added to them."""
    metadata: JSON = {"name": name, "uid": uid_of(kind, namespace, name), "creationTimestamp": CREATED}
    if namespace:
        metadata["namespace"] = namespace
    metadata |= fields.pop("metadata", {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def namespace(name: str, **labels: str) -> JSON:
    """A namespace."""
    named = {"kubernetes.io/metadata.name": name} | {key.replace("__", "/"): value for key, value in labels.items()}
    return thing(
        "v1",
        "Namespace",
        name,
        metadata={"labels": named},
        spec={"finalizers": ["kubernetes"]},
        status={"phase": "Active"},
    )


def node(
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    taints: Sequence[JSON] = (),
    cordoned: bool = False,
    ready: bool = True,
    allocatable: Mapping[str, str] | None = None,
    declared_features: Sequence[str] = (),
) -> JSON:
    """A node; one that is cordoned or not ready has the taints that controllers put on it."""
    taints = list(taints)
    if cordoned:
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    if not ready:
        taints += [
            {"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")
        ]
    spec: JSON = {"providerID": f"kind://corpus/{name}"}
    if cordoned:
        spec["unschedulable"] = True
    if taints:
        spec["taints"] = taints
    amounts = {"cpu": "32", "ephemeral-storage": "200Gi", "memory": "128Gi", "pods": "110"} | dict(allocatable or {})
    condition = {"type": "Ready", "lastHeartbeatTime": CREATED, "lastTransitionTime": CREATED}
    condition |= (
        {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
        if ready
        else {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    )
    status: JSON = {"allocatable": amounts, "capacity": dict(amounts), "conditions": [condition]}
    if declared_features:
        status["declaredFeatures"] = list(declared_features)
    own = {"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return thing("v1", "Node", name, metadata={"labels": own | dict(labels or {})}, spec=spec, status=status)


# --- devices ---


def attribute(value: Any) -> JSON:
    """An attribute: `{"version": ...}` stays as it is, Python's types stand for the API's."""
    if isinstance(value, dict):
        return value
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, list):
        return {"ints" if all(isinstance(each, int) for each in value) else "strings": value}
    return {"int": value} if isinstance(value, int) else {"string": value}


def device(name: str, attributes: Mapping[str, Any], capacity: Mapping[str, Any] | None = None, **fields: Any) -> JSON:
    """A device of a slice."""
    found: JSON = {"name": name, "attributes": {key: attribute(value) for key, value in attributes.items()}}
    if capacity:
        found["capacity"] = {
            key: value if isinstance(value, dict) else {"value": value} for key, value in capacity.items()
        }
    return found | fields


def gpu(index: int, product: str = "NVIDIA A100-SXM4-80GB", memory: str = "80Gi", **fields: Any) -> JSON:
    """A GPU as NVIDIA's driver publishes it; `attributes` are added to its own."""
    attributes = {
        "type": "gpu",
        "productName": product,
        "driverVersion": {"version": "580.126.20"},
        "cudaComputeCapability": {"version": "9.0.0" if "H100" in product else "8.0.0"},
        "resource.kubernetes.io/pcieRoot": f"pci0000:0{index}",
    } | fields.pop("attributes", {})
    return device(f"gpu-{index}", attributes, {"memory": memory}, **fields)


def resource_slice(
    where: str | JSON,
    devices: Sequence[JSON] | None,
    *,
    driver: str = DRIVER,
    pool: str = "",
    generation: int = 1,
    slices: int = 1,
    suffix: str = "x7k2p",
    **spec: Any,
) -> JSON:
    """A slice on a node, or reached as the fields in `where` say."""
    reach = {"nodeName": where} if isinstance(where, str) else where
    pool = pool or (where if isinstance(where, str) else "pool")
    name = f"{pool}-{driver}-{suffix}"
    spec = (
        {"driver": driver, "pool": {"generation": generation, "name": pool, "resourceSliceCount": slices}}
        | reach
        | spec
    )
    if devices is not None:
        spec["devices"] = list(devices)
    metadata: JSON = {"generateName": name.removesuffix(suffix)}
    if isinstance(where, str):
        owner = {
            "apiVersion": "v1",
            "controller": True,
            "kind": "Node",
            "name": where,
            "uid": uid_of("Node", "", where),
        }
        metadata["ownerReferences"] = [owner]
    return thing("resource.k8s.io/v1", "ResourceSlice", name, metadata=metadata, spec=spec)


def selectors(*expressions: str) -> list[JSON]:
    """Selectors of a class or request."""
    return [{"cel": {"expression": expression}} for expression in expressions]


def device_class(name: str = DRIVER, expression: str = IS_GPU, **spec: Any) -> JSON:
    """A device class."""
    return thing("resource.k8s.io/v1", "DeviceClass", name, spec={"selectors": selectors(expression), **spec})


# --- claims ---


def request(
    name: str = "gpu", device_class_name: str = DRIVER, *expressions: str, count: int = 1, **fields: Any
) -> JSON:
    """A request for exactly so many devices, or for all of them with `allocationMode`."""
    exactly: JSON = {"deviceClassName": device_class_name, "allocationMode": "ExactCount", "count": count} | fields
    if exactly["allocationMode"] == "All":
        del exactly["count"]
    if expressions:
        exactly["selectors"] = selectors(*expressions)
    return {"name": name, "exactly": exactly}


def alternatives(name: str, *requests: JSON) -> JSON:
    """A prioritized list made of requests."""
    return {"name": name, "firstAvailable": [{"name": each["name"], **each["exactly"]} for each in requests]}


def devices_of(*requests: JSON, **fields: Any) -> JSON:
    """The spec of a claim."""
    return {"devices": {"requests": list(requests), **fields}}


def template(name: str, spec: JSON, namespace: str = "default") -> JSON:
    """A template for claims."""
    return thing("resource.k8s.io/v1", "ResourceClaimTemplate", name, namespace, spec={"spec": spec})


def on_node(name: str) -> JSON:
    """The node selector of an allocation on one node."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def result(device: str, pool: str, request: str = "gpu", driver: str = DRIVER, **fields: Any) -> JSON:
    """A device of an allocation."""
    return {"device": device, "driver": driver, "pool": pool, "request": request, **fields}


def consumer(name: str, namespace: str = "default") -> JSON:
    """A pod in `reservedFor`."""
    return {"resource": "pods", "name": name, "uid": uid_of("Pod", namespace, name)}


def claim(
    name: str,
    spec: JSON,
    namespace: str = "default",
    *,
    results: Sequence[JSON] = (),
    where: JSON | None = None,
    users: Iterable[JSON] = (),
    owner: JSON | None = None,
    **status: Any,
) -> JSON:
    """A claim; with results it is allocated, with an owner it was made from a template."""
    metadata: JSON = {"finalizers": ["resource.kubernetes.io/delete-protection"]}
    if owner is not None:
        metadata |= owner
    if results:
        allocation: JSON = {"devices": {"results": list(results)}}
        if where is not None:
            allocation["nodeSelector"] = where
        status = {"allocation": allocation, "reservedFor": list(users), **status}
    return thing("resource.k8s.io/v1", "ResourceClaim", name, namespace, metadata=metadata, spec=spec, status=status)


def made_for(pod: str, entry: str, namespace: str = "default", kind: str = "Pod") -> JSON:
    """The metadata of a claim that a controller made for a pod."""
    api_version = "v1" if kind == "Pod" else "scheduling.k8s.io/v1beta1"
    reference = {"apiVersion": api_version, "kind": kind, "name": pod, "uid": uid_of(kind, namespace, pod)}
    return {
        "annotations": {ANNOTATION: entry},
        "generateName": f"{pod}-{entry}-",
        "ownerReferences": [{**reference, "blockOwnerDeletion": True, "controller": True}],
    }


# --- pods ---


def condition(message: str, reason: str = "Unschedulable") -> JSON:
    """What the scheduler wrote into a pod."""
    return {
        "lastTransitionTime": "2026-09-14T08:05:00Z",
        "status": "False",
        "type": "PodScheduled",
        "reason": reason,
        "message": message,
    }


def pod(
    name: str = "train",
    namespace: str = "default",
    *,
    templates: Mapping[str, str] | None = None,
    claims: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    on: str = "",
    labels: Mapping[str, str] | None = None,
    priority: int = 0,
    preemption: str = "PreemptLowerPriority",
    told: str = "",
    status: JSON | None = None,
    **spec: Any,
) -> JSON:
    """A pod whose claims come from templates (the claims are called POD-ENTRY-q4t9z) or have names."""
    templates, claims = templates or {}, claims or {}
    container: JSON = {
        "image": "nvcr.io/nvidia/pytorch:25.08-py3",
        "imagePullPolicy": "IfNotPresent",
        "name": "main",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    if templates or claims:
        container["resources"]["claims"] = [{"name": entry} for entry in (*templates, *claims)]
    if requests:
        extended = {key: value for key, value in requests.items() if "/" in key}
        container["resources"]["requests"] = dict(requests)
        if extended:
            container["resources"]["limits"] = extended
    full: JSON = {
        "containers": [container],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": preemption,
        "priority": priority,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [*TOLERATIONS, *spec.pop("tolerations", ())],
    }
    entries = [{"name": entry, "resourceClaimTemplateName": each} for entry, each in templates.items()]
    entries += [{"name": entry, "resourceClaimName": each} for entry, each in claims.items()]
    if entries:
        full["resourceClaims"] = entries
    if on:
        full["nodeName"] = on
    full |= spec
    found: JSON = {"phase": "Running" if on else "Pending"}
    if told:
        found["conditions"] = [condition(told)]
    if templates:
        found["resourceClaimStatuses"] = [
            {"name": entry, "resourceClaimName": f"{name}-{entry}-q4t9z"} for entry in templates
        ]
    metadata = {"labels": dict(labels)} if labels else {}
    return thing("v1", "Pod", name, namespace, metadata=metadata, spec=full, status=found | (status or {}))


def with_claim(
    pod: JSON, spec: JSON, results: Sequence[JSON] = (), where: JSON | None = None, entry: str = "gpu"
) -> list[JSON]:
    """A pod and the claim made from its template; with results the claim is allocated and reserved for it."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    owner = made_for(name, entry, namespace)
    users = [consumer(name, namespace)]
    called = f"{name}-{entry}-q4t9z"
    return [pod, claim(called, spec, namespace, results=results, where=where, users=users, owner=owner)]


def holder(name: str, on: str, *devices: str, namespace: str = "default", pool: str = "", **fields: Any) -> list[JSON]:
    """A running pod with its claim for GPUs of a node."""
    spec = devices_of(request(count=len(devices)))
    results = [result(each, pool or on) for each in devices]
    template_name = fields.pop("template", "single-gpu")
    running = pod(name, namespace, templates={"gpu": template_name}, on=on, **fields)
    return with_claim(running, spec, results, on_node(on))


def event(about: JSON, reason: str, message: str, kind: str = "Warning", source: str = "kubelet") -> JSON:
    """An event about an object."""
    metadata = about["metadata"]
    namespace = metadata.get("namespace", "default")
    regarding = {
        "apiVersion": about["apiVersion"],
        "kind": about["kind"],
        "name": metadata["name"],
        "namespace": namespace,
        "uid": metadata["uid"],
    }
    name = f"{metadata['name']}.{uid_of(reason, '', message)[:16].replace('-', '')}"
    return thing(
        "v1",
        "Event",
        name,
        namespace,
        involvedObject=regarding,
        reason=reason,
        message=message,
        type=kind,
        count=3,
        firstTimestamp="2026-09-14T08:05:00Z",
        lastTimestamp="2026-09-14T08:40:00Z",
        source={"component": source},
    )
