"""EndpointSlices: who is behind a Service, by Kubernetes' rules, with as few writes as possible."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.lifecycle.actions import Create, Delete, Retry, Update
from allot.core.model.core_v1 import Pod
from allot.core.workloads.endpoint_slices import reconcile_service
from core.workloads.service_world import NOW, Object, Store, nodes, pod, port, service

HTTP = port(80, 8080)


def sync(store: Store, owner: Object, pods: list[Pod], **zones: str) -> list[Any]:
    slices = list(store.objects.values())
    return store.apply(reconcile_service(owner, pods, slices, nodes(**zones), NOW))


def endpoints(store: Store) -> list[Object]:
    return [endpoint for slice_ in store.objects.values() for endpoint in slice_["endpoints"]]


def test_an_endpoint_says_what_a_pod_is() -> None:
    store = Store()
    owner = service("s", HTTP, labels={"team": "a"})
    (made,) = sync(store, owner, [pod("p", hostname="p", subdomain="s")], n1="zone-a")
    (slice_,) = store.objects.values()
    assert isinstance(made, Create) and slice_["metadata"]["generateName"] == "s-"
    assert slice_["metadata"]["labels"] == {
        "team": "a",
        "kubernetes.io/service-name": "s",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert slice_["metadata"]["annotations"] == {"endpoints.kubernetes.io/last-change-trigger-time": NOW}
    (reference,) = slice_["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("Service", "uid-s", True)
    assert slice_["addressType"] == "IPv4"
    assert slice_["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert slice_["endpoints"] == [
        {
            "addresses": ["10.1.0.1"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "hostname": "p",
            "nodeName": "n1",
            "zone": "zone-a",
            "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "uid-p"},
        }
    ]


@pytest.mark.parametrize(
    ("ready", "leaving", "publish", "expected"),
    [
        (True, False, False, (True, True, False)),
        (False, False, False, (False, False, False)),
        (True, True, False, (False, True, True)),
        (False, True, False, (False, False, True)),
        (False, False, True, (True, False, False)),
        (True, True, True, (True, True, True)),
    ],
)
def test_ready_serving_and_terminating(
    ready: bool, leaving: bool, publish: bool, expected: tuple[bool, bool, bool]
) -> None:
    store = Store()
    owner = service("s", HTTP, publishNotReadyAddresses=publish)
    sync(store, owner, [pod("p", ready=ready, leaving=leaving)])
    (endpoint,) = endpoints(store)
    conditions = endpoint["conditions"]
    assert (conditions["ready"], conditions["serving"], conditions["terminating"]) == expected


@pytest.mark.parametrize("absent", [pod("p", ip=""), pod("p", phase="Succeeded"), pod("p", phase="Failed")])
def test_pods_that_cannot_be_reached_have_no_endpoint(absent: Pod) -> None:
    store = Store()
    sync(store, service("s", HTTP), [absent])
    (slice_,) = store.objects.values()
    assert slice_["endpoints"] == [] and slice_["ports"] == []
    assert sync(store, service("s", HTTP), [absent]) == []


def test_ports_by_name_make_groups_of_pods() -> None:
    store = Store()
    owner = service("s", port(80, "http", "web"), port(90, 9090, "admin"))
    one = pod("a", "10.1.0.1", ports=[("http", 8080)])
    two = pod("b", "10.1.0.2", ports=[("http", 8081)])
    side = pod("c", "10.1.0.3", sidecar_ports=[("http", 8080)])
    none = pod("d", "10.1.0.4")
    sync(store, owner, [one, two, side, none])
    found = {
        tuple((each["name"], each["port"]) for each in slice_["ports"]): [
            endpoint["targetRef"]["name"] for endpoint in slice_["endpoints"]
        ]
        for slice_ in store.objects.values()
    }
    assert found == {
        (("admin", 9090), ("web", 8080)): ["a", "c"],
        (("admin", 9090), ("web", 8081)): ["b"],
        (("admin", 9090),): ["d"],
    }


def test_headless_services_are_marked_and_need_no_ports() -> None:
    store = Store()
    sync(store, service("s", clusterIP="None", ports=[]), [pod("p")])
    (slice_,) = store.objects.values()
    assert slice_["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    assert len(slice_["endpoints"]) == 1 and slice_["ports"] == []


def test_only_addresses_of_the_service_s_families_count() -> None:
    store = Store()
    pods = [pod("a", "10.1.0.1"), pod("b", "fd00::0:1")]
    sync(store, service("s", HTTP, ipFamilies=["IPv6"]), pods)
    assert [endpoint["addresses"] for endpoint in endpoints(store)] == [["fd00::1"]]
    sync(store, service("s", HTTP, ipFamilies=["IPv4"]), pods)
    assert [endpoint["addresses"] for endpoint in endpoints(store)] == [["10.1.0.1"]]


@pytest.mark.parametrize(
    ("distribution", "hints"),
    [
        ("PreferClose", {"forZones": [{"name": "z"}]}),
        ("PreferSameZone", {"forZones": [{"name": "z"}]}),
        ("PreferSameNode", {"forZones": [{"name": "z"}], "forNodes": [{"name": "n1"}]}),
        (None, None),
    ],
)
def test_traffic_distribution_gives_hints_to_ready_endpoints(distribution: str | None, hints: Object | None) -> None:
    store = Store()
    owner = service("s", HTTP, trafficDistribution=distribution)
    sync(store, owner, [pod("p"), pod("q", "10.1.0.2", ready=False)], n1="z")
    first, second = endpoints(store)
    assert first.get("hints") == hints and "hints" not in second
    sync(store, service("s", HTTP), [pod("p"), pod("q", "10.1.0.2", ready=False)], n1="z")
    assert not any("hints" in endpoint for endpoint in endpoints(store))


def test_a_pod_of_an_unknown_node_waits_and_the_others_are_published() -> None:
    store = Store()
    pods = [pod("a"), pod("b", "10.1.0.2", node="gone")]
    actions = sync(store, service("s", HTTP), pods)
    assert isinstance(actions[-1], Retry)
    assert [endpoint["targetRef"]["name"] for endpoint in endpoints(store)] == ["a"]
    sync(store, service("s", HTTP, publishNotReadyAddresses=True), pods)
    assert len(endpoints(store)) == 2


def test_slices_of_an_older_service_of_that_name_go() -> None:
    store = Store()
    sync(store, service("s", HTTP), [pod("p")])
    newer = service("s", HTTP)
    newer["metadata"]["uid"] = "another"
    actions = sync(store, newer, [pod("p")])
    assert [type(action) for action in actions] == [Create, Delete]


def test_a_service_that_is_being_deleted_gets_no_new_slices() -> None:
    leaving = service("s", HTTP)
    leaving["metadata"]["deletionTimestamp"] = NOW
    assert sync(Store(), leaving, [pod("p")]) == []


def test_changed_labels_of_the_service_are_copied() -> None:
    store = Store()
    sync(store, service("s", HTTP, labels={"a": "1"}), [pod("p")])
    (action,) = sync(store, service("s", HTTP, labels={"b": "2", "kubernetes.io/service-name": "fake"}), [pod("p")])
    assert isinstance(action, Update)
    (slice_,) = store.objects.values()
    labels = slice_["metadata"]["labels"]
    assert "a" not in labels and labels["b"] == "2" and labels["kubernetes.io/service-name"] == "s"


def many(numbers: range) -> list[Pod]:
    return [pod(f"p{number:04}", f"10.1.{number // 250}.{number % 250}") for number in numbers]


def test_gaps_are_filled_before_slices_are_made() -> None:
    store = Store()
    owner = service("s", HTTP)
    assert len(sync(store, owner, many(range(250)))) == 3
    assert sorted(len(slice_["endpoints"]) for slice_ in store.objects.values()) == [50, 100, 100]
    # 30 more fit into the one that is not full: one write.
    assert [type(action) for action in sync(store, owner, many(range(280)))] == [Update]
    # Ten go and ten come: they take the places that are being written anyway.
    actions = sync(store, owner, many(range(10, 290)))
    assert {type(action) for action in actions} == {Update} and len(actions) == 1
    assert len(store.objects) == 3 and len(endpoints(store)) == 280
    # All go: the last slice stays, empty.
    sync(store, owner, [])
    (slice_,) = store.objects.values()
    assert slice_["endpoints"] == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.integers(0, 260), st.tuples(st.booleans(), st.booleans(), st.sampled_from((8080, 9090))), max_size=40
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 150),
)
def test_whatever_happens_slices_say_what_is_there(rounds: list[dict[int, tuple[bool, bool, int]]], crowd: int) -> None:
    store = Store()
    owner = service("s", port(80, "http"))
    state: dict[int, tuple[bool, bool, int]] = dict.fromkeys(range(crowd), (True, False, 8080))
    for changes in rounds:
        for number, value in changes.items():
            if state.get(number) == value:
                del state[number]
            else:
                state[number] = value
        pods = [
            pod(f"p{number}", f"10.1.{number // 250}.{number % 250}", ready=up, leaving=going, ports=[("http", target)])
            for number, (up, going, target) in state.items()
        ]
        before = {
            (endpoint["targetRef"]["name"], slice_["ports"][0]["port"]): name
            for name, slice_ in store.objects.items()
            for endpoint in slice_["endpoints"]
        }
        sync(store, owner, pods)
        found = {
            endpoint["targetRef"]["name"]: (
                endpoint["conditions"]["serving"],
                endpoint["conditions"]["terminating"],
                slice_["ports"][0]["port"],
            )
            for slice_ in store.objects.values()
            for endpoint in slice_["endpoints"]
        }
        assert found == {f"p{number}": value for number, value in state.items()}
        assert all(len(slice_["endpoints"]) <= 100 for slice_ in store.objects.values())
        assert store.objects
        # Nobody moves.
        for name, slice_ in store.objects.items():
            for endpoint in slice_["endpoints"]:
                assert before.get((endpoint["targetRef"]["name"], slice_["ports"][0]["port"])) in (None, name)
        assert sync(store, owner, pods) == []
