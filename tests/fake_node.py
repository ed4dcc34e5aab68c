"""Nodes without a node agent: bound pods become Running, deleted ones go away, leases are renewed.

As a kubelet it starts a pod only when the pod's claims are allocated and reserved for it. What a pod's containers would do is
said by an annotation: `fake/ends: Succeeded` or `Failed` ends it at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, NotFound
from allot.client.informer import Change
from allot.client.informers import Informers

Object = dict[str, Any]

ENDS = "fake/ends"
_LEASES = "kube-node-lease"


class FakeNodes:
    """All nodes of a cluster."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        self._claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._cache = informers.dynamic("", "v1", "pods", namespaced=True)
        self._claim_cache = informers.dynamic("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        self._cache.add_handler(self._pod_changed)
        self._claim_cache.add_handler(self._claim_changed)

    def _pod_changed(self, change: Change[Object]) -> None:
        if change.new is not None and change.new["spec"].get("nodeName"):
            self._changed.put_nowait(change.key)

    def _claim_changed(self, change: Change[Object]) -> None:
        if change.new is None:
            return
        for consumer in (change.new.get("status") or {}).get("reservedFor") or ():
            if consumer["resource"] == "pods":
                self._changed.put_nowait(f"{change.new['metadata']['namespace']}/{consumer['name']}")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            key = await self._changed.get()
            pod = self._cache.cache.get(key)
            if pod is not None:
                try:
                    await self._look_after(pod)
                except (NotFound, ApiError):
                    continue  # somebody else was faster; the next change tells

    async def _look_after(self, pod: Object) -> None:
        metadata, phase = pod["metadata"], (pod.get("status") or {}).get("phase", "Pending")
        name, namespace = metadata["name"], metadata["namespace"]
        if not pod["spec"].get("nodeName"):
            return
        if metadata.get("deletionTimestamp"):
            await self._pods.delete(name, namespace, uid=metadata["uid"], grace_period_seconds=0)
        elif phase == "Pending" and self._is_prepared(pod):
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            await self._set_status(pod, {"phase": "Running", "conditions": [ready]})
        elif phase == "Running" and (end := (metadata.get("annotations") or {}).get(ENDS)):
            await self._set_status(pod, {"phase": end})

    async def _set_status(self, pod: Object, status: Object) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        await self._pods.patch(
            metadata["name"], patch, PatchType.STRATEGIC, metadata["namespace"], subresource="status"
        )

    def _is_prepared(self, pod: Object) -> bool:
        names = {entry["name"]: entry for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        for entry in pod["spec"].get("resourceClaims") or ():
            made = names.get(entry["name"])
            name = entry.get("resourceClaimName") or (made or {}).get("resourceClaimName")
            if made is not None and not name:
                continue  # not needed
            claim = self._claim_cache.cache.get(f"{pod['metadata']['namespace']}/{name}") if name else None
            if claim is None or not _is_reserved(claim, pod):
                return False
        return True


def _is_reserved(claim: Object, pod: Object) -> bool:
    status = claim.get("status") or {}
    group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return bool(status.get("allocation")) and any(
        consumer.get("uid") == pod["metadata"]["uid"]
        or (consumer["resource"] == "podgroups" and consumer["name"] == group)
        for consumer in status.get("reservedFor") or ()
    )
