"""Whose server it is, and who else looks after the cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from allot.client.api import Client
from allot.controllers.upstream_detection import (
    follow_kube_scheduler,
    has_controller_manager,
    is_allot,
    is_allot_version,
)
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore
from apiserver.live import live_server
from client.conftest import http_transport
from waiting import until


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


@pytest.mark.slow
async def test_a_kube_scheduler_is_told_as_it_comes_and_goes(tmp_path: Path) -> None:
    clock, told = SystemClock(), list[str]()

    async def tell(holder: str) -> None:
        told.append(holder)

    async with live_server(tmp_path, MemoryStore()) as server:
        client = Client(http_transport(server))
        following = asyncio.create_task(follow_kube_scheduler(client, clock, SystemIds(), tell))
        try:
            leases = client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
            spec = {"holderIdentity": "first", "renewTime": clock.now_micro()}
            metadata = {"name": "kube-scheduler", "namespace": "kube-system"}
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            await leases.create(
                {**kind, "metadata": {**metadata, "name": "another"}, "spec": {**spec, "holderIdentity": "no"}}
            )
            lease = await leases.create({**kind, "metadata": metadata, "spec": spec})
            await until(lambda: told == ["first"], "the first is told")
            await leases.update({**lease, "spec": {**spec, "holderIdentity": "second"}})
            await until(lambda: told == ["first", "second"], "the second is told")
            await leases.delete("kube-scheduler", "kube-system")
            await until(lambda: told == ["first", "second", ""], "that nobody is left is told")
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await client.close()
