"""The autoscaler on a real API server: it buys, gives back, backs off, tells why, and leaves no node that nobody owns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest

from allot.autoscaler.provider import ProviderError
from allot.autoscaler.simulated_cloud import SimulatedCloud
from allot.core.autoscaling.templates import DELETION_CANDIDATE, TO_BE_DELETED
from autoscaler.cloud_world import QUICK, World, gpu_cluster, pod, pools_of, running_autoscaler, running_cloud, world
from controllers.cluster import Cluster
from waiting import until

pytestmark = pytest.mark.slow
A100 = "a100=a2-ultragpu-1g,max=2"
L4 = "l4=g2-standard-4,max=2"


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A server with the classes of the GPU driver."""
    async with gpu_cluster(tmp_path) as found:
        yield found


async def test_a_pod_that_waits_gets_the_cheapest_node_that_has_its_device(made: Cluster, tmp_path: Path) -> None:
    """From zero; the pod is told, the status and the metrics say so, and nothing more is bought."""
    async with world(made, pools_of(A100, L4, "cpu=n2-standard-4"), tmp_path) as found:
        await pod(made, "p")
        await until(lambda: found.nodes(), "a node")
        rounds = found.autoscaler.rounds
        await until(lambda: found.autoscaler.rounds > rounds + 3)
        assert await found.nodes() == ["l4"]
        assert await until(lambda: made.events("TriggeredScaleUp")) == ["pod triggered scale-up: [{l4 0->1 (max: 2)}]"]
        assert "name: l4" in await until(lambda: found.status())
        text = generate_latest(found.registry).decode()
        assert 'cluster_autoscaler_scaled_up_nodes_total{dra_drivers="gpu.nvidia.com"} 1.0' in text


async def test_a_pod_that_no_pool_helps_is_told_why(made: Cluster, tmp_path: Path) -> None:
    """Once, and nothing is bought."""
    async with world(made, pools_of("cpu=n2-standard-4"), tmp_path) as found:
        await pod(made, "p")
        (note,) = await until(lambda: made.events("NotTriggerScaleUp"), "an event")
        assert note.startswith("pod didn't trigger scale-up: 1 cannot allocate all claims (cpu: ")
        assert await found.machines() == []


async def test_a_node_that_nobody_needs_goes(made: Cluster, tmp_path: Path) -> None:
    """And one whose pods cannot be evicted stays, unmarked."""
    async with world(made, pools_of("cpu=n2-standard-4,initial=2,max=3"), tmp_path) as found:
        await until(lambda: found.nodes())
        await until(lambda: _is(found.machines(), []), "no machine")
        await until(lambda: _is(found.nodes(), []), "no node")


async def _is(asked: Any, expected: Any) -> bool:
    return bool(await asked == expected)


async def test_pods_are_evicted_before_their_node_goes_and_budgets_are_kept(made: Cluster, tmp_path: Path) -> None:
    """As long as the budget allows nothing, the node stays."""
    async with running_cloud(made, pools_of("cpu=n2-standard-4,initial=2,max=2"), tmp_path) as cloud:
        nodes = await until(lambda: _two(made))
        await pod(made, "kept", gpu=False, node=nodes[0], terminationGracePeriodSeconds=0)
        await made.of("pods").patch("kept", {"metadata": {"labels": {"app": "x"}}}, _merge(), "default")
        await pod(made, "other", gpu=False, node=nodes[1], terminationGracePeriodSeconds=0)
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        }
        await made.client.resource("policy", "v1", "poddisruptionbudgets", namespaced=True).create(budget)
        async with running_autoscaler(made, cloud):
            # The one that no budget protects moves: nobody makes it again here.
            await until(lambda: _is_gone(made, "other"), "the pod is evicted")
            await until(lambda: _is_one(made), "one node left")
            assert await made.get("pods", "kept") is not None
            await until(lambda: made.events("ScaleDown"), "an event")


def _merge() -> Any:
    from allot.client.api import PatchType

    return PatchType.MERGE


async def _two(made: Cluster) -> list[str]:
    names = [each["metadata"]["name"] for each in await made.items("nodes")]
    return names if len(names) == 2 else []


async def _is_one(made: Cluster) -> bool:
    return len(await made.items("nodes")) == 1


async def _is_gone(made: Cluster, name: str) -> bool:
    found = await made.get("pods", name)
    return found is None or "deletionTimestamp" in found["metadata"]


