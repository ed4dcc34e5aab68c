"""Files that only their owner may read: keys, tokens, kubeconfigs.

A file is written next to its destination and moved there, so that no reader sees part of it or other modes. Modes of
our own files are corrected when read; for files that users name, there is only a warning.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

_LOGGER = logging.getLogger(__name__)

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600


class SecretFileError(Exception):
    """A secret file cannot be read or written, or has invalid content; the text says which and why."""


def make_private_directory(path: Path) -> None:
    """Create the directory, or remove access for group and others."""
    try:
        path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        if path.stat().st_mode & 0o077:
            path.chmod(DIRECTORY_MODE)
    except OSError as error:
        raise SecretFileError(f"directory {path}: {error.strerror or error}") from error


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read; on failure, the old one stays."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            # The umask can only remove permissions, and the owner's must stay.
            os.fchmod(descriptor, FILE_MODE)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    except OSError as error:
        raise SecretFileError(f"file {path}: cannot be written: {error.strerror or error}") from error


def read_secret(path: Path) -> bytes | None:
    """The content of one of our files, None if there is none. Removes access for others."""
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(FILE_MODE)
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SecretFileError(f"file {path}: cannot be read: {error.strerror or error}") from error


def read_given_secret(path: Path, told: str, secret_part: bytes = b"") -> bytes:
    """The content of a file that a user named. Its mode is not changed; a warning is logged if others may read it.
    secret_part: warn only if the file contains this."""
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except FileNotFoundError:
        raise SecretFileError(f"{told} {path}: does not exist") from None
    except OSError as error:
        raise SecretFileError(f"{told} {path}: cannot be read: {error.strerror or error}") from error
    # The path may also be something like /dev/stdin, which only we read.
    if mode & 0o077 and stat.S_ISREG(mode) and secret_part in content:
        _LOGGER.warning(
            "%s %s can be used by other users of this machine (mode %04o); hint: chmod 600 %s",
            told,
            path,
            stat.S_IMODE(mode),
            path,
        )
    return content
