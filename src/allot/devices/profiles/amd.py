"""AMD accelerators and the machines that have them (amd.yaml). Names are the clouds', or `<model>x<count>` such as `mi300xx8`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from allot.devices.profiles.cards import Card, CardMachine, CardTables
from allot.process.data_files import read_data_file

DRIVER_VERSION = "6.12.12"


class AmdModel(Card, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model. modes: for each compute partition mode the number of partitions, and the possible memory partitions."""

    gfx: str
    compute_units: int
    xccs: int = 1
    modes: Mapping[str, tuple[int, tuple[int, ...]]] = {}

    @property
    def partition_profiles(self) -> tuple[str, ...]:
        """All modes of the card: `spx_nps1`, `cpx_nps4`."""
        return tuple(f"{mode}_nps{nps}" for mode, (_, numbers) in self.modes.items() for nps in numbers)


AmdMachine = CardMachine[AmdModel]


@cache
def amd_tables() -> CardTables[AmdModel]:
    """Models and machines."""
    return read_data_file(__package__, "amd.yaml", CardTables[AmdModel])
