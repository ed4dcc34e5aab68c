"""The cluster follows the API, and decisions before the API knows of them."""

from __future__ import annotations

from allot.core.model import core_v1

from .cluster_world import ZONE, ask, cluster, node, place, placement_of, pod


def test_an_assumed_pod_stays_until_the_api_says_where_it_is() -> None:
    made = cluster(node("n1"), node("n2"))
    asked = pod(cpu="3")
    placement = placement_of(ask(made, asked))
    made.assume(placement)
    assert made.is_assumed(asked)
    # The API's pod has no node yet, and gets conditions meanwhile.
    made.put_pod(pod(cpu="3", status={"phase": "Pending"}))
    assert made.nodes[placement.node].cpu == 3000
    made.put_pod(pod(cpu="3", on=placement.node))
    assert not made.is_assumed(asked)
    # Too late: it is there now.
    made.forget(placement)
    assert made.nodes[placement.node].cpu == 3000


def test_the_api_has_the_last_word_on_where_a_pod_is() -> None:
    made = cluster(node("n1"), node("n2"))
    placement = placement_of(ask(made, pod(cpu="3")))
    made.assume(placement)
    other = "n2" if placement.node == "n1" else "n1"
    made.put_pod(pod(cpu="3", on=other))
    assert (made.nodes[placement.node].cpu, made.nodes[other].cpu) == (0, 3000)


def test_an_assumed_pod_that_is_deleted_is_gone() -> None:
    made = cluster(node("n1"))
    placement = placement_of(ask(made, pod(cpu="3")))
    made.assume(placement)
    made.delete_pod(pod(cpu="3"))
    made.forget(placement)
    assert made.nodes["n1"].cpu == 0 and not made.pods


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    made = cluster(node("n1"), pod(cpu="1", on="n1"))
    made.put_pod(pod(cpu="1", on="n1", metadata={"uid": "another"}))
    assert made.nodes["n1"].cpu == 2000


def test_pods_come_before_their_node_and_outlive_it() -> None:
    made = cluster(pod("early", cpu="1", on="n1"))
    made.put_node(node("n1"))
    assert made.nodes["n1"].cpu == 1000
    made.delete_node("n1")
    made.put_pod(pod("late", cpu="1", on="n1"))
    made.delete_pod(pod("early", cpu="1", on="n1"))
    made.put_node(node("n1"))
    assert made.nodes["n1"].cpu == 1000


def test_a_pod_that_ends_gives_its_room_back() -> None:
    made = cluster(node("n1"), pod(cpu="4", on="n1"))
    made.put_pod(pod(cpu="4", on="n1", status={"phase": "Failed"}))
    assert place(made, pod("next", cpu="4")) == "n1"


def test_a_resized_pod_counts_with_its_new_requests() -> None:
    made = cluster(node("n1"), pod(cpu="1", on="n1"))
    made.put_pod(pod(cpu="3", on="n1"))
    assert made.nodes["n1"].cpu == 3000


def test_a_changed_label_moves_pods_to_another_domain() -> None:
    there = pod("there", on="n1", labels={"app": "a"})
    made = cluster(node("n1", labels={ZONE: "z1"}), node("n2", labels={ZONE: "z2"}), there)
    rule = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": ZONE}
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    assert placement_of(ask(made, pod(affinity=away))).node == "n2"
    made.put_node(node("n1", labels={ZONE: "z2"}))
    assert not ask(made, pod(affinity=away)).placements
    made.put_node(node("n2", labels={ZONE: "z1"}))
    assert placement_of(ask(made, pod(affinity=away))).node == "n2"


def test_a_new_node_and_a_changed_one_are_noticed() -> None:
    made = cluster(node("n1", cpu="1"))
    assert ask(made, pod(cpu="2")).refusals
    made.put_node(node("n2", cpu="1"))
    assert ask(made, pod(cpu="2")).refusals[0].message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    made.put_node(node("n2", cpu="2"))
    assert place(made, pod(cpu="2")) == "n2"
    made.delete_node("n2")
    assert ask(made, pod("q", cpu="2")).refusals[0].message.startswith("0/1 nodes are available")


def test_while_a_pod_shrinks_it_counts_with_what_it_has() -> None:
    def shrinking(asked: str, allocated: str, running: str) -> core_v1.Pod:
        status = {
            "name": "c",
            "allocatedResources": {"cpu": allocated, "memory": "1Gi"},
            "resources": {"requests": {"cpu": running}},
        }
        return pod(cpu=asked, on="n1", status={"containerStatuses": [status]})

    made = cluster(node("n1"))
    for asked, allocated, running, expected in (
        ("3", "3", "3", 3000),
        ("1", "3", "3", 3000),
        ("1", "1", "3", 3000),
        ("1", "1", "1", 1000),
        # Growing: what is asked for counts at once.
        ("2", "1", "1", 2000),
    ):
        made.put_pod(shrinking(asked, allocated, running))
        info = made.nodes["n1"]
        assert (info.cpu, info.memory) == (expected, 2**30)
    made.delete_pod(pod(on="n1"))
    assert (made.nodes["n1"].cpu, made.nodes["n1"].memory) == (0, 0)
