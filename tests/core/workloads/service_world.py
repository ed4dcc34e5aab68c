"""Pods and Services for tests of endpoints, and a store that carries actions out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from allot.core.lifecycle.actions import Action, Create, Delete, Update
from allot.core.model.core_v1 import Container, ContainerPort, Node, Pod, PodCondition, PodIP, PodSpec, PodStatus
from allot.core.model.meta import ObjectMeta

Object = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"


def service(name: str = "s", *ports: Object, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """A Service of pods with app=s."""
    spec = {"selector": {"app": "s"}, "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "ports": list(ports), **spec}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": NOW}
    if labels:
        metadata["labels"] = labels
    return {"metadata": metadata, "spec": spec}


def port(number: int, target: int | str | None = None, name: str = "", protocol: str = "TCP") -> Object:
    """A port of a Service."""
    return {"name": name, "port": number, "targetPort": number if target is None else target, "protocol": protocol}


def pod(
    name: str,
    ip: str = "10.1.0.1",
    *,
    ready: bool = True,
    leaving: bool = False,
    phase: str = "Running",
    node: str = "n1",
    hostname: str = "",
    subdomain: str = "",
    ports: Iterable[tuple[str, int]] = (),
    sidecar_ports: Iterable[tuple[str, int]] = (),
) -> Pod:
    """A pod with app=s."""

    def container(name: str, ports: Iterable[tuple[str, int]], policy: str | None = None) -> Container:
        made = tuple(ContainerPort(name=name, container_port=number, protocol="TCP") for name, number in ports)
        return Container(name=name, ports=made, restart_policy=policy)

    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            labels={"app": "s"},
            deletion_timestamp=NOW if leaving else None,
        ),
        spec=PodSpec(
            node_name=node,
            hostname=hostname,
            subdomain=subdomain,
            containers=(container("main", ports),),
            init_containers=(container("side", sidecar_ports, "Always"),),
        ),
        status=PodStatus(
            phase=phase,
            conditions=(PodCondition(type="Ready", status="True" if ready else "False", last_transition_time=NOW),),
            pod_ips=(PodIP(ip=ip),) if ip else (),
        ),
    )


def nodes(**zones: str) -> dict[str, Node]:
    """Nodes by name, with their zones."""
    zones = zones or {"n1": ""}
    return {
        name: Node(metadata=ObjectMeta(name=name, labels={"topology.kubernetes.io/zone": zone} if zone else {}))
        for name, zone in zones.items()
    }


class Store:
    """Objects by name, as actions leave them."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self._count = 0

    def apply(self, actions: Iterable[Action]) -> list[Action]:
        """Carry out; what was done."""
        done = list(actions)
        for action in done:
            self._count += 1
            if isinstance(action, Create):
                object_ = msgspec.to_builtins(action.object)
                metadata = object_["metadata"]
                name = metadata.get("name") or f"{metadata['generateName']}{self._count:05}"
                metadata |= {"name": name, "uid": f"u{self._count}", "resourceVersion": str(self._count)}
                assert name not in self.objects
                self.objects[name] = object_
            elif isinstance(action, Update):
                object_ = msgspec.to_builtins(action.object)
                old = self.objects[object_["metadata"]["name"]]
                assert object_["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]
                object_["metadata"]["resourceVersion"] = str(self._count)
                self.objects[object_["metadata"]["name"]] = object_
            elif isinstance(action, Delete):
                gone = self.objects.pop(action.name)
                assert gone["metadata"]["uid"] == action.uid
        return done
