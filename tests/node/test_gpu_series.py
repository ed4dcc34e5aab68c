"""GPUs of simulated nodes in DCGM's words: whole ones, shared ones, and parts."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.preparation import ClaimRecord, DriverRecord, PreparedDevice
from allot.core.metrics.declared_usage import PodLoad
from allot.core.metrics.exposition import Sample
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import ObjectMeta
from allot.devices.catalogue import find_profile
from allot.devices.gpu.inventory import DRIVER_NAME
from allot.devices.simulation import GpuSettings, Settings, SimulatedDrivers
from allot.node.gpu_series import DeviceFacts, Holder, facts_of, gpu_series

GIB = 2**30
WHOLE = DeviceFacts(number="3", uuid="GPU-3", bus="0000:1b:00.0", model="H100", memory_bytes=80 * GIB)
PART = DeviceFacts(
    number="3", uuid="GPU-3", model="H100", memory_bytes=10 * GIB, profile="1g.10gb", part="2", part_uuid="MIG-1"
)
FACTS = {(DRIVER_NAME, "node", "gpu-3"): WHOLE, (DRIVER_NAME, "node", "part"): PART}


def holder(name: str, percent: float, *devices: str, memory: int | None = None, containers: int = 1) -> Holder:
    prepared = tuple(PreparedDevice(pool="node", device=each) for each in devices)
    claim = ClaimRecord(namespace="ns", name="c", uid="u", drivers={DRIVER_NAME: DriverRecord(devices=prepared)})
    pod = Pod(metadata=ObjectMeta(name=name, namespace="ns", uid=name))
    load = PodLoad(containers={}, gpu_percent=percent, gpu_memory_bytes=memory)
    return Holder(pod, load, [(f"main-{number}", claim) for number in range(containers)])


def by_name(samples: Any) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for sample in samples:
        assert isinstance(sample, Sample)
        found.setdefault(sample.labels["pod"], {})[sample.name.removeprefix("DCGM_FI_")] = sample.value
    return found


def test_a_whole_gpu_in_the_labels_of_the_exporter() -> None:
    samples = list(gpu_series("node", [holder("p", 90.0, "gpu-3", "nic-0", containers=2)], FACTS))
    assert samples[0] == Sample(
        "DCGM_FI_DEV_GPU_UTIL",
        {
            "gpu": "3",
            "UUID": "GPU-3",
            "pci_bus_id": "0000:1b:00.0",
            "device": "nvidia3",
            "modelName": "H100",
            "hostname": "node",
            "pod": "p",
            "namespace": "ns",
            "container": "main-0",
            "dra_claim_name": "c",
            "dra_claim_namespace": "ns",
            "dra_driver_name": "gpu.nvidia.com",
            "dra_pool_name": "node",
            "dra_device_name": "gpu-3",
        },
        90.0,
    )
    # Once, though two containers have it.
    assert len(samples) == 4
    assert by_name(samples) == {
        "p": {"DEV_GPU_UTIL": 90.0, "DEV_FB_USED": 73728.0, "DEV_FB_FREE": 8192.0, "PROF_GR_ENGINE_ACTIVE": 0.9}
    }


def test_a_shared_gpu_is_as_busy_as_all_who_share_it() -> None:
    found = by_name(gpu_series("node", [holder("a", 30.0, "gpu-3", memory=GIB), holder("b", 45.0, "gpu-3")], FACTS))
    assert found["a"] == found["b"]
    assert found["a"] == {
        "DEV_GPU_UTIL": 75.0,
        "DEV_FB_USED": 1024.0 + 36864.0,
        "DEV_FB_FREE": 81920.0 - 1024.0 - 36864.0,
        "PROF_GR_ENGINE_ACTIVE": 0.75,
    }
    full = by_name(gpu_series("node", [holder("a", 80.0, "gpu-3"), holder("b", 80.0, "gpu-3")], FACTS))
    assert full["b"]["DEV_GPU_UTIL"] == 100.0 and full["b"]["DEV_FB_FREE"] == 0.0


def test_a_part_has_its_own_memory_and_no_utilization_in_percent() -> None:
    samples = list(gpu_series("node", [holder("p", 50.0, "part")], FACTS))
    assert by_name(samples) == {"p": {"DEV_FB_USED": 5120.0, "DEV_FB_FREE": 5120.0, "PROF_GR_ENGINE_ACTIVE": 0.5}}
    labels = samples[0].labels
    assert (labels["UUID"], labels["GPU_I_PROFILE"], labels["GPU_I_ID"]) == ("GPU-3", "1g.10gb", "2")
    assert (labels["dra_mig_profile"], labels["dra_mig_device_uuid"]) == ("1g.10gb", "MIG-1")


@pytest.mark.parametrize("is_cut", [False, True])
def test_facts_of_what_the_driver_publishes(*, is_cut: bool) -> None:
    settings = Settings(gpu=GpuSettings(feature_gates={"DynamicMIG": is_cut}))
    pools = SimulatedDrivers(find_profile("h100x8"), settings).pools("n")
    found = {device.name: facts_of(device) for _, pool in pools for device in pool.devices}
    whole = found["gpu-7"]
    assert whole is not None and (whole.number, whole.memory_bytes // GIB, whole.profile) == ("7", 79, "")
    assert whole.uuid.startswith("GPU-") and whole.bus and "H100" in whole.model
    parts = [facts for facts in found.values() if facts is not None and facts.profile]
    assert bool(parts) == is_cut
    assert all(part.uuid.startswith("GPU-") and part.number and part.part for part in parts)
    assert all(facts is None for name, facts in found.items() if not name.startswith("gpu-"))
