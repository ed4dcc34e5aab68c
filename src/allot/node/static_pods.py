"""Pods that a node shows but does not run: parts of the cluster that are separate processes, such as the control plane.

In the API they look like a kubelet's static pods: a mirror pod, owned by its node, with a status. A deleted one is
recreated. Their logs are real; exec does not work, since there is no container.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from allot.client.api import Client, PatchType
from allot.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from allot.client.informer import Change, Informer
from allot.core.lifecycle.pod_status import addresses_replaced
from allot.http1.heads import HttpError
from allot.http1.requests import Request, Response, Upgrade
from allot.node.runtimes.port import RuntimeFailure, Streams
from allot.node.serving.commands import forward_ports, run_command, wanted_streams
from allot.node.serving.log_streams import log_options, stream_log
from allot.process.clock import Clock, rfc3339
from allot.process.waits import happens_within

_log = logging.getLogger("allot.node")

Object = dict[str, Any]
NAMESPACE = "kube-system"
MIRROR = "kubernetes.io/config.mirror"
_HASH = "kubernetes.io/config.hash"
_RETRY_S = 1.0
# Between the end of a pod and its return, as with a kubelet: clients that wait for the end must be able to see it.
_COMES_BACK_S = 1.0


class PartState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the program behind a pod. started_at: seconds since 1970; restarts: in this run of the node."""

    started_at: float
    restarts: int = 0
    is_running: bool = True


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node with such pods."""

    name: str
    uid: str
    address: str


class StaticPod(msgspec.Struct, frozen=True, kw_only=True):
    """A program as a pod. name: without the node's, which is appended; container: defaults to the pod's name."""

    name: str
    namespace: str = NAMESPACE
    container: str = ""
    node: NodeFacts
    image: str
    command: tuple[str, ...]
    labels: Mapping[str, str]
    log: Path
    state: Callable[[], PartState]


class StaticPods:
    """Such pods of one node or of many. seen: an informer of the pods of these nodes."""

    def __init__(self, client: Client, seen: Informer[Object], clock: Clock) -> None:
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        self._namespaces = client.resource("", "v1", "namespaces", namespaced=False)
        self._seen = seen
        self._clock = clock
        self._by_name: dict[str, StaticPod] = {}
        self._written: dict[str, Object] = {}
        self._restarts_before: dict[str, int] = {}
        # Pods to check, and when: at once, or after a pause.
        self._due: dict[str, float] = {}
        self._news = asyncio.Event()

    def add(self, pod: StaticPod) -> None:
        """Its node is registered."""
        name = f"{pod.namespace}/{pod.name}-{pod.node.name}"
        self._by_name[name] = pod
        self._look_at(name)

    def changed(self) -> None:
        """Programs have started or ended."""
        for name in self._by_name:
            self._look_at(name)

    def _look_at(self, name: str, pause: float = 0.0) -> None:
        self._due[name] = self._clock.monotonic() + pause
        self._news.set()

    # --- in the API ---

    async def run(self) -> None:
        """Keep the pods and their states up to date, until cancelled."""
        remove = self._seen.add_handler(self._pod_changed)
        try:
            await self._seen.wait_synced()
            while True:
                self._news.clear()
                now = self._clock.monotonic()
                for name in [name for name, due in self._due.items() if due <= now]:
                    del self._due[name]
                    await self._try_to_keep(name)
                    # Of thousands, most are up to date, which takes no waiting.
                    await asyncio.sleep(0)
                await self._wait()
        finally:
            remove()

    def _pod_changed(self, change: Change[Object]) -> None:
        metadata = change.object["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        if name in self._by_name:
            self._look_at(name, _COMES_BACK_S if change.new is None else 0.0)

    async def _wait(self) -> None:
        pause = min(self._due.values(), default=inf) - self._clock.monotonic()
        await happens_within(self._news, None if pause == inf else max(pause, 0.0))

    async def _try_to_keep(self, name: str) -> None:
        try:
            await self._keep(name, self._by_name[name])
        except ApiError as error:
            _log.warning("pod %s: %s", name, error)
            self._look_at(name, _RETRY_S)

    async def _keep(self, name: str, pod: StaticPod) -> None:
        found = self._seen.cache.get(name)
        wanted = self._object(pod)
        if found is None:
            try:
                found = await self._create(wanted, pod.namespace)
            except AlreadyExists:
                return  # the watch will show it
        metadata = found["metadata"]
        hash_ = metadata.get("annotations", {}).get(_HASH)
        if "deletionTimestamp" in metadata or hash_ != wanted["metadata"]["annotations"][_HASH]:
            await self._delete(pod, metadata["uid"])
            return
        self._count_restarts(name, found, pod.state())
        status = self._status(pod, self._restarts_before[name])
        told = {"uid": metadata["uid"], **status}
        if self._written.get(name) != told:
            replaced = addresses_replaced(status, found.get("status") or {})
            patch = {"metadata": {"uid": metadata["uid"]}, "status": replaced}
            try:
                await self._pods.patch(
                    metadata["name"], patch, PatchType.STRATEGIC, pod.namespace, subresource="status"
                )
            except NotFound:
                return  # the watch will show that it is gone
            self._written[name] = told

    async def _create(self, wanted: Object, namespace: str) -> Object:
        """Create a pod, and its namespace if missing: others install a driver's namespace with a chart."""
        try:
            return await self._pods.create(wanted, namespace)
        except NotFound:
            with suppress(AlreadyExists):
                await self._namespaces.create(
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                )
        return await self._pods.create(wanted, namespace)

    async def _delete(self, pod: StaticPod, uid: str) -> None:
        try:
            await self._pods.delete(f"{pod.name}-{pod.node.name}", pod.namespace, uid=uid, grace_period_seconds=0)
        except (NotFound, Conflict):
            return

    def _count_restarts(self, name: str, found: Object, state: PartState) -> None:
        """A pod of an earlier run has one more start than its status shows."""
        if name in self._restarts_before:
            return
        before = 0
        for container in found.get("status", {}).get("containerStatuses", ()):
            if container["state"].get("running", {}).get("startedAt") != rfc3339(int(state.started_at)):
                before = container["restartCount"] + 1
        self._restarts_before[name] = before

    def _object(self, pod: StaticPod) -> Object:
        node = pod.node
        container = {"name": pod.container or pod.name, "image": pod.image, "command": list(pod.command)}
        spec: Object = {
            "nodeName": node.name,
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
            "containers": [container],
        }
        hash_ = hashlib.md5(msgspec.json.encode([spec, pod.labels, node.uid]), usedforsecurity=False).hexdigest()
        annotations = {
            _HASH: hash_,
            MIRROR: hash_,
            "kubernetes.io/config.seen": self._clock.now(),
            "kubernetes.io/config.source": "file",
        }
        owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": True}
        metadata = {
            "name": f"{pod.name}-{node.name}",
            "namespace": pod.namespace,
            "labels": dict(pod.labels),
            "annotations": annotations,
            "ownerReferences": [owner],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _status(self, pod: StaticPod, restarts_before: int) -> Object:
        state, address = pod.state(), pod.node.address
        started = rfc3339(int(state.started_at))
        ready = "True" if state.is_running else "False"
        running: Object = {"running": {"startedAt": started}}
        waiting: Object = {"waiting": {"reason": "CrashLoopBackOff", "message": "it ended and will be started again"}}
        container = {
            "name": pod.container or pod.name,
            "image": pod.image,
            "imageID": "",
            "containerID": f"allot://{pod.name}-{pod.node.name}",
            "ready": state.is_running,
            "started": state.is_running,
            "restartCount": restarts_before + state.restarts,
            "state": running if state.is_running else waiting,
        }
        conditions = {
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "Ready": ready,
            "ContainersReady": ready,
            "PodScheduled": "True",
        }
        return {
            "phase": "Running",
            "startTime": started,
            "hostIP": address,
            "hostIPs": [{"ip": address}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [
                {"type": type_, "status": value, "lastTransitionTime": started} for type_, value in conditions.items()
            ],
            "containerStatuses": [container],
        }

    # --- what the node serves about them ---

    def log_of(self, namespace: str, name: str) -> Path | None:
        """The log of a pod, if it is one of these."""
        pod = self._by_name.get(f"{namespace}/{name}")
        return pod.log if pod is not None else None


# From namespace and name of a pod.
LogOf = Callable[[str, str], Path | None]


def answer_for_static_pod(
    request: Request, what: str, rest: Sequence[str], log_of: LogOf, clock: Clock
) -> Response | Upgrade | None:
    """The answer if the request is about a pod with such a log. rest: the parts of the path after the action."""
    namespace, name = (*rest, "", "")[:2]
    log = log_of(namespace, name)
    if log is None:
        return None

    async def refuse(_port: int = 0) -> Streams:
        text = f"pod {name} shows a part of the cluster that runs outside containers: there is nothing to enter"
        raise RuntimeFailure("NoContainer", text)

    if what in ("exec", "attach"):
        return run_command(request, wanted_streams(request), refuse)
    if what == "portForward":
        return forward_ports(request, refuse)
    if what != "containerLogs":
        return None
    if request.flag("previous"):
        raise HttpError(400, f'previous terminated container in pod "{name}" not found')
    if not log.exists():
        return Response(b"")  # it has not logged anything yet
    return stream_log(log, log_options(request, clock.seconds()), _always)


async def _always() -> bool:
    return True
