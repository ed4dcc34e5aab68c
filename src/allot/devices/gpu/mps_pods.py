"""The MPS control daemons of simulated GPUs as Deployments on their nodes, as NVIDIA's driver runs real ones.

The limits of a daemon's clients are in `simulated`; the Deployment is only for display, and its pod logs the commands that a real daemon
would get. It belongs to the node, so that it does not outlive it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from allot.client.api import Client
from allot.client.errors import AlreadyExists, ApiError, NotFound
from allot.core.model.compute_domains import DRIVER_NAMESPACE
from allot.driver import PrepareError

PREFIX = "mps-control-daemon-"
IMAGE = "ubuntu:22.04"
_RUN = 'printf "%s\\n" "$@"; trap "exit 0" TERM; while true; do sleep 3600 & wait $!; done'


class MpsPods:
    """Writes as the driver of one node."""

    def __init__(self, client: Client, node: str) -> None:
        self._deployments = client.resource("apps", "v1", "deployments", namespaced=True)
        self._namespaces = client.resource("", "v1", "namespaces", namespaced=False)
        self._nodes = client.resource("", "v1", "nodes", namespaced=False)
        self._node = node

    async def start(self, id_: str, told: Sequence[str]) -> None:
        """Create a Deployment for a daemon, unless it exists. told: the daemon's commands."""
        try:
            node = await self._nodes.get(self._node)
            with suppress(AlreadyExists):
                await self._namespaces.create(
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRIVER_NAMESPACE}}
                )
            with suppress(AlreadyExists):
                await self._deployments.create(self._deployment(id_, told, node["metadata"]["uid"]), DRIVER_NAMESPACE)
        except ApiError as error:
            raise PrepareError(f"Deployment {DRIVER_NAMESPACE}/{PREFIX}{id_}: {error}") from error

    async def stop(self, id_: str) -> None:
        """Delete the Deployment of a daemon."""
        try:
            await self._deployments.delete(f"{PREFIX}{id_}", DRIVER_NAMESPACE)
        except NotFound:
            return
        except ApiError as error:
            raise PrepareError(f"Deployment {DRIVER_NAMESPACE}/{PREFIX}{id_}: {error}") from error

    def _deployment(self, id_: str, told: Sequence[str], node_uid: str) -> dict[str, Any]:
        name = f"{PREFIX}{id_}"
        labels = {f"{PREFIX}app": name}
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node_uid}
        container = {
            "name": "mps-control-daemon",
            "image": IMAGE,
            "command": ["sh", "-c", _RUN, "mps-control-daemon", *told],
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeName": self._node,
                        "tolerations": [{"operator": "Exists"}],
                        "terminationGracePeriodSeconds": 1,
                        "containers": [container],
                    },
                },
            },
        }
