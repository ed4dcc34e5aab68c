"""MIG: how a GPU can be cut into instances, as tables, and where in its memory each instance can lie.

Sizes are those that `nvidia-smi mig -lgip` and `-lgipp` print for A100 and H100. Placements of H200 and later are taken from
the same fractions; numbers of B200 and GB200 that no public output shows are estimates with the same rule (`is_estimated`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

MEMORY_SLICES = 8

# The id of a GPU instance profile, where it can start, and how many memory slices it takes; the same on every card.
_SHAPES: dict[str, tuple[int, tuple[int, ...], int]] = {
    "1g": (19, (0, 1, 2, 3, 4, 5, 6), 1),
    "1g+me": (20, (0, 1, 2, 3, 4, 5, 6), 1),
    "1g double": (15, (0, 2, 4, 6), 2),
    "2g": (14, (0, 2, 4), 2),
    "3g": (9, (0, 4), 4),
    "4g": (5, (0,), 4),
    "7g": (0, (0,), 8),
}


class MigProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of GPU instance: what it has, and where it can lie."""

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
        """Whether it is one of the profiles of which a GPU has only one."""
        return self.name.endswith("+me")


class Placement(msgspec.Struct, frozen=True, order=True):
    """Memory slices of an instance."""

    start: int
    size: int

    @property
    def slices(self) -> range:
        """Which ones."""
        return range(self.start, self.start + self.size)


def placements(profile: MigProfile) -> Iterator[Placement]:
    """Everywhere an instance of the profile can lie."""
    for start in profile.starts:
        yield Placement(start, profile.memory_slices)


def _table(*rows: tuple[str, str, int, int, int, int, int, int], is_estimated: bool = False) -> tuple[MigProfile, ...]:
    """Rows: shape, name, memory in MiB, multiprocessors, copy engines, decoders, JPEG engines, OFA engines."""
    profiles = []
    for shape, name, memory, multiprocessors, copy_engines, decoders, jpeg_engines, ofa_engines in rows:
        id_, starts, size = _SHAPES[shape]
        profiles.append(
            MigProfile(
                name=name,
                id=id_,
                compute_slices=int(shape[0]),
                memory_slices=size,
                starts=starts,
                memory_mib=memory,
                multiprocessors=multiprocessors,
                copy_engines=copy_engines,
                decoders=decoders,
                jpeg_engines=jpeg_engines,
                ofa_engines=ofa_engines,
                is_estimated=is_estimated,
            )
        )
    return tuple(profiles)


A100_40GB = _table(
    ("1g", "1g.5gb", 4864, 14, 1, 0, 0, 0),
    ("1g+me", "1g.5gb+me", 4864, 14, 1, 1, 1, 1),
    ("1g double", "1g.10gb", 9856, 14, 1, 1, 0, 0),
    ("2g", "2g.10gb", 9856, 28, 2, 1, 0, 0),
    ("3g", "3g.20gb", 19968, 42, 3, 2, 0, 0),
    ("4g", "4g.20gb", 19968, 56, 4, 2, 0, 0),
    ("7g", "7g.40gb", 40192, 98, 7, 5, 1, 1),
)
A100_80GB = _table(
    ("1g", "1g.10gb", 9856, 14, 1, 0, 0, 0),
    ("1g+me", "1g.10gb+me", 9856, 14, 1, 1, 1, 1),
    ("1g double", "1g.20gb", 19968, 14, 1, 1, 0, 0),
    ("2g", "2g.20gb", 19968, 28, 2, 1, 0, 0),
    ("3g", "3g.40gb", 40192, 42, 3, 2, 0, 0),
    ("4g", "4g.40gb", 40192, 56, 4, 2, 0, 0),
    ("7g", "7g.80gb", 80384, 98, 7, 5, 1, 1),
)
H100_80GB = _table(
    ("1g", "1g.10gb", 9984, 16, 1, 1, 1, 0),
    ("1g+me", "1g.10gb+me", 9984, 16, 1, 1, 1, 1),
    ("1g double", "1g.20gb", 20096, 26, 1, 1, 1, 0),
    ("2g", "2g.20gb", 20096, 32, 2, 2, 2, 0),
    ("3g", "3g.40gb", 40448, 60, 3, 3, 3, 0),
    ("4g", "4g.40gb", 40448, 64, 4, 4, 4, 0),
    ("7g", "7g.80gb", 81152, 132, 8, 7, 7, 1),
)
H200_141GB = _table(
    ("1g", "1g.18gb", 16384, 16, 1, 1, 1, 0),
    ("1g+me", "1g.18gb+me", 16384, 16, 1, 1, 1, 1),
    ("1g double", "1g.35gb", 33024, 26, 1, 1, 1, 0),
    ("2g", "2g.35gb", 33024, 32, 2, 2, 2, 0),
    ("3g", "3g.71gb", 71168, 60, 3, 3, 3, 0),
    ("4g", "4g.71gb", 71168, 64, 4, 4, 4, 0),
    ("7g", "7g.141gb", 143104, 132, 8, 7, 7, 1),
)
B200_180GB = _table(
    ("1g", "1g.23gb", 22528, 18, 2, 1, 1, 0),
    ("1g+me", "1g.23gb+me", 22528, 18, 2, 1, 1, 1),
    ("1g double", "1g.45gb", 45312, 30, 2, 1, 1, 0),
    ("2g", "2g.45gb", 45312, 36, 4, 2, 2, 0),
    ("3g", "3g.90gb", 91392, 54, 6, 3, 3, 0),
    ("4g", "4g.90gb", 91392, 72, 8, 4, 4, 0),
    ("7g", "7g.180gb", 182784, 148, 16, 7, 7, 1),
    is_estimated=True,
)
GB200_189GB = _table(
    ("1g", "1g.24gb", 23552, 18, 2, 1, 1, 0),
    ("1g+me", "1g.24gb+me", 23552, 18, 2, 1, 1, 1),
    ("1g double", "1g.47gb", 47104, 30, 2, 1, 1, 0),
    ("2g", "2g.47gb", 47104, 36, 4, 2, 2, 0),
    ("3g", "3g.95gb", 94464, 54, 6, 3, 3, 0),
    ("4g", "4g.95gb", 94464, 72, 8, 4, 4, 0),
    ("7g", "7g.189gb", 188928, 152, 16, 7, 7, 1),
    is_estimated=True,
)
