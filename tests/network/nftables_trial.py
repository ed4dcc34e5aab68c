"""In a network namespace of its own: rules of the kernel lead to what listens here. Prints what was found, as JSON."""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allot.core.network.packet_rules import node_service, packet_rules
from allot.core.network.udp_flows import Served, stale
from allot.network.conntrack import UdpFlows
from allot.network.netfilter import CREATE, GENERIC, HEAD, REQUEST, NetfilterSocket, nested, number, signed, text
from allot.network.netlink import Netlink
from allot.network.nftables import ServiceRules

ADDRESS, SERVICE, OTHER, BALANCER = "10.0.0.1", "10.96.0.7", "10.96.0.8", "192.0.2.77"
PORTS = (8081, 8082)


def service(name: str, address: str, endpoints: tuple[int, ...], **spec: Any) -> Any:
    """As the node n1 sees it: each endpoint is a port of this machine."""
    metadata = {"name": name, "namespace": "default"}
    made = {
        "clusterIP": address,
        "ports": [{"port": 80, "protocol": "TCP", "nodePort": spec.pop("node_port", 0)}],
        **spec,
    }
    slices = [
        {
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [ADDRESS], "nodeName": "n1"}],
            "ports": [{"port": port}],
        }
        for port in endpoints
    ]
    status = {"loadBalancer": {"ingress": [{"ip": spec.pop("balancer", "")}]}}
    found = node_service({"metadata": metadata, "spec": made, "status": status}, slices, "n1")
    assert found is not None
    return found


def main() -> None:
    """Try it."""
    with Netlink() as net:
        net.set_up("lo")
        net.add_bridge("b0", b"\x02\0\0\0\0\x01")
        net.set_up("b0")
        net.add_address("b0", ADDRESS, 24)
        net.add_route("0.0.0.0", 0, "10.0.0.254")
    listening = []
    for port in PORTS:
        made = socket.socket()
        made.bind((ADDRESS, port))
        made.listen(100)
        listening.append(made)
    rules = ServiceRules("allot-trial")
    # The kernel says that no one is there when it has asked for the gateway in vain, after three seconds or more.
    said: dict[str, Any] = {"foreign": rules.foreign(), "before": asked_of(listening, SERVICE, 80, 1, patience_s=60.0)}
    rules.apply(packet_rules([service("web", SERVICE, PORTS, type="NodePort", node_port=30080, balancer=BALANCER)]))
    rules.set_pods([ADDRESS])
    said["chosen"] = sorted(set(asked_of(listening, SERVICE, 80, 40)))
    said["node port"] = sorted(set(asked_of(listening, ADDRESS, 30080, 40)))
    said["balancer"] = sorted(set(asked_of(listening, BALANCER, 80, 40)))
    said["other port"] = asked_of(listening, SERVICE, 81, 1)
    rules.apply(packet_rules([service("web", SERVICE, PORTS, sessionAffinity="ClientIP"), service("none", OTHER, ())]))
    said["kept"] = len(set(asked_of(listening, SERVICE, 80, 20)))
    said["nobody"] = asked_of(listening, OTHER, 80, 1)
    said["node port gone"] = asked_of(listening, ADDRESS, 30080, 1)
    rules.apply(packet_rules([service("web", SERVICE, PORTS[:1])]))
    said["one left"] = sorted(set(asked_of(listening, SERVICE, 80, 10)))
    many = [service(f"s{number}", f"10.97.{number // 250}.{number % 250 + 1}", PORTS) for number in range(1000)]
    rules.apply(packet_rules(many))
    said["of a thousand"] = sorted(set(asked_of(listening, "10.97.3.250", 80, 20)))
    other = ServiceRules("kube-proxy")
    other.apply(packet_rules([]))
    said["foreign then"] = rules.foreign().split(" ")[0]
    other.close()
    said["foreign after"] = rules.foreign()
    said["dropping"] = rules.drops_forwarded()
    with forwarding_dropped():
        said["dropping then"] = rules.drops_forwarded()
    said |= source_ranges(rules, listening) | datagrams(rules)
    rules.close()
    look = ServiceRules("allot-look")
    said["left"] = sorted(look.chains())
    look.close()
    sys.stdout.write(json.dumps(said))


