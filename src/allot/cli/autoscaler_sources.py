"""What the autoscaler reads from a cluster: everything that the scheduler reads, DaemonSets, and ComputeClasses if they are defined."""

from __future__ import annotations

import logging

from allot.autoscaler.loop import Autoscaler
from allot.client.api import Client
from allot.client.discovery import Discovery
from allot.client.errors import ApiError
from allot.client.informer import Informer
from allot.client.informers import Informers
from allot.core.model.compute_classes import GROUP, PLURAL, VERSION
from allot.core.model.resource_v1 import ResourceClaimTemplate
from allot.process.clock import Clock
from allot.scheduler.sources import Sources, served_version

_log = logging.getLogger("allot.autoscaler")
# How often to check for kinds that have been defined since.
_LATE_KINDS_S = 10.0


class AutoscalerSources:
    """Feeds an autoscaler. `run` also reads kinds that are defined later."""

    def __init__(self, client: Client, informers: Informers, clock: Clock, made: Autoscaler) -> None:
        self._client = client
        self._informers = informers
        self._clock = clock
        self._made = made
        self._sources: Sources | None = None
        self._daemons = informers.dynamic("apps", "v1", "daemonsets", namespaced=True)
        self._templates: Informer[ResourceClaimTemplate] | None = None
        self._has_classes = False

    async def connect(self) -> None:
        """Before the informers run."""
        discovery = await self._client.discovery()
        self._sources = Sources(self._informers, discovery)
        self._sources.connect(self._made.changed, self._made.machine.serve)
        self._daemons.add_handler(self._made.daemons_changed)
        version = served_version(discovery, ResourceClaimTemplate)
        if version:
            self._templates = self._informers.typed(ResourceClaimTemplate, version=version)
            self._templates.add_handler(self._made.changed)
        self._connect_classes(discovery)

    async def wait_synced(self) -> None:
        """Return as soon as everything that existed at the start is known."""
        assert self._sources is not None, "connected"
        await self._sources.wait_synced()
        await self._daemons.wait_synced()
        if self._templates is not None:
            await self._templates.wait_synced()
        if self._has_classes:
            await self._informers.dynamic(GROUP, VERSION, PLURAL, namespaced=False).wait_synced()

    async def run(self, pause_s: float = _LATE_KINDS_S) -> None:
        """Wait until all kinds are defined."""
        assert self._sources is not None, "connected"
        while self._sources.missing or not self._has_classes:
            await self._clock.sleep(pause_s)
            try:
                discovery = await self._client.discovery(refresh=True)
            except ApiError as error:
                _log.info("cannot discover what is served: %s", error)
                continue
            self._sources.connect_custom(discovery, self._made.changed, self._made.machine.serve)
            self._connect_classes(discovery)

    def _connect_classes(self, discovery: Discovery) -> None:
        if self._has_classes or discovery.find_name(f"{PLURAL}.{GROUP}") is None:
            return
        self._has_classes = True
        self._made.compute_classes.is_served = True
        self._informers.dynamic(GROUP, VERSION, PLURAL, namespaced=False).add_handler(self._made.classes_changed)
