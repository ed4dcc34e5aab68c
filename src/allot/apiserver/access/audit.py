"""The audit log: one JSON object (audit.k8s.io/v1 Event) per line, in a file that only its owner may read.

Recording never blocks: events go into a bounded queue, and excess ones are counted and dropped. `run` writes them, and starts
a new file when one is full. The content of secrets is never written.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from allot.apiserver.access.reviews import user_info
from allot.apiserver.access.secret_files import FILE_MODE, SecretFileError
from allot.core.access.attributes import Attributes, Decision, User
from allot.process.clock import Clock

_LOGGER = logging.getLogger(__name__)

QUEUE_MAX = 10_000
FILE_BYTES_MAX = 100 * 1024 * 1024
FILES_KEPT = 5
_BATCH_MAX = 500
# Request bodies larger than this are left out.
_BODY_BYTES_MAX = 256 * 1024
# Contents that do not belong in a log.
_SECRET = frozenset(("secrets", "configmaps", "tokenreviews", "serviceaccounts/token"))


class Level(StrEnum):
    """How much is written about a request."""

    NONE = "None"
    METADATA = "Metadata"
    REQUEST = "Request"


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An answered request (or, for a watch, one whose answer has begun)."""

    audit_id: str
    attributes: Attributes
    uri: str
    code: int
    received: str
    stage: str = "ResponseComplete"
    decision: Decision | None = None
    # The original user of an impersonated request.
    impersonator: User | None = None
    source_ips: tuple[str, ...] = ()
    user_agent: str = ""
    body: Any = None
    # Of the returned Status, if it was one.
    reason: str = ""
    message: str = ""
    annotations: Mapping[str, str] = {}


class AuditLog:
    """Collects events and writes them."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        level: Level = Level.METADATA,
        *,
        bytes_max: int = FILE_BYTES_MAX,
        files_kept: int = FILES_KEPT,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        self.path = path
        self.dropped = 0
        self._clock = clock
        self._level = level
        self._bytes_max = bytes_max
        self._files_kept = files_kept
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(queue_max)
        self._file: BinaryIO | None = None
        self._size = 0
        self._rotates = True
        # Opened now, so that an unwritable log is reported when the server starts.
        try:
            self._open()
        except OSError as error:
            raise SecretFileError(f"audit log {path}: cannot be written: {error.strerror or error}") from error

    def record(self, record: AuditRecord) -> None:
        """Queue an event. Never waits; events that do not fit are counted."""
        if self._level is Level.NONE:
            return
        try:
            self._queue.put_nowait(msgspec.json.encode(self._event(record)) + b"\n")
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Write until cancelled, then flush the queue."""
        try:
            while True:
                self._write([await self._queue.get(), *self._waiting()])
                # Lets other tasks run even if events arrive faster than they are written.
                await asyncio.sleep(0)
        finally:
            self.close()

    def close(self) -> None:
        """Flush the queue and close the file."""
        rest = self._waiting()
        while rest:
            self._write(rest)
            rest = self._waiting()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _waiting(self) -> list[bytes]:
        return [self._queue.get_nowait() for _ in range(min(self._queue.qsize(), _BATCH_MAX))]

    # --- the file ---

    def _open(self) -> BinaryIO:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
        found = os.fstat(descriptor)
        # The path may also be a pipe or device (/dev/stderr), whose mode is not ours to change.
        if stat.S_ISREG(found.st_mode):
            os.fchmod(descriptor, FILE_MODE)
        self._rotates = stat.S_ISREG(found.st_mode)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._size = found.st_size
        return self._file

    def _write(self, lines: list[bytes]) -> None:
        written = 0
        try:
            for line in lines:
                file = self._file or self._open()
                if self._rotates and self._size and self._size + len(line) > self._bytes_max:
                    file = self._rotate(file)
                rest = memoryview(line)
                while rest:
                    rest = rest[file.write(rest) :]
                self._size += len(line)
                written += 1
        except OSError as error:
            # A full disk must not stop the server. The next batch tries again.
            self.dropped += len(lines) - written
            _LOGGER.error("audit log %s: cannot be written: %s", self.path, error.strerror or error)

    def _rotate(self, file: BinaryIO) -> BinaryIO:
        file.close()
        self._file = None
        for number in range(self._files_kept - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        if self._files_kept:
            self.path.replace(self._numbered(1))
        else:
            self.path.unlink()
        return self._open()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    # --- the event ---

    def _event(self, record: AuditRecord) -> dict[str, Any]:
        attributes = record.attributes
        event: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": self._level.value,
            "auditID": record.audit_id,
            "stage": record.stage,
            "requestURI": _text(record.uri),
            "verb": _text(attributes.verb),
            "user": user_info(record.impersonator or attributes.user),
        }
        if record.impersonator is not None:
            event["impersonatedUser"] = user_info(attributes.user)
        if record.source_ips:
            event["sourceIPs"] = list(record.source_ips)
        if record.user_agent:
            event["userAgent"] = _text(record.user_agent)
        if attributes.is_resource:
            event["objectRef"] = _reference(attributes)
        event["responseStatus"] = _response_status(record)
        if self._level is Level.REQUEST and record.body is not None and _may_be_written(record):
            event["requestObject"] = record.body
        event["requestReceivedTimestamp"] = record.received
        event["stageTimestamp"] = self._clock.now_micro()
        annotations = dict(record.annotations)
        if record.decision is not None:
            annotations["authorization.k8s.io/decision"] = "allow" if record.decision.allowed else "forbid"
            annotations["authorization.k8s.io/reason"] = record.decision.reason
        if annotations:
            event["annotations"] = annotations
        return event


def _reference(attributes: Attributes) -> dict[str, str]:
    named = {
        "resource": attributes.resource,
        "namespace": attributes.namespace,
        "name": attributes.name,
        "apiGroup": attributes.group,
        "apiVersion": attributes.version,
        "subresource": attributes.subresource,
    }
    return {key: _text(value) for key, value in named.items() if value}


def _text(value: str) -> str:
    """The text in writable form: invalid bytes of a request become question marks."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _response_status(record: AuditRecord) -> dict[str, Any]:
    status: dict[str, Any] = {"metadata": {}, "code": record.code}
    if record.code >= 400:
        status["status"] = "Failure"
    if record.message:
        status["message"] = _text(record.message)
    if record.reason:
        status["reason"] = record.reason
    return status


def _may_be_written(record: AuditRecord) -> bool:
    attributes = record.attributes
    resource = attributes.resource
    if attributes.subresource and f"{resource}/{attributes.subresource}" in _SECRET:
        return False
    if resource in _SECRET:
        return False
    return len(msgspec.json.encode(record.body)) <= _BODY_BYTES_MAX
