"""Answers as tables: what `kubectl get` shows, made by `printing` from rows of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allot.apiserver.printing.tables import table
from allot.apiserver.registry import Served
from allot.apiserver.request import WatchEvent
from allot.store.port import Entry

Object = dict[str, Any]


def table_of(
    served: Served, entries: Sequence[Entry], api_version: str, include_object: str, now: str, metadata: Object
) -> Object:
    """The table of objects."""
    told = table(served.resource, entries, now=now, include_object=include_object, printer=served.printer)
    return {**told, "apiVersion": api_version, "metadata": metadata}


def table_of_event(
    served: Served, event: WatchEvent, api_version: str, include_object: str, now: str, *, with_columns: bool
) -> Object:
    """The table of one event; only the first of a watch has the column definitions."""
    metadata = {"resourceVersion": event.object.get("metadata", {}).get("resourceVersion", "")}
    entries = [event.entry or Entry("", event.object, 0)]
    told = table_of(served, entries, api_version, include_object, now, metadata)
    return told if with_columns else {**told, "columnDefinitions": None}
