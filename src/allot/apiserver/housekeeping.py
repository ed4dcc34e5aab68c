"""Periodic maintenance of the store: compacts history, and deletes expired events."""

from __future__ import annotations

from typing import Any

from allot.apiserver.errors import StatusError
from allot.apiserver.handlers.deletes import delete_object
from allot.apiserver.objects.options import DeleteOptions
from allot.apiserver.request import ApiRequest, User
from allot.apiserver.server_context import ServerContext
from allot.process.clock import rfc3339
from allot.store.port import StoreError

COMPACT_EVERY_S = 300.0
SWEEP_EVERY_S = 60.0
# As kube-apiserver's --event-ttl.
EVENT_TTL_S = 3600
_SERVER = User("system:apiserver", groups=("system:masters",))


async def compact(context: ServerContext) -> None:
    """Keep five to ten minutes of history, as kube-apiserver does with etcd, whatever the store. Runs until it is cancelled.

    Several servers on one store do it at the same time; what one has compacted, the others skip."""
    while True:
        revision = await context.store.revision()
        await context.clock.sleep(COMPACT_EVERY_S)
        try:
            await context.store.compact(revision)
        except StoreError:
            # Another server was faster, or the store is unavailable: the next round handles it.
            continue


async def sweep_events(context: ServerContext) -> None:
    """Delete events an hour after they were last seen. Runs until it is cancelled."""
    while True:
        await context.clock.sleep(SWEEP_EVERY_S)
        await sweep_events_once(context)


async def sweep_events_once(context: ServerContext) -> None:
    """Delete events that are now too old."""
    served = context.registry.find("", "v1", "events")
    assert served is not None, "events are served"
    oldest = rfc3339(int(context.clock.seconds()) - EVENT_TTL_S)
    page = await context.store.list(served.prefix(""))
    for entry in page.entries:
        if last_seen(entry.object) >= oldest:
            continue
        metadata = entry.object["metadata"]
        request = ApiRequest(
            user=_SERVER,
            verb="delete",
            group="",
            version="v1",
            resource="events",
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
        )
        options = DeleteOptions(resource_version=metadata["resourceVersion"])
        try:
            await delete_object(context, served, request, options)
        except StatusError as error:
            # It was seen again, or is gone.
            if error.code not in (404, 409):
                raise


def last_seen(event: dict[str, Any]) -> str:
    """When an event was last written, as text that can be compared."""
    series = event.get("series") or {}
    told = (
        event["metadata"].get("creationTimestamp"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        series.get("lastObservedTime") if isinstance(series, dict) else None,
    )
    return max((each for each in told if isinstance(each, str)), default="")
