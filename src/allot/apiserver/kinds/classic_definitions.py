"""OpenAPI definitions of resource.k8s.io/v1alpha3 of Kubernetes 1.31: those of v1beta1, its successor, with the differences.

They include later fields of v1beta1, which clients of v1alpha3 do not use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.model.classic import POTENTIAL_NODES_MAX

Definition = dict[str, Any]

_NEWER, _OLDER = "v1beta1", "v1alpha3"
_PREFIX = "io.k8s.api.resource."
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_TEXT = {"type": ["string", "null"]}
_NODES = {"type": ["array", "null"], "items": {"type": ["string", "null"]}, "maxItems": POTENTIAL_NODES_MAX}
_CONTROLLER = {**_TEXT, "description": "Who allocates: the control plane controller of a driver; empty: the scheduler."}


def classic_definitions(definitions: Mapping[str, Any]) -> dict[str, Definition]:
    """By name, derived from those of all other kinds."""
    prefix = f"{_PREFIX}{_NEWER}."
    found: dict[str, Definition] = {
        name.replace(_NEWER, _OLDER): _older(definition)
        for name, definition in definitions.items()
        if name.startswith(prefix)
    }
    _add(found, "ResourceClaimSpec", "controller", _CONTROLLER)
    _add(found, "AllocationResult", "controller", _CONTROLLER)
    _add(found, "ResourceClaimStatus", "deallocationRequested", {"type": ["boolean", "null"]})
    _add(found, "DeviceClassSpec", "suitableNodes", _reference("io.k8s.api.core.v1.NodeSelector"))
    quantity = _reference("io.k8s.apimachinery.pkg.api.resource.Quantity")
    _add(found, "BasicDevice", "capacity", {"type": ["object", "null"], "additionalProperties": quantity})
    return found | _context()


def _context() -> dict[str, Definition]:
    """PodSchedulingContext, which no later version has."""
    kind = [{"group": "resource.k8s.io", "kind": "PodSchedulingContext", "version": _OLDER}]
    claims = {
        "type": ["array", "null"],
        "items": _reference(_named("ResourceClaimSchedulingStatus")),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    return {
        _named("PodSchedulingContext"): {
            "description": "Where a pod could run, negotiated between the scheduler and the controllers that allocate its claims.",
            "type": "object",
            "required": ["spec"],
            "properties": {
                "apiVersion": _TEXT,
                "kind": _TEXT,
                "metadata": _reference(f"{_META}ObjectMeta"),
                "spec": _reference(_named("PodSchedulingContextSpec")),
                "status": _reference(_named("PodSchedulingContextStatus")),
            },
            "x-kubernetes-group-version-kind": kind,
        },
        _named("PodSchedulingContextSpec"): {
            "type": "object",
            "properties": {"selectedNode": _TEXT, "potentialNodes": {**_NODES, "x-kubernetes-list-type": "atomic"}},
        },
        _named("PodSchedulingContextStatus"): {"type": "object", "properties": {"resourceClaims": claims}},
        _named("ResourceClaimSchedulingStatus"): {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "unsuitableNodes": {**_NODES, "x-kubernetes-list-type": "atomic"},
            },
        },
    }


def _named(kind: str) -> str:
    return f"{_PREFIX}{_OLDER}.{kind}"


def _reference(name: str) -> Definition:
    return {"$ref": f"#/$defs/{name}"}


def _add(definitions: dict[str, Definition], kind: str, field: str, schema: Definition) -> None:
    definition = definitions[_named(kind)]
    definitions[_named(kind)] = {**definition, "properties": {**definition["properties"], field: schema}}


def _older(value: Any) -> Any:
    """A definition with every name and version of the newer one replaced; texts for display stay as they are."""
    match value:
        case dict():
            return {key: item if key == "description" else _older(item) for key, item in value.items()}
        case list():
            return [_older(item) for item in value]
        case str():
            return (
                value.replace(f"{_PREFIX}{_NEWER}.", f"{_PREFIX}{_OLDER}.").replace(
                    f"resource.k8s.io/{_NEWER}", f"resource.k8s.io/{_OLDER}"
                )
                if value != _NEWER
                else _OLDER
            )
    return value
