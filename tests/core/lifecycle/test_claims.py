"""When reservations are dropped, devices given back, and claims removed."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.features import DEFAULT_GATES
from allot.core.lifecycle.actions import Action, Delete, LookUp, RemoveFinalizer, Update, resource_of
from allot.core.lifecycle.claims import reconcile_claim
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import FINALIZER, ResourceClaim, ResourceClaimConsumerReference
from allot.core.model.scheduling_v1 import PodGroup
from core.lifecycle.claim_world import World, claim, consumer, entry, group, pod

GROUP_GATES = DEFAULT_GATES.changed(enable=("GenericWorkload", "DRAWorkloadResourceClaims"))


def reconcile(found: ResourceClaim, world: World, answers: dict[LookUp, object] | None = None) -> tuple[Action, ...]:
    return reconcile_claim(found, world, answers or {}, GROUP_GATES)


def written(action: Action) -> ResourceClaim:
    assert isinstance(action, Update) and isinstance(action.object, ResourceClaim)
    return action.object


def unprotected(*consumers: Any, follows: bool = False, **claim_of: Any) -> RemoveFinalizer:
    return RemoveFinalizer(
        resource=resource_of(ResourceClaim), object=claim(*consumers, **claim_of), finalizer=FINALIZER, follows=follows
    )


DONE = {
    "has succeeded": pod("p", phase="Succeeded", node="n"),
    "has failed": pod("p", phase="Failed", node="n"),
    "was deleted before it had a node": pod("p", deleted=True),
}


def test_a_claim_in_use_is_left_alone() -> None:
    user = pod("p", phase="Running", node="n")
    assert reconcile(claim("c", consumer(user), allocated=True), World(user)) == ()


def test_a_pod_that_is_being_deleted_on_its_node_still_uses_its_claim() -> None:
    user = pod("p", phase="Running", node="n", deleted=True)
    assert reconcile(claim("c", consumer(user), allocated=True), World(user)) == ()


def test_a_claim_that_was_never_reserved_stays_allocated() -> None:
    assert reconcile(claim("c", allocated=True), World()) == ()


@pytest.mark.parametrize("user", DONE.values(), ids=DONE.keys())
def test_a_claim_is_given_back_when_its_last_pod(user: Pod) -> None:
    status, unprotect = reconcile(claim("c", consumer(user), allocated=True), World(user))
    assert isinstance(status, Update) and status.subresource == "status"
    assert written(status).status.reserved_for == () and written(status).status.allocation is None
    assert written(status).metadata.resource_version == "7"
    assert unprotect == unprotected("c", consumer(user), allocated=True, follows=True)


def test_other_consumers_keep_the_allocation() -> None:
    done, user = pod("done", phase="Failed", node="n"), pod("user", phase="Running", node="n")
    (status,) = reconcile(claim("c", consumer(done), consumer(user), allocated=True), World(done, user))
    assert written(status).status.reserved_for == (consumer(user),)
    assert written(status).status.allocation is not None


def test_a_pod_with_the_name_of_another_is_another() -> None:
    old, new = pod("p", uid="old"), pod("p", uid="new", phase="Running", node="n")
    status, _ = reconcile(claim("c", consumer(old), allocated=True), World(new))
    assert written(status).status.reserved_for == ()


def test_an_unknown_consumer_is_looked_up_before_it_is_dropped() -> None:
    user = pod("p")
    found = claim("c", consumer(user), allocated=True)
    question = LookUp(resource=resource_of(Pod), name="p", namespace="ns")
    assert reconcile(found, World()) == (question,)
    assert reconcile(found, World(), {question: user}) == ()
    assert len(reconcile(found, World(), {question: pod("p", uid="other")})) == 2
    assert len(reconcile(found, World(), {question: None})) == 2


def test_a_consumer_that_was_seen_going_needs_no_question() -> None:
    user = pod("p")
    assert len(reconcile(claim("c", consumer(user), allocated=True), World(deleted_uids=["uid-p"]))) == 2


def test_a_consumer_of_an_unknown_kind_is_kept() -> None:
    other = ResourceClaimConsumerReference(api_group="example.com", resource="jobs", name="j", uid="u")
    assert reconcile(claim("c", other, allocated=True), World()) == ()


def test_a_group_keeps_its_claim_until_it_is_gone() -> None:
    gang, done = group("g"), pod("p", phase="Succeeded", node="n", group="g")
    found = claim("c", consumer(gang), owner=gang, allocated=True)
    assert reconcile(found, World(gang, done)) == ()
    assert reconcile(found, World(done)) == (LookUp(resource=resource_of(PodGroup), name="g", namespace="ns"),)
    assert len(reconcile(found, World(deleted_uids=["uid-g"]))) == 2
    # Whoever switches the feature off leaves such reservations alone.
    assert reconcile_claim(found, World(deleted_uids=["uid-g"]), {}, DEFAULT_GATES) == ()


def test_an_allocation_without_the_finalizer_is_not_ours_to_take() -> None:
    done = pod("p", phase="Failed", node="n")
    (status,) = reconcile(claim("c", consumer(done), allocated=True, finalizers=()), World(done))
    assert written(status).status.reserved_for == () and written(status).status.allocation is not None


def test_a_deleted_claim_that_nobody_uses_gives_its_devices_back_and_goes() -> None:
    status, unprotect = reconcile(claim("c", allocated=True, deleted=True), World())
    assert written(status).status.allocation is None
    assert unprotect == unprotected("c", allocated=True, deleted=True, follows=True)
    (only,) = reconcile(claim("c", finalizers=(FINALIZER,), deleted=True), World())
    assert only == unprotected("c", finalizers=(FINALIZER,), deleted=True)


def test_a_deleted_claim_in_use_waits() -> None:
    user = pod("p", phase="Running", node="n")
    assert reconcile(claim("c", consumer(user), allocated=True, deleted=True), World(user)) == ()


def test_a_finalizer_without_an_allocation_is_the_scheduler_at_work() -> None:
    assert reconcile(claim("c", finalizers=(FINALIZER,)), World()) == ()


# --- claims that were made for a pod ---


@pytest.mark.parametrize("owner", DONE.values(), ids=DONE.keys())
def test_a_claim_goes_with_a_pod_that(owner: Pod) -> None:
    delete, unprotect = reconcile(claim("c", consumer(owner), owner=owner, allocated=True), World(owner))
    assert delete == Delete(
        resource=resource_of(ResourceClaim), name="c", namespace="ns", uid="uid-c", resource_version="7"
    )
    assert unprotect == unprotected("c", consumer(owner), owner=owner, allocated=True, follows=True)


def test_a_claim_that_was_not_allocated_is_just_deleted() -> None:
    owner = pod("p", deleted=True)
    (delete,) = reconcile(claim("c", owner=owner), World(owner))
    assert isinstance(delete, Delete)


def test_a_claim_whose_pod_was_seen_going_is_deleted_but_not_one_whose_pod_may_be_too_new() -> None:
    owner = pod("p")
    found = claim("c", owner=owner, allocated=True)
    assert reconcile(found, World()) == ()
    assert isinstance(reconcile(found, World(deleted_uids=["uid-p"]))[0], Delete)
    assert isinstance(reconcile(found, World(pod("p", uid="other")))[0], Delete)


def test_a_claim_that_another_pod_uses_stays_when_its_owner_is_done() -> None:
    owner, user = pod("owner", phase="Succeeded", node="n"), pod("user", phase="Running", node="n")
    found = claim("c", consumer(owner), consumer(user), owner=owner, allocated=True)
    (status,) = reconcile(found, World(owner, user))
    assert written(status).status.reserved_for == (consumer(user),)


def test_devices_do_not_wait_for_the_finalizers_of_others() -> None:
    owner = pod("p", phase="Succeeded", node="n")
    kept = claim("c", consumer(owner), owner=owner, allocated=True, finalizers=("example.com/audit", FINALIZER))
    status, unprotect, delete = reconcile(kept, World(owner))
    assert written(status).status.allocation is None
    assert isinstance(unprotect, RemoveFinalizer) and unprotect.follows
    assert isinstance(delete, Delete) and delete.resource_version == ""


def test_what_a_crash_between_two_writes_leaves_is_finished() -> None:
    owner = pod("p", phase="Succeeded", node="n", recorded={"gpu": "c"})
    # Deleted, but still protected: only the finalizer is left to go.
    (unprotect,) = reconcile(claim("c", consumer(owner), owner=owner, allocated=True, deleted=True), World(owner))
    assert unprotect == unprotected("c", consumer(owner), owner=owner, allocated=True, deleted=True)
    # Released, but not deleted.
    delete, _ = reconcile(claim("c", owner=owner, finalizers=(FINALIZER,)), World(owner))
    assert isinstance(delete, Delete)
    assert reconcile(claim("c", owner=owner, finalizers=("example.com/audit",), deleted=True), World(owner)) == ()


def test_extended_resource_claims_go_like_the_others() -> None:
    owner = pod("p", entry("x", claim="other"), phase="Failed", node="n", extended="c")
    assert len(reconcile(claim("c", consumer(owner), owner=owner, allocated=True), World(owner))) == 2
