"""OpenAPI schemas of metrics.k8s.io, for `kubectl explain`. They match metrics-server's."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.apiserver.resources import Resource

Object = dict[str, Any]

_TIMESTAMP = {
    "type": "string",
    "format": "date-time",
    "description": "When it was measured. Together with window, the interval that it was measured over: (timestamp-window, timestamp].",
}
_WINDOW = {"type": "string", "description": "How long it was measured before timestamp, as a duration like 15s."}
_USAGE = {
    "type": "object",
    "description": "How much is used, by resource: cpu and memory (the working set).",
    "additionalProperties": {"type": "string"},
}
_CONTAINERS = {
    "type": "array",
    "description": "The use of every container, over the same interval.",
    "items": {
        "type": "object",
        "required": ["name", "usage"],
        "properties": {
            "name": {"type": "string", "description": "The container's name, as in the pod's spec."},
            "usage": _USAGE,
        },
    },
}


class DocumentedResource(msgspec.Struct, frozen=True):
    """A resource with its schema."""

    resource: Resource
    openapi: Object


def _documented(kind: str, plural: str, text: str, own: Object, *, namespaced: bool) -> DocumentedResource:
    resource = Resource(
        group="metrics.k8s.io",
        version="v1beta1",
        kind=kind,
        plural=plural,
        singular="",
        namespaced=namespaced,
        storage_version="v1beta1",
        verbs=("get", "list"),
        stored=False,
    )
    schema = {
        "type": "object",
        "description": text,
        "required": ["timestamp", "window", *own],
        "properties": {"timestamp": _TIMESTAMP, "window": _WINDOW, **own},
    }
    return DocumentedResource(resource, schema)


DOCUMENTED = (
    _documented("NodeMetrics", "nodes", "How much a node uses.", {"usage": _USAGE}, namespaced=False),
    _documented("PodMetrics", "pods", "How much a pod uses.", {"containers": _CONTAINERS}, namespaced=True),
)
