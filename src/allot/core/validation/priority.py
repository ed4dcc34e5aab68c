"""Priority of pod groups: what the Priority admission plugin does on create.

Knows how a class name becomes a priority. Which classes exist is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup, PriorityClass

SYSTEM_PRIORITIES: Mapping[str, int] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}

Group = PodGroup | CompositePodGroup


class PriorityRefused(ValueError):
    """A priority or class that does not match the known classes; rejected with 403 and this message."""


def with_priority(group: Group, classes: Mapping[str, PriorityClass]) -> Group:
    """The group with the priority of its class, of the global default class, or 0."""
    name = group.spec.priority_class_name
    if not name:
        chosen = _global_default(classes)
        name, priority = (chosen.metadata.name, chosen.value) if chosen is not None else ("", 0)
    elif name in classes:
        priority = classes[name].value
    elif name in SYSTEM_PRIORITIES:
        priority = SYSTEM_PRIORITIES[name]
    else:
        raise PriorityRefused(f"no PriorityClass with name {name} was found")
    if group.spec.priority is not None and group.spec.priority != priority:
        raise PriorityRefused(
            f"priority set in the pod group ({group.spec.priority}) must match the priority computed ({priority}) "
            "based on the priority class set in the spec"
        )
    spec: Any = msgspec.structs.replace(group.spec, priority_class_name=name, priority=priority)
    return msgspec.structs.replace(group, spec=spec)


def _global_default(classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """The default class with the lowest value; as upstream, there may be several."""
    defaults = [candidate for candidate in classes.values() if candidate.global_default]
    return min(defaults, key=lambda candidate: (candidate.value, candidate.metadata.name), default=None)
