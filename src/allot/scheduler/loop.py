"""The scheduler around its machine: feeds it with changes, writes its decisions, and reports the results back.

Deciding is plain computation on what is in memory (`core.scheduling.machine`); several units are decided per tick of the event
loop. Writing takes time, so every placed pod has its own task, a limited number at once; until its writes are
done the machine counts the pod as placed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from allot.client.api import Client
from allot.client.events import EventRecorder
from allot.client.informer import Change
from allot.client.informers import Informers
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model.classic import GATE
from allot.core.scheduling import (
    QUEUE_ORDERS,
    Bound,
    Decision,
    DecisionFailed,
    GroupOutcome,
    Machine,
    NotBound,
    Placement,
    Refusal,
    device_policy,
    under,
)
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import answer_or_none, supervise
from allot.scheduler.claim_writes import NotCommitted
from allot.scheduler.commit import Committer
from allot.scheduler.configuration import SchedulerConfiguration
from allot.scheduler.foreign_status import ForeignStatus
from allot.scheduler.late_kinds import LateKinds
from allot.scheduler.log import log_decision, name_of
from allot.scheduler.metrics import SchedulerMetrics
from allot.scheduler.negotiating import Negotiator
from allot.scheduler.reports import Reporter
from allot.scheduler.sources import Sources
from allot.scheduler.volume_writes import VolumeWrites
from allot.scheduler.waits import ChangeWaits, ClaimWaits

_log = logging.getLogger("allot.scheduler")

# Then yield to others: watches deliver events, writes continue.
_DECISIONS_PER_TICK = 64
_TICK_S = 0.005
_EVENTS_MAX = 20_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a scheduler runs, as opposed to how it decides."""

    # The API server refuses to allocate what another claim holds (`Committer`).
    is_guarded: bool = False
    # Identifies one of several schedulers, for events.
    instance: str = "allot"
    # Pods whose placements are being written at once. More do not make the store faster; fewer would leave it idle.
    writing_max: int = 256
    # How long writes in progress may continue at shutdown; without it, shutdown is like a crash, which only costs some
    # repeated work.
    drain_s: float = 0.0
    # A claim or group may be created a moment after its pod; a pod that waits for one gets an event only after this.
    gated_grace_s: float = 5.0
    # How often to ask the server for kinds of other schedulers that it did not have at startup.
    late_kinds_s: float = 5.0


