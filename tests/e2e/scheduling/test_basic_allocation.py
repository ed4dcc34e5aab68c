"""Scenarios 1 to 20: pods get devices, alone and together."""

from __future__ import annotations

import pytest

from e2e.scheduling.world import RESOURCE, World

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


async def test_01_pods_of_one_template_get_devices_of_their_own(world: World) -> None:
    await world.gpu_node("n1", 2)
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
    assert event["note"] == f"Successfully assigned {world.namespace}/p1 to {world.name('n1')}"


async def test_02_and_06_all_containers_of_a_pod_share_its_claim(world: World) -> None:
    await world.gpu_node("n1", 2)
    await world.device_class()
    await world.template("single")
    uses = {"image": "example.com/main:1", "resources": {"claims": [{"name": "gpu"}]}}
    await world.pod(
        "p1",
        templates={"gpu": "single"},
        containers=[{"name": "a", **uses}, {"name": "b", **uses}],
        initContainers=[{"name": "init", **uses}],
    )
    await world.running("p1")
    assert await world.devices_of("p1") == ["n1/gpu-0"]


async def test_03_and_12_many_pods_share_one_claim(world: World) -> None:
    await world.gpu_node("n1", 1)
    await world.gpu_node("n2", 1)
    await world.device_class()
    await world.claim("shared")
    names = [f"p{number}" for number in range(8)]
    for name in names:
        await world.pod(name, claims={"gpu": "shared"})
    pods = await world.running(*names)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    claim = await world.get("resourceclaims", "shared")
    assert {entry["name"] for entry in claim["status"]["reservedFor"]} == set(names)


async def test_04_several_devices_by_count_and_by_requests(world: World) -> None:
    await world.gpu_node("n1", 4)
    await world.device_class()
    await world.claim("count", world.request(count=2))
    await world.claim("requests", world.request("a"), world.request("b"))
    await world.pod("p1", claims={"gpu": "count"})
    await world.pod("p2", claims={"gpu": "requests"})
    await world.running("p1", "p2")
    devices = [*await world.devices_of("p1"), *await world.devices_of("p2")]
    assert len(devices) == len(set(devices)) == 4
    assert [result["request"] for result in await world.results_of("p2")] == ["a", "b"]


async def test_05_a_pod_with_two_templates_gets_two_devices(world: World) -> None:
    await world.gpu_node("n1", 2)
    await world.device_class()
    await world.template("one")
    await world.template("two")
    await world.pod("p1", templates={"a": "one", "b": "two"})
    await world.running("p1")
    assert await world.devices_of("p1", "a") != await world.devices_of("p1", "b")


