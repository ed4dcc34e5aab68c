"""Specs of pods in objects of any kind, found by their shape: in pods, in templates of controllers, in custom resources.

A pod spec has containers. Some custom resources have it where others have a template (KServe's predictors), with one
of its containers under a separate name; such a spec is recognized by its claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allot.core.advice.places import Path

CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_NOT_LOOKED_INTO = frozenset(("data", "stringData", "binaryData", "status", "managedFields"))
_REFERENCES = ("resourceClaimName", "resourceClaimTemplateName", "source")
_DEPTH_MAX = 40


def pod_spec_paths(value: Any) -> Iterator[Path]:
    """The paths of pod specs, in the order of the object."""
    pending: list[tuple[Any, Path]] = [(value, ())]
    while pending:
        found, path = pending.pop()
        if len(path) > _DEPTH_MAX:
            continue
        if isinstance(found, dict):
            if is_pod_spec(found):
                yield path
                continue
            pending += [
                (item, (*path, key))
                for key, item in reversed(found.items())
                if isinstance(item, dict | list) and key not in _NOT_LOOKED_INTO
            ]
        elif isinstance(found, list):
            pending += [
                (item, (*path, index)) for index, item in reversed([*enumerate(found)]) if isinstance(item, dict | list)
            ]


def is_pod_spec(value: Mapping[str, Any]) -> bool:
    """Whether a mapping is the spec of a pod."""
    containers = value.get("containers")
    if isinstance(containers, list) and containers:
        return all(isinstance(each, dict) and ("name" in each or "image" in each) for each in containers)
    claims = value.get("resourceClaims")
    return (
        isinstance(claims, list)
        and bool(claims)
        and all(isinstance(each, dict) and any(field in each for field in _REFERENCES) for each in claims)
        and any(True for _ in named_containers(value))
    )


def named_containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Containers in a spec under a separate name instead of in a list."""
    for key, each in spec.items():
        if isinstance(each, dict) and isinstance(each.get("resources"), dict):
            yield key, each


def pods_made(value: Any, path: Path) -> int:
    """How many pods with the spec at a path run at once, as far as the object says: the replicas of everything around it.
    What runs once per node counts once."""
    count = 1
    for length, step in enumerate((*path, None)):
        if isinstance(value, dict):
            count *= _factor(value, step)
        if length < len(path):
            value = _member(value, path[length])
    return count


def _factor(value: Mapping[str, Any], step: str | int | None) -> int:
    for field in ("replicas", "parallelism", "minReplicas"):
        number = _number(value.get(field))
        if number is not None:
            most = _number(value.get("completions")) if field == "parallelism" else None
            return number if most is None else min(number, most)
    size = _number(value.get("size"))
    # A LeaderWorkerSet has one leader and the others as workers.
    return size - 1 if size and step == "workerTemplate" else 1


def _number(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _member(value: Any, step: str | int) -> Any:
    if isinstance(value, dict) and isinstance(step, str):
        return value.get(step)
    return value[step] if isinstance(value, list) and isinstance(step, int) and step < len(value) else None
