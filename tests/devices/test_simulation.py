"""The drivers of simulated machines: which a profile has, and that what is published before they run is what they publish."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.devices.catalogue import UnknownProfile, find_profile, profile_names
from allot.devices.simulation import CpuSettings, GpuSettings, NicSettings, Settings, SettingsError, SimulatedDrivers


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_has_devices_labels_and_processors(name: str) -> None:
    profile = find_profile(name)
    assert profile.cpus > 0 and profile.memory_gib > 0
    assert profile.labels["node.kubernetes.io/instance-type"] == name
    pools = SimulatedDrivers(profile).pools("node")
    assert bool(pools) == bool(profile.devices)
    assert all(pool.devices and pool.node_name == "node" for _, pool in pools)


def test_labels_are_those_that_a_cloud_sets() -> None:
    gke = find_profile("a3-ultragpu-8g").labels
    assert gke["cloud.google.com/gke-accelerator"] == "nvidia-h200-141gb"
    assert gke["nvidia.com/gpu.present"] == "true"
    assert find_profile("ct6e-standard-4t").labels["cloud.google.com/gke-tpu-topology"] == "2x2"
    assert find_profile("Standard_NC4as_T4_v3").labels["kubernetes.azure.com/accelerator"] == "nvidia"
    assert "nvidia.com/gpu.present" not in find_profile("n2-standard-16").labels


def test_drivers_follow_from_the_devices_and_settings_change_them() -> None:
    machine = find_profile("a3-ultragpu-8g")
    assert SimulatedDrivers(machine).names == ("gpu.nvidia.com", "dra.net")
    assert SimulatedDrivers(machine, Settings(nic=False, cpu=True)).names == ("gpu.nvidia.com", "dra.cpu")
    assert SimulatedDrivers(machine, Settings(cpu=False)).names == ("gpu.nvidia.com", "dra.net")
    assert SimulatedDrivers(find_profile("v6ex4")).names == ("tpu.google.com",)
    classes = {each.metadata.name for each in SimulatedDrivers(machine, Settings(cpu=CpuSettings())).device_classes}
    assert classes == {
        "gpu.nvidia.com",
        "mig.nvidia.com",
        "vfio.gpu.nvidia.com",
        "dra.net",
        "mrdma.google.com",
        "dra.cpu",
    }


def test_settings_change_what_is_published() -> None:
    plain = dict(SimulatedDrivers(find_profile("h100x2")).pools("n"))
    cut = dict(SimulatedDrivers(find_profile("h100x2"), Settings(gpu=GpuSettings(mig_layout="0=3g.40gb"))).pools("n"))
    dynamic = Settings(gpu=GpuSettings(feature_gates={"DynamicMIG": True}))
    parts = dict(SimulatedDrivers(find_profile("h100x2"), dynamic).pools("n"))
    assert len(plain["gpu.nvidia.com"].devices) == 2
    assert sorted(device.name.partition("-mig")[0] for device in cut["gpu.nvidia.com"].devices) == ["gpu-0", "gpu-1"]
    assert len(parts["gpu.nvidia.com"].devices) > 20
    shared = SimulatedDrivers(
        find_profile("a3-ultragpu-8g"), Settings(gpu=False, nic=NicSettings(share_bandwidth=True))
    )
    assert all(device.allow_multiple_allocations for device in shared.pools("n")[0][1].devices)


@pytest.mark.parametrize(
    ("profile", "settings", "field"),
    [
        ("n2-standard-4", Settings(gpu=True), ("gpu",)),
        ("t4", Settings(nic=NicSettings()), ("nic",)),
        ("v6ex4", Settings(cpu=True), ("cpu",)),
        ("t4", Settings(tpu=True), ("tpu",)),
        ("t4", Settings(gpu=GpuSettings(mig_layout="0=1g.10gb")), ("gpu", "migLayout")),
        ("t4", Settings(cpu=CpuSettings(reserved_cpus="3-1")), ("cpu", "reservedCpus")),
    ],
)
def test_settings_that_a_machine_cannot_have_are_refused(profile: str, settings: Settings, field: tuple[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        SimulatedDrivers(find_profile(profile), settings)
    assert caught.value.field == field


def test_an_unknown_profile_comes_with_those_that_are_near() -> None:
    with pytest.raises(UnknownProfile) as caught:
        find_profile("h10")
    assert "h100" in caught.value.nearest


def test_cards_can_have_faults_before_their_driver_runs(tmp_path: Path) -> None:
    drivers = SimulatedDrivers(find_profile("h100x2"))
    drivers.lay_out("n", tmp_path)
    folder = tmp_path / "plugins/gpu.nvidia.com/gpus"
    assert (folder / "state.json").exists() and not drivers.are_needed(tmp_path)
    (folder / "faults.json").write_text("{}")
    assert drivers.are_needed(tmp_path)


def test_cards_can_be_published_under_another_driver_name_without_the_classes_of_the_chart() -> None:
    drivers = SimulatedDrivers(find_profile("t4"), Settings(gpu=GpuSettings(driver_name="gpu.example.com")))
    assert drivers.names == ("gpu.example.com",)
    assert drivers.device_classes == ()
    ((name, pool),) = drivers.pools("n")
    assert name == "gpu.example.com" and len(pool.devices) == 1
    with pytest.raises(SettingsError, match=r"driver name 'GPU': expected a name such as gpu\.example\.com"):
        SimulatedDrivers(find_profile("t4"), Settings(gpu=GpuSettings(driver_name="GPU")))
