"""The parts of core/v1 that only people and advice read: events and quotas."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.core_v1 import ObjectReference
from allot.core.model.meta import Int32, ObjectMeta, PartialStruct
from allot.core.quantity import Quantity


class EventSeries(PartialStruct, frozen=True, kw_only=True):
    """How often an event was seen again."""

    count: Int32 = 0
    last_observed_time: str | None = None


class Event(PartialStruct, frozen=True, kw_only=True):
    """What happened to an object. Times are kept as written: some have microseconds."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: Int32 = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    reporting_component: str = ""

    @property
    def seen_at(self) -> str:
        """When it was last seen; empty if it does not say."""
        series = self.series.last_observed_time if self.series is not None else None
        return series or self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""


class ResourceQuotaStatus(PartialStruct, frozen=True, kw_only=True):
    """How much a namespace may have and has."""

    hard: Mapping[str, Quantity] = {}
    used: Mapping[str, Quantity] = {}


class ResourceQuotaSpec(PartialStruct, frozen=True, kw_only=True):
    """How much a namespace may have."""

    hard: Mapping[str, Quantity] = {}


class ResourceQuota(PartialStruct, frozen=True, kw_only=True):
    """Limits of a namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()
