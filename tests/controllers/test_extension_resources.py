"""Objects of extension API servers: namespaces wait for them, and the garbage collector collects them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allot.controllers import garbagecollector, namespace
from apiserver.aggregation.extension_fixture import GROUP, SAMPLE, VERSION, server_behind
from controllers.hasty_clock import HastyClock
from controllers.tidy_cluster import Cluster, cluster, owned_by

API = f"{GROUP}/{VERSION}"
DISCOVERY_FAILED = "NamespaceDeletionDiscoveryFailure"


async def made(tidy: Cluster, name: str, **more: Any) -> dict[str, Any]:
    return await tidy.create(API, "Flunder", name, "default", **more)


async def is_known(tidy: Cluster) -> bool:
    return (await tidy.client.discovery(refresh=True)).find_kind(GROUP, VERSION, "Flunder") is not None


@pytest.mark.slow
async def test_namespaces_and_the_garbage_collector_reach_the_objects_of_another_server(tmp_path: Path) -> None:
    async with cluster(tmp_path, garbagecollector.make, namespace.make, clock=HastyClock()) as tidy:
        async with server_behind(tidy.server, tmp_path) as route:
            await tidy.eventually(lambda: is_known(tidy))
            owner = await made(tidy, "owner")
            await made(tidy, "dependent", metadata=owned_by(owner))
            await tidy.create("v1", "ConfigMap", "dependent", "default", metadata=owned_by(owner))
            await tidy.delete(API, "Flunder", "owner", "default")
            await tidy.gone(API, "Flunder", "dependent", "default")
            await tidy.gone("v1", "ConfigMap", "dependent", "default")

            # While its server is away, its objects are not gone, and nobody knows whether a namespace is empty.
            away = await made(tidy, "away")
            await tidy.create("v1", "ConfigMap", "of-away", "default", metadata=owned_by(away))
            await tidy.create("v1", "Namespace", "leaving")
            route.port = 1
            answer = await tidy.server.patch(SAMPLE, {"spec": {"versionPriority": 7}})
            assert answer.status == 200

            async def is_stale() -> bool:
                return f"{GROUP}/{VERSION}" in (await tidy.client.discovery(refresh=True)).missing

            await tidy.eventually(is_stale)
            await tidy.delete("v1", "Namespace", "leaving")

            async def failure() -> Any:
                found = await tidy.get("v1", "Namespace", "leaving") or {}
                conditions = found.get("status", {}).get("conditions") or []
                return next((each for each in conditions if each["type"] == DISCOVERY_FAILED), None)

            told = await tidy.eventually(failure)
            here = await tidy.create("v1", "ConfigMap", "here", "default")
            await tidy.create("v1", "ConfigMap", "of-here", "default", metadata=owned_by(here))
            await tidy.delete("v1", "ConfigMap", "here", "default")
            await tidy.gone("v1", "ConfigMap", "of-here", "default")
            assert await tidy.get("v1", "ConfigMap", "of-away", "default") is not None
            assert (told["status"], told["reason"]) == ("True", "DiscoveryFailed")
            assert told["message"] == (
                "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "
                f"{API}: stale GroupVersion discovery: {API}"
            )
        assert (await tidy.server.delete(SAMPLE)).status == 200
        await tidy.gone("v1", "Namespace", "leaving")
