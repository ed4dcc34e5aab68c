"""What all controllers of pods share: ownership, expectations, templates, numbers."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.actions import LookUp, Patch, Retry
from allot.core.lifecycle.disruption import PODS
from allot.core.model.apps_v1 import ReplicaSet
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import ObjectMeta, RawJSON
from allot.core.workloads.counts import is_percent, scaled
from allot.core.workloads.expectations import EXPIRE_S, Expectations
from allot.core.workloads.ownership import claim, controller_keys, take_over
from allot.core.workloads.pod_states import is_active, is_available, is_terminating, next_available_s
from allot.core.workloads.pod_templates import (
    generated_name,
    hash_of,
    pod_from_template,
    template_key,
)
from allot.core.workloads.resources import REPLICA_SETS
from core.workloads.workload_builders import NOW_S, names, pod, ready, template, workload

OWNER = workload(ReplicaSet)
OTHER = workload(ReplicaSet, "other")
QUESTION = LookUp(resource=REPLICA_SETS, name="x", namespace="ns")


def has_label(each: Pod) -> bool:
    return each.metadata.labels.get("app") == "x"


# --- ownership ---


def test_own_pods_stay_orphans_are_adopted_strays_released_and_others_left_alone() -> None:
    own, orphan = ready("own", owner=OWNER), ready("orphan")
    stray, others = ready("stray", owner=OWNER, labels={"app": "y"}), ready("others", owner=OTHER)
    going, unlike = ready("going", deleted=True), ready("unlike", labels={"app": "y"})
    claimed = claim(OWNER.metadata, has_label, (own, orphan, stray, others, going, unlike))
    assert names(claimed.own) == ["own"] and names(claimed.adopted) == ["orphan"]
    assert names(claimed.released) == ["stray"] and names(claimed.members) == ["own", "orphan"]


def test_an_owner_that_goes_neither_adopts_nor_releases() -> None:
    owner = workload(ReplicaSet, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    claimed = claim(owner.metadata, has_label, (ready("orphan"), ready("s", owner=OWNER, labels={"app": "y"})))
    assert not claimed.adopted and not claimed.released


def test_before_an_adoption_the_server_is_asked_for_the_owner() -> None:
    claimed = claim(OWNER.metadata, has_label, (ready("orphan"),))
    actions, is_all = take_over(REPLICA_SETS, OWNER.metadata, PODS, claimed, {})
    assert (list(actions), is_all) == ([QUESTION], True)
    for answer in (
        None,
        {"metadata": {"uid": "another"}},
        {"metadata": {"uid": "uid-x", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ):
        (retry,), is_all = take_over(REPLICA_SETS, OWNER.metadata, PODS, claimed, {QUESTION: answer})
        assert isinstance(retry, Retry) and is_all
    (patch,), is_all = take_over(
        REPLICA_SETS, OWNER.metadata, PODS, claimed, {QUESTION: {"metadata": {"uid": "uid-x"}}}
    )
    assert isinstance(patch, Patch) and not is_all
    assert patch.patch["metadata"]["uid"] == "uid-orphan"
    (reference,) = patch.patch["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"], reference["blockOwnerDeletion"]) == ("uid-x", True, True)


def test_a_release_takes_only_the_owner_away() -> None:
    claimed = claim(OWNER.metadata, has_label, (ready("stray", owner=OWNER, labels={"app": "y"}),))
    (patch,), _ = take_over(REPLICA_SETS, OWNER.metadata, PODS, claimed, {}, "batch.kubernetes.io/job-tracking")
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"] == {
        "uid": "uid-stray",
        "ownerReferences": [{"$patch": "delete", "uid": "uid-x"}],
        "$deleteFromPrimitiveList/finalizers": ["batch.kubernetes.io/job-tracking"],
    }


def test_pods_are_found_by_controller_and_orphans_by_namespace() -> None:
    assert controller_keys(ready("a", owner=OWNER)) == ("uid-x",)
    assert controller_keys(ready("a")) == ("orphans/ns",)


# --- expectations ---


class Cached:
    """A cache that shows what it is told to."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.version = 0

    def get(self, key: str) -> Pod | None:
        return self.pods.get(key)

    def has_seen(self, version: str) -> bool:
        return self.version >= int(version)


def meta(name: str, version: int) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", resource_version=str(version))


def test_a_creation_is_awaited_until_it_is_seen_or_was_missed() -> None:
    expected, cached = Expectations(), Cached()
    assert expected.are_met("o", cached, 0)
    expected.created("o", meta("a", 7), 0)
    expected.created("o", meta("b", 8), 0)
    assert not expected.are_met("o", cached, 0) and expected.are_met("another", cached, 0)
    cached.pods["ns/a"] = ready("a")
    assert not expected.are_met("o", cached, 0)
    # It came and went between two looks.
    cached.version = 8
    assert expected.are_met("o", cached, 0)


