"""emptyDir volumes of pods: on disk, or in memory; and how much is in them.

Containers write here while the agent reads: it follows no links, and limits the depth.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from allot.process.beneath import FOLDER, remove_entry
from allot.process.mounts import at, mount, mount_id

KIND = "empty-dir"
_BLOCK_BYTES = 512
_DEPTH_MAX = 256
_INVALID = 22


class TooDeep(Exception):
    """Directories nested too deeply to count."""


def make_folder(around: int, name: str, group: int | None) -> None:
    """Create a folder that every user can write to, complete from the start. An existing one belongs to the containers."""
    try:
        os.stat(name, dir_fd=around, follow_symlinks=False)
        return
    except FileNotFoundError:
        pass
    fresh = f"..{name}"
    remove_entry(around, fresh)
    os.mkdir(fresh, 0o700, dir_fd=around)
    handle = os.open(fresh, FOLDER, dir_fd=around)
    try:
        if group is not None:
            os.fchown(handle, -1, group)
        os.fchmod(handle, _mode(group))
    finally:
        os.close(handle)
    os.rename(fresh, name, src_dir_fd=around, dst_dir_fd=around)


def make_memory(around: int, name: str, group: int | None, size_bytes: int) -> None:
    """The same in memory. An existing mount stays; after a reboot it is empty again. OSError."""
    try:
        os.mkdir(name, 0o700, dir_fd=around)
    except FileExistsError:
        if _is_mounted(around, name):
            return
    options = f"size={size_bytes},mode={_mode(group):o}" + ("" if group is None else f",gid={group}")
    target = f"{at(around)}/{name}"
    try:
        # Memory volumes must not be swapped to disk.
        mount("tmpfs", target, 0, "tmpfs", f"{options},noswap")
    except OSError as error:
        if error.errno != _INVALID:
            raise
        mount("tmpfs", target, 0, "tmpfs", options)  # Linux before 6.4


def _mode(group: int | None) -> int:
    return 0o777 if group is None else 0o2777


def _is_mounted(around: int, name: str) -> bool:
    handle = os.open(name, FOLDER, dir_fd=around)
    try:
        return mount_id(handle) != mount_id(around)
    finally:
        os.close(handle)


# --- how much is in it ---


def used_bytes(folder: Path, enough: int) -> int:
    """The disk space of a folder's files, counted until the limit is exceeded. OSError, TooDeep."""
    top = os.open(folder, FOLDER)
    try:
        disk = os.fstat(top).st_dev
        return _Count(disk, enough).below(top)
    finally:
        os.close(top)


class _Count:
    """Adds up blocks on one disk; a file with several names counts once."""

    def __init__(self, disk: int, enough: int) -> None:
        self._disk = disk
        self._enough = enough
        self._seen: set[int] = set()
        self._total = 0

    def below(self, top: int) -> int:
        """Count from a folder down. All folders on the way stay open, so moving them does no harm."""
        held: list[int] = []
        left: list[list[str]] = [self._enter(top)]
        try:
            while left and self._total <= self._enough:
                if not left[-1]:
                    left.pop()
                    if held:
                        os.close(held.pop())
                    continue
                name = left[-1].pop()
                try:
                    handle = os.open(name, FOLDER, dir_fd=held[-1] if held else top)
                except OSError:
                    continue  # gone, or replaced by something else
                if len(held) >= _DEPTH_MAX:
                    os.close(handle)
                    raise TooDeep(f"it has more than {_DEPTH_MAX} folders in each other")
                held.append(handle)
                left.append(self._enter(handle))
        finally:
            for handle in held:
                os.close(handle)
        return self._total

    def _enter(self, folder: int) -> list[str]:
        """Count the content of a folder; returns its subfolders."""
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if status.st_dev != self._disk or (status.st_nlink > 1 and status.st_ino in self._seen):
                    continue
                if stat.S_ISDIR(status.st_mode):
                    found.append(entry.name)
                elif status.st_nlink > 1:
                    self._seen.add(status.st_ino)
                self._total += status.st_blocks * _BLOCK_BYTES
                if self._total > self._enough:
                    return []
        return found
