"""Groups whose nodes must share a label: a rack, a block, an NVLink domain.

Domains that have room for all pods are tried before others, the tightest first, so that large ones stay whole for larger groups; counts
of free resources and devices rule out most domains before any pod is tried.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups import joint
from allot.core.scheduling.groups.passes import Pass, in_order, place
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.plan import Unit
from allot.core.scheduling.podinfo import PodInfo
from allot.core.scheduling.settings import Settings


class _Domain(msgspec.Struct, frozen=True, kw_only=True):
    value: str
    nodes: tuple[str, ...]
    # At most so many of the group's pods can go there, and so much room is left if they do.
    most: int
    spare: int


def in_one_domain(
    cluster: Cluster,
    unit: Unit,
    group: PodGroup,
    settings: Settings,
    now: float,
    key: str,
    allowed: Collection[str] | None = None,
) -> Pass:
    """All pods of the group on nodes that have the same value of a label. Where members are, the others have to be. allowed: the only
    nodes that may be considered."""
    domains = domains_of(cluster, key)
    if allowed is not None:
        inside = {value: [name for name in names if name in allowed] for value, names in domains.items()}
        domains = {value: names for value, names in inside.items() if names}
    members = cluster.members(group)
    if members:
        home = _home(cluster, members, key)
        if isinstance(home, Pass):
            return home
        domains = {home: domains[home]} if home in domains else {}
    if not domains:
        return Pass({}, "no feasible placements found")
    needed = max(1, minimum_of(group) - len(members))
    best: Pass | None = None
    proved = True
    steps = 0
    for domain in _ordered(cluster, unit, group, settings, now, domains):
        if domain.most < needed or (best is not None and domain.most <= len(best.placements)):
            continue
        done = place(cluster, unit, group, settings, now, frozenset(domain.nodes))
        steps += done.steps
        if done.is_error:
            return done
        if done.failure:
            proved &= not done.proof.startswith("undecided")
        elif best is None or len(done.placements) > len(best.placements):
            best = done
    if best is not None:
        return best
    return _nowhere(cluster, unit, group, settings, now, domains, key, needed, proved, steps)


def value_in(labels: Mapping[str, str], key: str) -> str | None:
    """The domain of a node with these labels; None if it is in none. key: a label, or several joined by commas, all of which count."""
    if "," not in key:
        return labels.get(key)
    values = [labels.get(each) for each in key.split(",")]
    return None if None in values else "/".join(value for value in values if value is not None)


def domains_of(cluster: Cluster, key: str) -> dict[str, list[str]]:
    """The nodes that have a label, by its value."""
    domains: dict[str, list[str]] = {}
    for name, info in cluster.nodes.items():
        value = value_in(info.labels, key)
        if value is not None:
            domains.setdefault(value, []).append(name)
    return domains


def _ordered(
    cluster: Cluster,
    unit: Unit,
    group: PodGroup,
    settings: Settings,
    now: float,
    domains: Mapping[str, Sequence[str]],
) -> list[_Domain]:
    """Those that have room for most of the group first, among these the tightest."""
    names = frozenset(name for nodes in domains.values() for name in nodes)
    with cluster.unpromised(unit.pods):
        rooms = joint.rooms(joint.Task(cluster, unit, group, settings, now, 1, names))
    found = []
    for value in sorted(domains):
        most, room = rooms.of(domains[value])
        found.append(_Domain(value=value, nodes=tuple(domains[value]), most=most, spare=room - most))
    return sorted(found, key=lambda domain: (-domain.most, domain.spare, domain.value))


def _nowhere(
    cluster: Cluster,
    unit: Unit,
    group: PodGroup,
    settings: Settings,
    now: float,
    domains: Mapping[str, Sequence[str]],
    key: str,
    needed: int,
    proved: bool,
    steps: int,
) -> Pass:
    """The texts of the first domain, as upstream has them, and what is known of all."""
    first = in_order(cluster, unit, group, settings, now, frozenset(domains[min(domains)]))
    if first.is_error:
        return first
    text = f"0/{len(domains)} placements are available, first placement status: {first.failure}"
    proof = f"no value of {key} has room for {needed} of its pods at once"
    if not proved:
        proof = f"undecided after {steps} steps whether a value of {key} has room for {needed} of its pods at once"
    return msgspec.structs.replace(first, failure=text, proof=proof, steps=steps)


def _home(cluster: Cluster, members: Sequence[PodInfo], key: str) -> str | Pass:
    """The domain in which a group's pods are already, or what is wrong with that."""
    found = ""
    rule = "cannot determine domain for already scheduled pods"
    for member in sorted(members, key=lambda member: member.key):
        info = cluster.nodes.get(member.node)
        value = value_in(info.labels, key) if info is not None else None
        name = f"{member.pod.metadata.namespace}/{member.pod.metadata.name}"
        if value is None:
            return Pass({}, f"{rule}: no topology domain found for pod {name}", is_error=True)
        if found and found != value:
            return Pass({}, f"{rule}: more than 1 domain found for pod group: {found}, {value}", is_error=True)
        found = value
    return found
