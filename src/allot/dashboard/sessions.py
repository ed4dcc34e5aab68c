"""Sessions: a browser gets one for a token, and sends it with every request. The server stores none.

A session has its expiry time and is signed with a key. A key from a file outlives the process; without one, each process creates its own,
and sessions end with it. A new key ends all sessions at once: that is how they are revoked.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import stat
from hashlib import sha256
from pathlib import Path

from allot.dashboard.links import new_token
from allot.process.clock import Clock

_log = logging.getLogger("allot.dashboard")

LASTS_S = 24 * 3600.0
KEY_BYTES_MIN = 32
_KEY_BYTES_MAX = 4096
_DIGITS_MAX = 12


class BadKey(Exception):
    """A file that is no key."""


class Sessions:
    """Creates and checks them. audience: the dashboard that they are for; another one with the same key refuses them. key_file: read again
    when it changes."""

    def __init__(self, clock: Clock, audience: str = "", key_file: Path | None = None) -> None:
        """BadKey."""
        self._clock = clock
        self._audience = audience
        self._key_file = key_file
        self._own = secrets.token_bytes(KEY_BYTES_MIN)
        self._seen: tuple[int, int, int] | None = None
        self._key = self._own
        self._read()

    @property
    def outlive_process(self) -> bool:
        """Whether there is a key in a file."""
        return self._key is not self._own

    def new(self) -> str:
        """For one browser, from now on."""
        self._refresh()
        said = f"{int(self._clock.seconds() + LASTS_S)}.{new_token()}"
        return f"{said}.{self._signature(said)}"

    def is_good(self, session: str) -> bool:
        """Whether it is signed with the present key and has not expired."""
        self._refresh()
        said, _, signature = session.rpartition(".")
        until = said.partition(".")[0]
        if not (until.isascii() and until.isdigit() and len(until) <= _DIGITS_MAX):
            return False
        if not hmac.compare_digest(signature.encode(), self._signature(said).encode()):
            return False
        # Not too far ahead either: a wrong clock must not create a session that lasts for years.
        return 0 < int(until) - self._clock.seconds() <= LASTS_S

    def _signature(self, said: str) -> str:
        return hmac.new(self._key, f"allot dashboard session\n{self._audience}\n{said}".encode(), sha256).hexdigest()

    def _refresh(self) -> None:
        """A new key takes effect at once; with one that cannot be read, no session is valid."""
        try:
            self._read()
        except BadKey as error:
            if self._key is not self._own:
                _log.warning("%s: all sessions end", error)
            self._key, self._seen = self._own, None

    def _read(self) -> None:
        if self._key_file is None:
            return
        try:
            found = self._key_file.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen:
                return
            _check_owner(self._key_file, found)
            with self._key_file.open("rb") as file:
                data = file.read(_KEY_BYTES_MAX).strip()
        except FileNotFoundError:
            # In a cluster, the Secret may be created later, or never.
            self._key, self._seen = self._own, None
            return
        except OSError as error:
            raise BadKey(f"{self._key_file}: {(error.strerror or str(error)).lower()}") from None
        if len(data) < KEY_BYTES_MIN:
            raise BadKey(f"{self._key_file}: has {len(data)} bytes: expected a key of at least {KEY_BYTES_MIN}")
        self._key, self._seen = sha256(data).digest(), seen


def _check_owner(path: Path, found: os.stat_result) -> None:
    """A process that can read the key can create sessions. Files of mounted Secrets belong to root, and the container has no other users."""
    if hasattr(os, "getuid") and found.st_uid == os.getuid() != 0 and stat.S_IMODE(found.st_mode) & 0o077:
        raise BadKey(f"{path}: others can read it: expected mode 0600")
