"""Every filter refuses with kube-scheduler's words and kind."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from allot.core.scheduling.nodes.full_evaluation import fits
from allot.core.scheduling.settings import DEFAULT_SETTINGS, AddedAffinity, Settings
from allot.core.scheduling.status import Status, Verdict
from allot.core.selectors import NodeMatcher, node_matcher

from .cluster_world import HOSTNAME, ZONE, cluster, node, place, pod, refused, said

UNSCHEDULABLE, UNRESOLVABLE = Verdict.UNSCHEDULABLE, Verdict.UNRESOLVABLE


def status_of(*objects: Any, asked: Any, on: str = "n1", settings: Settings = DEFAULT_SETTINGS) -> Status | None:
    return fits(cluster(*objects), asked, on, settings, 0.0)


def refusal(plugin: str, verdict: Verdict, *reasons: str) -> Status:
    return Status(verdict=verdict, plugin=plugin, reasons=reasons)


# --- the node alone ---


def test_a_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    cordoned = node("n1", unschedulable=True)
    expected = refusal("NodeUnschedulable", UNRESOLVABLE, "node(s) were unschedulable")
    assert status_of(cordoned, asked=pod()) == expected
    tolerations = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    assert status_of(cordoned, asked=pod(tolerations=tolerations)) is None


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_keeps_pods_away_that_do_not_tolerate_it(effect: str) -> None:
    tainted = node("n1", taints=[{"key": "k", "value": "v", "effect": effect}])
    expected = refusal("TaintToleration", UNRESOLVABLE, "node(s) had untolerated taint(s)")
    assert status_of(tainted, asked=pod()) == expected
    assert status_of(tainted, asked=pod(tolerations=[{"key": "k", "value": "w"}])) == expected
    assert status_of(tainted, asked=pod(tolerations=[{"key": "k", "value": "v"}])) is None
    assert status_of(tainted, asked=pod(tolerations=[{"operator": "Exists"}])) is None


def test_a_discouraging_taint_refuses_nobody() -> None:
    assert status_of(node("n1", taints=[{"key": "k", "effect": "PreferNoSchedule"}]), asked=pod()) is None


def test_node_selector_and_required_affinity_must_hold() -> None:
    expected = refusal("NodeAffinity", UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector")
    labeled = node("n1", labels={"disk": "ssd"})
    assert status_of(labeled, asked=pod(nodeSelector={"disk": "hdd"})) == expected
    assert status_of(labeled, asked=pod(nodeSelector={"disk": "ssd"})) is None
    assert status_of(labeled, asked=pod(affinity=required_nodes("disk", "In", "hdd"))) == expected
    assert status_of(labeled, asked=pod(affinity=required_nodes("disk", "In", "ssd"))) is None
    assert status_of(labeled, asked=pod(affinity=required_nodes("disk", "Bogus", "ssd"))) == expected


def test_what_a_profile_asks_of_nodes_counts_besides_what_the_pod_asks() -> None:
    def matcher(key: str, value: str) -> NodeMatcher:
        wanted = NodeSelectorRequirement(key=key, operator="In", values=(value,))
        return node_matcher(NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(wanted,)),)))

    added = AddedAffinity(required=matcher("team", "ml"), preferred=((10, matcher("disk", "ssd")),))
    settings = Settings(added_affinity=added)
    ours = node("n1", labels={"team": "ml"})
    expected = refusal("NodeAffinity", UNRESOLVABLE, "node(s) didn't match scheduler-enforced node affinity")
    assert status_of(node("n1"), asked=pod(), settings=settings) == expected
    assert status_of(ours, asked=pod(), settings=settings) is None
    own = refusal("NodeAffinity", UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector")
    assert status_of(ours, asked=pod(nodeSelector={"disk": "ssd"}), settings=settings) == own
    # What it prefers decides among those that will do.
    liked = node("n2", labels={"team": "ml", "disk": "ssd"})
    assert place(cluster(ours, liked, node("n3", labels={"disk": "ssd"})), pod(), settings) == "n2"


def required_nodes(key: str, operator: str, *values: str, field: str = "matchExpressions") -> dict[str, Any]:
    terms = [{field: [{"key": key, "operator": operator, "values": list(values)}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_a_pod_that_names_its_nodes_hears_nothing_of_the_others() -> None:
    made = cluster(node("n1", cpu="1"), node("n2"), node("n3"))
    named = required_nodes("metadata.name", "In", "n1", field="matchFields")
    assert place(made, pod("a", affinity=named)) == "n1"
    assert said(made, pod("b", cpu="2", affinity=named)) == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    nowhere = required_nodes("metadata.name", "In", "gone", field="matchFields")
    assert said(made, pod("c", affinity=nowhere)) == (
        "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_terms_that_contradict_each_other_are_noticed_before_any_node_is_looked_at() -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("n1", "n2")]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    found = refused(cluster(node("n1"), node("n2")), pod(affinity=affinity))
    assert found.message == (
        "0/2 nodes are available: pod affinity terms conflict. "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    assert found.plugins == {"NodeAffinity"}


def test_a_pod_that_names_its_node_gets_no_other() -> None:
    made = cluster(node("n1"), node("n2"))
    assert fits(made, pod(on="n2"), "n1", DEFAULT_SETTINGS, 0.0) == refusal(
        "NodeName", UNRESOLVABLE, "node(s) didn't match the requested node name"
    )
    assert fits(made, pod(on="n2"), "n2", DEFAULT_SETTINGS, 0.0) is None


# --- the node and its pods ---


def test_a_host_port_has_one_user() -> None:
    expected = refusal("NodePorts", UNSCHEDULABLE, "node(s) didn't have free ports for the requested pod ports")
    there = pod("there", on="n1", ports=[{"containerPort": 1, "hostPort": 80, "hostIP": "127.0.0.1"}])
    for ports, free in (
        ([{"containerPort": 1, "hostPort": 80}], False),
        ([{"containerPort": 1, "hostPort": 80, "hostIP": "127.0.0.1"}], False),
        ([{"containerPort": 1, "hostPort": 80, "hostIP": "127.0.0.2"}], True),
        ([{"containerPort": 1, "hostPort": 80, "protocol": "UDP"}], True),
        ([{"containerPort": 80}], True),
    ):
        assert status_of(node("n1"), there, asked=pod(ports=ports)) == (None if free else expected), ports


def test_all_that_is_missing_is_named() -> None:
    there = pod("there", on="n1", cpu="3", memory="7Gi")
    found = status_of(node("n1"), there, asked=pod(cpu="2", memory="2Gi", requests={"ephemeral-storage": "1Gi"}))
    assert found == refusal(
        "NodeResourcesFit",
        UNRESOLVABLE,
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient ephemeral-storage",
    )


def test_preemption_cannot_help_where_the_node_is_too_small() -> None:
    there = pod("there", on="n1", cpu="3")
    assert status_of(node("n1"), there, asked=pod(cpu="2")) == refusal(
        "NodeResourcesFit", UNSCHEDULABLE, "Insufficient cpu"
    )
    assert status_of(node("n1"), there, asked=pod(cpu="5")) == refusal(
        "NodeResourcesFit", UNRESOLVABLE, "Insufficient cpu"
    )


def test_a_node_takes_a_number_of_pods() -> None:
    assert status_of(node("n1", pods="1"), pod("there", on="n1"), asked=pod()) == refusal(
        "NodeResourcesFit", UNSCHEDULABLE, "Too many pods"
    )


def test_finished_pods_do_not_count() -> None:
    done = pod("done", on="n1", cpu="4", status={"phase": "Succeeded"})
    assert status_of(node("n1"), done, asked=pod(cpu="4")) is None


def test_extended_resources_are_counted() -> None:
    there = pod("there", on="n1", requests={"example.com/gpu": "2"})
    asked = pod(requests={"example.com/gpu": "1"})
    assert status_of(node("n1", gpu="3"), there, asked=asked) is None
    assert status_of(node("n1", gpu="2"), there, asked=asked) == refusal(
        "NodeResourcesFit", UNSCHEDULABLE, "Insufficient example.com/gpu"
    )
    assert status_of(node("n1"), asked=asked) == refusal(
        "NodeResourcesFit", UNRESOLVABLE, "Insufficient example.com/gpu"
    )
    ignoring = Settings(ignored_resources=frozenset({"example.com/gpu"}))
    assert status_of(node("n1"), asked=asked, settings=ignoring) is None
    ignoring = Settings(ignored_resource_groups=frozenset({"example.com"}))
    assert status_of(node("n1"), asked=asked, settings=ignoring) is None


def test_a_filter_can_be_switched_off() -> None:
    off = Settings(disabled_filters=frozenset({"NodeResourcesFit", "TaintToleration", "NodeUnschedulable"}))
    bad = node("n1", unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}])
    assert status_of(bad, asked=pod(cpu="100"), settings=off) is None


# --- pods of other nodes ---

A, B = ({"app": name} for name in "ab")


def near(app: str, key: str = ZONE, **more: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def affinity(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


ZONES = (
    node("n1", labels={ZONE: "z1"}),
    node("n2", labels={ZONE: "z1"}),
    node("n3", labels={ZONE: "z2"}),
    node("n4"),
)
NOT_NEAR = refusal("InterPodAffinity", UNRESOLVABLE, "node(s) didn't match pod affinity rules")
TOO_NEAR = refusal("InterPodAffinity", UNSCHEDULABLE, "node(s) didn't match pod anti-affinity rules")
UNWANTED = refusal("InterPodAffinity", UNSCHEDULABLE, "node(s) didn't satisfy existing pods anti-affinity rules")


def answers(*objects: Any, asked: Any) -> list[Status | None]:
    made = cluster(*objects)
    return [fits(made, asked, name, DEFAULT_SETTINGS, 0.0) for name in made.nodes]


def test_a_pod_that_must_be_near_others_goes_where_they_are() -> None:
    there = pod("there", on="n1", labels=A)
    asked = pod(affinity=affinity("podAffinity", near("a")))
    assert answers(*ZONES, there, asked=asked) == [None, None, NOT_NEAR, NOT_NEAR]


def test_the_first_of_pods_that_must_be_together_may_go_anywhere_with_the_label() -> None:
    asked = pod(labels=A, affinity=affinity("podAffinity", near("a")))
    assert answers(*ZONES, asked=asked) == [None, None, None, NOT_NEAR]
    stranger = pod(labels=B, affinity=affinity("podAffinity", near("a")))
    assert answers(*ZONES, asked=stranger) == [NOT_NEAR] * 4


def test_all_terms_must_be_fulfilled_by_one_pod() -> None:
    both = affinity("podAffinity", near("a"), near("a", HOSTNAME))
    there = pod("there", on="n1", labels=A)
    assert answers(*ZONES, there, asked=pod(affinity=both)) == [None, NOT_NEAR, NOT_NEAR, NOT_NEAR]


def test_a_pod_that_must_be_away_from_others_goes_where_they_are_not() -> None:
    there = pod("there", on="n1", labels=A)
    asked = pod(affinity=affinity("podAntiAffinity", near("a")))
    assert answers(*ZONES, there, asked=asked) == [TOO_NEAR, TOO_NEAR, None, None]


def test_pods_that_are_there_may_not_want_a_new_one() -> None:
    there = pod("there", on="n1", affinity=affinity("podAntiAffinity", near("a")))
    assert answers(*ZONES, there, asked=pod(labels=A)) == [UNWANTED, UNWANTED, None, None]
    assert answers(*ZONES, there, asked=pod(labels=B)) == [None] * 4


def test_terms_look_into_their_own_namespace_unless_they_say_otherwise() -> None:
    there = pod("there", on="n1", labels=A, namespace="other")
    for term, wanted in (
        (near("a"), [None] * 4),
        (near("a", namespaces=["other"]), [TOO_NEAR, TOO_NEAR, None, None]),
        (near("a", namespaceSelector={}), [TOO_NEAR, TOO_NEAR, None, None]),
        (near("a", namespaceSelector={"matchLabels": {"team": "x"}}), [TOO_NEAR, TOO_NEAR, None, None]),
        (near("a", namespaceSelector={"matchLabels": {"team": "y"}}), [None] * 4),
    ):
        made = cluster(*ZONES, there)
        made.put_namespace("other", {"team": "x"})
        asked = pod(affinity=affinity("podAntiAffinity", term))
        assert [fits(made, asked, name, DEFAULT_SETTINGS, 0.0) for name in made.nodes] == wanted, term


UNEVEN = refusal("PodTopologySpread", UNSCHEDULABLE, "node(s) didn't match pod topology spread constraints")
NO_LABEL = refusal(
    "PodTopologySpread",
    UNRESOLVABLE,
    "node(s) didn't match pod topology spread constraints (missing required label)",
)


def spread(key: str = ZONE, skew: int = 1, **more: Any) -> list[dict[str, Any]]:
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return [{**constraint, "labelSelector": {"matchLabels": A}, **more}]


def test_pods_spread_over_zones() -> None:
    there = pod("there", on="n1", labels=A)
    asked = pod(labels=A, topologySpreadConstraints=spread())
    assert answers(*ZONES, there, asked=asked) == [UNEVEN, UNEVEN, None, NO_LABEL]
    relaxed = pod(labels=A, topologySpreadConstraints=spread(skew=2))
    assert answers(*ZONES, there, asked=relaxed) == [None, None, None, NO_LABEL]


def test_pods_on_their_way_out_do_not_count_for_spreading() -> None:
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    there = pod("there", on="n1", labels=A, metadata=metadata)
    asked = pod(labels=A, topologySpreadConstraints=spread())
    assert answers(*ZONES, there, asked=asked) == [None, None, None, NO_LABEL]


def test_too_few_domains_count_as_an_empty_one() -> None:
    there = [pod(f"there-{name}", on=name, labels=A) for name in ("n1", "n3")]
    asked = pod(labels=A, topologySpreadConstraints=spread(minDomains=3))
    assert answers(*ZONES, *there, asked=asked) == [UNEVEN, UNEVEN, UNEVEN, NO_LABEL]


def test_nodes_that_the_pod_cannot_have_count_only_if_the_constraint_says_so() -> None:
    there = [pod(f"there-{name}", on=name, labels=A) for name in ("n1", "n2")]
    selector = {HOSTNAME: "n1"}
    asked = pod(labels=A, nodeSelector=selector, topologySpreadConstraints=spread())
    assert answers(*ZONES, *there, asked=asked)[0] is None
    ignoring = spread(nodeAffinityPolicy="Ignore")
    asked = pod(labels=A, nodeSelector=selector, topologySpreadConstraints=ignoring)
    assert answers(*ZONES, *there, asked=asked)[0] == UNEVEN
