"""ComponentStatus: whether scheduler, controllers and store work, found out when asked.

kube-apiserver asks their health endpoints on its own machine. Here components announce themselves in leases that the server
follows anyway, wherever they run, and the store is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from allot.apiserver.errors import not_found
from allot.apiserver.objects.options import list_options
from allot.apiserver.objects.selection import selection
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiList, ApiObject, ApiRequest
from allot.core.lifecycle.attention import SCHEDULER
from allot.store.port import Entry

Object = dict[str, Any]
# What is wrong with a component; nothing if it works.
Check = Callable[[], Awaitable[str | None]]

_CONTROLLERS = "namespace-controller"


class ComponentStatuses:
    """The components by name, each with its check."""

    def __init__(self, runs: Callable[[str], bool], store_checks: dict[str, Check]) -> None:
        """runs: whether a component has announced itself. store_checks: of the servers of the store."""
        self._runs = runs
        self._checks: dict[str, Check] = {
            "controller-manager": self._controllers,
            "scheduler": self._scheduler,
            **store_checks,
        }

    async def _scheduler(self) -> str | None:
        return None if self._runs(SCHEDULER) else "neither allot's scheduler nor a kube-scheduler holds its Lease"

    async def _controllers(self) -> str | None:
        return None if self._runs(_CONTROLLERS) else f"no one holds a Lease as {_CONTROLLERS}"

    async def get(self, request: ApiRequest) -> ApiObject:
        """One of them."""
        if request.name not in self._checks:
            raise not_found("", "componentstatus", request.name)
        return ApiObject(object=await self._status(request.name))

    async def list(self, served: Served, request: ApiRequest) -> ApiList:
        """All that are selected."""
        options = list_options(request.query, watch=False)
        chosen = selection(served.resource, options.label_selector, options.field_selector)
        entries = [Entry("", await self._status(name), 0) for name in self._checks]
        resource = served.resource
        return ApiList(
            api_version=resource.api_version,
            kind=resource.list_kind,
            entries=tuple(filter(chosen.matches_entry, entries)),
            resource_version="",
        )

    async def _status(self, name: str) -> Object:
        problem = await self._checks[name]()
        condition = {"type": "Healthy", "status": "False" if problem else "True", "message": problem or "ok"}
        return {"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name}, "conditions": [condition]}
