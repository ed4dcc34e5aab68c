"""Writes the control groups of pods, of version 1 or 2: creates, changes, reads and removes them.

A `Tree` is one version; `PodGroups` is what the agent needs of either. Names and values are decided in `core.lifecycle.control_groups`. The runtime puts
containers into the group of their pod. A group belongs to this agent if the pod's folder does: others' groups are never touched, even
if they are below the same root.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from allot.core.lifecycle.control_groups import (
    BEST_EFFORT,
    BURSTABLE,
    CGROUPFS,
    CLASS_GROUPS,
    GUARANTEED,
    PODS_GROUP,
    SYSTEMD,
    UNLIMITED,
    BadGroupName,
    GroupName,
    GroupValues,
    any_huge_pages,
    cgroupfs_path,
    class_name,
    class_values,
    new_files,
    node_values,
    old_files,
    pod_group_part,
    pod_values,
    qos_of,
    systemd_path,
    systemd_slice,
)
from allot.core.model.core_v1 import Pod
from allot.core.quantity import Quantity
from allot.node.runtimes.port import RuntimeFailure
from allot.node.systemd_slices import SlicesRefused, set_slice, start_slice, stop_slice
from allot.process.clock import Clock
from allot.process.waits import happens_within

_log = logging.getLogger("allot.node")

_MOUNTS = Path("/proc/self/mountinfo")
# The controllers whose values pods get; the runtime makes groups in the others.
_USED = ("cpu", "memory", "pids", "hugetlb")
_PROCESSES, _KILL, _SUBTREE, _CONTROLLERS = (
    "cgroup.procs",
    "cgroup.kill",
    "cgroup.subtree_control",
    "cgroup.controllers",
)
_FREEZER = "freezer.state"
# Processes need a moment to end.
_REMOVE_TRIES, _REMOVE_PAUSE_S = 40, 0.05
# Version 1 spells no limit as the largest number of whole pages.
_UNLIMITED_BYTES = 2**62


class NoGroups(Exception):
    """Why pods get no control groups of their own."""


class Tree(Protocol):
    """The kernel's groups. Paths begin at its root. OSError."""

    page_sizes: tuple[int, ...]
    is_unified: bool

    def make(self, path: str) -> None:
        """Create a group, and those above it."""

    def write(self, path: str, values: GroupValues) -> None:
        """Give a group values; those of controllers that the machine does not have are left out."""

    def read(self, path: str) -> GroupValues:
        """The limits of a group."""

    def memory_used(self, path: str) -> int:
        """The bytes that a group uses."""

    def places(self, path: str) -> tuple[Path, ...]:
        """The existing folders of a group."""


class OldTree:
    """Version 1. mounts: where each controller is; also those that only have to be cleaned up."""

    is_unified = False

    def __init__(self, mounts: Mapping[str, Path], page_sizes: tuple[int, ...] = ()) -> None:
        self.mounts = mounts
        self.page_sizes = page_sizes

    def make(self, path: str) -> None:
        """Create a group in each controller that has values."""
        for controller in _USED:
            if controller in self.mounts:
                _below(self.mounts[controller], path).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, values: GroupValues) -> None:
        """Write the files of each controller."""
        for controller, files in old_files(values, self.page_sizes).items():
            if controller in self.mounts:
                _write(_below(self.mounts[controller], path), files)

    def read(self, path: str) -> GroupValues:
        """The limits of a group."""
        memory = int(self._text("memory", path, "memory.limit_in_bytes"))
        return GroupValues(
            cpu_quota_us=int(self._text("cpu", path, "cpu.cfs_quota_us")),
            memory_bytes=UNLIMITED if memory >= _UNLIMITED_BYTES else memory,
        )

    def memory_used(self, path: str) -> int:
        """The bytes that a group uses."""
        return int(self._text("memory", path, "memory.usage_in_bytes"))

    def places(self, path: str) -> tuple[Path, ...]:
        """The folders of a group in all controllers."""
        found = (_below(mount, path) for mount in dict.fromkeys(self.mounts.values()))
        return tuple(each for each in found if each.is_dir())

    def _text(self, controller: str, path: str, name: str) -> str:
        return (_below(self.mounts[controller], path) / name).read_text()