def test_a_deletion_is_awaited_until_the_pod_is_going_or_another() -> None:
    for sight in (None, ready("a", deleted=True), ready("a", uid="new")):
        expected, cached = Expectations(), Cached()
        cached.pods["ns/a"] = ready("a")
        expected.deleted("o", meta("a", 7), 0)
        assert not expected.are_met("o", cached, 0)
        if sight is None:
            del cached.pods["ns/a"]
        else:
            cached.pods["ns/a"] = sight
        assert expected.are_met("o", cached, 0)


def test_an_update_is_awaited_and_nothing_for_ever() -> None:
    expected, cached = Expectations(), Cached()
    cached.pods["ns/a"] = ready("a")
    expected.updated("o", meta("a", 7), 100)
    assert not expected.are_met("o", cached, 100 + EXPIRE_S)
    assert expected.are_met("o", cached, 101 + EXPIRE_S)
    expected.updated("o", meta("a", 7), 100)
    expected.forget("o")
    assert expected.are_met("o", cached, 100)


# --- pods ---


def test_a_pod_is_available_after_it_has_been_ready_long_enough() -> None:
    fresh = pod("a", ready_s=10)
    assert is_available(fresh, 0, NOW_S) and is_available(fresh, 10, NOW_S) and not is_available(fresh, 11, NOW_S)
    assert not is_available(pod("b"), 0, NOW_S)
    pods = (fresh, pod("b"), pod("c", ready_s=3))
    assert next_available_s(pods, 30, NOW_S) == 20 and next_available_s(pods, 5, NOW_S) == 2
    assert next_available_s(pods, 0, NOW_S) is None and next_available_s((pod("b"),), 5, NOW_S) is None


def test_pods_that_end_or_go_do_not_count() -> None:
    assert is_active(pod("a", phase="Pending")) and not is_active(pod("a", phase="Failed"))
    assert not is_active(pod("a", deleted=True)) and is_terminating(pod("a", deleted=True))
    assert not is_terminating(pod("a", deleted=True, phase="Succeeded"))


@pytest.mark.parametrize(
    ("value", "total", "up", "expected"),
    [
        (3, 10, True, 3),
        ("25%", 10, True, 3),
        ("25%", 10, False, 2),
        ("0%", 9, True, 0),
        ("100%", 9, False, 9),
        ("x", 9, True, 0),
    ],
)
def test_numbers_are_given_or_in_percent(value: Any, total: int, up: bool, expected: int) -> None:
    assert scaled(value, total, round_up=up) == expected
    assert is_percent(value) == isinstance(value, str)


def test_a_number_that_is_not_given_is_the_default() -> None:
    assert scaled(None, 9, round_up=True) == 0 and scaled(None, 9, round_up=True, default=1) == 1


# --- templates ---


def test_a_pod_is_as_its_template_says_and_its_owners() -> None:
    given = template(nodeSelector={"a": "b"})
    given["metadata"] |= {"annotations": {"note": "x"}, "finalizers": ["f/x"], "ownerReferences": [{"uid": "gone"}]}
    made = pod_from_template(given, {"uid": "uid-x"}, "ns")
    assert made["metadata"] == {
        "namespace": "ns",
        "ownerReferences": [{"uid": "uid-x"}],
        "labels": {"app": "x"},
        "annotations": {"note": "x"},
        "finalizers": ["f/x"],
    }
    assert made["spec"] == given["spec"]


def test_generated_names_end_in_a_dash_where_there_is_room() -> None:
    assert generated_name("web") == "web-" and generated_name("a" * 253) == "a" * 253


SAME = [
    template(),
    {"spec": template()["spec"], "metadata": {"labels": {"app": "x"}, "creationTimestamp": None}},
    template(nodeSelector={}, tolerations=[], hostname=None),
    {**template(), "metadata": {"labels": {"app": "x", "pod-template-hash": "abc"}, "annotations": {}}},
]
OTHERS = [template("app:2"), template(volumes=[{"name": "v", "emptyDir": {}}]), template(hostNetwork=True)]


def test_templates_are_the_same_however_they_are_written() -> None:
    keys = {template_key(RawJSON(each), "pod-template-hash") for each in SAME}
    assert len(keys) == 1
    assert len(keys | {template_key(RawJSON(each), "pod-template-hash") for each in OTHERS}) == 1 + len(OTHERS)
    one = template(resources={"requests": {"cpu": "1000m"}})
    assert template_key(RawJSON(one)) == template_key(RawJSON(template(resources={"requests": {"cpu": 1}})))


def test_a_hash_is_short_safe_and_another_after_a_collision() -> None:
    hashes = [hash_of(b"data", count) for count in (None, 0, 1, 2)]
    assert len(set(hashes)) == 4 and all(set(one) <= set("bcdfghjklmnpqrstvwxz2456789") for one in hashes)
    assert all(len(one) <= 10 for one in hashes) and hash_of(b"data", 1) == hashes[2]
