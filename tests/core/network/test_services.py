"""Who is behind a Service, where a client is sent, and what containers learn of Services: cases from Kubernetes' documentation."""

from __future__ import annotations

import pytest

from allot.core.network.balancing import Balancer
from allot.core.network.load_balancers import PORTS, Served, candidates, replacements, status_patch
from allot.core.network.pod_files import Resolving, hosts_text, parse_resolving, resolving
from allot.core.network.ranges import BLOCKS, GATEWAY, address_of, block_of, is_in, is_of_pod, number_of
from allot.core.network.routes import Endpoint, routes_of
from allot.core.network.variables import service_variables


def service(**spec: object) -> dict[str, object]:
    return {"metadata": {"namespace": "default", "name": "redis-primary", "uid": "u-1"}, "spec": spec}


def slice_(*endpoints: dict[str, object], ports: dict[str, int] | None = None) -> dict[str, object]:
    named = [{"name": name, "port": port} for name, port in (ports or {"": 8080}).items()]
    return {"addressType": "IPv4", "ports": named, "endpoints": list(endpoints)}


def endpoint(address: str, **conditions: bool) -> dict[str, object]:
    return {"addresses": [address], "conditions": conditions}


def behind(*slices: dict[str, object], **spec: object) -> list[str]:
    found = routes_of(service(clusterIP="10.96.0.9", ports=[{"port": 80}], **spec), slices)
    return [f"{each.address}:{each.port}" for each in found.ports[0].endpoints]


def test_only_endpoints_that_are_ready_are_behind_a_service() -> None:
    slices = slice_(
        endpoint("10.0.0.2", ready=True), endpoint("10.0.0.1", ready=True), endpoint("10.0.0.3", ready=False)
    )
    assert behind(slices) == ["10.0.0.1:8080", "10.0.0.2:8080"]


def test_an_endpoint_that_says_nothing_is_ready() -> None:
    assert behind(slice_(endpoint("10.0.0.1"))) == ["10.0.0.1:8080"]


def test_if_none_is_ready_those_that_end_serve_on() -> None:
    ending = endpoint("10.0.0.2", ready=False, serving=True, terminating=True)
    assert behind(slice_(endpoint("10.0.0.1", ready=False, serving=False), ending)) == ["10.0.0.2:8080"]
    assert behind(slice_(endpoint("10.0.0.1", ready=True), ending)) == ["10.0.0.1:8080"]


def test_slices_of_other_families_and_ports_do_not_count() -> None:
    other = {**slice_(endpoint("fd00::1", ready=True)), "addressType": "IPv6"}
    assert behind(other, slice_(endpoint("10.0.0.1", ready=True), ports={"metrics": 9})) == []


def test_clients_are_sent_to_one_endpoint_after_the_other() -> None:
    balancer = Balancer()
    ends = tuple(Endpoint(address=f"10.0.0.{each}", port=80) for each in (1, 2, 3))
    balancer.update(ends, 0)
    chosen = [balancer.choose("c", 0.0)[0].address for _ in range(6)]
    assert chosen == ["10.0.0.1", "10.0.0.2", "10.0.0.3"] * 2
    assert len(balancer.choose("c", 0.0)) == 3


def test_with_affinity_a_client_stays_until_its_time_is_over_or_its_endpoint_gone() -> None:
    balancer = Balancer()
    ends = tuple(Endpoint(address=f"10.0.0.{each}", port=80) for each in (1, 2))
    balancer.update(ends, 100)
    first = balancer.choose("one", 0.0)[0]
    assert balancer.choose("two", 1.0)[0] != first
    # Each visit begins the time anew.
    assert [balancer.choose("one", at)[0] for at in (90.0, 180.0)] == [first, first]
    assert balancer.choose("one", 281.0)[0] != first or balancer.choose("one", 400.0)[0] != first
    balancer.update(tuple(each for each in ends if each != first), 100)
    assert balancer.choose("one", 401.0)[0] != first


def test_affinity_lasts_three_hours_unless_told() -> None:
    assert routes_of(service(sessionAffinity="ClientIP"), []).affinity_s == 10800
    told = {"clientIP": {"timeoutSeconds": 60}}
    assert routes_of(service(sessionAffinity="ClientIP", sessionAffinityConfig=told), []).affinity_s == 60


def test_variables_are_those_of_the_documentation() -> None:
    # https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
    ports = [{"port": 6379, "protocol": "TCP", "name": "redis-main"}]
    assert service_variables([service(clusterIP="10.0.0.11", ports=ports)]) == {
        "REDIS_PRIMARY_SERVICE_HOST": "10.0.0.11",
        "REDIS_PRIMARY_SERVICE_PORT": "6379",
        "REDIS_PRIMARY_SERVICE_PORT_REDIS_MAIN": "6379",
        "REDIS_PRIMARY_PORT": "tcp://10.0.0.11:6379",
        "REDIS_PRIMARY_PORT_6379_TCP": "tcp://10.0.0.11:6379",
        "REDIS_PRIMARY_PORT_6379_TCP_PROTO": "tcp",
        "REDIS_PRIMARY_PORT_6379_TCP_PORT": "6379",
        "REDIS_PRIMARY_PORT_6379_TCP_ADDR": "10.0.0.11",
    }
    assert service_variables([service(clusterIP="None", ports=ports), service(type="ExternalName")]) == {}


