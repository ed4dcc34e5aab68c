"""Events for lists and time lines."""

from __future__ import annotations

from typing import Any

from allot.core.model.observed_v1 import Event

_MESSAGE_MAX = 1000


def event_row(event: Event) -> dict[str, Any]:
    """An event."""
    about = event.involved_object
    times = times_of(event)
    row: dict[str, Any] = {
        "at": event.seen_at,
        "reason": event.reason,
        "msg": event.message[:_MESSAGE_MAX],
        "kind": about.kind,
        "ns": about.namespace or event.metadata.namespace,
        "name": about.name,
    }
    if event.type == "Warning":
        row["warn"] = True
    if times > 1:
        row["count"] = times
    if event.reporting_component:
        row["from"] = event.reporting_component
    return row


def times_of(event: Event) -> int:
    """How often it happened."""
    return max(1, event.series.count if event.series is not None else event.count)
