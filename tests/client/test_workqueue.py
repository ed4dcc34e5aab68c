"""Work queues: nothing twice at a time, nothing lost, later when asked."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.client.backoff import Backoff, TokenBucket
from allot.client.workqueue import QueueShutDown, RateLimiter, WorkQueue
from allot.process.clock import ManualClock
from allot.process.ids import CountingIds
from waiting import WAIT_S


async def given_time() -> None:
    """Let everything that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_item_that_waits_is_not_added_again() -> None:
    queue: WorkQueue[str] = WorkQueue(ManualClock())
    for item in ("a", "b", "a"):
        queue.add(item)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_an_item_added_while_it_is_worked_on_comes_again_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue(ManualClock())
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1
    await queue.get()
    queue.done("a")
    assert len(queue) == 0


async def test_an_item_for_later_comes_later_and_the_earliest_time_counts() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 7)
    queue.add_after("b", 6)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(queue.get())
        await given_time()
        clock.advance(4.9)
        await given_time()
        assert not first.done()
        clock.advance(0.2)
        assert await first == "a"
        second = tasks.create_task(queue.get())
        clock.advance(1)
        assert await second == "b"
        queue.done("a")
        third = tasks.create_task(queue.get())
        await given_time()
        clock.advance(100)
        await given_time()
        assert not third.done()
        third.cancel()


async def test_something_new_wakes_whoever_waits_for_something_later() -> None:
    queue: WorkQueue[str] = WorkQueue(ManualClock())
    queue.add_after("late", 100)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(queue.get())
        await given_time()
        queue.add("now")
        assert await waiting == "now"


async def test_times_that_are_moved_forward_do_not_pile_up() -> None:
    queue: WorkQueue[str] = WorkQueue(ManualClock())
    for seconds in range(10_000, 0, -1):
        queue.add_after("a", seconds)
    assert len(queue._later) < 100


async def test_failures_wait_longer_each_time_and_success_forgets_them() -> None:
    clock = ManualClock()
    limiter: RateLimiter[str] = RateLimiter(clock, first_s=1, max_s=60, per_second=1000, burst=1000)
    assert [limiter.delay_s("a") for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert limiter.delay_s("b") == 1
    assert limiter.failures("a") == 8
    limiter.forget("a")
    assert limiter.delay_s("a") == 1
    for _ in range(5000):
        limiter.delay_s("c")
    assert limiter.delay_s("c") == 60


async def test_all_failures_together_are_limited_too() -> None:
    limiter: RateLimiter[int] = RateLimiter(ManualClock(), first_s=0.001, per_second=10, burst=3)
    delays = [limiter.delay_s(number) for number in range(6)]
    assert delays == [0.001, 0.001, 0.001, pytest.approx(0.1), pytest.approx(0.2), pytest.approx(0.3)]


async def test_a_shut_down_queue_gives_out_what_it_has() -> None:
    queue: WorkQueue[str] = WorkQueue(ManualClock())
    queue.add("a")
    queue.add_after("later", 5)
    queue.shut_down()
    queue.add("b")
    queue.add_after("c", 1)
    assert await queue.get() == "a"
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_shutting_down_wakes_all_workers() -> None:
    queue: WorkQueue[str] = WorkQueue(ManualClock())
    queue.add_after("later", 5)

    async def work() -> None:
        with pytest.raises(QueueShutDown):
            await queue.get()

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(work())
        await given_time()
        queue.shut_down()


async def test_draining_waits_for_the_work_to_be_done() -> None:
    queue: WorkQueue[str] = WorkQueue(ManualClock())
    for item in "abc":
        queue.add(item)
    finished: list[str] = []

    async def work() -> None:
        try:
            while True:
                item = await queue.get()
                await asyncio.sleep(0)
                finished.append(item)
                queue.done(item)
        except QueueShutDown:
            pass

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(work())
        await queue.drain()
        assert sorted(finished) == ["a", "b", "c"]


async def test_what_can_be_measured_is() -> None:
    clock = ManualClock()

    class Metrics:
        def __init__(self) -> None:
            self.told: list[tuple[str, float]] = []

        def added(self, depth: int) -> None:
            self.told.append(("added", depth))

        def taken(self, depth: int, waited_s: float) -> None:
            self.told.append((f"taken {depth}", waited_s))

        def done(self, worked_s: float) -> None:
            self.told.append(("done", worked_s))

        def retried(self) -> None:
            self.told.append(("retried", 0))

    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue(clock, metrics=metrics)
    queue.add("a")
    clock.advance(2)
    await queue.get()
    clock.advance(3)
    queue.done("a")
    queue.add_rate_limited("a")
    assert metrics.told == [("added", 1), ("taken 0", 2), ("done", 3), ("retried", 0)]


@pytest.mark.slow
@settings(max_examples=60)
@given(added=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40), workers=st.integers(1, 4))
def test_no_item_is_worked_on_twice_at_a_time_and_none_is_lost(added: list[tuple[int, int]], workers: int) -> None:
    async def play() -> None:
        clock = ManualClock()
        queue: WorkQueue[int] = WorkQueue(clock)
        # For each item: how often it was added, as seen by the last worker that had it.
        count: dict[int, int] = {}
        seen: dict[int, int] = {}
        busy: set[int] = set()

        async def work() -> None:
            try:
                while True:
                    item = await queue.get()
                    assert item not in busy
                    busy.add(item)
                    seen[item] = count[item]
                    for _ in range(item):
                        await asyncio.sleep(0)
                    busy.remove(item)
                    queue.done(item)
            except QueueShutDown:
                pass

        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
            for _ in range(workers):
                tasks.create_task(work())
            for item, delay in added:
                count[item] = count.get(item, 0) + 1
                queue.add_after(item, delay)
                await asyncio.sleep(0)
                clock.advance(0.5)
            for _ in range(10):
                clock.advance(1)
                await given_time()
            await queue.drain()
        assert seen == count

    asyncio.run(play())


def test_pauses_grow_are_spread_and_start_anew_after_a_quiet_time() -> None:
    async def play() -> None:
        clock = ManualClock()
        backoff = Backoff(clock, CountingIds(), first_s=1, max_s=4, jitter=0.5, reset_s=60)
        assert [backoff.next_s() for _ in range(4)] == [1.25, 2.5, 5, 5]
        clock.advance(61)
        assert backoff.next_s() == 1.25
        backoff.next_s()
        backoff.reset()
        assert backoff.next_s() == 1.25

    asyncio.run(play())


async def test_a_bucket_gives_what_it_has_and_fills_with_time() -> None:
    clock = ManualClock()
    bucket = TokenBucket(clock, per_second=0.5, burst=2)
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]
    clock.advance(2)
    assert [bucket.try_take() for _ in range(2)] == [True, False]
    clock.advance(1000)
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]
