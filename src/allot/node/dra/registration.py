"""Plugin registration: plugins create a socket in a directory; the agent queries each, accepts or refuses it, and reports that.

Follows the kubelet's plugin watcher: the desired state (existing sockets) is compared with the registered plugins, once a second;
removed or recreated sockets are unregistered first. A failing socket is retried with backoff. The directory is
polled and not watched: that is a system call per socket and second, and no event can be lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

import grpc
import msgspec

from allot.node.plugin_calls import CHANNEL_OPTIONS, CallFailed, Identity, NotUsable, call, identity_of, socket_target
from allot.process.clock import Clock
from allot.wire import plugin_registration_pb2 as wire

_log = logging.getLogger("allot.node.dra")

PERIOD_S = 1.0
DIAL_TIMEOUT_S = 10.0
INFO_TIMEOUT_S = 1.0
NOTIFY_TIMEOUT_S = 5.0
PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 122.0
FOLDER_DEPTH_MAX = 8
_SERVICE = "/pluginregistration.Registration"


class Handler(Protocol):
    """A handler of plugins of one type. NotUsable refuses one."""

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Whether it can be used at all."""

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Add it."""

    async def deregister(self, name: str, endpoint: str) -> None:
        """Remove it."""


class Registered(msgspec.Struct, frozen=True):
    """A plugin that was registered through a socket."""

    identity: Identity
    type: str
    name: str
    endpoint: str


class Failing(msgspec.Struct, frozen=True):
    """A socket whose registration failed."""

    identity: Identity
    pause_s: float
    until: float
    why: str


class Steps(msgspec.Struct, frozen=True):
    """What to do now: sockets whose plugins to unregister, and sockets to register."""

    unregister: tuple[str, ...]
    register: tuple[str, ...]


class RegistrationFailed(Exception):
    """A plugin could not be registered."""


# --- decisions ---


def plan_registrations(
    desired: Mapping[str, Identity],
    actual: Mapping[str, Registered],
    failing: Mapping[str, Failing],
    now: float,
) -> Steps:
    """Compare existing sockets with registered ones. A recreated socket starts without failures."""
    unregister = tuple(path for path, plugin in sorted(actual.items()) if desired.get(path) != plugin.identity)
    register = []
    for path, identity in sorted(desired.items()):
        if path in actual and path not in unregister:
            continue
        failed = failing.get(path)
        if failed is None or failed.identity != identity or now >= failed.until:
            register.append(path)
    return Steps(unregister, tuple(register))


def next_failure(
    before: Failing | None, identity: Identity, why: str, now: float, first_s: float = PAUSE_FIRST_S
) -> Failing:
    """The next failure, with twice the pause of the previous one."""
    if before is None or before.identity != identity:
        pause = first_s
    else:
        pause = min(before.pause_s * 2, PAUSE_MAX_S)
    return Failing(identity, pause, now + pause, why)


# --- the folder ---


def find_sockets(folder: Path, depth: int = 0) -> dict[str, Identity]:
    """All sockets below a folder except hidden ones."""
    found: dict[str, Identity] = {}
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        if depth == 0:
            _log.warning("plugin registry %s cannot be read: %s", folder, error)
        return found
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth < FOLDER_DEPTH_MAX:
                    found |= find_sockets(Path(entry.path), depth + 1)
                continue
            status = entry.stat()
        except OSError:
            continue  # it has just disappeared
        if stat.S_ISSOCK(status.st_mode):
            found[entry.path] = identity_of(status)
    return found


# --- the registry ---


class Registry:
    """Keeps registrations in step with the existing sockets."""

    def __init__(
        self,
        folder: Path,
        handlers: Mapping[str, Handler],
        clock: Clock,
        *,
        period_s: float = PERIOD_S,
        pause_first_s: float = PAUSE_FIRST_S,
        info_s: float = INFO_TIMEOUT_S,
    ) -> None:
        self._folder = folder
        self._handlers = handlers
        self._clock = clock
        self._period_s = period_s
        self._pause_first_s = pause_first_s
        self._info_s = info_s
        self._actual: dict[str, Registered] = {}
        self._failing: dict[str, Failing] = {}
        self._busy: set[str] = set()

    @property
    def registered(self) -> Mapping[str, Registered]:
        """Plugins by socket."""
        return self._actual

    @property
    def failing(self) -> Mapping[str, Failing]:
        """Sockets that could not be registered so far."""
        return self._failing

    async def run(self) -> None:
        """Run until cancelled."""
        self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self.step(tasks)
                await self._clock.sleep(self._period_s)

    async def step(self, tasks: asyncio.TaskGroup) -> None:
        """Check once; registrations run in tasks, one at a time per socket."""
        desired = find_sockets(self._folder)
        for path in self._failing.keys() - desired.keys():
            del self._failing[path]
        steps = plan_registrations(desired, self._actual, self._failing, self._clock.monotonic())
        for path in steps.unregister:
            if path not in self._busy:
                await self._unregister(path)
        for path in steps.register:
            if path not in self._busy and path not in self._actual:
                self._busy.add(path)
                tasks.create_task(self._register(path, desired[path]))

    async def _unregister(self, path: str) -> None:
        plugin = self._actual.pop(path)
        _log.info("plugin %s at %s has gone", plugin.name, path)
        await self._handlers[plugin.type].deregister(plugin.name, plugin.endpoint)

    async def _register(self, path: str, identity: Identity) -> None:
        try:
            await self._try_register(path, identity)
        except (RegistrationFailed, CallFailed) as error:
            now = self._clock.monotonic()
            failure = next_failure(self._failing.get(path), identity, str(error), now, self._pause_first_s)
            self._failing[path] = failure
            _log.warning("%s, trying again in %.1f s", error, failure.pause_s)
        else:
            self._failing.pop(path, None)
        finally:
            self._busy.discard(path)

    async def _try_register(self, path: str, identity: Identity) -> None:
        try:
            channel = grpc.aio.insecure_channel(socket_target(path), options=CHANNEL_OPTIONS)
        except NotUsable as error:
            raise RegistrationFailed(f"RegisterPlugin error -- dial failed at socket {path}, err: {error}") from error
        try:
            try:
                async with asyncio.timeout(DIAL_TIMEOUT_S):
                    await channel.channel_ready()
            except TimeoutError as error:
                raise RegistrationFailed(
                    f"RegisterPlugin error -- dial failed at socket {path}, err: no answer"
                ) from error
            await self._introduce(channel, path, identity)
        finally:
            await channel.close()

    async def _introduce(self, channel: grpc.aio.Channel, path: str, identity: Identity) -> None:
        info = await self._get_info(channel, path)
        handler = self._handlers.get(info.type)
        if handler is None:
            await self._refuse(
                channel,
                path,
                f"RegisterPlugin error -- no handler registered for plugin type: {info.type} at socket {path}",
            )
        endpoint, versions = info.endpoint or path, tuple(info.supported_versions)
        try:
            handler.validate(info.name, endpoint, versions)
        except NotUsable as error:
            await self._refuse(channel, path, f"RegisterPlugin error -- plugin validation failed with err: {error}")
        try:
            await handler.register(info.name, endpoint, versions)
        except NotUsable as error:
            await self._refuse(channel, path, f"RegisterPlugin error -- plugin registration failed with err: {error}")
        self._actual[path] = Registered(identity, info.type, info.name, endpoint)
        try:
            await self._notify(channel, "")
        except CallFailed as error:
            if self._actual.pop(path, None) is not None:
                await handler.deregister(info.name, endpoint)
            raise RegistrationFailed(
                f"RegisterPlugin error -- failed to send registration status at socket {path}, err: {error}"
            ) from error
        _log.info("registered %s %s at %s, endpoint %s, services %s", info.type, info.name, path, endpoint, versions)

    async def _get_info(self, channel: grpc.aio.Channel, path: str) -> wire.PluginInfo:
        try:
            return await call(channel, f"{_SERVICE}/GetInfo", wire.InfoRequest(), wire.PluginInfo, self._info_s)
        except CallFailed as error:
            text = "RegisterPlugin error -- failed to get plugin info using RPC GetInfo"
            raise RegistrationFailed(f"{text} at socket {path}, err: {error}") from error

    async def _refuse(self, channel: grpc.aio.Channel, path: str, text: str) -> NoReturn:
        try:
            await self._notify(channel, text)
        except CallFailed as error:
            raise RegistrationFailed(
                f"RegisterPlugin error -- failed to send error at socket {path}, err: {text}: {error}"
            ) from error
        raise RegistrationFailed(text)

    async def _notify(self, channel: grpc.aio.Channel, error: str) -> None:
        status = wire.RegistrationStatus(plugin_registered=not error, error=error)
        method = f"{_SERVICE}/NotifyRegistrationStatus"
        await call(channel, method, status, wire.RegistrationStatusResponse, NOTIFY_TIMEOUT_S)
