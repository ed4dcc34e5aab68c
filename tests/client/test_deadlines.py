"""Timeouts that share a timer go off as others do."""

from __future__ import annotations

import asyncio

import pytest

from allot.client import deadlines
from allot.client.deadlines import Deadlines


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Deadlines:
    monkeypatch.setattr(deadlines, "PRECISE_BELOW_S", 0.0)
    monkeypatch.setattr(deadlines, "LOOK_EVERY_S", 0.01)
    return Deadlines()


async def test_a_block_that_takes_too_long_is_cancelled_and_the_task_goes_on(quick: Deadlines) -> None:
    with pytest.raises(TimeoutError), quick.within(0.02):
        await asyncio.sleep(10)
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_block_that_is_quick_enough_is_left_alone(quick: Deadlines) -> None:
    with quick.within(10):
        await asyncio.sleep(0.03)


async def test_an_error_in_the_block_comes_out(quick: Deadlines) -> None:
    with pytest.raises(KeyError), quick.within(10):
        raise KeyError


async def test_a_task_that_is_cancelled_from_outside_stays_cancelled(quick: Deadlines) -> None:
    async def work() -> None:
        with quick.within(10):
            await asyncio.sleep(10)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_short_timeouts_are_precise() -> None:
    with pytest.raises(TimeoutError), Deadlines().within(0.01):
        await asyncio.sleep(10)


async def test_many_blocks_share_the_timer(quick: Deadlines) -> None:
    async def work(seconds: float) -> str:
        try:
            with quick.within(seconds):
                await asyncio.sleep(0.05)
        except TimeoutError:
            return "late"
        return "in time"

    answers = await asyncio.gather(*(work(seconds) for seconds in (0.01, 10, 0.01, 10)))
    assert answers == ["late", "in time", "late", "in time"]
