"""StatefulSets: names, order, volumes, partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from allot.core.lifecycle.actions import Action, Create, Patch, RequeueAfter, Retry, Update
from allot.core.model.apps_v1 import ControllerRevision, StatefulSet
from allot.core.model.core_v1 import Pod
from allot.core.workloads.ownership import reference_to
from allot.core.workloads.resources import STATEFUL_SETS
from allot.core.workloads.statefulset import View, max_unavailable, reconcile
from allot.core.workloads.statefulset_pods import parent_and_ordinal
from allot.core.workloads.whole import Whole
from core.workloads.workload_builders import (
    NOW_S,
    created,
    deleted,
    made,
    notes,
    pod,
    status_of,
    template,
    workload,
    writes,
)

Object = dict[str, Any]
CLAIM = {"metadata": {"name": "data", "labels": {"kind": "disk"}}, "spec": {"storageClassName": "fast"}}


def set_of(replicas: int = 3, *, parallel: bool = False, status: Object | None = None, **spec: Any) -> Whole[Any]:
    policy = "Parallel" if parallel else "OrderedReady"
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    return workload(
        StatefulSet, replicas=replicas, podManagementPolicy=policy, serviceName="svc", status=status, **spec
    )


def revision(name: str, number: int, image: str = "app:1", owner: Whole[Any] | None = None) -> Whole[Any]:
    owner = owner or set_of()
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "labels": {"app": "x", "controller.kubernetes.io/hash": name},
        "ownerReferences": [reference_to(STATEFUL_SETS, owner.metadata)],
    }
    data = {"spec": {"template": {**template(image), "$patch": "replace"}}}
    return made(ControllerRevision, {"metadata": metadata, "data": data, "revision": number})


NEW, OLD = revision("x-new", 2), revision("x-old", 1, "app:0")


def member(ordinal: int, hash_: str = "x-new", *, ready_s: float | None = 500, **more: Any) -> Pod:
    name = f"x-{ordinal}"
    labels = {"statefulset.kubernetes.io/pod-name": name, "controller-revision-hash": hash_}
    return pod(name, owner=set_of(), ready_s=ready_s, labels=labels, **more)


def look(
    set_: Whole[Any],
    pods: Sequence[Pod] = (),
    revisions: Sequence[Whole[Any]] = (OLD, NEW),
    claims: Mapping[str, Object] | None = None,
) -> Sequence[Action]:
    view = View(pods=pods, revisions=revisions, revision=lambda _name: None, claim=(claims or {}).get)
    return reconcile(set_, view, {}, NOW_S)


def names(actions: Sequence[Action]) -> list[str]:
    return [one["metadata"]["name"] for one in created(actions)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("web-0", ("web", 0)), ("a-b-12", ("a-b", 12)), ("web", ("", -1)), ("web-99999999999", ("web", -1))],
)
def test_a_name_tells_the_set_and_the_number(name: str, expected: tuple[str, int]) -> None:
    assert parent_and_ordinal(name) == expected


# --- making ---


def test_a_pod_has_its_name_labels_and_host() -> None:
    made_ = created(look(set_of(ordinals={"start": 5})))[0]
    assert made_["metadata"]["name"] == "x-5" and made_["metadata"]["generateName"] == "x-"
    assert made_["metadata"]["labels"] == {
        "app": "x",
        "statefulset.kubernetes.io/pod-name": "x-5",
        "apps.kubernetes.io/pod-index": "5",
        "controller-revision-hash": "x-new",
    }
    assert (made_["spec"]["hostname"], made_["spec"]["subdomain"]) == ("x-5", "svc")


def test_in_order_each_waits_for_the_one_before() -> None:
    assert names(look(set_of())) == ["x-0"]
    assert names(look(set_of(), [member(0, ready_s=None)])) == []
    assert names(look(set_of(), [member(0, deleted=True)])) == []
    assert names(look(set_of(), [member(0)])) == ["x-1"]
    assert names(look(set_of(minReadySeconds=600), [member(0)])) == []
    # A hole is filled before anything else.
    assert names(look(set_of(), [member(0), member(2)])) == ["x-1"]


def test_in_parallel_nobody_waits() -> None:
    assert names(look(set_of(parallel=True), [member(1, ready_s=None)])) == ["x-0", "x-2"]


def test_a_pod_that_has_ended_is_deleted_and_made_anew() -> None:
    for phase in ("Failed", "Succeeded"):
        assert deleted(look(set_of(), [member(0, phase=phase), member(1)])) == ["x-0"]
    assert deleted(look(set_of(), [member(0, phase="Failed", deleted=True)])) == []
    actions = look(set_of(parallel=True), [member(0, phase="Failed")])
    assert (deleted(actions), names(actions)) == (["x-0"], ["x-1", "x-2"])


def test_the_first_look_makes_the_revision() -> None:
    actions = look(set_of(), revisions=())
    (made_,) = created(actions, "controllerrevisions")
    assert made_["revision"] == 1 and made_["data"]["spec"]["template"]["$patch"] == "replace"
    # In Go's order: kube-apiserver compares it as text.
    assert msgspec.json.encode(made_["data"]) == msgspec.json.encode(made_["data"], order="sorted")
    hash_ = made_["metadata"]["labels"]["controller.kubernetes.io/hash"]
    assert made_["metadata"]["name"] == f"x-{hash_}"
    assert created(actions)[0]["metadata"]["labels"]["controller-revision-hash"] == f"x-{hash_}"
    status = status_of(actions)
    assert status["currentRevision"] == status["updateRevision"] == f"x-{hash_}" and status["collisionCount"] == 0


# --- fewer ---


def test_in_order_the_last_goes_first_and_one_at_a_time() -> None:
    pods = [member(ordinal) for ordinal in range(4)]
    assert deleted(look(set_of(2), pods)) == ["x-3"]
    assert deleted(look(set_of(2), [*pods[:3], member(3, deleted=True)])) == []
    # Another one is unhealthy: wait, unless it is the one to go.
    assert deleted(look(set_of(2), [member(0), member(1, ready_s=None), *pods[2:]])) == []
    assert deleted(look(set_of(2), [*pods[:3], member(3, ready_s=None)])) == ["x-3"]
    assert deleted(look(set_of(2), [*pods[:2], member(2, ready_s=None), member(3, ready_s=None)])) == []


def test_in_parallel_all_go_at_once() -> None:
    assert deleted(look(set_of(1, parallel=True), [member(ordinal) for ordinal in range(4)])) == ["x-3", "x-2", "x-1"]


def test_ordinals_below_the_start_go_too() -> None:
    pods = [member(ordinal) for ordinal in range(4)]
    actions = look(set_of(2, parallel=True, ordinals={"start": 2}), pods)
    assert deleted(actions) == ["x-1", "x-0"]


# --- updating ---


@pytest.mark.parametrize(
    ("parallel", "rolling", "pods", "expected"),
    [
        # From the last on, one at a time.
        (False, {}, "ooo", ["x-2"]),
        (False, {}, "oon", ["x-1"]),
        # The partition keeps what is below it.
        (False, {"partition": 2}, "ooo", ["x-2"]),
        (False, {"partition": 2}, "oon", []),
        (False, {"partition": 5}, "ooo", []),
        # As many as may be unavailable.
        (False, {"maxUnavailable": 2}, "ooo", ["x-2", "x-1"]),
        (False, {"maxUnavailable": "50%"}, "ooooo", ["x-4", "x-3"]),
        (False, {"maxUnavailable": "1%"}, "ooo", ["x-2"]),
        # In parallel what does not work is replaced beyond the budget.
        (True, {}, "ooo", ["x-2"]),
        (True, {}, "OOo", ["x-1", "x-0"]),
        (True, {}, "oNo", []),
        (True, {"maxUnavailable": 2}, "oNo", ["x-2"]),
        (True, {"maxUnavailable": 3}, "ooO", ["x-2", "x-1", "x-0"]),
    ],
)
def test_pods_of_an_old_template_go(parallel: bool, rolling: Object, pods: str, expected: list[str]) -> None:
    """o, n: old or new; a capital letter is one that is not ready."""
    found = [
        member(place, "x-old" if letter in "oO" else "x-new", ready_s=None if letter.isupper() else 500)
        for place, letter in enumerate(pods)
    ]
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, **rolling}}
    set_ = set_of(len(pods), parallel=parallel, updateStrategy=strategy, status={"currentRevision": "x-old"})
    assert deleted(look(set_, found)) == expected


def test_a_broken_new_template_keeps_the_next_from_being_tried() -> None:
    newest = revision("x-newest", 3, "app:9")
    set_ = set_of(2, template=template("app:9"), status={"currentRevision": "x-old"})
    assert deleted(look(set_, [member(0, "x-old"), member(1, "x-new", ready_s=None)], (OLD, NEW, newest))) == []


def test_on_delete_nothing_is_updated() -> None:
    set_ = set_of(updateStrategy={"type": "OnDelete"}, status={"currentRevision": "x-old"})
    assert deleted(look(set_, [member(ordinal, "x-old") for ordinal in range(3)])) == []
    assert created(look(set_, [member(0, "x-old")]))[0]["metadata"]["labels"]["controller-revision-hash"] == "x-new"


def test_below_the_partition_pods_are_made_as_they_were() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    set_ = set_of(parallel=True, updateStrategy=strategy, status={"currentRevision": "x-old"})
    made_ = created(look(set_))
    assert [one["spec"]["containers"][0]["image"] for one in made_] == ["app:0", "app:0", "app:1"]
    hashes = [one["metadata"]["labels"]["controller-revision-hash"] for one in made_]
    assert hashes == ["x-old", "x-old", "x-new"]


def test_an_older_revision_with_the_same_template_gets_a_new_number() -> None:
    actions = look(set_of(template=template("app:0")))
    (raised,) = [one for one in writes(actions) if isinstance(one, Update) and one.resource.plural != "statefulsets"]
    assert (raised.object["metadata"]["name"], raised.object["revision"]) == ("x-old", 3)
    assert created(actions)[0]["metadata"]["labels"]["controller-revision-hash"] == "x-old"


def test_history_in_use_is_kept() -> None:
    revisions = [revision(f"x-{number}", number, f"app:{number}0") for number in range(1, 5)] + [revision("x-new", 9)]
    set_ = set_of(revisionHistoryLimit=1, status={"currentRevision": "x-1"})
    pods = [member(0, "x-2"), member(1), member(2)]
    assert deleted(look(set_, pods, revisions), "controllerrevisions") == ["x-3"]


def test_how_many_may_be_unavailable() -> None:
    for given, replicas, expected in ((None, 9, 1), (3, 9, 3), ("50%", 9, 4), ("10%", 9, 1), (0, 9, 1)):
        rolling = {} if given is None else {"maxUnavailable": given}
        set_ = set_of(replicas, updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling})
        assert max_unavailable(set_.value) == expected, given


# --- status ---


def test_the_status_tells_both_revisions_until_the_update_is_complete() -> None:
    before = {"currentRevision": "x-old"}
    status = status_of(look(set_of(status=before), [member(0, "x-old"), member(1), member(2, ready_s=None)]))
    assert status == {
        "observedGeneration": 1,
        "replicas": 3,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "currentReplicas": 1,
        "updatedReplicas": 2,
        "currentRevision": "x-old",
        "updateRevision": "x-new",
        "collisionCount": 0,
    }
    status = status_of(look(set_of(status=before), [member(ordinal) for ordinal in range(3)]))
    assert (status["currentRevision"], status["currentReplicas"]) == ("x-new", 3)
    settled = look(set_of(status=status), [member(ordinal) for ordinal in range(3)])
    assert not writes(settled)


def test_the_next_pod_to_become_available_is_waited_for() -> None:
    actions = look(set_of(minReadySeconds=600), [member(0)])
    assert [one.seconds for one in actions if isinstance(one, RequeueAfter)] == [100.0]


def test_a_set_that_goes_only_counts() -> None:
    gone = workload(StatefulSet, replicas=3, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    actions = look(gone, [member(0)])
    assert not created(actions) and status_of(actions)["replicas"] == 1


def test_a_lagging_cache_is_waited_for() -> None:
    view = View(pods=(), revisions=(), revision=lambda _name: None, claim=lambda _name: None, is_settled=False)
    (only,) = reconcile(set_of(), view, {}, NOW_S)
    assert isinstance(only, RequeueAfter)


def test_a_pod_without_its_labels_gets_them() -> None:
    adopted = pod("x-0", owner=set_of(), ready_s=500, labels={"controller-revision-hash": "x-new"})
    (patch,) = [one for one in look(set_of(1), [adopted]) if isinstance(one, Patch)]
    labels = {"statefulset.kubernetes.io/pod-name": "x-0", "apps.kubernetes.io/pod-index": "0"}
    assert patch.patch["metadata"] == {"uid": "uid-x-0", "labels": labels}
    assert patch.on_success is not None and patch.on_success.note == "Update Pod x-0 in StatefulSet x successful"


# --- volumes ---


def with_claims(policy: tuple[str, str] = ("Retain", "Retain"), replicas: int = 1, **more: Any) -> Whole[Any]:
    retention = {"whenDeleted": policy[0], "whenScaled": policy[1]}
    return set_of(replicas, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=retention, **more)


def pvc(ordinal: int, *owners: Object, **meta: Any) -> dict[str, Object]:
    name = f"data-x-{ordinal}"
    metadata = {"name": name, "namespace": "ns", "resourceVersion": "5", "ownerReferences": list(owners), **meta}
    return {name: {"metadata": metadata, "spec": {}}}


def owner_of(kind: str, name: str, uid: str = "") -> Object:
    version = "v1" if kind == "Pod" else "apps/v1"
    uid = uid or f"uid-{name}"
    return {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def mounted(ordinal: int, **more: Any) -> Pod:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-x-{ordinal}"}}]
    return member(ordinal, spec={"volumes": volumes}, **more)


def test_claims_come_before_their_pod() -> None:
    actions = look(with_claims(template=template(volumes=[{"name": "data", "emptyDir": {}}, {"name": "tmp"}])))
    claim, made_ = [one for one in writes(actions) if isinstance(one, Create) and one.resource.group == ""]
    assert claim.object["metadata"] == {
        "name": "data-x-0",
        "namespace": "ns",
        "labels": {"kind": "disk", "app": "x"},
    }
    assert claim.object["spec"] == {"storageClassName": "fast"}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-x-0"}}, {"name": "tmp"}]
    assert made_.object["spec"]["volumes"] == volumes
    assert "Create Claim data-x-0 Pod x-0 in StatefulSet x success" in notes(actions)
    assert not created(look(with_claims(), claims=pvc(0)), "persistentvolumeclaims")


def test_a_pending_pod_gets_claims_that_were_lost() -> None:
    actions = look(with_claims(), [mounted(0, phase="Pending", ready_s=None)])
    assert [one["metadata"]["name"] for one in created(actions, "persistentvolumeclaims")] == ["data-x-0"]


def test_a_pod_waits_for_a_claim_that_is_being_deleted() -> None:
    actions = look(with_claims(), claims=pvc(0, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert not created(actions) and any(isinstance(one, Retry) for one in actions)
    assert "Create Pod x-0 in StatefulSet x failed error: pvc data-x-0 is being deleted" in notes(actions)


def test_a_claim_that_goes_with_an_earlier_pod_is_waited_for() -> None:
    stale = pvc(0, owner_of("Pod", "x-0", "uid-of-before"))
    assert not created(look(with_claims(("Retain", "Delete")), claims=stale))
    assert created(look(with_claims(("Delete", "Retain")), claims=stale))


SET, POD = owner_of("StatefulSet", "x"), owner_of("Pod", "x-1")


@pytest.mark.parametrize(
    ("policy", "inside", "outside"),
    [
        (("Retain", "Retain"), [], []),
        (("Delete", "Retain"), [SET], [SET]),
        (("Retain", "Delete"), [], [POD]),
        (("Delete", "Delete"), [SET], [POD]),
    ],
)
def test_claims_belong_to_whom_the_policy_says(
    policy: tuple[str, str], inside: list[Object], outside: list[Object]
) -> None:
    for replicas, expected in ((2, inside), (1, outside)):
        pods = [mounted(0), mounted(1)]
        for before in ([], [SET], [POD]):
            claims = pvc(0, *inside) | pvc(1, *before)
            actions = look(with_claims(policy, replicas), pods, claims=claims)
            found = [one for one in writes(actions) if isinstance(one, Update) and one.resource.group == ""]
            after = found[0].object["metadata"]["ownerReferences"] if found else before
            assert after == expected, (policy, replicas, before)


def test_a_claim_of_somebody_else_is_left_alone_and_told() -> None:
    claims = pvc(0, owner_of("Database", "other"))
    actions = look(with_claims(("Delete", "Delete")), [mounted(0)], claims=claims)
    assert not [one for one in writes(actions) if isinstance(one, Update) and one.resource.group == ""]
    assert any("has a conflicting OwnerReference" in note for note in notes(actions))
