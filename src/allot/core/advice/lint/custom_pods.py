"""Pods inside custom resources: checks what they say about claims as in any pod.

Nothing else, because what the controller adds to or drops from its pods is unknown here. For the same reason
no finding is more than a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allot.core.advice.convert.objects import mapping
from allot.core.advice.lint.claims import PodSpec, mappings
from allot.core.advice.lint.source import Subject, Written
from allot.core.advice.places import Path, Place, Places
from allot.core.advice.pod_templates import named_containers
from allot.core.model.plain import plain_text

_LISTS = ("initContainers", "containers")


def claiming_pod(spec: PodSpec) -> Subject | None:
    """A pod with only the claims of a spec, at the place of the spec; None if it has none.

    It keeps the name of the surrounding object, which users know."""
    claims = spec.spec.get("resourceClaims")
    if not claims:
        # A container that names claims then gets them from elsewhere.
        return None
    lists = {name: [_container(each, index) for index, each in mappings(spec.spec.get(name))] for name in _LISTS}
    beside = {len(lists["containers"]) + number: key for number, (key, _) in enumerate(named_containers(spec.spec))}
    lists["containers"] += [_container(mapping(spec.spec.get(key)), index) for index, key in beside.items()]
    head = {field: spec.subject.value.get(field) for field in ("apiVersion", "kind")}
    value = {
        **head,
        "metadata": spec.subject.value.get("metadata"),
        "spec": {**{k: v for k, v in lists.items() if v}, "resourceClaims": claims},
    }
    places = _PodPlaces(spec.subject.document.places, (*spec.subject.path, *spec.path), beside)
    return Subject(value, spec.subject.source, Written(value, spec.subject.document.line, places))


def _container(value: Mapping[str, Any], index: int) -> dict[str, Any]:
    resources = {"claims": mapping(value.get("resources")).get("claims")}
    container = {"name": f"c{index}", "image": plain_text(value.get("image")) or "image"}
    return {**container, "resources": resources} if resources["claims"] else container


class _PodPlaces(Mapping[Path, Place]):
    """The places of a pod's fields in the document of its spec."""

    def __init__(self, places: Places, base: Path, beside: Mapping[int, str]) -> None:
        self._places = places
        self._base = base
        self._beside = beside

    def __getitem__(self, path: Path) -> Place:
        return self._places[self.real(path)]

    def __iter__(self) -> Iterator[Path]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def real(self, path: Path) -> Path:
        """The path of a field of the pod in the document."""
        rest = path[1:] if path[:1] == ("spec",) else ()
        index = rest[1] if len(rest) > 1 else None
        if rest[:1] == ("containers",) and isinstance(index, int) and index in self._beside:
            rest = (self._beside[index], *rest[2:])
        return (*self._base, *rest)


def as_pod(value: Mapping[str, Any]) -> dict[str, Any]:
    """A claiming pod as the API server sees it."""
    return {**value, "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}}


def at_its_place(subject: Subject, spec: PodSpec, field: Path) -> Path:
    """The path of a claiming pod's field in the object of the spec."""
    places = subject.document.places
    assert isinstance(places, _PodPlaces)
    return places.real(field)[len(spec.subject.path) :]
