"""How long planning and counting take: copies of a manifest on many nodes, devices of many nodes; in processor time.

    python benchmarks/plan.py [--nodes 1000]

Each case is planned from a parsed snapshot of nodes with 8 GPUs. `used`: part of the devices is in use, differently on each node.
The last line is what `allot top devices` counts of the last cluster.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator, Mapping
from typing import Any

from allot.core.advice.planning.manifest import read_manifest
from allot.core.advice.planning.outcome import outcome_of
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.advice.usage.devices import device_usage
from allot.core.advice.usage.partitions import partition_usage
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model.meta import APIStruct
from allot.devices.node_files import NodeSet
from allot.devices.node_templates import objects_of
from allot.devices.simulation import GpuSettings
from allot.devices.simulation import Settings as DriverSettings

LIMIT = 100_000
DRIVER = "gpu.nvidia.com"
Object = dict[str, Any]


def _cluster(nodes: int, used: bool, dynamic_mig: bool) -> Snapshot:
    drivers = DriverSettings(gpu=GpuSettings(feature_gates={"DynamicMIG": True})) if dynamic_mig else DriverSettings()
    objects: list[APIStruct] = list(objects_of(NodeSet(profile="h100x8", name="node", count=nodes, drivers=drivers)))
    if used:
        for number in range(nodes):
            objects += _in_use(f"node-{number}" if nodes > 1 else "node", number, dynamic_mig)
    return Snapshot(tuple(objects), 0.0)


def _in_use(node: str, number: int, dynamic_mig: bool) -> Iterator[APIStruct]:
    """A few devices of a node, each held by a claim."""
    for place in range(number % 7):
        index = (number * 3 + place * 5) % 8
        device = f"gpu-{index}-mig-1g10gb-19-{number % 7}" if dynamic_mig else f"gpu-{index}"
        result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
        yield read_object(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": f"{node}-{index}", "namespace": "default", "uid": f"{node}-{index}"},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}},
                "status": {
                    "allocation": {"devices": {"results": [result]}},
                    "reservedFor": [{"resource": "pods", "name": "pod", "uid": "pod"}],
                },
            }
        )


def _manifest(claim: Mapping[str, Any], gang: int = 0) -> list[Object]:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus"},
        "spec": {"spec": {"devices": claim}},
    }
    spec: Object = {
        "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpus"}]}}
        ],
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}],
    }
    objects = [template]
    if gang:
        spec["schedulingGroup"] = {"podGroupName": "gang"}
        policy = {"schedulingPolicy": {"gang": {"minCount": gang}}}
        head = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "gang"}}
        objects.append({**head, "spec": policy})
    return [*objects, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}]


def _gpus(count: int, class_name: str = DRIVER, constraint: str = "", **more: Any) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": class_name, "count": count, **more}}
    return {"requests": [request], "constraints": [{"matchAttribute": constraint}] if constraint else []}


def _mig(profile: str) -> Object:
    expression = f"device.attributes['{DRIVER}'].profile == '{profile}'"
    return _gpus(1, "mig.nvidia.com", selectors=[{"cel": {"expression": expression}}])


CASES: tuple[tuple[str, list[Object], bool, bool], ...] = (
    ("1 GPU", _manifest(_gpus(1)), False, False),
    ("1 GPU, used", _manifest(_gpus(1)), True, False),
    ("3 GPUs, used", _manifest(_gpus(3)), True, False),
    ("2 GPUs on one root, used", _manifest(_gpus(2, constraint="resource.kubernetes.io/pcieRoot")), True, False),
    ("gang of 8 with 8 GPUs each", _manifest(_gpus(8), gang=8), False, False),
    ("MIG 3g.40gb, used", _manifest(_mig("3g.40gb")), True, True),
    ("MIG 1g.10gb, used", _manifest(_mig("1g.10gb")), True, True),
)


def main() -> None:
    """Print a line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    nodes = parser.parse_args().nodes
    # As the command line has it.
    gc.set_threshold(100_000, 50, 1000)
    print(f"{'case':28} {'scheduled':>10} {'maximum':>10} {'exact':>6} {'seconds':>8}")
    for name, values, used, dynamic_mig in CASES:
        snapshot = _cluster(nodes, used, dynamic_mig)
        manifest = read_manifest(values, snapshot)
        begin = time.process_time()
        found = outcome_of(WhatIfCluster(snapshot), manifest, LIMIT)
        seconds = time.process_time() - begin
        maximum = found.maximum
        print(
            f"{name:28} {found.scheduled:>10} {maximum.copies:>10} {maximum.is_exact!s:>6} {seconds:>8.1f}", flush=True
        )
    begin = time.process_time()
    world = WhatIfCluster(snapshot)
    device_usage(world)
    partition_usage(world)
    print(f"{'top devices, MIG, used':56} {time.process_time() - begin:>9.1f}")


if __name__ == "__main__":
    main()
