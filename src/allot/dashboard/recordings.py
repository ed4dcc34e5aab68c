"""Recordings: the history of a cluster in a file.

A file has a first line with its format, followed by pieces. A piece has a length, a checksum, a head in JSON and a compressed body: the whole
cluster, or what changed since the piece before. Whole pieces are frequent enough that every moment is close to one. A piece is written at once and
never changed, so a killed process leaves at most an incomplete last piece, which readers skip. A wrong checksum is an error: what follows
cannot be trusted.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from allot.core.advice.snapshot import KINDS, NotInSnapshots, read_object
from allot.core.advice.what_if import as_json
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError
from allot.core.model.meta import APIStruct
from allot.dashboard.views.timeline import Sample
from allot.reading.errors import Unreadable

_FIRST_LINE = b"allot recording 1\n"
# Lengths of piece and head, and the checksum of all that follows it.
_FRAME = struct.Struct(">III")
_BODY_BYTES_MAX = 1 << 30
_PIECE_BYTES_MAX = 1 << 30
# Below that a whole piece more or less does not matter.
_CHANGES_BYTES_MIN = 1 << 20
_TYPES = {kind.name if not kind.group else f"{kind.group}/{kind.name}": kind.type for kind in KINDS}
_NAMES = {type_: name for name, type_ in _TYPES.items()}
Key = tuple[type[APIStruct], str, str]


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a piece without its body. is_first: the first of a process; what happened before it is not known. held: devices that
    claims got (True) or released."""

    at: float
    sample: Sample
    is_whole: bool = False
    is_first: bool = False
    title: str = ""
    held: tuple[tuple[str, str, bool], ...] = ()

    def sample_at(self, at: float) -> Sample:
        """The sample, at a time that the reader gives it."""
        return msgspec.structs.replace(self.sample, at=at)


class _Body(msgspec.Struct, frozen=True, omit_defaults=True):
    put: list[dict[str, Any]] = []
    gone: list[tuple[str, str, str]] = []
    unread: dict[str, str] = {}
    use: dict[str, tuple[float, float] | None] = {}


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a piece: objects as they are from then on, the keys of those that are gone, and, in a whole one, what could not be
    read. use: of devices, by pod (`views.use`)."""

    put: Sequence[APIStruct]
    gone: Sequence[Key] = ()
    unread: Mapping[type[APIStruct], str] = {}
    use: Mapping[str, tuple[float, float] | None] = {}


class Piece(msgspec.Struct, frozen=True):
    """Where a piece is."""

    head: Head
    start: int
    end: int
    body_start: int


class CannotRecord(Exception):
    """A file that cannot be written, or not any more."""


# --- reading ---


class Recording:
    """A file that was recorded, and perhaps still is."""

    def __init__(self, path: Path, file: IO[bytes], pieces: Sequence[Piece], torn_bytes: int) -> None:
        self.path = path
        self.pieces = pieces
        # How much of a last piece there is whose rest was never written.
        self.torn_bytes = torn_bytes
        self._file = file

    def body(self, piece: Piece) -> Happened:
        """What happened. Unreadable."""
        self._file.seek(piece.body_start)
        data = self._file.read(piece.end - piece.body_start)
        try:
            body = msgspec.json.decode(_inflated(data), type=_Body)
            return Happened(
                put=[read_object(value) for value in body.put],
                gone=[(_TYPES[kind], namespace, name) for kind, namespace, name in body.gone],
                unread={_TYPES[kind]: namespace for kind, namespace in body.unread.items()},
                use=body.use,
            )
        except (zlib.error, ValueError, KeyError, NotInSnapshots, DecodeError, ConversionError) as error:
            raise Unreadable(f"{self.path}: the piece at byte {piece.start} cannot be read: {error}") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _inflated(data: bytes) -> bytes:
    """Not more than a body may have, whatever the file says."""
    inflating = zlib.decompressobj()
    found = inflating.decompress(data, _BODY_BYTES_MAX)
    if inflating.unconsumed_tail:
        raise ValueError(f"it has more than {_BODY_BYTES_MAX >> 20} MiB")
    return found


def is_recording(path: str) -> bool:
    """Whether a file begins like one."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_FIRST_LINE)) == _FIRST_LINE
    except OSError:
        return False


