"""Decides about writes of claim status, one at a time, with a ledger that follows the server.

A decision and its record are one step: nothing else is decided in between. Refusing is always safe: the client retries.
So the ledger is enough if the watch has reached the version of the claim: schedulers write to it once
(the finalizer) after they decide. If the watch lags, the decider reads the holders from the server, which may have been deallocated;
but only briefly, because an API server waits for the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from allot.client.api import Client, ResourceClient
from allot.client.errors import ApiError, NotFound
from allot.client.informer import Change, Informer
from allot.core.allocation.devices import ClaimID
from allot.core.allocation.features import Features
from allot.core.allocation.guard_ledger import GuardLedger
from allot.core.allocation.holdings import Held
from allot.core.features import FeatureGates
from allot.core.model import resource_v1 as api
from allot.guard.reviews import Asked, BadReview, allowed, parse_review, refused
from allot.http1.heads import HttpError
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.metrics import Counter, Gauge, Histogram
from allot.process.supervise import supervise

_log = logging.getLogger("allot.guard")

# An API server waits for the answer. A later result helps the next request.
LOOK_S = 0.002
# How many holders are read before a refusal, and how many reads run at once.
_HOLDERS_LOOKED_AT_MAX = 16
_LOOKS_MAX = 64
# The limit of unconfirmed writes: far more than an API server has in flight, so further ones have another source.
_WAITING_MAX = 20_000
_SWEEP_EVERY_S = 1.0
_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

Object = dict[str, Any]


class _Seen(msgspec.Struct, frozen=True):
    """The part of a claim that is kept."""

    version: int
    held: tuple[Held, ...]


class GuardMetrics:
    """The guard's metrics."""

    def __init__(self, registry: CollectorRegistry, ledger: Callable[[], GuardLedger | None]) -> None:
        self.reviews = Counter(registry, "allot_guard_reviews", "Reviews by what was decided.", ("decision",))
        self.durations = Histogram(
            registry,
            "allot_guard_review_duration_seconds",
            "From a review to its answer.",
            ("decision",),
            buckets=_BUCKETS_S,
        )

        def count(of: Callable[[GuardLedger], int]) -> Callable[[], dict[tuple[str, ...], float]]:
            def measure() -> dict[tuple[str, ...], float]:
                found = ledger()
                return {(): 0 if found is None else of(found)}

            return measure

        Gauge(registry, "allot_guard_claims", "Claims that are known.", (), count(GuardLedger.known))
        Gauge(
            registry,
            "allot_guard_unconfirmed_claims",
            "Claims with admitted writes of which nothing was seen yet.",
            (),
            count(lambda found: found.waiting),
        )


