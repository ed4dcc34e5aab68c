"""Priorities of pods and groups that do not exist yet, looked up as in admission."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import PodGroup, PriorityClass

T = TypeVar("T", Pod, PodGroup)


def priorities_of(classes: Iterable[PriorityClass]) -> dict[str, int]:
    """Values of priority classes by name; the empty name is the default."""
    known = list(classes)
    default = next((found.value for found in known if found.global_default), 0)
    return {**{found.metadata.name: found.value for found in known}, "": default}


def with_priority(found: T, priorities: Mapping[str, int]) -> T:
    """With the value of its class; unchanged if the class is unknown."""
    value = priorities.get(found.spec.priority_class_name or "")
    if value is None or found.spec.priority is not None:
        return found
    return replace(found, spec=replace(found.spec, priority=value))
