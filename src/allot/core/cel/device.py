"""A device as expressions see it.

`DeviceView` is the value of the variable `device`: driver, attributes and capacities by domain and identifier, and
whether the device may be allocated several times. Knows nothing of the API's types: views are made from plain inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from allot.core.cel.costs.sizes import (
    ATTRIBUTE_SIZE_MAX,
    DOMAIN_LENGTH_MAX,
    DRIVER_LENGTH_MAX,
    ENTRIES_MAX,
    ID_LENGTH_MAX,
)
from allot.core.cel.data.values import DefaultMap, EvaluationError, Value
from allot.core.quantity import Quantity
from allot.core.semver import Semver, SemverError

# Attribute kinds: a single value, or a list of them.
_SCALARS: Final = frozenset(("bool", "int", "string", "version"))
_LISTS: Final = {"bools": "bool", "ints": "int", "strings": "string", "versions": "version"}


class DeviceView:
    """One device. Maps are ordered by name, so that equal devices are traversed in the same order."""

    __slots__ = ("_variables", "allow_multiple_allocations", "attributes", "capacity", "driver", "oversized")

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, Mapping[str, Value]] | None = None,
        capacity: Mapping[str, Mapping[str, Quantity]] | None = None,
        allow_multiple_allocations: bool = False,
    ) -> None:
        self.driver = driver
        self.attributes = _ordered(attributes or {})
        self.capacity = _ordered(capacity or {})
        self.allow_multiple_allocations = allow_multiple_allocations
        # Larger than the API allows, so the static estimate does not hold.
        self.oversized = _is_oversized(self)
        self._variables: dict[str, Value] | None = None

    @property
    def variables(self) -> dict[str, Value]:
        """The variables of an evaluation: `device`, a map like any other."""
        if self._variables is None:
            device = {
                "driver": self.driver,
                "allowMultipleAllocations": self.allow_multiple_allocations,
                "attributes": self.attributes,
                "capacity": self.capacity,
            }
            self._variables = {"device": device}
        return self._variables


def view(
    driver: str,
    attributes: Mapping[str, tuple[str, Any]] | None = None,
    capacity: Mapping[str, Quantity] | None = None,
    allow_multiple_allocations: bool = False,
) -> DeviceView:
    """A view from API names: `model` belongs to the driver's domain, `example.com/model` to its own.

    Attribute values are given as (kind, value), kind one of bool, int, string, version, bools, ints, strings, versions.
    An invalid version raises EvaluationError, as it would fail every evaluation.
    """
    attributes_by_domain: dict[str, dict[str, Value]] = {}
    for name, (kind, raw) in (attributes or {}).items():
        domain, identifier = split_name(name, driver)
        attributes_by_domain.setdefault(domain, {})[identifier] = _attribute(name, kind, raw)
    capacity_by_domain: dict[str, dict[str, Quantity]] = {}
    for name, quantity in (capacity or {}).items():
        domain, identifier = split_name(name, driver)
        capacity_by_domain.setdefault(domain, {})[identifier] = quantity
    return DeviceView(driver, attributes_by_domain, capacity_by_domain, allow_multiple_allocations)


def split_name(name: str, driver: str) -> tuple[str, str]:
    """Domain and identifier of an attribute or capacity."""
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _attribute(name: str, kind: str, raw: Any) -> Value:
    if kind in _SCALARS:
        return _scalar(name, kind, raw)
    if kind in _LISTS:
        return [_scalar(name, _LISTS[kind], element) for element in raw]
    raise EvaluationError(f"attribute {name}: unsupported attribute value")


def _scalar(name: str, kind: str, raw: Any) -> Value:
    if kind != "version" or isinstance(raw, Semver):
        return raw
    try:
        return Semver.parse(raw)
    except SemverError as error:
        raise EvaluationError(f"attribute {name}: parse semantic version: {error}") from None


def _ordered(by_domain: Mapping[str, Mapping[str, Any]]) -> DefaultMap:
    return DefaultMap(
        (domain, {identifier: values[identifier] for identifier in sorted(values)})
        for domain, values in sorted(by_domain.items())
    )


def _is_oversized(device: DeviceView) -> bool:
    if len(device.driver) > DRIVER_LENGTH_MAX or max(len(device.attributes), len(device.capacity)) > ENTRIES_MAX:
        return True
    return _has_large(device.attributes.items()) or _has_large(device.capacity.items())


def _has_large(domains: Iterable[tuple[str, Mapping[str, Value]]]) -> bool:
    for domain, values in domains:
        if len(domain) > DOMAIN_LENGTH_MAX or len(values) > ENTRIES_MAX:
            return True
        for identifier, value in values.items():
            if len(identifier) > ID_LENGTH_MAX or _is_large(value):
                return True
    return False


def _is_large(value: Value) -> bool:
    if value.__class__ is list:
        return len(value) > ATTRIBUTE_SIZE_MAX or any(_is_large(element) for element in value)
    return value.__class__ is str and len(value) > ATTRIBUTE_SIZE_MAX
