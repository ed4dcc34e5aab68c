"""Work beside the event loop, and that what it uses may be used by two threads at once."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from allot.apiserver.aside import LARGE_BYTES, WAITING_MAX, Aside, size_of
from allot.apiserver.assembly import builtin_registry
from allot.apiserver.errors import StatusError
from allot.apiserver.kinds.schemas import builtin_schemas
from allot.apiserver.objects.bodies import CONTAINERS_MAX, read_value
from allot.apiserver.objects.fieldchecks import checked_fields
from allot.core.features import DEFAULT_GATES
from allot.core.patching.tracking import track_update
from allot.core.schema import Schemas
from allot.process.clock import SystemClock
from apiserver.live import LiveServer


@pytest.fixture
def aside() -> Iterator[Aside]:
    """One that ends with the test."""
    one = Aside()
    yield one
    one.close()


async def test_what_is_small_is_done_at_once_and_what_is_large_by_the_thread(aside: Aside) -> None:
    here = threading.get_ident()
    assert await aside.run(LARGE_BYTES, threading.get_ident) == here
    there = await aside.run(LARGE_BYTES + 1, threading.get_ident)
    assert there != here
    assert await aside.run(LARGE_BYTES + 1, threading.get_ident) == there


async def test_failures_come_back_as_they_are(aside: Aside) -> None:
    for size in (0, LARGE_BYTES + 1):
        with pytest.raises(ZeroDivisionError):
            await aside.run(size, lambda: 1 // 0)


async def test_the_event_loop_goes_on_while_the_thread_works(aside: Aside) -> None:
    begun, end = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        assert end.wait(60)
        return "done"

    working = asyncio.create_task(aside.run(LARGE_BYTES + 1, work))
    while not begun.is_set():
        await asyncio.sleep(0)
    assert not working.done()
    end.set()
    assert await working == "done"


async def test_who_gives_up_takes_back_what_was_not_begun(aside: Aside) -> None:
    end, done = threading.Event(), []
    first = asyncio.create_task(aside.run(LARGE_BYTES + 1, end.wait, 60))
    second = asyncio.create_task(aside.run(LARGE_BYTES + 1, done.append, "second"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    end.set()
    assert await first
    await aside.run(LARGE_BYTES + 1, done.append, "third")
    assert done == ["third"]


async def test_so_many_wait_and_no_more(aside: Aside) -> None:
    end = threading.Event()
    waiting = [asyncio.create_task(aside.run(LARGE_BYTES + 1, end.wait, 60)) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(StatusError, match="large requests are waiting") as refused:
        await aside.run(LARGE_BYTES + 1, print)
    assert refused.value.code == 429
    end.set()
    await asyncio.gather(*waiting)


async def test_the_collector_rests_meanwhile_and_only_then(aside: Aside) -> None:
    assert gc.isenabled()
    assert not await aside.run(LARGE_BYTES + 1, gc.isenabled)
    assert gc.isenabled()


def test_the_size_of_a_body_is_that_of_its_text() -> None:
    assert [size_of(body) for body in (b"abc", bytearray(b"ab"), memoryview(b"a"), {"a": 1}, None)] == [3, 2, 1, 0, 0]


def test_a_body_of_more_values_than_can_be_read_at_a_time_is_refused_before_it_is_read() -> None:
    with pytest.raises(StatusError, match="too large: expected at most 300000 objects and arrays"):
        read_value(b"[" + b",".join([b"[]"] * CONTAINERS_MAX) + b"]", "application/json")
    assert len(read_value(b"[" + b",".join([b"[]"] * (CONTAINERS_MAX - 1)) + b"]", "application/json")) > 0
    # Brackets in texts are none, wherever quotes are.
    text = '[{"\\' * CONTAINERS_MAX
    assert read_value(msgspec.json.encode({"a": text}), "application/json") == {"a": text}
    with pytest.raises(StatusError):
        read_value(b'"' + b"[\\" * CONTAINERS_MAX, "application/json")


# --- two threads ---


def pod(number: int) -> dict[str, Any]:
    """A pod that differs from others in what caches are keyed by."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": {f"label-{number}": "a"}},
        "spec": {
            "containers": [{"name": "a", "image": f"image-{number}", "env": [{"name": f"A{number}", "value": "b"}]}],
            "nodeSelector": {f"key-{number}": "x"},
        },
    }


def looked_at(schemas: Schemas, row: Any, number: int) -> tuple[Any, ...]:
    """Everything that is done with an object beside the event loop, as plain values."""
    schema = schemas.for_kind("", "v1", "Pod")
    assert schema is not None
    checked, warnings = checked_fields(pod(number), row, "Warn")
    managed = track_update(
        None, checked, manager="m", schema=schema, api_version="v1", now="2024-01-01T00:00:00Z", subresource=""
    )
    read = row.strategy.read(checked)
    prepared = row.strategy.prepare_create({**read, "metadata": {**read["metadata"], "uid": "u"}})
    return prepared, managed, warnings, row.strategy.validate_create(prepared)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_threads_that_read_schemas_and_fill_caches_at_once_find_the_same() -> None:
    numbers = range(600)
    clock = SystemClock()
    row = builtin_registry(DEFAULT_GATES, clock).find("", "v1", "pods")
    alone = [looked_at(builtin_schemas(), row, number) for number in numbers]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(3):
            # Nodes of new schemas are read by whoever comes first.
            fresh = Schemas(builtin_schemas().definitions)
            other = builtin_registry(DEFAULT_GATES, clock).find("", "v1", "pods")
            assert other is not None
            other._schema = lambda fresh=fresh: fresh.for_kind("", "v1", "Pod")  # type: ignore[misc]
            with ThreadPoolExecutor(4) as threads:
                found = list(threads.map(lambda n, s=fresh, r=other: looked_at(s, r, n), numbers))  # type: ignore[misc]
            assert found == alone
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.slow
async def test_a_large_object_is_written_and_changed_like_a_small_one(any_server: LiveServer) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    for name, size in (("small", 10), ("large", 3 * LARGE_BYTES)):
        made = await any_server.post(path, {"metadata": {"name": name}, "data": {"a": "x" * size}})
        assert made.status == 201
        changed = made.json
        changed["data"]["b"] = "y"
        assert (await any_server.put(f"{path}/{name}", changed)).status == 200
        # The old version is known to be old, whoever worked on it.
        assert (await any_server.put(f"{path}/{name}", changed)).status == 409
        patched = await any_server.patch(f"{path}/{name}", {"data": {"b": None, "c": "z"}})
        assert sorted(patched.json["data"]) == ["a", "c"]
        applied = await any_server.request(
            "PATCH",
            f"{path}/{name}?fieldManager=m",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"d": "w" * size}},
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        assert (applied.status, sorted(applied.json["data"])) == (200, ["a", "c", "d"])
        wrong = await any_server.patch(f"{path}/{name}", {"data": {"b": 1}})
        assert wrong.status == 422
