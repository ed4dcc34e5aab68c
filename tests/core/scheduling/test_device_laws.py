"""Laws of claims and devices, on random worlds and random histories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from allot.core.features import ALL_GATES
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode, encode
from allot.core.scheduling.devices.claim_fit import ClaimFit
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import Placement
from core.allocation.test_laws import trace
from core.allocation.worlds import worlds

from .device_world import allocation, claim, device_class, either, exactly, gpus, node, pod, slice_of

GATES = ALL_GATES.changed(disable=("DRANodeAllocatableResources",))


def load(world: dict[str, Any]) -> tuple[Claims, list[str]]:
    """A world of the allocator's laws, and the names of the claims that want devices."""
    claims = Claims(GATES)
    for found in world["classes"]:
        claims.put_class(decode(found, api.DeviceClass).object)
    for found in world["slices"]:
        claims.put_slice(decode(found, api.ResourceSlice).object)
    names = []
    for number, found in enumerate([*world["allocated"], *world["claims"]]):
        metadata = {**found["metadata"], "uid": f"uid-{number}", "resourceVersion": "1"}
        claims.put_claim(decode({**found, "metadata": metadata}, api.ResourceClaim).object)
        if found in world["claims"]:
            names.append(metadata["name"])
    return claims, names


@pytest.mark.slow
@settings(max_examples=300)
@given(worlds())
def test_what_exact_accepts_quick_does_not_hide(world: dict[str, Any]) -> None:
    claims, names = load(world)
    where = node("node")
    for _ in range(2):  # the second time, counters are followed
        fit = claims.fit(pod("p", *names))
        assert isinstance(fit, ClaimFit)
        quick, exact = fit.quick(where), fit.exact(where)
        if quick is not None:
            assert quick == exact


@pytest.mark.slow
@settings(max_examples=200)
@given(worlds(), st.booleans())
def test_devices_that_are_given_back_are_found_again_whatever_happens_to_slices(
    world: dict[str, Any], republish: bool
) -> None:
    claims, names = load(world)
    where = node("node")
    fit = claims.fit(pod("p", *names))
    assert isinstance(fit, ClaimFit)
    fit.exact(where)
    if republish:  # drops the view that follows counters
        found = decode(world["slices"][-1], api.ResourceSlice).object
        claims.delete_slice(found.metadata.name)
        claims.put_slice(found)
    for held in world["allocated"]:
        claims.delete_claim("ns", held["metadata"]["name"])
    fresh = load({**world, "allocated": []})[0].fit(pod("p", *names))
    fit = claims.fit(pod("p", *names))
    assert isinstance(fresh, ClaimFit)
    assert isinstance(fit, ClaimFit)
    expected = fresh.exact(where)
    if expected is None:
        assert fit.quick(where) is None
    assert fit.exact(where) == expected


@pytest.mark.slow
@settings(max_examples=200)
@given(worlds())
def test_assuming_and_forgetting_leaves_no_trace(world: dict[str, Any]) -> None:
    claims, names = load(world)
    asked, where = pod("p", *names), node("node")
    fit = claims.fit(asked)
    assert isinstance(fit, ClaimFit)
    fit.quick(where)
    if fit.exact(where) is not None:
        return
    before = trace(claims.inventory)
    steps, extended, accounted = fit.steps(where)
    placement = Placement(pod=asked, node="node", claims=steps, extended=extended, node_allocatable=accounted)
    claims.assume(placement)
    assert trace(claims.inventory) != before
    again = claims.fit(pod("q", *names))
    assert not isinstance(again, ClaimFit), "the claims are in flight"
    claims.forget(placement)
    assert trace(claims.inventory) == before
    fit = claims.fit(asked)
    assert isinstance(fit, ClaimFit)
    assert fit.exact(where) is None
    assert fit.steps(where) == (steps, extended, accounted)


ASKED = {
    "one": [exactly("r", 1)],
    "three": [exactly("r", 3)],
    "large": [exactly("r", 1, "gpu", 'device.attributes["gpu.example.com"].size == "large"')],
    "either": [either("r", ("first", "gpu", 4), ("second", "gpu", 1))],
    "all": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}],
}


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.sets(st.sampled_from(sorted(ASKED)), min_size=1),
    st.integers(0, 2),
    st.integers(0, 5),
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=12),
)
def test_a_node_that_nothing_was_told_of_answers_as_before(
    asked: set[str], own: int, shared: int, steps: list[tuple[int, bool]]
) -> None:
    def devices(count: int) -> list[dict[str, Any]]:
        sizes = ("large", "small")
        return [{"name": f"d{n}", "attributes": {"size": {"string": sizes[n % 2]}}} for n in range(count)]

    claims = Claims()
    claims.put_class(device_class())
    for name in NODES:
        claims.put_slice(slice_of(name, devices(own)))
    claims.put_slice(slice_of(None, devices(shared), name="network", allNodes=True))
    told: list[str | None] = []
    claims.listen(told.append)
    for name in asked:
        claims.put_claim(claim(name, *ASKED[name]))
    infos = [node(name) for name in NODES]

    def answers() -> dict[tuple[str, str], object]:
        found: dict[tuple[str, str], object] = {}
        for name in asked:
            fit = claims.fit(pod("p", name))
            assert isinstance(fit, ClaimFit)
            for info in infos:
                ask = fit.exact if fit.needs_exact else fit.quick
                found[name, info.name] = ask(info), fit.rank(info)
        return found

    before = answers()
    everything = [(name, f"d{n}") for name in NODES for n in range(own)] + [("network", f"d{n}") for n in range(shared)]
    for index, taken in steps:
        if index >= len(everything):
            continue
        pool, device = everything[index]
        told.clear()
        status = {"allocation": allocation(device, node=None, pool=pool)} if taken else {}
        claims.put_claim(claim(f"holder-{index}", status=status))
        after = answers()
        if None not in told:
            for (name, where), answer in after.items():
                assert where in told or answer == before[name, where], f"{name} on {where}: {told}"
        before = after


