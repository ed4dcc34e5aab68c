"""An API server with a node, claims as a scheduler leaves them, and drivers that run in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from allot.apiserver.assembly import Settings
from allot.client.api import Client
from allot.controlplane.plane import ControlPlane, control_plane
from allot.driver import Driver, Options, Plugin, running
from allot.driver.conformance.kubelet import ClaimRef, DriverConnection, find_sockets, registered
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore
from waiting import WAIT_S

NODE = "n1"
_ids = SystemIds()


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[ControlPlane]:
    """An API server with one node."""
    async with control_plane(Settings(directory=directory / "pki", port=0), MemoryStore()) as plane:
        nodes = plane.client().resource("", "v1", "nodes", namespaced=False)
        await nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        yield plane


def options(directory: Path, **fields: Any) -> Options:
    """Below a folder, with quick repairs."""
    return Options(
        node_name=NODE,
        kubelet_root=directory / "k",
        cdi_directory=directory / "cdi",
        repair_delay_s=0.05,
        **fields,
    )


@asynccontextmanager
async def started(
    driver: Driver, client: Client, directory: Path, **fields: Any
) -> AsyncIterator[tuple[Plugin, DriverConnection]]:
    """A driver that runs and is registered."""
    async with running(driver, client, options(directory, **fields)) as plugin:
        await find_sockets(plugin.registration_path.parent)
        async with registered(plugin.registration_path, timeout_s=WAIT_S) as kubelet:
            yield plugin, kubelet


async def make_claim(
    client: Client,
    driver: str,
    devices: Sequence[str],
    *,
    configs: Sequence[Mapping[str, Any]] = (),
    request: str = "gpu",
    annotations: Mapping[str, str] | None = None,
    also: Sequence[tuple[str, str]] = (),
    device_class: str = "gpu",
    **fields: Any,
) -> ClaimRef:
    """A claim that holds devices of the node's pool. also: pools and devices besides."""
    claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
    base, _, alternative = request.partition("/")
    exactly = {"deviceClassName": device_class, "allocationMode": "All"}
    ask: dict[str, Any] = {"name": base, "exactly": exactly}
    if alternative:
        ask = {"name": base, "firstAvailable": [{"name": alternative, **exactly}]}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{_ids.suffix(8)}", "annotations": dict(annotations or {})},
        "spec": {"devices": {"requests": [ask]}},
    }
    made = await claims.create(body, "default")
    held = [*((NODE, name) for name in devices), *also]
    results = [{"request": request, "driver": driver, "pool": pool, "device": name, **fields} for pool, name in held]
    here = {"key": "metadata.name", "operator": "In", "values": [NODE]}
    selector = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    allocation = {"devices": {"results": results, "config": list(configs)}, "nodeSelector": selector}
    await claims.update_status({**made, "status": {"allocation": allocation}}, "default")
    return ClaimRef("default", made["metadata"]["name"], made["metadata"]["uid"])


async def release(client: Client, claim: ClaimRef) -> None:
    """Take its allocation away."""
    claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
    made = await claims.get(claim.name, "default")
    await claims.update_status({**made, "status": {}}, "default")