class NewTree:
    """Version 2. mount: its root."""

    is_unified = True

    def __init__(self, mount: Path, page_sizes: tuple[int, ...] = ()) -> None:
        self._mount = mount
        self.page_sizes = page_sizes
        self.controllers = frozenset((mount / _CONTROLLERS).read_text().split())

    def make(self, path: str) -> None:
        """Create a group; each group above it passes its controllers on."""
        folder = self._mount
        for part in path.strip("/").split("/"):
            _pass_on(folder, [each for each in _USED if each in self.controllers])
            folder /= part
            folder.mkdir(exist_ok=True)

    def write(self, path: str, values: GroupValues) -> None:
        """Write the files of each controller."""
        for controller, files in new_files(values, self.page_sizes).items():
            if controller in self.controllers:
                _write(_below(self._mount, path), files)

    def read(self, path: str) -> GroupValues:
        """The limits of a group."""
        folder = _below(self._mount, path)
        quota, memory = (folder / "cpu.max").read_text().split()[0], (folder / "memory.max").read_text().strip()
        return GroupValues(
            cpu_quota_us=UNLIMITED if quota == "max" else int(quota),
            memory_bytes=UNLIMITED if memory == "max" else int(memory),
        )

    def memory_used(self, path: str) -> int:
        """The bytes that a group uses."""
        return int((_below(self._mount, path) / "memory.current").read_text())

    def places(self, path: str) -> tuple[Path, ...]:
        """The folder of a group."""
        folder = _below(self._mount, path)
        return (folder,) if folder.is_dir() else ()


def _below(mount: Path, path: str) -> Path:
    return mount / path.lstrip("/")


def _write(folder: Path, files: Iterable[tuple[str, str]]) -> None:
    for name, value in files:
        try:
            (folder / name).write_text(value)
        except OSError as error:
            raise OSError(
                error.errno, f"{folder / name} = {value}: {(error.strerror or str(error)).lower()}"
            ) from error


def _pass_on(folder: Path, controllers: Iterable[str]) -> None:
    try:
        passed = (folder / _SUBTREE).read_text().split()
    except FileNotFoundError:
        passed = []
    if missing := [each for each in controllers if each not in passed]:
        _write(folder, [(_SUBTREE, " ".join(f"+{each}" for each in missing))])


# --- what this machine has ---


def find_tree(page_sizes: tuple[int, ...] = (), mounts: Path = _MOUNTS) -> Tree:
    """The machine's groups. NoGroups. mounts: the kernel's table."""
    old: dict[str, Path] = {}
    new: list[Path] = []
    try:
        lines = mounts.read_text().splitlines()
    except OSError as error:
        raise NoGroups(f"{mounts}: {(error.strerror or str(error)).lower()}") from error
    for line in lines:
        before, _, after = line.partition(" - ")
        point, words = Path(_unescaped(before.split()[4])), after.split()
        if words[0] == "cgroup2":
            new.append(point)
        elif words[0] == "cgroup":
            for option in words[2].split(","):
                if option in ("rw", "ro"):
                    continue
                # Of several mounts, the kubelet takes the shortest.
                if option not in old or len(str(point)) < len(str(old[option])):
                    old[option] = point
    if "cpu" in old and "memory" in old:
        # With both versions mounted, the runtime makes groups in version 2, too; these are only removed.
        return OldTree({**old, **{f"cgroup2 {each}": each for each in new}}, page_sizes)
    if not new:
        raise NoGroups("no control groups are mounted with the controllers cpu and memory")
    try:
        tree = NewTree(min(new, key=lambda each: len(str(each))), page_sizes)
    except OSError as error:
        raise NoGroups(f"{error.filename}: {(error.strerror or str(error)).lower()}") from error
    missing = {"cpu", "memory"} - tree.controllers
    if missing:
        raise NoGroups(f"the control groups of version 2 lack the controllers {', '.join(sorted(missing))}")
    return tree


