"""What writers of Services are told about fields that no proxy of allot's acts on."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.network.unserved import unserved


def told(*, is_on_one_machine: bool = True, **spec: Any) -> list[str]:
    return list(unserved({"spec": {"clusterIP": "10.96.0.7", **spec}}, is_on_one_machine=is_on_one_machine))


def test_usual_services_are_served() -> None:
    usual = {"internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"]}
    assert told(type="LoadBalancer", ports=[{"port": 80, "protocol": "TCP"}], **usual) == []
    assert list(unserved({"spec": None}, is_on_one_machine=True)) == []
    # Names alone.
    assert told(clusterIP="None", ports=[{"port": 80, "protocol": "SCTP"}]) == []
    assert told(type="ExternalName", externalIPs=["192.0.2.1"]) == []


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"ports": [{"port": 80, "protocol": "SCTP"}]},
            "allot routes no SCTP to Services, such as port 80: without kube-proxy",
        ),
        ({"externalIPs": ["192.0.2.1"]}, "allot routes no spec.externalIPs"),
        ({"ipFamilies": ["IPv4", "IPv6"]}, "allot routes Services over IPv4 only"),
    ],
)
def test_what_no_proxy_of_allots_does_is_told_everywhere(spec: dict[str, Any], text: str) -> None:
    for is_on_one_machine in (True, False):
        (found,) = told(is_on_one_machine=is_on_one_machine, **spec)
        assert found.startswith(text)


@pytest.mark.parametrize(
    "spec",
    [
        {"loadBalancerSourceRanges": ["192.0.2.0/24"]},
        {"externalTrafficPolicy": "Local"},
        {"internalTrafficPolicy": "Local"},
    ],
)
def test_what_only_nodes_with_a_container_runtime_do_is_told_on_one_machine(spec: dict[str, Any]) -> None:
    (field,) = spec
    (found,) = told(**spec)
    assert found.startswith(f"nothing acts on spec.{field} of this Service: ")
    assert told(is_on_one_machine=False, **spec) == []
