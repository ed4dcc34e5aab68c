"""What the rest of the input says about an object: the driver of a class, the parameters of a claim, and the
pods of a claim that used to restrict nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from allot.core.advice.convert.drivers import Driver, driver_named, driver_of_class
from allot.core.advice.convert.expressions import drivers_in
from allot.core.advice.convert.objects import RESOURCE_GROUP, Object, at, mapping, members, text
from allot.core.advice.places import Path

CLAIM_PARAMETERS = "ResourceClaimParameters"
CLASS_PARAMETERS = "ResourceClassParameters"

_Key = tuple[str, str, str, str]


class NodeRequirement(msgspec.Struct, frozen=True, kw_only=True):
    """A node requirement of an object other than a pod; it must move to pods."""

    owner: Object
    path: Path
    # One of the two: labels that a node has, or terms of a node selector.
    labels: dict[str, str] | None = None
    terms: list[Any] | None = None
    # The owner: kind, namespace (none for classes) and name.
    kind: str
    namespace: str
    name: str


class Surroundings:
    """The input as a whole."""

    def __init__(self, objects: Sequence[Object]) -> None:
        self.objects = objects
        self.requirements: list[NodeRequirement] = []
        self._drivers: dict[str, str] = {}
        self._parameters: dict[_Key, Object] = {}
        self._generated: dict[_Key, Object] = {}
        self._folded: set[int] = set()
        # Classes of claims that name a controller.
        self._controlled: set[str] = set()
        for found in objects:
            self._note(found)

    def _note(self, found: Object) -> None:
        if found.group == RESOURCE_GROUP and found.kind in ("ResourceClass", "DeviceClass"):
            driver = class_driver(found.given)
            if driver:
                self._drivers[found.name] = driver
        # Any kind may be parameters; a reference to it decides.
        self._parameters[found.group, found.kind, found.namespace, found.name] = found
        for path in (("spec",), ("spec", "spec")) if found.group == RESOURCE_GROUP else ():
            spec = mapping(at(found.given, path))
            if spec.get("controller"):
                self._controlled.update(_given_classes(spec))
        source = mapping(found.given.get("generatedFrom"))
        if found.kind in (CLAIM_PARAMETERS, CLASS_PARAMETERS) and source:
            key = _reference(source, text(source.get("namespace")) or found.namespace)
            self._generated[key] = found

    def driver_of(self, class_name: str) -> Driver | None:
        """The driver of a class, from the input or from well-known charts."""
        if class_name in self._drivers:
            return driver_named(self._drivers[class_name])
        return driver_of_class(class_name)

    def referenced(self, reference: dict[str, Any], namespace: str) -> Object | None:
        """The parameters behind a reference: generated core ones if there are any, else the vendor's."""
        key = _reference(reference, text(reference.get("namespace")) or namespace)
        own = self._parameters.get(key)
        generated = self._generated.get(key)
        for found in (own, generated):
            if found is not None:
                self._folded.add(id(found))
        return generated or own

    def has_controller(self, class_name: str) -> bool:
        """Whether a claim or template of the input names a controller, and asks for devices of the class."""
        return class_name in self._controlled

    def is_folded(self, found: Object) -> bool:
        """Whether parameters were used."""
        return id(found) in self._folded


def _given_classes(spec: dict[str, Any]) -> Iterable[str]:
    """The classes that a claim of 1.31 or later names, in any of these versions."""
    for request in map(mapping, members(at(spec, ("devices", "requests")))):
        yield text(request.get("deviceClassName"))
    yield from classes_of(spec)


def _reference(reference: dict[str, Any], namespace: str) -> _Key:
    # Authors write apiVersion instead of apiGroup, and versions instead of groups.
    group = text(reference.get("apiGroup")) or text(reference.get("apiVersion"))
    return group.partition("/")[0], text(reference.get("kind")), namespace, text(reference.get("name"))


def class_driver(value: dict[str, Any]) -> str:
    """The driver of a class in any of its forms; empty if it names none."""
    for path in (("driverName",), ("spec", "driverName"), ("structuredParameters", "generatedFrom", "driverName")):
        found = text(at(value, path))
        if found:
            return found
    named = [
        driver
        for selector in members(at(value, ("spec", "selectors")))
        for driver in drivers_in(text(at(selector, ("cel", "expression"))))
    ]
    return named[0] if len(set(named)) == 1 else ""


def classes_of(spec: Any) -> Iterable[str]:
    """The classes that a claim's requests name, in the current form."""
    for request in members(at(spec, ("devices", "requests"))):
        yield text(at(request, ("exactly", "deviceClassName")))
        for alternative in members(mapping(request).get("firstAvailable")):
            yield text(mapping(alternative).get("deviceClassName"))
