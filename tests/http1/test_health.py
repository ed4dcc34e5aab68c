"""Health and metrics of a process."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from allot.http1.health import serving_health
from allot.process.clock import SystemClock


async def test_a_process_tells_how_it_is_and_what_it_counts() -> None:
    registry, problems = CollectorRegistry(), [""]
    Counter("looks", "How often somebody looked.", registry=registry).inc(3)

    async def check() -> str:
        return problems[0]

    async with (
        serving_health("127.0.0.1", 0, registry, SystemClock(), check) as url,
        aiohttp.ClientSession(url) as session,
    ):
        for path in ("/healthz", "/livez", "/readyz"):
            async with session.get(path) as answer:
                assert (answer.status, await answer.text()) == (200, "ok")
        problems[0] = "the socket is gone"
        async with session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "the socket is gone")
        async with session.get("/metrics") as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert "looks_total 3.0" in await answer.text()
        async with session.head("/metrics") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        for method, path, status in (("GET", "/", 404), ("GET", "/metrics/", 404), ("POST", "/metrics", 405)):
            async with session.request(method, path) as answer:
                assert answer.status == status


async def test_who_stands_by_is_alive_but_not_ready() -> None:
    async def ready() -> str:
        return "standing by"

    async with (
        serving_health("127.0.0.1", 0, CollectorRegistry(), SystemClock(), ready=ready) as url,
        aiohttp.ClientSession(url) as session,
    ):
        for path, status in (("/healthz", 200), ("/livez", 200), ("/readyz", 503)):
            async with session.get(path) as answer:
                assert answer.status == status


async def test_a_port_of_minus_one_is_none_and_a_taken_one_is_told() -> None:
    registry, clock = CollectorRegistry(), SystemClock()
    async with serving_health("127.0.0.1", -1, registry, clock) as url:
        assert url == ""
    async with serving_health("127.0.0.1", 0, registry, clock) as url:
        with pytest.raises(OSError, match="in use"):
            async with serving_health("127.0.0.1", int(url.rpartition(":")[2]), registry, clock):
                pass