def _unescaped(path: str) -> str:
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


# --- groups of pods ---


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the groups of pods are, and their limits beyond the pods' own."""

    root: GroupName = ()
    # `cgroupfs` or `systemd`: what the runtime uses; it answers that itself if it can.
    driver: str = CGROUPFS
    pids_max: int | None = None
    # Whether all pods together are limited to what the node can allocate.
    is_enforced: bool = True


class PodGroups:
    """The groups of an agent's pods. Everything but `open` runs beside the event loop: the kernel may take its time to free memory."""

    def __init__(self, tree: Tree, options: GroupOptions, clock: Clock) -> None:
        self._tree = tree
        self._options = options
        self._clock = clock
        self._top = (*options.root, PODS_GROUP)
        self._has_changed = asyncio.Event()

    def open(self, allocatable: Mapping[str, Quantity]) -> None:
        """Create the groups that pods are in. NoGroups if this machine does not let us."""
        try:
            for name in (self._top, *(class_name(self._top, each) for each in CLASS_GROUPS)):
                self._make(name)
                self._write(name, GroupValues(huge_pages=any_huge_pages(self._tree.page_sizes)))
            if self._options.is_enforced:
                self._write(self._top, node_values(allocatable))
            self._write_classes(())
        except (OSError, SlicesRefused) as error:
            raise NoGroups(f"{self._path(self._top)}: {error}") from error

    async def ensure(self, pod: Pod) -> str:
        """Create the group of a pod with its values; returns what the runtime calls it. RuntimeFailure."""
        try:
            name = self._name(pod)
            await asyncio.to_thread(self._ensure, name, pod_values(pod, self._options.pids_max))
        except (OSError, SlicesRefused, BadGroupName) as error:
            raise RuntimeFailure("CreatePodSandboxError", f"control group of pod {pod.key}: {error}") from error
        self._has_changed.set()
        return systemd_slice(name) if self._options.driver == SYSTEMD else cgroupfs_path(name)

    def _ensure(self, name: GroupName, values: GroupValues) -> None:
        self._make(name)
        self._write(name, values)

    async def grow(self, pod: Pod) -> None:
        """Raise the limits of a pod's group, where they are raised, before its containers grow. RuntimeFailure."""
        await self._resize(pod, self._grow)

    async def settle(self, pod: Pod) -> None:
        """Give a pod's group its values, after its containers have shrunk. RuntimeFailure if it uses more memory than that."""
        await self._resize(pod, self._settle)

    async def _resize(self, pod: Pod, change: Callable[[GroupName, GroupValues], None]) -> None:
        name = self._name(pod)
        if not self._tree.places(self._path(name)):
            # Of an earlier agent that made no groups.
            return
        try:
            await asyncio.to_thread(change, name, pod_values(pod))
        except (OSError, ValueError, SlicesRefused) as error:
            raise RuntimeFailure("ResizePodError", f"control group of pod {pod.key}: {error}") from error
        self._has_changed.set()

    def _grow(self, name: GroupName, wanted: GroupValues) -> None:
        self._write(name, self._tree.read(self._path(name)).growth_to(wanted))

    def _settle(self, name: GroupName, wanted: GroupValues) -> None:
        path = self._path(name)
        limit = wanted.memory_bytes
        if limit is not None and self._tree.read(path).is_lowered_to(limit):
            used = self._tree.memory_used(path)
            if used >= limit:
                text = f"attempting to set pod memory limit ({limit}) below current usage ({used})"
                raise RuntimeFailure("ResizePodError", f"cannot decrease memory limits: {text}")
        self._write(name, wanted)

    def _write(self, name: GroupName, values: GroupValues) -> None:
        if self._options.driver == SYSTEMD:
            # First: systemd writes the files itself, and later what it was told last.
            set_slice(systemd_slice(name), values, is_unified=self._tree.is_unified)
        self._tree.write(self._path(name), values)

    async def wait_changed(self, timeout_s: float) -> None:
        """Wait until pods have come or changed, or for so long."""
        await happens_within(self._has_changed, timeout_s)
        self._has_changed.clear()

    async def update_classes(self, pods: Iterable[Pod]) -> None:
        """The pods of the node have changed. OSError."""
        await asyncio.to_thread(self._write_classes, tuple(pods))

    def _write_classes(self, pods: Iterable[Pod]) -> None:
        for qos_class, values in class_values(pods).items():
            self._write(class_name(self._top, qos_class), values)

    async def remove(self, uid: str) -> None:
        """Kill what is left in the group of a pod, and remove it. OSError if something stays."""
        try:
            part = pod_group_part(uid)
        except BadGroupName:
            # It never had one.
            return
        for qos_class in (GUARANTEED, BURSTABLE, BEST_EFFORT):
            name = (*class_name(self._top, qos_class), part)
            path = self._path(name)
            for left in reversed(range(_REMOVE_TRIES)):
                try:
                    if not await asyncio.to_thread(self._remove, path):
                        break
                except OSError as error:
                    if error.errno != errno.EBUSY or not left:
                        raise
                await self._clock.sleep(_REMOVE_PAUSE_S)
            if self._options.driver == SYSTEMD:
                await asyncio.to_thread(self._stop_slice, name)

    def _stop_slice(self, name: GroupName) -> None:
        try:
            stop_slice(systemd_slice(name))
        except SlicesRefused as error:
            raise OSError(errno.EBUSY, str(error)) from error

    def _remove(self, path: str) -> bool:
        """Returns whether there was anything."""
        places = self._tree.places(path)
        for place in places:
            _kill(place)
        for place in places:
            for folder in reversed(_folders(place)):
                _remove_folder(folder)
        return bool(places)

    def _make(self, name: GroupName) -> None:
        if self._options.driver == SYSTEMD:
            start_slice(systemd_slice(name))
        self._tree.make(self._path(name))

    def _name(self, pod: Pod) -> GroupName:
        return (*class_name(self._top, qos_of(pod)), pod_group_part(pod.metadata.uid))

    def _path(self, name: GroupName) -> str:
        return systemd_path(name) if self._options.driver == SYSTEMD else cgroupfs_path(name)


