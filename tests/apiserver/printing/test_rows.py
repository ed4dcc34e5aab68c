"""Rows that are kept: the same as rows that are made anew, at any time and after any change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allot.apiserver.assembly import builtin_registry
from allot.apiserver.printing.cells import Moment, seconds_of
from allot.apiserver.printing.rows import Rows, metadata_of
from allot.apiserver.printing.tables import custom_printer, printer_for, table
from allot.core.features import DEFAULT_GATES
from allot.process.clock import ManualClock
from allot.store.port import Entry

REGISTRY = builtin_registry(DEFAULT_GATES, ManualClock())
CREATED = "2026-11-15T10:00:00Z"
TIMES = (CREATED, "2026-11-15T10:00:07Z", "2026-11-15T13:00:00Z", "2027-01-01T00:00:00Z")


def object_(kind: str, api_version: str, **parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "a", "creationTimestamp": CREATED, "labels": {"x": "metadata"}},
        **parts,
    }


RESTARTED = {
    "restartCount": 3,
    "lastState": {"terminated": {"finishedAt": "2026-11-15T09:59:00Z"}},
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
}
OBJECTS = [
    ("", "v1", "pods", object_("Pod", "v1", spec={"containers": [{"name": "c"}]}, status={"phase": "Pending"})),
    ("", "v1", "pods", object_("Pod", "v1", spec={}, status={"phase": "Running", "containerStatuses": [RESTARTED]})),
    ("", "v1", "pods", object_("Pod", "v1", spec={}, status={"phase": "Succeeded"})),
    ("", "v1", "pods", object_("Pod", "v1", status={"phase": "\ue0000\ue000"})),
    ("", "v1", "configmaps", object_("ConfigMap", "v1", data={"a": "b"})),
    ("", "v1", "events", object_("Event", "v1", lastTimestamp=CREATED, message="m")),
    ("batch", "v1", "jobs", object_("Job", "batch/v1", spec={}, status={"startTime": CREATED})),
    ("resource.k8s.io", "v1", "resourceclaims", object_("ResourceClaim", "resource.k8s.io/v1", spec={})),
    ("apps", "v1", "deployments", object_("Deployment", "apps/v1", spec={}, status={})),
    ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", object_("FlowSchema", "flowcontrol.apiserver.k8s.io/v1")),
]


@pytest.mark.parametrize(("group", "version", "plural", "object_"), OBJECTS)
def test_kept_rows_are_like_new_ones_at_any_time(
    group: str, version: str, plural: str, object_: dict[str, Any]
) -> None:
    served = REGISTRY.find(group, version, plural)
    assert served is not None
    entry, rows = Entry("/registry/x/a", object_, 1), Rows()
    printer = printer_for(served.resource)
    for now in TIMES:
        told = rows.of(served.resource, [entry], printer, Moment(seconds_of(now) or 0.0))
        expected = table(served.resource, [entry], now=now)["rows"]
        assert [msgspec.json.decode(row) for row in told] == expected


def test_a_changed_object_or_printer_makes_a_new_row() -> None:
    served = REGISTRY.find("", "v1", "configmaps")
    assert served is not None
    rows, moment = Rows(), Moment(seconds_of(CREATED) or 0.0)

    def cells(entry: Entry, printer: Any) -> Any:
        return msgspec.json.decode(rows.of(served.resource, [entry], printer, moment)[0])["cells"]

    printer = printer_for(served.resource)
    assert cells(Entry("k", OBJECTS[4][3], 1), printer) == ["a", 1, "0s"]
    changed = {**OBJECTS[4][3], "data": {}}
    assert cells(Entry("k", changed, 2), printer) == ["a", 0, "0s"]
    other = custom_printer([{"name": "Label", "type": "string", "jsonPath": ".metadata.labels.x"}])
    assert cells(Entry("k", changed, 2), other) == ["a", "metadata"]


def test_not_more_rows_are_kept_than_allowed() -> None:
    served = REGISTRY.find("", "v1", "configmaps")
    assert served is not None
    rows, moment = Rows(rows_max=3), Moment(0.0)
    entries = [Entry(f"k{number}", OBJECTS[4][3], 1) for number in range(10)]
    told = rows.of(served.resource, entries, printer_for(served.resource), moment)
    assert len(told) == 10
    assert len(rows._rows) <= 3


def test_metadata_is_cut_out_of_an_object() -> None:
    encoded = b'{"spec":{"metadata":{"name":"template"}},"metadata":{"name":"a","labels":{}}}'
    assert metadata_of(encoded) == b'{"name":"a","labels":{}}'
