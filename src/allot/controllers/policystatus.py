"""The controller of the status of ValidatingAdmissionPolicies: reads the schemas of the kinds that a policy is about, asks
`core.policies.type_checking`, writes the warnings.

Schemas are read from the server when a policy has changed, so they are those of the moment, custom resources included.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from allot.client.errors import ApiError, NotFound, UnexpectedAnswer
from allot.client.informer import Change, Informer
from allot.client.workqueue import WorkQueue
from allot.controllers.runner import Services
from allot.core.policies.object_types import ObjectTypes
from allot.core.policies.type_checking import ServedKind, checked_kinds, needs_check, param_kind, type_warnings
from allot.process.supervise import supervise

_log = logging.getLogger("allot.controllers")

NAME = "validatingadmissionpolicy-status-controller"
_GROUP = "admissionregistration.k8s.io"
_PLURAL = "validatingadmissionpolicies"
# The field manager; upstream's name.
_MANAGER = "validatingadmissionpolicy-status"
_WORKERS = 5

Object = dict[str, Any]


class PolicyStatus:
    """Checks policies as they come and change."""

    def __init__(self, services: Services) -> None:
        self._client = services.client
        self._clock = services.clock
        self._policies: Informer[Object] = services.informers.dynamic(_GROUP, "v1", _PLURAL, namespaced=False)
        self._resource = services.client.resource(_GROUP, "v1", _PLURAL, namespaced=False)
        self._queue: WorkQueue[str] = WorkQueue(services.clock, metrics=services.metrics.queue(_MANAGER))
        self._policies.add_handler(self._notice)

    def _notice(self, change: Change[Object]) -> None:
        if change.new is not None and needs_check(change.new):
            self._queue.add(change.key)

    async def run(self) -> None:
        """Check until cancelled."""
        await self._policies.wait_synced()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_WORKERS):
                tasks.create_task(supervise(f"controller {NAME}", self._work, self._clock))

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._reconcile(key)
            except ApiError as error:
                _log.warning("controller %s: %s: %s", NAME, key, error)
                self._queue.add_rate_limited(key)
            else:
                self._queue.forget(key)
            finally:
                self._queue.done(key)

    async def _reconcile(self, key: str) -> None:
        policy = self._policies.cache.get(key)
        if policy is None or not needs_check(policy):
            return
        # Kinds may be new: a CustomResourceDefinition may just have been created.
        discovery = await self._client.discovery(refresh=True)
        served = [
            ServedKind(each.group, each.version, each.kind, each.plural, each.singular) for each in discovery.resources
        ]
        kinds, params = checked_kinds(policy, served), param_kind(policy)
        homes = {kind.group_version for kind in kinds} | ({params.group_version} if params is not None else set())
        types = {home: await self._types(*home) for home in sorted(homes)}
        # Beside the loop: a policy may have many expressions.
        warnings = await asyncio.to_thread(partial(type_warnings, policy, kinds, types))
        told = [{"fieldRef": each.field, "warning": each.text} for each in warnings]
        status = {
            "observedGeneration": policy["metadata"]["generation"],
            "typeChecking": {"expressionWarnings": told} if told else {},
        }
        metadata = {"name": policy["metadata"]["name"], "uid": policy["metadata"]["uid"]}
        body = {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "status": status,
        }
        try:
            await self._resource.apply(body, field_manager=_MANAGER, force=True, subresource="status")
        except NotFound:
            return

    async def _types(self, group: str, version: str) -> ObjectTypes:
        """The types of a group and version; none if it is not served."""
        path = f"/openapi/v3/apis/{group}/{version}" if group else f"/openapi/v3/api/{version}"
        try:
            document = (await self._client.request("GET", path)).body
        except NotFound:
            return ObjectTypes({})
        if not isinstance(document, dict):
            raise UnexpectedAnswer("expected an OpenAPI document in JSON", request=f"GET {path}")
        return ObjectTypes((document.get("components") or {}).get("schemas") or {})


def make(services: Services) -> PolicyStatus:
    """The controller `validatingadmissionpolicy-status-controller`."""
    return PolicyStatus(services)
