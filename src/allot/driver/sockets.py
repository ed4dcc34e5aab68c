"""Where a driver's sockets are, by the names that the Go helper gives them, and within the length that a socket may have."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

# sun_path of Linux: 108 bytes with the NUL at the end.
PATH_BYTES_MAX = 107


class SocketPathError(ValueError):
    """No socket can have that path."""


def registration_socket(directory: Path, driver: str, pod_uid: str = "") -> Path:
    """The socket at which the kubelet finds the driver. With a pod's UID two instances can be there at a time."""
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
