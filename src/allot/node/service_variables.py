"""Environment variables for Services: those of the pod's namespace, and the API server's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from enum import Enum
from typing import Any

from allot.client.informer import Change
from allot.client.informers import Informers
from allot.core.model.pods_v1 import RunnablePod
from allot.core.network.variables import service_variables

_log = logging.getLogger("allot.node")

_BY_NAMESPACE = "service variables: by namespace"
_API = "default/kubernetes"
_SYNC_S = 20.0

Object = dict[str, Any]


class ApiVariables(Enum):
    """Which pods get the API server's address from its Service. The others cannot reach the address of a Service; their runtime provides it."""

    NONE = 0
    WITH_OWN_NETWORK = 1
    ALL = 2


class ServiceVariables:
    """Follows Services."""

    def __init__(self, informers: Informers, api: ApiVariables) -> None:
        self._services = informers.dynamic("", "v1", "services", namespaced=True)
        self._services.cache.add_index(_BY_NAMESPACE, _namespace)
        self._services.add_handler(self._changed)
        self._api = api
        self._known: dict[tuple[str, bool, bool], Mapping[str, str]] = {}

    async def wait(self) -> None:
        """Wait until they are known, because a container's environment is fixed at its start. Not forever, in case reading is forbidden."""
        try:
            async with asyncio.timeout(_SYNC_S):
                await self._services.wait_synced()
        except TimeoutError:
            _log.warning("services are not known: containers are started without variables for them")

    def of(self, pod: RunnablePod) -> Mapping[str, str]:
        """What the containers of a pod get."""
        namespace, spec = pod.metadata.namespace, pod.spec
        reaches = self._api == ApiVariables.ALL or (self._api != ApiVariables.NONE and not spec.host_network)
        key = (namespace, spec.enable_service_links, reaches)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make(*key)
        return found

    def _make(self, namespace: str, links: bool, reaches: bool) -> Mapping[str, str]:
        api = self._services.cache.get(_API)
        services = [api] if api is not None else []
        if links:
            services += self._services.cache.by_index(_BY_NAMESPACE, namespace)
        made = service_variables(services)
        own = service_variables([api]) if api is not None and not reaches else {}
        return {name: value for name, value in made.items() if name not in own}

    def _changed(self, _change: Change[Object]) -> None:
        self._known.clear()


def _namespace(service: Object) -> tuple[str, ...]:
    return (service["metadata"]["namespace"],)
