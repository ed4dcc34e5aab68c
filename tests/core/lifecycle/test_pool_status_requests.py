"""Answers to questions about pools, in the API's words; what becomes of questions; slices and groups that have to go."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from allot.core.lifecycle.actions import Delete, Emit, LookUp, RemoveFinalizer, RequeueAfter, Retry, Update, resource_of
from allot.core.lifecycle.orphaned_slices import is_candidate, reconcile_slice
from allot.core.lifecycle.pod_groups import active_member_of, reconcile_pod_group
from allot.core.lifecycle.pool_status_requests import pool_statuses, reconcile_request
from allot.core.lifecycle.times import time_of
from allot.core.model.core_v1 import Node
from allot.core.model.meta import Condition, ObjectMeta, OwnerReference
from allot.core.model.resource_v1 import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    PoolPartitionSummary,
    PoolShareableCapacity,
    PoolShareableSummary,
    PoolStatus,
    ResourceClaim,
    ResourcePool,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
    ResourcePoolStatusRequestStatus,
    ResourceSlice,
    ResourceSliceSpec,
)
from allot.core.model.scheduling_v1 import POD_GROUP_PROTECTION_FINALIZER, PodGroup
from allot.core.quantity import Quantity
from core.lifecycle.claim_world import claim, device, group, pod

NOW_S = 1_800_000_000.0
DRIVER = "gpu.example.com"


def slice_(
    name: str = "s",
    *devices: Device,
    pool: str = "node-1",
    generation: int = 1,
    count: int = 1,
    counters: tuple[CounterSet, ...] | None = None,
    attribute: str | None = None,
    node: str | None = "node-1",
) -> ResourceSlice:
    return ResourceSlice(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", resource_version="3"),
        spec=ResourceSliceSpec(
            driver=DRIVER,
            pool=ResourcePool(name=pool, generation=generation, resource_slice_count=count),
            node_name=node,
            devices=devices,
            shared_counters=counters,
            partition_type_attribute=attribute,
        ),
    )


def request(**spec: object) -> ResourcePoolStatusRequest:
    return ResourcePoolStatusRequest(
        metadata=ObjectMeta(name="q", uid="uid-q", creation_timestamp=time_of(NOW_S)),
        spec=ResourcePoolStatusRequestSpec(driver=DRIVER, **spec),  # type: ignore[arg-type]
    )


def status_of(*slices: ResourceSlice, claims: tuple[ResourceClaim, ...] = (), **spec: object) -> PoolStatus:
    (found,) = pool_statuses(request(**spec), slices, claims, ())
    return found


def devices(count: int) -> tuple[Device, ...]:
    return tuple(Device(name=f"gpu-{number}") for number in range(count))


# --- counts ---


def test_devices_are_counted_by_the_newest_generation_without_admin_access() -> None:
    held = claim("a", devices=[device("gpu-0"), device("gpu-0"), replace(device("gpu-1"), admin_access=True)])
    found = status_of(slice_("old", *devices(9)), slice_("new", *devices(3), generation=2), claims=(held,))
    assert found == PoolStatus(
        driver=DRIVER,
        pool_name="node-1",
        generation=2,
        resource_slice_count=1,
        total_devices=3,
        allocated_devices=1,
        available_devices=2,
        unavailable_devices=0,
        node_name="node-1",
    )


def test_tainted_devices_are_not_available_and_an_allocated_one_is_taken_off_twice() -> None:
    bad = Device(name="gpu-0", taints=(DeviceTaint(key="k", effect="NoSchedule"),))
    harmless = Device(name="gpu-1", taints=(DeviceTaint(key="k", effect="None"),))
    held = claim("a", devices=[device("gpu-0")])
    rule = DeviceTaintRule(
        spec=DeviceTaintRuleSpec(
            device_selector=DeviceTaintSelector(device="gpu-2"), taint=DeviceTaint(key="k", effect="NoExecute")
        )
    )
    everything = replace(rule, spec=replace(rule.spec, device_selector=None))
    slices = [slice_("s", bad, harmless, Device(name="gpu-2"))]
    (found,) = pool_statuses(request(), slices, (held,), (rule, everything))
    assert (found.total_devices, found.unavailable_devices, found.allocated_devices) == (3, 2, 1)
    assert found.available_devices == 0


def test_a_pool_on_several_nodes_names_none() -> None:
    slices = (slice_("a", count=2), slice_("b", count=2, node="node-2"))
    assert status_of(*slices).node_name is None
    assert status_of(slice_("a", node=None)).node_name is None


def test_an_incomplete_pool_says_so_and_its_question_waits() -> None:
    half = slice_("a", *devices(1), count=2, generation=5)
    found = status_of(half)
    assert found.validation_error == (
        f"PoolIncomplete: pool {DRIVER}/node-1 is incomplete: observed 1/2 slices at generation 5"
    )
    assert found.total_devices is None
    (retry,) = reconcile_request(request(), [half], (), (), NOW_S)
    assert isinstance(retry, Retry)


def test_pools_are_in_order_and_limited_and_can_be_asked_for_by_name() -> None:
    slices = [slice_(name, pool=name) for name in ("c", "a", "b")]
    (update,) = reconcile_request(request(limit=2), slices, (), (), NOW_S)
    assert isinstance(update, Update) and update.subresource == "status"
    assert isinstance(update.object, ResourcePoolStatusRequest) and update.object.status is not None
    status = update.object.status
    assert [pool.pool_name for pool in status.pools] == ["a", "b"] and status.pool_count == 3
    assert status.conditions == (
        Condition(
            type="Complete",
            status="True",
            reason="CalculationComplete",
            message="Calculated status for 2 pools",
            last_transition_time=time_of(NOW_S),
        ),
    )
    assert [pool.pool_name for pool in pool_statuses(request(pool_name="b"), slices, (), ())] == ["b"]


# --- partitions ---


def partition(name: str, type_: str | None, cost: str = "10") -> Device:
    attributes = {} if type_ is None else {"profile": DeviceAttribute(string=type_)}
    consumption = DeviceCounterConsumption(counter_set="set", counters={"mem": Counter(value=Quantity.parse(cost))})
    return Device(name=name, attributes=attributes, consumes_counters=(consumption,))


COUNTERS = (CounterSet(name="set", counters={"mem": Counter(value=Quantity.parse("45"))}),)
PROFILE = f"{DRIVER}/profile"


def test_partitions_are_grouped_and_each_group_is_measured_alone() -> None:
    small = [partition(f"small-{number}", "small") for number in range(6)]
    large = [partition(f"large-{number}", "large", "20") for number in range(2)]
    held = claim("a", devices=[device("small-0")])
    found = status_of(
        slice_("s", *small, *large, Device(name="plain"), counters=COUNTERS, attribute=PROFILE), claims=(held,)
    )
    assert found.validation_error is None
    assert found.partition_summary == (
        PoolPartitionSummary(attribute=PROFILE, type="large", total=2, allocatable=1),
        PoolPartitionSummary(attribute=PROFILE, type="small", total=6, allocatable=3),
    )


def test_the_attribute_of_the_question_serves_pools_that_name_none() -> None:
    plain = slice_("s", partition("p", "small"), counters=COUNTERS)
    assert status_of(plain).partition_summary == ()
    assert status_of(plain, default_partition_type_attribute=PROFILE).partition_summary[0].type == "small"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            slice_("s", partition("p", "small"), attribute=PROFILE),
            f"PartitionTypeMissing: pool {DRIVER}/node-1 declares partitionTypeAttribute but publishes no sharedCounters",
        ),
        (
            slice_("s", partition("p", None), counters=COUNTERS, attribute=PROFILE),
            f'PartitionTypeMissing: device "p" in pool {DRIVER}/node-1 does not carry partition type attribute "{PROFILE}"',
        ),
        (
            slice_("s", partition("p", "x"), partition("q", "x", "20"), counters=COUNTERS, attribute=PROFILE),
            f'PartitionCostMismatch: devices of partition type "x" in pool {DRIVER}/node-1 consume different counters',
        ),
        (
            slice_("s", *(partition(f"p{n}", f"t{n}") for n in range(33)), counters=COUNTERS, attribute=PROFILE),
            f"PartitionSummaryOverCap: pool {DRIVER}/node-1 has 33 partition types, exceeding the maximum of 32",
        ),
        (
            slice_(
                "s",
                Device(
                    name="d",
                    allow_multiple_allocations=True,
                    capacity={f"c{n}": DeviceCapacity(value=Quantity.parse("1")) for n in range(33)},
                ),
            ),
            f"ShareableSummaryOverCap: pool {DRIVER}/node-1 has 33 shareable capacity keys, exceeding the maximum of 32",
        ),
    ],
)
def test_what_cannot_be_told_is_an_error_in_the_apis_words(found: ResourceSlice, expected: str) -> None:
    status = status_of(found)
    assert status.validation_error == expected
    assert status.partition_summary == () and status.total_devices is not None
    (update,) = reconcile_request(request(), [found], (), (), NOW_S)
    assert isinstance(update, Update) and isinstance(update.object, ResourcePoolStatusRequest)
    assert update.object.status is not None
    assert update.object.status.conditions[0].message == "Calculated status for 1 pools (1 incomplete)"


def test_errors_are_cut_to_what_the_field_holds() -> None:
    error = status_of(slice_("s", pool="p" * 253, count=2)).validation_error
    assert error is not None and len(error) == 256


def test_shared_capacity_is_summed() -> None:
    def shared(name: str) -> Device:
        capacity = {"memory": DeviceCapacity(value=Quantity.parse("40Gi"))}
        return Device(name=name, allow_multiple_allocations=True, capacity=capacity)

    share = replace(device("a"), consumed_capacity={"memory": Quantity.parse("10Gi")})
    found = status_of(slice_("s", shared("a"), shared("b")), claims=(claim("x", devices=[share, share]),))
    assert found.shareable_summary == PoolShareableSummary(
        fully_available_devices=1,
        partially_available_devices=1,
        capacity=(
            PoolShareableCapacity(
                name="memory",
                total=Quantity.parse("80Gi"),
                consumed=Quantity.parse("20Gi"),
                available=Quantity.parse("60Gi"),
            ),
        ),
    )


# --- the end of questions ---


def test_questions_are_cleared_away_an_hour_after_their_answer_and_a_day_after_they_were_asked() -> None:
    condition = Condition(type="Complete", status="True", last_transition_time=time_of(NOW_S))
    answered = replace(request(), status=ResourcePoolStatusRequestStatus(conditions=(condition,)))
    assert reconcile_request(answered, (), (), (), NOW_S + 600) == (RequeueAfter(seconds=3000),)
    (delete,) = reconcile_request(answered, (), (), (), NOW_S + 3600)
    assert isinstance(delete, Delete) and delete.uid == "uid-q"
    (delete,) = reconcile_request(request(), [slice_("a", count=2)], (), (), NOW_S + 24 * 3600)
    assert isinstance(delete, Delete)


# --- slices of lost nodes ---


def test_a_slice_of_a_lost_node_waits_is_checked_and_goes() -> None:
    lost, question = slice_("s"), LookUp(resource=resource_of(Node), name="node-1")
    assert reconcile_slice(lost, NOW_S, {}, NOW_S + 100) == (RequeueAfter(seconds=200),)
    assert reconcile_slice(lost, NOW_S, {}, NOW_S + 300) == (question,)
    assert reconcile_slice(lost, NOW_S, {question: Node()}, NOW_S + 300) == ()
    delete, event = reconcile_slice(lost, NOW_S, {question: None}, NOW_S + 300)
    assert isinstance(delete, Delete) and (delete.uid, delete.resource_version) == ("uid-s", "3")
    assert isinstance(event, Emit) and event.reason == "NodeNotFound"


def test_only_slices_of_one_node_without_any_owner_are_cleared_away() -> None:
    assert is_candidate(slice_("s"))
    assert not is_candidate(slice_("s", node=None))
    owned = slice_("s")
    owned = replace(owned, metadata=replace(owned.metadata, owner_references=(OwnerReference(name="x"),)))
    assert not is_candidate(owned)


# --- groups ---


def test_a_group_goes_with_the_end_of_its_last_pod() -> None:
    going = group("g", deleted=True, finalizers=("x", POD_GROUP_PROTECTION_FINALIZER))
    assert reconcile_pod_group(going, [pod("p")]) == ()
    assert reconcile_pod_group(going, []) == (
        RemoveFinalizer(resource=resource_of(PodGroup), object=going, finalizer=POD_GROUP_PROTECTION_FINALIZER),
    )
    assert reconcile_pod_group(group("g", finalizers=(POD_GROUP_PROTECTION_FINALIZER,)), []) == ()
    assert list(active_member_of(pod("p", group="g"))) == ["ns/g"]
    assert list(active_member_of(pod("p", group="g", phase="Failed"))) == []
    assert list(active_member_of(pod("p"))) == []
