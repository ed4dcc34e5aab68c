"""The volumes of a placement: triggers the volume binder and provisioners to bind or create them on the pod's node, and waits for that.

A volume is reserved for its claim, or a claim names the chosen node; the volume binder sees both and does the rest.
Neither is reverted if the pod is not bound after all: the next attempt builds on it, as in kube-scheduler.
"""

from __future__ import annotations

from typing import Any

from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, Conflict, NotFound
from allot.core.model.meta import ObjectMeta
from allot.core.scheduling import SELECTED_NODE, Binding, Cluster, Placement, VolumeStep, volume_matching
from allot.process.clock import Clock
from allot.scheduler.claim_writes import NotCommitted
from allot.scheduler.waits import ChangeWaits

# How long kube-scheduler's VolumeBinding waits.
BIND_TIMEOUT_S = 600.0
# How often to check that the pod still exists, if nothing happens.
_LOOK_S = 1.0


class VolumeWrites:
    """Writes and waits, many pods at a time."""

    def __init__(self, client: Client, cluster: Cluster, waits: ChangeWaits, clock: Clock) -> None:
        self._claims = client.resource("", "v1", "persistentvolumeclaims", namespaced=True)
        self._volumes = client.resource("", "v1", "persistentvolumes", namespaced=False)
        self._cluster = cluster
        self._waits = waits
        self._clock = clock

    async def commit(self, placement: Placement) -> None:
        """Bind or provision every volume of a placement. NotCommitted if that fails or takes too long."""
        try:
            written = [await self._begin(step, placement.node) for step in placement.volumes]
            until = self._clock.monotonic() + BIND_TIMEOUT_S
            for step, metadata in zip(placement.volumes, written, strict=True):
                await self._wait(placement, step, metadata, until)
        except NotCommitted as error:
            text = f'running PreBind plugin "VolumeBinding": binding volumes: {error}'
            raise NotCommitted(text, is_conflict=error.is_conflict) from error
        except ApiError as error:
            text = f'running PreBind plugin "VolumeBinding": binding volumes: {error.message}'
            raise NotCommitted(text, is_conflict=isinstance(error, Conflict | NotFound)) from error

    async def _begin(self, step: VolumeStep, node: str) -> ObjectMeta:
        """Returns the claim or volume after the write."""
        claim, volume = step.claim, step.volume
        if volume is None:
            if claim.metadata.annotations.get(SELECTED_NODE) == node:
                return claim.metadata
            patch = {"metadata": {**_guard(claim.metadata), "annotations": {SELECTED_NODE: node}}}
            namespace = claim.metadata.namespace
            answer = await self._claims.patch(claim.metadata.name, patch, PatchType.MERGE, namespace)
            return _metadata(answer)
        if volume.spec.claim_ref is not None and volume.spec.claim_ref.uid == claim.metadata.uid:
            return volume.metadata
        metadata: dict[str, Any] = _guard(volume.metadata)
        if not volume_matching.is_held_for(volume, claim):
            metadata["annotations"] = {volume_matching.BOUND_BY_CONTROLLER: "yes"}
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
        }
        patch = {"metadata": metadata, "spec": {"claimRef": reference}}
        return _metadata(await self._volumes.patch(volume.metadata.name, patch, PatchType.MERGE))

    async def _wait(self, placement: Placement, step: VolumeStep, written: ObjectMeta, until: float) -> None:
        volumes, nodes = self._cluster.volumes, self._cluster.nodes
        while True:
            changed = self._waits.changed(volume_matching.claim_key(step.claim))
            state = volumes.binding(step, nodes.get(placement.node), written)
            if state.binding is Binding.READY:
                return
            if state.binding is Binding.FAILED:
                raise NotCommitted(state.message)
            if not self._cluster.is_assumed(placement.pod):
                raise NotCommitted(f'pod does not exist any more: pod "{placement.pod.metadata.name}" not found')
            left_s = until - self._clock.monotonic()
            if left_s <= 0:
                raise NotCommitted("context deadline exceeded")
            await self._waits.wait(changed, min(left_s, _LOOK_S))


def _guard(metadata: ObjectMeta) -> dict[str, Any]:
    return {"uid": metadata.uid, "resourceVersion": metadata.resource_version}


def _metadata(value: dict[str, Any]) -> ObjectMeta:
    found = value["metadata"]
    return ObjectMeta(name=found["name"], uid=found["uid"], resource_version=found["resourceVersion"])
