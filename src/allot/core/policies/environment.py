"""The variables of admission expressions and their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.cel.checking.types import BOOL, DYN, INT, STRING, TIMESTAMP, CelType, Kind, list_of, map_of
from allot.core.cel.data.times import parse_timestamp

Object = Mapping[str, Any]

AUTHORIZER = CelType(Kind.OBJECT, "kubernetes.authorization.Authorizer")
RESOURCE_CHECK = CelType(Kind.OBJECT, "kubernetes.authorization.ResourceCheck")
_REQUEST = CelType(Kind.OBJECT, "kubernetes.AdmissionRequest")
_NAMESPACE = CelType(Kind.OBJECT, "kubernetes.Namespace")
_KIND = CelType(Kind.OBJECT, "kubernetes.GroupVersionKind")
_RESOURCE = CelType(Kind.OBJECT, "kubernetes.GroupVersionResource")
_USER = CelType(Kind.OBJECT, "kubernetes.UserInfo")
VARIABLES = "kubernetes.variables"

OBJECTS: Mapping[str, Mapping[str, CelType]] = {
    _REQUEST.name: {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
    _KIND.name: {"group": STRING, "version": STRING, "kind": STRING},
    _RESOURCE.name: {"group": STRING, "version": STRING, "resource": STRING},
    _USER.name: {
        "username": STRING,
        "uid": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
    },
    _NAMESPACE.name: {
        "metadata": CelType(Kind.OBJECT, "kubernetes.NamespaceMetadata"),
        "spec": CelType(Kind.OBJECT, "kubernetes.NamespaceSpec"),
        "status": CelType(Kind.OBJECT, "kubernetes.NamespaceStatus"),
    },
    "kubernetes.NamespaceMetadata": {
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "labels": map_of(STRING, STRING),
        "annotations": map_of(STRING, STRING),
        "UID": STRING,
        "creationTimestamp": TIMESTAMP,
        "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": TIMESTAMP,
        "generation": INT,
        "resourceVersion": STRING,
        "finalizers": list_of(STRING),
    },
    "kubernetes.NamespaceSpec": {"finalizers": list_of(STRING)},
    "kubernetes.NamespaceStatus": {
        "conditions": list_of(CelType(Kind.OBJECT, "kubernetes.NamespaceCondition")),
        "phase": STRING,
    },
    "kubernetes.NamespaceCondition": {
        "status": STRING,
        "type": STRING,
        "lastTransitionTime": TIMESTAMP,
        "message": STRING,
        "reason": STRING,
    },
}


def variable_types(*, params: bool, authorizer: bool) -> dict[str, CelType]:
    """The variables of an expression, `variables` left out."""
    found = {"object": DYN, "oldObject": DYN, "namespaceObject": _NAMESPACE, "request": _REQUEST}
    if params:
        found["params"] = DYN
    if authorizer:
        found["authorizer"] = AUTHORIZER
        found["authorizer.requestResource"] = RESOURCE_CHECK
    return found


def namespace_value(namespace: Object | None) -> Any:
    """The namespace as expressions see it: with moments instead of texts, without what is nobody's business."""
    if namespace is None:
        return None
    found: dict[str, Any] = {}
    for part, fields in (("metadata", "kubernetes.NamespaceMetadata"), ("spec", "kubernetes.NamespaceSpec")):
        given = namespace.get(part)
        if isinstance(given, dict):
            found[part] = {name: _value(given[name], type_) for name, type_ in OBJECTS[fields].items() if name in given}
    status = namespace.get("status")
    if isinstance(status, dict):
        known = OBJECTS["kubernetes.NamespaceCondition"]
        found["status"] = {"phase": status.get("phase", "")}
        found["status"]["conditions"] = [
            {name: _value(one[name], type_) for name, type_ in known.items() if name in one}
            for one in status.get("conditions") or ()
            if isinstance(one, dict)
        ]
    uid = (namespace.get("metadata") or {}).get("uid")
    if uid and "metadata" in found:
        found["metadata"]["UID"] = uid
    return found


def _value(value: Any, declared: CelType) -> Any:
    if declared.kind is Kind.TIMESTAMP and isinstance(value, str):
        return parse_timestamp(value) or value
    return value
