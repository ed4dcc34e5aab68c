"""Kernel namespaces: creates and enters them, and maps user ids. Imports next to nothing, like `mounts`."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os

from allot.process.mounts import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOUNTS, HOST_NAMES, IPC, USERS, PROCESSES, NETWORK = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_OWNER_OF = 0xB701

# First id inside, first id outside, count.
Range = tuple[int, int, int]


def unshare(kinds: int) -> None:
    """Move into new namespaces (for process namespaces: our children)."""
    _check(libc.unshare(kinds), "new namespace")


def enter(handle: int, kind: int) -> None:
    """Enter an existing namespace."""
    _check(libc.setns(handle, kind), "enter a namespace")


def owner_of(handle: int) -> int:
    """The user namespace that owns another namespace."""
    return fcntl.ioctl(handle, _OWNER_OF)


def is_ours(handle: int, name: str) -> bool:
    """Whether we are in a namespace. name: as in /proc/self/ns."""
    own, other = os.stat(f"/proc/self/ns/{name}"), os.fstat(handle)
    return (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)


def become_owner_of_users() -> None:
    """Enter a new user namespace with our own ids, and with all rights over what is created in it."""
    user, group = os.geteuid(), os.getegid()
    unshare(USERS)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def make_users(users: Sequence[Range], groups: Sequence[Range]) -> int:
    """Create a user namespace with these ids, with no process in it; returns its descriptor. The outside ids must be ours to give."""
    made, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            unshare(USERS)
            os.write(made[1], b".")
            os.close(go[1])
            os.read(go[0], 1)
            code = 0
        finally:
            os._exit(code)
    os.close(made[1])
    os.close(go[0])
    try:
        if not os.read(made[0], 1):
            raise OSError(1, "new user namespace: operation not permitted")
        _write(f"/proc/{child}/uid_map", _lines(users))
        _write(f"/proc/{child}/gid_map", _lines(groups))
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(made[0])
        os.close(go[1])
        os.waitpid(child, 0)


def _lines(ranges: Sequence[Range]) -> str:
    return "\n".join(f"{inside} {outside} {count}" for inside, outside, count in ranges)


def _write(path: str, text: str) -> None:
    # In one call, as these files require.
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from None
    finally:
        os.close(handle)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        # The kernel's "no space" is a configured limit, often 0.
        why = "user.max_*_namespaces allows no more" if number == errno.ENOSPC else os.strerror(number).lower()
        raise OSError(number, f"{what}: {why}")
