"""All machine profiles for simulated nodes.

Knows their names, their processors and memory, and the labels that clouds set on such nodes. Taints are not part of a profile:
clouds set them only if users ask for them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from allot.devices.profiles.amd import AmdMachine, amd_tables
from allot.devices.profiles.cards import UnknownCardMachine
from allot.devices.profiles.gpus import gpu_models
from allot.devices.profiles.intel import IntelMachine, intel_tables
from allot.devices.profiles.machines import Machine, UnknownMachine, find_machine, machine_names
from allot.devices.profiles.tpus import TpuMachine, UnknownTpuMachine, find_tpu_machine, tpu_machine_names
from allot.devices.tpu.topology import single_host_topology

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
# The default profile.
DEFAULT_PROFILE = "h100x8"
# How many nodes one process can simulate.
NODES_MAX = 20_000
_NEAREST_MAX = 3


class UnknownProfile(LookupError):
    """An unknown profile. nearest: similar names."""

    def __init__(self, name: str, nearest: tuple[str, ...]) -> None:
        super().__init__(f"profile {name!r}: unknown machine")
        self.nearest = nearest


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A machine: with NVIDIA GPUs, network cards or neither (machine), with TPU chips (tpus), or with AMD or Intel GPUs (amd, intel)."""

    name: str
    cloud: str
    cpus: int
    memory_gib: int
    labels: Mapping[str, str]
    machine: Machine | None = None
    tpus: TpuMachine | None = None
    amd: AmdMachine | None = None
    intel: IntelMachine | None = None

    @property
    def devices(self) -> str:
        """A description: `8 x NVIDIA H200, 8 network cards`."""
        if self.tpus is not None:
            return f"{self.tpus.chips} x TPU {self.tpus.generation.name}"
        cards = self.amd or self.intel
        if cards is not None:
            return f"{len(cards.buses)} x {cards.model.product_name}"
        assert self.machine is not None
        parts = []
        if self.machine.gpus:
            parts.append(f"{len(self.machine.gpus)} x {self.machine.gpus[0].model.product_name}")
        if self.machine.network_cards:
            parts.append(f"{len(self.machine.network_cards)} network cards")
        return ", ".join(parts)


def find_profile(name: str) -> Profile:
    """The profile with this name; UnknownProfile."""
    try:
        return _of_machine(find_machine(name))
    except UnknownMachine:
        pass
    try:
        return _of_tpus(find_tpu_machine(name))
    except UnknownTpuMachine:
        pass
    try:
        return _of_amd(amd_tables().find(name))
    except UnknownCardMachine:
        pass
    try:
        return _of_intel(intel_tables().find(name))
    except UnknownCardMachine:
        raise UnknownProfile(name, _nearest(name)) from None


def profile_names() -> tuple[str, ...]:
    """All named profiles; models with a number, such as h100x8 and v6ex4, also work."""
    return (*gpu_models(), *machine_names(), *tpu_machine_names(), *amd_tables().names(), *intel_tables().names())


def _nearest(name: str) -> tuple[str, ...]:
    by_lower = {each.lower(): each for each in profile_names()}
    return tuple(by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, _NEAREST_MAX))


def _of_machine(machine: Machine) -> Profile:
    labels = {INSTANCE_TYPE: machine.name}
    if machine.gpus:
        labels["nvidia.com/gpu.present"] = "true"
        if machine.cloud == "gke":
            labels["cloud.google.com/gke-accelerator"] = machine.gpus[0].model.gke_accelerator
            labels["cloud.google.com/gke-accelerator-count"] = str(len(machine.gpus))
            labels["cloud.google.com/gke-nvidia-gpu-dra-driver"] = "true"
            labels["gke-no-default-nvidia-gpu-device-plugin"] = "true"
        elif machine.cloud == "aks":
            labels["kubernetes.azure.com/accelerator"] = "nvidia"
    return Profile(
        name=machine.name,
        cloud=machine.cloud,
        cpus=machine.cpus,
        memory_gib=machine.memory_gib,
        labels=labels,
        machine=machine,
    )


def _of_tpus(machine: TpuMachine) -> Profile:
    labels = {INSTANCE_TYPE: machine.name}
    if machine.cloud == "gke":
        labels["cloud.google.com/gke-tpu-accelerator"] = machine.generation.accelerator
        labels["cloud.google.com/gke-accelerator-count"] = str(machine.chips)
        labels["cloud.google.com/gke-tpu-dra-driver"] = "true"
        labels["cloud.google.com/gke-tpu-topology"] = single_host_topology(machine.chips)
    return Profile(
        name=machine.name,
        cloud=machine.cloud,
        cpus=machine.cpus,
        memory_gib=machine.memory_gib,
        labels=labels,
        tpus=machine,
    )


def _of_amd(machine: AmdMachine) -> Profile:
    return Profile(
        name=machine.name,
        cloud=machine.cloud,
        cpus=machine.cpus,
        memory_gib=machine.memory_gib,
        labels={INSTANCE_TYPE: machine.name, "feature.node.kubernetes.io/amd-gpu": "true"},
        amd=machine,
    )


def _of_intel(machine: IntelMachine) -> Profile:
    return Profile(
        name=machine.name,
        cloud=machine.cloud,
        cpus=machine.cpus,
        memory_gib=machine.memory_gib,
        labels={INSTANCE_TYPE: machine.name, "intel.feature.node.kubernetes.io/gpu": "true"},
        intel=machine,
    )
