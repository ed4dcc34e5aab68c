"""Joint placement against exhaustive trial: a group gets its nodes exactly if some arrangement of its pods exists, and on clusters
this small that is never undecided."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations, permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.decide import decide
from allot.core.scheduling.nodes.full_evaluation import FullEvaluation
from allot.core.scheduling.plan import Decision, Placement, Unit
from allot.core.scheduling.settings import Settings
from core.scheduling.cluster_world import ZONE, cluster_with_devices, node, picture, pod, pod_group
from core.scheduling.device_world import DRIVER, claim, device_class, either, exactly, slice_of

SETTINGS = Settings(preempts=False, topology_placements=True)
MODELS = ("x", "y")
# Of a device: its model, the card that it is a part of, and how much of that it takes.
Device = tuple[str, int, int]
# Of a claim: alternatives, each a number of devices and the model that they must have ("" for any).
Wanted = tuple[tuple[int, str], ...]
Choose = Callable[[Sequence[Any]], Any]
CARD = 2


class World:
    """A small cluster and a group, in the cluster's words and in plain ones."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self.devices: dict[str, list[Device]] = {}
        names = [f"n{number}" for number in range(choose((1, 2, 2, 3)))]
        nodes = [node(name, cpu=str(choose((1, 2, 3))), labels={ZONE: choose(("a", "b"))}) for name in names]
        self.cluster, self.claims = cluster_with_devices(*nodes)
        for model in MODELS:
            expression = f'device.attributes["{DRIVER}"].model == "{model}"'
            self.claims.put_class(device_class(model, selectors=[{"cel": {"expression": expression}}]))
        self.claims.put_class(device_class("any"))
        for name in names:
            self._make_devices(name)
        self.wanted: dict[str, Wanted] = {}
        self.pods = [self._make_pod(number) for number in range(choose((2, 3, 3, 4)))]
        minimum = choose((len(self.pods), len(self.pods), max(1, len(self.pods) - 1)))
        topology = {"schedulingConstraints": {"topology": [{"key": ZONE}]}} if choose((False,) * 4 + (True,)) else {}
        self.group: PodGroup = pod_group("g", minimum, **topology)
        self.needed = minimum
        self.key = ZONE if topology else ""

    def _make_devices(self, name: str) -> None:
        made: list[dict[str, Any]] = []
        known = self.devices[name] = []
        if self._choose((True, True, False)):
            for number in range(self._choose((0, 1, 2, 3))):
                model = self._choose(MODELS)
                known.append((model, number, CARD))
                made.append({"name": f"gpu-{number}", "attributes": {"model": {"string": model}}})
            self.claims.put_slice(slice_of(name, made))
            return
        # One card that is given whole or in halves.
        pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
        for number, part in enumerate((CARD, 1, 1)):
            model = MODELS[part == 1]
            known.append((model, 0, part))
            consumes = [{"counterSet": "card", "counters": {"units": {"value": str(part)}}}]
            attributes = {"model": {"string": model}}
            made.append({"name": f"part-{number}", "attributes": attributes, "consumesCounters": consumes})
        counters = [{"name": "card", "counters": {"units": {"value": str(CARD)}}}]
        self.claims.put_slice(slice_of(name, made, name=f"{name}-devices", pool=pool))
        self.claims.put_slice(slice_of(name, [], name=f"{name}-counters", pool=pool, sharedCounters=counters))

    def _make_pod(self, number: int) -> core_v1.Pod:
        choose = self._choose
        spec: dict[str, Any] = {}
        if choose((False, False, False, True)):
            spec["nodeSelector"] = {ZONE: "a"}
        near = choose(("", "", "", "", "", "apart", "together", "spread"))
        same = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": ZONE}
        if near == "spread":
            spread = {**same, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [spread]
        elif near:
            kind = "podAntiAffinity" if near == "apart" else "podAffinity"
            spec["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [same]}}
        name = choose(("", f"c{number}", f"c{number}", f"c{number}", "shared"))
        if name and name not in self.wanted:
            self._make_claim(name)
        if name:
            spec["resourceClaims"] = [{"name": "r", "resourceClaimName": name}]
        labels = {"app": choose(("a", "a", "b"))}
        return pod(f"p{number}", cpu=choose(("", "1", "1", "2")), group="g", labels=labels, **spec)

    def _make_claim(self, name: str) -> None:
        wanted: Wanted = tuple(
            (self._choose((1, 1, 2)), self._choose(("", "x", "y"))) for _ in range(self._choose((1, 1, 2)))
        )
        self.wanted[name] = wanted
        if len(wanted) == 1:
            ((count, model),) = wanted
            self.claims.put_claim(claim(name, exactly("r", count, model or "any")))
        else:
            options = [(f"o{number}", model or "any", count) for number, (count, model) in enumerate(wanted)]
            self.claims.put_claim(claim(name, either("r", *options)))

    @property
    def unit(self) -> Unit:
        return Unit(pods=tuple(self.pods), group=self.group)

    # --- exhaustive trial ---

    def is_possible(self) -> bool:
        names = [None, *self.cluster.nodes]
        return any(
            sum(name is not None for name in chosen) >= self.needed and self.is_right(chosen)
            for chosen in product(names, repeat=len(self.pods))
        )

    def is_right(self, chosen: Sequence[str | None]) -> bool:
        """Whether pods can be on these nodes (None: nowhere)."""
        on = [(pod_, name) for pod_, name in zip(self.pods, chosen, strict=True) if name is not None]
        if self.key and len({self.cluster.nodes[name].labels.get(self.key) for _, name in on}) > 1:
            return False
        return self._have_devices(on) and any(self._pass_filters(order) for order in permutations(on))

    def _pass_filters(self, order: Sequence[tuple[core_v1.Pod, str]]) -> bool:
        with self.cluster.trying() as tried:
            for pod_, name in order:
                profile = self.cluster.profiles.of(pod_)
                evaluation = FullEvaluation(self.cluster, pod_, profile, None, SETTINGS)
                if evaluation.refusal(self.cluster.nodes[name]) is not None:
                    return False
                tried.append(Placement(pod=pod_, node=name))
                self.cluster.assume(tried[-1])
        return True

    def _have_devices(self, on: Sequence[tuple[core_v1.Pod, str]]) -> bool:
        nodes: dict[str, str] = {}
        for pod_, name in on:
            for entry in pod_.spec.resource_claims:
                assert entry.resource_claim_name is not None
                if nodes.setdefault(entry.resource_claim_name, name) != name:
                    return False
        return all(
            _served([self.wanted[each] for each, there in nodes.items() if there == name], self.devices[name], ())
            for name in set(nodes.values())
        )


def _served(claims: list[Wanted], devices: list[Device], used: tuple[int, ...]) -> bool:
    if not claims:
        return True
    for count, model in claims[0]:
        free = [each for each in range(len(devices)) if each not in used and model in ("", devices[each][0])]
        for more in combinations(free, count):
            taken = (*used, *more)
            cards = {devices[each][1] for each in taken}
            fits = all(sum(devices[each][2] for each in taken if devices[each][1] == card) <= CARD for card in cards)
            if fits and _served(claims[1:], devices, taken):
                return True
    return False


# --- the law ---


def check(world: World) -> bool:
    """Whether the group was placed."""
    before = picture(world.cluster)
    decision = decide(world.cluster, world.unit, SETTINGS)
    assert picture(world.cluster) == before
    told = [refusal.explanation for refusal in decision.refusals]
    assert not any("undecided" in text for text in told), told
    possible = world.is_possible()
    assert bool(decision.placements) == possible, (possible, told)
    if decision.placements:
        assert len(decision.placements) >= world.needed
        nodes = {placement.pod.metadata.name: placement.node for placement in decision.placements}
        assert world.is_right([nodes.get(pod_.metadata.name) for pod_ in world.pods])
        _check_devices(decision)
    return possible


def _check_devices(decision: Decision) -> None:
    held: dict[tuple[str, str], str] = {}
    for placement in decision.placements:
        for step in placement.claims:
            assert step.allocation is not None
            for result in step.allocation.devices.results:
                assert result.pool == placement.node
                device = (result.pool, result.device)
                assert held.setdefault(device, step.claim.metadata.name) == step.claim.metadata.name


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_group_is_placed_exactly_if_an_arrangement_exists(part: int) -> None:
    possible = 0
    for seed in range(part * 500, part * 500 + 500):
        dice = random.Random(f"joint {seed}")
        try:
            possible += check(World(dice.choice))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert 100 < possible < 400


def test_pods_that_share_a_claim_are_not_taken_for_the_pod_with_an_equal_claim_of_its_own() -> None:
    """One card in two halves, and three pods of which two must run: the first wants both halves, and so do the others, together."""
    card, own, shared = [1, 1, "a", False], [1, 2, "", "a", ""], [1, 2, "", "a", ""]
    pods = [False, "", "c0", *own, False, "", "shared", *shared, False, "", "shared", "a", ""]
    drawn = iter([*card, 3, *pods, 2, False])
    assert check(World(lambda _options: next(drawn)))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_group_is_placed_exactly_if_an_arrangement_exists_in_any_world(data: st.DataObject) -> None:
    check(World(lambda options: data.draw(st.sampled_from(options))))
