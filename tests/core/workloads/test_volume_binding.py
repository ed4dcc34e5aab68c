"""The volume binder, by the documented rules and words of Kubernetes' persistent volume controller."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.workloads.storage_world import Lost, Object, World, claim, storage_class, volume

HOLDER = {"namespace": "ns", "name": "c"}


def bound_to(world: World, name: str = "c") -> str:
    found = world.of(name)
    return str(found["spec"].get("volumeName", "")) if found["status"]["phase"] == "Bound" else ""


def test_a_binding_is_four_writes_in_both_directions() -> None:
    world = World(claim(), volume(size="5Gi"))
    writes = world.sync("c")
    assert [(write.resource.kind, write.subresource) for write in writes] == [  # type: ignore[union-attr]
        ("PersistentVolume", ""),
        ("PersistentVolume", "status"),
        ("PersistentVolumeClaim", ""),
        ("PersistentVolumeClaim", "status"),
    ]
    found, given_ = world.of("c"), world.of("v")
    assert found["metadata"]["annotations"] == {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    assert found["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}}
    assert given_["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    reference = given_["spec"]["claimRef"]
    assert (reference["kind"], reference["uid"]) == ("PersistentVolumeClaim", "uid-c")
    assert given_["status"]["phase"] == "Bound"
    world.settle()
    assert world.sync("c") == world.sync("v") == []


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_binding_that_broke_off_is_completed(writes: int) -> None:
    world = World(claim(), volume(), volume("w", size="2Gi"))
    world.sync("c", writes_max=writes)
    world.see()
    world.settle()
    assert bound_to(world) == "v"
    assert world.of("w")["status"]["phase"] == "Available"


@pytest.mark.parametrize(
    ("volumes", "wanted", "expected"),
    [
        # The smallest that is large enough.
        ([volume("a", size="10Gi"), volume("b", size="2Gi"), volume("c1", size="512Mi")], claim(), "b"),
        ([volume("a", size="512Mi")], claim(), ""),
        # One with fewer other uses comes first, even if it is larger.
        (
            [
                volume("a", spec={"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}),
                volume("b", size="9Gi"),
            ],
            claim(),
            "b",
        ),
        ([volume("a")], claim(spec={"accessModes": ["ReadWriteMany"]}), ""),
        ([volume("a", "gold")], claim(), ""),
        ([volume("a", "gold")], claim(storage_class="gold"), "a"),
        (
            [volume("a", metadata={"labels": {"tier": "x"}})],
            claim(spec={"selector": {"matchLabels": {"tier": "y"}}}),
            "",
        ),
        (
            [volume("a", metadata={"labels": {"tier": "y"}})],
            claim(spec={"selector": {"matchLabels": {"tier": "y"}}}),
            "a",
        ),
        ([volume("a", spec={"volumeMode": "Block"})], claim(), ""),
        ([volume("a", spec={"volumeAttributesClassName": "fast"})], claim(), ""),
        ([volume("a", phase="Released")], claim(), ""),
        ([volume("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})], claim(), ""),
        # Held for the claim: it need only be large enough.
        ([volume("a", "gold", "9Gi", spec={"claimRef": HOLDER}), volume("b")], claim(), "a"),
        ([volume("a", spec={"claimRef": {"namespace": "ns", "name": "other"}})], claim(), ""),
        ([volume("a", spec={"claimRef": {**HOLDER, "uid": "another"}})], claim(), ""),
        # By name.
        ([volume("a"), volume("b", size="5Gi")], claim(spec={"volumeName": "b"}), "b"),
        ([volume("a")], claim(spec={"volumeName": "b"}), ""),
    ],
)
def test_which_volume_a_claim_gets(volumes: list[Object], wanted: Object, expected: str) -> None:
    world = World(wanted, *volumes, classes=[storage_class("gold", "kubernetes.io/no-provisioner")])
    world.sync("c")
    assert bound_to(world) == expected
    if not expected:
        assert world.of("c")["status"] == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (volume("b", size="1Mi"), 'Cannot bind to requested volume "b": requested PV is too small'),
        (volume("b", "gold"), 'Cannot bind to requested volume "b": storageClassName does not match'),
        (volume("b", spec={"volumeMode": "Block"}), 'Cannot bind to requested volume "b": incompatible volumeMode'),
        (
            volume("b", spec={"accessModes": ["ReadOnlyMany"]}),
            'Cannot bind to requested volume "b": incompatible accessMode',
        ),
        (
            volume("b", spec={"claimRef": {"namespace": "ns", "name": "x"}}),
            'volume "b" already bound to a different claim.',
        ),
    ],
)
def test_why_a_claim_does_not_get_the_volume_it_names(found: Object, text: str) -> None:
    world = World(claim(spec={"volumeName": "b"}), found)
    world.sync("c")
    (event,) = world.events
    assert event[0] == "Warning" and event[2] == text


@pytest.mark.parametrize(
    ("wanted", "classes", "pods", "event"),
    [
        (
            claim(),
            [],
            [],
            ("Normal", "FailedBinding", "no persistent volumes available for this claim and no storage class is set"),
        ),
        (
            claim(storage_class="fast"),
            [],
            [],
            ("Warning", "ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found'),
        ),
        (
            claim(storage_class="s"),
            [storage_class("s", "kubernetes.io/no-provisioner")],
            [],
            ("Warning", "ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner"),
        ),
        (
            claim(storage_class="s"),
            [storage_class("s", waits=True)],
            [],
            ("Normal", "WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
        ),
        (
            claim(storage_class="s"),
            [storage_class("s", waits=True)],
            ["p"],
            ("Normal", "WaitForPodScheduled", "waiting for pod p to be scheduled"),
        ),
        (
            claim(storage_class="s"),
            [storage_class("s", waits=True)],
            ["p", "q"],
            ("Normal", "WaitForPodScheduled", "waiting for pods p,q to be scheduled"),
        ),
    ],
)
def test_why_a_claim_waits(wanted: Object, classes: list[Object], pods: list[str], event: tuple[str, str, str]) -> None:
    world = World(wanted, classes=classes, pods=pods)
    world.sync("c")
    assert world.events == [event]
    assert world.of("c")["status"]["phase"] == "Pending"


def test_a_claim_that_waits_for_its_pod_takes_no_free_volume_but_one_that_is_held_for_it() -> None:
    wanted = claim(storage_class="s")
    world = World(wanted, volume("free", "s"), classes=[storage_class("s", waits=True)])
    world.settle()
    assert bound_to(world) == ""
    # The scheduler has chosen it.
    world.put(volume("free", "s", spec={"claimRef": {**HOLDER, "uid": "uid-c"}}))
    world.settle()
    assert bound_to(world) == "free"


def test_a_provisioner_is_told_once_the_time_has_come() -> None:
    world = World(claim(storage_class="s"), classes=[storage_class("s", waits=True)])
    world.sync("c")
    assert "annotations" not in world.of("c")["metadata"]
    chosen = {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}
    world.put(claim(storage_class="s", metadata=chosen))
    world.sync("c")
    annotations = world.of("c")["metadata"]["annotations"]
    assert annotations["volume.kubernetes.io/storage-provisioner"] == "p.example.com"
    assert annotations["volume.beta.kubernetes.io/storage-provisioner"] == "p.example.com"
    assert world.events[-1][:2] == ("Normal", "ExternalProvisioning")
    assert world.sync("c") == []


def test_a_claim_without_a_class_gets_the_default_one_that_came_later() -> None:
    world = World(claim(storage_class=None))
    world.settle()
    world.classes["std"] = storage_class("std", default=True)
    world.sync("c")
    assert world.of("c")["spec"]["storageClassName"] == "std"
    asked_for_none = World(claim(storage_class=""), classes=[storage_class("std", default=True)])
    asked_for_none.settle()
    assert asked_for_none.of("c")["spec"]["storageClassName"] == ""


def released(world: World) -> World:
    world.settle()
    del world.server["ns/c"]
    world.see()
    world.settle()
    return world


@pytest.mark.parametrize(
    ("policy", "annotations", "phase", "reasons"),
    [
        ("Retain", {}, "Released", []),
        ("Delete", {"pv.kubernetes.io/provisioned-by": "p.example.com"}, "Released", []),
        ("Delete", {}, "Failed", ["VolumeFailedDelete"]),
        ("Recycle", {}, "Failed", ["VolumeFailedRecycle"]),
    ],
)
def test_what_becomes_of_a_volume_whose_claim_is_gone(
    policy: str, annotations: dict[str, str], phase: str, reasons: list[str]
) -> None:
    found = volume(metadata={"annotations": annotations}, spec={"persistentVolumeReclaimPolicy": policy})
    world = released(World(claim(), found))
    assert world.of("v")["status"]["phase"] == phase
    assert [reason for _, reason, _ in world.events] == reasons
    # A new claim of the name does not get the data of the old one.
    world.put(claim(metadata={"uid": "another"}))
    world.settle()
    assert bound_to(world) == ""


def test_a_volume_is_not_released_because_a_cache_is_behind() -> None:
    world = World(claim(), volume())
    world.settle()
    del world.cache["ns/c"]
    assert world.sync("v") == []


@pytest.mark.parametrize(
    ("gone", "reason", "text"),
    [
        ("volume", "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
        ("name", "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"),
        ("holder", "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly"),
    ],
)
def test_a_claim_that_has_lost_its_volume_says_so_once(gone: str, reason: str, text: str) -> None:
    world = World(claim(), volume())
    world.settle()
    if gone == "volume":
        del world.server["v"]
        world.see()
    elif gone == "name":
        changed: dict[str, Any] = world.of("c")
        world.put({**changed, "spec": {**changed["spec"], "volumeName": ""}})
    else:
        changed = world.of("v")
        world.put({**changed, "spec": {**changed["spec"], "claimRef": {**HOLDER, "uid": "another"}}})
    world.sync("c")
    world.sync("c")
    assert world.events == [("Warning", reason, text)]
    assert world.of("c")["status"] == {"phase": "Lost"}


def test_a_volume_whose_claim_went_elsewhere_is_free_again() -> None:
    world = World(claim(), volume())
    world.settle()
    mine = {"pv.kubernetes.io/bound-by-controller": "yes"}
    world.put(volume("w", metadata={"annotations": mine}, spec={"claimRef": {**HOLDER, "uid": "uid-c"}}, phase="Bound"))
    world.put(volume("x", spec={"claimRef": {**HOLDER, "uid": "uid-c"}}, phase="Bound"))
    world.settle()
    assert "claimRef" not in world.of("w")["spec"] and world.of("w")["status"]["phase"] == "Available"
    # One that somebody meant for the claim stays meant for it.
    assert world.of("x")["spec"]["claimRef"] == HOLDER


def test_a_volume_that_is_held_for_a_claim_of_another_mode_is_told() -> None:
    world = World(claim(), volume(spec={"volumeMode": "Block", "claimRef": {**HOLDER, "uid": "uid-c"}}))
    world.sync("v")
    assert [event[1] for event in world.events] == ["VolumeMismatch", "VolumeMismatch"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_happens_a_volume_has_one_claim_and_a_claim_one_volume(data: st.DataObject) -> None:
    names = ["a", "b", "c"]
    volumes = ["v", "w", "x"]
    sizes = st.sampled_from(("1Gi", "2Gi", "4Gi"))
    world = World()
    for step in range(data.draw(st.integers(5, 25))):
        what = data.draw(
            st.sampled_from(("claim", "volume", "drop claim", "drop volume", "sync", "sync", "sync", "see"))
        )
        if what == "claim":
            name = data.draw(st.sampled_from(names))
            if f"ns/{name}" not in world.server:
                world.put(claim(name, size=data.draw(sizes), metadata={"uid": f"{name}-{step}"}))
        elif what == "volume":
            name = data.draw(st.sampled_from(volumes))
            if name not in world.server:
                world.put(volume(name, size=data.draw(sizes), phase="Pending", metadata={"uid": f"{name}-{step}"}))
        elif what == "drop claim":
            world.server.pop(f"ns/{data.draw(st.sampled_from(names))}", None)
        elif what == "drop volume":
            name = data.draw(st.sampled_from(volumes))
            if world.server.get(name, {}).get("status", {}).get("phase") != "Bound":
                world.server.pop(name, None)
        elif what == "see":
            world.see(data.draw(st.sampled_from([*(f"ns/{name}" for name in names), *volumes])))
        else:
            with suppress(Lost):
                world.sync(data.draw(st.sampled_from([*names, *volumes])), data.draw(st.integers(0, 4)))
    world.see()
    world.settle()
    claims = {key: one for key, one in world.server.items() if "/" in key}
    stored = {key: one for key, one in world.server.items() if "/" not in key}
    for one in claims.values():
        if one["status"]["phase"] == "Bound":
            assert stored[one["spec"]["volumeName"]]["spec"]["claimRef"]["uid"] == one["metadata"]["uid"]
    holders = [one["spec"]["claimRef"]["uid"] for one in stored.values() if one["status"]["phase"] == "Bound"]
    assert len(holders) == len(set(holders))
    for one in stored.values():
        uid = one["spec"].get("claimRef", {}).get("uid")
        live = {found["metadata"]["uid"]: found for found in claims.values()}
        if uid is None:
            assert one["status"]["phase"] == "Available"
        elif uid not in live:
            assert one["status"]["phase"] == "Released"
    # Nobody waits beside a free volume that is large enough.
    free = [one for one in stored.values() if one["status"]["phase"] == "Available"]
    for one in claims.values():
        if one["status"]["phase"] == "Pending":
            asked = int(one["spec"]["resources"]["requests"]["storage"][0])
            assert all(int(found["spec"]["capacity"]["storage"][0]) < asked for found in free)
