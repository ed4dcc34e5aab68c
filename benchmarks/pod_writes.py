"""The API server's cost of scheduling a pod with a claim: the seven writes, each in microseconds of processor time.

    python benchmarks/pod_writes.py [--quick] [--profile NAME]

The writes are those that users, the claim controller and the scheduler make, by the client library in the same process, as the
users that components are, on a SQLite store. Processor time is that of the whole process: the client, the server and the
store's writer with its share of group commits. --profile shows where one of the writes spends it.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from allot.apiserver.assembly import Settings, running
from allot.apiserver.errors import StatusError
from allot.apiserver.request import ApiRequest, User
from allot.apiserver.server import ApiServer
from allot.client.api import Client
from allot.client.inprocess import InProcessTransport, PlainRequest
from allot.process.interpreter import tune
from allot.store.sqlite import SqliteStore

Object = dict[str, Any]
Step = Callable[[int], Awaitable[None]]

IN_FLIGHT = 64
ROUND = 200
NAMESPACE = "default"
ADMIN = User("admin", groups=("system:masters", "system:authenticated"))
SCHEDULER = User("system:kube-scheduler", groups=("system:authenticated",))
CLAIM_CONTROLLER = User(
    "system:serviceaccount:kube-system:resource-claim-controller",
    groups=("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
)


def client_of(server: ApiServer, user: User, agent: str) -> Client:
    """A client of the server in this process."""

    async def handle(plain: PlainRequest) -> Any:
        return await server.handle(
            ApiRequest(
                user=user,
                verb=plain.verb,
                group=plain.group,
                version=plain.version,
                resource=plain.resource,
                namespace=plain.namespace,
                name=plain.name,
                subresource=plain.subresource,
                query=plain.query,
                body=plain.body,
                content_type=plain.content_type,
                user_agent=plain.user_agent,
            )
        )

    return Client(InProcessTransport(handle, StatusError, user_agent=agent))


class PodWrites:
    """The writes for numbered pods, in the order in which they happen."""

    def __init__(self, server: ApiServer) -> None:
        admin = client_of(server, ADMIN, "allot-bench/1.0")
        controller = client_of(server, CLAIM_CONTROLLER, "allot-controllers/1.0")
        scheduler = client_of(server, SCHEDULER, "allot-scheduler/1.0")
        self._new_pods = admin.resource("", "v1", "pods", namespaced=True)
        self._controller_claims = controller.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        self._controller_pods = controller.resource("", "v1", "pods", namespaced=True)
        self._claims = scheduler.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        self._pods = scheduler.resource("", "v1", "pods", namespaced=True)
        self._events = scheduler.resource("events.k8s.io", "v1", "events", namespaced=True)
        self._made_pods: dict[int, Object] = {}
        self._made_claims: dict[int, Object] = {}

    def steps(self) -> dict[str, Step]:
        """By name."""
        return {
            "create pod": self.create_pod,
            "create claim": self.create_claim,
            "apply pod status": self.apply_pod_status,
            "update claim (finalizer)": self.add_finalizer,
            "update claim status": self.allocate,
            "bind pod": self.bind,
            "create event": self.tell,
        }

    async def create_pod(self, number: int) -> None:
        """A user's pod."""
        container = {
            "name": "main",
            "image": "registry.example.com/train:1.2",
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "claims": [{"name": "gpu"}]},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}", "namespace": NAMESPACE, "labels": {"app": "train"}},
            "spec": {
                "containers": [container],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}],
            },
        }
        self._made_pods[number] = await self._new_pods.create(pod)

    async def create_claim(self, number: int) -> None:
        """The claim that the controller makes from the template."""
        pod = self._made_pods[number]["metadata"]
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["name"],
            "uid": pod["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "generateName": f"{pod['name']}-gpu-",
                "namespace": NAMESPACE,
                "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
                "ownerReferences": [owner],
            },
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        }
        self._made_claims[number] = await self._controller_claims.create(claim)

    async def apply_pod_status(self, number: int) -> None:
        """The controller notes which claim is the pod's."""
        claim = self._made_claims[number]["metadata"]["name"]
        configuration = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}", "namespace": NAMESPACE},
            "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": claim}]},
        }
        self._made_pods[number] = await self._controller_pods.apply(
            configuration, "ResourceClaimController", force=True, subresource="status"
        )

    async def add_finalizer(self, number: int) -> None:
        """The scheduler keeps the claim from going away."""
        claim = self._made_claims[number]
        metadata = {**claim["metadata"], "finalizers": ["resource.kubernetes.io/delete-protection"]}
        self._made_claims[number] = await self._claims.update({**claim, "metadata": metadata})

    async def allocate(self, number: int) -> None:
        """The scheduler writes down the devices."""
        pod = self._made_pods[number]["metadata"]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-{number % 100}"]}]}
        device = {
            "request": "gpu",
            "driver": "gpu.example.com",
            "pool": f"node-{number % 100}",
            "device": f"gpu-{number}",
        }
        status = {
            "allocation": {"devices": {"results": [device]}, "nodeSelector": {"nodeSelectorTerms": [term]}},
            "reservedFor": [{"resource": "pods", "name": pod["name"], "uid": pod["uid"]}],
        }
        self._made_claims[number] = await self._claims.update_status({**self._made_claims[number], "status": status})

    async def bind(self, number: int) -> None:
        """The scheduler puts the pod on its node."""
        pod = self._made_pods[number]["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod["name"], "namespace": NAMESPACE, "uid": pod["uid"]},
            "target": {"kind": "Node", "name": f"node-{number % 100}"},
        }
        await self._pods.create(binding, name=pod["name"], subresource="binding")

    async def tell(self, number: int) -> None:
        """The scheduler says so."""
        pod = self._made_pods[number]["metadata"]
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"pod-{number}.17f2{number:012x}", "namespace": NAMESPACE},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "default-scheduler",
            "reportingInstance": "default-scheduler-host",
            "action": "Binding",
            "reason": "Scheduled",
            "type": "Normal",
            "note": f"Successfully assigned {NAMESPACE}/pod-{number} to node-{number % 100}",
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod["name"],
                "namespace": NAMESPACE,
                "uid": pod["uid"],
                "resourceVersion": pod["resourceVersion"],
            },
        }
        await self._events.create(event)


