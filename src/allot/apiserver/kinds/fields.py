"""The fields besides name and namespace that field selectors may use, per kind.

A reader takes an object in its storage version and returns the text that a selector compares, as upstream's GetAttrs.
Absent values are empty; booleans and numbers are formatted as in Go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Object = dict[str, Any]
Reader = Callable[[Object], str]
Fields = Mapping[str, Reader]


def _at(object_: Object, path: tuple[str, ...]) -> Any:
    value: Any = object_
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def text(path: str, default: str = "") -> Reader:
    """Reads the text at a dotted path."""
    names = tuple(path.split("."))

    def read(object_: Object) -> str:
        value = _at(object_, names)
        if isinstance(value, bool):
            return "true" if value else "false"
        return default if value is None else str(value)

    return read


def texts(*paths: str, **defaults: str) -> Fields:
    """Readers for paths that are also the selector's names; defaults are keyed by the last part of the path."""
    return {path: text(path, defaults.get(path.rpartition(".")[2], "")) for path in paths}


def _pod_ip(pod: Object) -> str:
    addresses = _at(pod, ("status", "podIPs"))
    first = addresses[0] if isinstance(addresses, list) and addresses else None
    address = first.get("ip") if isinstance(first, dict) else None
    return address if isinstance(address, str) else ""


def _event_source(event: Object) -> str:
    component = _at(event, ("source", "component"))
    reporting = event.get("reportingComponent")
    return str(component or reporting or "")


POD: Fields = {
    **texts("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
    **texts("spec.hostNetwork", "status.nominatedNodeName", hostNetwork="false"),
    "status.podIP": _pod_ip,
}

_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

EVENT: Fields = {
    **texts(*(f"involvedObject.{name}" for name in _INVOLVED), "reason", "reportingComponent", "type"),
    "source": _event_source,
}

# Stored as core events, selected with the names of events.k8s.io.
EVENTS_K8S_IO_EVENT: Fields = {
    **{f"regarding.{name}": text(f"involvedObject.{name}") for name in _INVOLVED},
    "reportingController": text("reportingComponent"),
    **texts("reason", "type"),
}

NODE: Fields = texts("spec.unschedulable", unschedulable="false")
NAMESPACE: Fields = texts("status.phase")
SECRET: Fields = texts("type")
SERVICE: Fields = texts("spec.clusterIP", "spec.type")
REPLICAS: Fields = texts("status.replicas", replicas="0")
JOB: Fields = {"status.successful": text("status.succeeded", "0")}
SLICE: Fields = texts("spec.nodeName", "spec.driver", "spec.pool.name")
SIGNING_REQUEST: Fields = texts("spec.signerName")
POD_CERTIFICATE_REQUEST: Fields = texts("spec.signerName", "spec.podName", "spec.nodeName")
