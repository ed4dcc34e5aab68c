"""Leader election between candidates with clocks of their own, on a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from allot.client.api import Client
from allot.client.errors import Unreachable
from allot.client.inprocess import Answer, InProcessTransport, PlainRequest
from allot.client.leader import ElectionTimes, LeaderElector
from allot.client.transport import Response
from allot.process.clock import ManualClock, rfc3339
from allot.process.ids import CountingIds
from apiserver.live import LiveServer
from client.conftest import in_process_transport


class SkewedClock(ManualClock):
    """Shows a time of day that is off, and may be set at any time."""

    def __init__(self, skew_s: float) -> None:
        super().__init__()
        self.skew_s = skew_s

    def now(self) -> str:
        return rfc3339(int(self.seconds() + self.skew_s))

    def now_micro(self) -> str:
        return self.now()[:-1] + ".000000Z"


class FlakyTransport:
    """The server's transport, which can be unplugged."""

    def __init__(self, transport: InProcessTransport) -> None:
        self._transport = transport
        self.is_unplugged = False

    async def request(self, method: str, path: str, *rest: Any, **more: Any) -> Response:
        if self.is_unplugged:
            raise Unreachable("unplugged", request=f"{method} {path}")
        return await self._transport.request(method, path, *rest, **more)

    def stream(self, *rest: Any, **more: Any) -> Any:
        return self._transport.stream(*rest, **more)

    async def close(self) -> None:
        await self._transport.close()


class Candidate:
    """A candidate that leads until it is stopped, and what happened to it."""

    def __init__(self, server: LiveServer, identity: str, skew_s: float = 0.0) -> None:
        self.clock = SkewedClock(skew_s)
        self.transport = FlakyTransport(in_process_transport(server))
        self.leaders: list[str] = []
        self.is_leading = False
        self.has_stopped = False
        self.elector = LeaderElector(
            Client(self.transport),
            self.clock,
            CountingIds(),
            namespace="kube-system",
            name="test",
            identity=identity,
            on_new_leader=self.leaders.append,
        )

    async def lead(self) -> None:
        self.is_leading = True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_leading = False

    async def run(self) -> None:
        await self.elector.run(self.lead, self._stopped)

    def _stopped(self) -> None:
        self.has_stopped = True


async def pass_time(seconds: float, *candidates: Candidate) -> None:
    """Half a second at a time, with room for what wakes up."""
    for _ in range(max(int(seconds * 2), 1)):
        for candidate in candidates:
            candidate.clock.advance(0.5)
        for _ in range(30):
            await asyncio.sleep(0)
        assert sum(candidate.is_leading for candidate in candidates) <= 1, "two leaders"


async def lease(server: LiveServer) -> dict[str, Any]:
    answer = await server.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/test")
    spec = answer.json["spec"]
    assert isinstance(spec, dict)
    return spec


async def test_one_leads_and_the_next_takes_over_when_it_is_gone(server: LiveServer) -> None:
    first, second = Candidate(server, "first"), Candidate(server, "second", skew_s=-86_400)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(first.run())
        await pass_time(1, first, second)
        running = tasks.create_task(second.run())
        await pass_time(30, first, second)
        assert first.is_leading
        assert (await lease(server))["holderIdentity"] == "first"
        assert second.leaders == ["first"]
        # The first one is cut off: it gives up before its lease has run out for the second.
        first.transport.is_unplugged = True
        assert first.elector.leads_surely
        first.clock.advance(15)
        assert not first.elector.leads_surely, "before it has noticed: its lease has run out"
        await pass_time(11, first, second)
        assert not first.is_leading
        assert not second.is_leading
        await pass_time(12, first, second)
        assert second.is_leading
        assert second.leaders == ["first", "second"]
        assert second.elector.leads_surely
        assert not second.elector.was_given_back
        spec = await lease(server)
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)
        running.cancel()
    assert first.has_stopped
    assert second.has_stopped


async def test_who_stops_gives_the_lease_back(server: LiveServer) -> None:
    first, second = Candidate(server, "first"), Candidate(server, "second")
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(first.run())
        await pass_time(1, first, second)
        other = tasks.create_task(second.run())
        await pass_time(1, first, second)
        running.cancel()
        await pass_time(6, first, second)
        assert second.is_leading
        assert second.leaders in (["first", "second"], ["first", "", "second"])
        assert second.elector.was_given_back
        other.cancel()
    spec = await lease(server)
    assert spec["holderIdentity"] == ""
    assert spec["leaseDurationSeconds"] == 1


async def test_clocks_that_are_set_change_nothing(server: LiveServer) -> None:
    first, second = Candidate(server, "first", skew_s=3600), Candidate(server, "second")
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(first.run())]
        await pass_time(1, first, second)
        running.append(tasks.create_task(second.run()))
        for skew in (-7200.0, 1e6, 0.0):
            first.clock.skew_s = skew
            second.clock.skew_s = -skew
            await pass_time(20, first, second)
            assert first.is_leading
            assert not second.is_leading
        for task in running:
            task.cancel()


async def test_a_lease_taken_by_force_ends_leading_at_once(server: LiveServer) -> None:
    first = Candidate(server, "first")
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(first.run())
        await pass_time(3, first)
        assert first.is_leading
        leases = Client(in_process_transport(server)).resource("coordination.k8s.io", "v1", "leases", namespaced=True)
        taken = await leases.get("test", "kube-system")
        await leases.update({**taken, "spec": {**taken["spec"], "holderIdentity": "usurper"}})
        await pass_time(3, first)
        assert running.done()
    assert first.has_stopped
    assert first.leaders == ["first", "usurper"]
    assert (await lease(server))["holderIdentity"] == "usurper"


async def test_leading_that_ends_by_itself_gives_the_lease_back(server: LiveServer) -> None:
    candidate = Candidate(server, "one")

    async def lead() -> None:
        assert candidate.elector.is_leader

    await candidate.elector.run(lead)
    assert (await lease(server))["holderIdentity"] == ""


async def test_a_failure_while_leading_is_not_hidden(server: LiveServer) -> None:
    candidate = Candidate(server, "one")

    async def lead() -> None:
        raise RuntimeError("broken")

    with pytest.raises(ExceptionGroup) as error:
        await candidate.elector.run(lead)
    assert error.group_contains(RuntimeError, match="broken")
    assert (await lease(server))["holderIdentity"] == ""


async def test_a_lease_that_was_deleted_is_made_again(server: LiveServer) -> None:
    candidate = Candidate(server, "one")
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(candidate.run())
        await pass_time(3, candidate)
        await server.delete("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/test")
        await pass_time(5, candidate)
        assert candidate.is_leading
        assert (await lease(server))["holderIdentity"] == "one"
        running.cancel()


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ({"lease_duration_s": 10}, "must be longer than the renew deadline"),
        ({"renew_deadline_s": 2.0}, "must be longer than 1.2 retry periods"),
        ({"lease_duration_s": 0}, "must be positive"),
        ({"retry_period_s": 0.0}, "must be positive"),
    ],
)
def test_times_that_cannot_work_are_refused(times: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ElectionTimes(**times)


def test_a_candidate_needs_a_name() -> None:
    async def handle(_: PlainRequest) -> Answer:
        raise AssertionError("never asked")

    client = Client(InProcessTransport(handle, KeyError))
    with pytest.raises(ValueError, match="lease a/b: expected an identity"):
        LeaderElector(client, ManualClock.__new__(ManualClock), CountingIds(), namespace="a", name="b", identity="")