@contextmanager
def forwarding_dropped() -> Iterator[None]:
    """A table of somebody else's whose policy is to drop, as container engines have it."""
    kernel = NetfilterSocket()
    new_table, new_chain, tables = 0, 3, 10
    table = kernel.message(tables, new_table, socket.AF_INET, text(1, "filter") + number(2, 2), flags=CREATE)
    # At the hook for forwarded packets (2); dropped (0) if no rule says otherwise.
    place = (
        text(1, "filter")
        + text(3, "FORWARD")
        + nested(4, number(1, 2), signed(2, 0))
        + number(5, 0)
        + text(7, "filter")
    )
    chain = kernel.message(tables, new_chain, socket.AF_INET, place, flags=CREATE)
    edge = GENERIC.pack(socket.AF_UNSPEC, 0, tables)
    begin, end = (HEAD.pack(HEAD.size + len(edge), each, REQUEST, 0, 0) + edge for each in (16, 17))
    kernel.send(begin + table + chain + end)
    try:
        yield
    finally:
        kernel.close()


def source_ranges(rules: ServiceRules, listening: list[socket.socket]) -> dict[str, Any]:
    """Who may use the address of a load balancer: this machine calls from its own address."""

    def asked(*ranges: str, times: int, patience_s: float) -> list[str]:
        balanced = service("web", SERVICE, PORTS, balancer=BALANCER, loadBalancerSourceRanges=list(ranges))
        rules.apply(packet_rules([balanced]))
        return sorted(set(asked_of(listening, BALANCER, 80, times, patience_s)))

    return {
        "allowed": asked("10.9.0.0/16", "10.0.0.0/24", times=20, patience_s=5.0),
        # What is dropped is never answered.
        "kept out": asked("10.0.1.0/24", "10.0.0.2/32", times=1, patience_s=0.2),
    }


def datagrams(rules: ServiceRules) -> dict[str, Any]:
    """A client that keeps sending to a Service over UDP, whose endpoint goes and is replaced by another one."""
    receivers = []
    for port in PORTS:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((ADDRESS, port))
        made.setblocking(False)
        receivers.append(made)

    def served(*ports: int) -> Any:
        found = service("dns", OTHER, ports, ports=[{"port": 53, "protocol": "UDP"}])
        rules.apply(packet_rules([found]))
        return [Served(addresses=(OTHER,), ports=found.udp)]

    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def sent() -> str:
        try:
            client.sendto(b"?", (OTHER, 53))
        except OSError as error:
            return type(error).__name__
        heard = []
        for each in receivers:
            try:
                each.recv(10)
            except BlockingIOError:
                continue
            heard.append(str(each.getsockname()[1]))
        return " ".join(heard)

    served(PORTS[0])
    said: dict[str, Any] = {"datagram": sent()}
    now = served(PORTS[1])
    said["flow"] = sent()
    with UdpFlows() as flows:
        said["forgotten"] = flows.forget(stale(flows.read(), now))
        said["forgotten again"] = flows.forget(stale(flows.read(), now))
    said["flow anew"] = sent()
    nobody = served()
    with UdpFlows() as flows:
        said["forgotten at last"] = flows.forget(stale(flows.read(), nobody))
    said["datagram to nobody"] = sent()
    return said


def asked_of(listening: list[socket.socket], address: str, port: int, times: int, patience_s: float = 5.0) -> list[str]:
    """Connect so often; which of the sockets got each connection, or why none did."""
    found = []
    for _ in range(times):
        with socket.socket() as client:
            client.settimeout(patience_s)
            # No lingering ports of clients.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            try:
                client.connect((address, port))
            except OSError as error:
                found.append(type(error).__name__)
                continue
            for each in listening:
                each.setblocking(False)
                try:
                    connection, _ = each.accept()
                except BlockingIOError:
                    continue
                connection.close()
                found.append(str(each.getsockname()[1]))
                break
    return found


if __name__ == "__main__":
    main()
