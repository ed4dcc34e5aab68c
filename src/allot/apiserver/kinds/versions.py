"""Conversion of objects between the versions of a kind.

Device allocation has its own converter in `core.model.convert`, definitions of custom resources in
`core.customresources.older_definitions`; autoscalers and events are converted here; the other kinds have the same schema
in all versions, so only apiVersion changes. Input is never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allot.apiserver.kinds import autoscaler_versions, event_versions
from allot.apiserver.resources import Object, Refused, Resource
from allot.core.customresources.older_definitions import V1, V1BETA1, from_v1beta1
from allot.core.model.convert import ConversionError, from_hub, to_hub
from allot.core.model.kinds import UnknownKind, kind_of

_Converter = Callable[[Object], Object]

_CONVERTERS: dict[tuple[str, str], _Converter] = {
    ("events.k8s.io/v1 Event", "v1"): event_versions.to_core,
    ("v1 Event", "events.k8s.io/v1"): event_versions.from_core,
    ("autoscaling/v1 HorizontalPodAutoscaler", "autoscaling/v2"): autoscaler_versions.to_v2,
    ("autoscaling/v2 HorizontalPodAutoscaler", "autoscaling/v1"): autoscaler_versions.to_v1,
    (f"{V1BETA1} CustomResourceDefinition", V1): from_v1beta1,
}


def convert(object_: Object, from_: Resource, to: Resource) -> Object:
    """The object, converted from the version of one row to that of another row of its kind; Refused if that is impossible."""
    return convert_to(object_, from_.kind, from_.api_version, to.api_version)


def to_storage(object_: Object, resource: Resource) -> Object:
    """The object, converted from the row's version to the storage version."""
    return convert_to(object_, resource.kind, resource.api_version, resource.storage_api_version)


def from_storage(object_: Object, resource: Resource) -> Object:
    """The stored object in the row's version; the same object if the versions are equal."""
    return convert_to(object_, resource.kind, resource.storage_api_version, resource.api_version)


def convert_to(object_: Object, kind: str, api_version: str, wanted: str) -> Object:
    """The object of a kind and apiVersion in another apiVersion."""
    if api_version == wanted:
        return object_
    converter = _CONVERTERS.get((f"{api_version} {kind}", wanted))
    if converter is not None:
        return converter(object_)
    if wanted.startswith("resource.k8s.io/"):
        return _device_kind(object_, wanted)
    return {**object_, "apiVersion": wanted}


def _device_kind(object_: Object, wanted: str) -> Object:
    try:
        # Served versions keep their content; the old one is served only with its gate on.
        hub: dict[str, Any] = to_hub(object_, keeps_classic=True)
        kind = kind_of(str(object_["apiVersion"]), str(object_["kind"]))
        return hub if wanted == kind.hub_api_version else from_hub(hub, wanted, keeps_classic=True)
    except (ConversionError, UnknownKind) as error:
        raise Refused(str(error)) from error
