"""Claims that a driver's controller allocates, as in Kubernetes 1.26 to 1.31 (feature gate DRAControlPlaneController).

v1alpha3 of 1.31 has fields for this that v1 lacks. Stored objects use annotations instead, so that every version keeps them;
`model.convert` translates. Two status fields follow from the rest: the allocating controller is the claim's controller, and
deallocation is requested as soon as the claim is unused.
"""

from __future__ import annotations

from typing import Any

import msgspec

from allot.core.model.core_v1 import NodeSelector
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import DeviceClass, ResourceClaim

GATE = "DRAControlPlaneController"
API_VERSION = "resource.k8s.io/v1alpha3"
CONTROLLER = "allot.dev/allocation-controller"
SUITABLE_NODES = "allot.dev/suitable-nodes"
# The number of nodes that are negotiated at a time.
POTENTIAL_NODES_MAX = 128

Object = dict[str, Any]


def controller_of(claim: ResourceClaim) -> str:
    """The controller that allocates a claim; empty for the scheduler."""
    return _annotation(claim.metadata, CONTROLLER)


def suitable_nodes(device_class: DeviceClass) -> NodeSelector | None:
    """The nodes that a class allows for such claims; None if it allows all."""
    text = _annotation(device_class.metadata, SUITABLE_NODES)
    try:
        return msgspec.json.decode(text, type=NodeSelector) if text else None
    except msgspec.MsgspecError:
        return None


def _annotation(metadata: ObjectMeta, key: str) -> str:
    return metadata.annotations.get(key, "")


# --- on JSON values ---


def class_to_v1(value: Object) -> Object:
    """A class with suitableNodes as an annotation."""
    spec = value.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("suitableNodes"), dict):
        return value
    text = msgspec.json.encode(spec["suitableNodes"], order="deterministic").decode()
    return _annotated({**value, "spec": _without(spec, "suitableNodes")}, SUITABLE_NODES, text)


def class_from_v1(value: Object) -> Object:
    """The reverse."""
    text, value = _unannotated(value, SUITABLE_NODES)
    try:
        return (
            {**value, "spec": {**value.get("spec", {}), "suitableNodes": msgspec.json.decode(text)}} if text else value
        )
    except msgspec.MsgspecError:
        return value


def claim_to_v1(value: Object) -> Object:
    """A claim with its controller as an annotation, without fields that follow from the rest."""
    status = value.get("status")
    if isinstance(status, dict):
        status = _without(status, "deallocationRequested")
        if isinstance(status.get("allocation"), dict):
            status["allocation"] = _without(status["allocation"], "controller")
        value = {**value, "status": status}
    return _controller_to_annotation(value)


def claim_from_v1(value: Object) -> Object:
    """The reverse."""
    controller, value = _unannotated(value, CONTROLLER)
    if not controller:
        return value
    value = {**value, "spec": {**value.get("spec", {}), "controller": controller}}
    status = value.get("status")
    if isinstance(status, dict) and isinstance(status.get("allocation"), dict):
        status = {**status, "allocation": {**status["allocation"], "controller": controller}}
        if not status.get("reservedFor"):
            status["deallocationRequested"] = True
        value["status"] = status
    return value


def template_to_v1(value: Object) -> Object:
    """A template whose claims have the annotation."""
    spec = value.get("spec")
    return {**value, "spec": _controller_to_annotation(spec)} if isinstance(spec, dict) else value


def template_from_v1(value: Object) -> Object:
    """The reverse."""
    if not isinstance(value.get("spec"), dict):
        return value
    controller, spec = _unannotated(value["spec"], CONTROLLER)
    if controller:
        spec = {**spec, "spec": {**spec.get("spec", {}), "controller": controller}}
    return {**value, "spec": spec}


def _controller_to_annotation(value: Object) -> Object:
    spec = value.get("spec")
    if not isinstance(spec, dict) or "controller" not in spec:
        return value
    changed = {**value, "spec": _without(spec, "controller")}
    controller = spec["controller"]
    return _annotated(changed, CONTROLLER, controller) if isinstance(controller, str) and controller else changed


def _annotated(value: Object, key: str, text: str) -> Object:
    metadata = value.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), key: text}
    return {**value, "metadata": {**metadata, "annotations": annotations}}


def _unannotated(value: Object, key: str) -> tuple[str, Object]:
    """The text of an annotation, and the value without it."""
    metadata = value.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if key not in annotations:
        return "", value
    left = _without(annotations, key)
    metadata = {**metadata, "annotations": left} if left else _without(metadata, "annotations")
    return annotations[key], {**value, "metadata": metadata} if metadata else _without(value, "metadata")


def _without(value: Object, *names: str) -> Object:
    return {name: item for name, item in value.items() if name not in names}
