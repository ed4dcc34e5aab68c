"""Storage is kept as long as it is in use, and no longer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allot.core.lifecycle.actions import LookUp, RemoveFinalizer, Update
from allot.core.lifecycle.disruption import PODS
from allot.core.model.core_v1 import (
    EphemeralVolumeSource,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodSpec,
    PodStatus,
    Volume,
)
from allot.core.model.meta import ObjectMeta
from allot.core.workloads.storage_protection import (
    CLAIM_FINALIZER,
    claim_keys,
    reconcile_attributes_class,
    reconcile_claim,
    reconcile_volume,
    release_claims,
)

NOW = "2026-01-01T00:00:00Z"
QUESTION = LookUp(resource=PODS, namespace="ns")


def claim(*, leaving: bool = True, owner: str = "", **status: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p-data", "namespace": "ns", "finalizers": ["other", CLAIM_FINALIZER]}
    if leaving:
        metadata["deletionTimestamp"] = NOW
    if owner:
        metadata["ownerReferences"] = [{"controller": True, "uid": owner}]
    return {"metadata": metadata, "status": status}


def pod(
    *, node: str = "n", phase: str = "Running", ephemeral: bool = False, grace: int | None = None, claim: str = "p-data"
) -> Pod:
    volume = Volume(
        name="data",
        ephemeral=EphemeralVolumeSource() if ephemeral else None,
        persistent_volume_claim=None if ephemeral else PersistentVolumeClaimVolumeSource(claim_name=claim),
    )
    metadata = ObjectMeta(
        name="p",
        namespace="ns",
        uid="u",
        deletion_timestamp=NOW if grace is not None else None,
        deletion_grace_period_seconds=grace,
    )
    return Pod(
        metadata=metadata,
        spec=PodSpec(node_name=node, volumes=(Volume(name="x"), volume)),
        status=PodStatus(phase=phase),
    )


@pytest.mark.parametrize(
    ("user", "owner", "is_kept"),
    [
        (pod(), "", True),
        # It may still be mounted after the end of its containers.
        (pod(phase="Succeeded"), "", True),
        # No node starts a pod whose claim is being deleted.
        (pod(node=""), "", False),
        (pod(claim="another"), "", False),
        (pod(ephemeral=True), "u", True),
        (pod(ephemeral=True), "another pod of that name", False),
        (pod(ephemeral=True, grace=30), "u", True),
        # Perhaps the pod waits for the claim to go.
        (pod(ephemeral=True, grace=0), "u", False),
        (pod(grace=0), "", True),
    ],
)
def test_which_pods_keep_a_volume_claim(user: Pod, owner: str, is_kept: bool) -> None:
    leaving = claim(owner=owner)
    cached = {"ns/p-data": [user]} if "ns/p-data" in claim_keys(user) else {}
    asked = release_claims("ns", [leaving], cached, {})
    assert asked == (() if is_kept else (QUESTION,))
    # What only the server knows counts as well.
    answer = release_claims("ns", [leaving], {}, {QUESTION: (user,)})
    expected = RemoveFinalizer(resource=answer[0].resource, object=leaving, finalizer=CLAIM_FINALIZER) if answer else ()  # type: ignore[union-attr]
    assert answer == (() if is_kept else (expected,))


def test_the_server_is_asked_once_for_all_claims_of_a_namespace() -> None:
    leaving = [{"metadata": {**claim()["metadata"], "name": f"c{number}"}} for number in range(100)]
    assert release_claims("ns", leaving, {}, {}) == (QUESTION,)
    assert len(release_claims("ns", leaving, {}, {QUESTION: (pod(claim="c7"),)})) == 99


def test_claims_that_stay_are_none_of_its_business() -> None:
    assert release_claims("ns", [claim(leaving=False)], {}, {QUESTION: ()}) == ()
    freed = claim()
    freed["metadata"]["finalizers"] = ["other"]
    assert release_claims("ns", [freed], {}, {QUESTION: ()}) == ()


@pytest.mark.parametrize(
    ("users", "before", "after"),
    [
        ([], None, ("True", "NoPodsUsingPVC")),
        ([pod()], None, ("False", "PodUsingPVC")),
        ([pod(node="")], None, ("False", "PodUsingPVC")),
        ([pod(phase="Failed")], "False", ("True", "NoPodsUsingPVC")),
        ([pod()], "True", ("False", "PodUsingPVC")),
        ([pod()], "False", None),
        ([], "True", None),
    ],
)
def test_the_status_of_a_bound_claim_says_whether_pods_use_it(
    users: list[Pod], before: str | None, after: tuple[str, str] | None
) -> None:
    kept = {"type": "Resizing", "status": "True"}
    conditions = [kept, *([{"type": "Unused", "status": before}] if before else [])]
    bound = claim(leaving=False, phase="Bound", conditions=conditions)
    actions = reconcile_claim(bound, users, NOW)
    if after is None:
        assert actions == ()
        return
    (action,) = actions
    assert isinstance(action, Update) and action.subresource == "status"
    written = msgspec.to_builtins(action.object)["status"]["conditions"]
    assert written[0] == kept and len(written) == 2
    assert (written[1]["type"], written[1]["status"], written[1]["reason"]) == ("Unused", *after)
    assert written[1]["lastTransitionTime"] == NOW


def test_a_claim_that_is_not_bound_or_is_leaving_gets_no_condition() -> None:
    assert reconcile_claim(claim(leaving=False, phase="Pending"), [], NOW) == ()
    assert reconcile_claim(claim(phase="Bound"), [], NOW) == ()


def test_what_is_older_than_the_protection_gets_it() -> None:
    bare = {"metadata": {"name": "x"}, "spec": {"kept": True}}
    for action in (*reconcile_claim(bare, [], NOW), *reconcile_volume(bare), *reconcile_attributes_class(bare, [])):
        assert isinstance(action, Update)
        object_ = msgspec.to_builtins(action.object)
        assert len(object_["metadata"]["finalizers"]) == 1 and object_["spec"] == {"kept": True}


def test_a_volume_is_kept_while_it_is_bound_and_a_class_while_it_is_named() -> None:
    metadata = {"name": "x", "deletionTimestamp": NOW}
    volume = {"metadata": {**metadata, "finalizers": ["kubernetes.io/pv-protection"]}, "status": {"phase": "Bound"}}
    assert reconcile_volume(volume) == ()
    (action,) = reconcile_volume({**volume, "status": {"phase": "Released"}})
    assert isinstance(action, RemoveFinalizer)
    class_ = {"metadata": {**metadata, "finalizers": ["kubernetes.io/vac-protection"]}}
    assert reconcile_attributes_class(class_, [volume]) == ()
    (action,) = reconcile_attributes_class(class_, [])
    assert isinstance(action, RemoveFinalizer)
