"""What a node's kernel does with packets for Services."""

from __future__ import annotations

from typing import Any

from allot.core.network.packet_rules import Dnat, Drop, Goto, Mark, NodeService, Remember, node_service, packet_rules

Object = dict[str, Any]


def service(name: str = "web", **spec: Any) -> Object:
    ports = [{"port": 80, "protocol": "TCP", **({"nodePort": 30080} if spec.get("type") == "NodePort" else {})}]
    made = {"clusterIP": "10.96.0.7", "ports": ports, **spec}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": made}


def slice_of(*endpoints: tuple[str, str]) -> Object:
    return {
        "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "nodeName": node} for address, node in endpoints],
        "ports": [{"port": 8080}],
    }


BOTH = slice_of(("10.0.0.1", "n1"), ("10.0.0.2", "n2"))


def seen(*slices: Object, **spec: Any) -> NodeService:
    found = node_service(service(**spec), slices, "n1")
    assert found is not None
    return found


def test_an_endpoint_is_chosen_by_chance_and_a_pod_that_reaches_itself_is_masqueraded() -> None:
    rules = packet_rules([seen(BOTH)])
    chain = rules.places["10.96.0.7", "TCP", 80]
    first, second = rules.chains[chain]
    assert isinstance(first, Goto)
    assert isinstance(second, Goto)
    assert (first.one_in, second.one_in) == (2, 1)
    assert rules.chains[first.chain] == (Mark(source="10.0.0.1"), Dnat("10.0.0.1", 8080))
    assert rules.addresses == ("10.96.0.7",)
    assert not rules.node_ports


def test_nobody_behind_a_service_means_that_its_address_has_no_place() -> None:
    rules = packet_rules([seen(slice_of())])
    assert (rules.places, rules.addresses) == ({}, ("10.96.0.7",))


def test_a_client_stays_with_its_endpoint_if_that_is_asked_for() -> None:
    affinity = {"clientIP": {"timeoutSeconds": 60}}
    rules = packet_rules([seen(BOTH, sessionAffinity="ClientIP", sessionAffinityConfig=affinity)])
    chain = rules.chains[rules.places["10.96.0.7", "TCP", 80]]
    assert [each.remembered != "" for each in chain if isinstance(each, Goto)] == [True, True, False, False]
    assert set(rules.sets.values()) == {60}
    ends = [each for each in rules.chains.values() if isinstance(each[-1], Dnat)]
    assert all(isinstance(each[1], Remember) for each in ends)


def test_node_ports_are_masqueraded_unless_the_client_is_to_be_seen() -> None:
    rules = packet_rules([seen(BOTH, type="NodePort")])
    outside = rules.chains[rules.node_ports["TCP", 30080]]
    assert outside[0] == Mark()
    assert outside[1] == Goto(rules.places["10.96.0.7", "TCP", 80])
    rules = packet_rules([seen(BOTH, type="NodePort", externalTrafficPolicy="Local")])
    (choice,) = rules.chains[rules.node_ports["TCP", 30080]]
    assert isinstance(choice, Goto)
    (only,) = rules.chains[choice.chain]
    assert isinstance(only, Goto)
    assert rules.chains[only.chain][-1] == Dnat("10.0.0.1", 8080)


def test_from_outside_nobody_is_answered_where_only_other_nodes_have_endpoints() -> None:
    away = slice_of(("10.0.0.2", "n2"))
    rules = packet_rules([seen(away, type="NodePort", externalTrafficPolicy="Local")])
    assert rules.chains[rules.node_ports["TCP", 30080]] == (Drop(),)
    assert ("10.96.0.7", "TCP", 80) in rules.places


def test_inside_only_endpoints_of_the_node_answer_if_that_is_asked_for() -> None:
    rules = packet_rules([seen(slice_of(("10.0.0.2", "n2")), internalTrafficPolicy="Local")])
    assert rules.places == {}


