"""Create, read, update and delete, with the answers of a kube-apiserver."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.live import LiveServer

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }


async def bound(server: LiveServer, name: str) -> None:
    assert (await server.post(PODS, pod(name))).status == 201
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
    assert (await server.post(f"{PODS}/{name}/binding", binding)).status == 201


# --- create ---


async def test_a_new_object_is_named_numbered_and_dated(any_server: LiveServer) -> None:
    answer = await any_server.post(MAPS, config_map("a", key="value"))
    assert answer.status == 201
    metadata = answer.json["metadata"]
    assert metadata["namespace"] == "default"
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["resourceVersion"].isdigit()
    assert "selfLink" not in metadata
    assert (await any_server.get(f"{MAPS}/a")).json == answer.json


async def test_names_are_generated_from_kubernetes_alphabet(server: LiveServer) -> None:
    names = set()
    for _ in range(20):
        body = {"metadata": {"generateName": "x-"}}
        names.add((await server.post(MAPS, body)).json["metadata"]["name"])
    assert len(names) == 20
    assert all(name.startswith("x-") and set(name[2:]) <= set("bcdfghjklmnpqrstvwxz2456789") for name in names)
    assert all(len(name) == 7 for name in names)


async def test_what_exists_cannot_be_created_again(server: LiveServer) -> None:
    await server.post(MAPS, config_map("a"))
    answer = await server.post(MAPS, config_map("a"))
    assert answer.status == 409
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 409,
    }


async def test_what_is_not_there_is_not_found(server: LiveServer) -> None:
    answer = await server.get(f"{CLASSES}/none")
    assert answer.status == 404
    assert answer.json["message"] == 'deviceclasses.resource.k8s.io "none" not found'
    assert answer.json["details"] == {"name": "none", "group": "resource.k8s.io", "kind": "deviceclasses"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"metadata": {"name": "a", "namespace": "kube-system"}},
            "the namespace of the provided object does not match",
        ),
        ({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}, "cannot be handled as a ConfigMap"),
        ({"apiVersion": "v2", "metadata": {"name": "a"}}, "the API version in the data (v2) does not match"),
        ({"metadata": {"name": "a"}, "data": {"k": 1}}, "cannot unmarshal number"),
        ({"metadata": {"name": "a", "resourceVersion": "5"}}, "resourceVersion should not be set"),
    ],
)
async def test_bodies_that_do_not_fit_are_refused(server: LiveServer, body: dict[str, Any], message: str) -> None:
    answer = await server.post(MAPS, body)
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    assert message in answer.json["message"]


async def test_objects_need_a_namespace_that_is_there(server: LiveServer) -> None:
    answer = await server.post("/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert answer.status == 404
    assert answer.json["message"] == 'namespaces "nowhere" not found'


async def test_a_dry_run_leaves_nothing_behind(any_server: LiveServer) -> None:
    answer = await any_server.post(f"{MAPS}?dryRun=All", config_map("a"))
    assert answer.status == 201
    assert answer.json["metadata"]["uid"]
    assert (await any_server.get(f"{MAPS}/a")).status == 404
    await any_server.post(MAPS, config_map("a", k="1"))
    assert (await any_server.put(f"{MAPS}/a?dryRun=All", config_map("a", k="2"))).json["data"] == {"k": "2"}
    assert (await any_server.delete(f"{MAPS}/a?dryRun=All")).status == 200
    assert (await any_server.get(f"{MAPS}/a")).json["data"] == {"k": "1"}
    answer = await any_server.post(f"{MAPS}?dryRun=Some", config_map("b"))
    assert answer.status == 422
    assert 'dryRun: Unsupported value: "Some": supported values: "All"' in answer.json["message"]


async def test_unknown_fields_are_dropped_told_or_refused(server: LiveServer) -> None:
    body = {**config_map("a"), "sepc": {}}
    answer = await server.post(MAPS, body)
    assert answer.status == 201
    assert answer.headers["Warning"] == '299 - "unknown field \\"sepc\\""'
    assert "sepc" not in answer.json
    answer = await server.post(f"{MAPS}?fieldValidation=Ignore", {**body, "metadata": {"name": "b"}})
    assert "Warning" not in answer.headers
    answer = await server.post(f"{MAPS}?fieldValidation=Strict", {**body, "metadata": {"name": "c"}})
    assert answer.status == 400
    assert answer.json["message"] == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "sepc"'
    )


async def test_duplicate_fields_are_told(server: LiveServer) -> None:
    body = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}'
    answer = await server.post(MAPS, body)
    assert answer.status == 201
    assert answer.headers["Warning"] == '299 - "duplicate field \\"data.k\\""'


async def test_a_field_manager_is_noted(server: LiveServer) -> None:
    answer = await server.post(f"{MAPS}?fieldManager=me", config_map("a", k="v"))
    (entry,) = answer.json["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("me", "Update", "v1")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}
    answer = await server.post(MAPS, config_map("b", k="v"), headers={"User-Agent": "tool/1.0 (linux)"})
    assert answer.json["metadata"]["managedFields"][0]["manager"] == "tool"


# --- update ---


async def test_updates_replace_and_count_up(any_server: LiveServer) -> None:
    created = (await any_server.post(MAPS, config_map("a", k="1"))).json
    answer = await any_server.put(f"{MAPS}/a", config_map("a", k="2"))
    assert answer.status == 200
    assert answer.json["data"] == {"k": "2"}
    assert answer.json["metadata"]["uid"] == created["metadata"]["uid"]
    assert int(answer.json["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])


async def test_an_update_that_changes_nothing_uses_no_revision(server: LiveServer) -> None:
    created = (await server.post(MAPS, config_map("a", k="1"))).json
    assert (await server.put(f"{MAPS}/a", created)).json == created


async def test_an_update_of_an_old_state_conflicts(any_server: LiveServer) -> None:
    created = (await any_server.post(MAPS, config_map("a", k="1"))).json
    await any_server.put(f"{MAPS}/a", config_map("a", k="2"))
    answer = await any_server.put(f"{MAPS}/a", {**created, "data": {"k": "3"}})
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert answer.json["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_of_concurrent_updates_of_one_state_one_wins(any_server: LiveServer) -> None:
    created = (await any_server.post(MAPS, config_map("a", k="0"))).json
    answers = await asyncio.gather(
        *(any_server.put(f"{MAPS}/a", {**created, "data": {"k": str(n)}}) for n in range(1, 9))
    )
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7


async def test_concurrent_patches_all_arrive(any_server: LiveServer) -> None:
    await any_server.post(MAPS, config_map("a"))
    answers = await asyncio.gather(*(any_server.patch(f"{MAPS}/a", {"data": {f"k{n}": "x"}}) for n in range(4)))
    assert [answer.status for answer in answers] == [200] * 4
    assert len((await any_server.get(f"{MAPS}/a")).json["data"]) == 4


async def test_an_update_names_the_right_object(server: LiveServer) -> None:
    created = (await server.post(MAPS, config_map("a"))).json
    answer = await server.put(f"{MAPS}/a", config_map("b"))
    assert answer.json["message"] == "the name of the object (b) does not match the name on the URL (a)"
    wrong = {**created, "metadata": {**created["metadata"], "uid": "other"}}
    answer = await server.put(f"{MAPS}/a", wrong)
    assert answer.status == 409
    assert "Precondition failed: UID in precondition: other" in answer.json["message"]
    assert (await server.put(f"{MAPS}/none", config_map("none"))).status == 404


async def test_leases_are_created_by_update(server: LiveServer) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l1"
    lease = {"metadata": {"name": "l1"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 10}}
    answer = await server.put(path, lease)
    assert answer.status == 201


async def test_status_and_spec_have_separate_doors(server: LiveServer) -> None:
    await server.post(PODS, pod("p"))
    stored = (await server.get(f"{PODS}/p")).json
    changed = {**stored, "status": {"phase": "Running"}}
    assert (await server.put(f"{PODS}/p", changed)).json["status"]["phase"] == "Pending"
    changed["metadata"] = {**changed["metadata"], "labels": {"a": "b"}}
    answer = await server.put(f"{PODS}/p/status", changed)
    assert answer.json["status"]["phase"] == "Running"


# --- delete ---


async def test_a_deletion_answers_with_what_was_deleted(any_server: LiveServer) -> None:
    created = (await any_server.post(MAPS, config_map("a"))).json
    answer = await any_server.delete(f"{MAPS}/a")
    assert answer.status == 200
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]},
    }
    assert (await any_server.get(f"{MAPS}/a")).status == 404
    assert (await any_server.delete(f"{MAPS}/a")).status == 404


async def test_finalizers_hold_an_object_until_the_last_is_gone(any_server: LiveServer) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await any_server.post(MAPS, body)
    answer = await any_server.delete(f"{MAPS}/a")
    assert answer.status == 200
    assert answer.json["metadata"]["deletionTimestamp"]
    answer = await any_server.post(MAPS, config_map("a"))
    assert answer.json["message"] == 'object is being deleted: configmaps "a" already exists'
    answer = await any_server.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}})
    assert answer.status == 200
    assert (await any_server.get(f"{MAPS}/a")).status == 404


async def test_preconditions_protect_from_deleting_another(server: LiveServer) -> None:
    created = (await server.post(MAPS, config_map("a"))).json
    answer = await server.delete(f"{MAPS}/a", {"preconditions": {"uid": "other"}})
    assert answer.status == 409
    assert "the UID in the precondition (other) does not match the UID in record" in answer.json["message"]
    version = created["metadata"]["resourceVersion"]
    await server.put(f"{MAPS}/a", config_map("a", k="v"))
    answer = await server.delete(f"{MAPS}/a", {"preconditions": {"resourceVersion": version}})
    assert answer.status == 409
    answer = await server.delete(f"{MAPS}/a", {"preconditions": {"uid": created["metadata"]["uid"]}})
    assert answer.status == 200


async def test_propagation_policies_become_finalizers(server: LiveServer) -> None:
    await server.post(MAPS, config_map("a"))
    answer = await server.delete(f"{MAPS}/a?propagationPolicy=Foreground")
    assert answer.json["metadata"]["finalizers"] == ["foregroundDeletion"]
    await server.post(MAPS, config_map("b"))
    answer = await server.delete(f"{MAPS}/b", {"propagationPolicy": "Orphan"})
    assert answer.json["metadata"]["finalizers"] == ["orphan"]
    answer = await server.delete(f"{MAPS}/b", {"propagationPolicy": "Sideways"})
    assert answer.status == 422


async def test_a_pod_without_node_goes_at_once(server: LiveServer) -> None:
    await server.post(PODS, pod("p"))
    answer = await server.delete(f"{PODS}/p")
    assert answer.json["kind"] == "Pod"
    assert (await server.get(f"{PODS}/p")).status == 404


async def test_a_running_pod_gets_time_to_end(any_server: LiveServer) -> None:
    await bound(any_server, "p")
    answer = await any_server.delete(f"{PODS}/p")
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 30
    answer = await any_server.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 5
    answer = await any_server.delete(f"{PODS}/p", {"gracePeriodSeconds": 60})
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 5
    await any_server.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await any_server.get(f"{PODS}/p")).status == 404


async def test_a_collection_is_deleted_by_selector(any_server: LiveServer) -> None:
    for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
        body = config_map(name)
        body["metadata"]["labels"] = {"color": color}
        await any_server.post(MAPS, body)
    answer = await any_server.delete(f"{MAPS}?labelSelector=color%3Dred")
    assert answer.status == 200
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["a", "b"]
    left = (await any_server.get(MAPS)).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["c", "kube-root-ca.crt"]


async def test_a_namespace_waits_for_whoever_empties_it(any_server: LiveServer) -> None:
    await any_server.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    answer = await any_server.delete("/api/v1/namespaces/team")
    assert answer.json["status"]["phase"] == "Terminating"
    answer = await any_server.post("/api/v1/namespaces/team/configmaps", config_map("a"))
    assert answer.status == 403
    stored = (await any_server.get("/api/v1/namespaces/team")).json
    stored["spec"] = {}
    assert (await any_server.put("/api/v1/namespaces/team/finalize", stored)).status == 200
    assert (await any_server.get("/api/v1/namespaces/team")).status == 404


# --- subresources ---


async def test_a_pod_is_bound_once(any_server: LiveServer) -> None:
    await bound(any_server, "p")
    stored = (await any_server.get(f"{PODS}/p")).json
    assert stored["spec"]["nodeName"] == "n1"
    conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n2"}}
    answer = await any_server.post(f"{PODS}/p/binding", binding)
    assert answer.status == 409
    assert answer.json["message"] == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
    )


async def test_budgets_hold_back_evictions(server: LiveServer) -> None:
    await bound(server, "p")
    await server.patch(f"{PODS}/p", {"metadata": {"labels": {"app": "x"}}})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await server.patch(f"{PODS}/p/status", {"status": ready})
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    assert (await server.post(path, budget)).status == 201
    status = {
        "disruptionsAllowed": 0,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
        "observedGeneration": 1,
    }
    await server.patch(f"{path}/b/status", {"status": status})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    answer = await server.post(f"{PODS}/p/eviction", eviction)
    assert (answer.status, answer.json["reason"]) == (429, "TooManyRequests")
    assert answer.json["details"]["causes"][0]["message"] == (
        "The disruption budget b needs 1 healthy pods and has 1 currently"
    )
    await server.patch(f"{path}/b/status", {"status": {**status, "disruptionsAllowed": 1}})
    assert (await server.post(f"{PODS}/p/eviction", eviction)).status == 201
    left = (await server.get(f"{path}/b")).json["status"]
    assert (left["disruptionsAllowed"], list(left["disruptedPods"])) == (0, ["p"])
    assert [(one["status"], one["reason"]) for one in left["conditions"]] == [("False", "InsufficientPods")]
    evicted = (await server.get(f"{PODS}/p")).json
    told = next(one for one in evicted["status"]["conditions"] if one["type"] == "DisruptionTarget")
    assert (told["status"], told["reason"]) == ("True", "EvictionByEvictionAPI")
    assert told["message"] == "Eviction API: evicting" and evicted["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "status"),
    [
        ("", 1, 1, 201),
        ("IfHealthyBudget", 1, 1, 201),
        ("IfHealthyBudget", 0, 1, 429),
        ("IfHealthyBudget", 1, 0, 429),
        ("AlwaysAllow", 0, 1, 201),
    ],
)
async def test_a_pod_that_is_not_ready_is_evicted_outside_of_the_budget(
    server: LiveServer, policy: str, healthy: int, desired: int, status: int
) -> None:
    await bound(server, "p")
    await server.patch(f"{PODS}/p", {"metadata": {"labels": {"app": "x"}}})
    await server.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    if policy:
        spec["unhealthyPodEvictionPolicy"] = policy
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await server.post(path, {"metadata": {"name": "b"}, "spec": spec})
    counts = {"currentHealthy": healthy, "desiredHealthy": desired, "disruptionsAllowed": 0, "expectedPods": 2}
    await server.patch(f"{path}/b/status", {"status": {**counts, "observedGeneration": 1}})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await server.post(f"{PODS}/p/eviction", eviction)).status == status
    left = (await server.get(f"{path}/b")).json["status"]
    assert left["disruptionsAllowed"] == 0 and not left.get("disruptedPods")


async def test_deployments_are_scaled(server: LiveServer) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}}
    assert (await server.post(path, body)).status == 201
    scale = (await server.get(f"{path}/d/scale")).json
    assert (scale["kind"], scale["apiVersion"], scale["status"]["selector"]) == ("Scale", "autoscaling/v1", "app=x")
    scale["spec"] = {"replicas": 3}
    assert (await server.put(f"{path}/d/scale", scale)).json["spec"]["replicas"] == 3
    assert (await server.patch(f"{path}/d/scale", {"spec": {"replicas": 5}})).json["spec"]["replicas"] == 5
    assert (await server.get(f"{path}/d")).json["spec"]["replicas"] == 5
    assert (await server.patch(f"{path}/d/scale", {"spec": {"replicas": -1}})).status == 422


async def test_service_accounts_get_tokens_that_work(server: LiveServer) -> None:
    await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = await server.post("/api/v1/namespaces/default/serviceaccounts/robot/token", request)
    assert answer.status == 201
    token = answer.json["status"]["token"]
    async with server.as_nobody() as session:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await server.post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            review,
            session=session,
            headers={"Authorization": f"Bearer {token}"},
        )
    assert answer.status == 201
    assert answer.json["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"


async def test_services_get_addresses(server: LiveServer) -> None:
    path = "/api/v1/namespaces/default/services"
    body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "type": "NodePort"}}
    spec = (await server.post(path, body)).json["spec"]
    assert spec["clusterIP"].startswith("10.")
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert 30000 <= spec["ports"][0]["nodePort"] <= 32767


async def test_a_service_that_nodes_with_endpoints_answer_for_gets_a_health_check_node_port(server: LiveServer) -> None:
    path = "/api/v1/namespaces/default/services"
    spec = {"ports": [{"port": 80}], "type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    made = (await server.post(path, {"metadata": {"name": "s"}, "spec": spec})).json
    port = made["spec"]["healthCheckNodePort"]
    assert 30000 <= port <= 32767
    assert port != made["spec"]["ports"][0]["nodePort"]
    # Who leaves it out keeps it, and nobody changes it.
    without = {name: value for name, value in made["spec"].items() if name != "healthCheckNodePort"}
    kept = (await server.put(f"{path}/s", {**made, "spec": without})).json
    assert kept["spec"]["healthCheckNodePort"] == port
    other = await server.patch(f"{path}/s", {"spec": {"healthCheckNodePort": 30000 if port != 30000 else 30001}})
    assert (other.status, "spec.healthCheckNodePort: Forbidden: field is immutable" in other.json["message"]) == (
        422,
        True,
    )
    # It goes with the policy that it is for.
    everywhere = await server.patch(f"{path}/s", {"spec": {"externalTrafficPolicy": "Cluster"}})
    assert everywhere.status == 200, everywhere.json
    assert "healthCheckNodePort" not in everywhere.json["spec"]
    wrong = await server.post(path, {"metadata": {"name": "t"}, "spec": {**spec, "healthCheckNodePort": 70000}})
    assert (wrong.status, "provided port is not in the valid range" in wrong.json["message"]) == (422, True)


async def test_a_service_that_becomes_a_name_gives_its_addresses_back(server: LiveServer) -> None:
    path = "/api/v1/namespaces/default/services"
    body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "type": "NodePort", "selector": {"a": "b"}}}
    made = (await server.post(path, body)).json
    made["spec"] |= {"type": "ExternalName", "externalName": "foo.example.com", "clusterIP": ""}
    del made["spec"]["clusterIPs"]
    named = await server.put(f"{path}/s", made)
    assert named.status == 200, named.json
    assert set(named.json["spec"]) == {"externalName", "ports", "selector", "sessionAffinity", "type"}
    assert "nodePort" not in named.json["spec"]["ports"][0]
    back = await server.patch(f"{path}/s", {"spec": {"type": "NodePort", "externalName": None}})
    assert back.json["spec"]["clusterIP"] and back.json["spec"]["ports"][0]["nodePort"]


async def test_addresses_of_both_families_are_names_of_ipaddresses(server: LiveServer) -> None:
    path = "/apis/networking.k8s.io/v1/ipaddresses"
    parent = {"parentRef": {"resource": "services", "name": "s", "namespace": "default"}}
    for name in ("192.0.2.7", "2001:db8::ffff"):
        assert (await server.post(path, {"metadata": {"name": name}, "spec": parent})).status == 201
        assert (await server.get(f"{path}/{name}")).json["metadata"]["name"] == name
        assert (await server.patch(f"{path}/{name}", {"metadata": {"labels": {"a": "b"}}})).status == 200
        assert (await server.delete(f"{path}/{name}")).status == 200
    refused = await server.post(path, {"metadata": {"name": "2001:db8:0:0::1"}, "spec": parent})
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (422, "metadata.name")


# --- who may ---


async def test_everybody_else_needs_a_right(server: LiveServer) -> None:
    async with server.as_user("jane") as session:
        answer = await server.get(MAPS, session=session)
    assert answer.status == 403
    assert answer.json["message"] == (
        'configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "default"'
    )
    async with server.as_nobody() as session:
        answer = await server.get(MAPS, session=session)
        assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
        assert (await server.get("/readyz", session=session)).status == 200


async def test_duplicate_fields_are_told_also_when_the_same_spec_came_without(server: LiveServer) -> None:
    clean = b'"spec":{"containers":[{"name":"c","image":"i"}]}}'
    double = b'"spec":{"containers":[{"name":"c","image":"i","image":"i"}]}}'
    pods = "/api/v1/namespaces/default/pods"
    warnings = []
    for name, spec in ((b"one", clean), (b"two", double), (b"three", clean)):
        answer = await server.post(pods, b'{"metadata":{"name":"' + name + b'"},' + spec)
        assert answer.status == 201
        warnings.append(answer.headers.get("Warning", ""))
    assert ["duplicate field" in warning for warning in warnings] == [False, True, False]
    assert "spec.containers[0].image" in warnings[1]


@pytest.mark.parametrize("policies", [[], None, "absent"])
async def test_an_autoscaler_that_lists_no_policy_is_refused_and_one_without_the_list_gets_the_default(
    server: LiveServer, policies: Any
) -> None:
    rules = {"selectPolicy": "Max", **({} if policies == "absent" else {"policies": policies})}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "behavior": {"scaleUp": rules}}
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    answer = await server.post(path, {"metadata": {"name": "web"}, "spec": spec})
    if policies == []:
        assert answer.status == 422
        assert answer.json["message"].endswith(
            "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"
        )
        return
    assert [each["type"] for each in answer.json["spec"]["behavior"]["scaleUp"]["policies"]] == ["Pods", "Percent"]
    emptied = {"spec": {"behavior": {"scaleUp": {"policies": []}}}}
    assert (await server.patch(f"{path}/web", emptied)).status == 422


async def test_a_daemon_set_counts_its_templates_in_an_annotation(server: LiveServer) -> None:
    """As kube-apiserver v1.37.0-rc.1 does, whatever a client writes there."""
    path, name = "/apis/apps/v1/namespaces/default/daemonsets", "deprecated.daemonset.template.generation"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = (await server.post(path, {"metadata": {"name": "agent"}, "spec": spec})).json
    assert made["metadata"]["annotations"] == {name: "1"}

    async def patched(patch: dict[str, Any]) -> Any:
        return (await server.patch(f"{path}/agent", patch)).json["metadata"]["annotations"][name]

    assert await patched({"metadata": {"annotations": {name: "7"}}, "spec": {"revisionHistoryLimit": 3}}) == "1"
    assert await patched({"metadata": {"annotations": None}, "spec": {"minReadySeconds": 1}}) == "1"
    assert await patched({"spec": {"template": {"metadata": {"annotations": {"x": "y"}}}}}) == "2"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"podCIDR": "10.2.0.0/24"}, ["10.2.0.0/24"]),
        ({"podCIDRs": ["10.2.0.0/24"]}, ["10.2.0.0/24"]),
        ({"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.3.0.0/24"]}, ["10.2.0.0/24"]),
    ],
)
async def test_a_node_has_its_network_in_both_fields(
    server: LiveServer, given: dict[str, Any], expected: list[str]
) -> None:
    spec = (await server.post("/api/v1/nodes", {"metadata": {"name": "n"}, "spec": given})).json["spec"]
    assert (spec["podCIDR"], spec["podCIDRs"]) == (expected[0], expected)


async def test_the_data_of_a_revision_is_the_text_that_go_would_write(any_server: LiveServer) -> None:
    """kube-controller-manager compares it as text, and makes revisions for ever of a DaemonSet that it does not find."""
    path = "/apis/apps/v1/namespaces/default/controllerrevisions"
    data = {"spec": {"template": {"$patch": "replace", "args": ["1 < 2 && 3 > 2"]}}}
    text = b'"data":{"spec":{"template":{"$patch":"replace","args":["1 \\u003c 2 \\u0026\\u0026 3 \\u003e 2"]}}}'
    made = await any_server.post(path, {"metadata": {"name": "r"}, "revision": 1, "data": data})
    assert made.status == 201 and text in made.raw
    for answer in (await any_server.get(f"{path}/r"), await any_server.get(path)):
        assert text in answer.raw and data in (
            answer.json.get("data"),
            *(i["data"] for i in answer.json.get("items", ())),
        )


async def test_discovery_tells_the_storage_version_as_kube_apiserver_does(server: LiveServer) -> None:
    async def hashes(path: str) -> dict[str, str]:
        return {each["name"]: each.get("storageVersionHash", "") for each in (await server.get(path)).json["resources"]}

    core, apps, events = [await hashes(path) for path in ("/api/v1", "/apis/apps/v1", "/apis/events.k8s.io/v1")]
    assert (core["pods"], apps["deployments"]) == ("xPOwRZ+Yhw8=", "8aSe+NMegvE=")
    assert events["events"] == core["events"] != ""
    assert core["bindings"] == core["pods/status"] == ""


async def test_pods_of_jobs_and_replication_controllers_stay_unless_somebody_says_otherwise(server: LiveServer) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    job = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    kinds = {
        "/apis/batch/v1/namespaces/default/jobs": {"template": job},
        "/api/v1/namespaces/default/replicationcontrollers": {"selector": {"a": "b"}, "template": template},
    }
    for path, spec in kinds.items():
        for name, options, finalizers in (("x", None, ["orphan"]), ("y", {"propagationPolicy": "Background"}, [])):
            answer = await server.post(path, {"metadata": {"name": name}, "spec": spec})
            assert answer.status == 201, answer.json
            answer = await server.delete(f"{path}/{name}", options)
            assert answer.json.get("metadata", {}).get("finalizers", []) == finalizers
            warns = "child pods are preserved by default" in answer.headers.get("Warning", "")
            assert warns is (path.endswith("/jobs") and options is None)
