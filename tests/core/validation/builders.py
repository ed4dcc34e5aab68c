"""Small valid objects, and writing them as a server would."""

from __future__ import annotations

from typing import Any

from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model.codec import Envelope, decode_object, encode_envelope
from allot.core.validation.validate import (
    FieldError,
    Prepared,
    prepare_create,
    prepare_status_update,
    prepare_update,
    validate_create,
    validate_status_update,
    validate_update,
)

NOW = "2026-08-01T12:00:00Z"
LATER = "2026-08-01T13:00:00Z"


def claim(*requests: dict[str, Any], version: str = "v1", **devices: Any) -> dict[str, Any]:
    listed = list(requests) or [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {"devices": {"requests": listed, **devices}},
    }


def exactly(name: str = "gpu", **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **fields}}


def device_slice(*devices: dict[str, Any], version: str = "v1", **spec: Any) -> dict[str, Any]:
    placed = {} if {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": "node-a"}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "slice"},
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
            **placed,
            **({"devices": list(devices)} if devices else {}),
            **spec,
        },
    }


def taint_rule(effect: str = "NoSchedule", version: str = "v1", **taint: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "rule"},
        "spec": {"deviceSelector": {"driver": "gpu.example.com"}, "taint": {"key": "k", "effect": effect, **taint}},
    }


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": "team-a"},
        "spec": {"containers": [{"name": "main", "image": "i:1"}], **spec},
    }


def pod_group(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "group", "namespace": "team-a"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec},
    }


def store(value: dict[str, Any], gates: FeatureGates = DEFAULT_GATES, now: str | None = NOW) -> Envelope:
    """The object as a server has it after a create."""
    prepared = prepare_create(value, gates=gates, now=now)
    assert validate_create(prepared, gates=gates) == ()
    return stored(prepared)


def stored(prepared: Prepared) -> Envelope:
    value = prepared.stored
    value["metadata"] = {**value["metadata"], "resourceVersion": "7", "uid": "u-1", "creationTimestamp": NOW}
    return decode_object(value)


def body(old: Envelope, **members: Any) -> dict[str, Any]:
    """What a client sends after reading the object and changing some of its members."""
    return {**encode_envelope(old), **members}


def create_errors(value: dict[str, Any], gates: FeatureGates = DEFAULT_GATES) -> tuple[FieldError, ...]:
    return validate_create(prepare_create(value, gates=gates, now=NOW), gates=gates)


def update(
    value: dict[str, Any], old: Envelope, gates: FeatureGates = DEFAULT_GATES, now: str = LATER
) -> tuple[Prepared, tuple[FieldError, ...]]:
    prepared = prepare_update(value, old, gates=gates, now=now)
    return prepared, validate_update(prepared, old, gates=gates)


def write_status(
    status: Any, old: Envelope, gates: FeatureGates = DEFAULT_GATES, **members: Any
) -> tuple[Prepared, tuple[FieldError, ...]]:
    prepared = prepare_status_update(body(old, status=status, **members), old, gates=gates, now=LATER)
    return prepared, validate_status_update(prepared, old, gates=gates)


def texts(errors: tuple[FieldError, ...]) -> list[str]:
    return [str(error) for error in errors]
