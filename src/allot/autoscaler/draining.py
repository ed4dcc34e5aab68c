"""Removes a node: cordons it, evicts its pods through the eviction API, which respects budgets, and deletes the machine.

After a failure the node is restored. A process that is killed in between leaves a taint; the next one removes it
(`clean_up`) and starts again with a new proof.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from allot.autoscaler.groups import name_of
from allot.autoscaler.options import AutoscalerOptions
from allot.autoscaler.provider import Provider, ProviderError
from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, Conflict, NotFound, TooManyRequests
from allot.client.events import EventRecorder
from allot.core.autoscaling.templates import DELETION_CANDIDATE, TO_BE_DELETED
from allot.core.model.core_v1 import Node, Pod
from allot.process.clock import Clock

_log = logging.getLogger("allot.autoscaler")

Object = dict[str, Any]

_RETRY_S = 0.5
_TRIES = 5


class CannotDrain(Exception):
    """Why a node stays."""


class Draining:
    """Drains nodes and deletes their machines."""

    def __init__(
        self, client: Client, clock: Clock, events: EventRecorder, provider: Provider, options: AutoscalerOptions
    ) -> None:
        self._nodes = client.resource("", "v1", "nodes", namespaced=False)
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        self._clock = clock
        self._events = events
        self._provider = provider
        self._options = options

    async def clean_up(self, nodes: Sequence[Node]) -> None:
        """Remove taints that an earlier process left."""
        for node in nodes:
            if any(taint.key in (TO_BE_DELETED, DELETION_CANDIDATE) for taint in node.spec.taints):
                _log.info("node %s: mark removed, because no autoscaler removes the node now", node.metadata.name)
                await self._unmark(node.metadata.name)

    async def soften(self, nodes: Sequence[Node], unneeded: Collection[str]) -> None:
        """Taint unneeded nodes, and untaint needed ones, a few at a time."""
        left = self._options.max_bulk_soft_taint_count
        for node in nodes:
            is_marked = any(taint.key == DELETION_CANDIDATE for taint in node.spec.taints)
            if left and is_marked != (node.metadata.name in unneeded):
                left -= 1
                await self._soften(node.metadata.name, is_marked=not is_marked)

    async def _soften(self, name: str, *, is_marked: bool) -> None:
        stamp = str(int(self._clock.seconds()))
        mark = {"key": DELETION_CANDIDATE, "value": stamp, "effect": "PreferNoSchedule"}
        try:
            await self._retaint(
                name,
                lambda taints: [
                    *(each for each in taints if each["key"] != DELETION_CANDIDATE),
                    *([mark] if is_marked else []),
                ],
            )
        except NotFound:
            return
        except ApiError as error:
            _log.warning("node %s is not marked: %s", name, error)

    async def remove(self, group: str, node: Node, pods: Sequence[Pod]) -> None:
        """Evict these pods in order, and delete the machine. CannotDrain; then the node is restored."""
        name = node.metadata.name
        try:
            await self._mark(name)
            self._events.record(
                node, "Normal", "ScaleDown", "ScaleDown", "marked the node as toBeDeleted/unschedulable"
            )
            for pod in pods:
                await self._evict(pod)
            await self._wait_for(pods)
            await self._provider.delete(group, [name_of(node)])
        except (ApiError, ProviderError, CannotDrain) as error:
            self._events.record(node, "Warning", "ScaleDownFailed", "ScaleDown", f"failed to delete the node: {error}")
            await self._unmark(name)
            raise CannotDrain(str(error)) from error
        except asyncio.CancelledError:
            # If there is no time now, the next process removes the taint.
            raise

    async def _mark(self, name: str) -> None:
        stamp = str(int(self._clock.seconds()))
        taint = {"key": TO_BE_DELETED, "value": stamp, "effect": "NoSchedule"}
        await self._retaint(name, lambda taints: [*taints, taint], unschedulable=True)

    async def _unmark(self, name: str) -> None:
        marks = (TO_BE_DELETED, DELETION_CANDIDATE)
        try:
            await self._retaint(
                name, lambda taints: [each for each in taints if each["key"] not in marks], unschedulable=False
            )
        except NotFound:
            return
        except ApiError as error:
            _log.warning("node %s: its mark stays: %s", name, error)

    async def _retaint(
        self, name: str, change: Callable[[list[Object]], list[Object]], *, unschedulable: bool | None = None
    ) -> None:
        """unschedulable: the new value, None to keep it."""
        for attempt in range(_TRIES):
            node = await self._nodes.get(name)
            spec = node.get("spec") or {}
            taints = [
                each for each in spec.get("taints") or () if unschedulable is None or each["key"] != TO_BE_DELETED
            ]
            wanted: Object = {"taints": change(taints)}
            if unschedulable is not None:
                wanted["unschedulable"] = unschedulable or None
            body = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": wanted}
            try:
                await self._nodes.patch(name, body, PatchType.MERGE)
                return
            except Conflict:
                if attempt == _TRIES - 1:
                    raise

    async def _evict(self, pod: Pod) -> None:
        """Evict a pod, retrying while a budget may still allow it."""
        metadata = pod.metadata
        until = self._clock.monotonic() + self._options.max_pod_eviction_time_s
        self._events.record(pod, "Normal", "ScaleDown", "ScaleDown", "deleting pod for node scale down")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": metadata.uid}},
        }
        while True:
            try:
                await self._pods.create(body, metadata.namespace, name=metadata.name, subresource="eviction")
                return
            except NotFound:
                return
            except TooManyRequests as error:
                if self._clock.monotonic() > until:
                    raise CannotDrain(f"pod {metadata.namespace}/{metadata.name} cannot be evicted: {error}") from None
            await self._clock.sleep(_RETRY_S)

    async def _wait_for(self, pods: Sequence[Pod]) -> None:
        until = self._clock.monotonic() + self._options.max_graceful_termination_s
        for pod in pods:
            while await self._is_there(pod):
                if self._clock.monotonic() > until:
                    raise CannotDrain(f"pod {pod.metadata.namespace}/{pod.metadata.name} does not end")
                await self._clock.sleep(_RETRY_S / 5)

    async def _is_there(self, pod: Pod) -> bool:
        try:
            found = await self._pods.get(pod.metadata.name, pod.metadata.namespace)
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == pod.metadata.uid)
