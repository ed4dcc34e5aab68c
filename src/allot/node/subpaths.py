"""subPath mounts for runtimes that take paths: mounted in a directory of the agent first, as the kubelet does.

Otherwise, a container that can write to a volume could place a link there between the agent's check and the runtime's mount. What is mounted
here is what was checked. The process runtime does not need this: its shim checks and mounts in one step.
"""

from __future__ import annotations

import os
from pathlib import Path

from allot.node.pod_folders import opened
from allot.node.runtimes.port import Mount, RuntimeFailure
from allot.process.beneath import checked_name, open_beneath, remove_entry, write_file
from allot.process.mounts import BIND, RECURSIVE, at, mount, unmount

SUBPATHS = "volume-subpaths"


def open_subpath(source: str, below: str) -> int:
    """Open a part of a volume, and create it as a folder with the volume's mode if missing; OSError."""
    volume = os.open(source, os.O_PATH | os.O_CLOEXEC)
    try:
        return open_beneath(volume, below, make_mode=os.fstat(volume).st_mode & 0o777)
    finally:
        os.close(volume)


def bind_subpath(pod_folder: Path, container: str, position: int, wanted: Mount) -> str:
    """A path, which only the agent can change, for the part of a volume that a mount requests. RuntimeFailure."""
    what = f'failed to prepare subPath for volumeMount "{wanted.container_path}" of container "{container}"'
    if os.geteuid() != 0:
        raise RuntimeFailure("CreateContainerConfigError", f"{what}: that needs an agent that runs as root")
    try:
        place = open_subpath(wanted.host_path, wanted.sub_path)
        try:
            return _bind(place, pod_folder, f"{checked_name(container, 'container')}-{position}")
        finally:
            os.close(place)
    except OSError as error:
        raise RuntimeFailure("CreateContainerConfigError", f"{what}: {error}") from error


def _bind(place: int, pod_folder: Path, name: str) -> str:
    is_folder = os.path.isdir(at(place))
    with opened(pod_folder, SUBPATHS) as folder:
        target = f"{at(folder)}/{name}"
        while unmount(target):
            pass  # from the previous container, which has ended
        remove_entry(folder, name)
        if is_folder:
            os.mkdir(name, 0o700, dir_fd=folder)
        else:
            write_file(folder, name, b"", 0o600)
        mount(at(place), target, BIND | RECURSIVE)
    return str(pod_folder / SUBPATHS / name)
