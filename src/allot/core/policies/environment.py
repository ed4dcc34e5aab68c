"""The variables of admission expressions and their types, and the types of what mutations make."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from allot.core.cel.checking.declarations import JSON_PATCHES
from allot.core.cel.checking.environment import Environment, kubernetes_environment
from allot.core.cel.checking.signatures import merged
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
_VARIABLES = "kubernetes.variables"
PATCH = CelType(Kind.OBJECT, "JSONPatch")
APPLIED = CelType(Kind.OBJECT, "Object")
# Kinds of types that variables keep.
_KEPT = (
    Kind.ANY,
    Kind.BOOL,
    Kind.BYTES,
    Kind.DOUBLE,
    Kind.DURATION,
    Kind.INT,
    Kind.NULL,
    Kind.STRING,
    Kind.TIMESTAMP,
    Kind.UINT,
)
_PATCH_FIELDS = {"op": STRING, "path": STRING, "from": STRING, "value": DYN}

_OBJECTS: Mapping[str, Mapping[str, CelType]] = {
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


class _AnyField(Mapping[str, CelType]):
    """Fields of an object without a schema."""

    def __getitem__(self, name: str) -> CelType:
        return DYN

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _PatchObjects(Mapping[str, Mapping[str, CelType]]):
    """Object types, and those that mutations make: JSONPatch, Object, Object.spec and so on."""

    def __init__(self, known: Mapping[str, Mapping[str, CelType]]) -> None:
        self._known = {**known, PATCH.name: _PATCH_FIELDS}

    def __getitem__(self, name: str) -> Mapping[str, CelType]:
        return _AnyField() if name.partition(".")[0] == APPLIED.name else self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def expression_environment(
    variables: Mapping[str, CelType] | None, *, params: bool, authorizer: bool = True, patches: bool = False
) -> Environment:
    """What an expression may refer to. variables: those of the policy that it may read, None if it may read none. patches:
    whether it makes a mutation."""
    types = {"object": DYN, "oldObject": DYN, "namespaceObject": _NAMESPACE, "request": _REQUEST}
    if params:
        types["params"] = DYN
    if authorizer:
        types["authorizer"] = AUTHORIZER
        types["authorizer.requestResource"] = RESOURCE_CHECK
    objects = _OBJECTS
    if variables is not None:
        types["variables"] = CelType(Kind.OBJECT, _VARIABLES)
        objects = {**objects, _VARIABLES: dict(variables)}
    if not patches:
        return kubernetes_environment(types, objects)
    environment = kubernetes_environment(types, _PatchObjects(objects))
    return msgspec.structs.replace(
        environment,
        functions=merged(tuple(environment.functions.values()), JSON_PATCHES),
        made_types=frozenset((PATCH.name, APPLIED.name)),
    )


def typed_environment(
    variables: Mapping[str, CelType],
    object_: CelType,
    params: CelType | None,
    objects: Mapping[str, Mapping[str, CelType]],
) -> Environment:
    """What an expression may refer to where the types of its objects are known. As upstream's, it knows the authorizer but not
    `authorizer.requestResource`. objects: fields of their types; params: None without them."""
    types = {"object": object_, "oldObject": object_, "namespaceObject": _NAMESPACE, "request": _REQUEST}
    types |= {"authorizer": AUTHORIZER, "variables": CelType(Kind.OBJECT, _VARIABLES)}
    if params is not None:
        types["params"] = params
    return kubernetes_environment(types, ChainMap({**_OBJECTS, _VARIABLES: variables}, objects), stored=True)  # type: ignore[arg-type]


def variable_type(type_: CelType) -> CelType:
    """The type that a variable of a policy has: objects lose their fields, wherever they are in it."""
    if type_.kind in (Kind.LIST, Kind.MAP):
        return msgspec.structs.replace(type_, params=tuple(map(variable_type, type_.params)))
    return type_ if type_.kind in _KEPT else DYN


def namespace_value(namespace: Object | None) -> Any:
    """The namespace as expressions see it: with moments instead of texts, without what is no one's business."""
    if namespace is None:
        return None
    found: dict[str, Any] = {}
    for part, fields in (("metadata", "kubernetes.NamespaceMetadata"), ("spec", "kubernetes.NamespaceSpec")):
        given = namespace.get(part)
        if isinstance(given, dict):
            found[part] = {
                name: _value(given[name], type_) for name, type_ in _OBJECTS[fields].items() if name in given
            }
    status = namespace.get("status")
    if isinstance(status, dict):
        known = _OBJECTS["kubernetes.NamespaceCondition"]
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
