"""Claims from templates: names, owners, what is recorded, what is told, and reservations for pods with a node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.actions import Action, Answers, Apply, Create, Emit, LookUp, Retry, Update, resource_of
from allot.core.lifecycle.templates import generate_name, needs_work, reconcile_pod, reconcile_pod_group
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import OwnerReference
from allot.core.model.resource_v1 import ResourceClaim
from allot.core.model.scheduling_v1 import PodGroup
from core.lifecycle.claim_world import World, claim, consumer, entry, group, group_entry, pod, template

GROUP_GATES = DEFAULT_GATES.changed(enable=("GenericWorkload", "DRAWorkloadResourceClaims"))


def reconcile(
    found: Pod, world: World, answers: Answers | None = None, gates: FeatureGates = DEFAULT_GATES
) -> tuple[Action, ...]:
    return reconcile_pod(found, world, answers or {}, gates)


def made(action: Action) -> ResourceClaim:
    assert isinstance(action, Create) and isinstance(action.object, ResourceClaim)
    return action.object


def recorded(action: Action) -> list[tuple[str, str]]:
    assert isinstance(action, Apply) and action.subresource == "status" and action.force
    assert action.manager == "ResourceClaimController"
    return [(one["name"], one["resourceClaimName"]) for one in action.fields["status"]["resourceClaimStatuses"]]


def question(name: str) -> LookUp:
    return LookUp(resource=resource_of(ResourceClaim), name=name, namespace="ns")


# --- names ---


def test_short_names_are_joined_and_long_ones_are_cut_in_proportion() -> None:
    assert generate_name("train", "gpu") == "train-gpu-"
    assert generate_name("p" * 60, "c" * 20) == "p" * 41 + "-" + "c" * 13
    assert generate_name("p" * 45, "c" * 10) == "p" * 45 + "-" + "c" * 10 + "-"
    assert generate_name("p" * 46, "c" * 10) == "p" * 45 + "-" + "c" * 9


@given(st.text("ab", min_size=1, max_size=253), st.text("cd", min_size=1, max_size=63))
def test_a_base_never_leaves_too_little_room(owner: str, entry_name: str) -> None:
    assert len(generate_name(owner, entry_name)) <= 57


# --- pods ---


def test_a_claim_is_made_and_recorded() -> None:
    owner = pod("train", entry("gpu", template="t"))
    source = template("t", labels={"a": "b"}, annotations={"c": "d"})
    create, apply = reconcile(owner, World(owner, source))
    new = made(create)
    assert new.metadata.generate_name == "train-gpu-"
    assert new.metadata.name.startswith("train-gpu-") and len(new.metadata.name) == len("train-gpu-") + 5
    assert new.metadata.namespace == "ns"
    assert new.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
    assert new.metadata.labels == {"a": "b"}
    assert new.metadata.annotations == {"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"}
    assert new.metadata.owner_references == (
        OwnerReference(api_version="v1", kind="Pod", name="train", uid="uid-train", controller=True),
    )
    assert new.spec == source.spec.spec
    assert recorded(apply) == [("gpu", new.metadata.name)]
    assert isinstance(apply, Apply) and apply.uid == "uid-train"


def test_who_tries_twice_makes_the_same_claim() -> None:
    owner = pod("train", entry("gpu", template="t"))
    assert reconcile(owner, World(owner, template())) == reconcile(owner, World(owner, template()))
    other = pod("train", entry("gpu", template="t"), uid="other")
    assert made(reconcile(owner, World(template()))[0]).metadata.name != (
        made(reconcile(other, World(template()))[0]).metadata.name
    )


def test_a_name_that_somebody_else_has_is_left_to_him() -> None:
    owner = pod("train", entry("gpu", template="t"))
    first = made(reconcile(owner, World(template()))[0]).metadata.name
    second = made(reconcile(owner, World(template(), claim(first)))[0]).metadata.name
    assert second != first and second.startswith("train-gpu-")


def test_a_claim_that_was_made_but_not_recorded_is_found() -> None:
    owner = pod("train", entry("gpu", template="t"), entry("nic", template="t"))
    orphan = claim("train-nic-x", owner=owner, entry_name="nic")
    create, apply = reconcile(owner, World(owner, template(), orphan))
    assert recorded(apply) == [("gpu", made(create).metadata.name), ("nic", "train-nic-x")]


def test_all_names_are_recorded_in_order_those_of_before_too() -> None:
    owner = pod("p", entry("z", template="t"), entry("a", template="t"), recorded={"z": "p-z-1"})
    create, apply = reconcile(owner, World(owner, template(), claim("p-z-1", owner=owner)))
    assert recorded(apply) == [("a", made(create).metadata.name), ("z", "p-z-1")]


def test_a_recorded_claim_that_is_gone_is_made_anew_once_the_server_confirms_it() -> None:
    owner = pod("p", entry("gpu", template="t"), recorded={"gpu": "p-gpu-1"})
    world = World(owner, template())
    assert needs_work(owner, world, DEFAULT_GATES)
    assert reconcile(owner, world) == (question("p-gpu-1"),)
    assert reconcile(owner, world, {question("p-gpu-1"): claim("p-gpu-1", owner=owner)}) == ()
    create, apply = reconcile(owner, world, {question("p-gpu-1"): None})
    assert recorded(apply) == [("gpu", made(create).metadata.name)]
    assert made(create).metadata.name != made(reconcile(pod("p", entry("gpu", template="t")), world)[0]).metadata.name


def test_a_recorded_claim_of_somebody_else_is_replaced() -> None:
    owner = pod("p", entry("gpu", template="t"), recorded={"gpu": "foreign"})
    world = World(owner, template(), claim("foreign", owner=pod("other")))
    assert needs_work(owner, world, DEFAULT_GATES)
    create, _ = reconcile(owner, world)
    assert made(create).metadata.name != "foreign"


def test_nothing_is_made_where_nothing_is_needed() -> None:
    for found in (
        pod("p", entry("gpu", claim="by-name")),
        pod("p", entry("gpu", template="t"), recorded={"gpu": None}),
        pod("p", entry("gpu", template="t"), deleted=True),
        pod("p", entry("gpu", template="t"), phase="Succeeded", recorded={"gpu": "released"}),
        pod("p"),
    ):
        world = World(found, template())
        assert reconcile(found, world) == ()
        assert not needs_work(found, world, DEFAULT_GATES)


def test_a_missing_template_is_told_and_tried_again() -> None:
    owner = pod("p", entry("nic", template="there"), entry("gpu", template="t"))
    create, event, retry = reconcile(owner, World(owner, template("there")))
    assert made(create).metadata.generate_name == "p-nic-"
    text = 'PodResourceClaim gpu: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found'
    assert isinstance(event, Emit)
    assert (event.type, event.reason, event.note) == ("Warning", "FailedResourceClaimCreation", text)
    assert event.regarding == owner
    assert isinstance(retry, Retry)


def test_a_refusal_of_the_server_is_told_with_its_error() -> None:
    owner = pod("p", entry("gpu", template="t"))
    create, _ = reconcile(owner, World(template()))
    assert isinstance(create, Create) and create.on_failure is not None
    assert create.on_failure.note == "PodResourceClaim gpu: create ResourceClaim : "
    assert create.on_failure.reason == "FailedResourceClaimCreation"


# --- reservations ---


def test_a_pod_that_got_its_node_elsewhere_gets_its_allocated_claims_reserved() -> None:
    user = pod("p", entry("a", claim="c"), entry("b", claim="c"), entry("d", claim="free"), node="n")
    other = pod("other")
    world = World(user, claim("c", consumer(other), allocated=True), claim("free"))
    assert needs_work(user, world, DEFAULT_GATES)
    (write,) = reconcile(user, world)
    assert isinstance(write, Update) and write.subresource == "status"
    assert write.object.status.reserved_for == (consumer(other), consumer(user))  # type: ignore[union-attr]
    # Without a node the scheduler does it; without an allocation nobody; a claim on its way out takes nobody.
    assert reconcile(pod("p", entry("a", claim="c")), world) == ()
    assert reconcile(user, World(user, claim("c", allocated=True, deleted=True))) == ()
    assert reconcile(user, World(user, claim("c", consumer(user), allocated=True))) == ()
    # One that is done will not use it; its reservation would be dropped at once.
    assert reconcile(pod("p", entry("a", claim="c"), node="n", phase="Failed"), world) == ()


# --- groups ---


def test_a_group_gets_its_claims_and_keeps_the_names_of_before() -> None:
    gang = group("g", group_entry("a", "t"), group_entry("b", "t"), recorded={"b": "g-b-1"})
    world = World(gang, template(), claim("g-b-1", owner=gang, entry_name="b"))
    create, apply = reconcile_pod_group(gang, world, {}, GROUP_GATES)
    assert made(create).metadata.owner_references[0].api_version == "scheduling.k8s.io/v1beta1"
    assert made(create).metadata.owner_references[0].kind == "PodGroup"
    assert recorded(apply) == [("a", made(create).metadata.name), ("b", "g-b-1")]
    assert isinstance(apply, Apply) and apply.resource == resource_of(PodGroup)
    assert reconcile_pod_group(group("g", group_entry("a", "t"), deleted=True), world, {}, GROUP_GATES) == ()


def test_a_group_without_its_template_is_told() -> None:
    gang = group("g", group_entry("a", "t"))
    event, _ = reconcile_pod_group(gang, World(gang), {}, GROUP_GATES)
    assert isinstance(event, Emit)
    assert event.note == (
        'PodGroupResourceClaim a: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found'
    )


def test_a_pod_copies_the_claim_of_its_group_and_never_makes_it() -> None:
    gang = group("g", group_entry("a", "t"))
    member = pod("p", entry("a", template="t"), entry("b", template="t"), group="g")
    create, apply = reconcile(member, World(member, gang, template()), gates=GROUP_GATES)
    assert recorded(apply) == [("b", made(create).metadata.name)]
    shared = claim("g-a-1", owner=gang, entry_name="a")
    create, apply = reconcile(member, World(member, gang, template(), shared), gates=GROUP_GATES)
    assert recorded(apply) == [("a", "g-a-1"), ("b", made(create).metadata.name)]
    done = pod("p", entry("a", template="t"), group="g", recorded={"a": "g-a-1"})
    assert reconcile(done, World(done, gang, template(), shared), gates=GROUP_GATES) == ()


def test_an_entry_with_another_template_is_the_pods_own() -> None:
    gang = group("g", group_entry("a", "other"))
    member = pod("p", entry("a", template="t"), group="g")
    create, _ = reconcile(member, World(member, gang, template()), gates=GROUP_GATES)
    assert made(create).metadata.owner_references[0].kind == "Pod"


def test_a_pod_whose_group_is_missing_waits() -> None:
    member = pod("p", entry("a", template="t"), group="g")
    (retry,) = reconcile(member, World(member, template()), gates=GROUP_GATES)
    assert isinstance(retry, Retry)
    assert retry.message == 'get PodGroup for Pod ns/p: podgroup.scheduling.k8s.io "g" not found'
    assert reconcile(member, World(member, template())) == ()


def test_group_claims_with_the_feature_off_are_told_once() -> None:
    gang, member = group("g", group_entry("a", "t")), pod("p", entry("a", template="t"), group="g")
    gates = DEFAULT_GATES.changed(enable=("GenericWorkload",))
    (event,) = reconcile(member, World(member, gang, template()), gates=gates)
    assert isinstance(event, Emit)
    assert event.note == (
        "PodResourceClaim a: claim a is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled"
    )


def test_a_group_reserves_for_its_pod() -> None:
    gang = group("g", group_entry("a", "t"))
    member = pod("p", entry("a", template="t"), group="g", node="n", recorded={"a": "g-a-1"})
    shared = claim("g-a-1", owner=gang, entry_name="a", allocated=True)
    (write,) = reconcile(member, World(member, gang, shared, template()), gates=GROUP_GATES)
    assert isinstance(write, Update)
    assert write.object.status.reserved_for == (consumer(gang),)  # type: ignore[union-attr]
