"""Detects whose API server this is, and which upstream components run, to decide which controllers stay off.

allot's server says so in its version. A running kube-controller-manager or kube-scheduler renews its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from allot.client.api import Client, ResourceClient
from allot.client.errors import ApiError, NotFound
from allot.client.informer import Informer
from allot.core.lifecycle.guard_webhook import unguarded
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import supervise

_OURS = "+allot"
_MANAGER_LEASE = ("kube-controller-manager", "kube-system")
SCHEDULER_LEASE = ("kube-scheduler", "kube-system")
# Longer than any usual lease duration: a lease that has not been renewed for that long has no holder.
_ABANDONED_S = 120.0
# How often the holder is reported again, because the guard between the two schedulers may have been removed.
_TOLD_AGAIN_S = 30.0


async def server_version(client: Client) -> str:
    """The server's version string; empty if it has none."""
    try:
        body = (await client.request("GET", "/version")).body
    except ApiError:
        return ""
    return str(body.get("gitVersion", "")) if isinstance(body, dict) else ""


def is_allot_version(version: str) -> bool:
    """Whether the version is that of allot's server."""
    return _OURS in version


async def is_allot(client: Client) -> bool:
    """Whether the server is allot's."""
    return is_allot_version(await server_version(client))


async def has_controller_manager(client: Client, now_s: float) -> bool:
    """Whether a kube-controller-manager manages the cluster."""
    return bool(await _holder(client, *_MANAGER_LEASE, now_s))


async def kube_scheduler(client: Client, now_s: float) -> str:
    """The holder of kube-scheduler's lease; empty if there is none."""
    return await _holder(client, *SCHEDULER_LEASE, now_s)


async def follow_kube_scheduler(client: Client, clock: Clock, ids: Ids, told: Callable[[str], Awaitable[None]]) -> None:
    """Report the holder of kube-scheduler's lease, empty if there is none: now, after each change of the lease or of a webhook
    configuration, and periodically. Until cancelled, or until `told` raises."""
    name, namespace = SCHEDULER_LEASE
    leases = client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
    informer = Informer(
        leases, lambda lease: lease, clock, ids, namespace=namespace, field_selector=f"metadata.name={name}"
    )
    guards = Informer(_webhooks(client), lambda webhook: webhook, clock, ids)
    changed, guards_changed = asyncio.Event(), False

    def guard_changed(_: object) -> None:
        nonlocal guards_changed
        guards_changed = True
        changed.set()

    informer.add_handler(lambda _: changed.set())
    guards.add_handler(guard_changed)
    holder, told_at = "", clock.monotonic()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(supervise("the watch of kube-scheduler's lease", informer.run, clock))
        # Without permission to watch them, the periodic report still covers them.
        tasks.create_task(supervise("the watch of webhooks", guards.run, clock))
        await informer.wait_synced()
        while True:
            changed.clear()
            lease = informer.cache.get(f"{namespace}/{name}")
            found = _holder_of(lease, clock.seconds()) if lease is not None else ""
            if found != holder or (holder and guards_changed) or clock.monotonic() - told_at >= _TOLD_AGAIN_S:
                holder, told_at, guards_changed = found, clock.monotonic(), False
                await told(holder)
            try:
                async with asyncio.timeout(_TOLD_AGAIN_S):
                    await changed.wait()
            except TimeoutError:
                continue


async def why_unguarded(client: Client) -> str:
    """Why the server does not prevent double allocation; empty if it does: allot's does, any other needs a guard that fails closed."""
    if await is_allot(client):
        return ""
    return unguarded((await _webhooks(client).list()).items)


def _webhooks(client: Client) -> ResourceClient:
    return client.resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False)


async def _holder(client: Client, name: str, namespace: str, now_s: float) -> str:
    leases = client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
    try:
        lease = await leases.get(name, namespace)
    except NotFound:
        return ""
    return _holder_of(lease, now_s)


def _holder_of(lease: dict[str, Any], now_s: float) -> str:
    return str(lease["spec"]["holderIdentity"]) if _is_held(lease, now_s) else ""


def _is_held(lease: dict[str, Any], now_s: float) -> bool:
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime")
    if not spec.get("holderIdentity") or not isinstance(renewed, str):
        return False
    try:
        at = datetime.fromisoformat(renewed).timestamp()
    except ValueError:
        return True
    return now_s - at < _ABANDONED_S