class Scheduler:
    """Schedules the pods of its profiles' names. Run it; run it once."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock,
        ids: Ids,
        configuration: SchedulerConfiguration | None = None,
        gates: FeatureGates = DEFAULT_GATES,
        *,
        options: Options | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """client: for writes; informers: for reads, perhaps shared with others."""
        self._client = client
        self._informers = informers
        self._clock = clock
        self._configuration = configuration if configuration is not None else SchedulerConfiguration()
        self._gates = gates
        self._options = options if options is not None else Options()
        self.machine = _machine_of(self._configuration, gates)
        self._news = asyncio.Event()
        # Set once everything that existed at startup is known.
        self.synced = asyncio.Event()
        name = self._configuration.profiles[0].scheduler_name
        self.recorder = EventRecorder(
            client,
            clock,
            ids,
            controller=name,
            instance=f"{name}-{self._options.instance}",
            queue_max=_EVENTS_MAX,
        )
        self.metrics = SchedulerMetrics(
            registry if registry is not None else CollectorRegistry(),
            self.machine.queue.counts,
            self.machine.queue.refused_by,
            self.machine.sizes,
        )
        # Work done so far, for benchmarks.
        self.nodes_evaluated = 0
        self.search_steps = 0
        self._committer: Committer
        self._reporter: Reporter
        self._tasks: asyncio.TaskGroup
        self._late: LateKinds | None = None
        self._foreign: ForeignStatus | None = None
        self._negotiator = Negotiator(client, self.machine, clock, ids) if GATE in gates else None

    # --- running ---

    async def run(self) -> None:
        """Schedule until cancelled."""
        discovery = await self._client.discovery()
        sources = Sources(self._informers, discovery)
        late = LateKinds(self._client, sources, self._serve_late, self._clock, self._options.late_kinds_s)
        self._late = late
        self._connect(sources.connect(self._changed, self.machine.serve), sources.volume_waits)
        try:
            await sources.wait_synced()
            self.synced.set()
            names = ", ".join(profile.scheduler_name for profile in self._configuration.profiles)
            _log.info("scheduling the pods of %s", names)
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self.recorder.run())
                tasks.create_task(supervise("reports on gated pods", self._report_gated, self._clock))
                self._foreign = ForeignStatus(self._client, self.machine, sources, self._clock)
                tasks.create_task(supervise("status of other schedulers' objects", self._foreign.run, self._clock))
                if self._negotiator is not None:
                    run = self._negotiator.run
                    tasks.create_task(supervise("negotiations with drivers' controllers", run, self._clock))
                tasks.create_task(supervise("kinds that come later", partial(late.run, self._apply), self._clock))
                try:
                    await self._schedule()
                except asyncio.CancelledError:
                    await self._drain()
                    raise
        finally:
            self.synced.clear()
            sources.disconnect()

    def _connect(self, waits: ClaimWaits, volume_waits: ChangeWaits) -> None:
        self._committer = Committer(
            self._client,
            self.machine.claims,
            waits,
            self._clock,
            self.recorder,
            self.metrics,
            volumes=VolumeWrites(self._client, self.machine.cluster, volume_waits, self._clock),
            binding_timeout_s=self._configuration.binding_timeout_s,
            stamps="DRADeviceBindingConditions" in self._gates,
            is_guarded=self._options.is_guarded,
        )
        self._reporter = Reporter(self._client, self._committer.claim_writes, self._clock, self.recorder)

    def _serve_late(self, api_group: str) -> None:
        _log.info("reading pod groups of %s", api_group)
        self.machine.serve(api_group, self._clock.monotonic())

    def _changed(self, change: Change[Any]) -> None:
        if self._late is None or not self._late.hold(change):
            self._apply(change)

    def _apply(self, change: Change[Any]) -> None:
        applied = self.machine.apply(change, self._clock.monotonic())
        if applied.units:
            self.metrics.requeued(applied.event, applied.units)
        if applied.wakes:
            self._news.set()
        if self._foreign is not None:
            self._foreign.changed()
        if self._negotiator is not None:
            self._negotiator.changed()

    async def _schedule(self) -> None:
        while True:
            self._news.clear()
            if self._decide_some():
                # Yield to watches and writes.
                await asyncio.sleep(0)
            else:
                await self._wait_for_news()

    async def _drain(self) -> None:
        """Finish writes in progress, and send events."""
        drain_s = self._options.drain_s
        if not drain_s:
            return
        try:
            async with asyncio.timeout(drain_s):
                while self.machine.in_flight:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            _log.warning("%d pods were still being written", self.machine.in_flight)
        await self.recorder.flush(drain_s)

    async def _wait_for_news(self) -> None:
        next_at = self.machine.next_at() if self.machine.in_flight < self._options.writing_max else None
        if next_at is None:
            await self._news.wait()
            return
        try:
            async with asyncio.timeout(max(next_at - self._clock.monotonic(), 0.0)):
                await self._news.wait()
        except TimeoutError:
            return

    # --- deciding ---

    def _decide_some(self) -> int:
        """Decide all waiting units, up to a tick's worth. Returns how many."""
        machine, clock = self.machine, self._clock
        began = now = clock.monotonic()
        for count in range(_DECISIONS_PER_TICK):
            if machine.in_flight >= self._options.writing_max or now - began > _TICK_S:
                return count
            started = now
            try:
                decision = machine.next(now, clock.seconds())
            except DecisionFailed as failure:
                _log.exception("%s", failure)
                decision = failure.decision
            if decision is None:
                return count
            now = clock.monotonic()
            self._carry_out(decision, started, now)
        return _DECISIONS_PER_TICK

    def _carry_out(self, decision: Decision, started: float, now: float) -> None:
        self.nodes_evaluated += decision.nodes_evaluated
        self.search_steps += decision.search_steps
        self.metrics.decided(decision, now - started)
        if self._foreign is not None:
            self._foreign.decided(decision)
        writes = [self._tasks.create_task(self._write(placement, started)) for placement in decision.placements]
        for refusal in decision.refusals:
            self._reporter.event(refusal)
            if self._reporter.needs_writing(refusal):
                self._in_background(f"refusal of {name_of(refusal.pod)}", partial(self._report, refusal))
        for victim in decision.given_up:
            self._in_background(f"end of {name_of(victim.pod)}", partial(self._reporter.give_up, victim))
        for outcome in (
            (decision.group, *decision.groups_below) if decision.group is not None else decision.groups_below
        ):
            assert outcome is not None, "left out above"
            self._in_background(f"pod group {name_of(outcome.group)}", partial(self._report_group, outcome, writes))
        if _log.isEnabledFor(logging.INFO):
            log_decision(decision)

    async def _report(self, refusal: Refusal) -> None:
        if not await self._reporter.write(refusal):
            self.machine.retry(refusal.pod, self._clock.monotonic())
            self._news.set()

    async def _report_group(self, outcome: GroupOutcome, writes: Sequence[asyncio.Task[None]]) -> None:
        """Write that a group has what it needs only when its pods are bound: a scheduler that ends before that leaves a group
        whose status says it never had it, so that what it holds is released if it cannot be completed."""
        if outcome.status == "True":
            if writes:
                await asyncio.wait(writes)
            if not self.machine.has_minimum(outcome.group):
                return
        await self._reporter.write_group(outcome)

    # --- writing ---

    async def _write(self, placement: Placement, started: float) -> None:
        """From decision to binding; whatever happens, the pod is accounted for afterwards."""
        bind_started = self._clock.monotonic()
        pod = placement.pod
        outcome: Bound | NotBound = NotBound()
        try:
            outcome = await answer_or_none(f"writing {name_of(pod)}", partial(self._commit, placement)) or outcome
        finally:
            now = self._clock.monotonic()
            settled = self.machine.settled(placement, outcome, now)
            self._news.set()
        profile = pod.spec.scheduler_name
        if isinstance(outcome, NotBound):
            self.metrics.failed(profile, now - started)
            _log.info("pod %s not bound to %s: %s", name_of(pod), placement.node, outcome.message)
            if settled.refusal is not None:
                self._reporter.event(settled.refusal)
                await self._reporter.write(settled.refusal)
        elif settled.is_bound:
            note = f"Successfully assigned {name_of(pod)} to {placement.node}"
            self.recorder.record(pod, "Normal", "Scheduled", "Binding", note)
            since = settled.since if settled.since is not None else started
            self.metrics.bound(profile, now - started, now - bind_started, settled.attempts, now - since)

    async def _commit(self, placement: Placement) -> Bound | NotBound:
        try:
            return Bound(await self._committer.commit(placement))
        except NotCommitted as error:
            return NotBound(message=str(error), is_conflict=error.is_conflict)

    def _in_background(self, name: str, ask: Callable[[], Awaitable[None]]) -> None:
        self._tasks.create_task(_ignoring_failure(name, ask))

    async def _report_gated(self) -> None:
        grace_s = self._options.gated_grace_s
        while True:
            await self._clock.sleep(grace_s / 2)
            for pod, status in self.machine.long_gated(self._clock.monotonic(), grace_s):
                self._reporter.gated(pod, status)


def _machine_of(configuration: SchedulerConfiguration, gates: FeatureGates) -> Machine:
    settings = {profile.scheduler_name: under(gates, profile.settings) for profile in configuration.profiles}
    return Machine(
        settings.get,
        gates,
        device_policy=device_policy(settings.values()),
        binding_timeout_s=configuration.binding_timeout_s,
        backoff=configuration.backoff,
        order=QUEUE_ORDERS[configuration.queue_sort](),
    )


async def _ignoring_failure(name: str, ask: Callable[[], Awaitable[None]]) -> None:
    await answer_or_none(name, ask)
