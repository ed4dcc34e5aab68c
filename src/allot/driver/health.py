"""Device health: polled from the driver often enough that the kubelet always has a current report, and sent on every stream.

If the driver does not answer, nothing is sent, and the kubelet considers its devices Unknown after their
timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable

import msgspec

from allot.driver.callbacks import call
from allot.driver.driver import DeviceHealth, Driver
from allot.driver.metrics import DriverMetrics
from allot.process.clock import Clock
from allot.process.supervise import answer_or_failure

_log = logging.getLogger("allot.driver")

MESSAGE_BYTES_MAX = 1024
# How many reports are sent within the kubelet's timeout.
_REPORTS_PER_TIMEOUT = 3


class Report(msgspec.Struct, frozen=True):
    """The health of all devices at a time."""

    devices: tuple[DeviceHealth, ...]
    seconds: int
    timeout_s: int


class HealthBoard:
    """Keeps the latest report of a driver."""

    def __init__(self, driver: Driver, node_name: str, metrics: DriverMetrics, clock: Clock) -> None:
        self._driver = driver
        self._node_name = node_name
        self._metrics = metrics
        self._clock = clock
        self._wanted = asyncio.Event()
        self._news = asyncio.Condition()
        self._report: Report | None = None
        self._number = 0
        self._is_closed = False

    def look(self) -> None:
        """Ask the driver now."""
        self._wanted.set()

    async def run(self) -> None:
        """Poll the driver."""
        interval = self._driver.health_timeout_s / _REPORTS_PER_TIMEOUT
        while True:
            self._wanted.clear()
            await self._ask()
            try:
                async with asyncio.timeout(interval):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def close(self) -> None:
        """End all streams."""
        async with self._news:
            self._is_closed = True
            self._news.notify_all()

    async def reports(self) -> AsyncIterator[Report]:
        """The latest report and every later one, until closed. A slow reader misses some, never the last."""
        seen = 0
        while True:
            async with self._news:
                while not self._is_closed and self._number == seen:
                    await self._news.wait()
                if self._is_closed:
                    return
                seen, report = self._number, self._report
            assert report is not None
            yield report

    async def _ask(self) -> None:
        answer = await answer_or_failure(lambda: call(self._driver.health))
        if isinstance(answer, Exception):
            _log.error("the driver does not report the health of its devices", exc_info=answer)
            self._metrics.problem("health")
            return
        report = Report(
            devices=self._told(answer),
            seconds=int(self._clock.seconds()),
            timeout_s=max(1, int(self._driver.health_timeout_s)),
        )
        async with self._news:
            self._report = report
            self._number += 1
            self._news.notify_all()

    def _told(self, devices: Iterable[DeviceHealth]) -> tuple[DeviceHealth, ...]:
        return tuple(
            msgspec.structs.replace(device, pool=device.pool or self._node_name, message=cut_message(device.message))
            for device in devices
        )


def cut_message(message: str) -> str:
    """A message, truncated to the kubelet's limit."""
    data = message.encode()
    if len(data) <= MESSAGE_BYTES_MAX:
        return message
    return data[: MESSAGE_BYTES_MAX - 3].decode(errors="ignore") + "..."
