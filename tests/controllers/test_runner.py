"""How a runner treats what a reconciler wants: in order, again after failures, never twice at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client
from allot.client.errors import ApiError
from allot.client.transport import Response
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import (
    WARNING,
    Action,
    Answers,
    Create,
    Delete,
    Emit,
    LookUp,
    RemoveFinalizer,
    RequeueAfter,
    Resource,
    Retry,
    Update,
    Write,
)
from allot.process.clock import ManualClock
from controllers.cluster import Cluster, Hooked, Send, cluster, pod
from waiting import until

MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True)


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class Recorder:
    """A controller whose reconciler is a function of how often it was asked, with all rights."""

    def __init__(self, answer: Callable[[int, Answers], tuple[Action, ...]], concurrency: int = 50) -> None:
        self._answer = answer
        self._concurrency = concurrency
        self.asked: list[tuple[str, dict[LookUp, Any]]] = []
        self.written: list[tuple[Write, ApiError | None]] = []
        self.controller: Controller[str] | None = None

    def make(self, services: Services) -> Controller[str]:
        self.controller = Controller(
            services,
            self._reconcile,
            queue_name="test",
            component="test",
            concurrency=self._concurrency,
            on_written=lambda action, _, error: self.written.append((action, error)),
        )
        self.controller.queue.add("key")
        return self.controller

    def is_at_rest(self) -> bool:
        """Whether nothing waits, is worked on or comes again after a failure."""
        assert self.controller is not None
        queue = self.controller.queue
        return not (len(queue) or queue.working_s() or queue.failures("key"))

    def _reconcile(self, key: str, answers: Answers) -> tuple[Action, ...]:
        self.asked.append((key, dict(answers)))
        return self._answer(len(self.asked), answers)


async def asked(recorder: Recorder, times: int) -> bool:
    return len(recorder.asked) >= times


async def has_written(recorder: Recorder, times: int) -> bool:
    return len(recorder.written) >= times


async def run(made: Cluster, recorder: Recorder, times: int) -> None:
    """Until the reconciler was asked so often, and what followed is done."""
    async with made.running({"test": recorder.make}, through=lambda _: made.client):
        await until(lambda: asked(recorder, times))
        await until(recorder.is_at_rest)


@pytest.mark.slow
async def test_the_runner_does_what_reconcilers_want(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        maps = made.client.resource("", "v1", "configmaps", namespaced=True)
        await maps.create(config_map("there", a="1"))
        there = await maps.get("there", "default")

        # A question is answered at once, and what came with it is decided anew.
        question = LookUp(resource=MAPS, name="there", namespace="default")
        missing = LookUp(resource=MAPS, name="missing", namespace="default")
        curious = Recorder(lambda _, answers: () if answers else (question, missing, Retry(message="not carried out")))
        await run(made, curious, 2)
        assert curious.asked[0] == ("key", {})
        assert curious.asked[1][1] == {question: there, missing: None}
        assert len(curious.asked) == 2

        # A conflict breaks the sequence off, without a word, and the reconciler is asked again.
        stale = Update(resource=MAPS, object={**there, "metadata": {**there["metadata"], "resourceVersion": "1"}})
        never = Delete(resource=MAPS, name="there", namespace="default")
        late = Recorder(lambda count, _: (stale, never) if count == 1 else ())
        await run(made, late, 2)
        assert [type(error).__name__ for _, error in late.written] == ["Conflict"]
        assert await maps.get("there", "default")

        # A later write follows the version that an earlier one has made; what is gone already is fine.
        held = {**there["metadata"], "finalizers": ["example.com/a", "example.com/b"]}
        first = Update(resource=MAPS, object={**there, "metadata": held, "data": {"a": "2"}})
        second = RemoveFinalizer(resource=MAPS, object=there, finalizer="example.com/a", follows=True)
        gone = Delete(resource=MAPS, name="never-there", namespace="default")
        vain = RemoveFinalizer(resource=MAPS, object=there, finalizer="example.com/b", follows=True)
        chain = Recorder(lambda count, _: (first, second, gone, vain) if count == 1 else ())
        await run(made, chain, 1)
        changed = await maps.get("there", "default")
        assert (changed["data"], changed["metadata"]["finalizers"]) == ({"a": "2"}, ["example.com/b"])
        assert [error for _, error in chain.written] == [None] * 4

        # A refusal is told, with the server's words, and tried again later and later.
        victim = await made.create("pods", pod("victim"))
        told = Emit(regarding=victim, type=WARNING, reason="Refused", action="Try", note="tried: ")
        bad = Create(resource=MAPS, object=config_map("Bad_Name"), namespace="default", on_failure=told)
        refused = Recorder(lambda count, _: (bad,) if count <= 3 else ())
        await run(made, refused, 4)
        notes = await made.events("Refused")
        assert len(notes) == 1 and notes[0].startswith('tried: ConfigMap "Bad_Name" is invalid')

        # A reconciler that fails itself does not end the controller.
        def stumble(count: int, _: Answers) -> tuple[Action, ...]:
            if count == 1:
                raise RuntimeError("our own fault")
            return (RequeueAfter(seconds=0.001),) if count == 2 else (Retry(message="x"),) if count == 3 else ()

        clumsy = Recorder(stumble)
        await run(made, clumsy, 4)
        assert [key for key, _ in clumsy.asked] == ["key"] * 4
        assert 'workqueue_retries_total{name="test"} 2.0' in made.metrics()


async def test_only_so_many_keys_are_written_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        running, most = 0, 0

        async def around(_method: str, _path: str, send: Send) -> Response:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return await send()

        class Busy(Recorder):
            def make(self, services: Services) -> Controller[str]:
                controller = super().make(services)
                for number in range(20):
                    controller.queue.add(f"key-{number}")
                return controller

        delete = Delete(resource=MAPS, name="never-there", namespace="default")
        busy = Busy(lambda _count, _answers: (delete,), concurrency=3)
        async with made.running({"test": busy.make}, through=lambda _: Client(Hooked(made.client.transport, around))):
            await until(lambda: has_written(busy, 21))
            assert 'workqueue_unfinished_work_seconds{name="test"}' in made.metrics()
            assert 'workqueue_longest_running_processor_seconds{name="test"} 0.0' in made.metrics()
        assert most == 3
        assert [error for _, error in busy.written] == [None] * 21


async def test_a_time_counts_from_the_decision_however_long_its_writes_take(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        clock = ManualClock()

        async def around(_method: str, _path: str, send: Send) -> Response:
            clock.advance(3600)
            return await send()

        create = Create(resource=MAPS, object=config_map("slow"), namespace="default")
        late = Recorder(lambda count, _: (create, RequeueAfter(seconds=3600)) if count == 1 else ())
        slow = Client(Hooked(made.client.transport, around))
        async with made.running({"test": late.make}, through=lambda _: slow, clock=clock):
            assert await until(lambda: asked(late, 2))


async def test_what_was_interrupted_comes_again_when_the_controller_runs_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        stopped = asyncio.Event()

        async def around(_method: str, _path: str, send: Send) -> Response:
            if not stopped.is_set():
                stopped.set()
                await asyncio.Event().wait()
            return await send()

        delete = Delete(resource=MAPS, name="never-there", namespace="default")
        recorder = Recorder(lambda count, _: (delete,) if count <= 2 else ())

        def once(services: Services) -> Controller[str]:
            return recorder.controller or recorder.make(services)

        client = Client(Hooked(made.client.transport, around))
        async with made.running({"test": once}, through=lambda _: client):
            await stopped.wait()
        assert recorder.written == []
        async with made.running({"test": once}, through=lambda _: client):
            await until(lambda: has_written(recorder, 1))
        assert [key for key, _ in recorder.asked] == ["key", "key"]
