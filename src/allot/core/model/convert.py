"""Conversion of objects between API versions, on JSON values.

Every kind has a hub version (`model.kinds`); an object of any other version is converted to the hub and from it, so there
are two directions and no pairs. Knows what v1beta1 looks like and what the v1alpha3 of Kubernetes 1.31 to 1.33 looked
like; the other versions differ only in name. Does not default, validate or check types: values of a wrong type
stay where they are for `model.decoding` to report. Input is never changed, and shared where possible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from allot.core.model import classic
from allot.core.model.kinds import Kind, UnknownKind, kind_of
from allot.core.model.resource_v1 import Device, ExactDeviceRequest
from allot.core.model.schema import schema_of

_EXACT_FIELDS = tuple(field.wire_name for field in schema_of(ExactDeviceRequest).fields)
_BASIC_FIELDS = frozenset(field.wire_name for field in schema_of(Device).fields) - {"name"}
# Flat request fields that count as set only with a value; the others count as soon as they are present.
_UNSET = {"deviceClassName": "", "allocationMode": "", "count": 0}

_V1BETA1 = "resource.k8s.io/v1beta1"
_V1ALPHA3 = classic.API_VERSION
_Change = Callable[[dict[str, Any]], dict[str, Any]]
# To v1 and back, for the v1alpha3 of Kubernetes 1.31.
_CLASSIC: dict[str, tuple[_Change, _Change]] = {
    "DeviceClass": (classic.class_to_v1, classic.class_from_v1),
    "ResourceClaim": (classic.claim_to_v1, classic.claim_from_v1),
    "ResourceClaimTemplate": (classic.template_to_v1, classic.template_from_v1),
}


class ConversionError(ValueError):
    """Something that another version cannot express."""


class Converted(msgspec.Struct, frozen=True):
    """A converted object, the fields unknown to its own version, and what was dropped."""

    value: dict[str, Any]
    unknown_fields: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def to_hub(value: dict[str, Any], *, keeps_classic: bool = False) -> dict[str, Any]:
    """The object in the hub version of its kind. keeps_classic: v1alpha3's fields for allocation by a driver's controller become
    annotations (`model.classic`); otherwise they are dropped."""
    if keeps_classic and value.get("apiVersion") == _V1ALPHA3 and value.get("kind") in _CLASSIC:
        value = _CLASSIC[value["kind"]][0](value)
    return convert_to_hub(value).value


def convert_to_hub(value: dict[str, Any]) -> Converted:
    """As `to_hub`, but also reports what was dropped."""
    api_version, kind = _kind(value)
    conversion = _Conversion()
    converted = {**value, "apiVersion": kind.hub_api_version}
    if api_version == _V1ALPHA3 and kind.name == "DeviceTaintRule":
        _refuse_selection_by_class(value)
    elif api_version in (_V1BETA1, _V1ALPHA3) and kind.name in _TO_HUB:
        conversion.old_alpha = api_version == _V1ALPHA3
        converted = _TO_HUB[kind.name](conversion, converted)
    return Converted(converted, tuple(conversion.unknown_fields), tuple(conversion.warnings))


def from_hub(value: dict[str, Any], api_version: str, *, keeps_classic: bool = False) -> dict[str, Any]:
    """The object, given in its hub version, in another version of its kind. keeps_classic: also in v1alpha3 as Kubernetes 1.31 had it."""
    own_version, kind = _kind(value)
    if own_version != kind.hub_api_version:
        raise ConversionError(
            f"{kind.name} is in version {own_version}: expected the hub version {kind.hub_api_version}"
        )
    is_classic = keeps_classic and api_version == _V1ALPHA3 and kind.name in _TO_HUB
    if api_version not in kind.api_versions and not is_classic:
        raise ConversionError(
            f"{kind.name} cannot be written as {api_version!r}: expected {' or '.join(kind.api_versions)}"
        )
    converted = {**value, "apiVersion": api_version}
    if (api_version == _V1BETA1 or is_classic) and kind.name in _FROM_HUB:
        converted = _FROM_HUB[kind.name](converted)
    if is_classic and kind.name == "ResourceSlice":
        converted = _at(converted, ("spec", "devices"), lambda devices: _each(devices, _plain_capacity))
    if is_classic and kind.name in _CLASSIC:
        converted = _CLASSIC[kind.name][1](converted)
    return converted


def _kind(value: dict[str, Any]) -> tuple[str, Kind]:
    api_version, name = value.get("apiVersion"), value.get("kind")
    if not isinstance(api_version, str) or not isinstance(name, str):
        raise UnknownKind("object has no apiVersion and kind: expected both as strings")
    return api_version, kind_of(api_version, name)


# --- walking ---


def _at(value: Any, path: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """The value with what is at `path` changed; objects on the path are copied, wrong types left alone."""
    if not path:
        return change(value)
    if not isinstance(value, dict) or value.get(path[0]) is None:
        return value
    return {**value, path[0]: _at(value[path[0]], path[1:], change)}


def _each(items: Any, change: Callable[[int, dict[str, Any]], Any]) -> Any:
    """The list with every object in it changed."""
    if not isinstance(items, list):
        return items
    return [change(index, item) if isinstance(item, dict) else item for index, item in enumerate(items)]


def _is(value: Any, expected: object) -> bool:
    """Equality that distinguishes False from 0."""
    return type(value) is type(expected) and value == expected


def _without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in names}


# --- to the hub ---


class _Conversion:
    """One conversion to the hub: what it drops, and whether it converts from the old v1alpha3."""

    def __init__(self) -> None:
        self.unknown_fields: list[str] = []
        self.warnings: list[str] = []
        self.old_alpha = False

    def device_class(self, value: Any) -> Any:
        return (
            self._dropped(value, ("spec",), "suitableNodes", "nodes are not chosen by class")
            if self.old_alpha
            else value
        )

    def claim(self, value: Any) -> Any:
        value = self._claim_spec(value, ("spec",))
        if self.old_alpha:
            classic = "allocation by a driver's controller no longer exists"
            value = self._dropped(value, ("status", "allocation"), "controller", classic)
            value = self._dropped(value, ("status",), "deallocationRequested", "claims are deallocated when unused")
        return value

    def template(self, value: Any) -> Any:
        return self._claim_spec(value, ("spec", "spec"))

    def slice(self, value: Any) -> Any:
        value = _at(value, ("spec",), self._slice_spec)
        return _at(value, ("spec", "devices"), lambda devices: _each(devices, self._device))

    def _claim_spec(self, value: Any, path: tuple[str, ...]) -> Any:
        if self.old_alpha:
            value = self._dropped(value, path, "controller", "allocation by a driver's controller no longer exists")
        requests_path = (*path, "devices", "requests")

        def request(index: int, flat: dict[str, Any]) -> dict[str, Any]:
            return self._request(f"{'.'.join(requests_path)}[{index}]", flat)

        return _at(value, requests_path, lambda requests: _each(requests, request))

    def _request(self, path: str, flat: dict[str, Any]) -> dict[str, Any]:
        if "exactly" in flat:
            self.unknown_fields.append(f"{path}.exactly")
        exactly = {name: flat[name] for name in _EXACT_FIELDS if flat.get(name) is not None}
        if self.old_alpha and exactly.get("adminAccess") is False:
            del exactly["adminAccess"]
        nested = _without(flat, "exactly", *_EXACT_FIELDS)
        is_set = any(name not in _UNSET or not _is(item, _UNSET[name]) for name, item in exactly.items())
        return {**nested, "exactly": exactly} if is_set else nested

    def _slice_spec(self, spec: Any) -> Any:
        if not isinstance(spec, dict):
            return spec
        # Plain values in these versions, where empty means unset; pointers in v1, where empty is an error.
        unset = [name for name, empty in (("nodeName", ""), ("allNodes", False)) if _is(spec.get(name), empty)]
        return _without(spec, *unset) if unset else spec

    def _device(self, index: int, device: dict[str, Any]) -> dict[str, Any]:
        path = f"spec.devices[{index}]"
        self.unknown_fields += [f"{path}.{name}" for name in device if name not in ("name", "basic")]
        basic = device.get("basic") or {}
        if not isinstance(basic, dict):
            raise ConversionError(f"{path}.basic: expected object")
        self.unknown_fields += [f"{path}.basic.{name}" for name in basic if name not in _BASIC_FIELDS]
        flat = {name: item for name, item in device.items() if name == "name"}
        flat.update({name: item for name, item in basic.items() if name in _BASIC_FIELDS})
        empty = [name for name in ("attributes", "capacity") if flat.get(name) == {}]
        flat = _without(flat, *empty) if empty else flat
        return _at(flat, ("capacity",), _wrapped_capacity) if self.old_alpha else flat

    def _dropped(self, value: Any, path: tuple[str, ...], name: str, why: str) -> Any:
        def drop(parent: Any) -> Any:
            if not isinstance(parent, dict) or not parent.get(name):
                return parent
            self.warnings.append(f"{'.'.join((*path, name))} was dropped: {why}")
            return _without(parent, name)

        return _at(value, path, drop)


def _wrapped_capacity(capacity: Any) -> Any:
    if not isinstance(capacity, dict):
        return capacity
    return {key: item if isinstance(item, dict) or item is None else {"value": item} for key, item in capacity.items()}


def _refuse_selection_by_class(rule: dict[str, Any]) -> None:
    spec = rule.get("spec")
    selector = spec.get("deviceSelector") if isinstance(spec, dict) else None
    for name in ("deviceClassName", "selectors"):
        if isinstance(selector, dict) and selector.get(name):
            # Dropping it could leave an empty selector, which taints every device.
            raise ConversionError(
                f"spec.deviceSelector.{name} was removed in Kubernetes 1.35: select by driver, pool and device instead"
            )


_TO_HUB: dict[str, Callable[[_Conversion, Any], Any]] = {
    "DeviceClass": _Conversion.device_class,
    "ResourceClaim": _Conversion.claim,
    "ResourceClaimTemplate": _Conversion.template,
    "ResourceSlice": _Conversion.slice,
}


# --- from the hub ---


def _flat_request(_index: int, request: dict[str, Any]) -> dict[str, Any]:
    exactly = request.get("exactly")
    flat = {"name": request["name"]} if "name" in request else {}
    # v1beta1 cannot omit the class name.
    flat["deviceClassName"] = ""
    if isinstance(exactly, dict):
        flat.update({name: item for name, item in exactly.items() if name in _EXACT_FIELDS})
    return flat | _without(request, "name", "exactly")


def _nested_device(_index: int, device: dict[str, Any]) -> dict[str, Any]:
    nested = {name: device[name] for name in ("name",) if name in device}
    return {**nested, "basic": _without(device, "name")}


def _plain_capacity(_index: int, device: dict[str, Any]) -> dict[str, Any]:
    def plain(capacity: Any) -> Any:
        if not isinstance(capacity, dict):
            return capacity
        return {key: item.get("value") if isinstance(item, dict) else item for key, item in capacity.items()}

    changed: dict[str, Any] = _at(device, ("basic", "capacity"), plain)
    return changed


def _flat_requests(path: tuple[str, ...]) -> Callable[[Any], Any]:
    return lambda value: _at(value, path, lambda requests: _each(requests, _flat_request))


_FROM_HUB: dict[str, Callable[[Any], Any]] = {
    "ResourceClaim": _flat_requests(("spec", "devices", "requests")),
    "ResourceClaimTemplate": _flat_requests(("spec", "spec", "devices", "requests")),
    "ResourceSlice": lambda value: _at(value, ("spec", "devices"), lambda devices: _each(devices, _nested_device)),
}
