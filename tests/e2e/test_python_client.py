"""The official Python client: typed, dynamic, watches, patches, apply, leader election, errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from kubernetes import client, config, utils, watch
from kubernetes.client.rest import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import BadRequestError, ConflictError, NotFoundError
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

from e2e.servers import ServerProcess

pytestmark = pytest.mark.slow

_numbers = count(1)


@pytest.fixture
def api(any_server: ServerProcess) -> Iterator[Any]:
    """The client of the administrator."""
    with config.new_client_from_config(str(any_server.kubeconfig)) as api_client:
        yield api_client
        api_client.rest_client.pool_manager.clear()


@pytest.fixture
def namespace(api: Any) -> str:
    """A new namespace."""
    name = f"python-{next(_numbers)}"
    client.CoreV1Api(api).create_namespace({"metadata": {"name": name}})
    return name


def _claim(name: str, count_: int = 1) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": count_}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def _pod(name: str) -> Any:
    container = client.V1Container(name="main", image="busybox:1")
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels={"app": name}), spec=client.V1PodSpec(containers=[container])
    )


def test_typed_objects_live_their_lives(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    made = core.create_namespaced_pod(namespace, _pod("p"))
    assert (made.status.phase, made.spec.containers[0].image_pull_policy) == ("Pending", "IfNotPresent")
    assert made.metadata.creation_timestamp.tzinfo is not None
    found = core.read_namespaced_pod("p", namespace)
    found.metadata.labels["more"] = "yes"
    changed = core.replace_namespaced_pod("p", namespace, found)
    assert changed.metadata.labels == {"app": "p", "more": "yes"}
    found.metadata.labels["late"] = "yes"
    with pytest.raises(ApiException) as conflict:
        core.replace_namespaced_pod("p", namespace, found)
    assert (conflict.value.status, json.loads(conflict.value.body)["reason"]) == (409, "Conflict")
    listed = core.list_namespaced_pod(namespace, label_selector="app=p", field_selector="status.phase=Pending")
    assert [pod.metadata.name for pod in listed.items] == ["p"]
    core.patch_namespaced_pod_status("p", namespace, {"status": {"phase": "Running", "podIP": "192.0.2.9"}})
    assert core.read_namespaced_pod_status("p", namespace).status.pod_ip == "192.0.2.9"
    core.delete_namespaced_pod("p", namespace, grace_period_seconds=0)
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_pod("p", namespace)
    assert gone.value.status == 404


def test_typed_device_kinds(api: Any, namespace: str) -> None:
    resource = client.ResourceV1Api(api)
    exact = client.V1ExactDeviceRequest(device_class_name="gpu.example.com")
    spec = client.V1ResourceClaimSpec(
        devices=client.V1DeviceClaim(requests=[client.V1DeviceRequest(name="gpu", exactly=exact)])
    )
    claim = client.ResourceV1ResourceClaim(metadata=client.V1ObjectMeta(name="c"), spec=spec)
    made = resource.create_namespaced_resource_claim(namespace, claim)
    assert made.spec.devices.requests[0].exactly.allocation_mode == "ExactCount"
    template = client.V1ResourceClaimTemplate(
        metadata=client.V1ObjectMeta(name="t"), spec=client.V1ResourceClaimTemplateSpec(spec=spec)
    )
    resource.create_namespaced_resource_claim_template(namespace, template)
    selector = client.V1DeviceSelector(cel=client.V1CELDeviceSelector(expression='device.driver == "d"'))
    device_class = client.V1DeviceClass(
        metadata=client.V1ObjectMeta(name=namespace), spec=client.V1DeviceClassSpec(selectors=[selector])
    )
    assert resource.create_device_class(device_class).metadata.generation == 1
    device = client.V1Device(name="gpu-0", attributes={"index": client.V1DeviceAttribute(int=0)})
    pool = client.V1ResourcePool(name=namespace, generation=1, resource_slice_count=1)
    slice_spec = client.V1ResourceSliceSpec(driver="d.example.com", node_name=namespace, pool=pool, devices=[device])
    resource.create_resource_slice(
        client.V1ResourceSlice(metadata=client.V1ObjectMeta(name=namespace), spec=slice_spec)
    )
    found = resource.list_resource_slice(field_selector=f"spec.nodeName={namespace}")
    assert [device.name for device in found.items[0].spec.devices] == ["gpu-0"]
    resource.delete_collection_resource_slice(field_selector=f"spec.nodeName={namespace}")
    assert resource.list_resource_slice(field_selector=f"spec.nodeName={namespace}").items == []
    results = [{"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}]
    status = {"status": {"allocation": {"devices": {"results": results}}}}
    allocated = resource.patch_namespaced_resource_claim_status("c", namespace, status)
    assert allocated.status.allocation.devices.results[0].device == "gpu-0"
    old = client.ResourceV1beta1Api(api).read_namespaced_resource_claim("c", namespace)
    assert old.spec.devices.requests[0].device_class_name == "gpu.example.com"


def test_lists_come_in_pages(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    for number in range(5):
        core.create_namespaced_secret(namespace, {"metadata": {"name": f"s{number}"}, "stringData": {"a": "b"}})
    names: list[str] = []
    page = core.list_namespaced_secret(namespace, limit=2)
    revisions = {page.metadata.resource_version}
    while True:
        names += [secret.metadata.name for secret in page.items]
        if not page.metadata._continue:
            break
        page = core.list_namespaced_secret(namespace, limit=2, _continue=page.metadata._continue)
        revisions.add(page.metadata.resource_version)
    assert names == [f"s{number}" for number in range(5)]
    assert len(revisions) == 1
    with pytest.raises(ApiException) as wrong:
        core.list_namespaced_secret(namespace, limit=2, _continue="nonsense")
    assert wrong.value.status == 400


def test_a_watch_resumes_where_it_stopped(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    for name in ("a", "b", "c"):
        core.create_namespaced_config_map(namespace, {"metadata": {"name": f"w-{name}", "labels": {"watched": ""}}})
    core.delete_namespaced_config_map("w-b", namespace)
    seen: list[tuple[str, str]] = []
    revision = start
    for _ in range(2):
        watching = watch.Watch()
        for event in watching.stream(
            core.list_namespaced_config_map,
            namespace,
            label_selector="watched",
            resource_version=revision,
            timeout_seconds=10,
        ):
            seen.append((event["type"], event["object"].metadata.name))
            revision = event["object"].metadata.resource_version
            if len(seen) in (2, 4):
                watching.stop()
    assert seen == [("ADDED", "w-a"), ("ADDED", "w-b"), ("ADDED", "w-c"), ("DELETED", "w-b")]
    quiet = watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        label_selector="watched",
        resource_version=revision,
        timeout_seconds=1,
    )
    assert list(quiet) == []


def test_a_selector_turns_changes_into_additions_and_deletions(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    made = core.create_namespaced_config_map(namespace, {"metadata": {"name": "m"}})
    core.patch_namespaced_config_map("m", namespace, {"metadata": {"labels": {"in": "yes"}}})
    core.patch_namespaced_config_map("m", namespace, {"metadata": {"labels": {"in": None}}})
    stream = watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        label_selector="in=yes",
        resource_version=made.metadata.resource_version,
        timeout_seconds=1,
    )
    assert [event["type"] for event in stream] == ["ADDED", "DELETED"]


def test_every_way_to_patch(api: Any, namespace: str) -> None:
    apps = DynamicClient(api).resources.get(api_version="apps/v1", kind="Deployment")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    apps.create(body=body, namespace=namespace)

    def patch(value: Any, kind: str, **more: Any) -> Any:
        return apps.patch(body=value, name="d", namespace=namespace, content_type=f"application/{kind}", **more)

    assert patch({"spec": {"replicas": 2}}, "merge-patch+json").spec.replicas == 2
    assert patch([{"op": "replace", "path": "/spec/replicas", "value": 3}], "json-patch+json").spec.replicas == 3
    containers = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "y"}]}}}}
    both = patch(containers, "strategic-merge-patch+json")
    assert sorted(container.name for container in both.spec.template.spec.containers) == ["c", "side"]
    with pytest.raises(Exception, match=r"415|supported"):
        patch({}, "nonsense+json")


def test_dynamic_client_applies_and_meets_conflicts(api: Any, namespace: str) -> None:
    dynamic = DynamicClient(api)
    claims = dynamic.resources.get(api_version="resource.k8s.io/v1", kind="ResourceClaim")
    made = claims.create(body=_claim("c"), namespace=namespace)
    assert made.spec.devices.requests[0].exactly["count"] == 1
    assert [item.metadata.name for item in claims.get(namespace=namespace).items] == ["c"]
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")

    def apply(value: str, manager: str, **more: Any) -> Any:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": value}}
        return dynamic.server_side_apply(maps, body=body, name="m", namespace=namespace, field_manager=manager, **more)

    assert apply("1", "one").data.a == "1"
    with pytest.raises(ConflictError) as conflict:
        apply("2", "two")
    body = conflict.value.body
    assert "conflict with" in (body.decode() if isinstance(body, bytes) else body)
    assert apply("2", "two", force_conflicts=True).data.a == "2"
    with pytest.raises(NotFoundError):
        maps.get(name="none", namespace=namespace)
    events = maps.watch(namespace=namespace, timeout=1, field_selector="metadata.name=m")
    assert [(event["type"], event["object"].metadata.name) for event in events] == [("ADDED", "m")]
    claims.delete(name="c", namespace=namespace)
    assert claims.get(namespace=namespace).items == []
    assert dynamic.version["kubernetes"]["major"] == "1"


@pytest.mark.parametrize("lock_type", [LeaseLock, ConfigMapLock])
def test_one_leader_at_a_time(api: Any, namespace: str, lock_type: Any) -> None:
    happened: list[str] = []

    def candidate(name: str) -> Any:
        lock = lock_type("lock", namespace, name)
        lock.api_instance = type(lock.api_instance)(api)

        def leading() -> None:
            happened.append(f"{name} leads")
            raise RuntimeError("done")

        return leaderelection.LeaderElection(
            electionconfig.Config(lock, 5, 3, 1, leading, lambda: happened.append(f"{name} stopped"))
        )

    first, second = candidate("first"), candidate("second")
    running = threading.Thread(target=first.run)
    running.start()
    running.join(30)
    assert happened == ["first leads", "first stopped"]
    assert not second.try_acquire_or_renew()
    assert first.try_acquire_or_renew()


def test_errors_have_codes_and_reasons(api: Any, namespace: str) -> None:
    core, resource = client.CoreV1Api(api), client.ResourceV1Api(api)
    resource.create_namespaced_resource_claim(namespace, _claim("c"))

    def refused(call: Any, *arguments: Any, **more: Any) -> tuple[int, str]:
        with pytest.raises(ApiException) as error:
            call(*arguments, **more)
        status = json.loads(error.value.body)
        assert status["kind"] == "Status"
        return error.value.status, status["reason"]

    create = resource.create_namespaced_resource_claim
    assert refused(create, namespace, _claim("c")) == (409, "AlreadyExists")
    assert refused(create, namespace, _claim("d", -1)) == (422, "Invalid")
    assert refused(create, "no-such-namespace", _claim("c")) == (404, "NotFound")
    claims = DynamicClient(api).resources.get(api_version="resource.k8s.io/v1", kind="ResourceClaim")
    with pytest.raises(BadRequestError, match="cannot unmarshal string"):
        claims.create(body={"spec": "text", "metadata": {"name": "x"}}, namespace=namespace)
    assert refused(core.delete_namespaced_config_map, "none", namespace) == (404, "NotFound")
    wrong = {"preconditions": {"uid": "other"}}
    assert refused(resource.delete_namespaced_resource_claim, "c", namespace, body=wrong) == (409, "Conflict")
    assert refused(core.list_namespaced_pod, namespace, label_selector="a b c") == (400, "BadRequest")
    assert refused(core.list_namespaced_pod, namespace, resource_version="x") == (400, "BadRequest")
    stale = watch.Watch().stream(core.list_namespaced_pod, namespace, resource_version="999999999", timeout_seconds=1)
    with pytest.raises(ApiException) as future:
        list(stale)
    assert future.value.status in (500, 504)


def test_manifests_are_created_from_dictionaries(api: Any, namespace: str) -> None:
    items = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
        for name in ("a", "b")
    ]
    made = utils.create_from_dict(api, {"apiVersion": "v1", "kind": "List", "items": items})
    assert len(made) == 2
    maps = client.CoreV1Api(api).list_namespaced_config_map(namespace)
    assert {"a", "b"} <= {item.metadata.name for item in maps.items}


def test_reviews_and_versions(api: Any, namespace: str) -> None:
    authorization = client.AuthorizationV1Api(api)
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": namespace}}}
    assert authorization.create_self_subject_access_review(review).status.allowed
    review["spec"]["user"] = "somebody"  # type: ignore[assignment]
    assert not authorization.create_subject_access_review(review).status.allowed
    assert client.VersionApi(api).get_code().git_version.startswith("v1.")
    groups = {group.name for group in client.ApisApi(api).get_api_versions().groups}
    assert {"apps", "resource.k8s.io", "coordination.k8s.io"} <= groups
    core = client.CoreV1Api(api)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "robot"}})
    token = core.create_namespaced_service_account_token("robot", namespace, {"spec": {"expirationSeconds": 600}})
    assert token.status.token.count(".") == 2
