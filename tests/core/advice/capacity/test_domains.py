"""The most copies of pods that spread over zones, keep off each other or stay together, against a search of all orders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import world

ZONE = "zone"
_SELECTOR = {"matchLabels": {"app": "w"}}


class Case(NamedTuple):
    """zones and sizes: of each node, sizes in pods; there: nodes of pods that are there already, which take nothing."""

    rule: str
    zones: tuple[str, ...]
    sizes: tuple[int, ...]
    there: tuple[int, ...]
    skew: int = 1


def _case(seed: int) -> Case:
    dice = random.Random(seed)
    nodes = dice.randint(2, 5)
    return Case(
        dice.choice(("spread", "apart", "together")),
        tuple(dice.choice("xyz") for _ in range(nodes)),
        tuple(dice.randint(0, 3) for _ in range(nodes)),
        tuple(dice.randrange(nodes) for _ in range(dice.choice((0, 0, 1, 3)))),
        dice.randint(1, 2),
    )


def _search(case: Case) -> int:
    """The most pods that can be placed one after another, each where the rule allows it."""
    best = 0
    seen = {tuple(0 for _ in case.sizes)}
    pending = list(seen)
    while pending:
        counts = pending.pop()
        best = max(best, sum(counts))
        for after in _next(case, counts):
            if after not in seen:
                seen.add(after)
                pending.append(after)
    return best


def _next(case: Case, counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    by_zone = dict.fromkeys(case.zones, 0)
    for node, count in enumerate(counts):
        by_zone[case.zones[node]] += count
    for node in case.there:
        by_zone[case.zones[node]] += 1
    for node, size in enumerate(case.sizes):
        if counts[node] < size and _allows(case, by_zone, case.zones[node]):
            yield (*counts[:node], counts[node] + 1, *counts[node + 1 :])


def _allows(case: Case, by_zone: dict[str, int], zone: str) -> bool:
    if case.rule == "spread":
        return by_zone[zone] + 1 - min(by_zone.values()) <= case.skew
    if case.rule == "apart":
        return not by_zone[zone]
    return by_zone[zone] > 0 or not any(by_zone.values())


def _planned(case: Case) -> Any:
    parts: list[Any] = [world.device_class()]
    for number, (zone, size) in enumerate(zip(case.zones, case.sizes, strict=True)):
        parts += [world.node(f"n{number}", labels={ZONE: zone}), world.slices(f"n{number}", world.gpus(size))]
    for number, place in enumerate(case.there):
        other = world.pod(f"other-{number}", nodeName=f"n{place}")
        other["metadata"]["labels"] = {"app": "w"}
        parts.append(other)
    term = {"topologyKey": ZONE, "labelSelector": _SELECTOR}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    rule: dict[str, Any] = {
        "spread": {"topologySpreadConstraints": [{**term, "maxSkew": case.skew, "whenUnsatisfiable": "DoNotSchedule"}]},
        "apart": {"affinity": {"podAntiAffinity": required}},
        "together": {"affinity": {"podAffinity": required}},
    }[case.rule]
    pod = world.pod("p", templates=("t",), **rule)
    pod["metadata"]["labels"] = {"app": "w"}
    return world.plan(world.snapshot(*parts), world.template("t"), pod)


def test_the_maximum_is_not_too_low_and_exact_only_if_it_is() -> None:
    exact = 0
    for seed in range(90):
        case = _case(seed)
        outcome, most = _planned(case), _search(case)
        assert outcome.scheduled <= most <= outcome.maximum.copies, f"seed {seed}: {case}: {outcome}"
        assert not outcome.maximum.is_exact or outcome.maximum.copies == most, f"seed {seed}: {case}"
        exact += outcome.maximum.is_exact
    assert exact > 60
