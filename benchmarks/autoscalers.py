"""The cost of idle autoscalers: the share of a core that 500 of them use.

    python benchmarks/autoscalers.py [--quick] [--autoscalers N] [--seconds N]

`allot up` with 50 simulated nodes and a Deployment of two pods for each autoscaler, which ask for processor time, a metric of their
pods and an external metric in turn; what they find is their target. Measured is processor time of the control plane (API server,
scheduler, controllers, and the reading of metrics in it), first without autoscalers, then with them, over the same time. The
nodes are a separate process, and so is this. Numbers depend on the machine: compare runs on the same one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from allot.client.api import Client
from allot.client.http import HttpTransport
from allot.client.kubeconfig import load_kubeconfig
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds

NAMESPACE = "default"
NODES = 50
REPLICAS = 2
_TICKS = os.sysconf("SC_CLK_TCK")

METRICS: tuple[dict[str, Any], ...] = (
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
    {"type": "Pods", "pods": {"metric": {"name": "waiting"}, "target": {"type": "AverageValue", "averageValue": "8"}}},
    {
        "type": "External",
        "external": {
            "metric": {"name": "waiting", "selector": {"matchLabels": {"queue": ""}}},
            "target": {"type": "AverageValue", "averageValue": "8"},
        },
    },
)


def deployment(number: int) -> dict[str, Any]:
    """Pods that use half of what they ask for, and say that eight wait for each."""
    labels = {"app": f"app-{number}"}
    container = {"name": "main", "image": "registry.example.com/server", "resources": {"requests": {"cpu": "100m"}}}
    annotations = {"allot.dev/metrics": f'waiting{{queue="queue-{number}"}} 8'}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": {"containers": [container]}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": f"app-{number}", "namespace": NAMESPACE}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def autoscaler(number: int) -> dict[str, Any]:
    """One that is content."""
    metric = METRICS[number % len(METRICS)]
    if metric["type"] == "External":
        selector = {"matchLabels": {"queue": f"queue-{number}"}}
        external = {**metric["external"], "metric": {"name": "waiting", "selector": selector}}
        metric = {**metric, "external": external}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"app-{number}"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "metrics": [metric]}
    metadata = {"name": f"app-{number}", "namespace": NAMESPACE}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def processor_seconds(pid: int) -> float:
    """What a process has used, without those that it started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def share(pid: int, seconds: float) -> float:
    """Which part of a core a process uses, in percent."""
    used, began = processor_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (processor_seconds(pid) - used) / (time.monotonic() - began) * 100


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something."""
    while not await check():
        await asyncio.sleep(1)


async def measure(client: Client, pid: int, count: int, seconds: float) -> None:
    """One run on a cluster that has started."""
    deployments = client.resource("apps", "v1", "deployments", namespaced=True)
    autoscalers = client.resource("autoscaling", "v2", "horizontalpodautoscalers", namespaced=True)
    for number in range(count):
        await deployments.create(deployment(number))

    async def all_run() -> bool:
        listed = await deployments.list(NAMESPACE)
        return all(each["status"].get("readyReplicas") == REPLICAS for each in listed.items)

    await until(all_run)
    # Whoever came last is measured twice before what is known of it is steady.
    await asyncio.sleep(45)
    without = await share(pid, seconds)
    print(f"{count} Deployments of {REPLICAS} pods on {NODES} nodes: {without:.1f} % of a core", flush=True)
    for number in range(count):
        await autoscalers.create(autoscaler(number))

    async def all_active() -> bool:
        found = (await autoscalers.list(NAMESPACE)).items
        return all(_is_active(each) for each in found)

    await until(all_active)
    await asyncio.sleep(15)
    with_them = await share(pid, seconds)
    looks = count * seconds / 15
    each_us = (with_them - without) / 100 * seconds / looks * 1e6
    print(f"with {count} autoscalers: {with_them:.1f} % of a core")
    print(f"the autoscalers: {with_them - without:.1f} % of a core, {each_us:.0f} us for each look, every 15 s")


def _is_active(object_: dict[str, Any]) -> bool:
    conditions = (object_.get("status") or {}).get("conditions") or []
    return any(each["type"] == "ScalingActive" and each["status"] == "True" for each in conditions)


async def run(folder: Path, count: int, seconds: float) -> None:
    """Start a cluster, measure, stop it."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "allot", "up", "--memory", "--port", "0", "--node", f"h100x8={NODES}"]
    command += ["--data-dir", str(folder / "data"), "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as cluster:
        assert cluster.stdout is not None
        try:
            for line in cluster.stdout:
                if line.startswith("ready:"):
                    break
            else:
                raise SystemExit("error: the cluster did not start")
            connection = load_kubeconfig([kubeconfig], must_exist=True).connection()
            transport = HttpTransport(connection, SystemClock(), SystemIds(), environ=os.environ, user_agent="bench")
            try:
                await measure(Client(transport), cluster.pid, count, seconds)
            finally:
                await transport.close()
        finally:
            cluster.terminate()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description="What autoscalers cost that have nothing to do.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--autoscalers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    given = parser.parse_args()
    count = given.autoscalers or (100 if given.quick else 500)
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(run(Path(folder), count, given.seconds or (30.0 if given.quick else 90.0)))


if __name__ == "__main__":
    main()
