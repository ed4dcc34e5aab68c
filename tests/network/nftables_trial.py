"""In a network namespace of its own: rules of the kernel lead to what listens here. Prints what was found, as JSON."""

from __future__ import annotations

import json
import socket
import struct
import sys
from typing import Any

from allot.core.network.packet_rules import node_service, packet_rules
from allot.network.netlink import Netlink
from allot.network.nftables import ServiceRules

ADDRESS, SERVICE, OTHER, BALANCER = "10.0.0.1", "10.96.0.7", "10.96.0.8", "192.0.2.77"
PORTS = (8081, 8082)


def service(name: str, address: str, ports: tuple[int, ...], **spec: Any) -> Any:
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
        for port in ports
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
    said: dict[str, Any] = {"foreign": rules.foreign(), "before": asked_of(listening, SERVICE, 80, 1)}
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
    rules.close()
    look = ServiceRules("allot-look")
    said["left"] = sorted(look.chains())
    look.close()
    sys.stdout.write(json.dumps(said))


def asked_of(listening: list[socket.socket], address: str, port: int, times: int) -> list[str]:
    """Connect so often; which of the sockets got each connection, or why none did."""
    found = []
    for _ in range(times):
        with socket.socket() as client:
            client.settimeout(5)
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
