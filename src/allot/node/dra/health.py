"""Watches and stores drivers' device health reports, also on disk; reports which pods a change affects.

Outdated reports count as Unknown. An unhealthy device is only reported in the status of its pods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from allot.core.lifecycle.device_health import (
    DeviceKey,
    DriverHealth,
    container_health,
    merge,
    newly_stale,
    pods_using,
    reported,
)
from allot.core.lifecycle.preparation import Records
from allot.core.model.core_v1 import Pod, ResourceStatus
from allot.node.dra.checkpoint import HEALTH_FILE, decode_health, encode_health
from allot.node.dra.plugins import HealthReport, Plugin
from allot.node.plugin_calls import CallFailed
from allot.node.state_file import StateFile
from allot.process.clock import Clock

_log = logging.getLogger("allot.node.dra")

REDIAL_S = 5.0
LOOK_S = 1.0


class HealthBook:
    """What drivers have reported. changed: receives the uids of pods whose status changes."""

    def __init__(
        self,
        folder: Path,
        records: Callable[[], Records],
        changed: Callable[[Sequence[str]], None],
        clock: Clock,
        *,
        with_message: bool = True,
        redial_s: float = REDIAL_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._records = records
        self._changed = changed
        self._clock = clock
        self._with_message = with_message
        self._redial_s = redial_s
        self._look_s = look_s
        self._health: dict[str, DriverHealth] = {}
        # Open streams by driver: two while a newer instance replaces another.
        self._streams: dict[str, int] = {}
        self._file = StateFile(folder / HEALTH_FILE, lambda: encode_health(self._health))
        try:
            content = self._file.read()
            self._health = {} if content is None else decode_health(content)
        except (OSError, ValueError, OverflowError, RecursionError) as error:
            _log.warning("%s cannot be read and is not needed: %s", folder / HEALTH_FILE, error)

    @property
    def known(self) -> Mapping[str, DriverHealth]:
        """By driver."""
        return self._health

    def of_pod(self, pod: Pod) -> Mapping[str, tuple[ResourceStatus, ...]]:
        """allocatedResourcesStatus by container."""
        now = self._clock.seconds()
        return container_health(self._records(), self._health, pod, now, with_message=self._with_message)

    async def run(self) -> None:
        """Report devices without a recent health report, until cancelled."""
        before = self._clock.seconds()
        while True:
            await self._clock.sleep(self._look_s)
            now = self._clock.seconds()
            for driver, devices in self._health.items():
                self._tell(driver, newly_stale(devices, before, now))
            before = now

    async def listen(self, plugin: Plugin) -> None:
        """Follow one instance until cancelled, or until it reports that it has no health service."""
        while True:
            self._streams[plugin.driver] = self._streams.get(plugin.driver, 0) + 1
            try:
                async with aclosing(plugin.watch_health()) as reports:
                    async for report in reports:
                        await self._take(plugin.driver, report)
                _log.debug("health stream of %s at %s has ended", plugin.driver, plugin.endpoint)
            except CallFailed as error:
                if error.code == "Unimplemented":
                    return
                _log.debug("health stream of %s at %s: %s", plugin.driver, plugin.endpoint, error)
            finally:
                self._ended(plugin.driver)
            await self._write()
            await self._clock.sleep(self._redial_s)

    async def _take(self, driver: str, report: Sequence[HealthReport]) -> None:
        now = self._clock.seconds()
        said = {(each.pool, each.device): reported(each.health, each.message, each.timeout_s, now) for each in report}
        before = self._health.get(driver, {})
        merged = merge(before, said, now)
        self._health[driver] = merged.devices
        if merged.ignored:
            _log.error("driver %s reports too many devices, %d of them are ignored", driver, merged.ignored)
        self._tell(driver, merged.changed)
        if merged.changed or merged.devices.keys() != before.keys():
            await self._write()

    def _ended(self, driver: str) -> None:
        """A driver's reports expire when it is gone, unless another instance continues."""
        self._streams[driver] -= 1
        if not self._streams[driver]:
            del self._streams[driver]
            self._tell(driver, tuple(self._health.pop(driver, {})))

    def _tell(self, driver: str, devices: Sequence[DeviceKey]) -> None:
        pods = pods_using(self._records(), driver, devices) if devices else ()
        if pods:
            self._changed(pods)

    async def _write(self) -> None:
        try:
            await self._file.write()
        except OSError as error:
            _log.error("%s: health is not kept over a restart: %s", self._file.path, error)

    async def settle(self) -> None:
        """Wait for pending writes."""
        await self._file.settle()
