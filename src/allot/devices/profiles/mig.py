"""MIG: the possible instances of a GPU (mig.yaml), and their possible placements in its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from allot.process.data_files import read_data_file

MEMORY_SLICES = 8


class MigProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of GPU instance: its resources and placements."""

    name: str
    id: int
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    memory_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int = 0
    jpeg_engines: int = 0
    ofa_engines: int = 0
    is_estimated: bool = False

    @property
    def has_media_extensions(self) -> bool:
        """Whether a GPU can have only one instance of this profile."""
        return self.name.endswith("+me")


class Placement(msgspec.Struct, frozen=True, order=True):
    """Memory slices of an instance."""

    start: int
    size: int

    @property
    def slices(self) -> range:
        """The numbers of the slices."""
        return range(self.start, self.start + self.size)


def placements(profile: MigProfile) -> Iterator[Placement]:
    """All placements of an instance of the profile."""
    for start in profile.starts:
        yield Placement(start, profile.memory_slices)


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: int
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]


class _Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    shape: str
    name: str
    memory_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    jpeg_engines: int
    ofa_engines: int


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    profiles: tuple[_Row, ...]
    is_estimated: bool = False


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shapes: Mapping[str, _Shape]
    tables: Mapping[str, _Table]


@cache
def mig_tables() -> Mapping[str, tuple[MigProfile, ...]]:
    """MIG profiles by the name of their table."""
    read = read_data_file(__package__, "mig.yaml", _Tables)
    return {
        name: tuple(_profile(row, read.shapes[row.shape], table.is_estimated) for row in table.profiles)
        for name, table in read.tables.items()
    }


def _profile(row: _Row, shape: _Shape, is_estimated: bool) -> MigProfile:
    fields = msgspec.structs.asdict(shape) | msgspec.structs.asdict(row)
    del fields["shape"]
    return MigProfile(**fields, is_estimated=is_estimated)