MACHINE = Resolving(servers=("192.0.2.53",), searches=("corp.example",), options=("timeout:1",))


@pytest.mark.parametrize(
    ("policy", "own", "expected"),
    [
        (
            "ClusterFirst",
            Resolving(),
            "nameserver 10.96.0.10\nsearch ns.svc.cluster.local svc.cluster.local cluster.local corp.example\noptions ndots:5\n",
        ),
        ("Default", Resolving(), "nameserver 192.0.2.53\nsearch corp.example\noptions timeout:1\n"),
        (
            "None",
            Resolving(servers=("192.0.2.1",), searches=("my.dns",), options=("ndots:2", "edns0")),
            "nameserver 192.0.2.1\nsearch my.dns\noptions ndots:2 edns0\n",
        ),
        (
            "ClusterFirst",
            Resolving(servers=("192.0.2.1", "10.96.0.10"), options=("ndots:1",)),
            "nameserver 10.96.0.10\nnameserver 192.0.2.1\n"
            "search ns.svc.cluster.local svc.cluster.local cluster.local corp.example\noptions ndots:1\n",
        ),
    ],
)
def test_a_pod_finds_names_as_its_policy_says(policy: str, own: Resolving, expected: str) -> None:
    assert resolving(policy, own, MACHINE, ("10.96.0.10",), "ns", "cluster.local").text() == expected


def test_where_nobody_knows_the_clusters_names_a_pod_asks_as_the_machine_does() -> None:
    assert resolving("ClusterFirst", Resolving(), MACHINE, (), "ns", "cluster.local") == MACHINE
    assert parse_resolving(MACHINE.text()) == MACHINE
    assert parse_resolving("# x\n\nnameserver\nsearch\ndomain a\n") == Resolving(searches=("a",))


def test_hosts_have_the_pods_names_and_aliases() -> None:
    text = hosts_text(("10.128.0.2",), "db-0", "db-0.db.ns.svc.cluster.local", [("192.0.2.9", ("a", "b"))])
    assert "10.128.0.2\tdb-0.db.ns.svc.cluster.local\tdb-0\n" in text
    assert text.endswith("# Entries added by HostAliases.\n192.0.2.9\ta\tb\n")
    assert "HostAliases" not in hosts_text(("10.128.0.2",), "p", "", [])


def test_a_load_balancer_has_an_address_of_loopback_and_keeps_it() -> None:
    made = service(type="LoadBalancer")
    first, *others = candidates(made)
    assert is_in(first, "127.64.0.0", 10)
    assert others and len({first, *others}) == len(others) + 1
    kept = {**made, "status": {"loadBalancer": {"ingress": [{"ip": "127.99.1.2"}]}}}
    assert next(candidates(kept)) == "127.99.1.2"
    # What somebody else has written there is none of ours.
    stolen = {
        **made,
        "status": {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}, {"ip": "192.0.2.1"}, {"hostname": "x"}]}},
    }
    assert next(candidates(stolen)) == first


def test_a_port_that_was_replaced_is_told() -> None:
    assert list(replacements(80)) == [8080, 0]
    assert list(replacements(8000)) == [0]
    made = service(type="LoadBalancer")
    patch = status_patch(
        made, "127.64.0.1", (Served(port=80, protocol="TCP", at=8080), Served(port=81, protocol="TCP", at=81))
    )
    assert patch == {
        "metadata": {"annotations": {PORTS: "80/TCP=8080"}},
        "status": {
            "loadBalancer": {
                "ingress": [
                    {
                        "ip": "127.64.0.1",
                        "ipMode": "Proxy",
                        "ports": [{"port": 80, "protocol": "TCP", "error": "allot.dev/ServedOn8080"}],
                    }
                ]
            }
        },
    }
    told = {**made, "metadata": {**made["metadata"], **patch["metadata"]}, "status": patch["status"]}
    assert status_patch(told, "127.64.0.1", (Served(port=80, protocol="TCP", at=8080),)) is None
    gone = status_patch(told, "", ())
    assert gone == {"metadata": {"annotations": {PORTS: None}}, "status": {"loadBalancer": {"ingress": None}}}


def test_addresses_are_pods_or_not() -> None:
    assert [is_of_pod(each) for each in ("10.128.0.2", "10.128.255.254", "10.144.0.0", "10.255.255.255")] == [True] * 4
    not_pods = (
        GATEWAY,
        "10.128.0.0",
        "10.128.255.255",
        "10.129.0.1",
        "10.96.0.1",
        "127.0.0.1",
        "010.128.0.2x",
        "::1",
        "",
        "10.128.0",
    )
    assert not any(is_of_pod(each) for each in not_pods)
    assert block_of("10.150.1.1") == BLOCKS[0]
    assert address_of(number_of("10.128.3.4")) == "10.128.3.4"
