"""How long large requests keep others waiting: a table of kinds, verbs and sizes. Asserts nothing.

    .venv/bin/python benchmarks/large_requests.py [--sizes 65536,1048576,3000000] [--only TEXT]

The server runs in a separate process on SQLite. While one client's large request is on its way, another client asks for a
small object again and again; the longest that it waited is what the large request costs everyone else. On a machine that
others use too, that is mostly their doing: the most processor time that the server used within one such wait, in steps of
10 ms, says what it would be without them. How long the large one took, and what became of it, stand beside that. Bodies are filled with one thing until they have their size, so
that many of them are refused in the end: that takes as long.
"""

from __future__ import annotations

import argparse
import http.client
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from apiserver_command import Server, server_process

Object = dict[str, Any]

SIZES = (64 * 1024, 512 * 1024, 3_000_000)
NAMESPACE = "/api/v1/namespaces/default"
SMALL = f"{NAMESPACE}/configmaps/small"
JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY = (
    f"application/{kind}" for kind in ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
)  # fmt: skip


class Request(NamedTuple):
    """What is sent."""

    method: str
    path: str
    body: bytes
    kind: str = "application/json"


class Outcome(NamedTuple):
    """What became of a large request, and of small ones meanwhile."""

    status: int
    took_s: float
    asked: int
    waited_s: float
    processor_s: float


# --- bodies ---


