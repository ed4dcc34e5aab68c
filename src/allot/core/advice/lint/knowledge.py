"""What is known besides the manifests: devices, device classes, namespaces, and valid driver parameters.

It comes from a cluster, which is complete, or from hardware profiles and slices in the input, which are examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from allot.core.advice.snapshot import Snapshot
from allot.core.allocation.devices import attribute_value, view_of
from allot.core.cel.device import DeviceView, split_name
from allot.core.cel.selector import EvaluationError
from allot.core.model import core_v1, scheduling_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import APIStruct
from allot.core.scheduling import QUEUE_KINDS, Queue

T = TypeVar("T", bound=APIStruct)

# What is wrong with a driver's parameters; empty if they are valid.
ConfigCheck = Callable[[Any], str]

# Devices of any driver may have attributes in a Kubernetes domain.
STANDARD_DOMAIN = "resource.kubernetes.io"
STANDARD_ATTRIBUTES = ("pcieRoot", "pciBusID", "numaNode")


class KnownDevice(msgspec.Struct, frozen=True):
    """A device and its display name."""

    name: str
    view: DeviceView


class Words(msgspec.Struct, frozen=True):
    """The attribute and capacity names of devices by domain, with the kinds of their values."""

    attributes: Mapping[str, Mapping[str, str]] = {}
    capacities: Mapping[str, Mapping[str, str]] = {}

    @property
    def domains(self) -> frozenset[str]:
        """All domains."""
        return frozenset((*self.attributes, *self.capacities))

    def of(self, kind: str, domain: str) -> Mapping[str, str]:
        """The names in a domain; kind: attributes or capacity."""
        return (self.attributes if kind == "attributes" else self.capacities).get(domain, {})


def words_of(slices: Iterable[api.ResourceSlice]) -> Words:
    """The attribute and capacity names of the devices in slices."""
    attributes: dict[str, dict[str, str]] = {}
    capacities: dict[str, dict[str, str]] = {}
    for slice_ in slices:
        driver = slice_.spec.driver
        for device in slice_.spec.devices or ():
            for name, attribute in device.attributes.items():
                domain, identifier = split_name(name, driver)
                kind, _ = attribute_value(attribute) or ("", None)
                attributes.setdefault(domain, {})[identifier] = kind
            for name in device.capacity:
                domain, identifier = split_name(name, driver)
                capacities.setdefault(domain, {})[identifier] = "quantity"
    return Words(attributes, capacities)


class Knowledge:
    """Everything known. `cluster`: a complete one; `examples`: objects that only show what may exist."""

    def __init__(
        self,
        *,
        cluster: Snapshot | None = None,
        examples: Snapshot | None = None,
        config_checks: Mapping[str, ConfigCheck] | None = None,
        machines: Iterable[str] = (),
    ) -> None:
        """machines: the machine types of clouds."""
        self.is_cluster = cluster is not None
        # Whether anything was given besides the manifests.
        self.is_given = cluster is not None or examples is not None
        self._objects = (cluster.objects if cluster is not None else ()) + (
            examples.objects if examples is not None else ()
        )
        self._snapshot = Snapshot(self._objects)
        self.config_checks = config_checks or {}
        self.machines = frozenset(machines)

    def with_examples(self, objects: Iterable[Any]) -> Knowledge:
        """The same with the objects of the input."""
        known = Knowledge(
            examples=Snapshot((*self._objects, *objects)),
            config_checks=self.config_checks,
            machines=self.machines,
        )
        known.is_cluster, known.is_given = self.is_cluster, self.is_given
        return known

    def has(self, type_: type[APIStruct], name: str, namespace: str) -> bool:
        """Whether an object exists."""
        return self._snapshot.find(type_, name, namespace) is not None

    def all(self, type_: type[T]) -> list[T]:
        """All objects of a kind."""
        return self._snapshot.of(type_)

    @cached_property
    def slices(self) -> list[api.ResourceSlice]:
        """All slices."""
        return self._snapshot.of(api.ResourceSlice)

    @cached_property
    def taint_rules(self) -> list[api.DeviceTaintRule]:
        """All rules that taint devices."""
        return self._snapshot.of(api.DeviceTaintRule)

    @cached_property
    def classes(self) -> dict[str, api.DeviceClass]:
        """Device classes by name; the last one of a name counts."""
        return {each.metadata.name: each for each in self._snapshot.of(api.DeviceClass)}

    @cached_property
    def queues(self) -> list[Queue]:
        """All queues, of every dialect."""
        found = [read(each) for type_, read in QUEUE_KINDS.items() for each in self._snapshot.of(type_)]
        return [queue for queue in found if queue is not None]

    @cached_property
    def nodes(self) -> list[core_v1.Node]:
        """All nodes."""
        return self._snapshot.of(core_v1.Node)

    @cached_property
    def namespace_labels(self) -> dict[str, Mapping[str, str]]:
        """Labels by namespace."""
        return {each.metadata.name: each.metadata.labels for each in self._snapshot.of(core_v1.Namespace)}

    @cached_property
    def claims(self) -> dict[tuple[str, str], api.ResourceClaim]:
        """Claims by namespace and name."""
        return {(each.metadata.namespace, each.metadata.name): each for each in self._snapshot.of(api.ResourceClaim)}

    @cached_property
    def templates(self) -> dict[tuple[str, str], api.ResourceClaimTemplate]:
        """Templates by namespace and name."""
        return {
            (each.metadata.namespace, each.metadata.name): each for each in self._snapshot.of(api.ResourceClaimTemplate)
        }

    @cached_property
    def priorities(self) -> dict[str, int]:
        """Values of priority classes by name; the empty name is for pods without one. Empty unless a cluster is known."""
        if not self.is_cluster:
            return {}
        classes = self._snapshot.of(scheduling_v1.PriorityClass)
        default = next((each.value for each in classes if each.global_default), 0)
        return {"": default, **{each.metadata.name: each.value for each in classes}}

    @property
    def has_devices(self) -> bool:
        """Whether anything is known about devices."""
        return bool(self.devices)

    @cached_property
    def devices(self) -> tuple[KnownDevice, ...]:
        """One device of each distinct appearance."""
        found: dict[int, KnownDevice] = {}
        for slice_ in self.slices:
            spec = slice_.spec
            for device in spec.devices or ():
                try:
                    view = view_of(spec.driver, device)
                except EvaluationError:
                    continue
                # Devices that look the same share a view.
                found.setdefault(id(view), KnownDevice(f"{spec.driver}/{spec.pool.name}/{device.name}", view))
        return tuple(found.values())

    @cached_property
    def drivers(self) -> frozenset[str]:
        """Names of drivers that have devices."""
        return frozenset(slice_.spec.driver for slice_ in self.slices)

    @cached_property
    def words(self) -> Words:
        """The attribute and capacity names of the known devices."""
        return words_of(self.slices)
