"""Users' pods on the node `allot-control-plane`: a DaemonSet that tolerates everything has one there too.

The node has no runtime, so their containers are placeholders: reported as running until they are deleted. Otherwise such a DaemonSet
would never be complete.
"""

from __future__ import annotations

import logging
from typing import Any

from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, Conflict, NotFound
from allot.client.events import EventRecorder
from allot.client.informer import Change, Informer
from allot.client.workqueue import WorkQueue
from allot.node.static_pods import MIRROR
from allot.process.clock import Clock

_log = logging.getLogger("allot.node")

Object = dict[str, Any]
_ENDED = ("Succeeded", "Failed")


class Guests:
    """Runs beside the node's own pods. seen: an informer of the node's pods."""

    def __init__(
        self, client: Client, seen: Informer[Object], events: EventRecorder, clock: Clock, address: str
    ) -> None:
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        self._seen = seen
        self._events = events
        self._clock = clock
        self._address = address
        self._queue: WorkQueue[str] = WorkQueue(clock)

    async def run(self) -> None:
        """Run until cancelled."""
        remove = self._seen.add_handler(self._changed)
        try:
            while True:
                key = await self._queue.get()
                try:
                    await self._tend(key)
                    self._queue.forget(key)
                except (NotFound, Conflict):
                    # The watch reports its current state.
                    self._queue.forget(key)
                except ApiError as error:
                    _log.warning("pod %s: %s", key, error)
                    self._queue.add_rate_limited(key)
                finally:
                    self._queue.done(key)
        finally:
            remove()

    def _changed(self, change: Change[Object]) -> None:
        pod = change.new
        if pod is not None and MIRROR not in pod["metadata"].get("annotations", {}):
            self._queue.add(change.key)

    async def _tend(self, key: str) -> None:
        pod = self._seen.cache.get(key)
        if pod is None:
            return
        metadata, phase = pod["metadata"], pod.get("status", {}).get("phase")
        name, namespace = metadata["name"], metadata["namespace"]
        if "deletionTimestamp" in metadata:
            await self._pods.delete(name, namespace, uid=metadata["uid"], grace_period_seconds=0)
        elif phase != "Running" and phase not in _ENDED:
            patch = {"metadata": {"uid": metadata["uid"]}, "status": self._status(pod)}
            await self._pods.patch(name, patch, PatchType.STRATEGIC, namespace, subresource="status")
            note = "Placeholder: this node runs no containers; the pod is reported as running until it is deleted"
            self._events.record(pod, "Normal", "Placeholder", "Placeholder", note)

    def _status(self, pod: Object) -> Object:
        now = self._clock.now()
        types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
        return {
            "phase": "Running",
            "startTime": now,
            "hostIP": self._address,
            "hostIPs": [{"ip": self._address}],
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "conditions": [{"type": type_, "status": "True", "lastTransitionTime": now} for type_ in types],
            "containerStatuses": [
                {
                    "name": each["name"],
                    "image": each.get("image", ""),
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for each in pod["spec"]["containers"]
            ],
        }
