"""The kernel's mounts, by descriptors where it matters. Imports next to nothing, as the shim beside each container uses it."""

from __future__ import annotations

import ctypes
import os

BIND, RECURSIVE, MOVE, PRIVATE, REMOUNT, READ_ONLY = 4096, 16384, 8192, 1 << 18, 32, 1
NO_SUID, NO_DEVICES, NO_PROGRAMS = 2, 4, 8
_DETACH, _NO_FOLLOW = 2, 8
# Flags of a mount that a user who is not root must keep.
_KEPT = 2 | 4 | 8

# Newer calls have the same numbers on all architectures but one; the C library may not know them yet.
_OPEN_TREE, _MOVE_MOUNT, _SET_ATTRIBUTES = 428, 429, 442
_CLONE, _EMPTY_PATH, _ALL_BELOW = 1, 0x1000, 0x8000
_FROM_EMPTY, _TO_EMPTY = 0x04, 0x40
_ATTRIBUTE_READ_ONLY, _ATTRIBUTE_IDS = 0x01, 0x00100000

libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("users", ctypes.c_uint64),
    )


def _called(number: int, *given: object) -> int:
    result = int(libc.syscall(number, *given))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


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
    """Make a bind mount read-only."""
    flags = os.statvfs(target).f_flag & _KEPT
    mount("none", target, BIND | REMOUNT | READ_ONLY | flags)


def copy_mount(source: int) -> int:
    """Copy what is at a place, with all mounts below it; the copy is not attached yet."""
    flags = _CLONE | os.O_CLOEXEC | _EMPTY_PATH | _ALL_BELOW
    return _called(_OPEN_TREE, source, b"", flags)


def place_mount(copy: int, target: int) -> None:
    """Put a copy at a place."""
    _called(_MOVE_MOUNT, copy, b"", target, b"", _FROM_EMPTY | _TO_EMPTY)


def seal_mount(copy: int) -> None:
    """Make a mount and all mounts below it read-only."""
    _set_attributes(copy, _Attributes(set=_ATTRIBUTE_READ_ONLY))


def shift_owners(copy: int, users: int) -> None:
    """Map the owners of files to the users of that number in a user namespace. OSError if the file system does not support it."""
    _set_attributes(copy, _Attributes(set=_ATTRIBUTE_IDS, users=users))


def _set_attributes(copy: int, attributes: _Attributes) -> None:
    size = ctypes.sizeof(attributes)
    _called(_SET_ATTRIBUTES, copy, b"", _EMPTY_PATH | _ALL_BELOW, ctypes.byref(attributes), ctypes.c_size_t(size))


def enter_root(folder: int) -> None:
    """Make a mount the root; the old root is no longer visible."""
    os.fchdir(folder)
    # Both in one place: the old root is on top of the new one, and is then removed.
    if libc.pivot_root(b".", b".") != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "new root")
    if libc.umount2(b".", _DETACH) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "old root")
    os.chdir("/")


def unmount(target: str) -> bool:
    """Remove a mount at once, even if in use; returns whether there was one. Links are not followed."""
    if libc.umount2(target.encode(), _DETACH | _NO_FOLLOW) == 0:
        return True
    number = ctypes.get_errno()
    # EINVAL: nothing is mounted there.
    if number in (2, 22):
        return False
    raise OSError(number, os.strerror(number), target)


def mount_id(handle: int) -> int:
    """The mount that a descriptor is in."""
    # As bytes: a codec might still have to be imported, from a folder that a container has mounted.
    info = os.open(f"/proc/self/fdinfo/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        lines = os.read(info, 4096).splitlines()
    finally:
        os.close(info)
    return next(int(line.split()[1]) for line in lines if line.startswith(b"mnt_id:"))
