"""Whose server it is, and who else looks after the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.client.api import Client
from allot.controllers.upstream_detection import has_controller_manager, is_allot, is_allot_version
from allot.process.clock import SystemClock
from allot.store.memory import MemoryStore
from apiserver.live import live_server
from client.conftest import http_transport


def test_a_server_of_ours_says_so_in_its_version() -> None:
    assert is_allot_version("v1.37.0+allot")
    assert not is_allot_version("v1.37.0") and not is_allot_version("")


@pytest.mark.slow
async def test_a_controller_manager_is_known_by_a_lease_that_it_renews(tmp_path: Path) -> None:
    async with live_server(tmp_path, MemoryStore()) as server:
        client, now_s = Client(http_transport(server)), SystemClock().seconds()
        try:
            assert await is_allot(client)
            assert not await has_controller_manager(client, now_s)
            leases = client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
            lease = await leases.create(
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
                    "spec": {"holderIdentity": "somebody", "renewTime": SystemClock().now_micro()},
                }
            )
            assert await has_controller_manager(client, now_s)
            assert not await has_controller_manager(client, now_s + 600)
            await leases.update({**lease, "spec": {**lease["spec"], "holderIdentity": ""}})
            assert not await has_controller_manager(client, now_s)
        finally:
            await client.close()
