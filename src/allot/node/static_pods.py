"""Pods that a node tells of but does not run: parts of the cluster that run as processes of their own, such as the control plane.

To the API they are what a kubelet makes of static pods: a mirror pod, owned by its node, with a status. Who deletes one sees it come
back. Their logs are the real ones; a command cannot be run in them, since there is no container.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from allot.client.api import Client, PatchType
from allot.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from allot.client.informers import Informers
from allot.node.serving.http import HttpError, Request
from allot.node.serving.log_streams import TRUE, log_options, stream_log
from allot.process.clock import Clock, rfc3339

_log = logging.getLogger("allot.node")

Object = dict[str, Any]
NAMESPACE = "kube-system"
MIRROR = "kubernetes.io/config.mirror"
_HASH = "kubernetes.io/config.hash"
# State is looked at so often even if nothing happens to the pods.
_ROUND_S = 5.0
_RETRY_S = 1.0
_COMMANDS = ("exec", "attach", "portForward")


class PartState(msgspec.Struct, frozen=True, kw_only=True):
    """How the program behind a pod is doing. started_at: seconds since 1970; restarts: of this run of the node."""

    started_at: float
    restarts: int = 0
    is_running: bool = True


class StaticPod(msgspec.Struct, frozen=True, kw_only=True):
    """A program as a pod. name: without the node's, which is added."""

    name: str
    image: str
    command: tuple[str, ...]
    labels: Mapping[str, str]
    log: Path
    state: Callable[[], PartState]


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The node whose pods they are."""

    name: str
    uid: str
    address: str


class StaticPods:
    """The pods of a node; run it when the node is registered."""

    def __init__(
        self, client: Client, informers: Informers, clock: Clock, node: NodeFacts, pods: Sequence[StaticPod]
    ) -> None:
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        selector = f"spec.nodeName={node.name}"
        self._seen = informers.dynamic("", "v1", "pods", namespaced=True, field_selector=selector)
        self._clock = clock
        self._node = node
        self._by_name = {f"{pod.name}-{node.name}": pod for pod in pods}
        self._written: dict[str, Object] = {}
        self._restarts_before: dict[str, int] = {}
        self._news = asyncio.Event()

    # --- in the API ---

    async def run(self) -> None:
        """Keep them there, and their states true, until cancelled."""
        remove = self._seen.add_handler(lambda _: self._news.set())
        try:
            await self._seen.wait_synced()
            while True:
                self._news.clear()
                pause = _ROUND_S
                for name, pod in self._by_name.items():
                    try:
                        await self._keep(name, pod)
                    except ApiError as error:
                        _log.warning("pod %s/%s: %s", NAMESPACE, name, error)
                        pause = _RETRY_S
                try:
                    async with asyncio.timeout(pause):
                        await self._news.wait()
                except TimeoutError:
                    continue
        finally:
            remove()

    async def _keep(self, name: str, pod: StaticPod) -> None:
        found = self._seen.cache.get(f"{NAMESPACE}/{name}")
        wanted = self._object(name, pod)
        if found is None:
            try:
                found = await self._pods.create(wanted, NAMESPACE)
            except AlreadyExists:
                return  # the watch will show it
        metadata = found["metadata"]
        hash_ = metadata.get("annotations", {}).get(_HASH)
        if "deletionTimestamp" in metadata or hash_ != wanted["metadata"]["annotations"][_HASH]:
            await self._delete(name, metadata["uid"])
            return
        self._count_restarts(name, found, pod.state())
        status = self._status(name, pod)
        told = {"uid": metadata["uid"], **status}
        if self._written.get(name) != told:
            patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
            try:
                await self._pods.patch(name, patch, PatchType.STRATEGIC, NAMESPACE, subresource="status")
            except NotFound:
                return  # the watch will show that it is gone
            self._written[name] = told

    async def _delete(self, name: str, uid: str) -> None:
        try:
            await self._pods.delete(name, NAMESPACE, uid=uid, grace_period_seconds=0)
        except (NotFound, Conflict):
            return

    def _count_restarts(self, name: str, found: Object, state: PartState) -> None:
        """A pod of an earlier run has started once more than its status says."""
        if name in self._restarts_before:
            return
        before = 0
        for container in found.get("status", {}).get("containerStatuses", ()):
            if container["state"].get("running", {}).get("startedAt") != rfc3339(int(state.started_at)):
                before = container["restartCount"] + 1
        self._restarts_before[name] = before

    def _object(self, name: str, pod: StaticPod) -> Object:
        node = self._node
        container = {"name": pod.name, "image": pod.image, "command": list(pod.command)}
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
            "name": name,
            "namespace": NAMESPACE,
            "labels": dict(pod.labels),
            "annotations": annotations,
            "ownerReferences": [owner],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _status(self, name: str, pod: StaticPod) -> Object:
        state, address = pod.state(), self._node.address
        started = rfc3339(int(state.started_at))
        ready = "True" if state.is_running else "False"
        running: Object = {"running": {"startedAt": started}}
        waiting: Object = {"waiting": {"reason": "CrashLoopBackOff", "message": "it ended and will be started again"}}
        container = {
            "name": pod.name,
            "image": pod.image,
            "imageID": "",
            "containerID": f"allot://{name}",
            "ready": state.is_running,
            "started": state.is_running,
            "restartCount": self._restarts_before[name] + state.restarts,
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

    def objects(self) -> tuple[Object, ...]:
        """The pods as the API has them."""
        found = (self._seen.cache.get(f"{NAMESPACE}/{name}") for name in self._by_name)
        return tuple(each for each in found if each is not None)

    async def answer(self, request: Request, what: str, rest: Sequence[str]) -> bool:
        """Answer if the request is about one of them; whether it was. rest: the parts of the path after what is asked for."""
        namespace, name = (*rest, "", "")[:2]
        pod = self._by_name.get(name) if namespace == NAMESPACE else None
        if pod is None:
            return False
        if what in _COMMANDS:
            text = f'pod "{name}" is a part of the process that "allot up" started: it has no container to enter'
            raise HttpError(400, text)
        if what != "containerLogs":
            return False
        if rest[-1] != pod.name:
            raise HttpError(404, f'container "{rest[-1]}" not found in pod "{name}"')
        if request.get("previous") in TRUE:
            raise HttpError(400, f'previous terminated container "{pod.name}" in pod "{name}" not found')
        await stream_log(request, pod.log, log_options(request, self._clock.seconds()), _always)
        return True


async def _always() -> bool:
    return True