async def test_07_selectors_decide_and_a_mismatch_stays_pending_with_reasons(world: World) -> None:
    await world.gpu_node("n1", 1, model="small")
    await world.gpu_node("n2", 1, model="large")
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
    await world.node("n1")
    parents = ["a", "b", "a", "b", "b", "b"]
    await world.slice_(
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
    await world.gpu_node("n1", 2)
    await world.device_class()
    await world.template("single")
    names = [f"p{number}" for number in range(6)]
    for name in names:
        await world.pod(
            name, templates={"gpu": "single"}, annotations={"fake/ends": "Succeeded"}, restartPolicy="Never"
        )

    async def all_done() -> bool:
        return all((pod.get("status") or {}).get("phase") == "Succeeded" for pod in await world.list("pods"))

    await world.until(all_done, "the end of all pods")

    async def no_claims() -> bool:
        return not await world.list("resourceclaims")

    await world.until(no_claims, "the deletion of all generated claims")


async def test_10_two_nodes_with_one_device_each_get_one_pod_each(world: World) -> None:
    await world.gpu_node("n1", 1)
    await world.gpu_node("n2", 1)
    await world.device_class()
    await world.template("single")
    for name in ("p1", "p2"):
        await world.pod(name, templates={"gpu": "single"})
    pods = await world.running("p1", "p2")
    assert {pod["spec"]["nodeName"] for pod in pods} == {world.name("n1"), world.name("n2")}


async def test_13_a_claim_that_is_in_use_and_a_new_one_meet_on_one_node(world: World) -> None:
    await world.gpu_node("n1", 1)
    await world.gpu_node("n2", 2)
    await world.device_class()
    await world.claim("used", world.request(count=1))
    await world.pod("p1", claims={"gpu": "used"}, nodeSelector={"kubernetes.io/hostname": world.name("n2")})
    await world.running("p1")
    await world.claim("new")
    await world.pod("p2", claims={"a": "used", "b": "new"})
    [pod] = await world.running("p2")
    assert pod["spec"]["nodeName"] == world.name("n2")


async def test_14_claims_of_two_drivers_in_one_pod(world: World) -> None:
    await world.gpu_node("n1", 2)
    other = f"{world.namespace}.nic.example.com"
    await world.slice_("n1", [{"name": "nic-0"}, {"name": "nic-1"}], driver=other)
    await world.device_class()
    await world.device_class(f'device.driver == "{other}"', ".nic")
    nic = {"name": "nic", "exactly": {"deviceClassName": f"{world.class_name}.nic"}}
    claims = {}
    for number in (1, 2):
        await world.claim(f"gpu-{number}")
        await world.claim(f"nic-{number}", nic)
        claims |= {f"g{number}": f"gpu-{number}", f"n{number}": f"nic-{number}"}
    await world.pod("p1", claims=claims)
    await world.running("p1")
    devices = [device for entry in claims for device in await world.devices_of("p1", entry)]
    assert sorted(devices) == ["n1/gpu-0", "n1/gpu-1", "n1/nic-0", "n1/nic-1"]


async def test_15_configuration_of_class_and_claim_is_in_the_allocation(world: World) -> None:
    def opaque(**parameters: str) -> dict[str, object]:
        return {"opaque": {"driver": world.driver, "parameters": parameters}}

    await world.gpu_node("n1", 1)
    await world.device_class(config=[opaque(x="y")])
    await world.claim("c", config=[{"requests": ["gpu"], **opaque(a="b")}])
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    config = (await world.claim_of("p1", "gpu"))["status"]["allocation"]["devices"]["config"]
    assert [(entry["source"], entry["opaque"]["parameters"]) for entry in config] == [
        ("FromClass", {"x": "y"}),
        ("FromClaim", {"a": "b"}),
    ]


async def test_16_and_17_containers_name_requests_and_need_not_name_claims(world: World) -> None:
    await world.gpu_node("n1", 3)
    await world.device_class()
    await world.claim("two", world.request("a"), world.request("b"))
    await world.claim("unused")
    containers = [
        {"name": name, "image": "example.com/main:1", "resources": {"claims": [{"name": "gpu", "request": name}]}}
        for name in ("a", "b")
    ]
    await world.pod("p1", claims={"gpu": "two", "spare": "unused"}, containers=containers)
    await world.running("p1")
    assert [result["request"] for result in await world.results_of("p1")] == ["a", "b"]
    # Kubernetes allocates and prepares what the pod lists, whether a container uses it or not.
    assert len(await world.devices_of("p1", "spare")) == 1


async def test_18_long_names_are_cut_for_generated_claims(world: World) -> None:
    await world.gpu_node("n1", 1)
    await world.device_class()
    await world.template("single")
    pod, entry = "p" * 63, "c" * 63
    await world.pod(pod, templates={entry: "single"})
    await world.running(pod)
    name = (await world.claim_of(pod, entry))["metadata"]["name"]
    assert name.startswith("pppp") and "cccc" in name and len(name) <= 253


async def test_19_a_claim_that_is_not_needed_is_not_waited_for(world: World) -> None:
    await world.node("n1")
    await world.pod("p1", templates={"gpu": "missing"})
    await world.patch("pods", "p1", {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}, "status")
    await world.running("p1")
    assert await world.list("resourceclaims") == []


async def test_20_objects_of_older_versions_give_the_same_result(world: World) -> None:
    await world.gpu_node("n1", 2)
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
