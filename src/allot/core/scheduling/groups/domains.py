"""Groups whose nodes must share a label: a rack, a block, an NVLink domain.

Domains with room for all pods are tried before others, the tightest first, so that large ones stay free for larger groups; counts
of free resources and devices rule out most domains before any pod is tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups import joint
from allot.core.scheduling.groups.passes import Pass, in_order, place
from allot.core.scheduling.groups.task import Task
from allot.core.scheduling.podinfo import PodInfo

NO_DOMAIN = "no feasible placements found"


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that have the same value of a label."""

    value: str
    nodes: tuple[str, ...]
    # How many of the group's pods fit there at most, and how much room is left then.
    most: int
    spare: int


class NoHome(msgspec.Struct, frozen=True):
    """The group's existing pods leave no domain to it."""

    message: str


def in_one_domain(task: Task, key: str) -> Pass:
    """All pods of the group on nodes that have the same value of a label."""
    assert task.group is not None, "a group of groups is tried group by group"
    domains = domains_for(task.cluster, key, task.cluster.members(task.group), task.allowed)
    if isinstance(domains, NoHome):
        return Pass({}, domains.message, is_error=True)
    if not domains:
        return Pass({}, NO_DOMAIN)
    needed = task.needed
    best: Pass | None = None
    proved = True
    steps = 0
    for domain in tightest_first(task, domains):
        if domain.most < needed or (best is not None and domain.most <= len(best.placements)):
            continue
        done = place(task.within(frozenset(domain.nodes)))
        steps += done.steps
        if done.is_error:
            return done
        if done.failure:
            proved &= not done.proof.startswith("undecided")
        elif best is None or len(done.placements) > len(best.placements):
            best = done
    if best is not None:
        return best
    where = f"a value of {key} has room for {needed} of its pods at once"
    proof = f"no {where.removeprefix('a ')}" if proved else f"undecided after {steps} steps whether {where}"
    # The texts of the first domain, as upstream, and what is known about all.
    first = in_order(task.within(frozenset(domains[min(domains)])))
    if first.is_error:
        return first
    return msgspec.structs.replace(first, failure=no_placement(domains, first.failure), proof=proof, steps=steps)


def value_in(labels: Mapping[str, str], key: str) -> str | None:
    """The domain of a node with these labels; None if it has none. key: a label, or several joined by commas, all of which count."""
    if "," not in key:
        return labels.get(key)
    values = [labels.get(each) for each in key.split(",")]
    return None if None in values else "/".join(value for value in values if value is not None)


def no_placement(domains: Collection[str], first: str) -> str:
    """The message that no domain fits, in upstream's words. first: why the first one does not."""
    return f"0/{len(domains)} placements are available, first placement status: {first}"


def domains_for(
    cluster: Cluster, key: str, members: Iterable[PodInfo], allowed: Collection[str] | None
) -> dict[str, list[str]] | NoHome:
    """The nodes that a group may use, by their value of a label. All pods must be where existing members are. allowed: the only nodes that
    may be considered."""
    domains: dict[str, list[str]] = {}
    for name, info in cluster.nodes.items():
        value = value_in(info.labels, key)
        if value is not None and (allowed is None or name in allowed):
            domains.setdefault(value, []).append(name)
    home = _home(cluster, sorted(members, key=lambda member: member.key), key)
    if home is None or isinstance(home, NoHome):
        return domains if home is None else home
    return {home: domains[home]} if home in domains else {}


def tightest_first(task: Task, domains: Mapping[str, Sequence[str]]) -> list[Domain]:
    """Domains with room for most of the pods first, among these the tightest."""
    names = frozenset(name for nodes in domains.values() for name in nodes)
    with task.cluster.unpromised(task.unit.pods):
        rooms = joint.rooms(task.within(names))
    found = []
    for value in sorted(domains):
        most, room = rooms.of(domains[value])
        found.append(Domain(value=value, nodes=tuple(domains[value]), most=most, spare=room - most))
    return sorted(found, key=lambda domain: (-domain.most, domain.spare, domain.value))


def _home(cluster: Cluster, members: Sequence[PodInfo], key: str) -> str | NoHome | None:
    """The domain of a group's existing pods; None if it has none."""
    found: str | None = None
    rule = "cannot determine domain for already scheduled pods"
    for member in members:
        info = cluster.nodes.get(member.node)
        value = value_in(info.labels, key) if info is not None else None
        name = f"{member.pod.metadata.namespace}/{member.pod.metadata.name}"
        if value is None:
            return NoHome(f"{rule}: no topology domain found for pod {name}")
        if found is not None and found != value:
            return NoHome(f"{rule}: more than 1 domain found for pod group: {found}, {value}")
        found = value
    return found
