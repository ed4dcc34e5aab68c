"""The leader as the only endpoint of its Service.

A Service with a selector routes to all ready pods. Then standby pods could not be ready: no rolling update would
ever complete, and no budget would allow draining the leader's node. So the Service has no selector, and the leader writes its address.
"""

from __future__ import annotations

import logging
from typing import Any

from allot.client.api import Client
from allot.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from allot.guard.configuration import Service
from allot.process.clock import Clock

_log = logging.getLogger("allot.guard")

_CHECK_EVERY_S = 5.0
_RETRY_S = 1.0

Object = dict[str, Any]


def endpoint_slice(service: Object, port: int, address: str, target_port: int) -> Object:
    """The EndpointSlice of a Service with one address. port: the Service's named port."""
    metadata = service["metadata"]
    name = next((each.get("name", "") for each in service["spec"].get("ports") or () if each["port"] == port), "")
    owner = {"apiVersion": "v1", "kind": "Service", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {
                "kubernetes.io/service-name": metadata["name"],
                "endpointslice.kubernetes.io/managed-by": "allot-guard",
            },
            "ownerReferences": [owner],
        },
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": name, "port": target_port, "protocol": "TCP"}],
    }


class LeaderEndpoint:
    """Keeps the Service pointing here while this process leads."""

    def __init__(self, client: Client, clock: Clock, service: Service, address: str, target_port: int) -> None:
        self._services = client.resource("", "v1", "services", namespaced=True)
        self._slices = client.resource("discovery.k8s.io", "v1", "endpointslices", namespaced=True)
        self._clock = clock
        self._service = service
        self._address = address
        self._target_port = target_port
        self._told = ""

    async def publish(self) -> None:
        """Write it, retrying until that succeeds."""
        while not await self._ensure():
            await self._clock.sleep(_RETRY_S)

    async def keep(self) -> None:
        """Maintain it until cancelled."""
        while True:
            await self._clock.sleep(_CHECK_EVERY_S)
            await self._ensure()

    async def _ensure(self) -> bool:
        try:
            await self._write()
        except (AlreadyExists, Conflict):
            return False  # Another writer was faster; the next check sees its write.
        except ApiError as error:
            if str(error) != self._told:
                self._told = str(error)
                _log.warning(
                    "endpoint of Service %s/%s: not written: %s", self._service.namespace, self._service.name, error
                )
            return False
        return True

    async def _write(self) -> None:
        place = self._service
        service = await self._services.get(place.name, place.namespace)
        wanted = endpoint_slice(service, place.port, self._address, self._target_port)
        try:
            found = await self._slices.get(place.name, place.namespace)
        except NotFound:
            await self._slices.create(wanted, place.namespace)
            return
        said = ("endpoints", "ports")
        if any(found.get(key) != wanted[key] for key in said):
            await self._slices.update({**found, **{key: wanted[key] for key in said}}, place.namespace)
