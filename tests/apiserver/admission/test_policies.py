"""ValidatingAdmissionPolicies on a real server."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.live import LiveServer

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"


def policy(name: str = "guard", **spec: Any) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, **spec},
    }


def binding(name: str = "everywhere", policy_name: str = "guard", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": policy_name, "validationActions": ["Deny"], **spec},
    }


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def put_up(server: LiveServer, made: dict[str, Any], bound: dict[str, Any] | None = None) -> None:
    answer = await server.post(f"{GROUP}/validatingadmissionpolicies", made)
    assert answer.status == 201, answer.json
    answer = await server.post(f"{GROUP}/validatingadmissionpolicybindings", bound or binding())
    assert answer.status == 201, answer.json


async def test_a_policy_denies_in_upstreams_words(any_server: LiveServer) -> None:
    await put_up(any_server, policy(validations=[{"expression": "has(object.data) && 'owner' in object.data"}]))
    refused = await any_server.post(MAPS, config_map(x="y"))
    assert refused.status == 422
    told = (
        "ValidatingAdmissionPolicy 'guard' with binding 'everywhere' denied request: "
        "failed expression: has(object.data) && 'owner' in object.data"
    )
    assert refused.json["message"] == f'configmaps "c" is forbidden: {told}'
    assert refused.json["reason"] == "Invalid"
    assert refused.json["details"]["causes"] == [{"message": told}]
    assert (await any_server.post(MAPS, config_map(owner="me"))).status == 201


@pytest.mark.parametrize(
    ("validation", "code", "message"),
    [
        ({"expression": "false", "message": "no way"}, 422, "no way"),
        ({"expression": "false", "message": "no", "reason": "Forbidden"}, 403, "no"),
        ({"expression": "false", "messageExpression": "'not ' + object.metadata.name"}, 422, "not c"),
        ({"expression": "false", "message": "plain", "messageExpression": "string(object.nothing)"}, 422, "plain"),
        ({"expression": "object.data.missing == 'x'"}, 422, "expression 'object.data.missing == 'x'' resulted in error: no such key: missing"),
    ],
)  # fmt: skip
async def test_messages_and_reasons(server: LiveServer, validation: dict[str, Any], code: int, message: str) -> None:
    await put_up(server, policy(validations=[validation]))
    refused = await server.post(MAPS, config_map(a="b"))
    assert refused.status == code
    assert refused.json["message"].endswith(f"denied request: {message}")


async def test_a_policy_comes_before_what_the_store_would_refuse(server: LiveServer) -> None:
    await put_up(server, policy(validations=[{"expression": "object.metadata.name != 'c'", "message": "not this one"}]))
    refused = []
    for name in ("c", "d"):
        made = config_map(name)
        made["metadata"]["resourceVersion"] = "5"
        refused.append((await server.post(MAPS, made)).json)
    assert [each["code"] for each in refused] == [422, 400]
    assert refused[0]["message"].endswith("not this one")
    assert refused[1]["message"] == "resourceVersion should not be set on objects to be created"


async def test_errors_may_be_ignored(server: LiveServer) -> None:
    await put_up(server, policy(failurePolicy="Ignore", validations=[{"expression": "object.data.missing == 'x'"}]))
    assert (await server.post(MAPS, config_map(a="b"))).status == 201


async def test_a_binding_may_only_warn(server: LiveServer) -> None:
    bound = binding(validationActions=["Warn", "Audit"])
    await put_up(server, policy(validations=[{"expression": "false", "message": "careful"}]), bound)
    made = await server.post(MAPS, config_map())
    assert made.status == 201
    expected = "Validation failed for ValidatingAdmissionPolicy 'guard' with binding 'everywhere': careful"
    assert expected in made.headers["Warning"]


async def test_variables_and_match_conditions(server: LiveServer) -> None:
    await put_up(
        server,
        policy(
            matchConditions=[{"name": "mine", "expression": "request.userInfo.username == 'kubernetes-admin' || true"}],
            variables=[
                {"name": "size", "expression": "has(object.data) ? object.data.size() : 0"},
                {"name": "small", "expression": "variables.size < 2"},
            ],
            validations=[{"expression": "variables.small", "messageExpression": "'has ' + string(variables.size)"}],
        ),
    )
    refused = await server.post(MAPS, config_map(a="1", b="2"))
    assert refused.json["message"].endswith("denied request: has 2")
    assert (await server.post(MAPS, config_map(a="1"))).status == 201


async def test_conditions_that_do_not_hold_skip_the_policy(server: LiveServer) -> None:
    conditions = [{"name": "never", "expression": "request.operation == 'DELETE'"}]
    await put_up(server, policy(matchConditions=conditions, validations=[{"expression": "false"}]))
    assert (await server.post(MAPS, config_map())).status == 201


async def test_selectors_narrow_a_policy(server: LiveServer) -> None:
    bound = binding(matchResources={"namespaceSelector": {"matchLabels": {"guarded": "yes"}}})
    await put_up(server, policy(validations=[{"expression": "false"}]), bound)
    assert (await server.post(MAPS, config_map())).status == 201
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": {"guarded": "yes"}}}
    await server.post("/api/v1/namespaces", namespace)
    assert (await server.post("/api/v1/namespaces/other/configmaps", config_map())).status == 422


async def test_parameters_come_from_objects(server: LiveServer) -> None:
    made = policy(
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        validations=[{"expression": "object.data.size() <= int(params.data.limit)"}],
    )
    made["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = ["secrets"]
    reference = {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}
    await put_up(server, made, binding(paramRef=reference))
    secrets = "/api/v1/namespaces/default/secrets"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "", "b": ""}}
    missing = await server.post(secrets, secret)
    assert missing.json["message"].endswith(
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    )
    await server.post(MAPS, config_map("limits", limit="1"))
    assert (await server.post(secrets, secret)).status == 422
    await server.patch(f"{MAPS}/limits", {"data": {"limit": "2"}})
    assert (await server.post(secrets, secret)).status == 201


async def test_an_update_sees_the_old_object_and_a_delete_only_that(server: LiveServer) -> None:
    made = policy(validations=[{"expression": "oldObject == null || object == null || object.data == oldObject.data"}])
    made["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = ["*"]
    await put_up(server, made)
    assert (await server.post(MAPS, config_map(a="1"))).status == 201
    assert (await server.patch(f"{MAPS}/c", {"data": {"a": "2"}})).status == 422
    assert (await server.patch(f"{MAPS}/c", {"metadata": {"labels": {"x": "y"}}})).status == 200
    assert (await server.delete(f"{MAPS}/c")).status == 200


async def test_the_authorizer_can_be_asked(server: LiveServer) -> None:
    expression = "authorizer.group('').resource('secrets').namespace('default').check('delete').allowed()"
    await put_up(server, policy(validations=[{"expression": expression, "message": "not you"}]))
    assert (await server.post(MAPS, config_map())).status == 201
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "maps"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}],
    }
    bound = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    assert (await server.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)).status == 201
    assert (await server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", bound)).status == 201
    async with server.as_user("jane") as session:
        refused = await server.post(MAPS, config_map("d"), session=session)
    assert refused.json["message"].endswith("denied request: not you")


async def test_a_policy_guards_slices_in_any_version(server: LiveServer) -> None:
    """What drivers' charts do: a driver may only publish slices of its own node."""
    made = policy(
        matchConditions=[{"name": "driver", "expression": "request.userInfo.username == 'kubernetes-admin' || true"}],
        variables=[
            {
                "name": "node",
                "expression": "request.operation == 'DELETE' ? oldObject.spec.?nodeName.orValue('') : object.spec.?nodeName.orValue('')",
            }
        ],
        validations=[
            {
                "expression": "variables.node == 'n1'",
                "messageExpression": "'this user may not modify resourceslices of node ' + variables.node",
            }
        ],
    )
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1beta1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["resourceslices"],
    }
    made["spec"]["matchConstraints"]["resourceRules"] = [rule]
    await put_up(server, made)
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com",
            "nodeName": "n2",
            "pool": {"name": "n2", "generation": 1, "resourceSliceCount": 1},
        },
    }
    refused = await server.post("/apis/resource.k8s.io/v1/resourceslices", slice_)
    assert refused.json["message"].endswith("this user may not modify resourceslices of node n2")
    slice_["spec"]["nodeName"] = "n1"
    assert (await server.post("/apis/resource.k8s.io/v1/resourceslices", slice_)).status == 201


