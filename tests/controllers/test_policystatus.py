"""status.typeChecking of policies on a real API server; the warnings are those of a kube-controller-manager 1.37."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from allot.controllers import policystatus
from controllers.tidy_cluster import Cluster, cluster

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

Object = dict[str, Any]
V1 = "admissionregistration.k8s.io/v1"
POLICY = "ValidatingAdmissionPolicy"
DEPLOYMENT = "apps/v1, Kind=Deployment"
POD = "/v1, Kind=Pod"
DEFINITION = "apiextensions.k8s.io/v1, Kind=CustomResourceDefinition"
CRON = "stable.example.com/v1, Kind=CronTab"
CRON_SPEC: Object = {
    "replicas": {"type": "integer"},
    "any": {"x-kubernetes-int-or-string": True},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "embedded": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "when": {"type": "string", "format": "date-time"},
    "preserving": {"x-kubernetes-preserve-unknown-fields": True},
}


def definition() -> Object:
    """A custom resource in two versions."""
    schemas = (
        {"type": "object", "properties": CRON_SPEC},
        {"type": "object", "properties": {"replicas": {"type": "string"}}},
    )
    return {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab"},
        "versions": [
            {
                "name": f"v{number}",
                "served": True,
                "storage": number == 1,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }
            for number, spec in enumerate(schemas, 1)
        ],
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tidy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path_factory.mktemp("policies"), policystatus.make) as made:
        name = "crontabs.stable.example.com"
        await made.create("apiextensions.k8s.io/v1", "CustomResourceDefinition", name, spec=definition())

        async def is_served() -> bool:
            answer = await made.server.get("/openapi/v3")
            return "apis/stable.example.com/v2" in answer.json["paths"]

        await made.eventually(is_served)
        yield made


def rule(group: str, version: str, *resources: str) -> Object:
    return {"apiGroups": [group], "apiVersions": [version], "resources": list(resources), "operations": ["*"]}


async def status(tidy: Cluster, name: str, spec: Object) -> Object:
    """The status of a new policy as soon as it is checked."""
    await tidy.create(V1, POLICY, name, spec=spec)
    try:

        async def checked() -> Object | None:
            found = (await tidy.get(V1, POLICY, name) or {}).get("status") or {}
            return found if "typeChecking" in found else None

        told: Object = await tidy.eventually(checked)
        return told
    finally:
        await tidy.delete(V1, POLICY, name)


def warning(source: str, kind: str, *problems: tuple[int, str]) -> str:
    """The text for one kind, with its problems by column."""
    lines = [f"ERROR: <input>:1:{at}: {text}\n | {source}\n | {'.' * (at - 1)}^" for at, text in problems]
    return f"{kind}: " + "\n".join(lines) + "\n"


def no_overload(operator: str, *types: str) -> str:
    return f"found no matching overload for '{operator}' applied to '({', '.join(types)})'"


CASES: list[tuple[str, Object, str, dict[str, list[tuple[int, str]]]]] = [
    ("fine", rule("apps", "v1", "deployments"), "object.spec.replicas > 1", {}),
    ("confused", rule("apps", "v1", "deployments"), "object.spec.replicas > '1'",
     {DEPLOYMENT: [(22, no_overload("_>_", "int", "string"))]}),
    ("several", rule("apps", "v1", "deployments"), "object.spec.foo == 1 && object.spec.bar == 2",
     {DEPLOYMENT: [(12, "undefined field 'foo'"), (36, "undefined field 'bar'")]}),
    ("two-kinds", rule("apps", "v1", "deployments", "replicasets"), "object.spec.strategy.type == 1",
     {DEPLOYMENT: [(27, no_overload("_==_", "string", "int"))],
      "apps/v1, Kind=ReplicaSet": [(12, "undefined field 'strategy'")]}),
    ("old", rule("apps", "v1", "deployments"), "oldObject.spec.foo == 1", {DEPLOYMENT: [(15, "undefined field 'foo'")]}),
    # A quantity has no single type, so upstream hides what has some.
    ("quantity", rule("", "v1", "pods"), "object.spec.containers.all(c, c.resources.limits['cpu'] == '1')",
     {POD: [(42, "undefined field 'limits'")]}),
    ("authorizer", rule("", "v1", "pods"), "authorizer.requestResource.check('create').allowed()",
     {POD: [(11, "unexpected failed resolution of 'kubernetes.authorization.Authorizer'")]}),
    ("time", rule("", "v1", "pods"), "object.metadata.creationTimestamp == 'x'",
     {POD: [(35, no_overload("_==_", "timestamp", "string"))]}),
    ("fields", rule("", "v1", "pods"), "object.metadata.managedFields[0].fieldsV1.x == 1",
     {POD: [(42, "undefined field 'x'")]}),
    ("singular", rule("", "v1", "pod"), "object.foo == 1", {POD: [(7, "undefined field 'foo'")]}),
    ("short-name", rule("", "v1", "po"), "object.foo == 1", {}),
    ("subresource", rule("", "v1", "pods/exec"), "object.foo == 1", {}),
    ("any-group", rule("*", "v1", "pods"), "object.foo == 1", {}),
    ("unknown", rule("example.com", "v1", "things"), "object.foo == 1", {}),
    ("int-or-string", rule("", "v1", "services"), "object.spec.ports[0].targetPort == 80", {}),
    ("bytes", rule("", "v1", "secrets"), "object.data['a'] == 'a'",
     {"/v1, Kind=Secret": [(18, no_overload("_==_", "bytes", "string"))]}),
    ("escaped", rule("rbac.authorization.k8s.io", "v1", "rolebindings"), "object.subjects[0].__namespace__ == 1",
     {"rbac.authorization.k8s.io/v1, Kind=RoleBinding": [(34, no_overload("_==_", "string", "int"))]}),
    ("recursive", rule("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
     "object.spec.versions[0].schema.openAPIV3Schema.properties['a'].type == 1",
     {DEFINITION: [(63, "undefined field 'type'")]}),
    ("number", rule("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
     "object.spec.versions[0].schema.openAPIV3Schema.maximum == 'a'",
     {DEFINITION: [(56, no_overload("_==_", "double", "string"))]}),
    ("custom", {**rule("stable.example.com", "v1", "crontabs"), "apiVersions": ["v1", "v2"]},
     "object.spec.replicas == 'a'", {CRON: [(22, no_overload("_==_", "int", "string"))]}),
    ("custom-any", rule("stable.example.com", "v1", "crontabs"), "object.spec.any == 1 || object.spec.any == 'x'", {}),
    ("custom-free", rule("stable.example.com", "v1", "crontabs"), "object.spec.free.x == 1",
     {CRON: [(17, "undefined field 'x'")]}),
    ("custom-preserving", rule("stable.example.com", "v1", "crontabs"), "object.spec.preserving == 1",
     {CRON: [(12, "undefined field 'preserving'")]}),
    ("custom-embedded", rule("stable.example.com", "v1", "crontabs"), "object.spec.embedded.metadata.name == 1",
     {CRON: [(36, no_overload("_==_", "string", "int"))]}),
    ("custom-meta", rule("stable.example.com", "v1", "crontabs"), "object.metadata.labels['a'] == 1",
     {CRON: [(29, no_overload("_==_", "string", "int"))]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "matched", "source", "expected"), CASES, ids=[case[0] for case in CASES])
async def test_an_expression_is_checked_against_the_kinds_that_its_policy_names(
    tidy: Cluster, name: str, matched: Object, source: str, expected: dict[str, list[tuple[int, str]]]
) -> None:
    spec = {"matchConstraints": {"resourceRules": [matched]}, "validations": [{"expression": source}]}
    told = await status(tidy, name, spec)
    warnings = [each["warning"] for each in told["typeChecking"].get("expressionWarnings", [])]
    text = "\n".join(warning(source, kind, *problems) for kind, problems in expected.items())
    assert warnings == ([text] if text else [])
    assert told["observedGeneration"] == 1


async def test_variables_and_parameters_have_types_and_objects_in_variables_none(tidy: Cluster) -> None:
    variables = {
        "s": "object.spec",
        "r": "object.spec.replicas",
        "bad": "object.spec.foo",
        "l": "object.spec.template.spec.containers",
        "c": "object.spec.template.spec.containers.map(x, x.name)",
    }
    sources = ("variables.s.foo == 1", "variables.r == 'a'", "variables.bad == 1", "variables.l[0].foo == 'a'",
               "variables.c == [1]", "params.data.x == 1", "params.foo == 1")  # fmt: skip
    spec = {
        "matchConstraints": {"resourceRules": [rule("apps", "v1", "deployments")]},
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": name, "expression": source} for name, source in variables.items()],
        "validations": [{"expression": source} for source in sources],
    }
    told = (await status(tidy, "typed", spec))["typeChecking"]["expressionWarnings"]
    assert {each["fieldRef"]: each["warning"] for each in told} == {
        f"spec.validations[{position}].expression": warning(sources[position], DEPLOYMENT, problem)
        for position, problem in {
            1: (13, no_overload("_==_", "int", "string")),
            4: (13, no_overload("_==_", "list(string)", "list(int)")),
            5: (15, no_overload("_==_", "string", "int")),
            6: (7, "undefined field 'foo'"),
        }.items()
    }


async def test_messages_are_checked_and_a_changed_policy_again(tidy: Cluster) -> None:
    validation = {"expression": "true", "messageExpression": "'got ' + object.spec.replicas"}
    spec = {"matchConstraints": {"resourceRules": [rule("apps", "v1", "deployments")]}, "validations": [validation]}
    await tidy.create(V1, POLICY, "changing", spec=spec)

    async def checked(generation: int) -> list[Object] | None:
        found = (await tidy.get(V1, POLICY, "changing") or {}).get("status") or {}
        if found.get("observedGeneration") != generation:
            return None
        return [*found["typeChecking"].get("expressionWarnings", []), {}]

    first, _ = await tidy.eventually(lambda: checked(1))
    assert first["fieldRef"] == "spec.validations[0].messageExpression"
    assert no_overload("_+_", "string", "int") in first["warning"]
    policies = await tidy.client.of_kind(V1, POLICY)
    current = await policies.get("changing")
    validation["messageExpression"] = "'got ' + string(object.spec.replicas)"
    await policies.update({**current, "spec": {**current["spec"], "validations": [validation]}})
    assert await tidy.eventually(lambda: checked(2)) == [{}]