# --- faults ---


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"stock": 0}, "OUT_OF_STOCK"),
        ({"failing": 1.0}, "MACHINE_BROKEN"),
        ({"silent": 1.0}, "has not registered within 0.6 s"),
        ({"deaf": 1.0}, "driver gpu.nvidia.com has not published devices within 0.6 s"),
    ],
)
async def test_a_pool_that_fails_is_left_alone_and_the_next_one_is_tried(
    made: Cluster, tmp_path: Path, fault: dict[str, Any], said: str
) -> None:
    """The cheap pool gives nothing; what it made is given back, and the status says why."""
    pools = [replace(pools_of(L4)[0], **fault), *pools_of(A100)]
    async with world(made, pools, tmp_path) as found:
        await pod(made, "p")
        await until(lambda: _has(found.nodes(), "a100"), "a node of the other pool")
        assert said in await until(lambda: _text(found, said))
        assert "status: Backoff" in await found.status()
        await until(lambda: _is(found.machines(), ["a100"]), "nothing is left of the first pool")


async def _has(asked: Any, pool: str) -> bool:
    return pool in await asked


async def _text(found: Any, said: str) -> str:
    text: str = await found.status()
    return text if said in text else ""


class _Troubled:
    """A provider that does not give what it is asked for, of one pool. kind: the call times out; it is taken and nothing is set out to be
    made; or more is promised than is ever made."""

    def __init__(self, cloud: SimulatedCloud, pool: str, kind: str) -> None:
        self._cloud = cloud
        self._pool = pool
        self._kind = kind
        self.promised = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cloud, name)

    async def increase(self, group: str, delta: int) -> None:
        """Of one pool nothing comes."""
        if group != self._pool:
            await self._cloud.increase(group, delta)
        elif self._kind == "timeout":
            raise ProviderError("provider: NodeGroupIncreaseSize: deadline exceeded")
        elif self._kind == "promised":
            self.promised += delta

    async def target_size(self, group: str) -> int:
        """With what was promised."""
        return await self._cloud.target_size(group) + (self.promised if group == self._pool else 0)

    async def decrease_target(self, group: str, delta: int) -> None:
        """Of what was promised."""
        assert group == self._pool
        self.promised -= delta


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("timeout", "deadline exceeded"),
        ("ignored", "requested a size of 1, but the provider set 0"),
        ("promised", "of 1 requested machines, the provider never created 1"),
    ],
)
async def test_a_provider_that_does_not_give_what_it_is_asked_for(
    made: Cluster, tmp_path: Path, kind: str, said: str
) -> None:
    """The cheap pool is left alone, and the other one is bought; what was promised is taken back."""
    async with running_cloud(made, pools_of(L4, A100), tmp_path) as cloud:
        provider = _Troubled(cloud, "l4", kind)
        async with running_autoscaler(made, provider) as (autoscaler, registry):
            await pod(made, "p")
            await until(lambda: _machines_of(cloud, "a100"), "a machine of the other pool")
            found = World(made, cloud, autoscaler, registry)
            assert said in await until(lambda: _text(found, said), "the status says why")
            assert provider.promised == 0
            assert not await cloud.instances("l4")


async def _machines_of(cloud: SimulatedCloud, pool: str) -> Sequence[Any]:
    return await cloud.instances(pool)


async def test_killed_at_any_point_it_leaves_no_node_that_nobody_owns(made: Cluster, tmp_path: Path) -> None:
    """Each call to the provider is the last one once; the next autoscaler goes on from what there is, and in the end there is one node for
    the pod, no machine without a node, and no mark on any node."""
    calls = 0

    class Killing:
        """Ends the autoscaler before or after its n-th change."""

        def __init__(self, cloud: SimulatedCloud, at: int, *, after: bool, dead: asyncio.Event) -> None:
            self._cloud, self._at, self._after, self._dead = cloud, at, after, dead
            self._count = 0

        def __getattr__(self, name: str) -> Any:
            call = getattr(self._cloud, name)
            if name not in ("increase", "delete", "decrease_target"):
                return call

            async def around(*arguments: Any) -> Any:
                nonlocal calls
                self._count += 1
                calls += 1
                if self._count == self._at and not self._after:
                    await self._die()
                answer = await call(*arguments)
                if self._count == self._at:
                    await self._die()
                return answer

            return around

        async def _die(self) -> None:
            self._dead.set()
            await asyncio.Event().wait()

    async def killed(cloud: SimulatedCloud, after: bool) -> None:
        dead = asyncio.Event()
        async with running_autoscaler(made, Killing(cloud, 1, after=after, dead=dead)):
            await dead.wait()

    async with running_cloud(made, pools_of("l4=g2-standard-4,max=3"), tmp_path) as cloud:
        for after in (False, True):
            name = f"p-{after}".lower()
            await pod(made, name)
            await killed(cloud, after)
            async with running_autoscaler(made, cloud):
                await until(lambda: _owned(made, cloud, 1), "one node, of one machine")
            await made.of("pods").delete(name, "default", grace_period_seconds=0)
            await made.of("resourceclaims").delete(name, "default")
            # Its first change is now the end of the node, which is marked by then.
            await killed(cloud, after)
            async with running_autoscaler(made, cloud):
                await until(lambda: _owned(made, cloud, 0), "no node, no machine")
        assert calls == 4


