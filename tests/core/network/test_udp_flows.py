"""Which flows of UDP the kernel must forget."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.network.udp_flows import Flow, Served, UdpPort, stale, udp_ports

DNS, BALANCER, POD, GONE = "10.96.0.10", "192.0.2.7", ("10.0.0.1", 5353), ("10.0.0.9", 5353)


def served(*serving: tuple[str, int]) -> list[Served]:
    port = UdpPort(port=53, node_port=30053, serving=frozenset(serving))
    return [Served(addresses=(DNS, BALANCER), ports=(port,))]


@pytest.mark.parametrize("to", [(DNS, 53), (BALANCER, 53), ("192.168.0.5", 30053)])
def test_a_flow_is_stale_if_its_endpoint_serves_no_more(to: tuple[str, int]) -> None:
    lives, hangs = Flow(to=to, answers=POD), Flow(to=to, answers=GONE)
    assert stale([lives, hangs], served(POD)) == [hangs]
    assert stale([lives, hangs], served()) == [lives, hangs]
    # A Service that is not there is somebody else's business.
    assert stale([lives, hangs], []) == []


def test_a_flow_from_before_the_service_had_endpoints_is_stale() -> None:
    alone = Flow(to=(DNS, 53), answers=(DNS, 53))
    assert stale([alone], served(POD)) == [alone]


def test_flows_of_others_at_the_number_of_a_node_port_are_left_alone() -> None:
    other = Flow(to=("198.51.100.1", 30053), answers=("198.51.100.1", 30053))
    assert stale([other, Flow(to=(DNS, 54), answers=GONE)], served(POD)) == []


def test_endpoints_that_end_but_still_serve_count_and_those_of_other_ports_do_not() -> None:
    def endpoint(address: str, **conditions: bool) -> dict[str, Any]:
        return {"addresses": [address], "conditions": conditions}

    endpoints = [
        endpoint("10.0.0.1"),
        endpoint("10.0.0.2", ready=False, serving=True, terminating=True),
        endpoint("10.0.0.3", ready=False, serving=False),
        endpoint("10.0.0.4", ready=False),
    ]
    ports = [{"name": "dns", "port": 5353}, {"name": "other", "port": 9}]
    slices = [{"addressType": "IPv4", "endpoints": endpoints, "ports": ports}]
    spec = {"ports": [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}, {"name": "other", "port": 9}]}
    (found,) = udp_ports(spec, slices)
    assert found == UdpPort(port=53, node_port=30053, serving=frozenset({("10.0.0.1", 5353), ("10.0.0.2", 5353)}))
