"""MutatingAdmissionPolicies on a real server."""

from __future__ import annotations

from typing import Any

from apiserver.live import LiveServer
from apiserver.webhook_server import Webhook

GROUP = "/apis/admissionregistration.k8s.io"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
Object = dict[str, Any]


def applied(expression: str) -> Object:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patched(expression: str) -> Object:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def policy(*mutations: Object, name: str = "change", resource: str = "configmaps", **spec: Any) -> Object:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "reinvocationPolicy": "Never",
            "mutations": list(mutations),
            **spec,
        },
    }


def binding(name: str = "change", **spec: Any) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": f"bind-{name}"},
        "spec": {"policyName": name, **spec},
    }


async def put_up(server: LiveServer, made: Object, bound: Object | None = None, version: str = "v1") -> None:
    for plural, object_ in (
        ("mutatingadmissionpolicies", made),
        ("mutatingadmissionpolicybindings", bound or binding(made["metadata"]["name"])),
    ):
        object_ = {**object_, "apiVersion": f"admissionregistration.k8s.io/{version}"}
        answer = await server.post(f"{GROUP}/{version}/{plural}", object_)
        assert answer.status == 201, answer.json


def config_map(name: str = "c", labels: dict[str, str] | None = None, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels or {}}, "data": data}


def pod(**spec: Any) -> Object:
    container = {"name": "main", "image": "app:1"}
    spec = {"containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


async def created(server: LiveServer, object_: Object, path: str = MAPS) -> Object:
    answer = await server.post(path, object_)
    assert answer.status == 201, answer.json
    found: Object = answer.json
    return found


async def test_an_apply_configuration_is_merged_and_nobody_owns_it(server: LiveServer) -> None:
    for version in ("v1", "v1beta1"):
        expression = f'Object{{metadata: Object.metadata{{labels: {{"{version}": "b"}}}}}}'
        await put_up(server, policy(applied(expression), name=version), version=version)
    found = await created(server, config_map(labels={"mine": "1"}, x="y"))
    assert found["metadata"]["labels"] == {"v1": "b", "v1beta1": "b", "mine": "1"}
    assert found["data"] == {"x": "y"}
    assert [entry["manager"] for entry in found["metadata"]["managedFields"]] == ["Python"]


async def test_a_sidecar_is_added_to_a_list_with_keys_and_gets_defaults(server: LiveServer) -> None:
    expression = """Object{spec: Object.spec{
        initContainers: [Object.spec.initContainers{name: "proxy", image: "proxy:1", restartPolicy: "Always"}]
    }}"""
    conditions = [
        {"name": "new", "expression": "!object.spec.?initContainers.orValue([]).exists(c, c.name == 'proxy')"}
    ]
    await put_up(server, policy(applied(expression), resource="pods", matchConditions=conditions))
    found = await created(server, pod(initContainers=[{"name": "first", "image": "first:1"}]), PODS)
    names = [each["name"] for each in found["spec"]["initContainers"]]
    assert sorted(names) == ["first", "proxy"]
    proxy = next(each for each in found["spec"]["initContainers"] if each["name"] == "proxy")
    assert proxy["terminationMessagePath"] == "/dev/termination-log"
    assert proxy["volumeMounts"], "in-tree plugins run once more"


async def test_a_json_patch_changes_what_it_says_with_escaped_keys(server: LiveServer) -> None:
    expression = """[
        JSONPatch{op: "test", path: "/data/x", value: "y"},
        JSONPatch{op: "replace", path: "/data/x", value: "z"},
        JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/a"), value: "1"},
        JSONPatch{op: "copy", from: "/data/x", path: "/data/copy"}
    ]"""
    await put_up(server, policy(patched(expression)))
    found = await created(server, config_map(labels={"mine": "1"}, x="y"))
    assert found["data"] == {"copy": "z", "x": "z"}
    assert found["metadata"]["labels"] == {"example.com/a": "1", "mine": "1"}
    # A test that fails leaves the object alone.
    assert (await created(server, config_map("other", x="no")))["data"] == {"x": "no"}


async def test_mutations_see_what_those_before_them_did_and_values_may_be_objects(server: LiveServer) -> None:
    await put_up(
        server,
        policy(
            patched(
                '[JSONPatch{op: "add", path: "/spec/hostAliases", value: [Object.spec.hostAliases{ip: "1.2.3.4"}]}]'
            ),
            applied("""Object{metadata: Object.metadata{annotations: {"seen": object.spec.hostAliases[0].ip}}}"""),
            resource="pods",
        ),
    )
    found = await created(server, pod(), PODS)
    assert found["spec"]["hostAliases"] == [{"ip": "1.2.3.4"}]
    assert found["metadata"]["annotations"] == {"seen": "1.2.3.4"}


async def test_variables_and_parameters(server: LiveServer) -> None:
    await created(server, config_map("settings", team="blue"))
    await put_up(
        server,
        policy(
            applied("Object{metadata: Object.metadata{labels: {'team': variables.team, 'user': dyn(variables.who)}}}"),
            paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
            variables=[
                {"name": "team", "expression": "params.data.team"},
                {"name": "who", "expression": "request.userInfo.username.replace(':', '-')"},
            ],
            matchConditions=[{"name": "others", "expression": "object.metadata.name != 'settings'"}],
        ),
        binding(paramRef={"name": "settings", "namespace": "default", "parameterNotFoundAction": "Deny"}),
    )
    found = await created(server, config_map())
    assert found["metadata"]["labels"] == {"team": "blue", "user": "kubernetes-admin"}


async def test_parameters_that_are_missing_refuse_or_let_pass(server: LiveServer) -> None:
    made = policy(
        applied("Object{metadata: Object.metadata{labels: {'team': params.data.team}}}"),
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    await put_up(server, made, binding(paramRef={"name": "no", "parameterNotFoundAction": "Deny"}))
    refused = await server.post(MAPS, config_map())
    assert refused.status == 403
    told = (
        "policy 'change' with binding 'bind-change' denied request: failed to configure binding: "
        "no params found for policy binding with `Deny` parameterNotFoundAction"
    )
    assert refused.json["message"] == told
    allow = binding(paramRef={"name": "no", "parameterNotFoundAction": "Allow"})
    path = f"{GROUP}/v1/mutatingadmissionpolicybindings/bind-change"
    assert (await server.patch(path, {"spec": allow["spec"]})).status == 200
    assert not (await created(server, config_map()))["metadata"].get("labels")


FAILING = {
    "key": (
        applied("Object{data: Object.data{x: object.data.missing}}"),
        "expression 'Object{data: Object.data{x: object.data.missing}}' resulted in error: no such key: missing",
    ),
    "name": (
        applied("Object{metadata: Object.spec{labels: {'a': 'b'}}}"),
        'type mismatch: unexpected type name "Object.spec", expected "Object.metadata", which matches field name path '
        "from root Object type",
    ),
    "field": (
        applied("Object{nothing: 1}"),
        "error applying patch: failed to convert patch object to typed object: .nothing: field not declared in schema",
    ),
    "patch": (
        patched('[JSONPatch{op: "remove", path: "/data/missing"}]'),
        "JSON Patch: error in remove for path: '/data/missing': Unable to remove nonexistent key: missing: missing value",
    ),
}


async def test_what_cannot_be_done_refuses_unless_failures_are_ignored(server: LiveServer) -> None:
    for name, (mutation, told) in FAILING.items():
        only = [{"name": "only", "expression": f"object.metadata.name == '{name}'"}]
        await put_up(server, policy(mutation, name=name, matchConditions=only))
        refused = await server.post(MAPS, config_map(name, x="y"))
        assert (refused.status, refused.json["reason"]) == (403, "Invalid")
        assert refused.json["message"] == f"policy '{name}' with binding 'bind-{name}' denied request: {told}"
        path = f"{GROUP}/v1/mutatingadmissionpolicies/{name}"
        assert (await server.patch(path, {"spec": {"failurePolicy": "Ignore"}})).status == 200
        assert (await created(server, config_map(name, x="y")))["data"] == {"x": "y"}
    atomic = "Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a', operator: 'Exists'}]}}"
    await put_up(server, policy(applied(atomic), name="atomic", resource="pods"))
    refused = await server.post(PODS, pod())
    told = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.tolerations"
    assert refused.json["message"].endswith(told)
    await put_up(server, policy(patched('[JSONPatch{op: "add", path: "/nothing", value: 1}]'), name="unknown"))
    refused = await server.post(MAPS, config_map())
    assert refused.status == 500
    assert 'strict decoding error: unknown field "nothing"' in refused.json["message"]


async def test_who_wants_to_be_is_asked_again_after_others_and_nobody_a_third_time(server: LiveServer) -> None:
    count = "[JSONPatch{op: 'add', path: '/data/%s', value: string(int(object.data[?'%s'].orValue('0')) + 1)}]"
    for name, again in (("a", "IfNeeded"), ("b", "Never"), ("c", "IfNeeded")):
        mutation = patched(count % (name, name))
        await put_up(server, policy(mutation, name=name, reinvocationPolicy=again))
    assert (await created(server, config_map(x="y")))["data"] == {"a": "2", "b": "1", "c": "2", "x": "y"}


async def test_a_webhook_that_wants_to_be_is_asked_again(server: LiveServer, webhook: Webhook) -> None:
    made = webhook.configuration("MutatingWebhookConfiguration")
    second = {**made["webhooks"][0], "name": "second.example.com"}
    made["webhooks"] = [{**made["webhooks"][0], "reinvocationPolicy": "IfNeeded"}, second]
    assert (await server.post(f"{GROUP}/v1/mutatingwebhookconfigurations", made)).status == 201
    webhook.decide = lambda request: webhook.patching(request, "seen", len(webhook.asked))
    assert (await created(server, config_map(x="y")))["metadata"]["labels"] == {"seen": "3"}
    assert len(webhook.asked) == 3
    # Those that judge are asked whatever round there was.
    webhook.asked.clear()
    judging = webhook.configuration("ValidatingWebhookConfiguration")
    assert (await server.post(f"{GROUP}/v1/validatingwebhookconfigurations", judging)).status == 201
    webhook.decide = lambda request: (
        webhook.patching(request, "seen", len(webhook.asked)) if len(webhook.asked) <= 3 else {"allowed": False}
    )
    assert (await server.post(MAPS, config_map("refused"))).status == 403
    assert len(webhook.asked) == 4


async def test_policies_neither_see_nor_change_what_would_lock_administrators_out(server: LiveServer) -> None:
    every = policy(patched("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"))
    every["spec"]["matchConstraints"]["resourceRules"][0] |= {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": ["*"],
    }
    await put_up(server, every)
    other = await server.post(f"{GROUP}/v1/mutatingadmissionpolicies", policy(applied("Object{}"), name="other"))
    assert "labels" not in other.json["metadata"]
    assert (await created(server, config_map()))["metadata"]["labels"] == {"a": "b"}