def test_services_without_an_address_or_of_somebody_else_are_left_alone() -> None:
    assert node_service(service(clusterIP="None"), [BOTH], "n1") is None
    theirs = service()
    theirs["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "other"}
    assert node_service(theirs, [BOTH], "n1") is None


def test_addresses_of_a_load_balancer_lead_to_a_service_and_those_that_its_writer_chose_do_not() -> None:
    made = service(externalIPs=["10.96.0.1"])
    ingress = [{"ip": "192.0.2.10"}, {"hostname": "x"}, {"ip": "192.0.2.11", "ipMode": "Proxy"}, {"ip": "2001:db8::1"}]
    made["status"] = {"loadBalancer": {"ingress": ingress}}
    found = node_service(made, [BOTH], "n1")
    assert found is not None
    rules = packet_rules([found])
    assert set(rules.places) == {("10.96.0.7", "TCP", 80)}
    assert set(rules.outside) == {("192.0.2.10", "TCP", 80)}
    assert rules.chains[rules.outside["192.0.2.10", "TCP", 80]][0] == Mark()


def test_slices_that_somebody_wrote_lead_to_no_address_that_is_special_on_the_node() -> None:
    special = ("127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255", "", "::1", "name")
    rules = packet_rules([seen(slice_of(*((each, "n1") for each in special)), type="NodePort")])
    assert (rules.places, rules.node_ports) == ({}, {})


def balanced(*slices: Object, **spec: Any) -> NodeService:
    """Of type LoadBalancer, with an address of its own."""
    whole = service(type="LoadBalancer", **spec)
    found = node_service({**whole, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}}, slices, "n1")
    assert found is not None
    return found


def test_a_load_balancer_is_for_clients_of_its_source_ranges_and_a_node_port_for_everybody() -> None:
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30080}]
    ranges = [" 198.51.100.9/24 ", "2001:db8::/32", "203.0.113.7/32"]
    rules = packet_rules([balanced(BOTH, ports=ports, loadBalancerSourceRanges=ranges)])
    outside = rules.node_ports["TCP", 30080]
    assert rules.chains[rules.outside["192.0.2.7", "TCP", 80]] == (
        Goto(outside, source="198.51.100.0/24"),
        Goto(outside, source="203.0.113.7/32"),
        Drop(),
    )
    # Who named others only lets nobody in; who named none, everybody.
    rules = packet_rules([balanced(BOTH, loadBalancerSourceRanges=["2001:db8::/32"])])
    assert rules.chains[rules.outside["192.0.2.7", "TCP", 80]] == (Drop(),)
    rules = packet_rules([balanced(BOTH, loadBalancerSourceRanges=[])])
    assert rules.outside["192.0.2.7", "TCP", 80] == "outside/default/web/tcp/80"


def test_a_node_tells_load_balancers_how_many_of_its_endpoints_are_ready() -> None:
    asked = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
    found = balanced(BOTH, **asked)
    assert (found.health_port, found.ready_here) == (32000, 1)
    leaving = slice_of(("10.0.0.1", "n1"), ("10.0.0.3", "n1"))
    leaving["endpoints"][0]["conditions"] = {"ready": False, "serving": True, "terminating": True}
    leaving["endpoints"][1]["conditions"] = {"ready": False}
    assert balanced(leaving, **asked).ready_here == 0
    # Every node answers for others.
    assert balanced(BOTH, **{**asked, "externalTrafficPolicy": "Cluster"}).health_port == 0


def test_an_address_or_port_that_two_services_have_is_the_older_ones() -> None:
    def made(name: str, at: str, endpoint: str) -> NodeService:
        whole = service(name, type="NodePort")
        whole["metadata"]["creationTimestamp"] = at
        found = node_service(whole, [slice_of((endpoint, "n1"))], "n1")
        assert found is not None
        return found

    older, newer = made("z", "2026-01-01T00:00:00Z", "10.0.0.1"), made("a", "2026-01-02T00:00:00Z", "10.0.0.2")
    rules = packet_rules([newer, older])
    assert rules.places["10.96.0.7", "TCP", 80] == "all/default/z/tcp/80"
    assert rules.node_ports["TCP", 30080] == "outside/default/z/tcp/80"
