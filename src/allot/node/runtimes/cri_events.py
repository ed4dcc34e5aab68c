"""Changes in a container runtime: from its events, and from lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import grpc

from allot.node.runtimes.cri_calls import CriCalls
from allot.node.runtimes.cri_messages import POD_UID
from allot.node.runtimes.port import RuntimeFailure
from allot.process.clock import Clock
from allot.wire import cri_pb2 as pb


async def listed(calls: CriCalls) -> tuple[Sequence[pb.PodSandbox], Sequence[pb.Container]]:
    """Everything that is in a runtime."""
    # Containers first: the later list of sandboxes then includes those of all listed containers.
    containers = await calls.runtime(
        "ListContainers", pb.ListContainersRequest(), pb.ListContainersResponse, "ListError"
    )
    sandboxes = await calls.runtime(
        "ListPodSandbox", pb.ListPodSandboxRequest(), pb.ListPodSandboxResponse, "ListError"
    )
    return sandboxes.items, containers.containers


class CriEvents:
    """Follows a runtime. poll_s: between lists without events; relist_s: with events."""

    def __init__(
        self, calls: CriCalls, clock: Clock, *, poll_s: float, relist_s: float, owner: Callable[[str], str]
    ) -> None:
        """owner: the pod of a removed container or sandbox; empty if unknown."""
        self._calls = calls
        self._clock = clock
        self._poll_s = poll_s
        self._relist_s = relist_s
        self._owner = owner

    async def changes(self) -> AsyncIterator[str]:
        """Changed pods: from the runtime's events, and from lists."""
        seen: dict[str, tuple[str, int]] = {}
        tells = True
        while True:
            # The stream is opened before the list, so that no change is missed in between.
            stream = self._calls.events() if tells else None
            try:
                for uid in await self._differences(seen):
                    yield uid
                if stream is None:
                    await self._clock.sleep(self._poll_s)
                    continue
                async for uid in self._told(stream):
                    yield uid
            except RuntimeFailure:
                await self._clock.sleep(self._poll_s)
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                    tells = False
                else:
                    await self._clock.sleep(self._poll_s)
            finally:
                if stream is not None:
                    stream.cancel()

    async def _told(
        self, stream: grpc.aio.UnaryStreamCall[pb.GetEventsRequest, pb.ContainerEventResponse]
    ) -> AsyncIterator[str]:
        """Pods from the runtime's events, until the next list is due."""
        until = self._clock.monotonic() + self._relist_s
        next_event: asyncio.Task[object] | None = None
        try:
            while (left := until - self._clock.monotonic()) > 0:
                if next_event is None:
                    next_event = asyncio.ensure_future(stream.read())
                await asyncio.wait((next_event,), timeout=left)
                if not next_event.done():
                    return
                event, next_event = next_event.result(), None
                if not isinstance(event, pb.ContainerEventResponse):
                    # The runtime ended the stream.
                    await self._clock.sleep(self._poll_s)
                    return
                uid = event.pod_sandbox_status.metadata.uid or self._owner(event.container_id)
                if not uid:
                    return
                yield uid
        finally:
            if next_event is not None:
                next_event.cancel()
                await asyncio.gather(next_event, return_exceptions=True)

    async def _differences(self, seen: dict[str, tuple[str, int]]) -> set[str]:
        """Pods with additions, changes or removals since the last list."""
        sandboxes, containers = await listed(self._calls)
        pods = {each.id: each.metadata.uid for each in sandboxes}
        now: dict[str, tuple[str, int]] = {each.id: (each.metadata.uid, each.state) for each in sandboxes}
        for each in containers:
            uid = pods.get(each.pod_sandbox_id) or each.labels[POD_UID]
            now[each.id] = (uid, each.state)
        changed = {pair[0] for id_, pair in now.items() if seen.get(id_) != pair}
        changed |= {pair[0] for id_, pair in seen.items() if id_ not in now}
        seen.clear()
        seen.update(now)
        return changed - {""}
