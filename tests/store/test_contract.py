"""What every store does, memory, SQLite and etcd alike."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from allot.store.port import (
    Compacted,
    Event,
    FutureRevision,
    KeyExists,
    KeyNotFound,
    Page,
    Progress,
    RevisionConflict,
    Store,
    Watch,
)
from waiting import WAIT_S

PODS = "/registry/pods/"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def key(name: str, namespace: str = "default") -> str:
    return f"{PODS}{namespace}/{name}"


async def events(watch: Watch, count: int) -> list[Event]:
    """The next changes of a watch, Progress left out."""
    found: list[Event] = []
    async with asyncio.timeout(WAIT_S):
        async for item in watch:
            if isinstance(item, Event):
                found.append(item)
            if len(found) == count:
                break
    return found


def told(found: list[Event]) -> list[tuple[str, str, int]]:
    return [(event.type.value, event.entry.key.rpartition("/")[2], event.revision) for event in found]


async def test_a_created_object_can_be_read_with_its_revision(store: Store) -> None:
    before = await store.revision()
    created = await store.create(key("a"), pod("a", node="n1"))
    found = await store.get(key("a"))
    assert found is not None
    assert created.revision == before + 1 == found.revision == await store.revision()
    assert found.object["spec"] == {"node": "n1"}
    assert found.object["metadata"]["resourceVersion"] == str(created.revision)
    assert msgspec.json.decode(found.encoded) == found.object == created.object


async def test_the_last_change_of_a_folder_is_told_or_not_known(store: Store) -> None:
    folder = "/registry/pods/"
    if store.last_change(folder) is None:
        # Not without asking; then it never is.
        await store.create(key("a"), pod("a"))
        assert store.last_change(folder) is None
        return
    created = await store.create(key("a"), pod("a"))
    assert store.last_change(folder) == created.revision
    await store.create("/registry/nodes/n", pod("n"))
    assert store.last_change(folder) == created.revision
    deleted = await store.delete(key("a"), created.revision)
    assert store.last_change(folder) == deleted.revision


async def test_changes_below_folders_are_counted_or_not_known(store: Store) -> None:
    count = store.count_changes(("/registry/pods/", "/registry/nodes/"))
    if count is None:
        assert store.last_change("/registry/pods/") is None
        return
    created = await store.create(key("a"), pod("a"))
    assert count.value == 1
    await store.create("/registry/nodes/n", pod("n"))
    assert count.value == 2
    await store.create("/registry/leases/l", pod("l"))
    assert count.value == 2
    await store.delete(key("a"), created.revision)
    assert count.value == 3


async def test_a_missing_key_is_none(store: Store) -> None:
    assert await store.get(key("a")) is None


async def test_a_create_of_a_present_key_tells_what_is_there(store: Store) -> None:
    created = await store.create(key("a"), pod("a", n=1))
    with pytest.raises(KeyExists) as refused:
        await store.create(key("a"), pod("a", n=2))
    assert refused.value.entry is not None
    assert refused.value.entry.revision == created.revision
    assert refused.value.entry.object["spec"] == {"n": 1}


async def test_an_update_needs_the_present_revision(store: Store) -> None:
    created = await store.create(key("a"), pod("a", n=1))
    updated = await store.update(key("a"), pod("a", n=2), created.revision)
    assert updated.revision > created.revision
    with pytest.raises(RevisionConflict) as refused:
        await store.update(key("a"), pod("a", n=3), created.revision)
    assert refused.value.entry.revision == updated.revision
    assert refused.value.entry.object["spec"] == {"n": 2}
    with pytest.raises(KeyNotFound):
        await store.update(key("b"), pod("b"), created.revision)
    with pytest.raises(KeyNotFound):
        await store.update(key("b"), pod("b"), 0)


async def test_an_object_read_and_written_back_gets_a_new_resource_version(store: Store) -> None:
    created = await store.create(key("a"), pod("a"))
    copy = msgspec.json.decode(created.encoded)
    updated = await store.update(key("a"), copy, created.revision)
    assert updated.object["metadata"]["resourceVersion"] == str(updated.revision)
    assert created.object["metadata"]["resourceVersion"] == str(created.revision)


async def test_a_delete_gives_the_last_state_with_the_revision_of_the_deletion(store: Store) -> None:
    created = await store.create(key("a"), pod("a", n=1))
    with pytest.raises(RevisionConflict):
        await store.delete(key("a"), created.revision - 1)
    deleted = await store.delete(key("a"), created.revision)
    assert deleted.revision == created.revision + 1
    assert deleted.object["spec"] == {"n": 1}
    assert deleted.object["metadata"]["resourceVersion"] == str(deleted.revision)
    assert msgspec.json.decode(deleted.encoded) == deleted.object
    assert await store.get(key("a")) is None
    with pytest.raises(KeyNotFound):
        await store.delete(key("a"), created.revision)
    again = await store.create(key("a"), pod("a", n=2))
    assert again.revision > deleted.revision


async def test_a_list_is_in_key_order_and_below_its_prefix(store: Store) -> None:
    for name, namespace in (("b", "two"), ("a", "two"), ("c", "one"), ("é", "two")):
        await store.create(key(name, namespace), pod(name))
    await store.create("/registry/podsx/a", pod("a"))
    page = await store.list(PODS)
    assert [entry.key for entry in page.entries] == [key("c", "one"), key("a", "two"), key("b", "two"), key("é", "two")]
    assert page.revision == await store.revision()
    assert (page.continue_key, page.remaining) == ("", 0)
    assert [entry.key for entry in (await store.list(PODS + "one/")).entries] == [key("c", "one")]
    assert (await store.list("/registry/nodes/")).entries == ()


async def pages(store: Store, limit: int) -> list[Page]:
    found = [await store.list(PODS, limit=limit)]
    while found[-1].continue_key:
        last = found[-1]
        found.append(await store.list(PODS, limit=limit, continue_key=last.continue_key, revision=last.revision))
    return found


async def test_pages_have_the_limit_and_say_how_many_follow(store: Store) -> None:
    for name in "abcde":
        await store.create(key(name), pod(name))
    found = await pages(store, 2)
    assert [[entry.key[-1] for entry in page.entries] for page in found] == [["a", "b"], ["c", "d"], ["e"]]
    assert [page.remaining for page in found] == [3, 1, 0]
    assert len(await pages(store, 5)) == 1


async def test_pages_show_one_revision_whatever_is_written_between(store: Store) -> None:
    entries = {name: await store.create(key(name), pod(name, n=1)) for name in "abcd"}
    first = await store.list(PODS, limit=1)
    await store.delete(key("b"), entries["b"].revision)
    await store.update(key("c"), pod("c", n=2), entries["c"].revision)
    await store.delete(key("a"), entries["a"].revision)
    await store.create(key("bb"), pod("bb"))
    await store.create(key("b"), pod("b", n=9))
    rest = await store.list(PODS, limit=2, continue_key=first.continue_key, revision=first.revision)
    assert [(entry.key[-1], entry.object["spec"]["n"]) for entry in rest.entries] == [("b", 1), ("c", 1)]
    assert (rest.revision, rest.remaining) == (first.revision, 1)
    last = await store.list(PODS, continue_key=rest.continue_key, revision=first.revision)
    assert [entry.key for entry in last.entries] == [key("d")]
    whole = await store.list(PODS, revision=first.revision)
    assert [entry.revision for entry in whole.entries] == [entries[name].revision for name in "abcd"]


async def test_a_list_of_the_future_is_refused(store: Store) -> None:
    await store.create(key("a"), pod("a"))
    now = await store.revision()
    with pytest.raises(FutureRevision) as refused:
        await store.list(PODS, revision=now + 100)
    assert refused.value.current == now


async def test_a_watch_gives_every_change_after_its_revision_in_order(store: Store) -> None:
    first = await store.create(key("a"), pod("a", n=1))
    start = await store.revision()
    second = await store.update(key("a"), pod("a", n=2), first.revision)
    watch = store.watch(PODS, start)
    assert told(await events(watch, 1)) == [("MODIFIED", "a", second.revision)]
    third = await store.create(key("b"), pod("b"))
    await store.create("/registry/nodes/n1", pod("n1"))
    fourth = await store.delete(key("a"), second.revision)
    found = await events(watch, 2)
    assert told(found) == [("ADDED", "b", third.revision), ("DELETED", "a", fourth.revision)]
    assert found[0].before is None
    assert found[1].before is not None
    assert found[1].before.object["spec"] == found[1].entry.object["spec"] == {"n": 2}
    assert found[1].before.revision == second.revision
    assert found[1].entry.object["metadata"]["resourceVersion"] == str(fourth.revision)
    await watch.close()


async def test_a_watch_waits_for_changes_and_many_watches_see_the_same(store: Store) -> None:
    start = await store.revision()
    watches = [store.watch(prefix, start) for prefix in (PODS, PODS + "default/", key("a"), "/registry/")]
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(events(watch, 2)) for watch in watches]
        await asyncio.sleep(0.05)
        created = await store.create(key("a"), pod("a"))
        updated = await store.update(key("a"), pod("a", n=2), created.revision)
    for task in waiting:
        assert told(task.result()) == [("ADDED", "a", created.revision), ("MODIFIED", "a", updated.revision)]
    for watch in watches:
        await watch.close()


async def test_a_watch_that_reads_slowly_loses_nothing_while_history_is_kept(store: Store) -> None:
    start = await store.revision()
    watch = store.watch(PODS, start)
    await store.create(key("first"), pod("first"))
    await events(watch, 1)
    for number in range(55):
        await store.create(key(f"p{number:02}"), pod("p"))
    found = await events(watch, 55)
    assert [event.revision for event in found] == list(range(start + 2, start + 57))
    last = await store.create(key("last"), pod("last"))
    assert (await events(watch, 1))[0].revision == last.revision
    await watch.close()


async def test_an_idle_watch_tells_how_far_it_is(store: Store) -> None:
    watch = store.watch("/registry/nodes/", await store.revision())
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:

        async def next_item() -> Event | Progress:
            async for item in watch:
                return item
            raise AssertionError("the watch ended")

        waiting = tasks.create_task(next_item())
        await asyncio.sleep(0.02)
        created = await store.create(key("a"), pod("a"))
    item = waiting.result()
    assert isinstance(item, Progress)
    assert item.revision >= created.revision
    await watch.close()


async def test_a_closed_watch_ends_for_its_reader(store: Store) -> None:
    watch = store.watch(PODS, await store.revision())

    async def read() -> list[Event | Progress]:
        return [item async for item in watch]

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        await asyncio.sleep(0.05)
        await watch.close()
    assert [item for item in reading.result() if isinstance(item, Event)] == []


async def test_watches_end_when_the_store_is_closed(store: Store) -> None:
    watch = store.watch(PODS, await store.revision())

    async def read() -> list[Event | Progress]:
        return [item async for item in watch]

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        await asyncio.sleep(0.05)
        await store.close()
    assert [item for item in reading.result() if isinstance(item, Event)] == []
    assert [item async for item in store.watch(PODS, 1)] == []


async def test_a_watch_goes_on_after_its_reader_was_cancelled(store: Store) -> None:
    watch = store.watch(PODS, await store.revision())
    iterator = aiter(watch)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.03):
            while True:
                await anext(iterator)
    created = await store.create(key("a"), pod("a"))
    assert told(await events(watch, 1)) == [("ADDED", "a", created.revision)]
    await watch.close()


async def test_compaction_keeps_the_present_and_forgets_the_past(store: Store) -> None:
    first = await store.create(key("a"), pod("a", n=1))
    second = await store.update(key("a"), pod("a", n=2), first.revision)
    third = await store.update(key("a"), pod("a", n=3), second.revision)
    await store.compact(second.revision)
    with pytest.raises(Compacted):
        await store.list(PODS, revision=first.revision)
    with pytest.raises(Compacted):
        await events(store.watch(PODS, first.revision), 1)
    kept = await store.list(PODS, revision=second.revision)
    assert [entry.object["spec"]["n"] for entry in kept.entries] == [2]
    watch = store.watch(PODS, second.revision)
    assert told(await events(watch, 1)) == [("MODIFIED", "a", third.revision)]
    await watch.close()
    # Again, and further back: nothing to do.
    await store.compact(second.revision)
    await store.compact(first.revision)
    found = await store.get(key("a"))
    assert found is not None
    assert found.revision == third.revision
    with pytest.raises(FutureRevision):
        await store.compact(third.revision + 100)


async def test_a_deletion_at_the_compacted_revision_is_not_passed_over(store: Store) -> None:
    created = await store.create(key("a"), pod("a"))
    deleted = await store.delete(key("a"), created.revision)
    await store.create(key("b"), pod("b"))
    await store.compact(deleted.revision)
    with pytest.raises(Compacted):
        await events(store.watch(PODS, created.revision), 1)


async def test_a_watch_of_the_future_is_refused(store: Store) -> None:
    with pytest.raises(FutureRevision):
        await events(store.watch(PODS, await store.revision() + 100), 1)


async def test_concurrent_updates_of_one_key_all_happen_one_after_the_other(store: Store) -> None:
    await store.create(key("a"), pod("a", n=0))

    async def add_ten() -> None:
        for _ in range(10):
            while True:
                entry = await store.get(key("a"))
                assert entry is not None
                try:
                    await store.update(key("a"), pod("a", n=entry.object["spec"]["n"] + 1), entry.revision)
                    break
                except RevisionConflict:
                    continue

    async with asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(add_ten())
    found = await store.get(key("a"))
    assert found is not None
    assert found.object["spec"] == {"n": 80}


async def test_of_many_creates_of_one_key_one_wins(store: Store) -> None:
    async def attempt(number: int) -> bool:
        try:
            await store.create(key("a"), pod("a", n=number))
            return True
        except KeyExists:
            return False

    async with asyncio.TaskGroup() as tasks:
        attempts = [tasks.create_task(attempt(number)) for number in range(20)]
    assert [task.result() for task in attempts].count(True) == 1


async def test_a_cancelled_writer_does_not_disturb_the_others(store: Store) -> None:
    created = await store.create(key("a"), pod("a", n=0))
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(store.update(key("a"), pod("a", n=1), created.revision))
        await asyncio.sleep(0)
        second = tasks.create_task(store.create(key("b"), pod("b")))
        first.cancel()
    assert second.result().revision == (await store.list(PODS + "default/b")).entries[0].revision
    entry = await store.get(key("a"))
    assert entry is not None
    updated = await store.update(key("a"), pod("a", n=2), entry.revision)
    assert updated.object["spec"] == {"n": 2}
