"""Scenarios 21 to 44: alternatives, partitions, shares, extended resources, groups, binding conditions."""

from __future__ import annotations

from typing import Any

import pytest

from allot.client.errors import ApiError
from e2e.scenarios.objects import container
from e2e.scenarios.world import World

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


def alternatives(world: World, *choices: dict[str, Any]) -> dict[str, Any]:
    named = [
        {"name": f"sub-request-{number}", "deviceClassName": world.class_name, **choice}
        for number, choice in enumerate(choices, 1)
    ]
    return {"name": "request-1", "firstAvailable": named}


def cel(text: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": text}}]


async def test_21_the_first_alternative_that_fits_is_taken(world: World) -> None:
    await world.gpus("n1", 2)
    await world.device_class()
    await world.claim("c", alternatives(world, {"count": 3}, {"count": 2}, {"count": 1}))
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    results = await world.results_of("p1")
    assert [result["request"] for result in results] == ["request-1/sub-request-2"] * 2
    assert await world.variables("p1") == {"claim_c_request_1": "true", "device_gpu_0": "true", "device_gpu_1": "true"}


async def test_22_only_configuration_of_the_chosen_alternative_counts(world: World) -> None:
    def opaque(request: str, value: str) -> dict[str, Any]:
        return {"requests": [request], "opaque": {"driver": world.driver, "parameters": {f"from_{value}": "yes"}}}

    await world.gpus("n1", 1)
    await world.device_class()
    config = [
        opaque("request-1", "base"),
        opaque("request-1/sub-request-1", "one"),
        opaque("request-1/sub-request-2", "two"),
    ]
    await world.claim("c", alternatives(world, {"count": 2}, {"count": 1}), config=config)
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    found = (await world.claim_of("p1", "gpu"))["status"]["allocation"]["devices"]["config"]
    assert [entry["opaque"]["parameters"] for entry in found] == [{"from_base": "yes"}, {"from_two": "yes"}]
    seen = await world.variables("p1")
    assert {name for name in seen if name.startswith("user_")} == {"user_from_base", "user_from_two"}


async def test_23_a_constraint_that_cannot_be_met_leads_to_the_next_alternative(world: World) -> None:
    await world.publish(
        "n1", [{"name": f"gpu-{number}", "attributes": {"root": {"int": number}}} for number in range(2)]
    )
    await world.device_class()
    constraint = {"requests": ["request-1/sub-request-1"], "matchAttribute": f"{world.driver}/root"}
    await world.claim("c", alternatives(world, {"count": 2}, {"count": 2}), constraints=[constraint])
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    assert {result["request"] for result in await world.results_of("p1")} == {"request-1/sub-request-2"}


async def test_24_impossible_alternatives_are_passed_over(world: World) -> None:
    await world.gpus("n1", 1, model="real")
    await world.device_class()
    attribute = f'device.attributes["{world.driver}"].model'
    choices: tuple[dict[str, Any], ...] = (
        {"selectors": cel(f'{attribute} == "a"')},
        {"selectors": cel(f'{attribute} == "b"')},
        {},
    )
    await world.claim("c", alternatives(world, *choices))
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    assert [result["request"] for result in await world.results_of("p1")] == ["request-1/sub-request-3"]


async def test_25_and_26_partitions_share_counters(world: World) -> None:
    sets = [{"name": "memory", "counters": {"memory": {"value": "6Gi"}}}]

    def part(name: str, amount: str) -> dict[str, Any]:
        return {"name": name, "consumesCounters": [{"counterSet": "memory", "counters": {"memory": {"value": amount}}}]}

    devices = [part("part-0", "4Gi"), part("part-1", "4Gi"), part("whole", "6Gi")]
    await world.publish("n1", devices, sharedCounters=sets)
    await world.device_class()
    await world.template("single")
    await world.pod("p1", templates={"gpu": "single"})
    await world.running("p1")
    # Neither the other part nor the whole is left.
    await world.pod("p2", templates={"gpu": "single"})
    await world.pending("p2", "cannot allocate all claims")
    await world.delete_pod("p1")
    await world.running("p2")


async def test_26_two_parts_of_a_device_for_one_claim(world: World) -> None:
    sets = [{"name": "gpu-0", "counters": {"memory": {"value": "4Gi"}}}]
    devices = [
        {
            "name": f"part-{number}",
            "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "1Gi"}}}],
        }
        for number in range(4)
    ]
    whole = {"name": "whole", "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "4Gi"}}}]}
    await world.publish("n1", [*devices, whole], sharedCounters=sets)
    await world.device_class()
    await world.claim("parts", world.request(count=2))
    await world.pod("p1", claims={"gpu": "parts"})
    await world.running("p1")
    assert await world.variables("p1") == {"claim_parts_gpu": "true", "device_part_0": "true", "device_part_1": "true"}
    # Of what is left the whole is none: more than two are not to be had.
    await world.claim("three", world.request(count=3))
    await world.pod("p2", claims={"gpu": "three"})
    await world.pending("p2", "cannot allocate all claims")


async def test_30_shares_of_a_device_with_capacity(world: World) -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi"}}
    capacity = {"memory": {"value": "8Gi", "requestPolicy": policy}}
    await world.publish("n1", [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": capacity}])
    await world.device_class()
    for name, amount in (("a", "4Gi"), ("b", "8Gi"), ("c", "4Gi")):
        await world.claim(name, world.request(capacity={"requests": {"memory": amount}}))
    await world.pod("p-a", claims={"gpu": "a"})
    await world.running("p-a")
    await world.pod("p-b", claims={"gpu": "b"})
    await world.pod("p-c", claims={"gpu": "c"})
    await world.running("p-c")
    await world.pending("p-b", "cannot allocate all claims")
    [first], [third] = await world.results_of("p-a"), await world.results_of("p-c")
    assert first["device"] == third["device"] == "gpu-0"
    assert first["shareID"] != third["shareID"]
    assert first["consumedCapacity"] == {"memory": "4Gi"}
    seen = {"device_gpu_0": "true", "capacity_memory": "4Gi"}
    assert await world.variables("p-a") == {"claim_a_gpu": "true", **seen}
    assert await world.variables("p-c") == {"claim_c_gpu": "true", **seen}
    await world.delete_pod("p-a")
    await world.delete_pod("p-c")
    await world.running("p-b")


@pytest.mark.parametrize(
    ("capacities", "wanted"),
    [
        (
            {"memory": "80Gi", "compute": "100"},
            ({"memory": "16Gi", "compute": "20"}, {"memory": "16Gi", "compute": "20"}),
        ),
        (
            {"egress": "100G", "ingress": "100G"},
            ({"egress": "10G", "ingress": "5G"}, {"egress": "5G", "ingress": "5G"}),
        ),
    ],
    ids=["31-gpu", "32-nic"],
)
async def test_31_and_32_shares_of_one_device_have_their_own_amounts(
    world: World, capacities: dict[str, str], wanted: tuple[dict[str, str], ...]
) -> None:
    capacity = {name: {"value": amount} for name, amount in capacities.items()}
    await world.publish("n1", [{"name": "dev-0", "allowMultipleAllocations": True, "capacity": capacity}])
    await world.device_class()
    for number, amounts in enumerate(wanted):
        await world.claim(f"c{number}", world.request(capacity={"requests": amounts}))
        await world.pod(f"p{number}", claims={"gpu": f"c{number}"})
    await world.running("p0", "p1")
    for number, amounts in enumerate(wanted):
        expected = {f"capacity_{name}": amount for name, amount in amounts.items()}
        assert await world.variables(f"p{number}") == {
            f"claim_c{number}_gpu": "true",
            "device_dev_0": "true",
            **expected,
        }


async def test_34_admin_access_needs_a_labelled_namespace_and_takes_nothing(world: World) -> None:
    await world.gpus("n1", 2)
    await world.device_class()
    with pytest.raises(ApiError) as refused:
        await world.claim("admin", world.request(adminAccess=True, allocationMode="All"))
    assert "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label" in str(
        refused.value
    )
    namespaces = world.client.resource("", "v1", "namespaces", namespaced=False)
    found = await namespaces.get(world.namespace)
    labels = {**found["metadata"]["labels"], "resource.kubernetes.io/admin-access": "true"}
    await namespaces.update({**found, "metadata": {**found["metadata"], "labels": labels}})
    await world.claim("user")
    await world.pod("p1", claims={"gpu": "user"})
    await world.running("p1")
    await world.claim("admin", world.request(adminAccess=True, allocationMode="All"))
    await world.pod("p2", claims={"gpu": "admin"})
    await world.running("p2")
    results = await world.results_of("p2")
    assert len(results) == 2 and all(result["adminAccess"] for result in results)
    assert {"device_gpu_0", "device_gpu_1"} <= set(await world.variables("p2"))


async def extended(world: World, count: int = 1, implicit: bool = False) -> dict[str, Any]:
    resource = (
        f"deviceclass.resource.kubernetes.io/{world.class_name}" if implicit else f"{world.namespace}.example.com/gpu"
    )
    amounts = {resource: str(count)}
    return {"requests": amounts, "limits": amounts}


@pytest.mark.parametrize("implicit", [False, True], ids=["explicit", "implicit"])
async def test_35_extended_resources_are_served_by_devices(world: World, implicit: bool) -> None:
    await world.gpus("n1", 1)
    spec = {} if implicit else {"extendedResourceName": f"{world.namespace}.example.com/gpu"}
    await world.device_class(**spec)
    wanted = await extended(world, implicit=implicit)
    await world.pod("p1", resources=wanted)
    [pod] = await world.running("p1")
    status = pod["status"]["extendedResourceClaimStatus"]
    [resource] = wanted["requests"]
    assert status["requestMappings"] == [
        {"containerName": "main", "resourceName": resource, "requestName": "container-0-request-0"}
    ]
    claim = await world.get("resourceclaims", status["resourceClaimName"])
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert [r["device"] for r in claim["status"]["allocation"]["devices"]["results"]] == ["gpu-0"]
    assert claim["status"]["reservedFor"][0]["name"] == "p1"
    assert await world.variables("p1") == {"container_0_request_0": "true", "device_gpu_0": "true"}


async def test_36_each_container_gets_its_extended_resources(world: World) -> None:
    await world.gpus("n1", 6)
    await world.device_class(extendedResourceName=f"{world.namespace}.example.com/gpu")
    containers = []
    for number in (1, 2, 3):
        amounts = {f"{world.namespace}.example.com/gpu": str(number)}
        resources = {"requests": amounts, "limits": amounts}
        containers.append(container(f"c{number}", resources=resources))
    await world.pod("p1", containers=containers)
    [pod] = await world.running("p1")
    status = pod["status"]["extendedResourceClaimStatus"]
    mappings = {entry["containerName"]: entry["requestName"] for entry in status["requestMappings"]}
    assert mappings == {f"c{number}": f"container-{number - 1}-request-0" for number in (1, 2, 3)}
    claim = await world.get("resourceclaims", status["resourceClaimName"])
    results = [result["request"] for result in claim["status"]["allocation"]["devices"]["results"]]
    assert sorted(results) == ["container-0-request-0"] + ["container-1-request-0"] * 2 + ["container-2-request-0"] * 3
    for number in (1, 2, 3):
        seen = await world.variables("p1", f"c{number}")
        assert seen.pop(f"container_{number - 1}_request_0") == "true"
        assert len(seen) == number and all(name.startswith("device_") for name in seen)


async def test_36_several_extended_resources_for_one_container(world: World) -> None:
    models = ("a", "b", "c")
    await world.publish(
        "n1", [{"name": f"gpu-{model}", "attributes": {"model": {"string": model}}} for model in models]
    )
    for model in models:
        expression = f'device.attributes["{world.driver}"].model == "{model}"'
        await world.device_class(expression, f".{model}", extendedResourceName=f"{world.driver}/{model}")
    amounts = {f"{world.driver}/{model}": "1" for model in models}
    await world.pod("p1", resources={"requests": amounts, "limits": amounts})
    await world.running("p1")
    seen = await world.variables("p1")
    assert seen == {
        **{f"container_0_request_{number}": "true" for number in range(3)},
        **{f"device_gpu_{model}": "true" for model in models},
    }


async def test_37_init_containers_use_what_later_containers_use(world: World) -> None:
    await world.gpus("n1", 4)
    resource = f"{world.namespace}.example.com/gpu"
    await world.device_class(extendedResourceName=resource)

    def asks(count: int) -> dict[str, Any]:
        amounts = {resource: str(count)}
        return {"requests": amounts, "limits": amounts}

    await world.pod(
        "p1",
        initContainers=[
            container("side", resources=asks(1), restartPolicy="Always"),
            container("init", "env", resources=asks(3)),
        ],
        containers=[container("main", resources=asks(1))],
    )
    [pod] = await world.running("p1")
    status = pod["status"]["extendedResourceClaimStatus"]
    mappings: dict[str, list[str]] = {}
    for entry in status["requestMappings"]:
        mappings.setdefault(entry["containerName"], []).append(entry["requestName"])
    assert mappings["side"] == ["container-0-request-0"]
    assert mappings["main"] == ["container-2-request-0"]
    assert sorted(mappings["init"]) == ["container-1-request-0", "container-2-request-0"]
    claim = await world.get("resourceclaims", status["resourceClaimName"])
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 4
    assert "container_0_request_0" in await world.variables("p1", "side")
    assert "container_2_request_0" in await world.variables("p1", "main")
    said = await world.log("p1", "init")
    assert "container_1_request_0=true" in said and "container_2_request_0=true" in said
    assert said.count("device_gpu_") == 3


async def test_38_and_40_extended_resources_are_free_again_when_the_pod_has_finished(world: World) -> None:
    await world.gpus("n1", 10)
    await world.device_class(extendedResourceName=f"{world.namespace}.example.com/gpu")
    over = world.folder / "over"
    script = f"while [ ! -e {over} ]; do sleep 0.05; done"
    wanted = await extended(world, 10)
    await world.pod("p1", resources=wanted, script=script, sees_folder=True, restartPolicy="Never")
    await world.running("p1")
    await world.pod("p2", resources=await extended(world, 10))
    await world.pending("p2")
    claim = (await world.get("pods", "p1"))["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    over.touch()
    await world.in_phase("p1", "Succeeded")
    await world.gone("resourceclaims", claim)
    await world.running("p2")


async def test_39_none_of_an_extended_resource_is_nothing(world: World) -> None:
    await world.device_class(extendedResourceName=f"{world.namespace}.example.com/gpu")
    await world.pod("p1", resources=await extended(world, 0))
    await world.running("p1")
    assert await world.all("resourceclaims") == []


async def test_41_a_device_plugin_on_the_node_comes_first(world: World) -> None:
    resource = f"{world.namespace}.example.com/gpu"
    await world.amounts("n1", **{resource: "1"})
    await world.publish("n1", [{"name": "gpu-0"}])
    await world.device_class(extendedResourceName=resource)
    await world.pod("p1", resources=await extended(world))
    [pod] = await world.running("p1")
    assert "extendedResourceClaimStatus" not in pod["status"]
    assert await world.all("resourceclaims") == []
    # Without the plugin devices serve.
    await world.delete_pod("p1")
    await world.amounts("n1", **{resource: None})
    await world.pod("p2", resources=await extended(world))
    [pod] = await world.running("p2")
    assert pod["status"]["extendedResourceClaimStatus"]


async def test_42_quotas_count_claims_devices_and_extended_resources(world: World) -> None:
    resource = f"{world.driver}/gpu"
    await world.gpus("n1", 1)
    await world.device_class(extendedResourceName=resource)
    of_class = f"{world.class_name}.deviceclass.resource.k8s.io/devices"
    hard = {"count/resourceclaims.resource.k8s.io": "2", of_class: "5", f"requests.{resource}": "5"}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    await world.make("resourcequotas", body)

    async def used_is(*amounts: str) -> None:
        async def ask() -> bool:
            used = (await world.get("resourcequotas", "q")).get("status", {}).get("used") or {}
            return [used.get(name) for name in hard] == list(amounts)

        await world.until(ask, f"used {amounts}")

    await used_is("0", "0", "0")
    await world.claim("a", world.request(count=2))
    await world.claim("b", world.request(count=3))
    with pytest.raises(ApiError, match="exceeded quota"):
        await world.claim("c")
    # A class that is an extended resource as well has both names.
    await used_is("2", "5", "5")
    await world.kind("resourceclaims").delete("a", world.namespace)
    await world.kind("resourceclaims").delete("b", world.namespace)
    await used_is("0", "0", "0")
    await world.pod("p1", resources=await extended(world))
    await world.running("p1")
    await used_is("1", "1", "1")
    with pytest.raises(ApiError, match="exceeded quota"):
        await world.pod("p2", resources=await extended(world, 5))


@pytest.mark.parametrize("by_template", [False, True], ids=["claim", "template"])
async def test_43_pods_of_a_group_share_the_groups_claim(world: World, by_template: bool) -> None:
    await world.gpus("n1", 2)
    await world.device_class()
    if by_template:
        await world.template("shared")
    for group in ("g1", "g2"):
        source = {"resourceClaimTemplateName": "shared"} if by_template else {"resourceClaimName": f"c-{group}"}
        if not by_template:
            await world.claim(f"c-{group}")
        body = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": group},
            "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": [{"name": "gpu", **source}]},
        }
        await world.make("podgroups", body)
        for number in (1, 2):
            kind = "templates" if by_template else "claims"
            name = "shared" if by_template else f"c-{group}"
            entry: dict[str, Any] = {kind: {"gpu": name}}
            await world.pod(f"{group}-p{number}", **entry, schedulingGroup={"podGroupName": group})
    await world.running("g1-p1", "g1-p2", "g2-p1", "g2-p2")
    devices = {pod: await world.devices_of(pod) for pod in ("g1-p1", "g1-p2", "g2-p1", "g2-p2")}
    assert devices["g1-p1"] == devices["g1-p2"] != devices["g2-p1"] == devices["g2-p2"]
    claim = await world.claim_of("g1-p1", "gpu")
    assert [(entry["resource"], entry["name"]) for entry in claim["status"]["reservedFor"]] == [("podgroups", "g1")]


async def binding_device(world: World) -> None:
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"], "bindsToNode": True}
    await world.publish("n1", [{"name": f"gpu-{number}", **conditions} for number in range(2)])
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})

    async def allocated() -> bool:
        return bool(((await world.get("resourceclaims", "c")).get("status") or {}).get("allocation"))

    await world.until(allocated, "the allocation")


async def set_condition(world: World, type_: str) -> None:
    claim = await world.get("resourceclaims", "c")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    condition = {
        "type": type_,
        "status": "True",
        "reason": "Told",
        "message": "by the test",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    device = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [condition]}
    await world.patch("resourceclaims", "c", {"status": {"devices": [device]}}, "status")


async def test_44_a_pod_is_bound_when_its_device_is_ready(world: World) -> None:
    await binding_device(world)
    await world.events("p1", "BindingConditionsPending")
    assert not (await world.get("pods", "p1"))["spec"].get("nodeName")
    await set_condition(world, "ready")
    await world.running("p1")


async def test_44_a_device_that_fails_to_get_ready_is_given_up(world: World) -> None:
    await binding_device(world)
    before = (await world.get("resourceclaims", "c"))["status"]["allocation"]["allocationTimestamp"]
    await set_condition(world, "broken")

    async def again() -> bool:
        status = (await world.get("resourceclaims", "c")).get("status") or {}
        return bool(status.get("allocation")) and not status.get("devices")

    assert before
    await world.until(again, "the new allocation")
    await set_condition(world, "ready")
    await world.running("p1")


async def test_33_devices_that_stand_for_the_nodes_own_resources_count_as_those(world: World) -> None:
    await world.amounts("n1", cpu="4")
    await world.amounts("n2", cpu="0")
    policy = {"default": "1", "validRange": {"min": "1"}}
    mapping = {"nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "cpu", "capacityMultiplier": "1"}}}}
    capacity = {"cpu": {"value": "4", "requestPolicy": policy}}
    await world.publish("n1", [{"name": "numa-0", "allowMultipleAllocations": True, "capacity": capacity, **mapping}])
    await world.device_class()
    requests = [world.request(name, capacity={"requests": {"cpu": "1"}}) for name in ("a", "b")]
    await world.claim("c", *requests)
    await world.pod("p1", claims={"gpu": "c"})
    [pod] = await world.running("p1")
    shares = [result["shareID"] for result in await world.results_of("p1")]
    assert len(set(shares)) == 2
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["status"]["nodeAllocatableResourceClaimStatuses"]
    amounts = {"cpu": "3"}
    await world.pod("p2", resources={"requests": amounts})
    await world.pending("p2", "Insufficient cpu")
