"""Scenarios 1 to 20: pods get devices, alone and together, and their containers see them."""

from __future__ import annotations

import pytest

from e2e.scenarios.objects import RESOURCE, container, uses
from e2e.scenarios.world import World
from node.dra.plugin import BOTH, DriverOnSockets

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_01_pods_of_one_template_get_devices_of_their_own(world: World) -> None:
    await world.gpus("n1", 2)
    await world.device_class()
    await world.template("single")
    pods = [await world.pod(name, templates={"gpu": "single"}) for name in ("p1", "p2")]
    await world.running("p1", "p2")
    assert {*await world.devices_of("p1"), *await world.devices_of("p2")} == {"n1/gpu-0", "n1/gpu-1"}
    for pod in pods:
        claim = await world.claim_of(pod["metadata"]["name"], "gpu")
        assert claim["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"],
                "controller": True,
            }
        ]
        assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
        assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        assert claim["status"]["reservedFor"] == [consumer]
    [event] = await world.events("p1", "Scheduled")
    assert event["note"] == f"Successfully assigned {world.namespace}/p1 to n1"
    seen = [await world.variables(name) for name in ("p1", "p2")]
    assert all(each["claim_gpu_gpu"] == "true" for each in seen)
    assert {name for each in seen for name in each if name.startswith("device_")} == {"device_gpu_0", "device_gpu_1"}


async def test_02_and_06_all_containers_of_a_pod_share_its_claim(world: World) -> None:
    await world.gpus("n1", 2)
    await world.device_class()
    await world.template("single")
    resources = uses("gpu")
    await world.pod(
        "p1",
        templates={"gpu": "single"},
        containers=[container("a", resources=resources), container("b", resources=resources)],
        # Without the variable the init container fails, and the pod does not run.
        initContainers=[container("init", "env | grep -x claim_gpu_gpu=true", resources=resources)],
        restartPolicy="Never",
    )
    await world.running("p1")
    assert await world.devices_of("p1") == ["n1/gpu-0"]
    expected = {"claim_gpu_gpu": "true", "device_gpu_0": "true"}
    assert await world.variables("p1", "a") == await world.variables("p1", "b") == expected
    assert await world.log("p1", "init") == "claim_gpu_gpu=true\n"


async def test_03_and_12_many_pods_share_one_claim(world: World) -> None:
    await world.gpus("n1", 1)
    await world.gpus("n2", 1)
    await world.device_class()
    await world.claim("shared")
    names = [f"p{number}" for number in range(8)]
    for name in names:
        await world.pod(name, claims={"gpu": "shared"})
    pods = await world.running(*names)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    claim = await world.get("resourceclaims", "shared")
    assert {entry["name"] for entry in claim["status"]["reservedFor"]} == set(names)
    assert [await world.variables(name) for name in names] == [{"claim_shared_gpu": "true", "device_gpu_0": "true"}] * 8


async def test_04_several_devices_by_count_and_by_requests(world: World) -> None:
    await world.gpus("n1", 4)
    await world.device_class()
    await world.claim("count", world.request(count=2))
    await world.claim("requests", world.request("a"), world.request("b"))
    await world.pod("p1", claims={"gpu": "count"})
    await world.pod("p2", claims={"gpu": "requests"})
    await world.running("p1", "p2")
    devices = [*await world.devices_of("p1"), *await world.devices_of("p2")]
    assert len(devices) == len(set(devices)) == 4
    assert [result["request"] for result in await world.results_of("p2")] == ["a", "b"]
    seen = [await world.variables(name) for name in ("p1", "p2")]
    assert sum(name.startswith("device_") for each in seen for name in each) == 4
    assert seen[1]["claim_requests_a"] == seen[1]["claim_requests_b"] == "true"


async def test_05_a_pod_with_two_templates_gets_two_devices(world: World) -> None:
    await world.gpus("n1", 2)
    await world.device_class()
    await world.template("one")
    await world.template("two")
    await world.pod("p1", templates={"a": "one", "b": "two"})
    await world.running("p1")
    assert await world.devices_of("p1", "a") != await world.devices_of("p1", "b")


