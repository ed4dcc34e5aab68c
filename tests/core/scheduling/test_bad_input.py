"""Pods and nodes that make no sense get an answer, never an exception."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from allot.core.model import core_v1
from allot.core.model.codec import DecodeError, decode
from allot.core.scheduling.decide import decide
from allot.core.scheduling.plan import Unit
from allot.core.scheduling.settings import DEFAULT_SETTINGS, Policy, Settings, Strategy

from .cluster_world import HOSTNAME, ZONE, cluster, cluster_with_devices, node, pod, refused

amounts = st.sampled_from(["0", "1", "-1", "100m", "1n", "9E", "1e30", "5Gi", "0.0001"])
names = st.sampled_from(["cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "x", "a/b"])
texts = st.sampled_from(["", "a", "b", HOSTNAME, ZONE, "not a label", "-", "metadata.name", "n1"])
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "", "Bogus"])
requirement = st.fixed_dictionaries({"key": texts, "operator": operators, "values": st.lists(texts, max_size=2)})
label_selector = st.none() | st.fixed_dictionaries(
    {"matchLabels": st.dictionaries(texts, texts, max_size=2), "matchExpressions": st.lists(requirement, max_size=2)}
)
node_term = st.fixed_dictionaries(
    {"matchExpressions": st.lists(requirement, max_size=2), "matchFields": st.lists(requirement, max_size=2)}
)
pod_term = st.fixed_dictionaries(
    {
        "labelSelector": label_selector,
        "topologyKey": texts,
        "namespaceSelector": label_selector,
        "namespaces": st.lists(texts, max_size=1),
    }
)
weights = st.integers(-5, 200)


def rules(term: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    wish = st.fixed_dictionaries({"weight": weights, "podAffinityTerm": term})
    return st.fixed_dictionaries(
        {
            "requiredDuringSchedulingIgnoredDuringExecution": st.lists(term, max_size=2),
            "preferredDuringSchedulingIgnoredDuringExecution": st.lists(wish, max_size=2),
        }
    )


preference = st.fixed_dictionaries({"weight": weights, "preference": node_term})
affinity = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {"preferredDuringSchedulingIgnoredDuringExecution": st.lists(preference, max_size=2)},
            optional={
                "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                    {"nodeSelectorTerms": st.lists(node_term, max_size=2)}
                )
            },
        ),
        "podAffinity": rules(pod_term),
        "podAntiAffinity": rules(pod_term),
    },
)
constraint = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(-1, 3),
        "topologyKey": texts,
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway", ""]),
        "labelSelector": label_selector,
        "matchLabelKeys": st.lists(texts, max_size=1),
    },
    optional={"minDomains": st.integers(-1, 5), "nodeTaintsPolicy": st.sampled_from(["Honor", "x"])},
)
toleration = st.fixed_dictionaries({"key": texts, "operator": texts, "effect": texts})
port = st.fixed_dictionaries({"containerPort": st.integers(0, 9), "hostPort": st.integers(-1, 2), "hostIP": texts})
spec = st.fixed_dictionaries(
    {},
    optional={
        "affinity": affinity,
        "topologySpreadConstraints": st.lists(constraint, max_size=2),
        "tolerations": st.lists(toleration, max_size=2),
        "nodeSelector": st.dictionaries(texts, texts, max_size=2),
        "overhead": st.dictionaries(names, amounts, max_size=2),
        "ports": st.lists(port, max_size=2),
        "requests": st.dictionaries(names, amounts, max_size=3),
        "labels": st.dictionaries(texts, texts, max_size=2),
        "volumes": st.lists(
            st.sampled_from(
                [
                    {"name": "v"},
                    {"name": "v", "persistentVolumeClaim": {"claimName": ""}},
                    {"name": "v", "ephemeral": {}},
                    {"name": "v", "gcePersistentDisk": {}},
                ]
            ),
            max_size=2,
        ),
        "priority": st.integers(-5, 5),
        "status": st.just({"nominatedNodeName": "n1"}),
    },
)
machine = st.fixed_dictionaries(
    {},
    optional={
        "cpu": amounts,
        "memory": amounts,
        "pods": amounts,
        "gpu": amounts,
        "labels": st.dictionaries(texts, texts, max_size=2),
        "taints": st.lists(st.fixed_dictionaries({"key": texts, "effect": texts}), max_size=2),
        "images": st.lists(st.just({"names": ["image:latest"], "sizeBytes": -5}), max_size=1),
    },
)
odd_settings = st.builds(Settings, strategy=st.sampled_from(list(Strategy)), policy=st.sampled_from(list(Policy)))


@settings(max_examples=150)
@given(st.lists(machine, max_size=3), st.lists(spec, max_size=4), odd_settings)
def test_whatever_comes_there_is_a_placement_or_a_refusal(
    machines: list[dict[str, Any]], specs: list[dict[str, Any]], odd: Settings
) -> None:
    made, _ = cluster_with_devices()
    for number, fields in enumerate(machines):
        made.put_node(node(f"n{number}", **fields))
    for number, fields in enumerate(specs):
        for chosen in (DEFAULT_SETTINGS, odd):
            asked = pod(f"p{number}", **fields)
            decision = decide(made, Unit(pods=(asked,)), chosen)
            assert len(decision.placements) + len(decision.refusals) == 1
            assert all(refusal.message for refusal in decision.refusals)
        for placement in decision.placements:
            made.assume(placement)


def test_a_selector_that_cannot_be_understood_matches_nothing() -> None:
    made = cluster(node("n1"))
    bad = {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Bogus"}]}, "topologyKey": HOSTNAME}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [bad]}}
    assert "didn't match pod affinity rules" in refused(made, pod(affinity=near)).message


def test_many_containers_are_no_trouble() -> None:
    containers = [{"name": f"c{number}", "resources": {"requests": {"cpu": "1"}}} for number in range(5000)]
    body = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": containers}}
    asked = decode(body, core_v1.Pod).object
    assert refused(cluster(node("n1")), asked).message.startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_a_wrong_type_is_refused_before_it_gets_here() -> None:
    with pytest.raises(DecodeError, match="maxSkew"):
        pod(topologySpreadConstraints=[{"maxSkew": "one"}])
