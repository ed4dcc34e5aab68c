"""Runs a reconciler: takes keys from informers through a work queue, executes actions, retries failures with backoff.

One loop takes keys and calls the reconciler, which is a plain function of the caches and needs no task; only writes
become tasks, for up to `concurrency` keys at once. A key is never processed twice at the same time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, get_args

import msgspec

from allot.client.api import Client
from allot.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from allot.client.events import EventRecorder
from allot.client.informer import Informer
from allot.client.informers import Informers
from allot.client.workqueue import RateLimiter, WorkQueue
from allot.controllers.action_executor import ActionExecutor
from allot.controllers.metrics import ControllerMetrics
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.actions import (
    Action,
    Answers,
    Create,
    Delete,
    Emit,
    LookUp,
    Patch,
    Question,
    RequeueAfter,
    Retry,
    Review,
    Together,
    Update,
    Write,
)
from allot.core.lifecycle.signing_requests import SIGNING_DURATION_S, SignCertificate
from allot.core.workloads.autoscaling.decision import SYNC_PERIOD_S
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import answer_or_none, result_or_none, supervise

_log = logging.getLogger("allot.controllers")

K = TypeVar("K", bound=Hashable)

CONCURRENCY = 50
# A reconciler that keeps looking up objects must eventually finish.
_ROUNDS_MAX = 8
_KEYS_PER_TICK = 100
# client-go limits the retries of all keys of a queue together to ten per second. Here each key backs off by itself; with a
# thousand pods per second, even a few lost races would wait for minutes behind that limit.
_RETRIES_PER_SECOND = 500.0
_RETRIES_BURST = 1000
_RETRY_MAX_S = 300.0
_WRITES = get_args(Write)
_QUESTIONS = get_args(Question)
_TASKS = (*_WRITES, Together, *_QUESTIONS)
_TOLD = (Create, Update, Patch, Delete)
# Concurrent requests for one key.
_TOGETHER_MAX = 64


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What every controller gets."""

    client: Client
    informers: Informers
    clock: Clock
    ids: Ids
    metrics: ControllerMetrics
    gates: FeatureGates = DEFAULT_GATES
    # For events: the reporting process.
    instance: str = "allot"
    # Creates the token of a service account for a Secret of that name; None if this process has no key for that.
    sign_token: Callable[[dict[str, Any], str], str] | None = None
    # The certificates with which pods verify the API server (PEM); empty if unknown.
    root_ca: str = ""
    # Signs a certificate (PEM); None if this process has no authority for that.
    sign_certificate: SignCertificate | None = None
    # Where volumes for folder claims are created; None if this process creates none.
    volume_folder: Path | None = None
    # The longest time for which certificates are signed.
    signing_duration_s: float = SIGNING_DURATION_S
    # How often each HorizontalPodAutoscaler is reconciled.
    hpa_sync_period_s: float = SYNC_PERIOD_S


