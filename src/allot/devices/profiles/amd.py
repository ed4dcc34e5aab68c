"""AMD accelerators and the machines that have them (amd.yaml). Names are the clouds', or `<model>x<count>` such as `mi300xx8`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import msgspec

from allot.devices.profiles.machines import PLAIN_COUNT_MAX, Bus, lay_out
from allot.process.data_files import read_data_file

DRIVER_VERSION = "6.12.12"
_PLAIN = re.compile(r"([a-z0-9-]+?)(?:x([0-9]{1,2}))?")


class UnknownAmdMachine(LookupError):
    """No machine or model has this name."""


class AmdModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model. modes: by compute partition how many there are of a card, and with which memory partitions."""

    key: str
    product_name: str
    pci_device_id: str
    gfx: str
    compute_units: int
    memory_mib: int
    power_limit_w: int
    xccs: int = 1
    modes: Mapping[str, tuple[int, tuple[int, ...]]] = {}

    @property
    def partition_profiles(self) -> tuple[str, ...]:
        """All that the card can be set to: `spx_nps1`, `cpx_nps4`."""
        return tuple(f"{mode}_nps{nps}" for mode, (_, numbers) in self.modes.items() for nps in numbers)


class AmdMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with such cards."""

    name: str
    model: AmdModel
    buses: tuple[Bus, ...]
    cloud: str = ""
    cpus: int = 8
    memory_gib: int = 32


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpus: int
    memory_gib: int
    model: str
    gpus: int
    cloud: str = ""
    numa_nodes: int = 1


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[AmdModel, ...]
    machines: Mapping[str, _Shape]


@cache
def _tables() -> _Tables:
    return read_data_file(__package__, "amd.yaml", _Tables)


@cache
def amd_models() -> Mapping[str, AmdModel]:
    """All models by key."""
    return {model.key: model for model in _tables().models}


def amd_machine_names() -> tuple[str, ...]:
    """All machines that have a name of their own, and models, which stand for a machine with one card."""
    return (*amd_models(), *_tables().machines)


def find_amd_machine(name: str) -> AmdMachine:
    """The machine of this name, `<model>x<count>` or `<model>`; UnknownAmdMachine lists what there is."""
    shape = _tables().machines.get(name)
    plain = _PLAIN.fullmatch(name)
    if shape is None and plain is not None and plain[1] in amd_models() and 1 <= int(plain[2] or 1) <= PLAIN_COUNT_MAX:
        count = int(plain[2] or 1)
        shape = _Shape(16 * count, 128 * count, plain[1], count, numa_nodes=2 if count > 4 else 1)
    if shape is None:
        raise UnknownAmdMachine(
            f"machine {name!r}: expected a model and a number from 1 to {PLAIN_COUNT_MAX} such as mi300xx8, "
            f"or one of {', '.join(amd_machine_names())}"
        )
    buses, _ = lay_out(shape.gpus, 0, shape.numa_nodes)
    return AmdMachine(
        name=name,
        model=amd_models()[shape.model],
        buses=tuple(buses),
        cloud=shape.cloud,
        cpus=shape.cpus,
        memory_gib=shape.memory_gib,
    )
