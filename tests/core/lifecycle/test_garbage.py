"""The garbage collector's decisions, carried out on a dictionary of objects."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.lifecycle import actions
from allot.core.lifecycle.actions import LookUp, Patch, RequeueAfter, Resource, Retry
from allot.core.lifecycle.garbage import (
    ABSENT_MAX,
    FOREGROUND,
    ORPHAN,
    Delete,
    DropOwners,
    Noticed,
    OrphanDependents,
    OwnerGraph,
    OwnerState,
    RemoveFinalizer,
    Tracked,
    Unresolved,
    Verify,
    coordinates,
    decide,
    tracked,
)
from allot.core.lifecycle.garbage_actions import reconcile
from allot.core.model.meta import OwnerReference

PODS = Resource(group="", version="v1", kind="Pod", plural="pods", namespaced=True)
NODES = Resource(group="", version="v1", kind="Node", plural="nodes", namespaced=False)
KINDS = {("", "Pod"): PODS, ("", "Node"): NODES}


def owner(name: str, *, kind: Resource = PODS, blocks: bool | None = None) -> OwnerReference:
    return OwnerReference(
        api_version=kind.api_version, kind=kind.kind, name=name, uid=f"uid-{name}", block_owner_deletion=blocks
    )


def thing(
    name: str,
    *owners: OwnerReference,
    kind: Resource = PODS,
    namespace: str = "ns",
    finalizers: tuple[str, ...] = (),
    deleting: bool = False,
    version: str = "1",
) -> Tracked:
    return Tracked(
        resource=kind,
        namespace=namespace if kind.namespaced else "",
        name=name,
        uid=f"uid-{name}",
        version=version,
        owners=owners,
        finalizers=finalizers,
        is_deleting=deleting,
    )


def graph_of(*objects: Tracked) -> OwnerGraph:
    graph = OwnerGraph(KINDS)
    for one in objects:
        graph.observe(one)
    return graph


def test_an_object_is_read_from_its_metadata():
    found = tracked(
        PODS,
        {
            "metadata": {
                "name": "web",
                "namespace": "ns",
                "uid": "u",
                "resourceVersion": "7",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "ua", "controller": True}],
                "finalizers": [ORPHAN],
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            }
        },
    )
    assert (found.namespace, found.name, found.uid, found.version) == ("ns", "web", "u", "7")
    assert found.owners[0].controller is True
    assert found.orphans_dependents and not found.deletes_dependents


def test_objects_without_owners_are_of_no_interest():
    graph = OwnerGraph(KINDS)
    assert graph.observe(thing("a")) == Noticed()
    assert graph.observe(thing("a", version="2")) == Noticed()
    assert graph.forget(thing("a")) == Noticed()
    assert len(graph) == 0


def test_a_dependent_whose_owner_is_not_seen_yet_is_looked_at_later():
    graph = OwnerGraph(KINDS)
    assert graph.observe(thing("b", owner("a"))) == Noticed(later=("uid-b",))
    assert decide(graph, "uid-b") == Verify(((owner("a"), PODS),))
    graph.observe(thing("a"))
    assert decide(graph, "uid-b") is None


def test_dependents_of_a_deleted_owner_are_deleted_without_asking():
    graph = graph_of(thing("a"), thing("b", owner("a")), thing("c", owner("a")))
    assert graph.forget(thing("a")).now == ("uid-b", "uid-c")
    assert decide(graph, "uid-b") == Delete(target=thing("b", owner("a")), propagation="Background")


def test_an_owner_that_the_server_has_keeps_its_dependents():
    graph = graph_of(thing("b", owner("a")))
    assert decide(graph, "uid-b", {"uid-a": OwnerState.PRESENT}) is None
    assert isinstance(decide(graph, "uid-b", {"uid-a": OwnerState.ABSENT}), Delete)


def test_finalizers_that_are_there_already_say_how_dependents_are_treated():
    for finalizer, propagation in ((ORPHAN, "Orphan"), (FOREGROUND, "Foreground"), ("other", "Background")):
        graph = graph_of(thing("b", owner("a"), finalizers=(finalizer,)))
        decision = decide(graph, "uid-b", {"uid-a": OwnerState.ABSENT})
        assert isinstance(decision, Delete) and decision.propagation == propagation


def test_one_owner_that_is_left_is_enough_and_the_others_are_dropped():
    child = thing("c", owner("a"), owner("b"))
    graph = graph_of(thing("a"), thing("b"), child)
    graph.forget(thing("b"))
    assert decide(graph, "uid-c") == DropOwners(child, ("uid-b",))


def test_an_owner_recreated_under_the_same_name_is_another_one():
    graph = graph_of(thing("a"), thing("b", owner("a")))
    graph.forget(thing("a"))
    graph.observe(msgspec.structs.replace(thing("a"), uid="uid-new"))
    assert isinstance(decide(graph, "uid-b"), Delete)


def test_foreground_deletion_waits_for_blocking_dependents_only():
    child, other = thing("b", owner("a", blocks=True)), thing("c", owner("a"))
    graph = graph_of(thing("a"), child, other)
    noticed = graph.observe(thing("a", finalizers=(FOREGROUND,), deleting=True))
    assert noticed.now == ("uid-b", "uid-c", "uid-a")
    assert decide(graph, "uid-a") is None and graph.is_blocked("uid-a")
    assert decide(graph, "uid-b") == Delete(target=child, propagation="Background")
    assert graph.forget(child).now == ("uid-a",)
    assert decide(graph, "uid-a") == RemoveFinalizer(graph.get("uid-a"), FOREGROUND)


def test_foreground_deletion_goes_down_to_dependents_of_dependents():
    graph = graph_of(thing("a"), thing("b", owner("a", blocks=True)), thing("c", owner("b", blocks=True)))
    graph.observe(thing("a", finalizers=(FOREGROUND,), deleting=True))
    decision = decide(graph, "uid-b")
    assert isinstance(decision, Delete) and decision.propagation == "Foreground" and not decision.unblock


def test_a_circle_of_waiting_objects_is_cut():
    graph = graph_of(thing("a", owner("b", blocks=True)), thing("b", owner("a", blocks=True)))
    graph.observe(thing("a", owner("b", blocks=True), finalizers=(FOREGROUND,), deleting=True))
    decision = decide(graph, "uid-b")
    assert isinstance(decision, Delete) and decision.unblock
    patch, delete = reconcile(graph, "uid-b", {})
    assert isinstance(patch, Patch) and isinstance(delete, actions.Delete)
    assert patch.patch["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] is False
    assert (delete.uid, delete.resource_version) == ("uid-b", "")


def test_a_dependent_that_stops_blocking_makes_its_owner_worth_a_look():
    graph = graph_of(thing("a", finalizers=(FOREGROUND,), deleting=True), thing("b", owner("a", blocks=True)))
    assert graph.observe(thing("b", owner("a", blocks=False), version="2")).now == ("uid-a",)
    assert decide(graph, "uid-a") == RemoveFinalizer(graph.get("uid-a"), FOREGROUND)


def test_a_dependent_that_appears_while_its_owner_waits_is_looked_at():
    graph = graph_of(thing("a", finalizers=(FOREGROUND,), deleting=True))
    assert graph.observe(thing("b", owner("a", blocks=True))).now == ("uid-b",)


def test_orphaning_takes_the_owner_out_of_its_dependents():
    child = thing("b", owner("a"), owner("x"))
    graph = graph_of(thing("a"), child)
    assert graph.observe(thing("a", finalizers=(ORPHAN,), deleting=True)).now == ("uid-a",)
    assert decide(graph, "uid-a") == OrphanDependents(graph.get("uid-a"), (child,))
    freed, done = reconcile(graph, "uid-a", {})
    assert isinstance(freed, Patch) and isinstance(done, Patch)
    assert (freed.name, done.name, done.patch["metadata"]["finalizers"]) == ("b", "a", None)
    assert [one["name"] for one in freed.patch["metadata"]["ownerReferences"]] == ["x"]
    assert (freed.patch["metadata"]["uid"], freed.patch["metadata"]["resourceVersion"]) == ("uid-b", "1")


def test_an_object_that_is_being_deleted_anyway_is_left_alone():
    graph = graph_of(thing("b", owner("a"), deleting=True, finalizers=("other",)))
    assert decide(graph, "uid-b", {"uid-a": OwnerState.ABSENT}) is None


def test_owners_in_another_namespace_own_nothing():
    child = thing("b", owner("a"), namespace="here")
    graph = graph_of(thing("a", namespace="there"))
    assert graph.observe(child).now == ("uid-b",)
    assert graph.misplaced(child) == (owner("a"),)
    assert isinstance(decide(graph, "uid-b"), Verify)
    event = reconcile(graph, "uid-b", {})[0]
    assert isinstance(event, actions.Emit) and event.reason == "OwnerRefInvalidNamespace"
    assert event.note == ('ownerRef [v1/Pod, namespace: here, name: a, uid: uid-a] does not exist in namespace "here"')


def test_an_owner_without_a_namespace_owns_objects_everywhere():
    graph = graph_of(thing("n", kind=NODES), thing("b", owner("n", kind=NODES)))
    assert decide(graph, "uid-b") is None
    graph.forget(thing("n", kind=NODES))
    assert isinstance(decide(graph, "uid-b"), Delete)


def test_a_reference_from_outside_of_namespaces_into_one_decides_nothing():
    graph = graph_of(thing("n", owner("p"), kind=NODES))
    assert decide(graph, "uid-n", {"uid-p": OwnerState.ABSENT}) is None


def test_owners_of_unknown_kinds_are_not_judged():
    stranger = OwnerReference(api_version="example.com/v1", kind="Thing", name="t", uid="t")
    graph = graph_of(thing("b", stranger))
    assert decide(graph, "uid-b") == Unresolved(stranger)


def test_what_is_remembered_about_absent_owners_is_bounded():
    graph = OwnerGraph(KINDS)
    for number in range(ABSENT_MAX + 1):
        graph.remember_absent(coordinates(owner(str(number)), PODS, "ns"))
    assert graph.state_of(owner("0"), PODS, "ns") is None
    assert graph.state_of(owner("1"), PODS, "ns") is OwnerState.ABSENT


def test_the_server_is_asked_about_owners_that_no_watch_has_told_of():
    graph = graph_of(thing("b", owner("a"), version="5"))
    (question,) = reconcile(graph, "uid-b", {})
    assert question == LookUp(resource=PODS, name="a", namespace="ns")
    seen = {"metadata": {"name": "a", "uid": "uid-a"}}
    assert reconcile(graph, "uid-b", {question: seen}) == (RequeueAfter(seconds=30.0),)
    another = {"metadata": {"name": "a", "uid": "other"}}
    (delete,) = reconcile(graph, "uid-b", {question: another})
    assert isinstance(delete, actions.Delete)
    assert (delete.uid, delete.resource_version, delete.propagation_policy) == ("uid-b", "5", "Background")
    # It is known now.
    assert isinstance(reconcile(graph, "uid-b", {})[0], actions.Delete)


def test_owners_of_unknown_kinds_are_tried_again():
    graph = graph_of(thing("b", OwnerReference(api_version="example.com/v1", kind="Thing", name="t", uid="t")))
    (again,) = reconcile(graph, "uid-b", {})
    assert again == Retry(message="owner 't' is of unknown kind example.com/v1/Thing")


def test_a_waiting_object_is_looked_at_only_when_nothing_blocks_it_any_more():
    waiting = thing("a", finalizers=("x", FOREGROUND), deleting=True)
    children = [thing(f"c{number}", owner("a", blocks=True)) for number in range(3)]
    graph = graph_of(waiting, *children, thing("free", owner("a")))
    assert reconcile(graph, "uid-a", {}) == ()
    assert graph.forget(children[0]).now == ()
    assert graph.observe(thing("c1", owner("a", blocks=False), version="2")).now == ()
    assert graph.forget(thing("free")).now == ()
    assert graph.forget(children[2]).now == ("uid-a",)
    (patch,) = reconcile(graph, "uid-a", {})
    assert isinstance(patch, Patch) and patch.patch["metadata"]["finalizers"] == ["x"]


# --- whole runs ---


class World:
    """A server of objects that carries out decisions and tells the graph what happened."""

    def __init__(self, objects: list[Tracked]) -> None:
        self.objects = {one.uid: one for one in objects}
        self.graph = OwnerGraph(KINDS)
        self.queue: list[str] = []
        for one in objects:
            self._notice(self.graph.observe(one))

    def _notice(self, noticed: Noticed) -> None:
        self.queue.extend((*noticed.now, *noticed.later))

    def change(self, uid: str, **fields: Any) -> None:
        new = msgspec.structs.replace(self.objects[uid], **fields)
        if new.is_deleting and not new.finalizers:
            del self.objects[uid]
            self._notice(self.graph.forget(new))
        else:
            self.objects[uid] = new
            self._notice(self.graph.observe(new))

    def delete(self, uid: str, propagation: str) -> None:
        if uid not in self.objects:
            return
        kept = tuple(one for one in self.objects[uid].finalizers if one not in (ORPHAN, FOREGROUND))
        added = {"Foreground": (FOREGROUND,), "Orphan": (ORPHAN,)}.get(propagation, ())
        self.change(uid, finalizers=(*kept, *added), is_deleting=True)

    def settle(self) -> None:
        steps = 0
        while self.queue:
            steps += 1
            assert steps < 10_000, "the collector never comes to rest"
            uid = self.queue.pop(0)
            decision = decide(self.graph, uid)
            if isinstance(decision, Verify):
                states = {
                    one.uid: OwnerState.PRESENT if one.uid in self.objects else OwnerState.ABSENT
                    for one, _ in decision.owners
                }
                decision = decide(self.graph, uid, states)
            match decision:
                case Delete(target=target, propagation=propagation, unblock=unblock):
                    if unblock:
                        freed = (msgspec.structs.replace(o, block_owner_deletion=False) for o in target.owners)
                        self.change(target.uid, owners=tuple(freed))
                    self.delete(target.uid, propagation)
                case DropOwners(target, uids):
                    self.change(target.uid, owners=tuple(o for o in target.owners if o.uid not in uids))
                case RemoveFinalizer(target, finalizer):
                    self.change(target.uid, finalizers=tuple(f for f in target.finalizers if f != finalizer))
                case OrphanDependents(target, dependents):
                    for one in dependents:
                        self.change(one.uid, owners=tuple(o for o in one.owners if o.uid != target.uid))
                    self.change(target.uid, finalizers=tuple(f for f in target.finalizers if f != ORPHAN))


@st.composite
def families(draw: st.DrawFn) -> list[Tracked]:
    """Objects whose owners come before or, in circles, after them."""
    count = draw(st.integers(1, 8))
    objects = []
    for number in range(count):
        owners = draw(st.lists(st.integers(0, count - 1), max_size=3, unique=True))
        references = [owner(str(one), blocks=draw(st.booleans())) for one in owners if one != number]
        objects.append(thing(str(number), *references))
    return draw(st.permutations(objects))


def survivors(objects: list[Tracked], deleted: str) -> set[str]:
    """By the definition: whoever had owners and has none left goes."""
    left = {one.uid: one for one in objects if one.uid != deleted}
    while True:
        gone = [u for u, one in left.items() if one.owners and not any(o.uid in left for o in one.owners)]
        if not gone:
            return set(left)
        for uid in gone:
            del left[uid]


@settings(max_examples=80)
@given(families(), st.integers(0, 7))
def test_in_the_background_exactly_those_without_owners_go(objects: list[Tracked], which: int):
    deleted = objects[which % len(objects)].uid
    world = World(objects)
    world.settle()
    world.delete(deleted, "Background")
    world.settle()
    assert set(world.objects) == survivors(objects, deleted)


@settings(max_examples=80)
@given(families(), st.integers(0, 7))
def test_in_the_foreground_an_object_goes_after_its_blocking_dependents_and_nobody_waits_forever(
    objects: list[Tracked], which: int
):
    deleted = objects[which % len(objects)].uid
    world = World(objects)
    world.settle()
    world.delete(deleted, "Foreground")
    world.settle()
    assert deleted not in world.objects
    assert not any(one.is_deleting for one in world.objects.values())
    assert survivors(objects, deleted) <= set(world.objects) | {deleted}


@settings(max_examples=100)
@given(families(), st.integers(0, 7))
def test_orphaning_deletes_nothing_else(objects: list[Tracked], which: int):
    deleted = objects[which % len(objects)].uid
    world = World(objects)
    world.settle()
    world.delete(deleted, "Orphan")
    world.settle()
    assert set(world.objects) == {one.uid for one in objects} - {deleted}
    assert not any(o.uid == deleted for one in world.objects.values() for o in one.owners)
