"""Claims, templates, device classes and pods as lint sees them: plain values with the path of everything named.

Reads every served version, even if the form of one version appears under another version's name: another topic reports
the server's answer to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from allot.core.advice.convert.objects import mapping
from allot.core.advice.lint.source import Subject
from allot.core.advice.places import Path
from allot.core.advice.pod_templates import named_containers, pod_spec_paths, pods_made
from allot.core.model.plain import plain_text

GROUP = "resource.k8s.io"
_SHARING = ("TimeSlicing", "MPS")
CLAIM, TEMPLATE, CLASS = "ResourceClaim", "ResourceClaimTemplate", "DeviceClass"


class Selector(msgspec.Struct, frozen=True):
    """An expression and its path."""

    expression: str
    path: Path


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or an alternative of one."""

    name: str
    # Paths of the request or alternative, and of the part with its details.
    path: Path
    wanted: dict[str, Any]
    wanted_path: Path
    selectors: tuple[Selector, ...]
    alternatives: tuple[Request, ...] = ()

    @property
    def device_class(self) -> str:
        """The name of its class; empty if it has none."""
        return plain_text(self.wanted.get("deviceClassName"))

    @property
    def wants_all(self) -> bool:
        """Whether it wants all devices."""
        return self.wanted.get("allocationMode") == "All"

    @property
    def count(self) -> int:
        """How many devices it wants, if not all."""
        count = self.wanted.get("count")
        return count if isinstance(count, int) and not isinstance(count, bool) else 1

    @property
    def leaves(self) -> tuple[Request, ...]:
        """What may be allocated: the alternatives, or the request itself."""
        return self.alternatives or (self,)


class Config(msgspec.Struct, frozen=True):
    """Opaque configuration: the driver, its parameters, the requests it is for, and the path of the opaque part."""

    driver: str
    parameters: Any
    requests: tuple[str, ...]
    path: Path

    @property
    def sharing_strategy(self) -> str:
        """The driver's sharing strategy; empty if none is configured."""
        strategy = mapping(mapping(self.parameters).get("sharing")).get("strategy")
        return strategy if strategy in _SHARING else ""


class Claim(msgspec.Struct, frozen=True):
    """A claim or template."""

    subject: Subject
    requests: tuple[Request, ...]
    configs: tuple[Config, ...]
    # The path of `devices`.
    path: Path

    @property
    def is_template(self) -> bool:
        """Whether it is a template."""
        return self.subject.kind == TEMPLATE

    @property
    def constraints(self) -> Iterator[tuple[dict[str, Any], Path]]:
        """Constraints with their paths."""
        path = (*self.path, "constraints")
        return ((each, (*path, index)) for index, each in mappings(self.subject.at(path)))


class PodSpec(msgspec.Struct, frozen=True):
    """The spec of a pod, or of the pods that an object creates."""

    subject: Subject
    spec: dict[str, Any]
    path: Path

    @property
    def claims(self) -> Iterator[tuple[dict[str, Any], Path]]:
        """Entries of resourceClaims with their paths."""
        path = (*self.path, "resourceClaims")
        return ((each, (*path, index)) for index, each in mappings(self.spec.get("resourceClaims")))

    @property
    def containers(self) -> Iterator[tuple[dict[str, Any], Path]]:
        """All containers with their paths."""
        for field in ("initContainers", "containers"):
            for index, each in mappings(self.spec.get(field)):
                yield each, (*self.path, field, index)
        for field, each in named_containers(self.spec):
            yield {"name": field, **each}, (*self.path, field)

    @property
    def pods(self) -> int:
        """How many such pods run at once, as far as the object says."""
        return pods_made(self.subject.value, self.path)

    def claims_of(self, container: dict[str, Any], path: Path) -> Iterator[tuple[dict[str, Any], Path]]:
        """The claims of the pod that a container uses, with paths."""
        resources = mapping(container.get("resources"))
        for index, each in mappings(resources.get("claims")):
            yield each, (*path, "resources", "claims", index)

    def users_of(self, name: str) -> list[str]:
        """Names of the containers that use a claim of the pod."""
        return [
            plain_text(container.get("name"))
            for container, path in self.containers
            if any(use.get("name") == name for use, _ in self.claims_of(container, path))
        ]


def claims(subject: Subject) -> Iterator[Claim]:
    """An object as a claim or template."""
    if subject.group != GROUP or subject.kind not in (CLAIM, TEMPLATE):
        return
    path: Path = ("spec", "devices") if subject.kind == CLAIM else ("spec", "spec", "devices")
    devices = mapping(subject.at(path))
    requests = tuple(_request(each, (*path, "requests", index)) for index, each in mappings(devices.get("requests")))
    yield Claim(subject, requests, tuple(_configs(devices.get("config"), (*path, "config"))), path)


def class_selectors(subject: Subject) -> tuple[Selector, ...]:
    """The selectors of a device class."""
    return tuple(_selectors(mapping(subject.value.get("spec")), ("spec",)))


def class_configs(subject: Subject) -> tuple[Config, ...]:
    """The configuration of a device class."""
    return tuple(_configs(mapping(subject.value.get("spec")).get("config"), ("spec", "config")))


def pod_specs(subject: Subject) -> Iterator[PodSpec]:
    """The specs of pods in an object of any kind."""
    for path in pod_spec_paths(subject.value):
        yield PodSpec(subject, subject.at(path), path)


def _request(value: dict[str, Any], path: Path) -> Request:
    exactly = value.get("exactly")
    wanted, wanted_path = (exactly, (*path, "exactly")) if isinstance(exactly, dict) else (value, path)
    alternatives = tuple(
        _request(each, (*path, "firstAvailable", index)) for index, each in mappings(value.get("firstAvailable"))
    )
    return Request(
        name=plain_text(value.get("name")),
        path=path,
        wanted=wanted,
        wanted_path=wanted_path,
        selectors=tuple(_selectors(wanted, wanted_path)),
        alternatives=alternatives,
    )


def _selectors(value: dict[str, Any], path: Path) -> Iterator[Selector]:
    for index, each in mappings(value.get("selectors")):
        expression = mapping(each.get("cel")).get("expression")
        if isinstance(expression, str):
            yield Selector(expression, (*path, "selectors", index, "cel", "expression"))


def _configs(value: Any, path: Path) -> Iterator[Config]:
    for index, each in mappings(value):
        opaque = each.get("opaque")
        if isinstance(opaque, dict):
            requests = each.get("requests")
            named = tuple(name for name in requests if isinstance(name, str)) if isinstance(requests, list) else ()
            yield Config(plain_text(opaque.get("driver")), opaque.get("parameters"), named, (*path, index, "opaque"))


# --- plain values ---


def mappings(value: Any) -> list[tuple[int, dict[str, Any]]]:
    """The members of a list that are mappings, with their positions."""
    return (
        [(index, each) for index, each in enumerate(value) if isinstance(each, dict)] if isinstance(value, list) else []
    )
