"""TPU generations and the machines that have them (tpus.yaml).

Names are GKE's machine types, or `<generation>x<chips>` such as `v6ex4`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import msgspec

from allot.process.data_files import read_data_file

CHIPS_PER_HOST = (1, 2, 4, 8)
_PLAIN = re.compile(r"(v[0-9][a-z]{0,3})x([0-9]{1,2})")
_PLAIN_CPUS_PER_CHIP, _PLAIN_MEMORY_GIB_PER_CHIP = 24, 48


class UnknownTpuMachine(LookupError):
    """No machine or generation has this name."""


class Generation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A generation of chips. cores: per chip, as accelerator types count them; uses_vfio: whether the kernel exposes chips through VFIO."""

    name: str
    attribute: str
    accelerator: str
    pci_device_id: int
    pci_subsystem_id: int | None = None
    cores: int = 1
    uses_vfio: bool = True


class TpuMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with chips. cloud: empty unless it is a GKE machine type."""

    name: str
    generation: Generation
    chips: int
    cloud: str = ""
    cpus: int = 8
    memory_gib: int = 32


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A GKE machine type. generation: its name."""

    generation: str
    chips: int
    cpus: int
    memory_gib: int


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    generations: tuple[Generation, ...]
    machines: Mapping[str, _Shape]


@cache
def _tables() -> _Tables:
    return read_data_file(__package__, "tpus.yaml", _Tables)


@cache
def generations() -> Mapping[str, Generation]:
    """All generations by name."""
    return {each.name: each for each in _tables().generations}


def tpu_machine_names() -> tuple[str, ...]:
    """All named machines."""
    return tuple(_tables().machines)


def find_tpu_machine(name: str) -> TpuMachine:
    """The machine with this name, or `<generation>x<chips>`; UnknownTpuMachine lists the known ones."""
    shape = _tables().machines.get(name)
    if shape is not None:
        return TpuMachine(
            name=name,
            generation=generations()[shape.generation],
            chips=shape.chips,
            cloud="gke",
            cpus=shape.cpus,
            memory_gib=shape.memory_gib,
        )
    plain = _PLAIN.fullmatch(name)
    if plain is not None and plain[1] in generations() and int(plain[2]) in CHIPS_PER_HOST:
        chips = int(plain[2])
        return TpuMachine(
            name=name,
            generation=generations()[plain[1]],
            chips=chips,
            cpus=_PLAIN_CPUS_PER_CHIP * chips,
            memory_gib=_PLAIN_MEMORY_GIB_PER_CHIP * chips,
        )
    raise UnknownTpuMachine(
        f"machine {name!r}: expected a generation and 1, 2, 4 or 8 chips such as v6ex4 "
        f"(generations: {', '.join(generations())}), or one of {', '.join(tpu_machine_names())}"
    )


def find_generation(device_id: int, subsystem_id: int) -> Generation | None:
    """The generation with these PCI ids."""
    for generation in generations().values():
        if generation.pci_device_id == device_id and generation.pci_subsystem_id in (None, subsystem_id):
            return generation
    return None
