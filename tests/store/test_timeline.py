"""History and fan-out in memory: what slow watches get, and that nothing grows without bound."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from allot.store.memory import MemoryStore
from allot.store.port import Compacted, Event, Progress
from allot.store.timeline import Limits

PODS = "/registry/pods/"


def pod(number: int) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"n": number}}


async def test_a_watch_that_falls_behind_history_is_told_after_what_it_has() -> None:
    store = MemoryStore(Limits(history_max=10, buffer_max=4))
    watch = store.watch(PODS, await store.revision())
    await store.create(PODS + "first", pod(0))
    iterator = aiter(watch)
    await anext(iterator)
    for number in range(40):
        await store.create(f"{PODS}{number}", pod(number))
    # The buffer holds what came in before it was full; then history, which has gone on.
    assert [(await anext(iterator)).revision for _ in range(4)] == [3, 4, 5, 6]
    with pytest.raises(Compacted) as told:
        await anext(iterator)
    assert told.value.revision == 6
    assert told.value.oldest > 6
    await watch.close()


async def test_history_is_bounded_by_count() -> None:
    store = MemoryStore(Limits(history_max=10))
    entry = await store.create(PODS + "a", pod(0))
    for number in range(100):
        entry = await store.update(PODS + "a", pod(number), entry.revision)
    assert len((await store.list(PODS, revision=entry.revision - 10)).entries) == 1
    with pytest.raises(Compacted):
        await store.list(PODS, revision=entry.revision - 12)


async def test_a_watch_on_one_object_is_not_told_of_a_shorter_or_another_key() -> None:
    store = MemoryStore()
    watches = {
        prefix: store.watch(prefix, 1) for prefix in (PODS + "ab", PODS + "abc", PODS, "/registry/pods/ab/long/er")
    }
    seen: dict[str, list[str]] = {prefix: [] for prefix in watches}

    async def follow(prefix: str) -> None:
        async for item in watches[prefix]:
            assert isinstance(item, Event)
            seen[prefix].append(item.entry.key[len(PODS) :])

    async with asyncio.TaskGroup() as tasks:
        for prefix in watches:
            tasks.create_task(follow(prefix))
        await asyncio.sleep(0)
        for name in ("a", "ab", "abc", "b"):
            await store.create(PODS + name, pod(0))
        await asyncio.sleep(0)
        await store.close()
    assert list(seen.values()) == [["ab", "abc"], ["abc"], ["a", "ab", "abc", "b"], []]


async def test_progress_is_told_only_when_there_was_some() -> None:
    store = MemoryStore(Limits(progress_s=0.01))
    watch = store.watch("/registry/nodes/", 1)
    found: list[Event | Progress] = []

    async def follow() -> None:
        async for item in watch:
            found.append(item)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await asyncio.sleep(0.05)
        assert found == []
        await store.create(PODS + "a", pod(0))
        await asyncio.sleep(0.1)
        await watch.close()
    assert found == [Progress(2)]


async def test_objects_of_a_deletion_do_not_change_the_state_before() -> None:
    store = MemoryStore()
    created = await store.create(PODS + "a", pod(0))
    deleted = await store.delete(PODS + "a", created.revision)
    assert created.object["metadata"]["resourceVersion"] == "2"
    assert deleted.object["metadata"]["resourceVersion"] == "3"
    assert deleted.object["spec"] is created.object["spec"]
