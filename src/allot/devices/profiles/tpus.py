"""TPU generations and the machines that have them.

Names are GKE's machine types, or `<generation>x<chips>` such as `v6ex4`. Chip counts, PCI ids and accelerator names are Google's;
the names of generations are those of its driver (v5e is `v5litepod`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

CHIPS_PER_HOST = (1, 2, 4, 8)
_PLAIN = re.compile(r"(v[0-9][a-z]{0,3})x([0-9]{1,2})")


class UnknownTpuMachine(LookupError):
    """No machine or generation has this name."""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """A generation of chips. cores: per chip, as accelerator types count them; uses_vfio: how the kernel shows a chip."""

    name: str
    attribute: str
    accelerator: str
    pci_device_id: int
    pci_subsystem_id: int | None = None
    cores: int = 1
    uses_vfio: bool = True


class TpuMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with chips. cloud: empty unless it is a type of GKE's."""

    name: str
    generation: Generation
    chips: int
    cloud: str = ""
    cpus: int = 8
    memory_gib: int = 32


V3 = Generation(
    name="v3", attribute="v3", accelerator="tpu-v3-device", pci_device_id=0x0027, pci_subsystem_id=0x004F, cores=2,
    uses_vfio=False,
)  # fmt: skip
V4 = Generation(
    name="v4", attribute="v4", accelerator="tpu-v4-podslice", pci_device_id=0x005E, cores=2, uses_vfio=False
)
V5E = Generation(name="v5e", attribute="v5litepod", accelerator="tpu-v5-lite-podslice", pci_device_id=0x0063)
V5P = Generation(name="v5p", attribute="v5p", accelerator="tpu-v5p-slice", pci_device_id=0x0062, cores=2)
V6E = Generation(name="v6e", attribute="v6e", accelerator="tpu-v6e-slice", pci_device_id=0x006F)

GENERATIONS: Mapping[str, Generation] = {each.name: each for each in (V3, V4, V5E, V5P, V6E)}
# name: generation, chips, CPUs, memory in GiB
_SHAPES: Mapping[str, tuple[Generation, int, int, int]] = {
    "ct4p-hightpu-4t": (V4, 4, 240, 407),
    "ct5lp-hightpu-1t": (V5E, 1, 24, 48),
    "ct5lp-hightpu-4t": (V5E, 4, 112, 192),
    "ct5lp-hightpu-8t": (V5E, 8, 224, 384),
    "ct5p-hightpu-1t": (V5P, 1, 52, 112),
    "ct5p-hightpu-2t": (V5P, 2, 104, 224),
    "ct5p-hightpu-4t": (V5P, 4, 208, 448),
    "ct6e-standard-1t": (V6E, 1, 44, 176),
    "ct6e-standard-4t": (V6E, 4, 180, 720),
    "ct6e-standard-8t": (V6E, 8, 180, 1440),
}
_PLAIN_CPUS_PER_CHIP, _PLAIN_MEMORY_GIB_PER_CHIP = 24, 48


def tpu_machine_names() -> tuple[str, ...]:
    """All machines that have a name of their own."""
    return tuple(_SHAPES)


def find_tpu_machine(name: str) -> TpuMachine:
    """The machine of this name, or `<generation>x<chips>`; UnknownTpuMachine lists what there is."""
    shape = _SHAPES.get(name)
    if shape is not None:
        generation, chips, cpus, memory_gib = shape
        return TpuMachine(
            name=name, generation=generation, chips=chips, cloud="gke", cpus=cpus, memory_gib=memory_gib
        )  # fmt: skip
    plain = _PLAIN.fullmatch(name)
    if plain is not None and plain[1] in GENERATIONS and int(plain[2]) in CHIPS_PER_HOST:
        chips = int(plain[2])
        return TpuMachine(
            name=name,
            generation=GENERATIONS[plain[1]],
            chips=chips,
            cpus=_PLAIN_CPUS_PER_CHIP * chips,
            memory_gib=_PLAIN_MEMORY_GIB_PER_CHIP * chips,
        )
    raise UnknownTpuMachine(
        f"machine {name!r}: expected a generation and 1, 2, 4 or 8 chips such as v6ex4 "
        f"(generations: {', '.join(GENERATIONS)}), or one of {', '.join(_SHAPES)}"
    )


def find_generation(device_id: int, subsystem_id: int) -> Generation | None:
    """The generation with these PCI ids."""
    for generation in GENERATIONS.values():
        if generation.pci_device_id == device_id and generation.pci_subsystem_id in (None, subsystem_id):
            return generation
    return None
