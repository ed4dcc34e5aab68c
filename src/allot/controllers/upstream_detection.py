"""Whose API server this is, and who else looks after the cluster: what decides which controllers stay off.

A server of ours says so in its version. A kube-controller-manager or kube-scheduler that works holds and renews its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from allot.client.api import Client
from allot.client.errors import ApiError, NotFound
from allot.client.informer import Informer
from allot.core.allocation.guard_ledger import GUARD_WEBHOOK
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import supervise

_OURS = "+allot"
_MANAGER_LEASE = ("kube-controller-manager", "kube-system")
SCHEDULER_LEASE = ("kube-scheduler", "kube-system")
# Longer than any usual lease lasts: one that has not been renewed for that long belongs to nobody.
_ABANDONED_S = 120.0
# Who follows kube-scheduler is told again who it is, as what keeps the two apart may be gone.
_TOLD_AGAIN_S = 30.0


async def server_version(client: Client) -> str:
    """What the server says it is; empty if it does not say."""
    try:
        body = (await client.request("GET", "/version")).body
    except ApiError:
        return ""
    return str(body.get("gitVersion", "")) if isinstance(body, dict) else ""


def is_allot_version(version: str) -> bool:
    """Whether that is what a server of allot's says."""
    return _OURS in version


async def is_allot(client: Client) -> bool:
    """Whether the server is allot's."""
    return is_allot_version(await server_version(client))


async def has_controller_manager(client: Client, now_s: float) -> bool:
    """Whether a kube-controller-manager looks after the cluster."""
    return bool(await _holder(client, *_MANAGER_LEASE, now_s))


async def kube_scheduler(client: Client, now_s: float) -> str:
    """Who schedules the cluster's pods by the lease of kube-scheduler; empty if nobody does."""
    return await _holder(client, *SCHEDULER_LEASE, now_s)


async def follow_kube_scheduler(client: Client, clock: Clock, ids: Ids, told: Callable[[str], Awaitable[None]]) -> None:
    """Tell who schedules the cluster's pods by the lease of kube-scheduler, empty if nobody does: now, as soon as that changes, and now
    and then. Until cancelled, or until `told` raises."""
    name, namespace = SCHEDULER_LEASE
    leases = client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
    informer = Informer(
        leases, lambda lease: lease, clock, ids, namespace=namespace, field_selector=f"metadata.name={name}"
    )
    changed = asyncio.Event()
    informer.add_handler(lambda _: changed.set())
    holder, told_at = "", clock.monotonic()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(supervise("the watch of kube-scheduler's lease", informer.run, clock))
        await informer.wait_synced()
        while True:
            changed.clear()
            lease = informer.cache.get(f"{namespace}/{name}")
            found = _holder_of(lease, clock.seconds()) if lease is not None else ""
            if found != holder or clock.monotonic() - told_at >= _TOLD_AGAIN_S:
                holder, told_at = found, clock.monotonic()
                await told(holder)
            try:
                async with asyncio.timeout(_TOLD_AGAIN_S):
                    await changed.wait()
            except TimeoutError:
                continue


async def has_allocation_guard(client: Client) -> bool:
    """Whether the server refuses to allocate devices twice: allot's does, any other asks a guard that fails closed."""
    if await is_allot(client):
        return True
    webhooks = client.resource(
        "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
    )
    return any(_is_guard(each) for found in (await webhooks.list()).items for each in found.get("webhooks") or ())


def _is_guard(webhook: dict[str, Any]) -> bool:
    # One that was never given a certificate answers nobody, but lets nothing through either.
    return webhook.get("name") == GUARD_WEBHOOK and webhook.get("failurePolicy") != "Ignore"


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
