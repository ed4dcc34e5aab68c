"""The agent's reports about pods: their status in the API, and events in the kubelet's name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, Conflict, NotFound
from allot.client.events import EventRecorder, Reference
from allot.core.lifecycle.pod_status import addresses_replaced
from allot.core.model.core_v1 import Pod

_log = logging.getLogger("allot.node")

Object = dict[str, Any]
# The kubelet's reason when no other applies.
UNEXPECTED = "UnexpectedAdmissionError"


class Reports:
    """Writes to the API about pods."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        self._events = events

    def tell(self, pod: Pod, type_: str, reason: str, note: str, container: str = "") -> None:
        """Record an event about a pod, or about one of its containers."""
        path = ""
        if container:
            fields = (
                ("initContainers", pod.spec.init_containers),
                ("containers", pod.spec.containers),
                ("ephemeralContainers", pod.spec.ephemeral_containers),
            )
            field = next(
                (name for name, found in fields if any(each.name == container for each in found)), "containers"
            )
            path = f"spec.{field}{{{container}}}"
        metadata = pod.metadata
        about = Reference(
            api_version="v1",
            kind="Pod",
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            field_path=path,
        )
        self._events.record(about, type_, reason, reason, note)

    async def write_status(self, pod: Pod, status: Mapping[str, Any]) -> Object | None:
        """Write a pod's status; returns the resulting pod, None if it is gone. ApiError if it cannot be written."""
        metadata = pod.metadata
        written = [name for name, known in (("podIPs", pod.status.pod_ips), ("hostIPs", pod.status.host_ips)) if known]
        patch = {"metadata": {"uid": metadata.uid}, "status": addresses_replaced(status, written)}
        try:
            return await self._pods.patch(
                metadata.name, patch, PatchType.STRATEGIC, metadata.namespace, subresource="status"
            )
        except (NotFound, Conflict):
            # Gone, or replaced by another one with the same name: the watch will show.
            return None

    async def reject(self, pod: Mapping[str, Any], why: str) -> None:
        """Report a pod that cannot be decoded and so cannot run: it must not wait forever."""
        metadata, text = pod["metadata"], f"the pod is not understood by the agent of its node: {why}"
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return
        self._events.record(pod, "Warning", UNEXPECTED, UNEXPECTED, text)
        status = {"phase": "Failed", "reason": UNEXPECTED, "message": f"Pod was rejected: {text}"}
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        try:
            await self._pods.patch(
                metadata["name"], patch, PatchType.STRATEGIC, metadata["namespace"], subresource="status"
            )
        except ApiError as error:
            _log.warning("pod %s/%s: not rejected: %s", metadata["namespace"], metadata["name"], error)

    async def delete(self, pod: Pod) -> bool:
        """Delete a pod that has ended on its node; returns whether it is gone."""
        metadata = pod.metadata
        try:
            await self._pods.delete(metadata.name, metadata.namespace, uid=metadata.uid, grace_period_seconds=0)
        except (NotFound, Conflict):
            return True
        except ApiError as error:
            _log.warning("pod %s: not deleted: %s", pod.key, error)
            return False
        return True
