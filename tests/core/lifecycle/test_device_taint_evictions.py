"""Which pods have to leave tainted devices, when, and what their rules say meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from msgspec.structs import replace

from allot.core.features import DEFAULT_GATES
from allot.core.lifecycle.actions import Action, Apply, Delete, Emit, LookUp, Patch, RequeueAfter, resource_of
from allot.core.lifecycle.device_taint_evictions import (
    Eviction,
    PoolName,
    PoolTaints,
    claim_eviction,
    pod_eviction,
    published_taints,
    reconcile_pod,
)
from allot.core.lifecycle.taint_rules import reconcile_rule
from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import Condition, ObjectMeta
from allot.core.model.resource_v1 import (
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintRuleStatus,
    DeviceTaintSelector,
    DeviceToleration,
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from core.lifecycle.claim_world import World, claim, consumer, device, entry, group, group_entry, pod

GROUP_GATES = DEFAULT_GATES.changed(enable=("GenericWorkload", "DRAWorkloadResourceClaims"))
ADDED = "2026-03-01T12:00:00Z"
ADDED_S = seconds_of(ADDED)
TOLERATION = DeviceToleration(key="health", operator="Exists", effect="NoExecute")


def taint(effect: str = "NoExecute", added: str | None = ADDED) -> DeviceTaint:
    return DeviceTaint(key="health", value="bad", effect=effect, time_added=added)


def rule(name: str = "rule", effect: str = "NoExecute", **selector: str) -> DeviceTaintRule:
    return DeviceTaintRule(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", generation=2),
        spec=DeviceTaintRuleSpec(device_selector=DeviceTaintSelector(**selector), taint=taint(effect)),
    )


def slice_(name: str, *devices: Device, generation: int = 1) -> ResourceSlice:
    pool = ResourcePool(name="node-1", generation=generation, resource_slice_count=1)
    return ResourceSlice(
        metadata=ObjectMeta(name=name),
        spec=ResourceSliceSpec(driver="gpu.example.com", pool=pool, devices=devices),
    )


class Taints(World):
    """What is known, taints included (`taint_rules.View`)."""

    def __init__(
        self, *objects: Pod | ResourceClaim, rules: Iterable[DeviceTaintRule] = (), slices: Iterable[ResourceSlice] = ()
    ) -> None:
        super().__init__(*objects)
        self._rules = tuple(rules)
        self._slices = tuple(slices)

    def taints(self, pool: PoolName) -> PoolTaints:
        return published_taints(one for one in self._slices if (one.spec.driver, one.spec.pool.name) == pool)

    def rules(self) -> Iterable[DeviceTaintRule]:
        return [one for one in self._rules if one.spec.taint.effect == "NoExecute"]

    def slices(self) -> Iterable[ResourceSlice]:
        return self._slices

    def allocated_claims(self) -> Iterable[ResourceClaim]:
        return [one for one in self._all(ResourceClaim) if one.status.allocation is not None]

    def consumers(self, claim_: ResourceClaim) -> Iterator[Pod]:
        for one in claim_.status.reserved_for:
            found = self.pod(f"{claim_.metadata.namespace}/{one.name}")
            if found is not None:
                yield found


def user(name: str = "p", node: str = "node-1") -> Pod:
    return pod(name, entry("gpu", claim=f"c-{name}"), node=node, phase="Running")


def used(by: Pod, *tolerations: DeviceToleration) -> ResourceClaim:
    return claim(f"c-{by.metadata.name}", consumer(by), devices=[device("gpu-0", *tolerations)])


# --- when ---


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ((), ADDED_S),
        ((TOLERATION,), None),
        ((replace(TOLERATION, toleration_seconds=60),), ADDED_S + 60),
        ((replace(TOLERATION, toleration_seconds=60), replace(TOLERATION, toleration_seconds=30)), ADDED_S + 30),
        ((replace(TOLERATION, toleration_seconds=60), TOLERATION), None),
        ((replace(TOLERATION, toleration_seconds=-5),), ADDED_S),
        # Good enough to be scheduled there, but not to stay.
        ((replace(TOLERATION, effect=""),), ADDED_S),
        ((replace(TOLERATION, effect="NoSchedule"),), ADDED_S),
        ((replace(TOLERATION, key="other"),), ADDED_S),
        ((DeviceToleration(key="health", operator="Equal", value="bad", effect="NoExecute"),), None),
        ((DeviceToleration(key="health", operator="Equal", value="good", effect="NoExecute"),), ADDED_S),
    ],
)
def test_tolerations_in_the_allocation_decide_how_long_a_claim_lasts(
    tolerations: tuple[DeviceToleration, ...], expected: float | None
) -> None:
    found = used(user(), *tolerations)
    by_slice = claim_eviction(found, Taints(slices=[slice_("s", Device(name="gpu-0", taints=(taint(),)))]))
    by_rule = claim_eviction(found, Taints(rules=[rule()]))
    assert (by_slice.at_s if by_slice else None) == expected
    assert (by_rule.at_s if by_rule else None) == expected
    assert not by_slice or not by_slice.rules
    assert not by_rule or by_rule.rules == (rule(),)


def test_only_the_newest_generation_of_a_pool_and_only_noexecute_count() -> None:
    old = slice_("old", Device(name="gpu-0", taints=(taint(),)))
    new = slice_("new", Device(name="gpu-0", taints=(taint("NoSchedule"),)), generation=2)
    assert claim_eviction(used(user()), Taints(slices=[old, new])) is None
    assert claim_eviction(used(user()), Taints(slices=[old])) is not None
    assert claim_eviction(used(user()), Taints(rules=[rule(effect="NoSchedule")])) is None


def test_a_rule_matches_by_driver_pool_and_device_also_what_is_no_longer_published() -> None:
    found = used(user())
    assert claim_eviction(found, Taints(rules=[rule(driver="gpu.example.com", pool="node-1", device="gpu-0")]))
    assert claim_eviction(found, Taints(rules=[rule(device="gpu-1")])) is None
    nothing = replace(rule(), spec=replace(rule().spec, device_selector=None))
    assert claim_eviction(found, Taints(rules=[nothing])) is None


def test_the_first_of_several_taints_counts_and_every_rule_is_a_reason() -> None:
    later = replace(rule("b"), spec=replace(rule().spec, taint=taint(added="2026-03-01T13:00:00Z")))
    found = claim_eviction(used(user()), Taints(rules=[later, rule("a")]))
    assert found is not None and found.at_s == ADDED_S
    assert [one.metadata.name for one in found.rules] == ["a", "b"]


def test_a_pod_goes_with_the_first_claim_that_is_reserved_for_it() -> None:
    owner = user()
    world = Taints(owner, used(owner), rules=[rule()])
    assert pod_eviction(owner, world, DEFAULT_GATES) == Eviction(at_s=ADDED_S, rules=(rule(),))
    assert pod_eviction(user(node=""), world, DEFAULT_GATES) is None
    assert pod_eviction(replace(owner, metadata=replace(owner.metadata, uid="x")), world, DEFAULT_GATES) is None
    two = pod("p", entry("gpu", claim="c-p"), entry("nic", claim="late"), node="node-1")
    late = claim("late", consumer(two), devices=[device("gpu-1", replace(TOLERATION, toleration_seconds=9))])
    found = pod_eviction(two, Taints(two, used(two), late, rules=[rule()]), DEFAULT_GATES)
    assert found is not None and found.at_s == ADDED_S


def test_a_pod_goes_with_the_claim_of_its_group() -> None:
    gang = group("g", group_entry("a", "t"))
    member = pod("p", entry("a", template="t"), group="g", node="n", recorded={"a": "c"})
    shared = claim("c", consumer(gang), owner=gang, entry_name="a", devices=[device()])
    world = Taints(member, shared, rules=[rule()])
    assert pod_eviction(member, world, GROUP_GATES) is not None
    assert pod_eviction(member, world, DEFAULT_GATES) is None


# --- what is done ---


def evict(
    found: Pod, eviction: Eviction | None, now_s: float, *answers: object, pending: bool = False
) -> tuple[Action, ...]:
    question = LookUp(resource=resource_of(Pod), name="p", namespace="ns")
    given = {question: answers[0]} if answers else {}
    return reconcile_pod(found, eviction, given, now_s, was_pending=pending)


def test_a_pod_is_marked_and_deleted_when_its_time_has_come() -> None:
    found, eviction = user(), Eviction(at_s=ADDED_S)
    assert evict(found, eviction, ADDED_S - 5) == (RequeueAfter(seconds=5),)
    assert evict(found, eviction, ADDED_S) == (LookUp(resource=resource_of(Pod), name="p", namespace="ns"),)
    event, patch, delete = evict(found, eviction, ADDED_S, found)
    assert isinstance(event, Emit)
    assert (event.type, event.reason, event.note) == ("Normal", "DeviceTaintManagerEviction", "Marking for deletion")
    assert isinstance(patch, Patch) and patch.subresource == "status"
    condition = patch.patch["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("DisruptionTarget", "True")
    assert condition["reason"] == "DeletionByDeviceTaintManager"
    assert condition["message"] == "Device Taint manager: deleting due to NoExecute taint"
    assert isinstance(delete, Delete) and delete.uid == "uid-p"


def test_a_pod_that_is_gone_replaced_or_going_is_left_alone() -> None:
    eviction = Eviction(at_s=ADDED_S)
    for present in (None, pod("p", uid="other"), pod("p", deleted=True)):
        assert evict(user(), eviction, ADDED_S, present) == ()
    assert evict(pod("p", deleted=True, node="n"), eviction, ADDED_S) == ()


def test_an_eviction_that_is_called_off_is_told() -> None:
    (event,) = evict(user(), None, ADDED_S, pending=True)
    assert isinstance(event, Emit) and event.note == "Cancelling deletion"
    assert evict(user(), None, ADDED_S) == ()


# --- what a rule says ---


def said(found: DeviceTaintRule, world: Taints, evicted: int = 0) -> tuple[str, str, str]:
    (apply,) = reconcile_rule(found, world, evicted, ADDED_S, DEFAULT_GATES)
    assert isinstance(apply, Apply) and apply.manager == "device-taint-eviction-controller"
    assert apply.uid == found.metadata.uid and apply.subresource == "status"
    (condition,) = apply.fields["status"]["conditions"]
    assert condition["type"] == "EvictionInProgress" and condition["observedGeneration"] == 2
    assert condition["lastTransitionTime"] == ADDED
    return condition["status"], condition["reason"], condition["message"]


def crowd(count: int) -> Taints:
    pods = [user(f"p{number}") for number in range(count)]
    return Taints(*pods, *(used(one) for one in pods), rules=[rule()], slices=[slice_("s", Device(name="gpu-0"))])


def test_a_rule_tells_how_many_pods_wait() -> None:
    assert said(rule(), crowd(0)) == ("False", "NotStarted", "")
    assert said(rule(), crowd(1)) == ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")
    assert said(rule(), crowd(2)) == ("True", "PodsPendingEviction", "2 pods need to be evicted in 1 namespace.")
    assert said(rule(), crowd(2), evicted=1) == (
        "True",
        "PodsPendingEviction",
        "2 pods need to be evicted in 1 namespace. 1 pod evicted since starting the controller.",
    )
    assert said(rule(), crowd(0), evicted=3) == (
        "False",
        "Completed",
        "3 pods evicted since starting the controller.",
    )


def test_namespaces_are_counted() -> None:
    here, there = user("p0"), user("p1")
    there = replace(there, metadata=replace(there.metadata, namespace="other"))
    far = used(there)
    far = replace(far, metadata=replace(far.metadata, namespace="other"))
    world = Taints(here, there, used(here), far, rules=[rule()])
    assert said(rule(), world)[2] == "2 pods need to be evicted in 2 different namespaces."


def test_a_rule_without_effect_tells_what_it_would_do() -> None:
    end = (
        " if the effect was NoExecute. This information will not be updated again."
        " Recreate the DeviceTaintRule to trigger an update."
    )
    dry = rule(effect="None")
    assert said(dry, crowd(1)) == (
        "False",
        "NoEffect",
        "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace" + end,
    )
    assert said(rule(effect="None", device="x"), crowd(2))[2] == (
        "0 published devices selected. 0 allocated devices selected. 0 pods would be evicted in 0 different namespaces"
        + end
    )


def test_other_effects_never_evict() -> None:
    expected = ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.")
    assert said(rule(effect="NoSchedule"), crowd(1)) == expected


def with_condition(found: DeviceTaintRule, condition: Condition) -> DeviceTaintRule:
    return replace(found, status=DeviceTaintRuleStatus(conditions=(condition,)))


def test_a_status_is_written_at_most_every_ten_seconds_unless_the_rule_is_another() -> None:
    condition = Condition(
        type="EvictionInProgress",
        status="False",
        reason="NotStarted",
        observed_generation=2,
        last_transition_time=time_of(ADDED_S - 4),
    )
    fresh = with_condition(rule(), condition)
    assert reconcile_rule(fresh, crowd(1), 0, ADDED_S, DEFAULT_GATES) == (RequeueAfter(seconds=6),)
    changed = with_condition(rule(), replace(condition, observed_generation=1))
    assert said(changed, crowd(1))[1] == "PodsPendingEviction"
    old = with_condition(rule(), replace(condition, last_transition_time=time_of(ADDED_S - 10)))
    assert said(old, crowd(1))[1] == "PodsPendingEviction"
    assert reconcile_rule(old, crowd(0), 0, ADDED_S, DEFAULT_GATES) == ()
