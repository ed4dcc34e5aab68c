"""Paths of a driver's sockets, named as by the Go helper, and within the length limit of sockets."""

from __future__ import annotations

import base64
import hashlib
import socket
from pathlib import Path

# sun_path of Linux: 108 bytes with the NUL at the end.
PATH_BYTES_MAX = 107


class SocketPathError(ValueError):
    """A path that no socket can have."""


def registration_socket(directory: Path, driver: str, pod_uid: str = "") -> Path:
    """The socket at which the kubelet finds the driver. With a pod's UID, two instances can run at a time."""
    if not pod_uid:
        return _checked(directory / f"{driver}-reg.sock")
    names = (
        f"{driver}-{pod_uid}-reg.sock",
        f"{driver}-{_short(pod_uid.encode(), 8)}-reg.sock",
        f"dra-{_short(driver.encode() + bytes(1) + pod_uid.encode(), 16)}-reg.sock",
    )
    return _first_fitting(directory, names)


def service_socket(directory: Path, pod_uid: str = "") -> Path:
    """The socket at which claims are prepared."""
    if not pod_uid:
        return _checked(directory / "dra.sock")
    return _first_fitting(directory, (f"dra-{pod_uid}.sock", f"dra-{_short(pod_uid.encode(), 8)}.sock"))


def remove_dead_sockets(registry: Path, data: Path, driver: str) -> tuple[Path, ...]:
    """Remove the sockets of killed instances, so that the kubelet does not try them forever; returns them.

    A live socket stays: during an update another instance has its own.
    """
    removed = []
    for path in sorted((*registry.glob(f"{driver}-*-reg.sock"), *data.glob("dra-*.sock"))):
        if _is_dead(path):
            path.unlink(missing_ok=True)
            removed.append(path)
    return tuple(removed)


def is_served(path: Path) -> bool:
    """Whether a process listens at a socket."""
    return _connecting(path) is None


def _is_dead(path: Path) -> bool:
    """Whether a socket exists without a listener."""
    return isinstance(_connecting(path), ConnectionRefusedError)


def _connecting(path: Path) -> OSError | None:
    """The error of a connection attempt; None if it succeeds or the queue is full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return None
        except OSError as error:
            return error
    return None


def _first_fitting(directory: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        path = directory / name
        if len(bytes(path)) <= PATH_BYTES_MAX:
            return path
    return _checked(directory / names[-1])


def _checked(path: Path) -> Path:
    if len(bytes(path)) > PATH_BYTES_MAX:
        raise SocketPathError(
            f"socket {path}: the path has {len(bytes(path))} bytes, expected at most {PATH_BYTES_MAX}"
        )
    return path


def _short(data: bytes, length: int) -> str:
    digest = hashlib.sha256(data).digest()[:length]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
