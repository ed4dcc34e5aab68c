"""Bodies that are filled with one thing: for every list and map that a built-in kind has, an object with many elements in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from allot.apiserver.registry import Registry, Served
from allot.core.schema import Kind, Schema

Path = tuple[str | int, ...]

_DEPTH_MAX = 9
_SCALARS: dict[Kind, Any] = {
    Kind.NUMBER: 1.5,
    Kind.BOOLEAN: True,
    Kind.BYTES: "YWFh",
    Kind.TIME: "2024-01-01T00:00:00Z",
    Kind.MICRO_TIME: "2024-01-01T00:00:00.000000Z",
    Kind.QUANTITY: "1",
}
# What has no meaning unless there is an object of that name.
_LEFT_OUT = frozenset(
    ("managedFields", "priorityClassName", "preemptionPolicy", "runtimeClassName", "serviceAccountName")
)
_TELLING = frozenset(("name", "key", "uid", "values"))
# Of the many kinds with the same template, and of the metadata that all have, these stand for all.
_TEMPLATES = ("Deployment", "ResourceClaimTemplate")
_METADATA = ("Pod", "ConfigMap", "ResourceClaim")


def list_fields(registry: Registry) -> Iterator[tuple[Served, Path, Schema]]:
    """Every list or map in every kind that is stored."""
    for row in tuple(registry):
        resource, schema = row.resource, row.schema
        if schema is None or "create" not in resource.verbs or not resource.stored or row.convert_needed:
            continue
        for path, node in _fields(schema, (), ()):
            if ("template" in path and resource.kind not in _TEMPLATES) or "jobTemplate" in path:
                continue
            if path[0] != "metadata" or resource.kind in _METADATA:
                yield row, path, node


def _fields(node: Schema, path: Path, seen: tuple[str, ...]) -> Iterator[tuple[Path, Schema]]:
    if len(path) > _DEPTH_MAX or (node.definition and node.definition in seen):
        return
    seen = (*seen, node.definition)
    if node.kind is Kind.OBJECT:
        for name, member in node.properties.items():
            if name not in _LEFT_OUT:
                yield from _fields(member, (*path, name), seen)
    elif node.kind is Kind.LIST and node.items is not None:
        yield path, node
        yield from _fields(node.items, (*path, 0), seen)
    elif node.kind is Kind.MAP and node.additional is not None:
        yield path, node
        yield from _fields(node.additional, (*path, "k"), seen)


def filled(row: Served, path: Path, node: Schema, count: int) -> dict[str, Any]:
    """An object of the kind with so many elements at the path."""
    value: Any
    if node.kind is Kind.LIST:
        assert node.items is not None
        value = [_sample(node.items, number) for number in range(count)]
    else:
        assert node.additional is not None
        value = {f"k{number}": _sample(node.additional, number) for number in range(count)}
    resource = row.resource
    assert row.schema is not None
    object_: dict[str, Any] = _placed(row.schema, path, value)
    metadata = {**object_.get("metadata", {}), "name": "a0"}
    for name in ("resourceVersion", "generateName", "namespace"):
        metadata.pop(name, None)
    if resource.namespaced:
        metadata["namespace"] = "default"
    return {**object_, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _placed(node: Schema, path: Path, value: Any) -> Any:
    if not path:
        return value
    step, *rest = path
    base = _sample(node, 0)
    if step == 0:
        assert node.items is not None
        return [_joined(_sample(node.items, 0), _placed(node.items, tuple(rest), value))]
    if node.kind is Kind.MAP:
        assert node.additional is not None
        return {step: _placed(node.additional, tuple(rest), value)}
    below = _placed(node.properties[str(step)], tuple(rest), value)
    return {**base, step: _joined(base.get(step), below)}


def _joined(base: Any, below: Any) -> Any:
    return {**base, **below} if isinstance(base, dict) and isinstance(below, dict) else below


def _sample(node: Schema, number: int, depth: int = 0, seen: tuple[str, ...] = ()) -> Any:
    kind = node.kind
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind is Kind.STRING:
        return f"a{number}"
    if kind in (Kind.INTEGER, Kind.INT_OR_STRING):
        return number % 60_000 + 1
    if kind is Kind.LIST and node.items is not None:
        return [_sample(node.items, number, depth + 1, seen)]
    if kind is Kind.MAP and node.additional is not None and node.additional.kind is not Kind.ANY:
        return {f"k{number}": _sample(node.additional, number, depth + 1, seen)}
    if kind is not Kind.OBJECT:
        return {}
    return {
        name: _sample(member, number, depth + 1, (*seen, node.definition))
        for name, member in node.properties.items()
        if name not in _LEFT_OUT
        and not (member.definition and member.definition in seen)
        and (name in node.required or name in _TELLING or (depth < 1 and member.kind is Kind.STRING))
    }