# --- the end of a group ---


def _folders(top: Path) -> list[Path]:
    """A group and all below it, from the top. What is inside was perhaps made by containers."""
    found, waiting = [], [top]
    while waiting:
        folder = waiting.pop()
        found.append(folder)
        try:
            with os.scandir(folder) as entries:
                waiting += [Path(each.path) for each in entries if each.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            continue
    return found


def _remove_folder(folder: Path) -> None:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return


def _kill(top: Path) -> None:
    """Kill everything in a group and below it, except ourselves: a container that may move processes could have put us there."""
    for folder in _folders(top):
        pids = _processes(folder)
        if not pids:
            continue
        if (folder / _KILL).exists() and os.getpid() not in pids:
            _write(folder, [(_KILL, "1")])
            continue
        if (folder / _FREEZER).exists():
            # A frozen process does not end.
            _write(folder, [(_FREEZER, "THAWED")])
        _kill_each(folder, pids)


def _kill_each(folder: Path, pids: frozenset[int]) -> None:
    """By handles that are opened first: the number of a process that has ended may be another's now."""
    handles = {}
    try:
        for pid in sorted(pids):
            try:
                handles[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
        still = _processes(folder)
        for pid, handle in handles.items():
            if pid in still and pid not in (1, os.getpid()):
                _log.warning("control group %s: killing process %d, which its pod left behind", folder, pid)
                try:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                except ProcessLookupError:
                    continue
    finally:
        for handle in handles.values():
            os.close(handle)


def _processes(folder: Path) -> frozenset[int]:
    """Those in a group. 0 is one in another namespace, and means a whole group of processes to kill()."""
    try:
        words = (folder / _PROCESSES).read_text().split()
    except OSError:
        return frozenset()
    return frozenset(int(each) for each in words if each.isdigit() and int(each) > 0)
