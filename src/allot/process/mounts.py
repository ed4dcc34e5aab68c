"""The kernel's mounts, by descriptors where it matters. Imports next to nothing, as the shim beside each container uses it."""

from __future__ import annotations

import ctypes
import os

BIND, RECURSIVE, MOVE, PRIVATE, REMOUNT, READ_ONLY = 4096, 16384, 8192, 1 << 18, 32, 1
_DETACH, _NO_FOLLOW = 2, 8
# Flags of a mount that a user who is not root must keep.
_KEPT = 2 | 4 | 8

libc = ctypes.CDLL(None, use_errno=True)


def at(handle: int) -> str:
    """A path that means exactly what a descriptor means."""
    return f"/proc/self/fd/{handle}"


def mount(source: str, target: str, flags: int, kind: str = "", data: str = "") -> None:
    """mount(2); OSError."""
    given = (source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None)
    if libc.mount(*given) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def make_read_only(target: str) -> None:
    """A bind mount can be read only from now on."""
    flags = os.statvfs(target).f_flag & _KEPT
    mount("none", target, BIND | REMOUNT | READ_ONLY | flags)


def unmount(target: str) -> bool:
    """Take a mount away, at once for whoever looks; whether there was one. A link is not followed."""
    if libc.umount2(target.encode(), _DETACH | _NO_FOLLOW) == 0:
        return True
    number = ctypes.get_errno()
    # EINVAL: nothing is mounted there.
    if number in (2, 22):
        return False
    raise OSError(number, os.strerror(number), target)


def mount_id(handle: int) -> int:
    """Which mount a descriptor is in."""
    # As bytes: a codec might still have to be imported, from a folder that a container has mounted.
    info = os.open(f"/proc/self/fdinfo/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        lines = os.read(info, 4096).splitlines()
    finally:
        os.close(info)
    return next(int(line.split()[1]) for line in lines if line.startswith(b"mnt_id:"))
