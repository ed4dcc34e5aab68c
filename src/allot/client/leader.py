"""Leader election on a Lease: at most one of all candidates leads.

The leader renews its lease; a candidate that sees it unchanged for its duration may take it. How long a lease has been
unchanged is measured by each candidate on its own monotonic clock from when it saw it, never by comparing times of different
machines: clocks may differ, jump and be set. They only need to run at about the same speed.

Compatible with client-go: candidates of both kinds can compete for one lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from allot.process.clock import Clock
from allot.process.ids import Ids

_log = logging.getLogger("allot.client")

JITTER_FACTOR = 1.2


class ElectionTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long a lease lasts, how long its leader tries to renew it, and the pause between attempts. client-go's defaults."""

    lease_duration_s: int = 15
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0

    def __post_init__(self) -> None:
        if self.lease_duration_s < 1 or self.retry_period_s <= 0:
            raise ValueError(f"election times must be positive and the lease at least a second, got {self}")
        if self.lease_duration_s <= self.renew_deadline_s:
            raise ValueError(
                f"lease duration {self.lease_duration_s} s must be longer than the renew deadline {self.renew_deadline_s} s"
            )
        if self.renew_deadline_s <= JITTER_FACTOR * self.retry_period_s:
            raise ValueError(
                f"renew deadline {self.renew_deadline_s} s must be longer than {JITTER_FACTOR} retry periods "
                f"of {self.retry_period_s} s"
            )


