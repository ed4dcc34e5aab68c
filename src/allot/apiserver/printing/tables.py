"""meta.k8s.io Tables: the answer that kubectl asks for when it lists objects.

All columns are included, wide ones with a priority above 0; the client omits what it does not show. Kinds without columns
of their own have their name and the time of creation, custom resources the columns that their definition names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.apiserver.kinds.versions import to_storage
from allot.apiserver.printing import administration, core, devices, metrics, networking, pods, storage, workloads
from allot.apiserver.printing.cells import (
    AGE,
    NAME,
    Cells,
    Moment,
    Object,
    Printer,
    members,
    name_of,
    scalar,
    seconds_of,
    text,
)
from allot.apiserver.resources import Column, Resource
from allot.core import jsonpath
from allot.store.port import Entry

NO_OBJECT, METADATA, WHOLE = "None", "Metadata", "Object"


def _created(object_: Object, _: Moment) -> Cells:
    return [name_of(object_), text(object_, "metadata", "creationTimestamp")]


DEFAULT = Printer((NAME, Column("Created At", "date", "", "When the object was created.")), _created)
NAME_AND_AGE = Printer((NAME, AGE), lambda object_, now: [name_of(object_), now.age(object_)])

SCALE = Printer(
    (NAME, Column("Desired", "integer"), Column("Available", "integer"), AGE),
    lambda scale, now: [
        name_of(scale),
        members(scale, "spec").get("replicas", 0),
        members(scale, "status").get("replicas", 0),
        now.age(scale),
    ],
)
STATUS = Printer(
    (Column("Status"), Column("Reason"), Column("Message")),
    lambda status, _: [text(status, "status"), text(status, "reason"), text(status, "message")],
)

# Kinds that a row can return besides its own.
_ANSWERS = {"Scale": SCALE, "Status": STATUS}

_PRINTERS: Mapping[tuple[str, str], Printer] = {
    ("", "Pod"): pods.POD,
    **core.PRINTERS,
    **workloads.PRINTERS,
    **devices.PRINTERS,
    **networking.PRINTERS,
    **storage.PRINTERS,
    **administration.PRINTERS,
}

_UNSTORED: Mapping[str, Printer] = {"NodeMetrics": metrics.METRICS, "PodMetrics": metrics.METRICS}


def printer_for(resource: Resource) -> Printer:
    """The printer of a built-in kind."""
    group = resource.storage_api_version.rpartition("/")[0]
    return _PRINTERS.get((group, resource.kind), DEFAULT)


# --- custom resources ---


class UnreadableColumn(ValueError):
    """A column whose JSONPath cannot be read."""


def custom_printer(additional_columns: Sequence[Mapping[str, Any]]) -> Printer:
    """The printer for additionalPrinterColumns of a version; without any, name and age."""
    if not additional_columns:
        return NAME_AND_AGE
    paths, shown = [], [NAME]
    for definition in additional_columns:
        path = scalar(definition.get("jsonPath"))
        try:
            paths.append((jsonpath.parse(path), scalar(definition.get("type"), "string")))
        except jsonpath.JSONPathError as error:
            raise UnreadableColumn(f"unrecognized column definition {path!r}: {error}") from error
        priority = definition.get("priority")
        shown.append(
            Column(
                scalar(definition.get("name")),
                scalar(definition.get("type"), "string"),
                scalar(definition.get("format")),
                scalar(definition.get("description"))
                or f"Custom resource definition column (in JSONPath format): {path}",
                priority if isinstance(priority, int) else 0,
            )
        )

    def cells(object_: Object, now: Moment) -> Cells:
        return [name_of(object_), *(_custom_cell(path, type_, object_, now) for path, type_ in paths)]

    return Printer(tuple(shown), cells)


def _custom_cell(path: jsonpath.Path, type_: str, object_: Object, now: Moment) -> Any:
    found = jsonpath.find(path, object_)
    if not found:
        return None
    value = found[0]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match type_:
        case "string":
            return value if isinstance(value, str) else _as_text(value)
        case "integer" if is_number:
            return int(value)
        case "number" if is_number:
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            return now.since(value) if seconds_of(value) is not None else "<invalid>"
        case _:
            return None


def _as_text(value: Any) -> str:
    if value is None:
        return "<nil>"
    return msgspec.json.encode(value).decode()


# --- tables ---


def table(
    resource: Resource,
    entries: Iterable[Entry],
    *,
    now: str,
    include_object: str = METADATA,
    printer: Printer | None = None,
    metadata: Mapping[str, Any] | None = None,
    headers: bool = True,
) -> Object:
    """A Table of objects in the row's version, or of a subresource's answer. `metadata` is that of the list, or of a single object;
    `printer` is needed for custom resources; watches omit the headers after the first event."""
    objects = [entry.object for entry in entries]
    kind = objects[0].get("kind") if objects else None
    chosen = (_ANSWERS.get(str(kind)) if kind != resource.kind else None) or printer or printer_for(resource)
    moment = Moment(seconds_of(now) or 0.0)
    rows = [_row(object_, resource, chosen, moment, include_object) for object_ in objects]
    made: Object = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": dict(metadata or {})}
    made["columnDefinitions"] = [_definition(column) for column in chosen.columns] if headers else None
    made["rows"] = rows
    return made


def unstored_table(answer: Object, api_version: str, include_object: str, now: str) -> Object | None:
    """A Table of an on-demand object or list; None if it is not shown as one."""
    kind = str(answer.get("kind")).removesuffix("List")
    if kind not in _UNSTORED:
        return None
    moment, listed = Moment(seconds_of(now) or 0.0), answer.get("items")
    metadata = members(answer, "metadata") if listed is not None else {}
    rows = [
        _filled(each, each, _UNSTORED[kind], moment, include_object)
        for each in ([answer] if listed is None else listed)
    ]
    return {**table_head(_UNSTORED[kind], api_version, metadata), "rows": rows}


def table_head(printer: Printer, api_version: str, metadata: Mapping[str, Any]) -> Object:
    """A Table without its rows."""
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in printer.columns],
    }


def _row(object_: Object, resource: Resource, printer: Printer, now: Moment, include_object: str) -> Object:
    own = object_.get("kind") == resource.kind and object_.get("apiVersion") == resource.api_version
    needs_conversion = own and resource.api_version != resource.storage_api_version
    shown = to_storage(object_, resource) if needs_conversion else object_
    return _filled(shown, object_, printer, now, include_object)


def _filled(shown: Object, object_: Object, printer: Printer, now: Moment, include_object: str) -> Object:
    """A row. shown: the object in the form that its printer takes."""
    row: Object = {"cells": printer.cells(shown, now)}
    conditions = printer.conditions(object_)
    if conditions:
        row["conditions"] = conditions
    if include_object == WHOLE:
        row["object"] = object_
    elif include_object == METADATA:
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": members(object_, "metadata"),
        }
    else:
        row["object"] = None
    return row


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }
