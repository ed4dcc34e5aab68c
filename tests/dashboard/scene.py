"""A cluster with something for every page: racks and pools, devices that are free, held, shared, cut, tainted and sick, pods that wait,
a gang, queues of teams, events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Object = dict[str, Any]
DRIVER = "gpu.example.com"
RESOURCE = "resource.k8s.io/v1"
CREATED = "2026-11-17T08:00:00Z"
NOW = "2026-11-17T10:30:00Z"
ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>"
SCHEDULER = "0/{nodes} nodes are available: {nodes} cannot allocate all claims."


def node(number: int) -> Object:
    name = f"node-{number}"
    labels = {
        "kubernetes.io/hostname": name,
        "example.com/rack": f"rack-{number // 4}",
        "topology.kubernetes.io/zone": f"zone-{number % 2}",
        "nvidia.com/gpu.clique": f"clique-{number // 4}.0",
        "autoscaling.allot.dev/pool": "h100" if number % 2 else "a100",
    }
    allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110", **({"nvidia.com/gpu": "8"} if number == 5 else {})}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": NOW}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{number}", "creationTimestamp": CREATED, "labels": labels},
        "spec": {"unschedulable": True} if number == 3 else {},
        "status": {"allocatable": allocatable, "conditions": [ready]},
    }


def device(node_number: int, number: int) -> Object:
    is_large = node_number % 2 == 1
    texts = {"type": "gpu", "productName": "H100 80GB" if is_large else "A100 40GB", "uuid": f"{node_number}-{number}"}
    attributes: Object = {name: {"string": text} for name, text in texts.items()}
    attributes |= {"numa": {"int": number // 4}}
    attributes["resource.kubernetes.io/pcieRoot"] = {"string": f"pci0000:{number // 2}0"}
    found = {
        "name": f"gpu-{number}",
        "attributes": attributes,
        "capacity": {"memory": {"value": "80Gi" if is_large else "40Gi"}},
    }
    if (node_number, number) == (0, 7):
        found["taints"] = [{"key": "example.com/xid", "value": "79", "effect": "NoExecute", "timeAdded": CREATED}]
    if (node_number, number) == (1, 6):
        found["allowMultipleAllocations"] = True
    return found


def slice_(name: str, devices: list[Object], **spec: Any) -> Object:
    pool = {"name": spec.pop("pool", name), "generation": 1, "resourceSliceCount": spec.pop("count", 1)}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": name, "uid": f"slice-{name}", "creationTimestamp": CREATED},
        "spec": {"driver": DRIVER, "pool": pool, **spec, **({"devices": devices} if devices else {})},
    }


def partitions(node_name: str) -> list[Object]:
    """A GPU that can be cut into seven."""
    counters = {f"part-{number}": {"value": "1"} for number in range(7)}
    cut = []
    for number in range(7):
        consumed = [{"counterSet": "gpu-8", "counters": {f"part-{number}": {"value": "1"}}}]
        attributes = {
            "type": {"string": "mig"},
            "profile": {"string": "1g.10gb"},
            "productName": {"string": "H100 80GB"},
        }
        cut.append({"name": f"gpu-8-part-{number}", "attributes": attributes, "consumesCounters": consumed})
    sets = slice_(f"{node_name}-counters", [], pool=f"{node_name}-cut", count=2, nodeName=node_name)
    sets["spec"]["sharedCounters"] = [{"name": "gpu-8", "counters": counters}]
    return [sets, slice_(f"{node_name}-cut", cut, pool=f"{node_name}-cut", count=2, nodeName=node_name)]


def claim(namespace: str, name: str, *, count: int, on: str = "", devices: tuple[str, ...] = (), **more: Any) -> Object:
    """on: the node whose devices it has; none if empty."""
    pool = more.get("pool", on)
    exactly: Object = {"deviceClassName": more.get("of", DRIVER), "count": count}
    found: Object = {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaim",
        "metadata": {"namespace": namespace, "name": name, "uid": f"claim-{name}", "creationTimestamp": CREATED},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    if on:
        results = [{"request": "gpu", "driver": DRIVER, "pool": pool, "device": each} for each in devices]
        if more.get("share"):
            results = [{**each, "shareID": "a0a0a0a0-0000-4000-8000-00000000000a", "consumedCapacity": {"memory": "20Gi"}} for each in results]  # fmt: skip
        fields = [{"key": "metadata.name", "operator": "In", "values": [on]}]
        found["status"] = {
            "allocation": {
                "allocationTimestamp": more.get("since", CREATED),
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
            },
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"pod-{name}"}] if more.get("used", True) else [],
        }
    return found


def pod(namespace: str, name: str, *, on: str = "", said: str = "", **more: Any) -> Object:
    """With a claim of its own name, unless claims says otherwise."""
    claims = more.get("claims", (name,))
    requests = {"cpu": "4", "memory": "16Gi", **more.get("requests", {})}
    container = {"name": "main", "image": "train:1", "resources": {"requests": requests}}
    container["resources"]["claims"] = [{"name": "gpu"} for _ in claims]  # type: ignore[index]
    spec: Object = {"containers": [container]}
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": each} for each in claims]
    if on:
        spec["nodeName"] = on
        status: Object = {"phase": "Running", "startTime": more.get("since", CREATED)}
    else:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
        status = {"phase": "Pending", "conditions": [{**condition, "lastTransitionTime": NOW}] if said else []}
    if more.get("gang"):
        spec["schedulingGroup"] = {"podGroupName": more["gang"]}
    metadata = {"namespace": namespace, "name": name, "uid": f"pod-{name}", "creationTimestamp": CREATED}
    if more.get("queue"):
        metadata["labels"] = {"kai.scheduler/queue": more["queue"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def queue(name: str, parent: str, quota: int) -> Object:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"gpu": {"quota": quota, "limit": -1, "overQuotaWeight": 1}, "cpu": free, "memory": free}
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    metadata = {"name": name, "creationTimestamp": CREATED}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata, "spec": spec}


def event(name: str, reason: str, message: str, about: Object, *, warns: bool = False) -> Object:
    metadata = about["metadata"]
    reference = {"kind": about["kind"], "namespace": metadata.get("namespace", ""), "name": metadata["name"]}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": metadata.get("namespace", "default"), "name": name, "creationTimestamp": NOW},
        "involvedObject": reference,
        "reason": reason,
        "message": message,
        "type": "Warning" if warns else "Normal",
        "lastTimestamp": NOW,
        "count": 3,
        "reportingComponent": "default-scheduler",
    }


def device_class(name: str, condition: str = "") -> Object:
    expression = f'device.driver == "{DRIVER}"{condition}'
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    metadata = {"name": name, "uid": f"class-{name}", "creationTimestamp": CREATED}
    return {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": metadata, "spec": spec}


def objects(nodes: int = 8) -> list[Object]:
    """The whole cluster. More nodes are like the first eight."""
    large = f' && device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
    found = [
        device_class(DRIVER),
        device_class(f"large.{DRIVER}", f' && "memory" in device.capacity["{DRIVER}"]{large}'),
    ]
    for number in range(nodes):
        found.append(node(number))
        found.append(slice_(f"node-{number}", [device(number, each) for each in range(8)], nodeName=f"node-{number}"))
        # In some nodes pods hold much, in others little.
        for place in range((number * 3) % 7 // 2 + (number % 2)):
            name, namespace = f"train-{number}-{place}", f"team-{number % 3}"
            devices = (f"gpu-{place * 2}", f"gpu-{place * 2 + 1}")
            since = f"2026-11-17T{8 + place % 2:02d}:{(number * 7) % 60:02d}:00Z"
            found.append(claim(namespace, name, count=2, on=f"node-{number}", devices=devices, since=since))
            found.append(pod(namespace, name, on=f"node-{number}", since=since))
    found += partitions("node-2")
    found.append(claim("team-0", "slice", count=1, on="node-2", pool="node-2-cut", devices=("gpu-8-part-0",)))
    found.append(pod("team-0", "slice", on="node-2"))
    found.append(claim("team-1", "shared", count=1, on="node-1", devices=("gpu-6",), share=True))
    shared = pod("team-1", "shared", on="node-1")
    said = {"resourceID": "k8s.example.com/claim=claim-shared-gpu-6", "health": "Unhealthy", "message": "too hot"}
    status = {"name": "main", "allocatedResourcesStatus": [{"name": "claim:gpu", "resources": [said]}]}
    shared["status"]["containerStatuses"] = [status]
    found.append(shared)
    sick = claim("team-2", "sick", count=1, on="node-4", devices=("gpu-7",))
    condition = {"type": "Ready", "status": "False", "reason": "XID", "message": "fell off the bus", "lastTransitionTime": NOW}  # fmt: skip
    sick["status"]["devices"] = [{"driver": DRIVER, "pool": "node-4", "device": "gpu-7", "conditions": [condition]}]
    found += [sick, pod("team-2", "sick", on="node-4")]
    found.append(claim("team-1", "forgotten", count=1, on="node-0", devices=("gpu-6",), used=False))
    found += _waiting(nodes)
    return found


def _waiting(nodes: int) -> list[Object]:
    said = SCHEDULER.format(nodes=nodes)
    found: list[Object] = []
    for name in ("big-0", "big-1"):
        found.append(claim("team-1", name, count=8, of=f"large.{DRIVER}"))
        found.append(pod("team-1", name, said=said))
    group = {"namespace": "team-2", "name": "ring", "creationTimestamp": CREATED}
    policy = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    found.append({"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "metadata": group, "spec": policy})
    for number in range(4):
        name = f"ring-{number}"
        found.append(claim("team-2", name, count=8))
        found.append(pod("team-2", name, said=said, gang="ring"))
    found += [queue("research", "", 4), queue("training", "research", 2), queue("evaluation", "research", 2)]
    for name, count, more in (("eval-0", "4", {}), ("fit-0", "6", {"on": "node-5"})):
        made = pod("ml", name, queue="training" if more else "evaluation", claims=(), **more)
        resources = made["spec"]["containers"][0]["resources"]
        resources["limits"] = {"nvidia.com/gpu": count}
        resources["requests"]["nvidia.com/gpu"] = count
        found.append(made)
    big = next(each for each in found if each["kind"] == "Pod")
    found.append(event("big-0.1", "FailedScheduling", said, big, warns=True))
    found.append(event("big-0.2", "Said", ATTACK, big))
    return found


def write(path: Path, items: list[Object] | None = None) -> Path:
    """As a dump; the whole cluster, unless these objects are given."""
    items = objects() if items is None else items
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path