async def in_parallel(numbers: range, step: Step) -> None:
    """All of them, so many at a time."""
    left = iter(numbers)

    async def work() -> None:
        for number in left:
            await step(number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.create_task(work())


async def measure(folder: Path, pods: int, profiled: str = "") -> dict[str, float]:
    """Microseconds of processor for each write."""
    settings = Settings(directory=folder / "pki", port=0)
    async with running(settings, SqliteStore(folder / "state.db")) as live:
        await asyncio.sleep(0.3)
        writes = PodWrites(live.server)
        warm = range(200)
        for step in writes.steps().values():
            await in_parallel(warm, step)
        used: dict[str, float] = {}
        for name, step in writes.steps().items():
            profile = cProfile.Profile() if name == profiled else None
            if profile is not None:
                profile.enable()
            rounds = []
            # The quickest of several rounds: other programs on the machine make the others slower.
            for start in range(len(warm), len(warm) + pods, ROUND):
                began = time.process_time()
                await in_parallel(range(start, start + ROUND), step)
                rounds.append((time.process_time() - began) / ROUND * 1e6)
            used[name] = min(rounds)
            if profile is not None:
                profile.disable()
                pstats.Stats(profile).sort_stats("tottime").print_stats(60)
                if "--callers" in sys.argv:
                    pstats.Stats(profile).print_callers(sys.argv[sys.argv.index("--callers") + 1])
        return used


def report(used: dict[str, float]) -> None:
    """A table."""
    for name, each in used.items():
        print(f"{name:<58} {each:.0f} µs of processor", flush=True)
    print(f"{'all writes for a pod':<58} {sum(used.values()):.0f} µs of processor", flush=True)


def main() -> None:
    """All of it."""
    tune()
    profiled = sys.argv[sys.argv.index("--profile") + 1] if "--profile" in sys.argv else ""
    with tempfile.TemporaryDirectory() as name:
        report(uvloop.run(measure(Path(name), 1000 if "--quick" in sys.argv else 4000, profiled)))


if __name__ == "__main__":
    main()
