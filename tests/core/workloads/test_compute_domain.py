"""ComputeDomains: what is made for them, which nodes are in them, and in which order everything goes."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.core.lifecycle.actions import Action, Create, Delete, Emit, LookUp, Patch, RemoveFinalizer, Retry, Together
from allot.core.model.codec import decode_served
from allot.core.model.compute_domains import (
    CLIQUE_NODES_MAX,
    DOMAIN_LABEL,
    DRIVER_NAMESPACE,
    ChannelSpec,
    ComputeDomain,
    ComputeDomainNode,
    ComputeDomainSpec,
    ComputeDomainStatus,
    TemplateReference,
)
from allot.core.model.core_v1 import Node, Pod, PodCondition, PodIP, PodSpec, PodStatus
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import ResourceClaimTemplate
from allot.core.workloads.compute_domain import COMPUTE_DOMAINS, FINALIZER, View, daemon_name, reconcile

UID = "9b05f547-436e-4aac-9859-5eabf11eaac4"
RACK = "dcaa826a-2fe3-57d5-87bc-2c19edacd840.32766"
ANSWER = LookUp(resource=COMPUTE_DOMAINS)


def domain(nodes: int = 2, status: ComputeDomainStatus = ComputeDomainStatus(), **metadata: Any) -> ComputeDomain:  # noqa: B008
    known = {"name": "nccl", "namespace": "ml", "uid": UID, "finalizers": (FINALIZER,), "resource_version": "7"}
    return ComputeDomain(
        metadata=ObjectMeta(**{**known, **metadata}),
        spec=ComputeDomainSpec(
            num_nodes=nodes, channel=ChannelSpec(resource_claim_template=TemplateReference(name="nccl-channel"))
        ),
        status=status,
    )


def template(namespace: str, name: str, uid: str = UID, **metadata: Any) -> ResourceClaimTemplate:
    labels = {DOMAIN_LABEL: uid} if uid else {}
    return ResourceClaimTemplate(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"t-{name}", labels=labels, **metadata)
    )


def daemon(node: str, *, ready: bool = True, name: str = "", **metadata: Any) -> Pod:
    condition = PodCondition(type="Ready", status="True" if ready else "False")
    number = int(node.rpartition("-")[2])
    return Pod(
        metadata=ObjectMeta(name=name or f"d-{node}", namespace=DRIVER_NAMESPACE, **metadata),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase="Running", pod_ips=(PodIP(ip=f"10.0.0.{number}"),), conditions=(condition,)),
    )


SET = ObjectMeta(name=daemon_name(UID), namespace=DRIVER_NAMESPACE, uid="ds")


def view(found: ComputeDomain | None, *daemons: Pod, cliques: dict[str, str] | None = None, **fields: Any) -> View:
    """All that a domain has is there, unless fields say something else."""
    named = template("ml", "nccl-channel")
    complete = {
        "object": {"metadata": {"uid": UID}},
        "templates": (template(DRIVER_NAMESPACE, daemon_name(UID)), named),
        "named_template": named,
        "daemon_sets": (SET,),
    }
    known = dict.fromkeys((pod.spec.node_name for pod in daemons), RACK) if cliques is None else cliques
    return View(domain=found, daemons=daemons, cliques=known, **{**complete, **fields})


def status_of(actions: tuple[Action, ...]) -> dict[str, Any]:
    patch = next(each for each in actions if isinstance(each, Patch))
    assert patch.subresource == "status"
    found: dict[str, Any] = patch.patch["status"]
    return found


def known_status(actions: tuple[Action, ...]) -> ComputeDomainStatus:
    """As the server would give it back."""
    return decode_served({"status": status_of(actions)}, ComputeDomain).status


def test_nothing_is_made_before_the_finalizer_is_there() -> None:
    (patch,) = reconcile(UID, View(domain=domain(finalizers=("other",))), {})
    assert isinstance(patch, Patch)
    assert patch.patch == {"metadata": {"resourceVersion": "7", "finalizers": ["other", FINALIZER]}}


def test_a_domain_gets_its_templates_and_the_set_of_its_daemons() -> None:
    actions = reconcile(UID, View(domain=domain(), has_namespace=False), {})
    made = [each.object for each in actions if isinstance(each, Create)]
    namespace, daemons, set_, channels = made
    assert namespace.metadata.name == DRIVER_NAMESPACE  # type: ignore[union-attr]
    assert daemons["metadata"]["name"] == set_["metadata"]["name"] == f"computedomain-daemon-{UID}"  # type: ignore[index]
    assert set_["spec"]["template"]["spec"]["nodeSelector"] == {DOMAIN_LABEL: UID}  # type: ignore[index]
    assert (channels["metadata"]["namespace"], channels["metadata"]["name"]) == ("ml", "nccl-channel")  # type: ignore[index]
    (config,) = channels["spec"]["spec"]["devices"]["config"]  # type: ignore[index]
    assert config["opaque"]["parameters"] == {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomainChannelConfig",
        "domainID": UID,
        "allocationMode": "Single",
    }
    assert status_of(actions) == {"status": "NotReady", "nodes": []}


def test_a_domain_that_asks_for_no_number_of_nodes_is_ready_at_once() -> None:
    assert status_of(reconcile(UID, view(domain(nodes=0)), {}))["status"] == "Ready"


def test_a_domain_is_ready_when_enough_nodes_are_there_and_all_are_ready() -> None:
    first = reconcile(UID, view(domain(), daemon("n-1")), {})
    assert status_of(first) == {
        "status": "NotReady",
        "nodes": [{"name": "n-1", "ipAddress": "10.0.0.1", "cliqueID": RACK, "index": 0, "status": "Ready"}],
    }
    second = view(domain(status=known_status(first)), daemon("n-1"), daemon("n-2", ready=False))
    waiting = reconcile(UID, second, {})
    assert [(each["name"], each["status"]) for each in status_of(waiting)["nodes"]] == [
        ("n-1", "Ready"),
        ("n-2", "NotReady"),
    ]
    assert status_of(waiting)["status"] == "NotReady"
    third = view(domain(status=known_status(waiting)), daemon("n-1"), daemon("n-2"))
    ready = reconcile(UID, third, {})
    assert status_of(ready)["status"] == "Ready"
    assert [each.note for each in ready if isinstance(each, Emit)] == ["2 of 2 nodes are ready"]
    assert reconcile(UID, view(domain(status=known_status(ready)), daemon("n-1"), daemon("n-2")), {}) == ()


def test_a_place_in_a_clique_is_kept_and_a_free_one_is_given_again() -> None:
    status = ComputeDomainStatus(
        nodes=tuple(ComputeDomainNode(name=f"n-{each}", clique_id=RACK, index=each) for each in range(3))
    )
    nodes = status_of(reconcile(UID, view(domain(status=status), daemon("n-2"), daemon("n-0"), daemon("n-7")), {}))
    assert [(each["name"], each["index"]) for each in nodes["nodes"]] == [("n-0", 0), ("n-7", 1), ("n-2", 2)]


def test_nodes_of_two_racks_have_places_of_their_own_and_one_without_nvlink_has_none() -> None:
    cliques = {"n-1": RACK, "n-2": "other.1", "n-3": ""}
    nodes = status_of(reconcile(UID, view(domain(), *map(daemon, cliques), cliques=cliques), {}))["nodes"]
    assert {each["name"]: (each["cliqueID"], each["index"]) for each in nodes} == {
        "n-1": (RACK, 0),
        "n-2": ("other.1", 0),
        "n-3": ("", -1),
    }


def test_a_clique_has_so_many_places_and_who_gets_none_is_told() -> None:
    names = [f"n-{each:02d}" for each in range(CLIQUE_NODES_MAX + 1)]
    actions = reconcile(UID, view(domain(nodes=0), *map(daemon, names)), {})
    nodes = status_of(actions)["nodes"]
    assert [(each["name"], each["status"]) for each in nodes if each["index"] == -1] == [(names[-1], "NotReady")]
    assert status_of(actions)["status"] == "NotReady"
    (event,) = [each for each in actions if isinstance(each, Emit)]
    assert event.note.startswith(f"no place left for {names[-1]}: at most 18 nodes of clique {RACK}")


def test_a_daemon_that_ends_takes_its_node_out_of_the_domain() -> None:
    leaving = daemon("n-1", deletion_timestamp="2026-11-17T12:00:00Z")
    known = ComputeDomainStatus(
        status="Ready", nodes=(ComputeDomainNode(name="n-1", clique_id=RACK, index=0, status="Ready"),)
    )
    assert status_of(reconcile(UID, view(domain(nodes=1, status=known), leaving), {})) == {
        "status": "NotReady",
        "nodes": [],
    }


def test_a_template_of_somebody_else_is_left_alone_and_told() -> None:
    foreign = template("ml", "nccl-channel", uid="")
    actions = reconcile(UID, view(domain(), named_template=foreign), {})
    assert not [each for each in actions if isinstance(each, Create | Delete)]
    assert [each.reason for each in actions if isinstance(each, Emit)] == ["TemplateExists"]
    assert any(isinstance(each, Retry) for each in actions)


def test_a_domain_that_is_deleted_goes_after_all_that_it_had() -> None:
    ending = domain(deletion_timestamp="2026-11-17T12:00:00Z")
    labelled = (Node(metadata=ObjectMeta(name="n-1", labels={DOMAIN_LABEL: UID})),)
    (first,) = reconcile(UID, view(ending, nodes=labelled), {})
    assert isinstance(first, Together)
    assert [each.name for each in first.writes] == [daemon_name(UID), "nccl-channel", daemon_name(UID)]
    going = msgspec.structs.replace(SET, deletion_timestamp="2026-11-17T12:00:01Z")
    assert reconcile(UID, view(ending, nodes=labelled, templates=(), daemon_sets=(going,)), {}) == ()
    (labels,) = reconcile(UID, view(ending, nodes=labelled, templates=(), daemon_sets=()), {})
    assert isinstance(labels, Together)
    (patch,) = labels.writes
    path = "/metadata/labels/resource.nvidia.com~1computeDomain"
    assert isinstance(patch, Patch)
    assert patch.patch == [{"op": "test", "path": path, "value": UID}, {"op": "remove", "path": path}]
    (last,) = reconcile(UID, view(ending, templates=(), daemon_sets=()), {})
    assert isinstance(last, RemoveFinalizer)


def test_what_is_left_of_a_domain_goes_when_the_server_says_that_there_is_none() -> None:
    labelled = (Node(metadata=ObjectMeta(name="n-1", labels={DOMAIN_LABEL: UID})),)
    left = View(nodes=labelled)
    assert reconcile(UID, View(), {}) == ()
    assert reconcile(UID, left, {}) == (ANSWER,)
    assert reconcile(UID, left, {ANSWER: ({"metadata": {"uid": UID}},)}) == (), "the cache is behind"
    (removal,) = reconcile(UID, left, {ANSWER: ()})
    assert isinstance(removal, Together) and [each.name for each in removal.writes] == ["n-1"]