class Decider:
    """Follows claims and slices once `run` is called, and decides while it may."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        gates: FeatureGates,
        write_timeout_s: float,
        metrics: GuardMetrics,
        *,
        look_s: float = LOOK_S,
    ) -> None:
        """look_s: how long a refusal waits for reading the holders."""
        self._client = client
        self._clock = clock
        self._ids = ids
        self._write_timeout_s = write_timeout_s
        self._metrics = metrics
        self._look_s = look_s
        self.ledger = GuardLedger(Features.from_gates(gates), write_timeout_s)
        self._claims: ResourceClient | None = None
        self._watch: Informer[_Seen] | None = None
        # Running reads: concurrent requests about the same holder share one.
        self._looks: dict[ClaimID, asyncio.Task[bool]] = {}
        self._last_admitted_at = -write_timeout_s
        self.synced = asyncio.Event()

    # --- following ---

    async def run(self) -> None:
        """Follow the server until cancelled."""
        claims = (await self._client.typed_as_served(api.ResourceClaim)).resource
        slices = (await self._client.typed_as_served(api.ResourceSlice)).resource
        self._claims = claims
        of_claims = self._watch = Informer(claims, self._see, self._clock, self._ids)
        of_slices = Informer(slices, _spec_of_shared, self._clock, self._ids)
        of_claims.add_handler(self._claim_changed)
        of_slices.add_handler(self._slice_changed)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(supervise("the watch of slices", of_slices.run, self._clock))
                tasks.create_task(supervise("the watch of claims", of_claims.run, self._clock))
                tasks.create_task(supervise("the look at unconfirmed writes", self._sweep, self._clock))
                await of_slices.wait_synced()
                await of_claims.wait_synced()
                self.synced.set()
        finally:
            for look in self._looks.values():
                look.cancel()

    def _see(self, claim: Object) -> _Seen:
        allocation = (claim.get("status") or {}).get("allocation")
        return _Seen(int(claim["metadata"]["resourceVersion"]), self.ledger.holdings.read(allocation))

    def _claim_changed(self, change: Change[_Seen]) -> None:
        seen, claim = change.object, _claim_id(change.key)
        if change.new is None:
            self.ledger.deleted(claim, seen.version)
        else:
            self.ledger.stored(claim, seen.version, seen.held)

    def _slice_changed(self, change: Change[Object]) -> None:
        if change.new is None:
            self.ledger.holdings.delete_slice(change.key)
        else:
            self.ledger.holdings.put_slice(change.key, change.new)

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_EVERY_S)
            for claim in self.ledger.overdue(self._clock.monotonic()):
                await self._look(claim)

    async def drain(self) -> None:
        """Wait until nothing that was admitted can still be stored unseen. Nothing may be admitted meanwhile."""
        until = self._last_admitted_at + self._write_timeout_s
        while self.ledger.waiting and self._clock.monotonic() < until:
            await self._clock.sleep(0.05)

    # --- looking again ---

    def _has_seen(self, version: int) -> bool:
        """Whether the watch has reached a version."""
        assert self._watch is not None, "who decides follows claims"
        return self._watch.has_seen(str(version))

    async def _look_again(self, holders: Iterable[ClaimID], seconds: float) -> bool:
        """Read holders from the server; returns whether that showed anything new within the time."""
        # For a claim that was just admitted, a read shows nothing newer than the watch.
        older = [holder for holder in holders if not self.ledger.is_waiting(holder)]
        looks = [look for holder in older[:_HOLDERS_LOOKED_AT_MAX] if (look := self._looking_at(holder)) is not None]
        if not looks:
            return False
        done, _ = await asyncio.wait(looks, timeout=seconds)
        return any(look.result() for look in done if not look.cancelled())

    def _looking_at(self, holder: ClaimID) -> asyncio.Task[bool] | None:
        """A running or new read of a holder; None if there are too many."""
        look = self._looks.get(holder)
        if look is None and len(self._looks) < _LOOKS_MAX:
            look = self._looks[holder] = asyncio.create_task(self._look(holder))
            look.add_done_callback(lambda _: self._looks.pop(holder, None))
        return look

    async def _look(self, claim: ClaimID) -> bool:
        """Read a claim from the server; returns whether its holdings may have changed."""
        assert self._claims is not None, "who decides follows claims"
        asked_at, known, waiting = self._clock.monotonic(), self.ledger.version(claim), self.ledger.waiting
        try:
            found = self._see(await self._claims.get(claim.name, claim.namespace))
        except NotFound:
            self.ledger.looked_in_vain(claim, asked_at, known)
            return True
        except ApiError as error:
            _log.warning("claim %s: %s", claim, error)
            return False
        self.ledger.looked(claim, asked_at, found.version, found.held)
        return found.version != known or self.ledger.waiting < waiting

    # --- deciding ---

    async def review(self, body: bytes, may_decide: Callable[[], bool]) -> bytes:
        """The answer to an AdmissionReview; HttpError if this process cannot decide. may_decide: whether only this process decides,
        checked at the moment of the decision."""
        started = perf_counter()
        try:
            asked = parse_review(body)
            decision, answer = await self._answer(asked, may_decide)
        except BadReview as error:
            self._metrics.reviews.add("bad")
            raise HttpError(400, str(error)) from None
        except HttpError:
            self._metrics.reviews.add("unavailable")
            raise
        self._metrics.reviews.add(decision)
        self._metrics.durations.observe(perf_counter() - started, decision)
        return answer

    async def _answer(self, asked: Asked, may_decide: Callable[[], bool]) -> tuple[str, bytes]:
        if asked.is_foreign:
            return "foreign", allowed(asked.uid, "allot guard judges updates of resourceclaims/status only")
        if not asked.allocation or asked.allocation == asked.before:
            return "unchanged", allowed(asked.uid)
        try:
            held = self.ledger.holdings.read(asked.allocation)
        except ValueError as error:
            raise BadReview(f"object.status.allocation: {error}") from None
        if not held:
            return "allowed", allowed(asked.uid)
        until = 0.0
        while True:
            self._check_may_decide(may_decide)
            found = self.ledger.conflict(asked.claim, held)
            if found is None:
                # No await between the check and this.
                self._admit(asked, held)
                return "allowed", allowed(asked.uid)
            now = self._clock.monotonic()
            until = until or now + self._look_s
            if now >= until or self._has_seen(asked.base) or not await self._look_again(found.holders, until - now):
                return "refused", refused(asked.uid, found.text)

    def _check_may_decide(self, may_decide: Callable[[], bool]) -> None:
        if not may_decide():
            raise HttpError(503, "this process does not decide now")
        if self.ledger.waiting >= _WAITING_MAX:
            raise HttpError(503, f"{_WAITING_MAX} admitted writes were not seen stored: no more are judged")

    def _admit(self, asked: Asked, held: tuple[Held, ...]) -> None:
        if asked.is_dry_run:
            return
        self._last_admitted_at = self._clock.monotonic()
        self.ledger.admit(asked.claim, asked.base, held, self._last_admitted_at)


def _claim_id(key: str) -> ClaimID:
    namespace, _, name = key.partition("/")
    return ClaimID(namespace, name)


def _spec_of_shared(slice_: Object) -> Object:
    """The part of a slice that the ledger needs: devices that share nothing are dropped."""
    spec = slice_.get("spec") or {}
    devices = spec.get("devices") or ()
    shared = [each for each in devices if each.get("consumesCounters") or each.get("allowMultipleAllocations")]
    return {**{key: spec[key] for key in ("driver", "pool", "sharedCounters") if key in spec}, "devices": shared}