NODES = ("n1", "n2")


class History(RuleBasedStateMachine):
    """A scheduler with an informer that is late, and an API that stores what it is told."""

    pods = Bundle("pods")
    decided = Bundle("decided")

    def __init__(self) -> None:
        super().__init__()
        self.claims = Claims()
        self.claims.put_class(device_class())
        for name in NODES:
            self.claims.put_slice(slice_of(name, gpus(2)))
        # What the API has, and what the informer has still to deliver.
        self.stored: dict[str, api.ResourceClaim] = {}
        self.pending: list[tuple[str, api.ResourceClaim | None]] = []
        self.open: list[Placement] = []
        self.version = 0

    def store(self, name: str, found: dict[str, Any]) -> api.ResourceClaim:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        stored = self.stored[name] = decode(found, api.ResourceClaim).object
        self.pending.append((name, stored))
        return stored

    @rule(target=pods, count=st.integers(1, 2))
    def make(self, count: int) -> str:
        name = f"c{self.version}"
        self.store(name, encode(claim(name, exactly("r", count), uid=f"uid-{self.version}")))
        return name

    @rule()
    def deliver(self) -> None:
        if self.pending:
            name, found = self.pending.pop(0)
            if found is None:
                self.claims.delete_claim("ns", name)
            else:
                self.claims.put_claim(found)

    @rule(target=decided, name=pods, where=st.sampled_from(NODES))
    def decide(self, name: str, where: str) -> Any:
        asked = pod(f"pod-{name}", name)
        fit = self.claims.fit(asked)
        target = node(where)
        if not isinstance(fit, ClaimFit) or fit.quick(target) is not None:
            return multiple()
        if fit.exact(target) is not None:
            return multiple()
        placement = Placement(pod=asked, node=where, claims=fit.steps(target)[0])
        self.claims.assume(placement)
        self.open.append(placement)
        return placement

    @rule(placement=consumes(decided))
    def write(self, placement: Placement) -> None:
        """Guarded by the resource version, as the scheduler's writes are."""
        self.open.remove(placement)
        for step in placement.claims:
            name = step.claim.metadata.name
            current = self.stored.get(name)
            if current is None or current.metadata.resource_version != step.claim.metadata.resource_version:
                self.claims.forget(placement)
                return
            found = encode(current)
            if step.allocation is not None:
                found.setdefault("status", {})["allocation"] = encode(step.allocation)
            self.claims.wrote(self.store(name, found))

    @rule(placement=consumes(decided))
    def give_up(self, placement: Placement) -> None:
        self.open.remove(placement)
        self.claims.forget(placement)

    @rule(name=pods)
    def deallocate(self, name: str) -> None:
        """The pod is gone and the controller took the devices back; or the claim itself is deleted."""
        current = self.stored.get(name)
        if current is not None and not any(p.claims[0].claim.metadata.name == name for p in self.open):
            found = encode(current)
            if found.pop("status", None) is None:
                del self.stored[name]
                self.pending.append((name, None))
            else:
                self.store(name, found)

    @invariant()
    def no_device_is_in_two_allocations(self) -> None:
        holders: dict[str, str] = {}
        for name, found in self.stored.items():
            if found.status.allocation is not None:
                for result in found.status.allocation.devices.results:
                    device = f"{result.pool}/{result.device}"
                    assert device not in holders, f"{device} is held by {holders[device]} and {name}"
                    holders[device] = name

    @invariant()
    def nothing_is_double_in_the_schedulers_eyes(self) -> None:
        for found in self.claims.claims():
            assert self.claims.double_allocations("ns", found.metadata.name) == ()

    def teardown(self) -> None:
        """When all is delivered and nothing is open, the scheduler sees what the API has."""
        for placement in self.open:
            self.claims.forget(placement)
        while self.pending:
            self.deliver()
        assert {found.metadata.name: found for found in self.claims.claims()} == self.stored
        fresh = Claims()
        fresh.put_class(device_class())
        for name in NODES:
            fresh.put_slice(slice_of(name, gpus(2)))
        for found in self.stored.values():
            fresh.put_claim(found)
        assert trace(self.claims.inventory)[0] == trace(fresh.inventory)[0]  # type: ignore[index]


TestHistory = pytest.mark.slow(History.TestCase)
TestHistory.settings = settings(max_examples=60, stateful_step_count=40)
