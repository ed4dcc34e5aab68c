"""The checks of KAI's webhook for PodGroups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MINIMUMS = ("minMember", "minSubGroup")


def group_problem(spec: Mapping[str, Any]) -> str:
    """What is wrong with the parts of a group; empty if nothing is."""
    parts = spec.get("subGroups")
    if not isinstance(parts, list):
        parts = []
    if spec.get("minMember") is not None and spec.get("minSubGroup") is not None:
        return "spec.minMember and spec.minSubGroup exclude each other"
    if spec.get("minSubGroup") is not None and not parts:
        return "spec.minSubGroup needs spec.subGroups"
    parents: dict[str, str] = {}
    for number, part in enumerate(parts):
        name = str(part.get("name", ""))
        if name in parents:
            return f"spec.subGroups[{number}].name: sub-group {name} already exists"
        parents[name] = str(part.get("parent") or "").lower()
    for number, part in enumerate(parts):
        problem = _part_problem(part, parents)
        if problem:
            return f"spec.subGroups[{number}]: {problem}"
    return ""


def _part_problem(part: Mapping[str, Any], parents: Mapping[str, str]) -> str:
    name = str(part.get("name", ""))
    parent = parents[name]
    if parent and parent not in parents:
        return f"parent {parent} of {name} does not exist"
    above, steps = parent, 0
    while above and steps <= len(parents):
        above, steps = parents.get(above, ""), steps + 1
    if above:
        return f"sub-group {name} is below itself"
    below = sum(each == name for each in parents.values())
    if all(part.get(field) is not None for field in _MINIMUMS):
        return "minMember and minSubGroup exclude each other"
    if below and part.get("minMember") is not None:
        return f"sub-group {name} has subgroups, so minMember has no effect: expected minSubGroup"
    if not below and part.get("minSubGroup") is not None:
        return f"no sub-group has the parent {name}, so minSubGroup has no effect: expected minMember"
    least = part.get("minSubGroup")
    if isinstance(least, int) and least > below:
        return f"minSubGroup is {least}, and {name} has {below} sub-groups"
    return ""
