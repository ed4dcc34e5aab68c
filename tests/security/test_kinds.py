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


def warnings(answer: Answer) -> list[str]:
    headers: Any = answer.headers
    return [each.removeprefix(TOLD).strip('"') for each in headers.get_all("Warning") or ()]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("MutatingAdmissionPolicy", "allot does not apply MutatingAdmissionPolicies"),
        ("MutatingAdmissionPolicyBinding", "allot does not apply MutatingAdmissionPolicies"),
        ("FlowSchema", "allot does not sort requests by FlowSchemas"),
        ("PriorityLevelConfiguration", "allot does not limit requests by PriorityLevelConfigurations"),
        ("StorageVersionMigration", "allot has no controller that migrates stored versions"),
        ("CertificateSigningRequest", "allot has no controllers that approve and sign"),
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
