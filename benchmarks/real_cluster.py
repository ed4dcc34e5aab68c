"""How many pods a second get their devices on a real kube-apiserver: by kube-scheduler, by `allot scheduler`, and at most.

    KUBEBUILDER_ASSETS=folder python benchmarks/real_cluster.py [--rounds 2] [--runs allot ...] [--requests] [--quick]

500 nodes with 8 devices each, and 1,500 pods with a claim from a template, which one client creates as fast as it can. Each run has
a kube-apiserver and an etcd of its own on a copy of the same data; the runs take turns. kube-controller-manager, with its claim
controller alone, makes the claims, and it and kube-scheduler may send 1,000 requests a second.

`ceiling` is what the API server can do: one client makes all writes of a pod, those of the claim controller and of the scheduler
included, and no one else is there. `guarded` is beside a guard, and compared with the ceiling beside a guard where that was run;
`protected` is with claims that get their finalizer when they are made (scheduler.protectClaims of the chart). Pods a second depend on the machine and on who else uses it; processor time does so less.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvloop
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from allot.http1.answers import read_body, read_head
from allot.installation.chart_rendering import Release, render
from allot.process.clock import SystemClock
from e2e.components import ASSETS, Component, component
from e2e.kube_cluster import NO_ACCOUNTS, kube_apiserver
from e2e.servers import client_context
from etcd_server import EtcdServer

NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
RUNS = ("ceiling", "kube-scheduler", "allot", "ceiling, guarded", "allot, guarded", "allot, protected")
DEVICES = 8
CONNECTIONS = 32
DRIVER, CLASS, NAMESPACE = "gpu.example.com", "gpu", "bench"
FINALIZER = "resource.kubernetes.io/delete-protection"
RESOURCE = "/apis/resource.k8s.io/v1"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"{RESOURCE}/namespaces/{NAMESPACE}/resourceclaims"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
CLAIM_SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CLASS}}]}}
JSON, MERGE, APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
BOUND = f"{PODS}?fieldSelector=spec.nodeName!%3D"
# As a field of a message: number, length, text.
_ADDED = b"\x0a\x05ADDED"
WATCHED = "application/vnd.kubernetes.protobuf"
RUN_S = 180.0

Object = dict[str, Any]


# --- objects ---


def node(name: str) -> Object:
    """A node that is ready and has room."""
    room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"allocatable": room, "capacity": room, "conditions": [ready]}
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status}


def slice_(name: str) -> Object:
    """The devices of a node."""
    devices = [
        {"name": f"gpu-{number}", "attributes": {"model": {"string": "a100"}, "index": {"int": number}}}
        for number in range(DEVICES)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{name}-gpus"}, "spec": spec}


def pod(name: str, scheduler: str) -> Object:
    """A pod with a claim from the template."""
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "claims": [{"name": "gpu"}]}
    container = {"name": "main", "image": "registry.example/app:v1", "resources": resources}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    spec = {"schedulerName": scheduler, "containers": [container], "resourceClaims": claims}
    return {"metadata": {"name": name}, "spec": spec}


def claim_of(made: Object) -> Object:
    """What the claim controller makes for a pod."""
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "name": f"{name}-gpu-0",
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [owner],
    }
    return {"metadata": metadata, "spec": CLAIM_SPEC}


def allocated(claim: Object, owner: Object, node_name: str, device: str) -> Object:
    """A claim with its device, reserved for its pod."""
    result = {"request": "gpu", "driver": DRIVER, "pool": node_name, "device": device}
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        "allocationTimestamp": SystemClock().now(),
    }
    consumer = {"resource": "pods", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {**claim, "status": {"allocation": allocation, "reservedFor": [consumer]}}


def event(about: Object, node_name: str) -> Object:
    """What a scheduler says of a pod that it has bound."""
    metadata = about["metadata"]
    return {
        "metadata": {"name": f"{metadata['name']}.{time.time_ns():x}", "namespace": NAMESPACE},
        "eventTime": SystemClock().now_micro(),
        "reportingController": "ceiling",
        "reportingInstance": "ceiling-0",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "namespace": NAMESPACE},
        "note": f"Successfully assigned {NAMESPACE}/{metadata['name']} to {node_name}",
        "type": "Normal",
    }


# --- the client ---


class Connection:
    """One connection that is kept; as little work as possible, so that the server is what is measured."""

    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = urlsplit(url).netloc
        self._reader = reader
        self._writer = writer

    async def send(self, method: str, path: str, body: Any = None, kind: str = JSON) -> Object:
        """The answer, which must be a success."""
        data = b"" if body is None else msgspec.json.encode(body)
        status, answer = await self._exchange(method, path, data, kind)
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:500]!r}")
        found: Object = msgspec.json.decode(answer)
        return found

    async def text(self, path: str) -> str:
        """An answer that is no JSON."""
        return (await self._exchange("GET", path, b"", JSON))[1].decode()

    async def _exchange(self, method: str, path: str, data: bytes, kind: str) -> tuple[int, bytes]:
        self._ask(method, path, JSON, f"Content-Type: {kind}\r\nContent-Length: {len(data)}\r\n", data)
        status, head = await read_head(self._reader)
        return status, b"".join([piece async for piece in read_body(self._reader, head)])

    async def until_bound(self, total: int) -> None:
        """Until so many pods are bound. What the watch tells is only counted: each pod comes once, as nothing but its binding makes it
        match, and after that no one writes to it."""
        while True:
            found = await self.send("GET", BOUND)
            left, since = total - len(found["items"]), found["metadata"]["resourceVersion"]
            self._ask("GET", f"{BOUND}&watch=1&resourceVersion={since}", WATCHED)
            status, head = await read_head(self._reader)
            rest = b""
            async for piece in read_body(self._reader, head):
                rest += piece
                while len(rest) >= 4 and len(rest) >= 4 + (length := int.from_bytes(rest[:4], "big")):
                    assert rest[4:].startswith(_ADDED), rest[:500]
                    rest = rest[4 + length :]
                    left -= 1
                if not left:
                    return
            # API servers end watches that do not keep up.
            assert status == 200, f"the watch of pods: {status} {rest[:500]!r}"

    def _ask(self, method: str, path: str, accept: str, headers: str = "", data: bytes = b"") -> None:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: {accept}\r\nUser-Agent: bench\r\n{headers}\r\n"
        )
        self._writer.write(head.encode() + data)

    def close(self) -> None:
        """No more."""
        self._writer.close()


@asynccontextmanager
async def connections(kubeconfig: Path, count: int) -> AsyncIterator[list[Connection]]:
    """So many connections."""
    url: str = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    context: ssl.SSLContext = client_context(kubeconfig)
    place, opened = urlsplit(url), []
    try:
        for _ in range(count):
            pair = await asyncio.open_connection(place.hostname, place.port, ssl=context, limit=1 << 24)
            opened.append(Connection(url, *pair))
        yield opened
    finally:
        for each in opened:
            each.close()


async def for_all(numbers: range, opened: list[Connection], do: Callable[[Connection, int], Awaitable[None]]) -> None:
    """Do something for each number, one at a time on each connection."""
    left = iter(numbers)

    async def work(connection: Connection) -> None:
        for number in left:
            await do(connection, number)

    async with asyncio.TaskGroup() as tasks:
        for each in opened:
            tasks.create_task(work(each))


# --- what is there before ---


async def furnish(kubeconfig: Path, nodes: int) -> None:
    """Nodes with devices, a class and a template."""

    async def add(connection: Connection, number: int) -> None:
        name = f"node-{number:04d}"
        await connection.send("POST", "/api/v1/nodes", node(name))
        # New nodes are tainted until someone has seen that they are ready.
        await connection.send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE)
        await connection.send("POST", f"{RESOURCE}/resourceslices", slice_(name))

    async with connections(kubeconfig, CONNECTIONS) as opened:
        first = opened[0]
        await first.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        class_ = {"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}}
        await first.send("POST", f"{RESOURCE}/deviceclasses", class_)
        template = {"metadata": {"name": "gpu"}, "spec": {"spec": CLAIM_SPEC}}
        await first.send("POST", f"{RESOURCE}/namespaces/{NAMESPACE}/resourceclaimtemplates", template)
        await for_all(range(nodes), opened, add)


def prepare(folder: Path, nodes: int) -> Path:
    """The data of an etcd with all that runs begin with."""
    folder.mkdir()
    with EtcdServer(folder) as etcd, kube_apiserver(folder, NO_ACCOUNTS, etcd_address=etcd.address) as kubeconfig:
        uvloop.run(furnish(kubeconfig, nodes))
    return folder / "data"


# --- processes ---


def processor_s() -> dict[str, float]:
    """What the processes started here, and this one, have used of the processors so far."""
    used: dict[str, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            command = stat.with_name("cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields, pid = rest.split(), int(stat.parent.name)
        if pid == os.getpid():
            name = "client"
        elif int(fields[1]) != os.getpid():
            continue
        elif "allot" in command:
            name = f"allot {command[command.index('allot') + 1]}"
        used[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


@contextmanager
def parts(run: str, kubeconfig: Path, folder: Path) -> Iterator[list[Component]]:
    """All that a run has beside its API server."""
    python, fast = Path(sys.executable), ["--kube-api-qps=1000", "--kube-api-burst=2000"]
    upstream = [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0", *fast]
    ours = ["--kubeconfig", str(kubeconfig), "--no-leader-elect"]
    with ExitStack() as stack:

        def start(binary: Path, arguments: list[str], name: str) -> Component:
            (folder / name).mkdir()
            started: Component = stack.enter_context(Component(binary, arguments, folder / name))
            return started

        if run.endswith(", guarded"):
            options = ["guard", *ours, "--install", "--webhook-port=0", "--port=-1"]
            guard = start(python, ["-m", "allot", *options], "guard")
            guard.wait_for("the guard decides", lambda: "deciding at" in guard.log() or None)
        if run.startswith("ceiling"):
            yield []
            return
        claims = "--controllers=resourceclaim-controller"
        started = [start(component("kube-controller-manager"), [*upstream, claims], "manager")]
        if run == "kube-scheduler":
            delegated = [f"--{use}-kubeconfig={kubeconfig}" for use in ("authentication", "authorization")]
            started.append(start(component("kube-scheduler"), [*upstream, *delegated], "scheduler"))
        else:
            options = [
                "scheduler",
                *ours,
                "--port=-1",
                "--log-level=warning",
                *os.environ.get("BENCH_OPTIONS", "").split(),
            ]
            scheduler = start(python, ["-m", "allot", *options], "scheduler")
            scheduler.wait_for("the scheduler is ready", lambda: "ready" in scheduler.log() or None)
            started.append(scheduler)
        yield started


# --- the runs ---


class Result(msgspec.Struct, kw_only=True):
    """What a run gave."""

    run: str
    pods_per_second: float
    # Of each process, by name, in seconds.
    processor_s: dict[str, float]
    # (verb, resource) -> requests, seconds that they took in all.
    requests: dict[tuple[str, str], tuple[float, float]]


_METRIC = re.compile(
    r"^apiserver_request_(?:total|duration_seconds_(?:sum|count))\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE
)


async def requests_so_far(connection: Connection) -> dict[tuple[str, str], tuple[float, float]]:
    """How many requests of each kind the server has answered, and how long that took in all."""
    counts: dict[tuple[str, str], float] = {}
    seconds: dict[tuple[str, str], float] = {}
    for found in _METRIC.finditer(await connection.text("/metrics")):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', found["labels"]))
        key = labels["verb"], "/".join(filter(None, (labels["resource"], labels["subresource"])))
        if "duration_seconds_sum" in found[0]:
            seconds[key] = seconds.get(key, 0.0) + float(found["value"])
        elif "duration_seconds_count" in found[0]:
            counts[key] = counts.get(key, 0.0) + float(found["value"])
    return {key: (count, seconds.get(key, 0.0)) for key, count in counts.items()}


async def write_all(connection: Connection, number: int) -> None:
    """Everything that is written for a pod, by claim controller and scheduler."""
    name, node_name = f"pod-{number}", f"node-{number // DEVICES:04d}"
    made = await connection.send("POST", PODS, pod(name, "nobody"))
    claim = await connection.send("POST", CLAIMS, claim_of(made))
    statuses = [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]
    said = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "status": {"resourceClaimStatuses": statuses},
    }
    await connection.send("PATCH", f"{PODS}/{name}/status?fieldManager=ceiling&force=true", said, APPLY)
    path = f"{CLAIMS}/{claim['metadata']['name']}"
    claim["metadata"]["finalizers"] = [FINALIZER]
    claim = await connection.send("PUT", path, claim)
    await connection.send("PUT", f"{path}/status", allocated(claim, made, node_name, f"gpu-{number % DEVICES}"))
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node_name}}
    await connection.send("POST", f"{PODS}/{name}/binding", binding)
    await connection.send("POST", EVENTS, event(made, node_name))


async def create(connection: Connection, number: int) -> None:
    """A pod for the scheduler."""
    await connection.send("POST", PODS, pod(f"pod-{number}", "default-scheduler"))


async def warm_up(opened: list[Connection], counter: Connection) -> None:
    """Some pods, until all of them are bound: everyone is there, and has compiled what there is to compile."""
    async with asyncio.timeout(RUN_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(counter.until_bound(len(opened)))
        await for_all(range(100_000, 100_000 + len(opened)), opened, create)


async def protect(connection: Connection) -> None:
    """Apply the chart's policy, and wait until it has an effect."""
    values = {"scheduler": {"enabled": True, "protectClaims": True}}
    for object_ in render(values, Release("allot", "allot-system")).objects:
        if object_["kind"].startswith("Mutating"):
            plural = (
                "mutatingadmissionpolicies" if object_["kind"].endswith("Policy") else f"{object_['kind'].lower()}s"
            )
            await connection.send("POST", f"/apis/admissionregistration.k8s.io/v1/{plural}", object_)
    trial = claim_of({"metadata": {"name": "trial", "uid": "trial"}})
    async with asyncio.timeout(RUN_S):
        while not (await connection.send("POST", f"{CLAIMS}?dryRun=All", trial))["metadata"].get("finalizers"):
            await asyncio.sleep(0.2)


