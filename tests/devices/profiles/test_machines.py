"""Machine shapes and GPU models as data."""

from __future__ import annotations

import pytest

from allot.devices.profiles.gpus import gpu_models
from allot.devices.profiles.machines import Machine, UnknownMachine, find_machine, machine_names


@pytest.mark.parametrize("name", machine_names())
def test_no_two_cards_of_a_machine_have_one_address(name: str) -> None:
    machine = find_machine(name)
    addresses = [card.bus.pci_address for card in (*machine.gpus, *machine.network_cards)]
    assert len(set(addresses)) == len(addresses)
    assert all(card.bus.numa_node < machine.numa_nodes for card in (*machine.gpus, *machine.network_cards))


@pytest.mark.parametrize(
    ("name", "model", "gpus", "cards", "cpus"),
    [
        ("a3-ultragpu-8g", "h200", 8, 8, 224),
        ("a2-highgpu-1g", "a100-40", 1, 0, 12),
        ("p4d.24xlarge", "a100-40", 8, 4, 96),
        ("p5.48xlarge", "h100", 8, 32, 192),
        ("Standard_ND96isr_H100_v5", "h100", 8, 8, 96),
        ("a4x-highgpu-4g", "gb200", 4, 4, 140),
        ("h100x8", "h100", 8, 0, 128),
    ],
)
def test_a_machine_has_what_its_cloud_says(name: str, model: str, gpus: int, cards: int, cpus: int) -> None:
    machine = find_machine(name)
    assert ({card.model.key for card in machine.gpus}, len(machine.gpus)) == ({model}, gpus)
    assert (len(machine.network_cards), machine.cpus) == (cards, cpus)


def test_an_a3_ultragpu_has_the_addresses_of_a_real_one() -> None:
    machine = find_machine("a3-ultragpu-8g")
    first, last = machine.gpus[0].bus, machine.gpus[7].bus
    assert (first.pci_address, first.pcie_root, first.numa_node) == ("0000:8f:00.0", "pci0000:8c", 0)
    assert (last.pcie_root, last.numa_node) == ("pci0000:c8", 1)
    cards = {card.interface: card.bus for card in machine.network_cards}
    assert (cards["gpu0rdma0"].pci_address, cards["gpu0rdma0"].pcie_root) == ("0000:91:00.0", "pci0000:8c")
    assert (cards["gpu6rdma0"].pci_address, cards["gpu6rdma0"].numa_node) == ("0000:cd:00.0", 1)


def test_every_gpu_with_a_card_of_its_own_shares_its_root() -> None:
    machine: Machine = find_machine("a3-ultragpu-8g")
    roots = [card.bus.pcie_root for card in machine.network_cards]
    assert [card.bus.pcie_root for card in machine.gpus] == roots


@pytest.mark.parametrize("name", ["", "h100x", "h100x0", "h100x17", "h100x999", "v100x8", "x8", "p4d.24XLARGE"])
def test_an_unknown_machine_is_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(UnknownMachine) as caught:
        find_machine(name)
    assert f"machine {name!r}: expected a model and a number from 1 to 16 such as h100x8" in str(caught.value)
    assert "p4d.24xlarge" in str(caught.value)


def test_only_cards_since_ampere_for_data_centres_have_mig() -> None:
    assert [key for key, model in gpu_models().items() if not model.mig_profiles] == ["t4", "p4", "l4"]
    assert [key for key, model in gpu_models().items() if model.mig_mode_needs_reset] == [
        "a100-40",
        "a100-80",
        "a100-80-pcie",
    ]
