"""The rule engine: order, stops, ratcheting."""

from __future__ import annotations

from typing import Any

from allot.core.features import ALL_GATES, DEFAULT_GATES
from allot.core.model import resource_v1 as r
from allot.core.model import scheduling_v1 as s
from allot.core.validation import rules_resource, rules_scheduling
from allot.core.validation.declarative import check


def found(new: Any, old: Any = None, gates: Any = ALL_GATES) -> list[str]:
    module = rules_scheduling if type(new).__module__.endswith("scheduling_v1") else rules_resource
    return [str(finding.error) for finding in check(module.SCHEMA, gates, new, old)]


def request(name: str, **fields: Any) -> r.DeviceRequest:
    return r.DeviceRequest(name=name, exactly=r.ExactDeviceRequest(device_class_name="c", **fields))


def test_a_list_that_is_too_long_spares_its_items() -> None:
    claim = r.DeviceClaim(requests=tuple(request("same", allocation_mode="Odd") for _ in range(33)))
    assert found(claim) == ["requests: Too many: 33: must have at most 32 items"]


def test_every_repetition_is_reported_once() -> None:
    claim = r.DeviceClaim(requests=(request("a"), request("b"), request("a"), request("a")))
    assert [text.partition(":")[0] for text in found(claim)] == ["requests[2]", "requests[3]"]


def test_unchanged_values_are_not_looked_at_again() -> None:
    bad = r.ResourceClaimSpec(devices=r.DeviceClaim(requests=(request("a", allocation_mode="Odd"),)))
    assert found(bad) != []
    assert found(bad, bad) == []


def test_items_are_matched_by_key_and_only_changed_ones_are_checked() -> None:
    before = r.CounterSet(name="x", counters={})
    sets = (r.CounterSet(name="y", counters={}), before)
    old = r.ResourceSliceSpec(shared_counters=(before,))
    assert found(r.ResourceSliceSpec(shared_counters=sets), old) == ["sharedCounters[0].counters: Required value"]


def test_keys_of_maps_ratchet_too() -> None:
    old = r.CounterSet(name="x", counters={"Old": r.Counter()})
    new = r.CounterSet(name="x", counters={"Old": r.Counter(), "New": r.Counter()})
    texts = found(new, old)
    assert len(texts) == 1
    assert '"New"' in texts[0]


def test_a_one_of_is_checked_when_its_members_change() -> None:
    empty, both = r.DeviceAttribute(), r.DeviceAttribute(int_=1, string="x")
    assert found(empty)[0].startswith(': Invalid value: "": must specify one of: `int`')
    assert found(both)[0].startswith(': Invalid value: "{int, string}": must specify exactly one of')
    assert found(r.DeviceAttribute(int_=2, string="y"), both) == []
    assert found(r.DeviceAttribute(ints=())) == found(empty)


def test_fields_of_a_gate_that_is_off_are_forbidden() -> None:
    spec = r.ResourceSliceSpec(partition_type_attribute="nonsense")
    assert found(spec, gates=DEFAULT_GATES) == ["partitionTypeAttribute: Forbidden"]
    assert found(spec)[0].startswith("partitionTypeAttribute: Invalid value")


def test_a_gang_keeps_its_policy_but_may_change_its_size() -> None:
    gang = s.PodGroupSchedulingPolicy(gang=s.GangSchedulingPolicy(min_count=2))
    assert found(s.PodGroupSchedulingPolicy(gang=s.GangSchedulingPolicy(min_count=3)), gang) == []
    basic = s.PodGroupSchedulingPolicy(basic=s.BasicSchedulingPolicy())
    assert found(basic, gang) == [
        "basic: Invalid value: null: field is immutable",
        "gang: Invalid value: null: field cannot be cleared once set",
    ]


def test_templates_can_be_neither_added_nor_removed() -> None:
    policy = s.PodGroupSchedulingPolicy(basic=s.BasicSchedulingPolicy())
    first, second = (s.PodGroupTemplate(name=name, scheduling_policy=policy) for name in "ab")
    one, other = s.WorkloadSpec(pod_group_templates=(first,)), s.WorkloadSpec(pod_group_templates=(second,))
    assert found(other, one) == [
        "podGroupTemplates[0]: Forbidden: item may not be added",
        "podGroupTemplates: Forbidden: item may not be removed",
    ]