def filled(size: int, one: Callable[[int], Any], wrap: Callable[[list[Any]], Any]) -> bytes:
    """A body of about a size: a list of numbered things in whatever is around it."""
    room = max(size - len(msgspec.json.encode(wrap([]))), 1)
    each = len(msgspec.json.encode(one(10_000))) + 1
    return msgspec.json.encode(wrap([one(number) for number in range(room // each)]))


def named(kind: str, api_version: str, **members: Any) -> Object:
    """An object called large."""
    metadata = {"name": "large", "namespace": "default", **members.pop("metadata", {})}
    if kind == "ResourceSlice":
        del metadata["namespace"]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **members}


def pod(spec: Object, **metadata: Any) -> Object:
    """A pod with one container and whatever is asked for."""
    containers = [{"name": "main", "image": "registry.example/image", **spec.pop("container", {})}]
    return named("Pod", "v1", metadata=metadata, spec={"containers": containers, **spec})


def environment(number: int) -> Object:
    """A variable."""
    return {"name": f"NAME_{number}", "value": f"value {number}"}


def owner(number: int) -> Object:
    """An owner reference."""
    return {"apiVersion": "v1", "kind": "Pod", "name": f"owner-{number}", "uid": f"{number:036}"}


def rule(number: int) -> Object:
    """A rule of a role."""
    return {"apiGroups": [f"group-{number}"], "resources": ["things"], "verbs": ["get", "list"]}


def device(number: int) -> Object:
    """A device of a slice."""
    return {"name": f"device-{number}", "attributes": {"model": {"string": "a100"}, "index": {"int": number}}}


def slice_of(devices: list[Any]) -> Object:
    """A resource slice."""
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": "node", "pool": pool, "devices": devices}
    return named("ResourceSlice", "resource.k8s.io/v1", spec=spec)


def data_of(size: int) -> Object:
    """Small texts by name, for a ConfigMap."""
    return {f"key-{number}": "some text" for number in range(size // 26)}


def nested(size: int) -> bytes:
    """An annotation-like value nested as deep as a body may be, many times over."""
    depth = 60
    one = "[" * depth + "]" * depth
    return (
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"a":['
        + ",".join([one] * (size // (2 * depth + 1))).encode()
        + b"]}}"
    )


PODS, CONFIG_MAPS = f"{NAMESPACE}/pods", f"{NAMESPACE}/configmaps"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(variables: list[Any]) -> Object:
    """A deployment."""
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod({"container": {"env": variables}})["spec"]}
    return named("Deployment", "apps/v1", spec={"selector": {"matchLabels": {"app": "a"}}, "template": template})


def writes(size: int) -> Iterator[tuple[str, Request]]:
    """Creates of many kinds, dry runs where the next would find the object there."""
    yield (
        "create ConfigMap, data",
        Request("POST", CONFIG_MAPS, msgspec.json.encode(named("ConfigMap", "v1", data=data_of(size)))),
    )
    yield (
        "create ConfigMap, one text",
        Request(
            "POST", CONFIG_MAPS + "?dryRun=All", msgspec.json.encode(named("ConfigMap", "v1", data={"a": "x" * size}))
        ),
    )
    yield "create ConfigMap, nested values", Request("POST", CONFIG_MAPS, nested(size))
    yield (
        "create Pod, env",
        Request("POST", PODS, filled(size, environment, lambda every: pod({"container": {"env": every}}))),
    )
    for label, one, wrap in (
        ("ownerReferences", owner, lambda every: pod({}, ownerReferences=every)),
        ("equal ownerReferences", lambda _: owner(1), lambda every: pod({}, ownerReferences=every)),
        ("finalizers", lambda n: f"example.com/finalizer-{n}", lambda every: pod({}, finalizers=every)),
        ("tolerations", lambda n: {"key": f"key-{n}", "operator": "Exists"}, lambda every: pod({"tolerations": every})),
        ("volumes", lambda n: {"name": f"volume-{n}", "emptyDir": {}}, lambda every: pod({"volumes": every})),
        (
            "containers",
            lambda n: {"name": f"container-{n}", "image": "image"},
            lambda every: named("Pod", "v1", spec={"containers": every}),
        ),
    ):
        body = filled(size, one, wrap).replace(b'"name":"large"', b'"name":"other"', 1)
        yield f"create Pod, {label}", Request("POST", PODS + "?dryRun=All", body)
    yield "create Deployment, env", Request("POST", DEPLOYMENTS, filled(size, environment, deployment))
    yield "create ResourceSlice, devices", Request("POST", SLICES, filled(size, device, slice_of))
    yield (
        "create Role, rules",
        Request(
            "POST", ROLES, filled(size, rule, lambda every: named("Role", "rbac.authorization.k8s.io/v1", rules=every))
        ),
    )
    yield "create ConfigMap, YAML", Request(
        "POST",
        CONFIG_MAPS + "?dryRun=All",
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml}\ndata:\n" + "".join(
            f"  key-{number}: some text\n" for number in range(size // 26)
        )).encode(),
        "application/yaml",
    )  # fmt: skip


def changes(size: int) -> Iterator[tuple[str, Request]]:
    """Changes of the objects that `writes` leaves, as large as they are or small; then their end."""
    config_map, large_pod = f"{CONFIG_MAPS}/large", f"{PODS}/large"
    new = {**data_of(size), "key-0": "other"}
    yield "update ConfigMap, data", Request("PUT", config_map, msgspec.json.encode(named("ConfigMap", "v1", data=new)))
    yield (
        "update Pod, env",
        Request(
            "PUT",
            large_pod,
            filled(size, environment, lambda every: pod({"container": {"env": every}}, labels={"a": "b"})),
        ),
    )
    applied = named("ConfigMap", "v1", data={f"other-{number}": "text" for number in range(size // 22)})
    yield (
        "apply ConfigMap, data",
        Request("PATCH", f"{config_map}?fieldManager=bench&dryRun=All", msgspec.json.encode(applied), APPLY),
    )
    for label, kind in (("merge", MERGE_PATCH), ("strategic", STRATEGIC_PATCH)):
        body = msgspec.json.encode({"data": {f"more-{number}": "text" for number in range(size // 21)}})
        yield f"{label} patch of ConfigMap", Request("PATCH", f"{config_map}?dryRun=All", body, kind)
    value = "x" * max(size // 9_000 - 60, 1)
    operations = [{"op": "add", "path": f"/data/added-{number}", "value": value} for number in range(9_000)]
    yield (
        "JSON patch of ConfigMap",
        Request("PATCH", f"{config_map}?dryRun=All", msgspec.json.encode(operations), JSON_PATCH),
    )
    copies = [{"op": "copy", "from": "/data/key-1", "path": f"/data/copy-{number}"} for number in range(9_000)]
    yield (
        "JSON patch of ConfigMap, copies",
        Request("PATCH", f"{config_map}?dryRun=All", msgspec.json.encode(copies), JSON_PATCH),
    )
    yield "small patch of a large Pod", Request("PATCH", large_pod, b'{"metadata":{"labels":{"c":"d"}}}', MERGE_PATCH)
    yield "read a large Pod", Request("GET", large_pod, b"")
    yield "list, a large Pod among them", Request("GET", f"{PODS}?labelSelector=c%3Dd", b"")
    terms = ",".join(f"!key-{number}" for number in range(min(size, 50_000) // 12))
    yield "list, long label selector", Request("GET", f"{PODS}?labelSelector={terms}", b"")
    yield (
        "delete Pod, options",
        Request("DELETE", large_pod, msgspec.json.encode({"kind": "DeleteOptions", "dryRun": ["All"] * (size // 6)})),
    )
    yield "delete Pod", Request("DELETE", f"{large_pod}?gracePeriodSeconds=0", b"")
    for path in (config_map, f"{DEPLOYMENTS}/large", f"{SLICES}/large", f"{ROLES}/large"):
        yield f"delete {path.split('/')[-2]}", Request("DELETE", path, b"")


# --- measuring ---


class Client:
    """A keep-alive connection."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPSConnection(server.host, server.port, context=server.context, timeout=300)

    def send(self, request: Request) -> int:
        """The status of the answer."""
        headers = {"Content-Type": request.kind} if request.body else {}
        self._connection.request(request.method, request.path, request.body or None, headers)
        response = self._connection.getresponse()
        response.read()
        return response.status


def measured(server: Server, small: Client, request: Request) -> Outcome:
    """Send a large request, and small ones until it is answered."""
    done = threading.Event()
    found: list[tuple[int, float]] = []

    def send() -> None:
        start = time.perf_counter()
        try:
            status = Client(server).send(request)
        except (OSError, http.client.HTTPException):
            status = 0
        found.append((status, time.perf_counter() - start))
        done.set()

    sender = threading.Thread(target=send)
    waited, processor, asked = 0.0, 0.0, 0
    sender.start()
    while not done.is_set():
        start, used = time.perf_counter(), server.processor_s()
        small.send(Request("GET", SMALL, b""))
        waited = max(waited, time.perf_counter() - start)
        processor = max(processor, server.processor_s() - used)
        asked += 1
        # As someone who does something else in between: a client that asks all the time would itself be a load.
        time.sleep(0.002)
    sender.join()
    status, took = found[0]
    return Outcome(status, took, asked, waited, processor)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print("| request | bytes | status | itself, s | others waited at most, ms | server meanwhile, ms of processor |")
    print("|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder, server_process(Path(folder), memory=False) as server:
        small = Client(server)
        small.send(Request("POST", CONFIG_MAPS, b'{"metadata":{"name":"small"},"data":{"a":"b"}}'))
        for size in map(int, options.sizes.split(",")):
            for label, request in (*writes(size), *changes(size)):
                if options.only and options.only not in label:
                    continue
                told = measured(server, small, request)
                took = f"{told.status} | {told.took_s:.2f} | {told.waited_s * 1000:.0f} | {told.processor_s * 1000:.0f}"
                print(f"| {label} | {len(request.body):,} | {took} |", flush=True)


if __name__ == "__main__":
    main()
