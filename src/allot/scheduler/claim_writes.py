"""Writes to ResourceClaims: allocate and reserve, deallocate, clean up.

Every write is conditional: an allocation on the claim's resourceVersion at the decision, the rest on its uid. The server's
answer goes to `Claims` at once, so that the next decision does not wait for the watch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgspec

from allot.client.api import Client, PatchType
from allot.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.classic import controller_of
from allot.core.model.codec import encode
from allot.core.model.meta import ObjectMeta
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import ClaimStep, NewClaim
from allot.process.clock import Clock
from allot.process.ids import ALPHABET, SUFFIX_LENGTH

FINALIZER = "resource.kubernetes.io/delete-protection"
CONFLICT_RETRIES = 5
# What the API server leaves of a prefix that it completes.
_PREFIX_LENGTH_MAX = 58

Object = dict[str, Any]

_replace = msgspec.structs.replace


class NotCommitted(Exception):
    """A placement cannot be written. The text is kube-scheduler's.

    is_conflict: another writer was faster, and a retry with a newer view of the cluster may succeed at once.
    """

    def __init__(
        self, message: str, *, is_conflict: bool = False, gives_way: tuple[api.ResourceClaim, ...] = ()
    ) -> None:
        """gives_way: claims that must be deallocated."""
        super().__init__(message)
        self.is_conflict = is_conflict
        self.gives_way = gives_way


class ClaimWrites:
    """Writes claims and reports the results to `Claims`."""

    def __init__(
        self,
        client: Client,
        claims: Claims,
        clock: Clock,
        *,
        version: str = "",
        source: Callable[[str, str], Object | None] = lambda _key, _version: None,
        stamps: bool = True,
        on_allocating: Callable[[api.ResourceClaim], None] | None = None,
    ) -> None:
        """version: the API version in which the server has claims. source: a claim as the server sent it, by key and
        resourceVersion, if known. stamps: whether allocations record their time (DRADeviceBindingConditions). on_allocating: called with a claim
        just before its allocation is written."""
        self._typed = client.typed(api.ResourceClaim, version=version)
        self._source = source
        self._resource = self._typed.resource
        self._claims = claims
        self._clock = clock
        self._stamps = stamps
        self._on_allocating = on_allocating

    # --- on the way to a bound pod ---

    async def commit(self, step: ClaimStep) -> api.ResourceClaim:
        """Write an allocation, a reservation, or both. Returns the updated claim."""
        if step.allocation is None:
            return await self._reserve(step.claim, step.consumer)
        claim = self._newest(step.claim)
        retries_left = CONFLICT_RETRIES
        while True:
            if _same_devices(claim.status.allocation, step.allocation):
                # Another pod of the group that was decided together with this one has written it.
                return await self._reserve(claim, step.consumer)
            _check_unallocated(claim)
            try:
                claim, body = await self._with_finalizer(claim)
                return await self._allocate(claim, body, step.allocation, step.consumer)
            except Conflict as error:
                fresh = await self._fetch(step.claim)
                # The claim is as expected: the server objects to the allocation itself.
                is_refused = fresh.metadata.resource_version == claim.metadata.resource_version
                if is_refused or not retries_left:
                    raise _failed(
                        "add allocation and reservation to claim", step.claim, error, conflict=True
                    ) from error
                retries_left -= 1
                claim = fresh
            except NotFound as error:
                raise _lost(step.claim, "deleted") from error
            except ApiError as error:
                raise _failed("add allocation and reservation to claim", step.claim, error) from error

    async def create(self, pod: core_v1.Pod, new: NewClaim) -> api.ResourceClaim:
        """Create, allocate and reserve the claim for a pod's extended resources."""
        # Upstream adds the finalizer afterwards; with it from the start there is one write less. The name looks like a
        # generated one but depends on the pod alone, so that a write whose answer was lost cannot leave a second claim.
        metadata = _replace(
            new.claim.metadata,
            name=_name_for(new.claim.metadata.generate_name, pod),
            uid="",
            resource_version="",
            namespace=pod.metadata.namespace,
            finalizers=(FINALIZER,),
        )
        try:
            made = await self._typed.create(_replace(new.claim, metadata=metadata, status=api.ResourceClaimStatus()))
        except AlreadyExists as error:
            # Left over, or another scheduler is working on it. The next decision sees it, and clears it away if necessary.
            raise NotCommitted(f"create claim for extended resources: {error.message}", is_conflict=True) from error
        except ApiError as error:
            raise NotCommitted(f"create claim for extended resources: {error.message}") from error
        self._claims.wrote(made)
        consumer = api.ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        try:
            return await self._allocate(made, self._typed.encode(made), new.allocation, consumer)
        except ApiError as error:
            await self.delete(made)
            conflict = isinstance(error, Conflict)
            raise _failed("add allocation and reservation to claim", made, error, conflict=conflict) from error

    async def unreserve(self, claim: api.ResourceClaim, uid: str) -> None:
        """Take a consumer out of reservedFor; the allocation stays."""
        patch = {
            "metadata": {"uid": claim.metadata.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": uid}]},
        }
        answer = await self._resource.patch(
            claim.metadata.name, patch, PatchType.STRATEGIC, claim.metadata.namespace, subresource="status"
        )
        self._claims.wrote(self._typed.decode(answer))

    # --- cleanup ---

    async def deallocate(self, claim: api.ResourceClaim) -> None:
        """Remove allocation, reservations and drivers' reports from a claim. Conflict if it has changed. An allocation by a driver's
        controller is left to that controller, which reverts it once the claim has no reservations."""
        allocation = claim.status.allocation if controller_of(claim) else None
        await self._write_status(claim, self._body(claim), api.ResourceClaimStatus(allocation=allocation))

    async def delete(self, claim: api.ResourceClaim) -> None:
        """Delete a claim that the scheduler created, including its finalizer. It may already be gone."""
        metadata, namespace = claim.metadata, claim.metadata.namespace
        try:
            if FINALIZER in metadata.finalizers:
                # Without a version: it is ours, and only its deletion matters now.
                kept = [finalizer for finalizer in metadata.finalizers if finalizer != FINALIZER]
                patch = {"metadata": {"uid": metadata.uid, "finalizers": kept or None}}
                await self._resource.patch(metadata.name, patch, PatchType.MERGE, namespace)
            await self._resource.delete(metadata.name, namespace, uid=metadata.uid)
        except (NotFound, Conflict):
            # A conflict means a different uid: another claim of that name.
            return

    # --- single writes ---

    async def _with_finalizer(self, claim: api.ResourceClaim) -> tuple[api.ResourceClaim, Object]:
        """The claim with the finalizer, as stored by the server."""
        body = self._body(claim)
        if FINALIZER in claim.metadata.finalizers:
            return claim, body
        finalizers = (*claim.metadata.finalizers, FINALIZER)
        body = {**body, "metadata": {**body["metadata"], "finalizers": list(finalizers)}}
        answer = await self._resource.update(body, claim.metadata.namespace)
        metadata = _replace(claim.metadata, finalizers=finalizers, resource_version=_version(answer))
        return _replace(claim, metadata=metadata), answer

    async def _allocate(
        self,
        claim: api.ResourceClaim,
        body: Object,
        allocation: api.AllocationResult,
        consumer: api.ResourceClaimConsumerReference | None,
    ) -> api.ResourceClaim:
        if self._stamps and allocation.allocation_timestamp is None:
            allocation = _replace(allocation, allocation_timestamp=self._clock.now())
        reserved = (consumer,) if consumer is not None else ()
        status = _replace(claim.status, allocation=allocation, reserved_for=(*claim.status.reserved_for, *reserved))
        if self._on_allocating is not None:
            self._on_allocating(claim)
        return await self._write_status(claim, body, status)

    async def _write_status(
        self, claim: api.ResourceClaim, body: Object, status: api.ResourceClaimStatus
    ) -> api.ResourceClaim:
        if self._typed.is_hub:
            encoded = encode(status)
        else:
            encoded = self._typed.encode(api.ResourceClaim(status=status)).get("status") or {}
        answer = await self._resource.update_status({**body, "status": encoded}, claim.metadata.namespace)
        # What was sent is what is stored, except for the version; decoding the response would cost more than the rest.
        metadata = _replace(claim.metadata, resource_version=_version(answer))
        written = _replace(claim, metadata=metadata, status=status)
        self._claims.wrote(written)
        return written

    def _body(self, claim: api.ResourceClaim) -> Object:
        """The request body for a claim: what the server sent, if known, which saves both sides work."""
        metadata = claim.metadata
        known = self._source(f"{metadata.namespace}/{metadata.name}", metadata.resource_version)
        if known is not None:
            return known
        return self._typed.encode(_replace(claim, metadata=_replace(metadata, managed_fields=())))

    async def _reserve(
        self, claim: api.ResourceClaim, consumer: api.ResourceClaimConsumerReference | None
    ) -> api.ResourceClaim:
        """Add a consumer to a claim that is allocated. A patch, because many pods may do so at once; the server refuses
        reservations of claims without an allocation."""
        if consumer is None or any(known.uid == consumer.uid for known in claim.status.reserved_for):
            return claim
        patch = {
            "metadata": {"uid": claim.metadata.uid},
            "status": {"reservedFor": [msgspec.to_builtins(consumer)]},
        }
        name, namespace = claim.metadata.name, claim.metadata.namespace
        try:
            answer = await self._resource.patch(name, patch, PatchType.STRATEGIC, namespace, subresource="status")
        except NotFound as error:
            raise _lost(claim, "deleted") from error
        except ApiError as error:
            if (await self._fetch(claim)).status.allocation is None:
                raise _lost(claim, "deallocated elsewhere") from error
            raise _failed("add reservation to claim", claim, error, conflict=isinstance(error, Conflict)) from error
        reserved = self._typed.decode(answer)
        self._claims.wrote(reserved)
        if not _same_devices(reserved.status.allocation, claim.status.allocation):
            # Deallocated and allocated again since the decision: the pod may not fit there.
            await self.unreserve(reserved, consumer.uid)
            raise _lost(claim, "allocated elsewhere")
        return reserved

    async def _fetch(self, claim: api.ResourceClaim) -> api.ResourceClaim:
        try:
            fresh = await self._typed.get(claim.metadata.name, claim.metadata.namespace)
        except NotFound as error:
            raise _lost(claim, "deleted") from error
        except ApiError as error:
            raise _failed("get claim", claim, error) from error
        if fresh.metadata.uid != claim.metadata.uid:
            raise _lost(claim, "deleted")
        return fresh

    def _newest(self, claim: api.ResourceClaim) -> api.ResourceClaim:
        known = self._claims.claim(claim.metadata.namespace, claim.metadata.name)
        return known if known is not None and known.metadata.uid == claim.metadata.uid else claim


def _check_unallocated(claim: api.ResourceClaim) -> None:
    if claim.metadata.deletion_timestamp is not None:
        raise _lost(claim, "deleted")
    if claim.status.allocation is not None:
        raise _lost(claim, "allocated elsewhere")


def _same_devices(one: api.AllocationResult | None, other: api.AllocationResult | None) -> bool:
    if one is None or other is None:
        # The decision may have relied on an allocation in flight; there is nothing to compare with.
        return one is not None
    return one.devices == other.devices and one.node_selector == other.node_selector


def _lost(claim: api.ResourceClaim, how: str) -> NotCommitted:
    return NotCommitted(f"claim {_named(claim.metadata)} got {how} in the meantime", is_conflict=True)


def _failed(what: str, claim: api.ResourceClaim, error: ApiError, *, conflict: bool = False) -> NotCommitted:
    return NotCommitted(f"{what} {_named(claim.metadata)}: {error.message}", is_conflict=conflict)


def _named(metadata: ObjectMeta) -> str:
    return f"{metadata.namespace}/{metadata.name}"


def _name_for(prefix: str, pod: core_v1.Pod) -> str:
    number = crc32(pod.metadata.uid.encode())
    suffix = ""
    for _ in range(SUFFIX_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        suffix += ALPHABET[digit]
    return prefix[:_PREFIX_LENGTH_MAX] + suffix


def _version(answer: Object) -> str:
    return str(answer["metadata"]["resourceVersion"])
