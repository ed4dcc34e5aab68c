"""Devices of which each node has only one, such as the channel of a ComputeDomain: a node takes no second pod that needs one, whatever else is
free there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.kinship import made_by
from allot.core.advice.explain.causes.placing import SELECTING, Placing, has_enough, users_on
from allot.core.advice.explain.devices import Wanted
from allot.core.advice.explain.diagnosis import place_of_claim
from allot.core.advice.explain.holding import are_siblings
from allot.core.advice.explain.wording import named


class OneEach(NamedTuple):
    """What is said of such devices, phrased to follow who has them; advice: what helps if the pod's own siblings have them all."""

    text: str
    advice: tuple[str, ...]


def one_each(placing: Placing, wanted: Wanted) -> OneEach | None:
    """Whether a request fails only because each node has one device for it; None if not, or if nothing else is free there."""
    counts = {name: there.in_class - there.count(*SELECTING) for name, there in wanted.found.nodes.items()}
    nodes = [name for name, number in counts.items() if number]
    others = [each for each in placing.wanted if each is not wanted and not each.leaf.parent]
    free = [name for name in nodes if others and all(has_enough(each, name) for each in others)]
    if wanted.leaf.count != 1 or len(nodes) < 2 or any(counts[name] != 1 for name in nodes) or not free:
        return None
    classes = named("class", dict.fromkeys(each.class_name for each in others))
    have = f"node {free[0]} has" if len(free) == 1 else f"{len(free)} nodes have"
    text = (
        f"; each node has only one, so it takes no second pod that asks for one, although {have} enough "
        f"free devices of {classes}"
    )
    return OneEach(text, tuple(_advice(placing, wanted, others, free)))


def _advice(placing: Placing, wanted: Wanted, others: Sequence[Wanted], free: Sequence[str]) -> list[str]:
    users = users_on(placing, wanted, list(wanted.found.nodes))
    if not are_siblings(placing.pod, users):
        return []
    maker = made_by(placing.what_if, placing.pod)
    advice = []
    if len(others) == 1 and not others[0].leaf.all_devices:
        other = others[0]
        there = other.found.nodes[free[0]]
        most = there.in_class - there.count(*SELECTING)
        place = place_of_claim(placing.what_if, placing.pod, other.claim)
        where = f" in {place.spoken}" if place is not None else ""
        advice.append(
            f"run one pod of {maker} on each node, which takes all its devices: ask for {most} instead of {other.leaf.count} devices of class "
            f"{other.class_name}{where}, and run fewer pods"
        )
    place = place_of_claim(placing.what_if, placing.pod, wanted.claim)
    template = f" made from {place.spoken}" if place is not None else ""
    advice.append(f"let the pods of a node share one ResourceClaim{template} (resourceClaimName)")
    advice.append(f"add a node for each further pod of {maker}")
    return advice
