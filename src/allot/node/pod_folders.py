"""The directory of each pod, below one that only the agent can enter: containers reach their files by mounts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allot.process.beneath import FOLDER, open_folder, remove_entry, write_file
from allot.process.mounts import at, unmount

# The folder of all pods, below the agent's.
PODS = "pods"
# Below a pod's: the files for termination messages, and their size limit.
MESSAGES, MESSAGES_BYTES = "containers", 2**20


@contextmanager
def opened(pod_folder: Path, below: str = "", mode: int = 0o755) -> Iterator[int]:
    """Open the folder of a pod, or one below it, and create what is missing. OSError."""
    pod_folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    top = os.open(pod_folder.parent, FOLDER)
    try:
        if os.fstat(top).st_mode & 0o077:
            os.fchmod(top, 0o700)
        handle = open_folder(top, f"{pod_folder.name}/{below}", make_mode=mode)
    finally:
        os.close(top)
    try:
        yield handle
    finally:
        os.close(handle)


def unmount_below(pod_folder: Path, below: str) -> None:
    """Unmount everything in a folder of a pod; OSError if something stays."""
    try:
        folder = os.open(pod_folder / below, FOLDER)
    except FileNotFoundError:
        return
    try:
        for name in os.listdir(folder):
            while unmount(f"{at(folder)}/{name}"):
                pass
    finally:
        os.close(folder)


def replace_file(pod_folder: Path, name: str, data: bytes, mode: int) -> Path:
    """Write a file of a pod atomically; returns its path. Existing mounts keep the old file. OSError."""
    fresh = f"{name}.new"
    with opened(pod_folder) as handle:
        remove_entry(handle, fresh)
        write_file(handle, fresh, data, mode)
        os.rename(fresh, name, src_dir_fd=handle, dst_dir_fd=handle)
    return pod_folder / name
