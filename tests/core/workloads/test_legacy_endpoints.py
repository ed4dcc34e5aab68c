"""Endpoints, and the mirror of those that were written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.actions import Create, Delete, Emit, Update
from allot.core.workloads.endpoint_mirroring import reconcile_mirror
from allot.core.workloads.legacy_endpoints import reconcile_endpoints, remove_endpoints
from core.workloads.service_world import NOW, Object, Store, pod, port, service


def sync(store: Store, owner: Object, pods: list[Any]) -> list[Any]:
    return store.apply(reconcile_endpoints(owner, pods, store.objects.get(owner["metadata"]["name"]), NOW))


def test_addresses_with_the_same_ports_are_together_the_ready_ones_apart() -> None:
    store = Store()
    owner = service("s", port(80, "http", "web"), port(90, 9090, "admin"), labels={"a": "b"})
    pods = [
        pod("b", "10.1.0.10", ports=[("http", 8080)], hostname="b", subdomain="s"),
        pod("a", "10.1.0.9", ports=[("http", 8080)]),
        pod("c", "10.1.0.3", ports=[("http", 8080)], ready=False),
        pod("d", "10.1.0.4"),
        pod("e", "10.1.0.5", leaving=True),
    ]
    (made,) = sync(store, owner, pods)
    assert isinstance(made, Create) and made.on_failure is not None
    found = store.objects["s"]
    assert found["metadata"]["labels"] == {"a": "b", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    only_admin, both = sorted(found["subsets"], key=lambda subset: len(subset["ports"]))
    assert [address["ip"] for address in only_admin["addresses"]] == ["10.1.0.4"]
    assert [address["ip"] for address in both["addresses"]] == ["10.1.0.9", "10.1.0.10"]
    assert both["addresses"][1]["hostname"] == "b" and both["addresses"][1]["nodeName"] == "n1"
    assert [address["ip"] for address in both["notReadyAddresses"]] == ["10.1.0.3"]
    assert [each["name"] for each in both["ports"]] == ["admin", "web"]
    assert sync(store, owner, list(reversed(pods))) == []


def test_what_others_wrote_in_another_order_is_left_alone() -> None:
    store = Store()
    owner = service("s", port(80, 8080))
    pods = [pod("a", "10.1.0.1"), pod("b", "10.1.0.2")]
    sync(store, owner, pods)
    assert store.objects["s"]["subsets"][0]["ports"] == [{"port": 8080, "protocol": "TCP"}]
    store.objects["s"]["subsets"][0]["addresses"].reverse()
    store.objects["s"]["subsets"][0]["addresses"][0]["targetRef"]["resourceVersion"] = "7"
    assert sync(store, owner, pods) == []
    (action,) = sync(store, owner, pods[:1])
    assert isinstance(action, Update)


@pytest.mark.parametrize(
    ("ready", "not_ready", "left"), [(1200, 100, (1000, 0)), (600, 600, (600, 400)), (10, 0, (10, 0))]
)
def test_more_than_a_thousand_addresses_are_cut_and_said_to_be(
    ready: int, not_ready: int, left: tuple[int, int]
) -> None:
    store = Store()
    pods = [pod(f"r{i}", f"10.1.{i // 250}.{i % 250}") for i in range(ready)]
    pods += [pod(f"n{i}", f"10.2.{i // 250}.{i % 250}", ready=False) for i in range(not_ready)]
    owner = service("s", port(80, 8080))
    sync(store, owner, pods)
    found = store.objects["s"]
    counts = [
        sum(len(subset.get(kind, ())) for subset in found["subsets"]) for kind in ("addresses", "notReadyAddresses")
    ]
    assert tuple(counts) == left
    mark = found["metadata"]["annotations"].get("endpoints.kubernetes.io/over-capacity")
    assert mark == ("truncated" if ready + not_ready > 1000 else None)
    assert sync(store, owner, pods) == []
    sync(store, owner, pods[:5])
    assert "endpoints.kubernetes.io/over-capacity" not in store.objects["s"]["metadata"]["annotations"]


def test_endpoints_go_with_their_service_unless_they_are_a_lock() -> None:
    metadata = {"name": "s", "namespace": "ns", "uid": "u"}
    (action,) = remove_endpoints({"metadata": metadata})
    assert isinstance(action, Delete)
    lock = {"metadata": {**metadata, "annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}}
    assert remove_endpoints(lock) == ()


# --- mirror ---


def written(*subsets: Object, **metadata: Any) -> Object:
    return {"metadata": {"name": "s", "namespace": "ns", "uid": "e", **metadata}, "subsets": list(subsets)}


def mirror(store: Store, endpoints: Object | None, owner: Object | None) -> list[Any]:
    return store.apply(reconcile_mirror(endpoints, owner, list(store.objects.values())))


BARE = service("s", selector=None)
SUBSET = {"addresses": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}]}


def test_endpoints_by_hand_are_mirrored_per_family_and_ports() -> None:
    store = Store()
    more = {"notReadyAddresses": [{"ip": "10.1.0.2", "nodeName": "n"}], "ports": [{"port": 90, "name": "x"}]}
    annotations = {"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    source = written(SUBSET, more, labels={"l": "m"}, annotations=annotations)
    assert len(mirror(store, source, BARE)) == 3
    found = sorted(store.objects.values(), key=lambda slice_: (slice_["addressType"], slice_["ports"][0]["port"]))
    assert [(slice_["addressType"], slice_["ports"][0]["port"]) for slice_ in found] == [
        ("IPv4", 80),
        ("IPv4", 90),
        ("IPv6", 80),
    ]
    assert found[1]["endpoints"] == [{"addresses": ["10.1.0.2"], "conditions": {"ready": False}, "nodeName": "n"}]
    labels = found[0]["metadata"]["labels"]
    assert labels["endpointslice.kubernetes.io/managed-by"] == "endpointslicemirroring-controller.k8s.io"
    assert (labels["l"], labels["kubernetes.io/service-name"]) == ("m", "s")
    assert found[0]["metadata"]["annotations"] == {"a": "b"}
    assert mirror(store, source, BARE) == []
    # One family less, other addresses: one update, the rest goes.
    actions = mirror(store, written({"addresses": [{"ip": "10.1.0.9"}], "ports": [{"port": 80}]}), BARE)
    assert sorted(type(action).__name__ for action in actions) == ["Delete", "Delete", "Update"]


@pytest.mark.parametrize(
    ("source", "owner"),
    [
        (None, BARE),
        (written(SUBSET), None),
        (written(SUBSET), service("s")),
        (written(SUBSET, labels={"endpointslice.kubernetes.io/skip-mirror": "true"}), BARE),
        (written(SUBSET, annotations={"control-plane.alpha.kubernetes.io/leader": "{}"}), BARE),
    ],
)
def test_what_is_not_mirrored_any_more_loses_its_slices(source: Object | None, owner: Object | None) -> None:
    store = Store()
    mirror(store, written(SUBSET), BARE)
    mirror(store, source, owner)
    assert store.objects == {}


def test_what_cannot_be_mirrored_is_said() -> None:
    store = Store()
    addresses = [{"ip": "not one"}, *({"ip": f"10.1.{i // 250}.{i % 250}"} for i in range(1001))]
    actions = mirror(store, written({"addresses": addresses, "ports": [{"port": 80}]}), BARE)
    notes = {action.reason: action.note for action in actions if isinstance(action, Emit)}
    assert notes == {
        "InvalidIPAddress": "Skipped 1 invalid IP addresses when mirroring to EndpointSlices",
        "TooManyAddressesToMirror": "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. "
        "2 addresses were skipped",
    }
