"""Which claims are prepared and unprepared, and which devices containers get: decisions only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.features import ALL_GATES, DEFAULT_GATES
from allot.core.lifecycle.preparation import (
    ClaimRecord,
    DriverRecord,
    Entry,
    PreparedDevice,
    Refused,
    cdi_ids,
    check_answers,
    check_claim,
    entries_of,
    inactive_pods,
    plan_prepare,
    plan_unprepare,
    with_devices,
)
from allot.core.model.core_v1 import PodSchedulingGroup
from allot.core.model.meta import ObjectMeta, OwnerReference
from allot.core.model.pods_v1 import RunnablePod, RunnablePodSpec, decode_runnable
from allot.core.model.resource_v1 import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)

POD = RunnablePod(metadata=ObjectMeta(name="p", namespace="default", uid="pod-uid"))
ENTRY = Entry(name="a", claim_name="a")
MADE = Entry(name="a", claim_name="a", must_own=True)


def claim(*skips: Sequence[str], reserved: bool = True, allocated: bool = True, **metadata: Any) -> ResourceClaim:
    results = tuple(
        DeviceRequestAllocationResult(driver="gpu.example.com", skip_node_operations=tuple(each)) for each in skips
    )
    consumer = ResourceClaimConsumerReference(resource="pods", name="p", uid="pod-uid")
    return ResourceClaim(
        metadata=ObjectMeta(name="a", namespace="default", uid="claim-uid", **metadata),
        status=ResourceClaimStatus(
            allocation=AllocationResult(devices=DeviceAllocationResult(results=results)) if allocated else None,
            reserved_for=(consumer,) if reserved else (),
        ),
    )


def record(
    name: str = "a", *pods: str, uid: str = "", drivers: Sequence[str] = ("gpu.example.com",), **more: Any
) -> ClaimRecord:
    return ClaimRecord(
        namespace="default",
        name=name,
        uid=uid or f"{name}-uid",
        pod_uids=pods,
        drivers={driver: DriverRecord() for driver in drivers},
        **more,
    )


def table(*records: ClaimRecord) -> dict[str, ClaimRecord]:
    return {each.key: each for each in records}


# --- checks ---


def test_a_claim_that_is_not_allocated_is_refused() -> None:
    with pytest.raises(Refused, match="ResourceClaim a: not allocated"):
        check_claim(POD, ENTRY, claim(allocated=False), DEFAULT_GATES)


def test_an_entry_that_names_nothing_is_refused() -> None:
    pod = decode_runnable(
        {"metadata": {"name": "p", "namespace": "default"}, "spec": {"resourceClaims": [{"name": "a"}]}}
    )
    text = 'pod "default/p", spec.resourceClaim "a": none of the supported fields are set'
    with pytest.raises(Refused, match=text):
        entries_of(pod)


def test_a_claim_made_for_a_pod_group_serves_its_pods_if_that_is_switched_on() -> None:
    pod = msgspec.structs.replace(POD, spec=RunnablePodSpec(scheduling_group=PodSchedulingGroup(pod_group_name="g")))
    owner = OwnerReference(api_version="scheduling.k8s.io/v1beta1", kind="PodGroup", name="g", uid="u", controller=True)
    made = claim((), owner_references=(owner,))
    consumer = ResourceClaimConsumerReference(
        api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="group-uid"
    )
    made = msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, reserved_for=(consumer,)))
    assert check_claim(pod, MADE, made, ALL_GATES).uid == "claim-uid"
    with pytest.raises(Refused, match=r"\(Pod is not owner\)"):
        check_claim(pod, MADE, made, DEFAULT_GATES)
    with pytest.raises(Refused, match="is not allowed to use ResourceClaim a"):
        check_claim(pod, ENTRY, made, DEFAULT_GATES)
    stranger = msgspec.structs.replace(made, metadata=ObjectMeta(name="a", namespace="default"))
    with pytest.raises(Refused, match=r"\(neither Pod nor PodGroup g is the owner\)"):
        check_claim(pod, MADE, stranger, ALL_GATES)


@pytest.mark.parametrize(
    ("skips", "expected"),
    [
        ([[]], ()),
        ([["*"]], ("*",)),
        ([["*"], ["*"]], ("*",)),
        ([["*"], []], ()),
        ([["*"], ["NodeUnprepareResources"]], ("NodeUnprepareResources",)),
        ([["NodePrepareResources", "NodeUnprepareResources"]], ("NodePrepareResources", "NodeUnprepareResources")),
        ([["NodeUnprepareResources"], []], ()),
    ],
)
def test_a_driver_skips_what_all_of_its_devices_skip(skips: Sequence[Sequence[str]], expected: Sequence[str]) -> None:
    made = claim(*skips)
    assert check_claim(POD, ENTRY, made, ALL_GATES).drivers["gpu.example.com"].skipped == expected
    if expected:
        text = "ResourceClaim a: DRAOptionalNodeOperations feature gate is disabled on kubelet"
        with pytest.raises(Refused, match=text):
            check_claim(POD, ENTRY, made, DEFAULT_GATES)


# --- prepare and unprepare ---


def test_a_refusal_of_one_claim_records_none() -> None:
    with pytest.raises(Refused, match="old ResourceClaim with same name b and different UID old"):
        plan_prepare(table(record("b", uid="old")), "pod", [record("a"), record("b")])
    with pytest.raises(Refused, match="ResourceClaim b is being unprepared"):
        plan_prepare(table(record("b", is_unpreparing=True)), "pod", [record("a"), record("b")])


def test_a_claim_that_is_named_twice_is_prepared_once() -> None:
    plan = plan_prepare({}, "pod", [record("a"), record("a")])
    assert [each.name for each in plan.batches["gpu.example.com"]] == ["a"]


def test_devices_of_a_driver_replace_what_it_said_before() -> None:
    first, second = PreparedDevice(pool="p", device="1"), PreparedDevice(pool="p", device="2")
    known = with_devices(with_devices(record(), "gpu.example.com", (first,)), "gpu.example.com", (second,))
    assert known.drivers["gpu.example.com"].devices == (second,)


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ({"b-uid": "", "x": ""}, "Op returned result for unknown claim UID x"),
        ({"a-uid": "", "b-uid": "bad"}, "Op failed for ResourceClaim b: bad"),
        ({"a-uid": ""}, "Op skipped 1 ResourceClaims"),
        ({}, "Op skipped 2 ResourceClaims"),
    ],
)
def test_answers_must_be_complete_and_about_what_was_asked(errors: dict[str, str], text: str) -> None:
    with pytest.raises(Refused, match=text):
        check_answers("Op", [record("a"), record("b")], errors)


def test_a_pod_that_is_not_recorded_takes_nothing_from_others() -> None:
    known = table(record("a", "other"))
    plan = plan_unprepare(known, "pod", ["default/a", "default/absent"])
    assert (plan.changed, plan.batches, plan.claims) == ((), {}, ())


def test_pods_that_are_gone_are_found_by_what_they_left() -> None:
    known = table(record("a", "gone", "here"), record("b", "gone"))
    assert inactive_pods(known, frozenset({"here"})) == {"gone": ("default/a", "default/b")}


_pods = st.sampled_from(["p1", "p2", "p3"])
_names = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3)
_steps = st.lists(st.tuples(st.sampled_from(["prepare", "unprepare", "restart", "fail"]), _pods, _names), max_size=30)


@given(_steps)
def test_what_is_prepared_is_given_back_exactly_when_its_last_pod_ends(steps: list[tuple[str, str, list[str]]]) -> None:
    """A driver that remembers what it has prepared, and an agent that fails and restarts, against a plain count of users."""
    records: dict[str, ClaimRecord] = {}
    prepared: set[str] = set()
    users: dict[str, set[str]] = {}
    for step, pod, names in steps:
        if step == "restart":
            records = {
                key: msgspec.structs.replace(each, is_prepared=False, is_unpreparing=False)
                for key, each in records.items()
            }
        elif step == "unprepare":
            keys = [key for key, each in records.items() if pod in each.pod_uids]
            plan = plan_unprepare(records, pod, keys)
            records |= table(*plan.changed)
            prepared -= {each.key for batch in plan.batches.values() for each in batch}
            for each in plan.claims:
                del records[each.key]
            for using in users.values():
                using.discard(pod)
        else:
            plan = plan_prepare(records, pod, [record(name) for name in names])
            records |= table(*plan.changed)
            for each in plan.changed:
                users.setdefault(each.key, set()).add(pod)
            asked = {each.key for batch in plan.batches.values() for each in batch}
            assert asked == {each.key for each in plan.claims}
            prepared |= asked
            if step == "prepare":
                records |= table(*(msgspec.structs.replace(records[key], is_prepared=True) for key in sorted(asked)))
        assert {key for key, using in users.items() if using} == set(records) == prepared
        assert all(set(each.pod_uids) == users[each.key] for each in records.values())


# --- what containers get ---


def test_a_claim_that_is_not_recorded_cannot_be_given_to_a_container() -> None:
    pod = decode_runnable(
        {
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {
                "resourceClaims": [{"name": "x", "resourceClaimName": "a"}],
                "containers": [{"name": "c", "resources": {"claims": [{"name": "x"}]}}],
            },
        }
    )
    with pytest.raises(Refused, match="unable to get claim info for ResourceClaim a in namespace default"):
        cdi_ids({}, pod, pod.spec.containers[0])
