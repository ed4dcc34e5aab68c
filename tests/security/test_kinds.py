"""What is wrong is refused, by the field that is wrong, when it is written: new objects, changes, parts of objects.

Where there is a kube-apiserver, it gets the same objects and names the same fields for the same reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from security.kind_cases import CASES, CHANGES, PATHS, Case, Change, certificate
from security.servers import Answer, Both, Server

pytestmark = pytest.mark.slow

TOLD = "299 - "


def causes(answer: Answer) -> list[tuple[str, str]]:
    """Fields and reasons of a refusal."""
    found = (answer.value.get("details") or {}).get("causes") or ()
    return [(cause["field"], cause["reason"]) for cause in found]


def asked(both: Both, ask: Callable[[Server], Answer]) -> Answer:
    """Allot's answer, which is kube-apiserver's: status, and all fields and reasons of a refusal."""
    ours, *theirs = [ask(server) for server in both.every]
    for other in theirs:
        assert ours.status == other.status, (ours.body, other.body)
        assert causes(ours) == causes(other)
    return ours


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_new_object_is_taken_or_refused_for_its_fault(both: Both, namespace: str, case: Case) -> None:
    path = PATHS[case.kind].format(namespace)

    def create(server: Server) -> Answer:
        answer = server.send("POST", path, case.object)
        if answer.status == 201:
            server.send("DELETE", f"{path}/{case.object['metadata']['name']}")
        return answer

    answer = asked(both, create)
    if case.field:
        assert (answer.status, causes(answer)[0]) == (422, (case.field, case.reason))
    else:
        assert answer.status == 201, answer.body


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_change_is_taken_or_refused_for_its_fault(both: Both, namespace: str, change: Change) -> None:
    path = PATHS[change.kind].format(namespace)
    place = f"{path}/{change.object['metadata']['name']}"

    def patch(server: Server) -> Answer:
        server.create(path, change.object)
        where = f"{place}/{change.subresource}".rstrip("/")
        answer = server.send("PATCH", where, change.patch, kind="application/merge-patch+json")
        server.send("DELETE", f"{place}?gracePeriodSeconds=0")
        return answer

    answer = asked(both, patch)
    if change.field:
        assert (answer.status, causes(answer)[0]) == (422, (change.field, change.reason))
    else:
        assert answer.status == 200, answer.body


CONTAINER = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
SIDE = {"name": "s", "image": "x"}
POD = {"automountServiceAccountToken": False, "containers": [CONTAINER], "initContainers": [SIDE]}
NEITHER = "name is neither a standard finalizer name nor is it fully qualified"
LEASE = ("/apis/coordination.k8s.io/v1/namespaces/{}/leases", {"metadata": {"name": "x"}})
RUNTIME = ("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "x"}, "handler": "h"})
CLAIM_SPEC = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "c"}}]}}
GROUP = "apiextensions.k8s.io"
DEFINITION = {
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}
GOOD = {
    **{case.kind: (PATHS[case.kind], case.object) for case in reversed(CASES) if case.what == "good"},
    "ConfigMap": ("/api/v1/namespaces/{}/configmaps", {"metadata": {"name": "x"}}),
    "Pod": (PATHS["Pod"], {"metadata": {"name": "x"}, "spec": POD}),
    "Lease": LEASE,
    "RuntimeClass": RUNTIME,
    "ResourceClaim": (
        "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
        {"metadata": {"name": "x"}, "spec": CLAIM_SPEC},
    ),
    "CustomResourceDefinition": (f"/apis/{GROUP}/v1/customresourcedefinitions", DEFINITION),
}
FREE = (
    "Lease",
    "RuntimeClass",
    "CustomResourceDefinition",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
)
FREE = (*FREE, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration")


def with_account(both: Both, namespace: str) -> None:
    """Pods need one, which a controller makes where there is one."""
    for server in both.every:
        server.send("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})


@pytest.mark.parametrize("kind", sorted(GOOD))
def test_finalizers_of_kubernetes_own_kinds_have_a_domain(both: Both, namespace: str, kind: str) -> None:
    path, good = GOOD[kind]
    with_account(both, namespace)

    def create(server: Server, *finalizers: str) -> Answer:
        object_ = {**good, "metadata": {**good["metadata"], "finalizers": finalizers}}
        return server.send("POST", f"{path.format(namespace)}?dryRun=All", object_)

    assert asked(both, lambda server: create(server, "example.com/a", "foregroundDeletion")).status == 201
    refused = asked(both, lambda server: create(server, "example.com/a", "bare"))
    if kind in FREE:
        assert refused.status == 201
    else:
        assert causes(refused) == [("metadata.finalizers[1]", "FieldValueInvalid")]
        assert NEITHER in refused.message


def test_a_change_cannot_bring_a_finalizer_without_a_domain(both: Both, namespace: str) -> None:
    with_account(both, namespace)
    for kind in ("ConfigMap", "Lease", "ResourceClaim", "Pod", "EndpointSlice"):
        path, good = GOOD[kind]
        place = path.format(namespace)

        def patch(server: Server, place: str = place, good: Any = good) -> Answer:
            server.send("POST", place, good)
            patch = {"metadata": {"finalizers": ["bare"], "labels": {"a": "b"}}}
            name = good["metadata"]["name"]
            kind = "application/merge-patch+json"
            return server.send("PATCH", f"{place}/{name}?dryRun=All", patch, kind=kind)

        answer = asked(both, patch)
        assert answer.status == (200 if kind in FREE else 422), (kind, answer.body)


RESIZES = {
    "nothing": (None, 422),
    "no spec": ({}, 422),
    "no containers": ({"containers": [], "initContainers": [SIDE]}, 422),
    "no init containers": ({"containers": [CONTAINER]}, 422),
    "one more": ({"containers": [CONTAINER, {**CONTAINER, "name": "d"}], "initContainers": [SIDE]}, 422),
    "another name": ({"containers": [{**CONTAINER, "name": "d"}], "initContainers": [SIDE]}, 422),
    "more": (
        {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}], "initContainers": [{"name": "s"}]},
        200,
    ),
}


@pytest.mark.parametrize("what", RESIZES)
def test_a_resize_keeps_the_containers(both: Both, namespace: str, what: str) -> None:
    pods, (spec, status) = PATHS["Pod"].format(namespace), RESIZES[what]
    with_account(both, namespace)
    both.create(pods, {"metadata": {"name": "p"}, "spec": POD})
    body = {"metadata": {"name": "p"}} if spec is None else {"metadata": {"name": "p"}, "spec": spec}
    assert asked(both, lambda server: server.send("PUT", f"{pods}/p/resize", body)).status == status


def warnings(answer: Answer) -> list[str]:
    headers: Any = answer.headers
    return [each.removeprefix(TOLD).strip('"') for each in headers.get_all("Warning") or ()]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("FlowSchema", "allot does not sort requests by FlowSchemas"),
        ("PriorityLevelConfiguration", "allot does not limit requests by PriorityLevelConfigurations"),
        ("StorageVersionMigration", "allot has no controller that migrates stored versions"),
        ("CertificateSigningRequest", "nothing acts on this CertificateSigningRequest"),
        ("IPAddress", "allot gives out addresses of services without IPAddresses"),
        ("NetworkPolicy", "allot enforces no NetworkPolicies"),
    ],
)
def test_whoever_creates_what_nothing_acts_on_is_told(server: Server, kind: str, told: str) -> None:
    good = next(case.object for case in CASES if case.kind == kind)
    path = PATHS[kind].format("default")
    answer = server.send("POST", path, good)
    server.send("DELETE", f"{path}/{good['metadata']['name']}")
    assert [each for each in warnings(answer) if each.startswith(told)], answer.headers


def test_addresses_that_are_spelled_in_an_odd_way_are_pointed_out(both: Both, namespace: str) -> None:
    path = PATHS["Service"].format(namespace)
    ports = [{"port": 80}]
    object_ = {"metadata": {"name": "odd"}, "spec": {"ports": ports, "externalIPs": ["2001:DB8::1"]}}
    answer = both.send("POST", path, object_)
    form = 'IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")'
    assert any(f"spec.externalIPs[0]: {form}" in each.replace('\\"', '"') for each in warnings(answer))


def test_only_who_may_attest_for_a_signer_says_which_authorities_it_has(both: Both) -> None:
    path, group = PATHS["ClusterTrustBundle"], "certificates.k8s.io"
    rules = [{"apiGroups": [group], "resources": ["clustertrustbundles"], "verbs": ["create", "update", "get"]}]
    roles = "/apis/rbac.authorization.k8s.io/v1"
    user = "keeper-of-bundles"
    both.create(f"{roles}/clusterroles", {"metadata": {"name": user}, "rules": rules})
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    both.create(
        f"{roles}/clusterrolebindings", {"metadata": {"name": user}, "roleRef": reference, "subjects": [subject]}
    )
    for server in both.every:
        server.wait_until_allowed(user, "", "create", group, "clustertrustbundles")
    who, spec = both.user(user), {"trustBundle": certificate()}
    plain = {"metadata": {"name": "of-nobody"}, "spec": spec}
    assert both.send("POST", path, plain, who=who).status == 201
    signed = {"metadata": {"name": "example.com:s:x"}, "spec": {**spec, "signerName": "example.com/s"}}
    refused = both.send("POST", path, signed, who=who)
    assert refused.status == 403
    assert 'user not permitted to attest for signerName "example.com/s"' in refused.message
    assert both.send("POST", path, signed).status == 201


def test_nobody_takes_the_address_or_port_of_anothers_service_or_one_that_is_none(both: Both, namespace: str) -> None:
    """Nodes send packets for it to whoever has it."""
    for server in both.every:
        services = f"/api/v1/namespaces/{namespace}/services"

        def service(name: str, **spec: Any) -> dict[str, Any]:
            return {"metadata": {"name": name}, "spec": {"ports": [{"port": 443}], **spec}}

        def told(spec: dict[str, Any], at: str = services, of: Server = server) -> tuple[int, str]:
            answer = of.send("POST", at, service("thief", **spec))
            return answer.status, answer.message

        api = server.send("GET", "/api/v1/namespaces/default/services/kubernetes").value["spec"]["clusterIP"]
        status, message = told({"clusterIP": api})
        assert (status, f"failed to allocate IP {api}: provided IP is already allocated" in message) == (422, True), (
            message
        )
        status, message = told({"clusterIP": "8.8.8.8"})
        outside = "failed to allocate IP 8.8.8.8: the provided network does not match the current range"
        assert (status, outside in message) == (422, True), message
        owner = server.create(services, service("owner", type="NodePort"))
        port = owner["spec"]["ports"][0]["nodePort"]
        for number, why in (
            (port, "provided port is already allocated"),
            (10250, "provided port is not in the valid range"),
        ):
            status, message = told({"type": "NodePort", "ports": [{"port": 80, "nodePort": number}]})
            place = f"spec.ports[0].nodePort: Invalid value: {number}: {why}"
            assert (status, place in message) == (422, True), message
        # Whoever has it keeps it, and may give it to another protocol.
        again = {**owner, "spec": {**owner["spec"], "ports": [{**owner["spec"]["ports"][0], "port": 444}]}}
        assert server.send("PUT", f"{services}/owner", again).status == 200
        both_protocols = [
            {"name": each, "port": 53, "protocol": each.upper(), "nodePort": 30053} for each in ("tcp", "udp")
        ]
        assert told({"type": "NodePort", "ports": both_protocols})[0] == 201
        change = [{"op": "replace", "path": "/spec/ports/0/nodePort", "value": port}]
        moved = server.send("PATCH", f"{services}/thief", change, kind="application/json-patch+json")
        assert (moved.status, "provided port is already allocated" in moved.message) == (422, True), moved.message
        for name in ("thief", "owner"):
            server.send("DELETE", f"{services}/{name}")