async def test_07_selectors_decide_and_a_mismatch_stays_pending_with_reasons(world: World) -> None:
    await world.gpus("n1", 1, model="small")
    await world.gpus("n2", 1, model="large")
    await world.device_class()
    for model in ("large", "huge"):
        expression = f'device.attributes["{world.driver}"].model == "{model}"'
        await world.template(model, world.request(selectors=[{"cel": {"expression": expression}}]))
    await world.pod("fits", templates={"gpu": "large"})
    await world.pod("misfit", templates={"gpu": "huge"})
    await world.running("fits")
    assert await world.devices_of("fits") == ["n2/gpu-0"]
    message = await world.pending("misfit", "cannot allocate all claims")
    assert message.startswith(
        "0/2 nodes are available: 2 cannot allocate all claims. "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    [event, *_] = await world.events("misfit", "FailedScheduling")
    assert event["type"] == "Warning" and event["action"] == "Scheduling"
    assert event["note"].startswith("0/2 nodes are available: 2 cannot allocate all claims.")


async def test_08_a_constraint_keeps_devices_together(world: World) -> None:
    parents = ["a", "b", "a", "b", "b", "b"]
    await world.publish(
        "n1",
        [
            {"name": f"part-{number}", "attributes": {"parent": {"string": parent}}}
            for number, parent in enumerate(parents)
        ],
    )
    await world.device_class()
    requests = [world.request(f"r{number}") for number in range(4)]
    await world.claim("four", *requests, constraints=[{"matchAttribute": f"{world.driver}/parent"}])
    await world.pod("p1", claims={"gpu": "four"})
    await world.running("p1")
    assert await world.devices_of("p1") == ["n1/part-1", "n1/part-3", "n1/part-4", "n1/part-5"]


async def test_09_and_11_devices_are_used_again_after_pods_have_finished(world: World) -> None:
    await world.gpus("n1", 2)
    await world.device_class()
    await world.template("single")
    names = [f"p{number}" for number in range(6)]
    for name in names:
        await world.pod(name, templates={"gpu": "single"}, script="env | grep ^device_gpu_", restartPolicy="Never")

    async def all_done() -> bool:
        return all((pod.get("status") or {}).get("phase") == "Succeeded" for pod in await world.all("pods"))

    await world.until(all_done, "the end of all pods")

    async def no_claims() -> bool:
        return not await world.all("resourceclaims")

    await world.until(no_claims, "the deletion of all generated claims")


async def test_10_two_nodes_with_one_device_each_get_one_pod_each(world: World) -> None:
    await world.gpus("n1", 1)
    await world.gpus("n2", 1)
    await world.device_class()
    await world.template("single")
    for name in ("p1", "p2"):
        await world.pod(name, templates={"gpu": "single"})
    pods = await world.running("p1", "p2")
    assert {pod["spec"]["nodeName"] for pod in pods} == {"n1", "n2"}


async def test_13_what_is_prepared_already_is_not_prepared_again(world: World) -> None:
    plugin = await world.plugin("n2").start()
    await world.slice_("n2", [{"name": "gpu-0"}, {"name": "gpu-1"}])
    await world.device_class()
    used = await world.claim("used")
    await world.pod("p1", claims={"gpu": "used"})
    await world.running("p1")
    new = await world.claim("new")
    await world.pod("p2", claims={"a": "used", "b": "new"})
    [pod] = await world.running("p2")
    assert pod["spec"]["nodeName"] == "n2"
    assert plugin.asked("NodePrepareResources") == [(used["metadata"]["uid"],), (new["metadata"]["uid"],)]


@pytest.mark.parametrize("versions", [("v1.DRAPlugin",), ("v1beta1.DRAPlugin",), BOTH], ids=["v1", "v1beta1", "both"])
async def test_14_each_of_two_drivers_is_asked_once_for_all_claims_of_a_pod(world: World, versions: list[str]) -> None:
    other = f"{world.namespace}.nic.example.com"
    await world.device_class()
    await world.device_class(f'device.driver == "{other}"', ".nic")
    nic = {"name": "nic", "exactly": {"deviceClassName": f"{world.class_name}.nic"}}
    plugins: list[DriverOnSockets] = []
    uids: dict[str, set[str]] = {}
    claims = {}
    for driver, requests in ((world.driver, [world.request()]), (other, [nic])):
        plugins.append(await world.plugin(driver=driver, versions=versions).start())
        await world.slice_("n1", [{"name": "device-0"}, {"name": "device-1"}], driver=driver)
        for number in (0, 1):
            name = f"{requests[0]['name']}-{number}"
            made = await world.claim(name, *requests)
            uids.setdefault(driver, set()).add(made["metadata"]["uid"])
            claims[name] = name
    await world.pod("p1", claims=claims)
    await world.running("p1")
    for plugin in plugins:
        [(version, operation, asked)] = plugin.calls
        assert (version, operation, set(asked)) == (versions[0], "NodePrepareResources", uids[plugin.name])


async def test_15_parameters_of_class_and_claim_reach_the_container(world: World) -> None:
    def opaque(**parameters: str) -> dict[str, object]:
        return {"opaque": {"driver": world.driver, "parameters": parameters}}

    await world.gpus("n1", 1)
    await world.device_class(config=[opaque(x="y")])
    await world.claim("c", config=[{"requests": ["gpu"], **opaque(a="b")}])
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    config = (await world.claim_of("p1", "gpu"))["status"]["allocation"]["devices"]["config"]
    assert [(entry["source"], entry["opaque"]["parameters"]) for entry in config] == [
        ("FromClass", {"x": "y"}),
        ("FromClaim", {"a": "b"}),
    ]
    seen = await world.variables("p1")
    assert seen == {"admin_x": "y", "user_a": "b", "claim_c_gpu": "true", "device_gpu_0": "true"}


async def test_16_each_container_sees_only_the_requests_that_it_names(world: World) -> None:
    await world.gpus("n1", 2)
    await world.device_class()
    config = [
        {"requests": [name], "opaque": {"driver": world.driver, "parameters": {f"for_{name}": "yes"}}} for name in "ab"
    ]
    await world.claim("two", world.request("a"), world.request("b"), config=config)
    containers = [container(name, resources=uses(("gpu", name))) for name in ("a", "b")]
    await world.pod("p1", claims={"gpu": "two"}, containers=containers)
    await world.running("p1")
    for number, name in enumerate("ab"):
        expected = {f"user_for_{name}": "yes", f"claim_two_{name}": "true", f"device_gpu_{number}": "true"}
        assert await world.variables("p1", name) == expected


async def test_17_a_claim_that_no_container_names_is_prepared_all_the_same(world: World) -> None:
    driver = await world.gpus("n1", 1)
    await world.device_class()
    await world.claim("unused")
    await world.pod("p1", claims={"spare": "unused"}, containers=[container("main")])
    await world.running("p1")
    assert await world.variables("p1") == {}
    assert [each.claim for each in driver.said("prepare")] == ["unused"]


async def test_18_long_names_are_cut_for_generated_claims(world: World) -> None:
    await world.gpus("n1", 1)
    await world.device_class()
    await world.template("single")
    pod, entry = "p" * 63, "c" * 63
    await world.pod(pod, templates={entry: "single"})
    await world.running(pod)
    name = (await world.claim_of(pod, entry))["metadata"]["name"]
    assert name.startswith("pppp") and "cccc" in name and len(name) <= 253


async def test_19_a_claim_that_is_not_needed_is_not_waited_for(world: World) -> None:
    await world.pod("p1", templates={"gpu": "missing"})
    await world.patch("pods", "p1", {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}, "status")
    await world.running("p1")
    assert await world.all("resourceclaims") == []


async def test_20_objects_of_older_versions_give_the_same_result(world: World) -> None:
    await world.gpus("n1", 2)
    classes = world.client.resource("resource.k8s.io", "v1beta1", "deviceclasses", namespaced=False)
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{world.driver}"'}}]}
    body = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "DeviceClass", "metadata": {"name": world.class_name}}
    await classes.create({**body, "spec": spec})
    for version, request in (
        ("v1beta1", {"name": "gpu", "deviceClassName": world.class_name}),
        ("v1beta2", world.request()),
    ):
        claims = world.client.resource("resource.k8s.io", version, "resourceclaims", namespaced=True)
        made = {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaim",
            "metadata": {"name": version},
            "spec": {"devices": {"requests": [request]}},
        }
        await claims.create(made, world.namespace)
        await world.pod(f"p-{version}", claims={"gpu": version})
    await world.running("p-v1beta1", "p-v1beta2")
    assert (await world.get("resourceclaims", "v1beta1"))["apiVersion"] == RESOURCE
    assert {*await world.devices_of("p-v1beta1"), *await world.devices_of("p-v1beta2")} == {"n1/gpu-0", "n1/gpu-1"}
    await classes.delete(world.class_name)
