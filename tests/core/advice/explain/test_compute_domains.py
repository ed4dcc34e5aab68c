"""Pods that wait for their ComputeDomain on a node."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.explain.report import Reason
from core.advice.explain.clusters import Object, asks, claim, event, explained, holding, node, pod

UID = "9b05f547-436e-4aac-9859-5eabf11eaac4"
LABEL = "resource.nvidia.com/computeDomain"
DRIVERS = "dra-driver-nvidia-gpu"
NAMED = "ComputeDomain default/nccl is not ready on node n"


def domain(*nodes: tuple[str, str], namespace: str = "default") -> Object:
    entries = [
        {"name": name, "ipAddress": "", "cliqueID": "c.1", "index": 0, "status": status} for name, status in nodes
    ]
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": "nccl", "namespace": namespace, "uid": UID},
        "spec": {"channel": {"resourceClaimTemplate": {"name": "channel"}}},
        "status": {"status": "NotReady", "nodes": entries},
    }


def waiting(kind: str = "ComputeDomainChannelConfig") -> list[Object]:
    """A pod on node n whose channel is allocated."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "domainID": UID}
    status = holding("n", "channel-0", users=("train",))
    status["allocation"]["devices"]["config"] = [
        {"source": "FromClaim", "opaque": {"driver": "compute-domain.nvidia.com", "parameters": parameters}}
    ]
    entries = [{"name": "gpu", "resourceClaimName": "channel"}]
    return [claim("channel", asks(), status=status), pod("train", nodeName="n", resourceClaims=entries)]


def daemon(**fields: Any) -> Object:
    made = pod("daemon", nodeName="n", **fields)
    return {**made, "metadata": {**made["metadata"], "namespace": DRIVERS, "labels": {LABEL: UID}}}


def failed(message: str) -> Object:
    """What is reported about the daemon."""
    made = event("daemon", "FailedPrepareDynamicResources", message)
    about = {**made["involvedObject"], "namespace": DRIVERS}
    return {**made, "metadata": {**made["metadata"], "namespace": DRIVERS}, "involvedObject": about}


@pytest.mark.parametrize(
    ("labels", "more", "why"),
    [
        ({}, [], "driver compute-domain.nvidia.com has not added the node to the domain yet"),
        ({LABEL: "other"}, [], "the node is in another ComputeDomain (other), and a node can be in only one at a time"),
        ({LABEL: UID}, [], "its daemon does not run there yet"),
        ({LABEL: UID}, [daemon()], f"its daemon there, pod {DRIVERS}/daemon, is not ready: it is starting"),
        (
            {LABEL: UID},
            [daemon(), failed("the NVLink fabric of node n is broken")],
            f"its daemon there, pod {DRIVERS}/daemon, is not ready: the NVLink fabric of node n is broken",
        ),
    ],
)
def test_domain_node_and_what_the_daemon_lacks_are_named(labels: dict[str, str], more: list[Object], why: str) -> None:
    found = explained(node("n", labels=labels), domain(("m", "NotReady")), waiting(), more)
    assert found.reason is Reason.PREPARE
    assert f"{NAMED}: {why}" in found.cause
    assert "it is not ready on m either" in found.details


@pytest.mark.parametrize(
    "objects",
    [
        [domain(("n", "Ready"))],
        [domain(namespace="other")],
        [],
    ],
)
def test_a_domain_that_is_ready_foreign_or_unknown_is_not_blamed(objects: list[Object]) -> None:
    assert NAMED not in explained(node("n"), waiting(), objects).cause


def test_a_daemon_does_not_wait_for_its_domain() -> None:
    assert NAMED not in explained(node("n"), domain(), waiting("ComputeDomainDaemonConfig")).cause


def test_a_driver_that_is_not_registered_on_the_node_comes_before_its_domain() -> None:
    said = "Failed to prepare dynamic resources: DRA driver compute-domain.nvidia.com is not registered"
    found = explained(node("n"), domain(), waiting(), event("train", "FailedPrepareDynamicResources", said))
    assert "DRA driver compute-domain.nvidia.com is not registered with the kubelet of node n" in found.cause


@pytest.mark.parametrize("said", ["bind: address already in use", "bind: Address 0.0.0.0:50000 already in use"])
def test_a_taken_port_is_to_be_freed_first(said: str) -> None:
    found = explained(node("n", labels={LABEL: UID}), domain(("n", "NotReady")), waiting(), daemon(), failed(said))
    assert found.changes[0].text.startswith("stop the process that listens there on node n")
    assert found.changes[1].text == f"see the log of the daemon: kubectl logs -n {DRIVERS} daemon"
