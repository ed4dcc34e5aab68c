"""Negotiates with controllers that allocate claims themselves (PodSchedulingContext, feature gate DRAControlPlaneController).

The queue holds back a pod with such claims until they are allocated. Meanwhile its PodSchedulingContext is maintained as
`core.scheduling.devices.negotiation` decides, and deleted when the pod no longer waits. The machine finds the possible nodes, for
the pod without those claims.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from msgspec.structs import replace

from allot.client.api import Client
from allot.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from allot.client.informer import Informer, Object
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Pod
from allot.core.scheduling import Machine
from allot.core.scheduling.devices.negotiation import Negotiation, allowed_nodes, next_offer
from allot.core.scheduling.plan import Unit
from allot.process.clock import Clock
from allot.process.ids import Ids

_log = logging.getLogger("allot.scheduler")

# Changes close together are handled together; a periodic check finds what was missed.
_PAUSE_S = 0.1
_LOOK_S = 10.0


class Negotiator:
    """Keeps the PodSchedulingContexts of pods that wait. Run it."""

    def __init__(self, client: Client, machine: Machine, clock: Clock, ids: Ids) -> None:
        self._contexts = client.resource("resource.k8s.io", "v1alpha3", "podschedulingcontexts", namespaced=True)
        self._machine = machine
        self._clock = clock
        self._news = asyncio.Event()
        self._informer: Informer[Object] = Informer(self._contexts, lambda object_: object_, clock, ids)
        self._informer.add_handler(lambda _change: self.changed())

    def changed(self) -> None:
        """Something in the cluster has changed."""
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            await self._informer.wait_synced()
            while True:
                self._news.clear()
                await self._look()
                await self._clock.sleep(_PAUSE_S)
                try:
                    async with asyncio.timeout(_LOOK_S):
                        await self._news.wait()
                except TimeoutError:
                    pass

    async def _look(self) -> None:
        waiting: set[str] = set()
        for pod in self._machine.queue.pods():
            key = f"{pod.metadata.namespace}/{pod.metadata.name}"
            waiting.add(key)
            claims = {} if pod.spec.scheduling_gates else self._machine.claims.awaited(pod)
            if claims:
                await self._negotiate(key, pod, claims)
        for key, context in self._informer.cache.items():
            # Contexts of pods that wait for other schedulers belong to those; contexts of deleted pods are deleted with them.
            if key not in waiting and any(uid in self._machine.cluster.pods for uid in _owners(context)):
                await self._delete(context)

    async def _negotiate(self, key: str, pod: Pod, claims: dict[str, api.ResourceClaim]) -> None:
        context = self._informer.cache.get(key)
        if context is not None and not _is_of(context, pod):
            await self._delete(context)
            return
        known = negotiation_of(context) if context is not None else None
        machine = self._machine
        nodes = [info.node for info in machine.cluster.nodes.values()]
        allowed = allowed_nodes(claims.values(), machine.claims.inventory.classes, nodes)
        left = tuple(entry for entry in pod.spec.resource_claims if entry.name not in claims)
        alone = replace(pod, spec=replace(pod.spec, resource_claims=left))
        offer = next_offer(known, claims, lambda excluded: self._best(alone, allowed - excluded))
        if offer != known:
            await self._write(pod, context, offer)

    def _best(self, pod: Pod, among: frozenset[str]) -> Iterator[str]:
        """Nodes for a pod, one after the other, each the best of those that are left."""
        left = set(among)
        while left:
            outcome = self._machine.consider(Unit(pods=(pod,)), self._clock.seconds(), frozenset(left))
            if not outcome.placements:
                return
            node = outcome.placements[0].node
            yield node
            left.discard(node)

    async def _write(self, pod: Pod, context: Object | None, offer: Negotiation) -> None:
        metadata = pod.metadata
        try:
            if context is not None:
                await self._contexts.update({**context, "spec": _spec(offer)}, metadata.namespace)
                return
            owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid, "controller": True}
            made = {"name": metadata.name, "namespace": metadata.namespace, "ownerReferences": [owner]}
            kind = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "PodSchedulingContext"}
            await self._contexts.create({**kind, "metadata": made, "spec": _spec(offer)}, metadata.namespace)
        except (AlreadyExists, Conflict, NotFound):
            # The watch shows what is there now.
            return
        except ApiError as error:
            _log.warning("negotiation about pod %s/%s: %s", metadata.namespace, metadata.name, error)

    async def _delete(self, context: Object) -> None:
        metadata = context["metadata"]
        try:
            await self._contexts.delete(metadata["name"], metadata["namespace"], uid=metadata["uid"])
        except (NotFound, Conflict):
            return
        except ApiError as error:
            _log.warning("PodSchedulingContext %s/%s: %s", metadata["namespace"], metadata["name"], error)


def negotiation_of(context: Object) -> Negotiation:
    """What a PodSchedulingContext says."""
    spec, status = context.get("spec") or {}, context.get("status") or {}
    return Negotiation(
        selected_node=spec.get("selectedNode") or "",
        potential_nodes=tuple(spec.get("potentialNodes") or ()),
        unsuitable={
            claim["name"]: frozenset(claim.get("unsuitableNodes") or ()) for claim in status.get("resourceClaims") or ()
        },
    )


def _spec(offer: Negotiation) -> Object:
    spec: Object = {"potentialNodes": list(offer.potential_nodes)}
    return {"selectedNode": offer.selected_node, **spec} if offer.selected_node else spec


def _is_of(context: Object, pod: Pod) -> bool:
    return pod.metadata.uid in _owners(context)


def _owners(context: Object) -> list[str]:
    return [owner.get("uid", "") for owner in context["metadata"].get("ownerReferences") or ()]
