"""The checkpoint of prepared claims, so that a restart at any moment loses nothing.

One small file per claim, replaced atomically and named by the claim's UID, in a folder named by the machine's boot ID: after a
reboot nothing is prepared, so the directories of other boots are removed. A file contains the version
of its content and a checksum. An unreadable file means that some unknown device is in use: then no
other claim is prepared until that one is unprepared.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from allot.driver.files import exchange_file, recover_files, remove_file, remove_folder, replace_file

VERSION = "v1"
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_UNKNOWN_BOOT = "unknown-boot"
_SAFE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?", re.ASCII)


class CheckpointError(Exception):
    """The checkpoint cannot be read or written."""


class Phase(StrEnum):
    """A claim's progress. Started: the device may be partly set up."""

    STARTED = "PrepareStarted"
    COMPLETED = "PrepareCompleted"


class RecordedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device of a prepared claim."""

    request: str
    pool: str
    device: str
    share_id: str | None = None
    admin_access: bool = False
    cdi_ids: tuple[str, ...] = ()


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The checkpointed state of a claim."""

    uid: str
    namespace: str
    name: str
    phase: Phase
    devices: tuple[RecordedDevice, ...] = ()
    # The claim's CDI spec, to restore the file if it is lost.
    spec: dict[str, Any] | None = None
    # Requests that have device metadata files.
    metadata_requests: tuple[str, ...] = ()
    # The driver's own data for unprepare.
    state: Any = None


class _File(msgspec.Struct, frozen=True):
    """The file around a record. The data is a string so that the checksum covers exactly what was written."""

    version: str
    checksum: int
    data: str


_decode_file = msgspec.json.Decoder(_File).decode
_decode_record = msgspec.json.Decoder(Record).decode


class Checkpoint:
    """The records of one driver on this boot."""

    def __init__(self, directory: Path, boot_id: str) -> None:
        self._root = directory
        self._directory = directory / (boot_id if _SAFE.fullmatch(boot_id) else _UNKNOWN_BOOT)
        self._records: dict[str, Record] = {}
        # Claim UIDs whose files cannot be read, with the reason.
        self.unreadable: dict[str, str] = {}

    def open(self) -> tuple[Record, ...]:
        """Read everything. Returns the readable records of earlier boots, which are then removed."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            earlier: list[Record] = []
            for folder in sorted(self._root.iterdir()):
                if folder.is_dir() and folder != self._directory:
                    earlier.extend(_readable(folder))
                    remove_folder(folder)
            self.reload()
        except OSError as error:
            raise CheckpointError(f"checkpoint {self._root}: {_reason(error)}") from error
        return tuple(earlier)

    def reload(self) -> None:
        """Read everything again, after another instance of the driver has written."""
        self._records, self.unreadable = {}, {}
        recover_files(self._directory)
        for path in sorted(self._directory.glob("*.json")):
            try:
                record = read_record(path)
            except CheckpointError as error:
                self.unreadable[path.stem] = str(error)
                continue
            self._records[record.uid] = record

    def get(self, uid: str) -> Record | None:
        """The record of a claim."""
        return self._records.get(uid)

    def __iter__(self) -> Iterator[Record]:
        return iter(tuple(self._records.values()))

    def __len__(self) -> int:
        return len(self._records)

    def put(self, record: Record) -> None:
        """Record a claim; it is on disk when this returns."""
        if _SAFE.fullmatch(record.uid) is None:
            raise CheckpointError(f"claim UID {record.uid!r}: expected letters, digits, '-', '.', '_'")
        data = msgspec.json.encode(record)
        file = _File(VERSION, zlib.crc32(data), data.decode())
        write = exchange_file if record.uid in self._records else replace_file
        try:
            write(self._path(record.uid), msgspec.json.encode(file))
        except OSError as error:
            raise CheckpointError(f"checkpoint {self._path(record.uid)}: {_reason(error)}") from error
        self._records[record.uid] = record

    def remove(self, uid: str) -> None:
        """Forget a claim."""
        if uid not in self._records and uid not in self.unreadable:
            return
        try:
            remove_file(self._path(uid))
        except OSError as error:
            raise CheckpointError(f"checkpoint {self._path(uid)}: {_reason(error)}") from error
        self._records.pop(uid, None)
        self.unreadable.pop(uid, None)

    def _path(self, uid: str) -> str:
        return f"{self._directory}/{uid}.json"


def read_record(path: Path) -> Record:
    """A record from its file; CheckpointError names the problem."""
    try:
        file = _decode_file(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"checkpoint {path}: {_reason(error)}") from error
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"checkpoint {path}: is corrupt: {error}") from error
    if zlib.crc32(file.data.encode()) != file.checksum:
        raise CheckpointError(f"checkpoint {path}: is corrupt: the checksum does not fit")
    if file.version != VERSION:
        raise CheckpointError(f"checkpoint {path}: version {file.version!r}, expected {VERSION!r}")
    try:
        record = _decode_record(file.data)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"checkpoint {path}: {error}") from error
    if record.uid != path.stem:
        raise CheckpointError(f"checkpoint {path}: is of claim {record.uid!r}")
    return record


def read_boot_id(path: Path = BOOT_ID_FILE) -> str:
    """The boot ID of the machine; a constant if the system has none."""
    try:
        return path.read_text().strip() or _UNKNOWN_BOOT
    except OSError:
        return _UNKNOWN_BOOT


def _readable(folder: Path) -> Iterable[Record]:
    for path in sorted(folder.glob("*.json")):
        try:
            yield read_record(path)
        except CheckpointError:
            continue


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
