"""Registered drivers: one connection to each instance, calls over it, and which instance to use.

Knows: both versions of the DRAPlugin service, both of the health service, gRPC's errors as the kubelet shows them. Does not know
how an instance registers (`registration`) or why it is called (`claim_preparer`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import grpc
import msgspec

from allot.core.lifecycle.preparation import PREPARE, UNPREPARE, ClaimRecord, PreparedDevice
from allot.node.plugin_calls import CHANNEL_OPTIONS, CallFailed, NotUsable, call, failure, parse, socket_target
from allot.process.clock import Clock
from allot.process.metrics import Histogram
from allot.wire import dra_health_v1_pb2, dra_health_v1alpha1_pb2, dra_v1_pb2, dra_v1beta1_pb2

_log = logging.getLogger("allot.node.dra")

CALL_TIMEOUT_S = 45.0
# Names of services: in a plugin's registration, and in gRPC.
SERVICES = {
    "v1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2),
    "v1beta1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2),
}
# In the agent's order of preference.
HEALTH_SERVICES = {
    "v1.DRAResourceHealth": dra_health_v1_pb2,
    "v1alpha1.DRAResourceHealth": dra_health_v1alpha1_pb2,
}
_HEALTH = {0: "Unknown", 1: "Healthy", 2: "Unhealthy"}


class HealthReport(msgspec.Struct, frozen=True):
    """One device in a report: pool, device, health, message and timeout."""

    pool: str
    device: str
    health: str
    message: str
    timeout_s: float


# --- versions ---


def choose_service(driver: str, endpoint: str, versions: Sequence[str]) -> str:
    """The first known service in a plugin's list; NotUsable if there is none."""
    where = f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}"
    if not versions:
        raise NotUsable(f"{where}: empty list of supported gRPC services (aka supported versions)")
    for version in versions:
        if version in SERVICES:
            return version
    raise NotUsable(
        f"{where}: none of services supported by the plugin ({_quoted(versions)}) are supported by the kubelet "
        f"({_quoted(tuple(SERVICES))})"
    )


def choose_health_service(versions: Sequence[str]) -> str:
    """The newest health service that both sides know; empty if none."""
    return next((service for service in HEALTH_SERVICES if service in versions), "")


def _quoted(values: Sequence[str]) -> str:
    """As Go prints a list of strings."""
    return "[" + " ".join(msgspec.json.encode(value).decode() for value in values) + "]"


# --- one instance ---