async def _owned(made: Cluster, cloud: SimulatedCloud, count: int) -> bool:
    """Whether there are so many nodes, each of a machine, and no machine more."""
    machines = {each.id for each in await cloud.instances("l4")}
    nodes = {each["spec"]["providerID"] for each in await made.items("nodes")}
    return machines == nodes and len(nodes) == count and await cloud.target_size("l4") == count


async def test_marks_that_a_killed_one_left_are_taken_away(made: Cluster, tmp_path: Path) -> None:
    """The node is used again."""
    options = replace(QUICK, scale_down_enabled=False)
    async with running_cloud(made, pools_of("cpu=n2-standard-4,initial=1"), tmp_path) as cloud:
        (node,) = await until(lambda: made.items("nodes"))
        name = node["metadata"]["name"]
        taint = {"key": TO_BE_DELETED, "value": "1", "effect": "NoSchedule"}
        await made.of("nodes").patch(name, {"spec": {"taints": [taint], "unschedulable": True}}, _merge())
        async with running_autoscaler(made, cloud, options):
            await until(lambda: _is_clean(made, name))


async def _is_clean(made: Cluster, name: str) -> bool:
    node = await made.get("nodes", name)
    assert node is not None
    return not node["spec"].get("taints") and not node["spec"].get("unschedulable")


async def test_a_node_that_nobody_needs_is_marked_until_somebody_does(made: Cluster, tmp_path: Path) -> None:
    """So that the scheduler prefers others, as with Cluster Autoscaler."""
    options = replace(QUICK, scale_down_unneeded_time_s=60.0)
    async with world(made, pools_of("cpu=n2-standard-4,initial=1,max=1"), tmp_path, options):
        (node,) = await until(lambda: made.items("nodes"))
        name = node["metadata"]["name"]
        (mark,) = await until(lambda: _taints(made, name), "a mark")
        assert (mark["key"], mark["effect"]) == (DELETION_CANDIDATE, "PreferNoSchedule")
        assert mark["value"].isdigit()
        await pod(made, "p", gpu=False, node=name, tolerations=[{"operator": "Exists"}])
        await made.of("pods").patch("p", {"metadata": {"ownerReferences": None}}, _merge(), "default")
        await until(lambda: _is(_taints(made, name), []), "no mark")


async def _taints(made: Cluster, name: str) -> list[dict[str, Any]]:
    node = await made.get("nodes", name)
    assert node is not None
    return list(node["spec"].get("taints") or ())


async def test_a_node_that_stops_being_ready_is_not_coming(made: Cluster, tmp_path: Path) -> None:
    """Pods that wait get another one; it goes after its own time, once nobody needs it."""
    options = replace(QUICK, scale_down_unneeded_time_s=60.0, scale_down_unready_time_s=0.3)
    async with world(made, pools_of("l4=g2-standard-4,initial=1,max=2"), tmp_path, options) as found:
        (node,) = await until(lambda: made.items("nodes"))
        name = node["metadata"]["name"]
        await until(lambda: _text(found, "ready: 1"))
        conditions = [{"type": "Ready", "status": "False", "reason": "x", "message": "x"}]
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        await made.of("nodes").patch(name, {"spec": {"taints": [taint]}}, _merge())
        await made.of("nodes").patch(name, {"status": {"conditions": conditions}}, _merge(), subresource="status")
        await pod(made, "p")
        await until(lambda: _is_other(made, name), "another node, and this one gone")


async def _is_other(made: Cluster, name: str) -> bool:
    names = [each["metadata"]["name"] for each in await made.items("nodes")]
    return len(names) == 1 and name not in names
