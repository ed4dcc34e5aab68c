"""How close together the pods of a group are placed: the topology levels that are tried in turn.

A level is the node labels down to it, joined by commas: racks of the same name in two blocks are different. A group that prefers a level is tried
there first, then on each level above, up to the one that it requires; one that requires none may in the end go anywhere.
"""

from __future__ import annotations

import msgspec

from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups.dialects import AnyForeign, ForeignGroup, Near
from allot.core.scheduling.groups.domains import in_one_domain
from allot.core.scheduling.groups.forest import AnyGroup
from allot.core.scheduling.groups.passes import Pass, place
from allot.core.scheduling.groups.task import Task
from allot.core.scheduling.settings import Settings

ANYWHERE = ""
_ANYWHERE = (ANYWHERE,)


class NoSuchLevel(Exception):
    """A group asks for a topology or a level that does not exist."""


def levels_of(cluster: Cluster, group: AnyGroup, settings: Settings) -> tuple[str, ...]:
    """The levels to try for a group, in this order. NoSuchLevel if its level is unknown."""
    if isinstance(group, AnyForeign):
        return _foreign_levels(cluster, group.near) if group.near is not None else _ANYWHERE
    constraints = group.spec.scheduling_constraints
    if constraints is None or not constraints.topology or not settings.topology_placements:
        return _ANYWHERE
    return (constraints.topology[0].key,)


def _foreign_levels(cluster: Cluster, near: Near) -> tuple[str, ...]:
    if not near.topology:
        # The levels are labels themselves.
        preferred = (near.preferred,) if near.preferred and near.preferred != near.required else ()
        return (*preferred, near.required or ANYWHERE)
    levels = cluster.topologies.get(near.topology)
    if levels is None:
        raise NoSuchLevel(f"Requested topology {near.topology} does not exist")
    labels = tuple(level.node_label for level in levels)

    def index(name: str) -> int:
        for number, level in enumerate(levels):
            if name and name in (level.node_label, level.alias):
                return number
        raise NoSuchLevel(
            f"topology {near.topology} has no level {name}, only {', '.join(level.alias or level.node_label for level in levels)}"
        )

    top = index(near.required) if near.required else 0
    bottom = index(near.preferred) if near.preferred else top
    if bottom < top:
        raise NoSuchLevel(
            f"the preferred level {near.preferred} of topology {near.topology} is above the required one, {near.required}"
        )
    found = tuple(",".join(labels[: number + 1]) for number in range(bottom, top - 1, -1))
    return found if near.required else (*found, ANYWHERE)


def place_near(task: Task, levels: tuple[str, ...]) -> Pass:
    """Enough pods of a group within a domain of the first level that has room, finally on any nodes if that is among the levels."""
    for level in levels[:-1]:
        done = in_one_domain(task, level)
        if not done.failure:
            return done
    if levels[-1] == ANYWHERE:
        return place(task)
    done = in_one_domain(task, levels[-1])
    group = task.group
    if done.failure and isinstance(group, ForeignGroup) and group.near is not None:
        near = group.near
        which = f"topology {near.topology}, requirement {near.required}" if near.topology else f"level {near.required}"
        name = f"{group.metadata.namespace}/{group.metadata.name}"
        of = f", sub-group {group.part}" if group.part else ""
        text = f"{which} couldn't be satisfied for job {name}{of}: {done.failure}"
        return msgspec.structs.replace(done, failure=text)
    return done