def open_recording(path: Path) -> Recording:
    """A recording, all of its pieces checked. Unreadable."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise Unreadable(f"{path}: {(error.strerror or str(error)).lower()}") from None
    try:
        pieces, torn = _pieces(path, file)
        if not pieces:
            raise Unreadable(f"{path}: the recording is empty")
        return Recording(path, file, pieces, torn)
    except BaseException:
        file.close()
        raise


def _pieces(path: Path, file: IO[bytes]) -> tuple[list[Piece], int]:
    first = file.read(len(_FIRST_LINE))
    if first != _FIRST_LINE:
        raise Unreadable(f"{path}: not a recording", "allot dashboard --record FILE makes one; -f FILE shows a dump")
    size, start, found = os.fstat(file.fileno()).st_size, len(_FIRST_LINE), list[Piece]()
    while size - start >= _FRAME.size:
        length, head_length, checksum = _FRAME.unpack(file.read(_FRAME.size))
        if length > _PIECE_BYTES_MAX or head_length > length:
            raise _damaged(path, start, "its length cannot be right")
        if length > size - start - _FRAME.size:
            break
        data = file.read(length)
        if zlib.crc32(data) != checksum:
            raise _damaged(path, start, "its checksum is wrong")
        try:
            head = msgspec.json.decode(data[:head_length], type=Head)
        except ValueError as error:
            raise _damaged(path, start, str(error)) from None
        if not found and not head.is_whole:
            raise _damaged(path, start, "the first piece does not have the whole cluster")
        end = start + _FRAME.size + length
        found.append(Piece(head, start, end, start + _FRAME.size + head_length))
        start = end
    return found, size - start


def _damaged(path: Path, start: int, why: str) -> Unreadable:
    hint = f"what is before it is intact: head -c {start} {path} > other" if start > len(_FIRST_LINE) else None
    return Unreadable(f"{path}: damaged: the piece at byte {start} cannot be read: {why}", hint)


# --- writing ---


class Writer:
    """Appends pieces to a file that no other process writes and only its owner can read. Blocks: use it in a thread. CannotRecord."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        try:
            self._file = _locked(path)
            self._size, self._wholes = self._continued()
            os.fchmod(self._file, 0o600)
        except OSError as error:
            raise CannotRecord(f"{path}: {(error.strerror or str(error)).lower()}") from None
        self._whole_bytes = 0
        # A caller that is cancelled leaves a thread behind that still writes.
        self._turn = threading.Lock()

    def _continued(self) -> tuple[int, list[int]]:
        """The size and where whole pieces are: of what is there, without the torn end of a process that was killed."""
        handle = self._file
        if _FIRST_LINE.startswith(os.pread(handle, len(_FIRST_LINE), 0)) and os.fstat(handle).st_size < len(
            _FIRST_LINE
        ):
            os.pwrite(handle, _FIRST_LINE, 0)
            return len(_FIRST_LINE), []
        try:
            with self._path.open("rb") as file:
                pieces, torn = _pieces(self._path, file)
        except Unreadable as error:
            os.close(handle)
            raise CannotRecord(f"{error.message}; nothing is added to it: name another file") from None
        size = os.fstat(handle).st_size - torn
        os.ftruncate(handle, size)
        return size, [piece.start for piece in pieces if piece.head.is_whole]

    @property
    def wants_whole(self) -> bool:
        """Whether so much has changed since the last whole piece that another one is cheap, or the file will soon be cut there."""
        if not self._wholes:
            return True
        changes = self._size - self._wholes[-1] - self._whole_bytes
        return changes > min(max(2 * self._whole_bytes, _CHANGES_BYTES_MIN), self._bytes_max // 4)

    def write(self, head: Head, body: Happened) -> None:
        """A piece, whole or not at all."""
        data = _encoded(head, body)
        with self._turn:
            self._append(head, data)

    def _append(self, head: Head, data: bytes) -> None:
        start = self._size
        try:
            # One call: a process that is killed has written it or a beginning of it.
            _write(self._file, data, start)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, start)
            raise CannotRecord(f"{self._path}: {(error.strerror or str(error)).lower()}") from None
        self._size += len(data)
        if head.is_whole:
            self._wholes.append(start)
            self._whole_bytes = len(data)
        if self._size > self._bytes_max:
            self._cut()

    def _cut(self) -> None:
        """Leave the oldest pieces out, up to one that has the whole cluster: into a new file, which then takes the place of the old one."""
        wanted = self._size - self._bytes_max // 2
        start = next((each for each in self._wholes if each >= wanted), self._wholes[-1])
        if self._size - start > self._bytes_max:
            needed, allowed = (self._size - start) / (1 << 20), self._bytes_max / (1 << 20)
            raise CannotRecord(
                f"{self._path}: the cluster alone takes {needed:.1f} MiB, more than the {allowed:g} MiB that are allowed"
            )
        new = self._path.with_name(f"{self._path.name}.new")
        moved = len(_FIRST_LINE) - start
        try:
            new.unlink(missing_ok=True)
            # Not through a link that another user creates there.
            handle = _locked(new, os.O_EXCL)
            try:
                _write(handle, _FIRST_LINE, 0)
                for at in range(start, self._size, 1 << 22):
                    _write(handle, os.pread(self._file, min(1 << 22, self._size - at), at), at + moved)
                os.fsync(handle)
                new.replace(self._path)
            except BaseException:
                os.close(handle)
                with suppress(OSError):
                    new.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise CannotRecord(f"{self._path}: {(error.strerror or str(error)).lower()}") from None
        os.close(self._file)
        self._file = handle
        self._size += moved
        self._wholes = [each + moved for each in self._wholes if each >= start]

    def close(self) -> None:
        """All that was written is on the disk."""
        with self._turn:
            with suppress(OSError):
                os.fsync(self._file)
            os.close(self._file)


def _write(handle: int, data: bytes, at: int) -> None:
    """All of the data; OSError if the disk takes only a part."""
    written = os.pwrite(handle, data, at)
    if written != len(data):
        raise OSError(f"only {written} of {len(data)} bytes could be written")


def _locked(path: Path, flags: int = 0) -> int:
    """A file for its owner alone, which no other process records into. OSError, CannotRecord."""
    if sys.platform == "win32":
        raise CannotRecord(f"{path}: recordings are not written on Windows")
    import fcntl

    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its owner may have replaced it meanwhile.
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise CannotRecord(f"{path}: another dashboard records into it") from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _encoded(head: Head, body: Happened) -> bytes:
    first = msgspec.json.encode(head)
    plain = _Body(
        put=[as_json(each) for each in body.put],
        gone=[(_NAMES[type_], namespace, name) for type_, namespace, name in body.gone],
        unread={_NAMES[type_]: namespace for type_, namespace in body.unread.items()},
        use=dict(body.use),
    )
    data = first + zlib.compress(msgspec.json.encode(plain), 6)
    return _FRAME.pack(len(data), len(first), zlib.crc32(data)) + data
