"""Intel GPUs and the machines that have them (intel.yaml). Names are `<model>x<count>` such as `max1550x6`, or a system's."""

from __future__ import annotations

from functools import cache

from allot.devices.profiles.cards import Card, CardMachine, CardTables
from allot.process.data_files import read_data_file


class IntelModel(Card, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model. name, family: as Intel's driver publishes them; kernel_driver: its driver; functions: the maximum number of virtual functions."""

    name: str
    family: str
    kernel_driver: str
    execution_units: int
    tiles: int = 1
    functions: int = 0


IntelMachine = CardMachine[IntelModel]


@cache
def intel_tables() -> CardTables[IntelModel]:
    """Models and machines."""
    return read_data_file(__package__, "intel.yaml", CardTables[IntelModel])