class Runnable(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None:
        """Run."""


Reconcile = Callable[[K, Answers], Sequence[Action]]
# Called after each write: with the resulting object, or the error.
OnWritten = Callable[[Write, dict[str, Any] | None, ApiError | None], None]


class Controller(Generic[K]):
    """A reconciler with its queue. Handlers of informers put keys into `queue`."""

    def __init__(
        self,
        services: Services,
        reconcile: Reconcile[K],
        *,
        queue_name: str,
        component: str,
        waits_for: Sequence[Informer[Any]] = (),
        concurrency: int = CONCURRENCY,
        on_written: OnWritten | None = None,
        background: Sequence[Callable[[], Awaitable[None]]] = (),
        tells_notes_apart: bool = False,
    ) -> None:
        clock = services.clock
        self._clock = clock
        self._reconcile = reconcile
        self._name = queue_name
        self._waits_for = tuple(waits_for)
        self._concurrency = concurrency
        self._on_written = on_written
        self._background = tuple(background)
        self._executor = ActionExecutor(services.client)
        limiter: RateLimiter[K] = RateLimiter(
            clock, max_s=_RETRY_MAX_S, per_second=_RETRIES_PER_SECOND, burst=_RETRIES_BURST
        )
        self.queue: WorkQueue[K] = WorkQueue(clock, limiter=limiter, metrics=services.metrics.queue(queue_name))
        services.metrics.watch(queue_name, self.queue)
        # Keys in progress.
        self._taken: dict[K, None] = {}
        self.events = EventRecorder(
            services.client,
            clock,
            services.ids,
            controller=component,
            instance=services.instance,
            tells_notes_apart=tells_notes_apart,
        )

    async def run(self) -> None:
        """Wait until the caches are filled, then work until cancelled."""
        for informer in self._waits_for:
            await informer.wait_synced()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.events.run())
                for run in self._background:
                    tasks.create_task(supervise(f"controller {self._name}", run, self._clock))
                await self._work(tasks)
        finally:
            # The next run of the controller starts with the interrupted keys.
            for key in tuple(self._taken):
                self.queue.add(key)
                self._give_back(key)

    # --- inside ---

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        free = asyncio.Semaphore(self._concurrency)
        for count in itertools.count(1):
            await free.acquire()
            if count % _KEYS_PER_TICK == 0:
                await asyncio.sleep(0)
            key = await self.queue.get()
            self._taken[key] = None
            decided_at = self._clock.monotonic()
            actions = result_or_none(f"controller {self._name}: {key}", partial(self._reconcile, key, {}))
            if actions is not None and any(isinstance(action, _TASKS) for action in actions):
                tasks.create_task(self._perform(key, actions, decided_at, free))
                continue
            if actions is None:
                self._again(key)
            else:
                self._finish(key, actions, decided_at)
            self._give_back(key)
            free.release()

    async def _perform(self, key: K, actions: Sequence[Action], decided_at: float, free: asyncio.Semaphore) -> None:
        work = partial(self._carry_out, key, actions, decided_at)
        if await answer_or_none(f"controller {self._name}: {key}", work) is None:
            self._again(key)
        self._give_back(key)
        free.release()

    async def _carry_out(self, key: K, actions: Sequence[Action], decided_at: float) -> bool:
        """Execute everything in order, until something fails. True if the failure has been handled."""
        try:
            actions, decided_at = await self._answered(key, actions, decided_at)
            before: dict[str, Any] | None = None
            for action in actions:
                if isinstance(action, _WRITES):
                    before = await self._write(action, before)
                elif isinstance(action, Together):
                    await self._write_together(action)
        except (Conflict, NotFound, AlreadyExists) as error:
            # Another writer was first: the current state, or the next event, decides.
            _log.debug("controller %s: %s: looking again: %s", self._name, key, error)
            self._again(key)
            return True
        except ApiError as error:
            level = logging.DEBUG if is_about_a_dying_namespace(error) else logging.WARNING
            _log.log(level, "controller %s: %s: %s", self._name, key, error)
            self._again(key)
            return True
        self._finish(key, actions, decided_at)
        return True

    async def _answered(self, key: K, actions: Sequence[Action], decided_at: float) -> tuple[Sequence[Action], float]:
        """What to do once all questions are answered, and when that was decided."""
        answers: dict[Question, Any] = {}
        for _ in range(_ROUNDS_MAX):
            questions = [action for action in actions if isinstance(action, LookUp | Review) and action not in answers]
            if not questions:
                assert not any(isinstance(each, _QUESTIONS) for each in actions), f"{key}: asked again after the answer"
                return actions, decided_at
            for question in questions:
                answers[question] = await self._executor.ask(question)
            decided_at = self._clock.monotonic()
            actions = self._reconcile(key, answers)
        raise AssertionError(f"controller {self._name}: {key}: still asking after {_ROUNDS_MAX} rounds")

    async def _write_together(self, action: Together) -> None:
        """Execute all of them, or all up to a failing batch."""
        begin, size = 0, 1 if action.slow_start else len(action.writes)
        while begin < len(action.writes):
            batch = action.writes[begin : begin + size]
            failures: list[ApiError] = []
            for start in range(0, len(batch), _TOGETHER_MAX):
                writes = (self._write(write, None) for write in batch[start : start + _TOGETHER_MAX])
                outcomes = await asyncio.gather(*writes, return_exceptions=True)
                for outcome in outcomes:
                    if isinstance(outcome, ApiError):
                        failures.append(outcome)
                    elif isinstance(outcome, BaseException):
                        raise outcome
            if failures:
                raise failures[0]
            begin += len(batch)
            size *= 2

    async def _write(self, action: Write, before: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            after = await self._executor.write(action, before)
        except ApiError as error:
            if self._on_written is not None:
                self._on_written(action, None, error)
            told = action.on_failure if isinstance(action, _TOLD) else None
            is_lost_race = isinstance(error, AlreadyExists | Conflict)
            if told is not None and not is_lost_race and not is_about_a_dying_namespace(error):
                self._emit(msgspec.structs.replace(told, note=told.note + error.message))
            raise
        if self._on_written is not None:
            self._on_written(action, after, None)
        told = action.on_success if isinstance(action, _TOLD) else None
        if told is not None:
            made_up = _name_made_up(action, after)
            self._emit(msgspec.structs.replace(told, note=told.note + made_up) if made_up else told)
        return after

    def _finish(self, key: K, actions: Sequence[Action], decided_at: float) -> None:
        """The actions that need no server, after all that do. However long those took, a time counts from the decision."""
        failed = False
        for action in actions:
            if isinstance(action, Emit):
                self._emit(action)
            elif isinstance(action, RequeueAfter):
                self.queue.add_after(key, decided_at + action.seconds - self._clock.monotonic())
            elif isinstance(action, Retry):
                _log.info("controller %s: %s: %s", self._name, key, action.message)
                failed = True
        if failed:
            self._again(key)
        else:
            self.queue.forget(key)

    def _give_back(self, key: K) -> None:
        del self._taken[key]
        self.queue.done(key)

    def _again(self, key: K) -> None:
        self.queue.add_rate_limited(key)

    def _emit(self, event: Emit) -> None:
        self.events.record(event.regarding, event.type, event.reason, event.action, event.note, event.related)


def _name_made_up(action: Write, after: dict[str, Any] | None) -> str:
    """The name that the server generated for a new object."""
    if not isinstance(action, Create) or after is None or not isinstance(action.object, Mapping):
        return ""
    return "" if action.object["metadata"].get("name") else str(after["metadata"]["name"])


def is_about_a_dying_namespace(error: ApiError) -> bool:
    """A terminating namespace accepts no new objects, which the cache may not know yet: expected."""
    return any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes)
