"""Gangs: how many pods they need, have, and have placed, and their last message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allot.core.advice.explain.holding import FINISHED
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import ForeignGroup, minimum_of, topology_key

# States of gangs that are not running yet.
UNPLACED = ("waiting", "incomplete", "partly placed")
_MEMBERS_MAX = 200


def gang_row(what_if: WhatIfCluster, group: PodGroup, members: Sequence[Pod]) -> dict[str, Any]:
    """A gang as lists show it."""
    alive = [pod for pod in members if pod.status.phase not in FINISHED]
    placed = [pod for pod in alive if pod.spec.node_name]
    minimum = minimum_of(group)
    key = topology_key(group)
    nodes = what_if.cluster.nodes
    domains = {
        nodes[pod.spec.node_name].node.metadata.labels.get(key, "") for pod in placed if pod.spec.node_name in nodes
    }
    done = len(members) - len(alive)
    row: dict[str, Any] = {
        "at": group.metadata.creation_timestamp,
        "min": minimum,
        "pods": len(alive),
        "placed": len(placed),
        "s": _state(minimum, len(alive), len(placed), done),
        "members": sorted(pod.metadata.name for pod in members)[:_MEMBERS_MAX],
    }
    optional: dict[str, Any] = {
        "done": done,
        "dialect": group.dialect if isinstance(group, ForeignGroup) else "",
        "queue": group.queue if isinstance(group, ForeignGroup) else "",
        "by": key,
        "domains": sorted(domains - {""}) if key else [],
        "msg": next((each.message for each in group.status.conditions if each.status == "False"), ""),
    }
    return row | {name: value for name, value in optional.items() if value}


def _state(minimum: int, alive: int, placed: int, done: int) -> str:
    if placed and placed >= minimum:
        return "placed"
    if not alive and done:
        return "done"
    if alive + done < minimum:
        return "incomplete"
    return "partly placed" if placed else "waiting"