async def measure(run: str, kubeconfig: Path, pods: int) -> Result:
    """All pods, from the first that is made to the last that is bound."""
    async with connections(kubeconfig, CONNECTIONS) as opened, connections(kubeconfig, 2) as counters:
        if run == "allot, protected":
            await protect(opened[0])
        alone = run.startswith("ceiling")
        if not alone:
            await warm_up(opened, counters[0])
        requests, used = await requests_so_far(opened[0]), processor_s()
        began = time.perf_counter()
        async with asyncio.timeout(RUN_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(counters[1].until_bound(pods if alone else pods + len(opened)))
            await for_all(range(pods), opened, write_all if alone else create)
        took = time.perf_counter() - began
        now = processor_s()
        after = await requests_so_far(opened[0])
        return Result(
            run=run,
            pods_per_second=pods / took,
            processor_s={name: seconds - used.get(name, 0.0) for name, seconds in now.items()},
            requests={
                key: (count - requests.get(key, (0.0, 0.0))[0], seconds - requests.get(key, (0.0, 0.0))[1])
                for key, (count, seconds) in after.items()
            },
        )


def one_run(run: str, data: Path, pods: int) -> Result:
    """One run on a copy of the data."""
    with tempfile.TemporaryDirectory(prefix="real-") as name, ExitStack() as stack:
        folder = Path(name)
        shutil.copytree(data, folder / "data")
        etcd = stack.enter_context(EtcdServer(folder))
        kubeconfig = stack.enter_context(kube_apiserver(folder, NO_ACCOUNTS, etcd_address=etcd.address))
        started = stack.enter_context(parts(run, kubeconfig, folder))
        try:
            return uvloop.run(measure(run, kubeconfig, pods))
        except BaseException:
            for each in started:
                print(each.log()[-3000:], file=sys.stderr)
            raise


def show(result: Result, pods: int, *, with_requests: bool) -> None:
    """A line, and what was asked of the server."""
    used = ", ".join(f"{name} {seconds / pods * 1e3:.2f}" for name, seconds in sorted(result.processor_s.items()))
    total = sum(result.processor_s.values()) / pods * 1e3
    print(
        f"{result.run:<16} {result.pods_per_second:6.1f} pods/s; ms of processor a pod: {total:.2f} ({used})",
        flush=True,
    )
    if with_requests:
        for (verb, resource), (count, seconds) in sorted(result.requests.items(), key=lambda each: -each[1][0]):
            if count >= pods / 100:
                print(f"    {verb:<8} {resource:<28} {count / pods:6.2f} a pod, {seconds / count * 1e3:7.1f} ms each")


def summary(results: list[Result]) -> None:
    """Medians, and how they compare."""
    median = {
        run: statistics.median(each.pods_per_second for each in results if each.run == run)
        for run in dict.fromkeys(each.run for each in results)
    }
    upstream = median.get("kube-scheduler")
    print("\nmedians")
    for run, rate in median.items():
        ceiling = (run.endswith(", guarded") and median.get("ceiling, guarded")) or median.get("ceiling")
        compared = [f"{rate / upstream:.2f} x kube-scheduler"] if upstream else []
        compared += [f"{rate / ceiling:.0%} of the ceiling"] if ceiling else []
        print(f"{run:<16} {rate:6.1f} pods/s  {', '.join(compared)}")


def main() -> None:
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=1_500)
    parser.add_argument("--rounds", type=int, default=2, help="how often each run is repeated")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=RUNS)
    parser.add_argument("--requests", action="store_true", help="show what was asked of the server")
    parser.add_argument("--quick", action="store_true", help="one round of 200 pods on 100 nodes")
    options = parser.parse_args()
    folder = os.environ.get(ASSETS, "")
    missing = [name for name in NEEDED if not shutil.which(name, path=folder)] if folder else list(NEEDED)
    if missing:
        print(f"skipped: {ASSETS} must name a folder with {', '.join(NEEDED)}; missing: {', '.join(missing)}")
        return
    if options.quick:
        options.nodes, options.pods, options.rounds = 100, 200, 1
    print(
        f"{options.nodes} nodes, {options.pods} pods; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        flush=True,
    )
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="real-") as name:
        data = prepare(Path(name) / "before", options.nodes)
        for _ in range(options.rounds):
            for run in options.runs:
                results.append(one_run(run, data, options.pods))
                show(results[-1], options.pods, with_requests=options.requests)
    summary(results)


if __name__ == "__main__":
    main()