@pytest.mark.parametrize(
    ("spec", "field", "told"),
    [
        ({"validations": [{"expression": "object.+"}]}, "spec.validations[0].expression", "compilation failed"),
        ({"validations": [{"expression": "1"}]}, "spec.validations[0].expression", "must evaluate to bool but got int"),
        ({"validations": [{"expression": "params.x"}]}, "spec.validations[0].expression", "undeclared reference to 'params'"),
        ({"validations": [{"expression": "true", "messageExpression": "1"}]}, "spec.validations[0].messageExpression", "must evaluate to string but got int"),
    ],
)  # fmt: skip
async def test_policies_that_do_not_compile_are_refused(
    server: LiveServer, spec: dict[str, Any], field: str, told: str
) -> None:
    refused = await server.post(f"{GROUP}/validatingadmissionpolicies", policy(**spec))
    assert refused.status == 422, refused.json
    assert refused.json["details"]["causes"][0]["field"] == field
    assert told in refused.json["message"]


async def test_policies_cannot_lock_out_those_who_mend_them(server: LiveServer) -> None:
    made = policy(validations=[{"expression": "false"}])
    made["spec"]["matchConstraints"]["resourceRules"][0] |= {
        "apiGroups": ["*"],
        "resources": ["*"],
        "operations": ["*"],
        "apiVersions": ["*"],
    }
    await put_up(server, made)
    assert (await server.post(MAPS, config_map())).status == 422
    assert (await server.delete(f"{GROUP}/validatingadmissionpolicies/guard")).status == 200
    assert (await server.post(MAPS, config_map())).status == 201
