"""Whose API server this is, and who else looks after the cluster: what decides which controllers stay off.

A server of ours says so in its version. A kube-controller-manager or kube-scheduler that works holds and renews its lease.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from allot.client.api import Client
from allot.client.errors import ApiError, NotFound
from allot.core.allocation.guard_ledger import GUARD_WEBHOOK

_OURS = "+allot"
_MANAGER_LEASE = ("kube-controller-manager", "kube-system")
_SCHEDULER_LEASE = ("kube-scheduler", "kube-system")
# Longer than any usual lease lasts: one that has not been renewed for that long belongs to nobody.
_ABANDONED_S = 120.0


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
    return await _holder(client, *_SCHEDULER_LEASE, now_s)


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
