"""Devices for processes: the edits of CDI devices, as far as they apply to a process, their lifecycle hooks, and device nodes.

Device nodes are the machine's own, so they are looked up, not created, and shown under another path if the device requests that. Hooks are
programs on this machine that receive the container's state as from an OCI runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from allot.core.cdi import Hook
from allot.node.cdi.edits import Merged
from allot.node.cdi.registry import CdiRegistry, Unresolvable
from allot.node.runtimes.port import HostDevice, RuntimeFailure

BEFORE = ("prestart", "createRuntime", "createContainer", "startContainer")
AFTER_START, AFTER_END = ("poststart",), ("poststop",)
_HOOK_S = 30.0
_SAID_MAX = 500


class Edits(msgspec.Struct, frozen=True, kw_only=True):
    """What devices change about a container."""

    environment: Mapping[str, str] = {}
    mounts: tuple[Mapping[str, Any], ...] = ()
    groups: tuple[int, ...] = ()
    hooks: tuple[Hook, ...] = ()


def resolve(registry: CdiRegistry, names: Sequence[str], folder: Path, *, is_sandboxed: bool) -> Edits:
    """The edits of devices for a container; RuntimeFailure if one is unknown or its files do not exist. is_sandboxed: it has no other devices."""
    if not names:
        return Edits()
    try:
        merged = registry.resolve(names)
    except Unresolvable as error:
        raise RuntimeFailure("CreateContainerError", f"failed to inject CDI devices: {error}") from error
    return Edits(
        environment=merged.environment,
        mounts=(*_nodes(merged, is_sandboxed), *_mounts(merged, folder)),
        groups=merged.additional_gids,
        hooks=merged.hooks,
    )


def _nodes(merged: Merged, is_sandboxed: bool) -> list[dict[str, Any]]:
    made = []
    for node in merged.device_nodes:
        if not Path(node.source).exists():
            text = f"failed to inject CDI devices: device node {node.source} does not exist"
            raise RuntimeFailure("CreateContainerError", text)
        if is_sandboxed or node.source != node.path:
            made.append({"host_path": node.source, "container_path": node.path, "read_only": False})
    return made


def _mounts(merged: Merged, folder: Path) -> list[dict[str, Any]]:
    made = []
    for position, mount in enumerate(merged.mounts):
        source = mount.host_path
        if mount.type == "tmpfs":
            source = str(folder / f"cdi-{position}")
            Path(source).mkdir(parents=True, exist_ok=True)
            made.append({"host_path": source, "container_path": mount.container_path, "memory": True})
            continue
        if not Path(source).exists():
            text = f"failed to inject CDI devices: {source}, to be mounted at {mount.container_path}, does not exist"
            raise RuntimeFailure("CreateContainerError", text)
        made.append({"host_path": source, "container_path": mount.container_path, "read_only": "ro" in mount.options})
    return made


def show_devices(devices: Sequence[HostDevice], *, is_sandboxed: bool) -> list[dict[str, Any]]:
    """The mounts that show device nodes of the machine; RuntimeFailure if one does not exist. Permissions are those of the nodes: only control
    groups could restrict them further."""
    for each in devices:
        if not Path(each.host_path).exists():
            text = f"failed to add device {each.container_path}: {each.host_path} does not exist"
            raise RuntimeFailure("CreateContainerError", text)
    return [
        {"host_path": each.host_path, "container_path": each.container_path, "read_only": False}
        for each in devices
        if is_sandboxed or each.host_path != each.container_path
    ]


async def run_hooks(hooks: Sequence[Hook], moments: Sequence[str], state: Mapping[str, Any]) -> None:
    """Run the hooks of some lifecycle stages in order; RuntimeFailure from the first that fails."""
    for moment in moments:
        for hook in hooks:
            if hook.hook_name == moment:
                await _run(hook, {"ociVersion": "1.2.0", **state})


async def _run(hook: Hook, state: Mapping[str, Any]) -> None:
    title = f"{hook.hook_name} hook {hook.path}"
    try:
        process = await asyncio.create_subprocess_exec(
            *(hook.args or (hook.path,)),
            executable=hook.path,
            env=dict(each.partition("=")[::2] for each in hook.env),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise RuntimeFailure("RunContainerError", f"{title}: {(error.strerror or str(error)).lower()}") from error
    try:
        async with asyncio.timeout(hook.timeout or _HOOK_S):
            _, said = await process.communicate(msgspec.json.encode(state))
    except TimeoutError:
        process.kill()
        await process.wait()
        raise RuntimeFailure("RunContainerError", f"{title}: did not end in time") from None
    if process.returncode:
        text = said.decode(errors="replace").strip()[:_SAID_MAX]
        raise RuntimeFailure("RunContainerError", f"{title}: exit status {process.returncode}: {text}")
