"""A server asks agents: what they tell becomes what the metrics APIs answer, whatever they tell."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client
from allot.client.errors import ApiError
from controllers.cluster import cluster
from told_metrics import PODS, RESOURCE, ToldAgent, pod, told_agent
from waiting import until

pytestmark = pytest.mark.slow

Object = dict[str, Any]


async def get(client: Client, path: str, **query: str) -> Object:
    """What the server answers; empty if nothing is known."""
    try:
        body = (await client.request("GET", path, query)).body
    except ApiError as error:
        assert error.code == 404, error
        return {}
    assert isinstance(body, dict)
    return body


async def node(client: Client, name: str = "n1") -> Object:
    return await get(client, f"/apis/metrics.k8s.io/v1beta1/nodes/{name}")


async def metric(client: Client, name: str, pods: str = "*") -> list[tuple[str, str]]:
    found = await get(client, f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/{pods}/{name}")
    return [(item["describedObject"]["name"], item["value"]) for item in found.get("items", ())]


async def test_a_node_that_comes_is_known_before_the_next_round(tmp_path: Path) -> None:
    async with told_agent(tmp_path) as agent, cluster(tmp_path) as made:
        await agent.register(made.client)
        found = await until(lambda: node(made.client))
        assert 499_000_000 <= int(found["usage"]["cpu"].removesuffix("n")) <= 501_000_000
        assert found["usage"]["memory"] == "1024Ki" and found["metadata"]["labels"] == {"zone": "a"}
        # Two looks were enough, not a round of fifteen seconds.
        assert agent.asked.count(RESOURCE) <= 4


async def test_an_agent_speaks_for_the_pods_of_its_nodes(tmp_path: Path) -> None:
    async with told_agent(tmp_path) as agent, cluster(tmp_path) as made:
        for name, place in (("mine", "n1"), ("other", "n2")):
            await made.create("pods", pod(name, place, app="x"))
        text = "".join(f'waiting{{namespace="default",pod="{name}"}} 7\n' for name in ("mine", "other", "nobody"))
        agent.tell(PODS, text)
        await agent.register(made.client)
        assert await until(lambda: metric(made.client, "waiting")) == [("mine", "7")]
        listed = await get(made.client, "/apis/custom.metrics.k8s.io/v1beta2")
        assert [one["name"] for one in listed["resources"]] == ["namespaces/waiting", "nodes/waiting", "pods/waiting"]
        external = await get(made.client, "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/waiting")
        assert [item["metricLabels"] for item in external["items"]] == [{"pod": "mine"}]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        (PODS, 404, "404 page not found"),
        (PODS, 500, "oops"),
        (PODS, 302, "elsewhere"),
        (PODS, 200, "\x00\xff{{{\n" * 1000 + "NaN NaN NaN\n"),
        (PODS, 200, 'waiting{namespace="default",pod="mine"} NaN\nwaiting{namespace="default",pod="mine"} 1 -1\n'),
    ],
)
async def test_what_an_agent_tells_badly_leaves_the_rest_alone(
    tmp_path: Path, path: str, status: int, text: str
) -> None:
    async with told_agent(tmp_path) as agent, cluster(tmp_path) as made:
        await made.create("pods", pod("mine"))
        agent.tell(path, text, status)
        await agent.register(made.client)
        assert await until(lambda: node(made.client))
        assert await metric(made.client, "waiting") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "node_cpu_usage_seconds_total NaN\nnode_memory_working_set_bytes 1\n",
        "node_cpu_usage_seconds_total -1\nnode_memory_working_set_bytes 1\n",
        "node_cpu_usage_seconds_total 1 99999999999999999\nnode_memory_working_set_bytes 1\n",
        "node_cpu_usage_seconds_total 1e308\nnode_memory_working_set_bytes +Inf\n",
    ],
)
async def test_a_node_that_tells_nothing_sensible_is_not_known_and_others_are(tmp_path: Path, text: str) -> None:
    async with (
        cluster(tmp_path, metric_resolution_s=1.0) as made,
        told_agent(tmp_path) as bad,
        told_agent(tmp_path) as good,
    ):
        bad.tell(RESOURCE, text)
        await bad.register(made.client, "bad")
        await good.register(made.client, "good")
        assert await until(lambda: node(made.client, "good"))
        await until(lambda: bad.asked.count(RESOURCE) > 2)
        assert await node(made.client, "bad") == {}


async def test_an_agent_that_comes_late_is_asked_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, metric_resolution_s=1.0) as made:
        async with told_agent(tmp_path) as gone:
            port = gone.port
        absent = ToldAgent()
        absent.port = port
        await absent.register(made.client, "absent")
        async with told_agent(tmp_path) as agent:
            await agent.register(made.client)
            assert await until(lambda: node(made.client))
            # It moves: its node says where to.
            nodes = made.of("nodes")
            moved = deepcopy(await nodes.get("absent"))
            moved["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = agent.port
            await nodes.update(moved, subresource="status")
            text = "".join(
                f'node_{name}{{node="{each}"}} 5\n'
                for each in ("n1", "absent")
                for name in ("cpu_usage_seconds_total", "memory_working_set_bytes")
            )
            agent.tell(RESOURCE, text)
            assert await until(lambda: node(made.client, "absent"))
            await nodes.delete("absent")
            assert await until(lambda: _is_gone(made.client, "absent"))


async def _is_gone(client: Client, name: str) -> bool:
    return await node(client, name) == {}
