"""Prevents double allocation: refuses an allocation of devices that other claims hold, naming the holder.

Kubernetes leaves this to the scheduler; with two of them, or a faulty one, its API server stores both allocations. Ours
answers the later one with 409 Conflict. The devices of a request are held from the decision until it is stored or
fails, so that of two concurrent requests only one succeeds. The ledger follows the store by a watch, which can be late; a
refusal is therefore given only after reading the holder's stored state.

With several API servers on one etcd, the others' writes are known as soon as the watch reports them: two servers that decide at
the same moment can both agree. For that reason, schedulers check again after their write.
"""

from __future__ import annotations

from typing import Any

from allot.apiserver.admission.attributes import Admission, Operation
from allot.apiserver.admission.chain import Settle
from allot.apiserver.errors import conflict
from allot.apiserver.resources import Resource
from allot.core.allocation.devices import ClaimID
from allot.core.allocation.features import Features
from allot.core.allocation.holdings import Held, Holdings
from allot.core.features import FeatureGates
from allot.store.port import Entry, Event, EventType, Store, StoreUnavailable

_GROUP = "resource.k8s.io"
_CLAIMS = "/registry/resourceclaims/"
_SLICES = "/registry/resourceslices/"
_BEING_WRITTEN = "its allocation is being written by another request; please try again"
# Holders that are checked again before a refusal; more often only if they change all the time.
_LOOKS_MAX = 64


class AllocationGuard:
    """Judges writes of claim status, and keeps what all claims hold."""

    def __init__(self, store: Store, gates: FeatureGates) -> None:
        self._store = store
        self._holdings = Holdings(Features.from_gates(gates))
        # By claim, the revision from which its held devices were read.
        self._revisions: dict[ClaimID, int] = {}
        # Claims whose allocation is being written: what they hold differs from what is stored. With the allocation, if it holds devices.
        self._pending: dict[ClaimID, Any] = {}

    # --- following the store ---

    async def load(self) -> None:
        """Load what is stored, at start or after missed changes."""
        slices, claims = await self._store.list(_SLICES), await self._store.list(_CLAIMS)
        for name in self._holdings.slices() - {entry.key for entry in slices.entries}:
            self._holdings.delete_slice(name)
        for entry in slices.entries:
            self._put(entry)
        gone = self._holdings.claims() - {_claim_of(entry.key) for entry in claims.entries} - self._pending.keys()
        for claim in gone:
            self._holdings.hold(claim, ())
        for entry in claims.entries:
            # Searches the text, which is at hand; the others need not be decoded.
            if b'"allocation"' in entry.encoded and _claim_of(entry.key) not in self._pending:
                self._put(entry)

    def apply_change(self, change: Event) -> None:
        """Something was stored or deleted."""
        entry = change.entry
        if entry.key.startswith(_CLAIMS):
            claim = _claim_of(entry.key)
            # This server's own writes were applied when they were stored.
            if claim not in self._pending and entry.revision != self._revisions.get(claim):
                self._follow(claim, entry, deleted=change.type is EventType.DELETED)
        elif entry.key.startswith(_SLICES):
            if change.type is EventType.DELETED:
                self._holdings.delete_slice(entry.key)
            else:
                self._put(entry)

    def _put(self, entry: Entry) -> None:
        if entry.key.startswith(_SLICES):
            self._holdings.put_slice(entry.key, entry.object.get("spec") or {})
        else:
            self._follow(_claim_of(entry.key), entry)

    def _follow(self, claim: ClaimID, entry: Entry, *, deleted: bool = False) -> None:
        if entry.revision < self._revisions.get(claim, 0):
            return
        held = () if deleted else self._holdings.read(_allocation(entry))
        self._holdings.hold(claim, held)
        if held:
            self._revisions[claim] = entry.revision
        else:
            self._revisions.pop(claim, None)

    # --- judging ---

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Updates of the status of claims."""
        kind = (resource.group, resource.plural, subresource)
        return kind == (_GROUP, "resourceclaims", "status") and operation is Operation.UPDATE

    async def validate(self, admission: Admission) -> Settle | None:
        """Refuse what others hold; hold it for the claim otherwise."""
        assert admission.object is not None and admission.old is not None, "an update has both"
        wanted = (admission.object.get("status") or {}).get("allocation")
        before = (admission.old.get("status") or {}).get("allocation")
        if wanted is before or wanted == before:
            return None
        claim = ClaimID(admission.namespace, admission.name)
        held = self._holdings.read(wanted)
        if held:
            await self._check(claim, held, admission)
        if admission.dry_run:
            return None
        if claim in self._pending:
            # Of two writes of one claim's allocation only one can be based on what is stored.
            raise conflict(admission.resource.group, admission.resource.plural, admission.name, _BEING_WRITTEN)
        self._pending[claim] = wanted if held else None
        if held:
            self._holdings.hold(claim, held)

        async def settle(stored: bool) -> None:  # noqa: ARG001
            await self._settle(claim)

        return settle

    async def _check(self, claim: ClaimID, held: tuple[Held, ...], admission: Admission) -> None:
        for _ in range(_LOOKS_MAX):
            found = self._holdings.conflict(claim, held)
            if found is None:
                return
            if not await self._look_again(found.holders):
                break
        else:
            found = self._holdings.conflict(claim, held)
            if found is None:
                return
        raise conflict(admission.resource.group, admission.resource.plural, admission.name, found.text)

    async def _look_again(self, holders: tuple[ClaimID, ...]) -> bool:
        """Reread the holders' stored state; returns whether any of them now holds something else."""
        changed = False
        for holder in holders:
            if holder in self._pending:
                continue
            before = self._holdings.of(holder)
            await self._read_again(holder)
            changed = changed or self._holdings.of(holder) != before
        return changed

    async def _settle(self, claim: ClaimID) -> None:
        """The write has ended, either way: what is stored counts."""
        try:
            await self._read_again(claim, ours=True)
        except StoreUnavailable:
            pass  # It may or may not have been stored: held until the watch reports it or a request needs it.
        finally:
            self._pending.pop(claim, None)

    async def _read_again(self, claim: ClaimID, *, ours: bool = False) -> None:
        entry = await self._store.get(f"{_CLAIMS}{claim.namespace}/{claim.name}")
        if not ours and claim in self._pending:
            return
        if entry is None:
            self._holdings.hold(claim, ())
            self._revisions.pop(claim, None)
        elif ours and self._pending[claim] is not None and _allocation(entry) is self._pending[claim]:
            # What was judged is what was stored: it is already held.
            self._revisions[claim] = entry.revision
        else:
            self._follow(claim, entry)


def _allocation(entry: Entry) -> Any:
    return (entry.object.get("status") or {}).get("allocation")


def _claim_of(key: str) -> ClaimID:
    namespace, _, name = key.removeprefix(_CLAIMS).partition("/")
    return ClaimID(namespace, name)
