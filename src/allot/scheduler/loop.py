"""The scheduler: takes units from the queue, decides, puts decisions into force, and has them written while it goes on.

Deciding is plain computation on what is in memory; several units are decided per breath of the event loop. Writing takes
time, so every placed pod has a task of its own, a bounded number of them at once; until its writes are done the pod counts as
placed (`Cluster.assume`). A placement that cannot be written is taken back and decided anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf

import msgspec
from prometheus_client import CollectorRegistry

from allot.client.api import Client
from allot.client.events import EventRecorder
from allot.client.informers import Informers
from allot.core.allocation import FIRST_FIT, PACK
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model.core_v1 import Pod
from allot.core.scheduling.claims import Claims
from allot.core.scheduling.decide import decide
from allot.core.scheduling.plan import Decision, Placement, Refusal
from allot.core.scheduling.queue import Attempt
from allot.core.scheduling.settings import Policy
from allot.core.scheduling.status import Status, Verdict
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import answer_or_none, result_or_none, supervise
from allot.scheduler.cache import SchedulerCache
from allot.scheduler.claim_writes import NotCommitted
from allot.scheduler.commit import Committer
from allot.scheduler.configuration import Profile, SchedulerConfiguration
from allot.scheduler.metrics import SchedulerMetrics
from allot.scheduler.reports import Reporter, text_of
from allot.scheduler.sources import Sources
from allot.scheduler.waits import ClaimWaits

_log = logging.getLogger("allot.scheduler")

# Pods whose placements are being written at once. More do not make the store faster; fewer would leave it idle.
WRITING_MAX = 256
# Then the others have their turn: watches bring news, writes go on.
_DECISIONS_PER_BREATH = 64
_BREATH_S = 0.005
# Somebody else was quicker: the watch will show it in a moment. A pod to which that happens again and again waits longer,
# and in the end as after any other failure.
_CONFLICT_PAUSE_S = 0.02
_CONFLICTS_MAX = 6
# An event may give hope to thousands of pods and room to one. So many of them are tried at once if there is nothing else to
# do; as long as that leads somewhere, more.
_EARLY_MAX = 16
# A claim or group may be made a moment after its pod; only after this a pod that waits for one is told. What controllers
# make may take longer when there is much to do, and they have their own events when they cannot.
GATED_GRACE_S = 5.0
_TEMPLATE_GRACE = 12
_EVENTS_MAX = 20_000
_INTERNAL = "internal error of the scheduler; its log says more"


class Scheduler:
    """Schedules the pods of its profiles' names. Run it; run it once."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock,
        ids: Ids,
        *,
        configuration: SchedulerConfiguration | None = None,
        gates: FeatureGates = DEFAULT_GATES,
        registry: CollectorRegistry | None = None,
        is_guarded: bool = False,
        instance: str = "allot",
        writing_max: int = WRITING_MAX,
        drain_s: float = 0.0,
        gated_grace_s: float = GATED_GRACE_S,
    ) -> None:
        """client: writes; informers: read, perhaps shared with others. is_guarded: the API server refuses to allocate what
        another claim holds (`Committer`). instance: which of several, for events. drain_s: how long what has begun may go on
        after the end; without it the end is that of a crash, which costs no more than some repeated work. gated_grace_s:
        how long a pod may wait for its claims before it is told."""
        self._client = client
        self._informers = informers
        self._clock = clock
        self._configuration = configuration if configuration is not None else SchedulerConfiguration()
        self._gates = gates
        self._is_guarded = is_guarded
        self._writing_max = writing_max
        self._drain_s = drain_s
        self._gated_grace_s = gated_grace_s
        in_domains = "TopologyAwareWorkloadScheduling" in gates
        self._profiles = {
            profile.scheduler_name: msgspec.structs.replace(
                profile, settings=msgspec.structs.replace(profile.settings, topology_placements=in_domains)
            )
            for profile in self._configuration.profiles
        }
        self._news = asyncio.Event()
        self._writing = 0
        self._early_left = _EARLY_MAX
        # Set once everything is known that was there at the start.
        self.synced = asyncio.Event()
        self.recorder = EventRecorder(
            client,
            clock,
            ids,
            controller=self._configuration.profiles[0].scheduler_name,
            instance=f"{self._configuration.profiles[0].scheduler_name}-{instance}",
            queue_max=_EVENTS_MAX,
        )
        self.cache = self._make_cache()
        self.metrics = SchedulerMetrics(
            registry if registry is not None else CollectorRegistry(),
            self.cache.queue.counts,
            self.cache.queue.refused_by,
            self.cache.sizes,
        )
        self.cache.on_requeued = self._requeued
        # Work done so far, for benchmarks.
        self.nodes_evaluated = 0
        self.search_steps = 0
        self._committer: Committer
        self._reporter: Reporter
        self._tasks: asyncio.TaskGroup

    def _make_cache(self) -> SchedulerCache:
        # Devices are chosen in one way for all profiles; nodes, in each profile's own.
        packs = any(profile.settings.policy is Policy.PACK for profile in self._configuration.profiles)

        def claims(changed: Callable[[str | None], None]) -> Claims:
            timeout_s = self._configuration.binding_timeout_s
            return Claims(self._gates, changed, policy=PACK if packs else FIRST_FIT, binding_timeout=timeout_s)

        return SchedulerCache(
            self._clock,
            frozenset(self._profiles),
            claims=claims,
            backoff=self._configuration.backoff,
            uses_groups="GenericWorkload" in self._gates,
            wake=self._news.set,
        )

    # --- running ---

    async def run(self) -> None:
        """Schedule until cancelled."""
        discovery = await self._client.discovery()
        sources = Sources(self._informers, discovery)
        waits = sources.connect(self.cache)
        self._connect(waits)
        try:
            await sources.wait_synced()
            self.synced.set()
            _log.info("scheduling the pods of %s", ", ".join(self._profiles))
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self.recorder.run())
                tasks.create_task(supervise("reports on gated pods", self._report_gated, self._clock))
                try:
                    await self._schedule()
                except asyncio.CancelledError:
                    await self._drain()
                    raise
        finally:
            self.synced.clear()
            sources.disconnect()

    def _connect(self, waits: ClaimWaits) -> None:
        self._committer = Committer(
            self._client,
            self.cache.claims,
            waits,
            self._clock,
            self.recorder,
            self.metrics,
            binding_timeout_s=self._configuration.binding_timeout_s,
            stamps="DRADeviceBindingConditions" in self._gates,
            is_guarded=self._is_guarded,
        )
        self._reporter = Reporter(self._client, self._committer.claim_writes, self._clock, self.recorder)

    async def _schedule(self) -> None:
        while True:
            self._news.clear()
            if self._decide_some():
                # Let others have their turn: watches, writes.
                await asyncio.sleep(0)
            else:
                await self._wait_for_news()

    async def _drain(self) -> None:
        """Let writes that are under way come to an end, and events be sent."""
        if not self._drain_s:
            return
        try:
            async with asyncio.timeout(self._drain_s):
                while self._writing:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            _log.warning("%d pods were still being written", self._writing)
        await self.recorder.flush(self._drain_s)

    async def _wait_for_news(self) -> None:
        next_at = self.cache.queue.next_at() if self._writing < self._writing_max else None
        if next_at is None:
            await self._news.wait()
            return
        try:
            async with asyncio.timeout(max(next_at - self._clock.monotonic(), 0.0)):
                await self._news.wait()
        except TimeoutError:
            return

    def _decide_some(self) -> int:
        """Decide as many units as there are, up to a breath's worth; how many."""
        queue, clock = self.cache.queue, self._clock
        started = now = clock.monotonic()
        for count in range(_DECISIONS_PER_BREATH):
            if self._writing >= self._writing_max or now - started > _BREATH_S:
                return count
            attempt = queue.pop(now, early=not self._writing and self._early_left > 0)
            if attempt is None:
                return count
            self._early_left -= attempt.is_early
            self._decide(attempt, now)
            now = clock.monotonic()
        return _DECISIONS_PER_BREATH

    def _requeued(self, event: str, units: int) -> None:
        self._early_left = _EARLY_MAX
        self.metrics.requeued(event, units)

    # --- deciding ---

    def _decide(self, attempt: Attempt, started: float) -> None:
        unit = attempt.unit
        profile = self._profiles[unit.pods[0].spec.scheduler_name]
        ask = partial(decide, self.cache.cluster, unit, profile.settings, self._clock.seconds())
        decision = result_or_none(f"deciding {attempt.key}", ask)
        if decision is None:
            refusals = tuple(Refusal(pod=pod, verdict=Verdict.ERROR, message=_INTERNAL) for pod in unit.pods)
            decision = Decision(refusals=refusals)
        now = self._clock.monotonic()
        self.nodes_evaluated += decision.nodes_evaluated
        self.search_steps += decision.search_steps
        self.metrics.decided(decision, profile.scheduler_name, now - started)
        for placement in decision.placements:
            self.cache.cluster.assume(placement)
            self._early_left = _EARLY_MAX
        placed = [placement.pod for placement in decision.placements]
        self.cache.queue.decided(attempt, placed, decision.refusals, now)
        for placement in decision.placements:
            self._writing += 1
            self._tasks.create_task(self._write(placement, profile, started))
        for refusal in decision.refusals:
            self._refuse(refusal)
        if decision.group is not None:
            self._in_background(f"pod group of {attempt.key}", partial(self._reporter.write_group, decision.group))
        if _log.isEnabledFor(logging.INFO):
            _log_decision(decision)

    def _refuse(self, refusal: Refusal) -> None:
        self._reporter.event(refusal)
        if refusal.nominated_node:
            self.cache.nominate(refusal.pod, refusal.nominated_node)
        if self._reporter.needs_writing(refusal):
            self._in_background(f"refusal of {_name(refusal.pod)}", partial(self._report, refusal))

    async def _report(self, refusal: Refusal) -> None:
        if not await self._reporter.write(refusal):
            self.cache.queue.retry(_name(refusal.pod), self._clock.monotonic())
            self._news.set()

    # --- writing ---

    async def _write(self, placement: Placement, profile: Profile, started: float) -> None:
        """From decision to binding; whatever happens, the pod is accounted for afterwards."""
        bind_started = self._clock.monotonic()
        pod = placement.pod
        try:
            outcome = await answer_or_none(f"writing {_name(pod)}", partial(self._commit, placement))
        finally:
            self._writing -= 1
            self._news.set()
        now = self._clock.monotonic()
        if isinstance(outcome, str):
            self._written(placement, outcome, profile, started, bind_started)
            return
        self.cache.cluster.forget(placement)
        attempts = self.cache.queue.attempts(_name(pod))
        again = outcome is not None and outcome.is_conflict and attempts <= _CONFLICTS_MAX
        self.cache.queue.failed(pod, now, pause_s=_CONFLICT_PAUSE_S * 2.0**attempts if again else None)
        self.metrics.failed(profile.scheduler_name, now - started)
        message = str(outcome) if outcome is not None else _INTERNAL
        _log.info("pod %s not bound to %s: %s", _name(pod), placement.node, message)
        if not again and self.cache.queue.place(_name(pod)) is not None:
            await self._report_failure(pod, message)

    async def _commit(self, placement: Placement) -> NotCommitted | str:
        try:
            return await self._committer.commit(placement)
        except NotCommitted as error:
            return error

    def _written(self, placement: Placement, node: str, profile: Profile, started: float, bind_started: float) -> None:
        pod, now = placement.pod, self._clock.monotonic()
        member = self.cache.queue.written(pod)
        if node != placement.node:
            # Another scheduler has put it elsewhere; the watch will show where.
            self.cache.cluster.forget(placement)
            return
        note = f"Successfully assigned {_name(pod)} to {node}"
        self.recorder.record(pod, "Normal", "Scheduled", "Binding", note)
        attempts = member.attempts if member is not None else 1
        since = member.since if member is not None else started
        self.metrics.bound(profile.scheduler_name, now - started, now - bind_started, attempts, now - since)

    async def _report_failure(self, pod: Pod, message: str) -> None:
        refusal = Refusal(pod=pod, verdict=Verdict.ERROR, message=message)
        self._reporter.event(refusal)
        await self._reporter.write(refusal)

    def _in_background(self, name: str, ask: Callable[[], Awaitable[None]]) -> None:
        self._tasks.create_task(_ignoring_failure(name, ask))

    async def _report_gated(self) -> None:
        while True:
            await self._clock.sleep(self._gated_grace_s / 2)
            for pod, status in self.cache.queue.long_gated(self._clock.monotonic(), self._patience_s):
                self._reporter.gated(pod, status)

    def _patience_s(self, status: Status) -> float:
        if status.plugin == "SchedulingGates":
            # They are there on purpose.
            return inf
        is_made_by_controller = any(reason.endswith("not created yet") for reason in status.reasons)
        return self._gated_grace_s * (_TEMPLATE_GRACE if is_made_by_controller else 1)


async def _ignoring_failure(name: str, ask: Callable[[], Awaitable[None]]) -> None:
    await answer_or_none(name, ask)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _log_decision(decision: Decision) -> None:
    """One line for each decision about devices, with DRA in it: people look for that."""
    for placement in decision.placements:
        if placement.claims or placement.extended is not None:
            _log.info("DRA: pod %s to node %s: %s", _name(placement.pod), placement.node, _devices_of(placement))
    for refusal in decision.refusals:
        if "DynamicResources" in refusal.plugins:
            _log.info("DRA: pod %s not placed: %s", _name(refusal.pod), text_of(refusal))


def _devices_of(placement: Placement) -> str:
    """Each claim with the devices that it gets or has."""
    allocations = [(step.claim.metadata.name, step.allocation) for step in placement.claims]
    if placement.extended is not None:
        allocations.append(("for extended resources", placement.extended.allocation))
    told = []
    for name, allocation in allocations:
        results = allocation.devices.results if allocation is not None else ()
        devices = ", ".join(f"{result.driver}/{result.pool}/{result.device}" for result in results)
        told.append(f"claim {name} gets {devices}" if devices else f"claim {name} is allocated already")
    return "; ".join(told)
