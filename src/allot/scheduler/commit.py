"""From a placement to a bound pod: the writes, in an order such that a crash between any two loses nothing.

1. volumes that waited for the pod, and the wait until they are bound (`volume_writes`);
2. each claim: finalizer, then allocation and reservation in one write, guarded by its resourceVersion;
3. the claim for extended resources, if there is one, and the pod's status that names it;
4. the pod's status of node resources that devices provide;
5. the wait for devices to become ready;
6. the binding.

All state is in the API, so nothing needs to be recovered from elsewhere. A scheduler that starts finds the pod still pending.
Written claims hold their devices, and their node selectors determine the pod's node: the pod is decided again
with them, and bound. If it can no longer run there, they are deallocated as part of that refusal. A claim for
extended resources that was created but not named in the pod's status is found by its annotation and owner, deleted, and
recreated. If the pod is gone, the resource claim controller removes its reservations and deallocates.

On a server without a check for double allocation, two schedulers may have allocated one device. Before a pod is bound there,
everything written up to its own allocation must have been seen; the later allocation is given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, Conflict, NotFound
from allot.client.events import EventRecorder
from allot.core.allocation import ClaimID, claim_id
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import encode
from allot.core.scheduling.devices.binding_conditions import Binding, binding_state, deadline, has_conditions
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.devices.double_allocation import double_allocations
from allot.core.scheduling.plan import Placement
from allot.process.clock import Clock
from allot.scheduler.claim_writes import ClaimWrites, NotCommitted
from allot.scheduler.metrics import SchedulerMetrics
from allot.scheduler.volume_writes import VolumeWrites
from allot.scheduler.waits import ClaimWaits

_log = logging.getLogger("allot.scheduler")

# How long the watch may take to show one of our writes.
SEEN_TIMEOUT_S = 30.0
# The pod may change between decision and binding, perhaps more than once.
_BIND_RETRIES = 3


class Committer:
    """Writes placements, each pod's writes in order, many pods at a time."""

    def __init__(
        self,
        client: Client,
        claims: Claims,
        waits: ClaimWaits,
        clock: Clock,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        *,
        volumes: VolumeWrites,
        binding_timeout_s: float,
        stamps: bool = True,
        is_guarded: bool = False,
    ) -> None:
        """is_guarded: the API server refuses to allocate what another claim holds."""
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        on_allocating = None if is_guarded else self._expect
        self.claim_writes = ClaimWrites(
            client,
            claims,
            clock,
            version=waits.version,
            source=waits.source,
            stamps=stamps,
            on_allocating=on_allocating,
        )
        self._claims = claims
        self._volumes = volumes
        self._waits = waits
        self._clock = clock
        self._recorder = recorder
        self._metrics = metrics
        self._binding_timeout_s = binding_timeout_s
        self._is_guarded = is_guarded

    async def commit(self, placement: Placement) -> str:
        """Write everything. Returns the node that the pod is bound to: a different one if another scheduler was faster.
        NotCommitted if it cannot be bound, with what was written reverted as far as is safe."""
        made: list[api.ResourceClaim] = []
        version = ""
        try:
            if placement.volumes:
                await self._volumes.commit(placement)
            if placement.pod.spec.resource_claims or placement.extended is not None:
                version = await self._prepare_measured(placement, made)
            await self._bind(placement, version)
            return placement.node
        except (NotCommitted, ApiError) as error:
            for step in placement.claims:
                self._waits.expect_no_more(str(claim_id(step.claim)))
            gives_way = error.gives_way if isinstance(error, NotCommitted) else ()
            if gives_way or made or placement.node_allocatable:
                node = await self._stop_bindings(placement, str(error))
            else:
                node = await self._node_of(placement)
            if node:
                # The response was lost, or another scheduler with the same name bound it: the pod keeps what it uses.
                return node
            await self._take_back(placement, gives_way, made)
            if isinstance(error, ApiError):
                raise NotCommitted(str(error)) from error
            raise

    # --- before the binding ---

    async def _prepare_measured(self, placement: Placement, made: list[api.ResourceClaim]) -> str:
        started, success = self._clock.monotonic(), False
        try:
            version = await self._prepare(placement, made)
            success = True
            return version
        finally:
            self._metrics.claims_written(self._clock.monotonic() - started, success=success)

    async def _prepare(self, placement: Placement, made: list[api.ResourceClaim]) -> str:
        """Everything before the binding. Returns the version of the pod that this was done for."""
        pod = placement.pod
        version = pod.metadata.resource_version
        written: list[api.ResourceClaim] = []
        allocated: list[api.ResourceClaim] = []
        try:
            for step in placement.claims:
                if step.allocation is not None or step.consumer is not None:
                    written.append(await self.claim_writes.commit(step))
                    if step.allocation is not None:
                        allocated.append(written[-1])
            if placement.extended is not None:
                claim, version = await self._create_extended(placement)
                made.append(claim)
            if placement.node_allocatable:
                statuses = [encode(status) for status in placement.node_allocatable]
                patch: dict[str, object] = {"nodeAllocatableResourceClaimStatuses": statuses}
                version = await self._patch_status(pod, patch, version)
            if not self._is_guarded:
                await self._check_nobody_was_quicker((*allocated, *made))
                self._check_left_overs(pod, allocated)
            await self._wait_for_devices(placement, (*written, *made))
            return version
        except NotCommitted as error:
            raise NotCommitted(
                f'running PreBind plugin "DynamicResources": {error}',
                is_conflict=error.is_conflict,
                gives_way=error.gives_way,
            ) from error

    async def _create_extended(self, placement: Placement) -> tuple[api.ResourceClaim, str]:
        assert placement.extended is not None
        try:
            claim = await self.claim_writes.create(placement.pod, placement.extended)
        except NotCommitted:
            self._metrics.claim_created(success=False)
            raise
        self._metrics.claim_created(success=True)
        status = {
            "resourceClaimName": claim.metadata.name,
            "requestMappings": [encode(mapping) for mapping in placement.extended.mappings],
        }
        try:
            patch: dict[str, object] = {"extendedResourceClaimStatus": status}
            version = await self._patch_status(placement.pod, patch, placement.pod.metadata.resource_version)
        except ApiError as error:
            await self.claim_writes.delete(claim)
            text = f"update pod status with the claim for extended resources: {error}"
            raise NotCommitted(text, is_conflict=isinstance(error, Conflict)) from error
        return claim, version

    async def _wait_for_devices(self, placement: Placement, claims: tuple[api.ResourceClaim, ...]) -> None:
        """Wait until drivers report the devices ready; uses the watch of claims, does not poll."""
        keys = {claim_id(claim) for claim in claims if has_conditions(claim)}
        if len(claims) < len(placement.pod.spec.resource_claims):
            # Others were allocated and reserved before, perhaps by an attempt that did not finish.
            for id_ in self._claims.claims_of(placement.pod):
                known = self._claims.claim(*id_)
                if known is not None and has_conditions(known):
                    keys.add(id_)
        if not keys:
            return
        note = f"waiting for binding conditions for device on node {placement.node}"
        self._recorder.record(placement.pod, "Normal", "BindingConditionsPending", "Scheduling", note)
        started = self._clock.monotonic()
        for namespace, name in sorted(keys):
            await self._wait_for_claim(namespace, name, started)

    async def _wait_for_claim(self, namespace: str, name: str, started: float) -> None:
        while True:
            changed = self._waits.changed(f"{namespace}/{name}")
            claim = self._claims.claim(namespace, name)
            if claim is None:
                raise NotCommitted(f"claim {namespace}/{name} got deleted in the meantime")
            now = self._clock.seconds()
            state = binding_state(claim, now, self._binding_timeout_s)
            if state.binding is not Binding.PENDING:
                self._metrics.devices_waited(claim, state.binding.value, self._clock.monotonic() - started)
            if state.binding is Binding.READY:
                return
            if state.binding is not Binding.PENDING:
                raise NotCommitted(state.message)
            left_s = deadline(claim, self._binding_timeout_s) - now
            await self._waits.wait(changed, min(max(left_s, 0.001), self._binding_timeout_s))

    def _expect(self, claim: api.ResourceClaim) -> None:
        key, id_ = f"{claim.metadata.namespace}/{claim.metadata.name}", claim_id(claim)
        self._waits.expect(key, lambda: self._held_by_others(id_))

    def _held_by_others(self, id_: ClaimID) -> str:
        """Which of a claim's devices other claims held before, according to the watch; empty if none."""
        for double in double_allocations(self._claims.inventory, id_, lambda other: self._claims.claim(*other)):
            if any(other != id_ and self._waits.is_allocated(str(other)) for other in double.holders):
                return double.text
        return ""

    async def _check_nobody_was_quicker(self, claims: Iterable[api.ResourceClaim]) -> None:
        """If two claims got the same device, the one that the watch shows first keeps it; the other gives way."""
        for claim in claims:
            key = f"{claim.metadata.namespace}/{claim.metadata.name}"
            text = await self._waits.found(key, SEEN_TIMEOUT_S)
            if text is None:
                raise NotCommitted(f"claim {key} was not seen with its allocation within {SEEN_TIMEOUT_S:g} s")
            if text:
                raise _giving_way(claim, text)

    def _check_left_overs(self, pod: core_v1.Pod, allocated: Iterable[api.ResourceClaim]) -> None:
        """Claims that were allocated before: their scheduler may not yet have checked whether others had the devices
        first, or ended before it could. The order is no longer known, so the pod that is not bound gives way."""
        known = {claim_id(claim) for claim in allocated}
        for id_ in self._claims.claims_of(pod):
            claim = self._claims.claim(*id_)
            if id_ in known or claim is None or claim.status.allocation is None:
                continue
            text = self._held_by_others(id_)
            if text:
                raise _giving_way(claim, text)

    # --- the binding ---

    async def _bind(self, placement: Placement, version: str) -> None:
        """version: the version of the pod for which claims were written, if any. A scheduler that clears such claims away
        writes to the pod first (`reports`), so that a binding that was under way when its scheduler ended comes too late."""
        metadata = placement.pod.metadata
        about = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
        for retries_left in range(_BIND_RETRIES, -1, -1):
            if version:
                about["resourceVersion"] = version
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": about,
                "target": {"kind": "Node", "name": placement.node},
            }
            try:
                await self._pods.create(binding, metadata.namespace, name=metadata.name, subresource="binding")
                return
            except ApiError as error:
                if version and retries_left and isinstance(error, Conflict):
                    version = await self._version_if_unrefused(placement)
                    if version:
                        continue
                text = f'binding rejected: running Bind plugin "DefaultBinder": {error.message}'
                raise NotCommitted(text, is_conflict=isinstance(error, Conflict)) from error

    async def _version_if_unrefused(self, placement: Placement) -> str:
        """The current version of a pod if only irrelevant parts have changed; empty if it is bound, gone, or
        another scheduler has tried it."""
        metadata = placement.pod.metadata
        try:
            pod = await self._pods.get(metadata.name, metadata.namespace)
        except NotFound:
            return ""
        found = pod["metadata"]
        if found.get("uid") != metadata.uid or found.get("deletionTimestamp") or pod["spec"].get("nodeName"):
            return ""
        known = [condition for condition in placement.pod.status.conditions if condition.type == "PodScheduled"]
        before = [(each.status, each.reason, each.message, each.last_transition_time) for each in known]
        now = [
            (each.get("status", ""), each.get("reason", ""), each.get("message", ""), each.get("lastTransitionTime"))
            for each in pod["status"].get("conditions", ())
            if each.get("type") == "PodScheduled"
        ]
        return str(found["resourceVersion"]) if before == now else ""

    async def _node_of(self, placement: Placement) -> str:
        """The node that the pod has after all; empty if none. If that cannot be determined, it may have one: then nothing is reverted, and the
        pod's next attempt builds on what is there."""
        metadata = placement.pod.metadata
        try:
            pod = await self._pods.get(metadata.name, metadata.namespace)
        except NotFound:
            return ""
        except ApiError as error:
            raise NotCommitted(f"pod {metadata.namespace}/{metadata.name}: {error}") from error
        return str(pod["spec"].get("nodeName", "")) if pod["metadata"].get("uid") == metadata.uid else ""

    # --- reverting ---

    async def _stop_bindings(self, placement: Placement, message: str) -> str:
        """Write to the pod that it is not bound, which makes other bindings in progress fail. Returns the node that it has
        after all; empty if it has none."""
        known = next((each for each in placement.pod.status.conditions if each.type == "PodScheduled"), None)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulerError",
            "message": message,
            # Alternately set and unset, so that the write changes something even within one second.
            "lastProbeTime": None if known is not None and known.last_probe_time else self._clock.now(),
            "lastTransitionTime": self._clock.now(),
        }
        metadata = placement.pod.metadata
        patch = {"metadata": {"uid": metadata.uid}, "status": {"conditions": [condition]}}
        try:
            pod = await self._pods.patch(
                metadata.name, patch, PatchType.STRATEGIC, metadata.namespace, subresource="status"
            )
        except (NotFound, Conflict):
            # Gone, or replaced by another of that name.
            return ""
        except ApiError as error:
            raise NotCommitted(f"pod {metadata.namespace}/{metadata.name}: {error}") from error
        return str(pod["spec"].get("nodeName", ""))

    async def _take_back(
        self, placement: Placement, gives_way: tuple[api.ResourceClaim, ...], made: list[api.ResourceClaim]
    ) -> None:
        """Allocations and reservations stay, unless they have to give way: the next attempt uses them, or clears them away.
        (kube-scheduler removes the reservation; but another scheduler may be about to bind the pod with it.)"""
        try:
            async with asyncio.timeout(SEEN_TIMEOUT_S):
                for claim in gives_way:
                    await self._give_back(self._claims.claim(*claim_id(claim)) or claim, placement.pod.metadata.uid)
                for claim in made:
                    await self.claim_writes.delete(claim)
                if placement.node_allocatable:
                    await self._patch_status(placement.pod, {"nodeAllocatableResourceClaimStatuses": None})
        except NotFound:
            return
        except (ApiError, TimeoutError) as error:
            # The pod's next attempt finds what is left, or the claim controller does if the pod is gone.
            _log.warning("pod %s/%s: %s", placement.pod.metadata.namespace, placement.pod.metadata.name, error)

    async def _give_back(self, claim: api.ResourceClaim, uid: str) -> None:
        """The last pod that relies on an allocation reverts it; others only remove their reservation."""
        if any(consumer.uid != uid for consumer in claim.status.reserved_for):
            await self.claim_writes.unreserve(claim, uid)
        else:
            await self.claim_writes.deallocate(claim)

    async def _patch_status(self, pod: core_v1.Pod, status: dict[str, object], version: str = "") -> str:
        """Returns the pod's new version. version: the version it must have before."""
        metadata = {"uid": pod.metadata.uid}
        if version:
            metadata["resourceVersion"] = version
        patch = {"metadata": metadata, "status": status}
        answer = await self._pods.patch(
            pod.metadata.name, patch, PatchType.STRATEGIC, pod.metadata.namespace, subresource="status"
        )
        return str(answer["metadata"]["resourceVersion"])


def _giving_way(claim: api.ResourceClaim, text: str) -> NotCommitted:
    key = claim_id(claim)
    _log.warning("DRA: %s; claim %s gives way", text, key)
    return NotCommitted(f"claim {key}: {text}", is_conflict=True, gives_way=(claim,))
