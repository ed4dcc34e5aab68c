"""What equal pods got to know carries over, and is always what asking every node anew would give."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from msgspec.structs import replace

from allot.core.model import core_v1
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.nodes.filter_caches import FilterCaches
from allot.core.scheduling.nodes.full_evaluation import evaluate_all
from allot.core.scheduling.plan import Decision, Placement
from allot.core.scheduling.settings import DEFAULT_SETTINGS, Policy, Settings
from allot.core.scheduling.status import Status

from ..cluster_world import (
    HOSTNAME,
    ZONE,
    ask,
    cluster,
    cluster_with_devices,
    node,
    picture,
    place,
    pod,
)
from ..device_world import claim, device_class, exactly, gpus, slice_of
from ..device_world import pod as claim_pod

# --- work done ---


def test_after_one_bind_one_node_is_looked_at() -> None:
    made = cluster(*(node(f"n{number}") for number in range(50)))
    assert ask(made, pod("first", cpu="1")).nodes_evaluated == 50
    place(made, pod("second", cpu="1"))
    for number in range(20):
        assert ask(made, pod(f"p{number}", cpu="1")).nodes_evaluated == 1
        place(made, pod(f"q{number}", cpu="1"))
        made.put_pod(pod(f"q{number}", cpu="1", on=made.pods[f"uid-q{number}"].node))


def test_labels_that_nobody_asks_about_make_no_difference() -> None:
    made = cluster(*(node(f"n{number}") for number in range(50)))
    place(made, pod("first", cpu="1", labels={"job-name": "first"}))
    for number in range(5):
        asked = pod(f"p{number}", cpu="1", labels={"job-name": f"job-{number}"}, namespace=f"ns-{number}")
        assert ask(made, asked).nodes_evaluated == 1
        place(made, asked)


def test_labels_of_pods_that_spread_make_no_difference_unless_they_mean_something() -> None:
    made = cluster(*(node(f"n{number}", labels={ZONE: f"z{number % 3}"}) for number in range(30)))
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    spread = [{**constraint, "labelSelector": {"matchLabels": {"app": "a"}}}]
    zones = []
    for number in range(9):
        labels = {"app": "a", "pod-name": f"p{number}"}
        asked = pod(f"p{number}", labels=labels, topologySpreadConstraints=spread)
        assert ask(made, asked).nodes_evaluated == (30 if number == 0 else 1)
        zones.append(made.nodes[place(made, asked)].labels[ZONE])
    assert sorted(zones) == ["z0"] * 3 + ["z1"] * 3 + ["z2"] * 3


def test_a_heartbeat_is_no_change() -> None:
    made = cluster(*(node(f"n{number}") for number in range(5)))
    ask(made, pod())
    made.put_node(node("n1"))
    assert ask(made, pod("q")).nodes_evaluated == 0


def test_a_pod_that_does_not_fit_costs_nothing_the_second_time() -> None:
    made = cluster(*(node(f"n{number}", cpu="1") for number in range(30)))
    assert ask(made, pod(cpu="2")).refusals
    again = ask(made, pod("q", cpu="2"))
    assert again.refusals[0].message.startswith("0/30 nodes are available: 30 Insufficient cpu.")
    assert again.nodes_evaluated == 0


def test_with_devices_one_node_is_asked_after_one_bind() -> None:
    made, claims = cluster_with_devices(*(node(f"n{number}") for number in range(20)))
    claims.put_class(device_class())
    for number in range(20):
        claims.put_slice(slice_of(f"n{number}", gpus(2)))
    for number in range(30):
        claims.put_claim(claim(f"c{number}", exactly()))
        asked = claim_pod(f"p{number}", f"c{number}")
        decision = ask(made, asked)
        assert decision.nodes_evaluated == (20 if number == 0 else 1)
        assert decision.search_steps == 1
        made.assume(decision.placements[0])


# --- order ---


def test_equal_nodes_fill_evenly_whatever_the_order_in_which_they_joined() -> None:
    made = cluster(*(node(name) for name in ("c", "a", "b")))
    nodes = [place(made, pod(f"p{number}", cpu="1")) for number in range(6)]
    assert nodes == ["a", "b", "c", "a", "b", "c"]


def test_a_node_that_has_waited_longest_is_next() -> None:
    made = cluster(*(node(name) for name in ("a", "b")))
    free = Settings(weights=DEFAULT_SETTINGS.weights, strategy_resources=())
    assert [place(made, pod(f"p{number}"), free) for number in range(4)] == ["a", "b", "a", "b"]


def test_first_fit_fills_nodes_by_name() -> None:
    made = cluster(*(node(name, pods="2") for name in ("c", "a")))
    first_fit = Settings(policy=Policy.FIRST_FIT)
    assert [place(made, pod(f"p{number}"), first_fit) for number in range(4)] == ["a", "a", "c", "c"]


def test_policies_pack_or_spread_devices() -> None:
    for policy, expected in ((Policy.PACK, ["n0", "n0", "n0", "n1"]), (Policy.SPREAD, ["n0", "n1", "n0", "n1"])):
        made, claims = cluster_with_devices(node("n0"), node("n1"))
        claims.put_class(device_class())
        for name in ("n0", "n1"):
            claims.put_slice(slice_of(name, gpus(3)))
        wanted = Settings(policy=policy)
        found = []
        for number in range(4):
            claims.put_claim(claim(f"c{number}", exactly()))
            found.append(place(made, claim_pod(f"p{number}", f"c{number}"), wanted))
        assert found == expected, policy


# --- laws ---

KINDS: tuple[dict[str, Any], ...] = (
    {"cpu": "1"},
    {"cpu": "2", "memory": "3Gi"},
    {"labels": {"app": "a"}, "cpu": "500m"},
    {"nodeSelector": {"disk": "ssd"}},
    {"ports": [{"containerPort": 1, "hostPort": 80}]},
    {"tolerations": [{"key": "k", "operator": "Exists"}]},
    {
        "labels": {"app": "a"},
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": HOSTNAME}
                ]
            }
        },
    },
    {
        "labels": {"app": "a"},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "a"}},
            }
        ],
    },
    {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 3,
                        "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
                    }
                ]
            },
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 5,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": {"app": "a"}},
                            "topologyKey": ZONE,
                        },
                    }
                ]
            },
        }
    },
)
KINDS += (
    {
        "labels": {"app": "a"},
        "topologySpreadConstraints": [
            {
                "maxSkew": skew,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "a"}},
            }
            for skew, key in ((1, ZONE), (2, HOSTNAME))
        ],
    },
    {
        "labels": {"app": "a"},
        "cpu": "100m",
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 5,
                        "podAffinityTerm": {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": key},
                    }
                    for key in (HOSTNAME, ZONE)
                ]
            },
        },
    },
    {
        "labels": {"app": "b"},
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": ZONE}
                ]
            },
        },
    },
)
NODES: tuple[dict[str, Any], ...] = (
    {"labels": {ZONE: "z1", "disk": "ssd"}},
    {"labels": {ZONE: "z2"}, "cpu": "2"},
    {"labels": {ZONE: "z1"}, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    {"labels": {ZONE: "z2", "disk": "ssd"}, "taints": [{"key": "k", "effect": "PreferNoSchedule"}]},
    {"unschedulable": True},
    {"pods": "2"},
)

steps = st.lists(
    st.tuples(
        st.sampled_from(["node", "no node", "place", "unplace", "bind", "delete", "foreign"]),
        st.integers(0, 5),
        st.integers(0, len(KINDS)),
    ),
    max_size=25,
)


def shown(decision: Decision) -> object:
    """What is decided, without how much work it was."""
    return (
        [(placement.pod.metadata.name, placement.node, placement.claims) for placement in decision.placements],
        [(refusal.message, refusal.plugins, refusal.explanation) for refusal in decision.refusals],
    )


class World:
    """A cluster that is changed at random, with devices on its nodes."""

    def __init__(self) -> None:
        self.cluster, self.claims = cluster_with_devices()
        self.claims.put_class(device_class())
        self.placed: list[Any] = []
        self.count = 0
        for number in range(3):
            self.do("node", number, number)

    def do(self, what: str, number: int, kind: int) -> None:
        name = f"n{number}"
        match what:
            case "node":
                self.cluster.put_node(node(name, **NODES[kind % len(NODES)]))
                self.claims.put_slice(slice_of(name, gpus(kind % 3)))
            case "no node":
                self.cluster.delete_node(name)
                self.claims.delete_slice(f"{name}-slice")
            case "place":
                self.decide(kind)
            case "unplace" if self.placed:
                self.cluster.forget(self.placed.pop(number % len(self.placed)))
            case "bind" if self.placed:
                placement = self.placed.pop(number % len(self.placed))
                self.cluster.put_pod(bound(placement.pod, placement.node))
            case "delete" if self.cluster.pods:
                keys = list(self.cluster.pods)
                found = self.cluster.pods[keys[number % len(keys)]]
                self.placed = [one for one in self.placed if one.pod.metadata.uid != found.key]
                self.cluster.delete_pod(found.pod)
            case "foreign":
                self.count += 1
                self.cluster.put_pod(pod(f"f{self.count}", on=name, **KINDS[kind % len(KINDS)]))

    def evaluate_all(self, asked: core_v1.Pod) -> list[str]:
        """The node that looking at every node by itself finds."""
        fit = self.claims.fit(asked)
        assert not isinstance(fit, Status)
        profile = self.cluster.profile(asked)
        found = evaluate_all(self.cluster, asked, profile, fit, DEFAULT_SETTINGS, None)
        return [found.node] if isinstance(found, Placement) else []

    def asked(self, kind: int) -> core_v1.Pod:
        self.count += 1
        name = f"p{self.count}"
        if kind < len(KINDS):
            fields = KINDS[kind]
            # A label of its own, which nobody asks about.
            return pod(name, **{**fields, "labels": {**fields.get("labels", {}), "pod": name}})
        self.claims.put_claim(claim(f"c{self.count}", exactly()))
        return claim_pod(name, f"c{self.count}")

    def decide(self, kind: int) -> None:
        asked = self.asked(kind)
        before = picture(self.cluster)
        kept = ask(self.cluster, asked)
        assert picture(self.cluster) == before
        filter_caches, self.cluster.filter_caches = self.cluster.filter_caches, FilterCaches(self.cluster)
        assert shown(ask(self.cluster, asked)) == shown(kept)
        assert self.evaluate_all(asked) == [placement.node for placement in kept.placements]
        self.cluster.filter_caches = filter_caches
        for placement in kept.placements:
            self.cluster.assume(placement)
            self.placed.append(placement)


def bound(placed: core_v1.Pod, name: str) -> core_v1.Pod:
    return replace(placed, spec=replace(placed.spec, node_name=name))


@settings(max_examples=100)
@given(steps)
def test_kept_results_are_what_asking_anew_gives(script: list[tuple[str, int, int]]) -> None:
    world = World()
    for what, number, kind in script:
        world.do(what, number, kind)
    for kind in range(len(KINDS) + 1):
        world.decide(kind)


@settings(max_examples=40)
@given(steps, st.lists(st.integers(0, len(KINDS)), max_size=6))
def test_what_is_assumed_and_forgotten_leaves_no_trace(script: list[tuple[str, int, int]], kinds: list[int]) -> None:
    world = World()
    for what, number, kind in script:
        world.do(what, number, kind)
    made = world.cluster
    before = without_times(made)
    first = len(world.placed)
    for kind in kinds:
        world.decide(kind)
    for placement in reversed(world.placed[first:]):
        made.forget(placement)
    assert without_times(made) == before


@settings(max_examples=40)
@given(steps, st.lists(st.integers(0, 20), max_size=4))
def test_pods_that_are_gone_for_a_moment_leave_no_trace(script: list[tuple[str, int, int]], which: list[int]) -> None:
    world = World()
    for what, number, kind in script:
        world.do(what, number, kind)
    made = world.cluster
    known = list(made.pods.values())
    gone = [known[index].pod for index in set(which) if index < len(known)]
    before = picture(made)
    asked = world.asked(0)
    answer = shown(ask(made, asked))
    with made.without(gone):
        assert not {found.metadata.uid for found in gone} & set(made.pods)
        ask(made, asked)
    assert picture(made) == before
    assert shown(ask(made, asked)) == answer


def without_times(made: Cluster) -> object:
    seen = picture(made)
    return {name: numbers[:-1] for name, numbers in seen["nodes"].items()}, seen["pods"]
