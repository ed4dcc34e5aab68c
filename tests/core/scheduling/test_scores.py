"""Scores are those of kube-scheduler, number by number."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model import core_v1
from allot.core.model.apps_v1 import ReplicaSet, ReplicaSetSpec
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import LabelSelector, ObjectMeta
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.plugins import (
    balanced_allocation,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_resources_fit,
    pod_topology_spread,
    taint_toleration,
)
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.settings import DEFAULT_SETTINGS, ResourceWeight, Settings, ShapePoint, Strategy, Weights

from .cluster_world import HOSTNAME, ZONE, cluster, cluster_with_devices, node, place, pod
from .device_world import device_class, gpus, slice_of

MEGABYTE = 2**20


def profile(asked: Pod) -> Profile:
    return Profile(asked, b"")


def fit(made: Cluster, asked: Pod, settings: Settings = DEFAULT_SETTINGS, on: str = "n1") -> int:
    return node_resources_fit.scorer(settings, made.devices)(profile(asked), made.nodes[on])


# --- resources ---


def test_the_least_allocated_node_scores_most() -> None:
    made = cluster(node("n1", cpu="4", memory="10Gi"), pod("there", on="n1", cpu="1", memory="5Gi"))
    # cpu: (4000 - 1000 - 2000) / 4000 = 25; memory: (10 - 5 - 1) / 10 = 40.
    assert fit(made, pod(cpu="2", memory="1Gi")) == 32


def test_a_container_that_asks_for_nothing_counts_with_a_little() -> None:
    made = cluster(node("n1", cpu="1", memory="1000Mi"))
    # 100m of cpu and 200Mi of memory: 90 and 80.
    assert fit(made, pod()) == 85
    resources = {"requests": {"cpu": "500m"}}
    assert fit(made, pod(resources=resources)) == 65


def test_the_usual_strategy_written_out_agrees_with_the_general_one() -> None:
    made = cluster(node("n1", cpu="3", memory="7Gi"), pod("there", on="n1", cpu="700m", memory="3Gi"))
    general = Settings(strategy_resources=(ResourceWeight("cpu", 2), ResourceWeight("memory", 2)))
    for cpu in ("100m", "1", "2300m", "5"):
        asked = pod(cpu=cpu, memory="1Gi")
        assert fit(made, asked) == fit(made, asked, general)
    for bare in (node("n1", cpu="0"), node("n1", memory="0"), node("n1", cpu="0", memory="0")):
        asked = pod(cpu="1", memory="1Gi")
        assert fit(cluster(bare), asked) == fit(cluster(bare), asked, general)


def test_most_allocated_and_a_shape() -> None:
    made = cluster(node("n1", cpu="4", memory="10Gi"))
    most = Settings(strategy=Strategy.MOST_ALLOCATED)
    assert fit(made, pod(cpu="2", memory="1Gi"), most) == 30
    shape = (ShapePoint(0, 0), ShapePoint(50, 10), ShapePoint(100, 0))
    ratio = Settings(
        strategy=Strategy.REQUESTED_TO_CAPACITY_RATIO,
        strategy_resources=(ResourceWeight("cpu", 1),),
        strategy_shape=shape,
    )
    assert [fit(made, pod(cpu=cpu), ratio) for cpu in ("1", "2", "3", "4")] == [50, 100, 50, 0]


def test_an_extended_resource_counts_only_for_pods_that_ask_for_it() -> None:
    settings = Settings(
        strategy_resources=(ResourceWeight("cpu"), ResourceWeight("memory"), ResourceWeight("example.com/gpu"))
    )
    made = cluster(node("n1", cpu="1", memory="1000Mi", gpu="4"))
    assert fit(made, pod(), settings) == 85
    assert fit(made, pod(requests={"example.com/gpu": "1"}), settings) == (90 + 80 + 75) // 3


def test_devices_behind_an_extended_resource_count_too() -> None:
    settings = Settings(strategy_resources=(ResourceWeight("example.com/gpu"),))
    made, claims = cluster_with_devices(node("n1"))
    claims.put_class(device_class("gpu", extended="example.com/gpu"))
    claims.put_slice(slice_of("n1", gpus(4)))
    assert fit(made, pod(requests={"example.com/gpu": "1"}), settings) == 75


def test_balance_is_about_what_the_pod_changes() -> None:
    resources = DEFAULT_SETTINGS.balanced_resources

    def balance(made: Cluster, asked: Pod) -> int:
        return balanced_allocation.score(profile(asked), made.nodes["n1"], resources, None)

    even = cluster(node("n1", cpu="10", memory="10Gi"))
    assert balance(even, pod(cpu="1", memory="1Gi")) == 75
    # All cpu and no memory: as uneven as can be.
    assert balance(even, pod(cpu="10")) == 50
    tilted = cluster(node("n1", cpu="10", memory="10Gi"), pod("there", on="n1", cpu="10"))
    assert balance(tilted, pod(memory="10Gi")) == 100
    assert balance(even, pod()) == 0


# --- taints, wishes, images ---


def test_unwelcome_taints_are_counted() -> None:
    taints = [{"key": key, "effect": "PreferNoSchedule"} for key in "abc"]
    info = cluster(node("n1", taints=taints)).nodes["n1"]
    assert taint_toleration.unwelcome(profile(pod()), info) == 3
    tolerations = [{"key": "a"}, {"key": "b", "effect": "PreferNoSchedule"}, {"key": "c", "effect": "NoSchedule"}]
    assert taint_toleration.unwelcome(profile(pod(tolerations=tolerations)), info) == 1


def test_wishes_for_nodes_add_up() -> None:
    def wish(weight: int, key: str, value: str) -> dict[str, Any]:
        return {"weight": weight, "preference": {"matchExpressions": [match(key, value)]}}

    def match(key: str, value: str) -> dict[str, Any]:
        return {"key": key, "operator": "In", "values": [value]}

    wishes = [wish(2, "a", "1"), wish(5, "b", "1"), wish(9, "c", "1"), {"weight": 7, "preference": {}}]
    asked = pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}})
    info = cluster(node("n1", labels={"a": "1", "b": "1"})).nodes["n1"]
    assert node_affinity.wishes(profile(asked), info) == 7


@pytest.mark.parametrize(
    ("size", "nodes", "expected"),
    [(10 * MEGABYTE, 1, 0), (23 * MEGABYTE, 1, 0), (500 * MEGABYTE, 1, 48), (5000 * MEGABYTE, 1, 100)],
)
def test_big_images_that_are_there_make_a_node_better(size: int, nodes: int, expected: int) -> None:
    made = cluster(node("n1", images=[{"names": ["image:latest"], "sizeBytes": size}]))
    assert image_locality.score(profile(pod()), made.nodes["n1"], made.image_spread, nodes) == expected


def test_an_image_that_few_nodes_have_counts_less() -> None:
    images = [{"names": ["image:latest"], "sizeBytes": 1000 * MEGABYTE}]
    made = cluster(node("n1", images=images), node("n2"))
    info = made.nodes["n1"]
    assert image_locality.score(profile(pod()), info, made.image_spread, 2) == 48
    made.put_node(node("n2", images=images))
    assert image_locality.score(profile(pod()), info, made.image_spread, 2) == 100
    made.delete_node("n2")
    assert made.image_spread == {"image:latest": 1}


# --- pods of other nodes ---


def test_wishes_of_both_sides_count() -> None:
    def wish(app: str, weight: int) -> dict[str, Any]:
        term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}
        return {"weight": weight, "podAffinityTerm": term}

    def preferring(kind: str, *wishes: dict[str, Any]) -> dict[str, Any]:
        return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": list(wishes)}}

    required = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": ZONE}
            ]
        }
    }
    made = cluster(
        node("n1", labels={ZONE: "z1"}),
        node("n2", labels={ZONE: "z2"}),
        node("n3", labels={ZONE: "z3"}),
        pod("one", on="n1", labels={"app": "a"}),
        pod("two", on="n2", affinity=preferring("podAntiAffinity", wish("b", 4))),
        pod("three", on="n3", affinity=required),
    )
    asked = profile(pod(labels={"app": "b"}, affinity=preferring("podAffinity", wish("a", 10))))
    score = inter_pod_affinity.Score(asked, made.affinity_index, DEFAULT_SETTINGS)
    raw = [score.raw(info) for info in made.nodes.values()]
    assert raw == [10, -4, 1]
    assert inter_pod_affinity.normalized(raw) == [100, 0, 35]
    assert inter_pod_affinity.normalized([3, 3]) == [0, 0]


def test_crowded_domains_score_less() -> None:
    made = cluster(
        node("n1", labels={ZONE: "z1"}),
        node("n2", labels={ZONE: "z2"}),
        node("n3"),
        *(pod(f"p{number}", on="n1", labels={"app": "a"}) for number in range(3)),
    )
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    selector = {"labelSelector": {"matchLabels": {"app": "a"}}}
    asked = profile(pod(labels={"app": "a"}, topologySpreadConstraints=[{**constraint, **selector}]))
    nodes = list(made.nodes.values())
    counted = [(info, 1) for info in nodes]
    score = pod_topology_spread.Score(asked, asked.soft_spreads, made.affinity_index, counted, counted, all_labels=True)
    raw = [None if score.is_ignored(info) else score.raw(info) for info in nodes]
    # Three pods times ln(2 domains + 2).
    assert raw == [4, 0, None]
    assert pod_topology_spread.normalized(raw) == [0, 100, 0]


def test_pods_of_a_service_spread_without_being_asked() -> None:
    made = cluster(node("n1", cpu="100"), node("n2", cpu="2"))
    service = core_v1.Service(
        metadata=ObjectMeta(name="s", namespace="ns"), spec=core_v1.ServiceSpec(selector={"app": "a"})
    )
    assert [place(made, pod(f"x{number}", cpu="100m", labels={"app": "a"})) for number in range(3)] == ["n1"] * 3
    made.spread_selectors.put(service)
    assert place(made, pod("p", cpu="100m", labels={"app": "a"})) == "n2"
    made.spread_selectors.delete(service)
    assert place(made, pod("q", cpu="100m", labels={"app": "a"})) == "n1"


def test_pods_of_a_controller_spread_without_being_asked() -> None:
    made = cluster(node("n1", cpu="100"), node("n2", cpu="2"))
    selector = LabelSelector(match_labels={"app": "a"})
    made.spread_selectors.put(
        ReplicaSet(metadata=ObjectMeta(name="r", namespace="ns"), spec=ReplicaSetSpec(selector=selector))
    )
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
    owned: dict[str, Any] = {"labels": {"app": "a"}, "metadata": {"ownerReferences": [owner]}}
    assert sorted(place(made, pod(f"p{number}", cpu="100m", **owned)) for number in range(2)) == ["n1", "n2"]


# --- together ---


def test_relative_scores_follow_the_best_node_that_is_left() -> None:
    taints = [{"key": "k", "effect": "PreferNoSchedule"}]
    made = cluster(node("n1", taints=taints), node("n2"), node("n3", taints=taints * 2))
    heavy = Settings(weights=Weights(taint_toleration=1000))
    assert place(made, pod("a"), heavy) == "n2"
    made.delete_node("n2")
    assert place(made, pod("b"), heavy) == "n1"
    made.delete_node("n1")
    assert place(made, pod("c"), heavy) == "n3"


def test_a_node_without_the_hostname_label_is_no_trouble() -> None:
    bare = core_v1.Node(metadata=ObjectMeta(name="bare"), status=node("x").status)
    made = cluster(bare)
    constraint = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"}
    assert place(made, pod(topologySpreadConstraints=[{**constraint, "labelSelector": {}}])) == "bare"
