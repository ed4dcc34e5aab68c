"""MutatingAdmissionPolicies word for word as a real kube-apiserver applies them, where KUBEBUILDER_ASSETS has one."""

from __future__ import annotations

from typing import Any

import pytest

from security.servers import Answer, Both, Server
from waiting import wait_for

Object = dict[str, Any]

GROUP = "/apis/admissionregistration.k8s.io/v1"
COUNT = "[JSONPatch{{op: 'add', path: '/data/{0}', value: string(int(object.data[?'{0}'].orValue('0')) + 1)}}]"


def applied(expression: str) -> Object:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patched(expression: str) -> Object:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


POD: Object = {"spec": {"automountServiceAccountToken": False, "containers": [{"name": "main", "image": "app:1"}]}}
# Policies as (mutations, more of the spec), and whether they are about pods.
CASES: dict[str, tuple[list[tuple[list[Object], Object]], bool]] = {
    "labels": ([([applied('Object{metadata: Object.metadata{labels: {"a": "b"}}}')], {})], False),
    "sidecar": (
        [
            (
                [
                    applied(
                        "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{"
                        "name: 'proxy', image: 'proxy:1', restartPolicy: 'Always'}]}}"
                    )
                ],
                {},
            )
        ],
        True,
    ),
    "rounds": (
        [
            ([patched(COUNT.format(name))], {"reinvocationPolicy": again})
            for name, again in (("a", "IfNeeded"), ("b", "Never"))
        ],
        False,
    ),
    "missing key": ([([applied("Object{data: Object.data{x: object.data.missing}}")], {})], False),
    "wrong name": ([([applied("Object{metadata: Object.spec{labels: {'a': 'b'}}}")], {})], False),
    "undeclared": ([([applied("Object{nothing: 1}")], {})], False),
    "atomic": (
        [([applied("Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a'}]}}")], {})],
        True,
    ),
    "remove": ([([patched('[JSONPatch{op: "remove", path: "/data/missing"}]')], {})], False),
    "unknown field": ([([patched('[JSONPatch{op: "add", path: "/nothing", value: 1}]')], {})], False),
    "wrong type": ([([patched('[JSONPatch{op: "add", path: "/data/x", value: 1}]')], {})], False),
    "null": ([([patched('[JSONPatch{op: "add", path: "/data/y", value: null}]')], {})], False),
    "objects": (
        [
            (
                [
                    patched(
                        "[JSONPatch{op: 'add', path: '/spec/hostAliases', value: [Object.spec.hostAliases{ip: '1.2.3.4'}]}]"
                    )
                ],
                {},
            )
        ],
        True,
    ),
    "conditions": (
        [
            (
                [applied("Object{data: Object.data{y: '1'}}")],
                {"matchConditions": [{"name": "a", "expression": "object.data.nothing == 'x'"}]},
            )
        ],
        False,
    ),
}


def put_up(server: Server, namespace: str, case: str) -> None:
    for number, (mutations, more) in enumerate(CASES[case][0]):
        name = f"{namespace}-{number}"
        plural = "pods" if CASES[case][1] else "configmaps"
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [plural]}
        selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        constraints = {"resourceRules": [rule], "namespaceSelector": selector}
        spec = {"matchConstraints": constraints, "reinvocationPolicy": "Never", "mutations": mutations, **more}
        server.create(f"{GROUP}/mutatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
        binding = {"metadata": {"name": name}, "spec": {"policyName": name}}
        server.create(f"{GROUP}/mutatingadmissionpolicybindings", binding)


def outcome(answer: Answer) -> Any:
    """What does not differ between two servers that do the same."""
    value = answer.value
    if answer.status != 201:
        return answer.status, value["message"], value.get("reason"), value.get("details")
    spec = value.get("spec") or {}
    shown = {name: spec.get(name) for name in ("initContainers", "hostAliases")}
    return 201, value["metadata"].get("labels"), value.get("data"), shown


def tried(server: Server, namespace: str, case: str) -> Any:
    is_pod = CASES[case][1]
    server.send("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    path = f"/api/v1/namespaces/{namespace}/{'pods' if is_pod else 'configmaps'}?dryRun=All"
    body = {"metadata": {"name": "o"}, **(POD if is_pod else {"data": {"x": "y"}})}
    plain = outcome(server.send("POST", path, body))
    put_up(server, namespace, case)

    def look() -> Any:
        # kube-apiserver sees its own policies a moment later, and not all at once.
        found = outcome(server.send("POST", path, body))
        done = found != plain and (case != "rounds" or (found[2] or {}).keys() >= {"a", "b"})
        return found if done else None

    return wait_for(f"{server.name}: the policies of {case} are in force", look)


@pytest.mark.parametrize("case", sorted(CASES))
def test_policies_do_what_they_do_on_a_kube_apiserver(both: Both, namespace: str, case: str) -> None:
    if both.kubernetes is None:
        pytest.skip("KUBEBUILDER_ASSETS has no kube-apiserver")
    assert tried(both.allot, namespace, case) == tried(both.kubernetes, namespace, case)
