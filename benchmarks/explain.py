"""How long an explanation takes: processor time from a parsed snapshot, and of the whole command from a dump. Asserts nothing.

    .venv/bin/python benchmarks/explain.py [--quick] [--profile] [part of a row's name...]

5,000 nodes with 8 GPUs each (--quick: 500); half of the nodes have large GPUs, which are all held by pods.
"""

from __future__ import annotations

import cProfile
import gc
import json
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.snapshot import Snapshot, read_object

NODES = 500 if "--quick" in sys.argv else 5_000
DEVICES = 8
DRIVER = "gpu.example.com"
RESOURCE = "resource.k8s.io/v1"
LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
Object = dict[str, Any]


# --- the cluster ---


def gpu(node: int, number: int, memory: str) -> Object:
    """A device with the attributes that a GPU driver publishes; no two look the same."""
    texts = {"type": "gpu", "productName": "Example H100", "uuid": f"GPU-{node}-{number}", "architecture": "Hopper"}
    attributes: Object = {name: {"string": text} for name, text in texts.items()}
    attributes |= {"driverVersion": {"version": "550.54.15"}, "index": {"int": number}}
    attributes["resource.kubernetes.io/pcieRoot"] = {"string": f"pci0000:0{number // 2}"}
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": {"memory": {"value": memory}}}


def machine(number: int, *, cordoned: bool) -> list[Object]:
    """A node, its devices, and pods that hold the large ones."""
    name = f"node-{number}"
    is_large = number % 2 == 0
    spec = {"unschedulable": True} if cordoned else {}
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    objects: list[Object] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}
        | {"status": {"allocatable": amounts}},
        {
            "apiVersion": RESOURCE,
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [gpu(number, index, "80Gi" if is_large else "40Gi") for index in range(DEVICES)],
            },
        },
    ]
    if is_large:
        for index in range(DEVICES):
            objects += held(name, index)
    return objects


def held(node: str, index: int) -> list[Object]:
    """A device in use."""
    name = f"{node}-{index}"
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": f"gpu-{index}"}
    status = {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
    }
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "4"}}}], "nodeName": node}
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    metadata = {"name": name, "namespace": "ml", "uid": name}
    return [
        {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": metadata, "spec": asks(), "status": status},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}},
    ]


def asks(*expressions: str, count: int = 1, mode: str = "ExactCount", **devices: Any) -> Object:
    """What a claim asks for."""
    exactly: Object = {"deviceClassName": "gpu", "allocationMode": mode}
    if mode == "ExactCount":
        exactly["count"] = count
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": expression}} for expression in expressions]
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}], **devices}}


def cluster(wanted: Object, *, cordoned: bool = False) -> list[Object]:
    """Everything, and a pod that waits."""
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "gpu"'
    claim = {"name": "train", "namespace": "default", "uid": "claim"}
    pod = {"name": "train", "namespace": "default", "uid": "pod"}
    named = [{"name": "gpu", "resourceClaimName": "train"}]
    containers = [{"name": "main", "resources": {"requests": {"cpu": "4"}}}]
    return [
        *(each for number in range(NODES) for each in machine(number, cordoned=cordoned)),
        {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": {"name": "gpu"}}
        | {"spec": {"selectors": [{"cel": {"expression": expression}}]}},
        {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": claim, "spec": wanted},
        {"apiVersion": "v1", "kind": "Pod", "metadata": pod}
        | {"spec": {"containers": containers, "resourceClaims": named}, "status": {"phase": "Pending"}},
    ]


ALTERNATIVES = [
    {"name": name, "deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}
    for name, expression in (
        ("large", LARGE),
        ("other", f'device.attributes["{DRIVER}"].productName == "Example A100"'),
    )
]
ROWS: dict[str, Callable[[], list[Object]]] = {
    "all that match are held": lambda: cluster(asks(LARGE, count=2)),
    "no device matches": lambda: cluster(asks(LARGE.replace("80Gi", "90Gi"))),
    "more than any node has": lambda: cluster(asks(count=9)),
    "not on one PCIe root": lambda: cluster(
        asks(count=3, constraints=[{"matchAttribute": "resource.kubernetes.io/pcieRoot"}])
    ),
    "all devices of a node": lambda: cluster(asks(LARGE, mode="All")),
    "none of two alternatives": lambda: cluster(
        {"devices": {"requests": [{"name": "gpu", "firstAvailable": ALTERNATIVES}]}}
    ),
    "every node is cordoned": lambda: cluster(asks(), cordoned=True),
}


# --- measuring ---


def measure(name: str, objects: list[Object]) -> None:
    """One explanation from a parsed snapshot."""
    snapshot = Snapshot(tuple(read_object(each) for each in objects))
    del objects
    gc.collect()
    gc.freeze()
    profile = cProfile.Profile()
    if "--profile" in sys.argv:
        profile.enable()
    begin = time.process_time()
    explainer = Explainer(snapshot)
    middle = time.process_time()
    found = explainer.pod("default", "train")
    end = time.process_time()
    profile.disable()
    changes = sum(change.verified for change in found.changes)
    print(
        f"{name:28} {end - begin:6.2f} s   (cluster {middle - begin:4.2f}, explanation {end - middle:4.2f})   ", end=""
    )
    print(f"{found.reason.value}, {changes} changes verified")
    if "--profile" in sys.argv:
        pstats.Stats(profile).sort_stats("cumtime").print_stats(30)
    gc.unfreeze()


def measure_command(objects: list[Object]) -> None:
    """The whole command, from a dump in JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dump.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        size = path.stat().st_size / 2**20
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "allot", "explain", "train", "-f", str(path)], check=False, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    print(f"{f'command, {size:.0f} MiB of JSON':28} {used:6.2f} s")


def main() -> None:
    """All rows, or those that are named."""
    # As the command does.
    gc.disable()
    wanted = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    print(f"{NODES} nodes, {NODES * DEVICES} devices, {NODES // 2 * DEVICES} of them held; processor time")
    for name, make in ROWS.items():
        if not wanted or any(part in name for part in wanted):
            measure(name, make())
    if not wanted or "command" in wanted:
        measure_command(next(iter(ROWS.values()))())


if __name__ == "__main__":
    main()
