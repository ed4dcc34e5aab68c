"""Events of the core group and of events.k8s.io: one storage, two vocabularies."""

from __future__ import annotations

from allot.apiserver.resources import Object

# core/v1 name -> events.k8s.io/v1 name, for the members that are called differently.
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_NAMES = {new: old for old, new in _NAMES.items()}


def from_core(event: Object) -> Object:
    """A core event in events.k8s.io/v1."""
    return {_NAMES.get(name, name): value for name, value in event.items()} | {"apiVersion": "events.k8s.io/v1"}


def to_core(event: Object) -> Object:
    """An event of events.k8s.io/v1 as a core event."""
    return {_CORE_NAMES.get(name, name): value for name, value in event.items()} | {"apiVersion": "v1"}