class Plugin:
    """One instance of a driver."""

    def __init__(
        self,
        driver: str,
        endpoint: str,
        versions: Sequence[str],
        clock: Clock,
        *,
        calls: Histogram | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        self.driver = driver
        self.endpoint = endpoint
        self.service = choose_service(driver, endpoint, versions)
        self.health_service = choose_health_service(versions)
        self.is_connected = False
        self._clock = clock
        self._calls = calls
        self._timeout_s = timeout_s
        self._channel = grpc.aio.insecure_channel(socket_target(endpoint), options=CHANNEL_OPTIONS)

    async def close(self, grace_s: float | None = None) -> None:
        """Start no new calls; pending ones fail after the grace period."""
        try:
            await self._channel.close(grace_s)
        except asyncio.CancelledError:
            await self._channel.close()
            raise

    async def watch_connection(self, changed: Callable[[], None]) -> None:
        """Stay connected, and report each change, until cancelled."""
        while True:
            state = self._channel.get_state(try_to_connect=True)
            is_connected = state == grpc.ChannelConnectivity.READY
            if is_connected != self.is_connected:
                self.is_connected = is_connected
                changed()
            if state == grpc.ChannelConnectivity.SHUTDOWN:
                return
            await self._channel.wait_for_state_change(state)

    async def prepare(self, claims: Sequence[ClaimRecord]) -> Mapping[str, tuple[str, tuple[PreparedDevice, ...]]]:
        """By claim uid: an error if not empty, and the devices. CallFailed if the call as a whole failed."""
        answer = await self._call(PREPARE, claims)
        return {uid: (each.error, tuple(map(_device, each.devices))) for uid, each in answer.claims.items()}

    async def unprepare(self, claims: Sequence[ClaimRecord]) -> Mapping[str, str]:
        """By claim uid: an error, empty for success. CallFailed if the call as a whole failed."""
        answer = await self._call(UNPREPARE, claims)
        return {uid: each.error for uid, each in answer.claims.items()}

    async def _call(self, operation: str, claims: Sequence[ClaimRecord]) -> Any:
        service, wire = SERVICES[self.service]
        request = getattr(wire, f"{operation}Request")(
            claims=[wire.Claim(namespace=each.namespace, uid=each.uid, name=each.name) for each in claims]
        )
        method = f"/{service}/{operation}"
        started = self._clock.monotonic()
        code = "OK"
        try:
            return await call(self._channel, method, request, getattr(wire, f"{operation}Response"), self._timeout_s)
        except CallFailed as error:
            code = error.code
            raise
        finally:
            if self._calls is not None:
                self._calls.observe(self._clock.monotonic() - started, self.driver, method, code)

    async def watch_health(self) -> AsyncGenerator[Sequence[HealthReport], None]:
        """Reports about all devices, until the stream ends. CallFailed if it fails; `Unimplemented`: there will be none."""
        wire = HEALTH_SERVICES[self.health_service]
        method = f"/{self.health_service}/NodeWatchResources"
        start: Any = self._channel.unary_stream(method)
        stream = start(wire.NodeWatchResourcesRequest().SerializeToString())
        try:
            async for raw in stream:
                yield tuple(map(_report, parse(raw, wire.NodeWatchResourcesResponse).devices))
        except grpc.aio.AioRpcError as error:
            raise failure(error) from error
        finally:
            stream.cancel()


def _device(device: Any) -> PreparedDevice:
    # v1beta1 has no shares.
    has_share = "share_id" in device.DESCRIPTOR.fields_by_name and device.HasField("share_id")
    return PreparedDevice(
        pool=device.pool_name,
        device=device.device_name,
        share_id=device.share_id if has_share else None,
        request_names=tuple(device.request_names),
        cdi_ids=tuple(device.cdi_device_ids),
    )


def _report(item: Any) -> HealthReport:
    return HealthReport(
        item.device.pool_name,
        item.device.device_name,
        _HEALTH.get(item.health, "Unknown"),
        item.message,
        float(item.health_check_timeout_seconds),
    )


# --- all instances ---


class Plugins:
    """All instances of all drivers, in the order of registration. changed: receives the affected driver."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._plugins: dict[str, list[Plugin]] = {}
        self._changed = changed

    def add(self, plugin: Plugin) -> None:
        """Add an instance; NotUsable if its place is taken."""
        present = self._plugins.setdefault(plugin.driver, [])
        if any(each.endpoint == plugin.endpoint for each in present):
            raise NotUsable(f"endpoint {plugin.endpoint} already registered for DRA driver plugin {plugin.driver}")
        present.append(plugin)
        self._changed(plugin.driver)

    def remove(self, driver: str, endpoint: str) -> Plugin | None:
        """Remove an instance."""
        present = self._plugins.get(driver, [])
        plugin = next((each for each in present if each.endpoint == endpoint), None)
        if plugin is None:
            return None
        present.remove(plugin)
        if not present:
            del self._plugins[driver]
        self._changed(driver)
        return plugin

    def choose(self, driver: str) -> Plugin:
        """The newest connected instance, else the newest; NotUsable if there is none. Choose again for each call."""
        if not driver:
            raise NotUsable("DRA driver name is empty")
        present = self._plugins.get(driver)
        if not present:
            raise NotUsable(f"DRA driver {driver} is not registered")
        return next((each for each in reversed(present) if each.is_connected), present[-1])

    def is_usable(self, driver: str) -> bool:
        """Whether any instance is connected."""
        return any(each.is_connected for each in self._plugins.get(driver, ()))

    def drivers(self) -> tuple[str, ...]:
        """All registered drivers."""
        return tuple(self._plugins)

    def instances(self) -> tuple[Plugin, ...]:
        """All instances."""
        return tuple(plugin for present in self._plugins.values() for plugin in present)