class LeaderElector:
    """One candidate. identity must be unique among the candidates."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: ElectionTimes | None = None,
        on_new_leader: Callable[[str], None] | None = None,
    ) -> None:
        if not identity:
            raise ValueError(f"lease {namespace}/{name}: expected an identity")
        self._leases = client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
        self._clock = clock
        self._ids = ids
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times if times is not None else ElectionTimes()
        self._on_new_leader = on_new_leader
        # The lease as last seen or written, and when that was.
        self._lease: dict[str, Any] | None = None
        self._observed_at = 0.0
        self._reported = ""
        # Whether the lease was free when this candidate took it, because its leader released it.
        self.was_given_back = False

    @property
    def leader(self) -> str:
        """The leader, as far as this candidate knows; empty if there is none."""
        return str(_spec(self._lease).get("holderIdentity") or "")

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads, as far as it knows."""
        return self.leader == self._identity

    @property
    def leads_surely(self) -> bool:
        """Whether no other candidate can lead right now: the lease is ours and has not expired, even if its renewal is late."""
        return self.is_leader and self._is_valid()

    async def run(self, lead: Callable[[], Awaitable[None]], on_stopped: Callable[[], None] | None = None) -> None:
        """Wait for the lease, then lead until `lead` ends, the lease is lost (lead is cancelled) or this is cancelled.

        When lead has ended, the lease is released, so that another candidate need not wait until it expires. on_stopped is always
        called at the end, even if this candidate never led.
        """
        try:
            await self._acquire()
            _log.info("%s: %s leads", self._described, self._identity)
            try:
                await self._lead(lead)
            finally:
                await self._release()
        finally:
            if on_stopped is not None:
                on_stopped()

    # --- phases ---

    async def _acquire(self) -> None:
        while not await self._try(self._times.renew_deadline_s):
            pause = self._times.retry_period_s
            await self._clock.sleep(pause * (1 + JITTER_FACTOR * self._ids.jitter()))

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        async def leading() -> None:
            await lead()

        async with asyncio.TaskGroup() as tasks:
            both = tasks.create_task(leading()), tasks.create_task(self._renew())
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()

    async def _renew(self) -> None:
        """Keep the lease; returns when it is lost."""
        while True:
            await self._clock.sleep(self._times.retry_period_s)
            deadline = self._clock.monotonic() + self._times.renew_deadline_s
            while not await self._try(deadline - self._clock.monotonic()):
                if self.leader and not self.is_leader:
                    _log.warning("%s: lost to %s", self._described, self.leader)
                    return
                if self._clock.monotonic() + self._times.retry_period_s >= deadline:
                    _log.warning("%s: not renewed within %g s", self._described, self._times.renew_deadline_s)
                    return
                await self._clock.sleep(self._times.retry_period_s)

    async def _release(self) -> None:
        """Release the lease if it is still ours. Conflicts come from a renewal in progress."""
        try:
            async with asyncio.timeout(self._times.renew_deadline_s):
                while self.is_leader:
                    try:
                        await self._write(holder="", duration_s=1, keeps_term=True, acquired=False)
                    except Conflict:
                        await self._read()
        except (ApiError, TimeoutError) as error:
            _log.warning("%s: not released: %s", self._described, error or "no answer in time")
        self._report()

    # --- one attempt ---

    async def _try(self, timeout_s: float) -> bool:
        """Acquire or renew the lease; returns whether that succeeded."""
        try:
            # An attempt that does not finish in time has failed. There is a minimum, or a late attempt could never succeed.
            async with asyncio.timeout(max(timeout_s, 0.1)):
                return await self._acquire_or_renew()
        except (Conflict, AlreadyExists):
            # Another candidate was faster.
            return False
        except (ApiError, TimeoutError) as error:
            _log.warning("%s: %s", self._described, error or "no answer in time")
            return False
        finally:
            self._report()

    async def _acquire_or_renew(self) -> bool:
        if self.is_leader and self._is_valid():
            # Most attempts renew an unchanged lease: write without reading.
            try:
                await self._write(holder=self._identity, keeps_term=True)
                return True
            except (Conflict, NotFound):
                pass
        try:
            await self._read()
        except NotFound:
            await self._create()
            return True
        if self.leader and not self.is_leader and self._is_valid():
            return False
        was_given_back = not self.leader
        await self._write(holder=self._identity, keeps_term=self.is_leader)
        self.was_given_back = was_given_back
        return True

    def _is_valid(self) -> bool:
        duration = _spec(self._lease).get("leaseDurationSeconds")
        seconds = duration if isinstance(duration, int) else self._times.lease_duration_s
        return self._clock.monotonic() < self._observed_at + seconds

    # --- the object ---

    async def _read(self) -> None:
        lease = await self._leases.get(self._name, self._namespace)
        if self._lease is None or _spec(lease) != _spec(self._lease):
            self._observed_at = self._clock.monotonic()
        self._lease = lease

    async def _create(self) -> None:
        started, now = self._clock.monotonic(), self._clock.now_micro()
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": self._times.lease_duration_s,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }
        self._lease = await self._leases.create(lease, self._namespace)
        self._observed_at = started

    async def _write(
        self, *, holder: str, keeps_term: bool, duration_s: int | None = None, acquired: bool = True
    ) -> None:
        """Replace the spec of the lease as last seen; Conflict if another candidate has changed it."""
        assert self._lease is not None, f"{self._described}: written before it was read"
        # Our own lease counts from before the request: others may see it before we receive the answer.
        started, now, old = self._clock.monotonic(), self._clock.now_micro(), _spec(self._lease)
        transitions = old.get("leaseTransitions")
        transitions = transitions if isinstance(transitions, int) else 0
        spec: dict[str, Any] = {
            **{key: old[key] for key in ("strategy", "preferredHolder") if key in old},
            "holderIdentity": holder,
            "leaseDurationSeconds": self._times.lease_duration_s if duration_s is None else duration_s,
            "acquireTime": old.get("acquireTime", now) if keeps_term and acquired else now,
            "renewTime": now,
            "leaseTransitions": transitions if keeps_term else transitions + 1,
        }
        self._lease = await self._leases.update({**self._lease, "spec": spec}, self._namespace)
        self._observed_at = started

    def _report(self) -> None:
        if self.leader != self._reported:
            self._reported = self.leader
            if self._on_new_leader is not None:
                self._on_new_leader(self.leader)

    @property
    def _described(self) -> str:
        return f"lease {self._namespace}/{self._name}"


def _spec(lease: dict[str, Any] | None) -> dict[str, Any]:
    spec = lease.get("spec") if lease is not None else None
    return spec if isinstance(spec, dict) else {}
